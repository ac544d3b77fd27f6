"""What happens to a sandbox is its state within seconds, with the reason; a real gateway, a real engine."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from tests.integration.states.relay import Relay, relay
from tests.raw_engine import Engine
from tests.soak.gateways import Gateways, gateways, image

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

SECONDS: Final = 15.0
IDLE: Final = ["tail", "-f", "/dev/null"]


@dataclass
class Site:
    gateways: Gateways
    relay: Relay
    http: httpx.AsyncClient
    image: str

    async def create(self, entrypoint: list[str] | None = None, **changes: Any) -> httpx.Response:
        body = {
            "image": {"uri": self.image},
            "entrypoint": entrypoint or IDLE,
            "resourceLimits": {"memory": "64Mi"},
            "timeout": 600,
        }
        return await self.http.post("/sandboxes", json={**body, **changes})

    async def made(self, entrypoint: list[str] | None = None, **changes: Any) -> str:
        answer = await self.create(entrypoint, **changes)
        assert answer.status_code == 202, answer.text
        sandbox_id = str(answer.json()["id"])
        await self.until(sandbox_id, "Running", "Failed", "Terminated")
        return sandbox_id

    async def until(self, sandbox_id: str, *states: str) -> dict[str, Any]:
        """Wait for a state; return the status as shown."""
        shown: dict[str, Any] = {}
        async with asyncio.timeout(SECONDS):
            while True:
                answer = await self.http.get(f"/sandboxes/{sandbox_id}")
                shown = answer.json().get("status", {})
                if (shown.get("state") if answer.status_code == 200 else "gone") in states:
                    return shown
                await asyncio.sleep(0.02)

    async def emptied(self) -> None:
        """Wait until the engine has nothing of this gateway."""
        async with asyncio.timeout(SECONDS + 10):
            while await asyncio.to_thread(self.gateways.leftovers) != ({}, {}):
                await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def busybox() -> str:
    return image()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(busybox: str) -> AsyncIterator[Site]:
    # A path of a socket is at most 107 bytes long, so it is not below pytest's own folder.
    with tempfile.TemporaryDirectory(prefix="bx-") as folder:
        async with relay(Path(folder)) as made:
            home = Path(folder) / "home"
            home.mkdir()
            started = gateways(home, DOCKER_HOST=made.url, BOXWRIGHT_DOCKER_API_TIMEOUT="3")
            found = await asyncio.to_thread(started.__enter__)
            try:
                async with httpx.AsyncClient(base_url=found.url(), headers=found.headers, timeout=60) as http:
                    yield Site(found, made, http, busybox)
            finally:
                await made.mend()
                await asyncio.to_thread(started.__exit__, None, None, None)


def signal_inside(sandbox_id: str, number: int) -> None:
    """Send a signal to a sandbox's first process from outside, where nothing protects it."""
    with closing(Engine()) as engine:
        os.kill(engine.pid(sandbox_id), number)


async def test_killed_execd_is_a_failed_sandbox(site: Site) -> None:
    """When the first process is killed, the state says so with its exit code and the last lines of output."""
    sandbox_id = await site.made(["sh", "-c", "echo one; echo two >&2; exec sleep 600"])
    await asyncio.to_thread(signal_inside, sandbox_id, signal.SIGKILL)
    shown = await site.until(sandbox_id, "Failed")
    assert shown["reason"] == "CONTAINER_EXITED_ERROR"
    assert "exit code 137" in shown["message"]
    assert "one" in shown["message"]
    assert "two" in shown["message"]


async def test_entrypoint_without_memory_is_oom(site: Site) -> None:
    """An entrypoint that takes more memory than there is fails with that reason (R10)."""
    sandbox_id = await site.made(["sh", "-c", "sleep 0.3; tail /dev/zero; exit $?"])
    shown = await site.until(sandbox_id, "Failed")
    assert shown["reason"] == "OOMKilled"
    assert "memory" in shown["message"]


async def test_command_without_memory_is_not_the_sandboxes_end(site: Site) -> None:
    """A child that ran out of memory does not colour the end of an entrypoint that went on and ended well."""
    sandbox_id = await site.made(["sh", "-c", "tail /dev/zero; echo went on; sleep 0.3; exit 0"])
    shown = await site.until(sandbox_id, "Terminated", "Failed")
    assert shown["state"] == "Terminated"
    assert "exit code 0" in shown["message"]
    assert "went on" in shown["message"]


@pytest.mark.parametrize(("code", "state"), [(0, "Terminated"), (3, "Failed")])
async def test_entrypoint_that_ends(site: Site, code: int, state: str) -> None:
    """The entrypoint's end is the sandbox's, at once or later, with its code and its last words."""
    for pause in ("0", "0.5"):
        sandbox_id = await site.made(["sh", "-c", f"echo last words; sleep {pause}; exit {code}"])
        shown = await site.until(sandbox_id, state)
        assert f"exit code {code}" in shown["message"]
        assert "last words" in shown["message"]


async def test_removed_behind_the_gateways_back(site: Site) -> None:
    """A workload that somebody else removed is a failed sandbox, which can be deleted."""
    sandbox_id = await site.made()

    def remove() -> None:
        with closing(Engine()) as engine:
            engine.call("DELETE", f"/containers/sandbox-{sandbox_id}?force=true")

    await asyncio.to_thread(remove)
    shown = await site.until(sandbox_id, "Failed")
    # The engine tells of the kill and of the removal; the gateway may look between the two or after both.
    assert shown["reason"] in {"CONTAINER_GONE", "CONTAINER_EXITED_ERROR"}
    assert (await site.http.delete(f"/sandboxes/{sandbox_id}")).status_code == 204


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"image": {"uri": "127.0.0.1:9/none:1"}}, {502, 500, 503}, "127.0.0.1:9/none:1"),
        ({"image": {"uri": "Not A Name"}}, {400, 422}, "image"),
        ({"platform": {"os": "linux", "arch": "arm64"}}, {400}, "arm64"),
        ({"entrypoint": ["/no/such/program"]}, {400}, "/no/such/program"),
    ],
    ids=["registry-down", "no-reference", "architecture", "no-program"],
)
async def test_what_cannot_be_made_says_why(
    site: Site, changes: dict[str, Any], status: set[int], words: str
) -> None:
    """A create that cannot succeed is refused with what was wanted, and leaves nothing."""
    answer = await site.create(**changes)
    assert answer.status_code in status, answer.text
    assert words in answer.text


async def test_paused_dead_and_deleted_answer_at_once(site: Site) -> None:
    """Calls to what cannot answer are told so without a wait, each in its own words (R14)."""
    paused, dead, deleted = [await site.made() for _ in range(3)]
    assert (await site.http.post(f"/sandboxes/{paused}/pause")).status_code == 202
    await asyncio.to_thread(signal_inside, dead, signal.SIGKILL)
    await site.until(dead, "Failed")
    await site.http.delete(f"/sandboxes/{deleted}")
    told = {}
    for sandbox_id in (paused, dead, deleted):
        began = time.monotonic()
        answer = await site.http.get(f"/sandboxes/{sandbox_id}/proxy/44772/ping")
        assert time.monotonic() - began < 2
        told[sandbox_id] = (answer.status_code, answer.json().get("details", {}).get("state"))
    assert told == {paused: (409, "Paused"), dead: (409, "Failed"), deleted: (404, None)}
    for verb, sandbox_id, state in (
        ("pause", paused, "Paused"),
        ("pause", dead, "Failed"),
        ("resume", dead, "Failed"),
        ("pause", deleted, None),
        ("resume", deleted, None),
    ):
        again = await site.http.post(f"/sandboxes/{sandbox_id}/{verb}")
        assert again.status_code == (404 if state is None else 409)
        assert state is None or state in again.json()["message"]
    assert (await site.http.post(f"/sandboxes/{paused}/resume")).status_code == 202
    assert (await site.http.post(f"/sandboxes/{paused}/resume")).status_code == 409


async def test_engine_that_goes_away_and_comes_back(site: Site) -> None:
    """Without an engine nothing is judged and deletes are taken; when it is back, all becomes true in seconds (R13)."""
    killed, doomed, frozen, kept = [await site.made() for _ in range(4)]
    await site.relay.cut()
    try:
        await asyncio.to_thread(signal_inside, killed, signal.SIGKILL)
        refused = await site.create()
        assert refused.status_code == 503, refused.text
        assert refused.json()["code"]
        assert (await site.http.delete(f"/sandboxes/{doomed}")).status_code == 204
        assert (await site.http.post(f"/sandboxes/{frozen}/pause")).status_code >= 500
        assert (await site.http.get(f"/sandboxes/{kept}")).json()["status"]["state"] == "Running"
        assert (await site.http.get(f"http://127.0.0.1:{site.gateways.ports[0]}/readyz")).status_code == 503
    finally:
        await site.relay.mend()
    assert (await site.until(killed, "Failed"))["reason"] == "CONTAINER_EXITED_ERROR"
    await site.until(frozen, "Running")
    assert (await site.http.post(f"/sandboxes/{frozen}/pause")).status_code == 202
    assert (await site.http.get(f"/sandboxes/{doomed}")).status_code == 404
    async with asyncio.timeout(SECONDS):
        while doomed in (await asyncio.to_thread(site.gateways.leftovers))[0]:
            await asyncio.sleep(0.05)
    for one in (killed, frozen, kept):
        await site.http.delete(f"/sandboxes/{one}")


async def test_engine_that_hangs_is_given_up_in_time(site: Site) -> None:
    """A call to an engine that says nothing ends at its deadline, and the sandbox is what it was."""
    sandbox_id = await site.made()
    site.relay.hush()
    try:
        began = time.monotonic()
        answer = await site.http.post(f"/sandboxes/{sandbox_id}/pause")
        assert answer.status_code >= 500
        assert time.monotonic() - began < 12
        assert (await site.http.get(f"/sandboxes/{sandbox_id}")).status_code == 200
    finally:
        await site.relay.cut()  # what hung is not carried late
        await site.relay.mend()
    await site.until(sandbox_id, "Running")


async def test_engine_lost_while_creating(site: Site) -> None:
    """Creates that lose the engine in the middle end as running or failed sandboxes, and nothing else is left."""
    asking = [asyncio.get_running_loop().create_task(site.create()) for _ in range(6)]
    await asyncio.sleep(0.25)
    await site.relay.cut()
    await asyncio.sleep(0.5)
    await site.relay.mend()
    answers = await asyncio.gather(*asking)
    assert {answer.status_code for answer in answers} <= {202, 500, 503}, [one.text for one in answers]
    for answer in answers:
        if answer.status_code == 202:
            await site.until(answer.json()["id"], "Running", "Failed")


async def test_nothing_is_left(site: Site) -> None:
    """After all this every sandbox can be deleted, and the engine is empty."""
    for item in (await site.http.get("/sandboxes", params={"pageSize": 200})).json()["items"]:
        assert (await site.http.delete(f"/sandboxes/{item['id']}")).status_code == 204
    await site.emptied()
    assert await asyncio.to_thread(site.gateways.rows, "step <> '' OR deleted_at IS NULL") == []
