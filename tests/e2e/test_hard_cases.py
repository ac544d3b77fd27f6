"""Cases that broke such platforms before, end to end; the number in each docstring names the case."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiodocker
import httpx
import pytest
import pytest_asyncio
from opensandbox import Sandbox
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import Host, Volume

from tests.e2e.site import BUSYBOX, DEBIAN, KEY_HEADER, MARKS, Client, Site, frames, removed, texts, unique

pytestmark = MARKS


@dataclass(frozen=True, slots=True)
class Door:
    """execd's endpoint of the shared sandbox, without a client library."""

    http: httpx.AsyncClient
    sandbox: Sandbox

    async def run(self, **body: Any) -> httpx.Response:
        return await self.http.post("/command", json=body)


@pytest_asyncio.fixture(loop_scope="session")
async def door(async_client: Client, debian: str) -> AsyncIterator[Door]:
    sandbox = await async_client.connect(debian)
    endpoint = await sandbox.get_endpoint(44772)
    headers = endpoint.build_request_headers(async_client.config())
    async with httpx.AsyncClient(base_url=f"http://{endpoint.endpoint}", headers=headers, timeout=60) as http:
        yield Door(http, sandbox)


async def test_first_running_accepts_the_first_command(site: Site) -> None:
    """Running means that a command can run now: twenty loops without one refused connection (R08)."""
    body = {
        "image": {"uri": BUSYBOX},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"cpu": "1", "memory": "128Mi"},
        "timeout": 120,
    }
    async with site.api() as http:
        for turn in range(20):
            made = await http.post("/sandboxes", json=body)
            assert made.status_code == 202, made.text
            place = f"/sandboxes/{made.json()['id']}"
            try:
                state = made.json()["status"]["state"]
                async with asyncio.timeout(30):
                    while state == "Pending":
                        state = (await http.get(place)).json()["status"]["state"]
                assert state == "Running"
                query = {"use_server_proxy": "true"} if turn % 2 else {}
                found = await http.get(f"{place}/endpoints/44772", params=query)
                assert found.status_code == 200, found.text
                endpoint = found.json()
                answer = await http.post(
                    f"http://{endpoint['endpoint']}/command",
                    json={"command": "true"},
                    headers=endpoint.get("headers"),
                )
                assert answer.status_code == 200, answer.text
                assert frames(answer.text)[-1]["type"] == "execution_complete"
            finally:
                assert (await http.delete(place)).status_code == 204


async def test_create_and_list_see_each_other(site: Site) -> None:
    """A create is in the list that follows it, a delete is not (R11, R20)."""
    body = {
        "image": {"uri": BUSYBOX},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {},
        "timeout": 120,
    }
    async with site.api() as http:
        for _ in range(3):
            sandbox_id = (await http.post("/sandboxes", json=body)).json()["id"]
            assert sandbox_id in (await http.get("/sandboxes", params={"pageSize": 200})).text
            assert (await http.delete(f"/sandboxes/{sandbox_id}")).status_code == 204
            assert sandbox_id not in (await http.get("/sandboxes", params={"pageSize": 200})).text


async def test_out_of_memory_command_says_so(async_client: Client) -> None:
    """A command that takes more than the sandbox has ends with 137 and the words; the sandbox lives on (R10)."""
    sandbox = await async_client.create(DEBIAN, resource={"cpu": "1", "memory": "128Mi"})
    done = await sandbox.commands.run(["python3", "-c", "x = bytearray(10**9)"])
    assert done.error is not None
    said = " ".join([done.error.name, done.error.value, *done.error.traceback]).lower()
    assert done.exit_code == 137, done.error
    assert "memory" in said
    assert texts((await sandbox.commands.run("echo alive")).logs.stdout) == ["alive"]


async def test_broken_stream_is_no_success(async_client: Client, debian: str) -> None:
    """A stream cut in the middle is never exit 0, and the status tells the true end (R55)."""
    sandbox = await async_client.connect(debian)
    endpoint = await sandbox.get_endpoint(44772)
    address, _, path = endpoint.endpoint.partition("/")
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    headers = endpoint.build_request_headers(async_client.config())
    body = b'{"command":"echo begun; sleep 1; exit 9"}'
    head = [
        f"POST {'/' + path if path else ''}/command HTTP/1.1",
        f"Host: {address}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
    ]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    got = b""
    while b"begun" not in got:
        got += await reader.read(4096)
    writer.transport.abort()
    command = got.split(b'"text":"', 1)[1].split(b'"', 1)[0].decode()
    async with asyncio.timeout(15):
        while (status := await sandbox.commands.get_command_status(command)).running:
            await asyncio.sleep(0.1)
    assert status.exit_code == 9


async def test_sandbox_that_dies_breaks_its_commands(
    site: Site, async_client: Client, tmp_path: Path
) -> None:
    """When the sandbox ends under a command, neither the SDK nor `osb` reports success (R55)."""
    sandbox = await async_client.create(BUSYBOX)
    osb = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("osb"),
        *(
            "--use-server-proxy" if async_client.route == "server-proxy" else "--no-use-server-proxy",
            "command",
            "run",
        ),
        *(sandbox.id, "--", "sh", "-c", "touch /tmp/osb; sleep 30"),
        env={"PATH": "/bin:/usr/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        | {"OPEN_SANDBOX_DOMAIN": site.live.domain, "OPEN_SANDBOX_API_KEY": site.live.key},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    running = asyncio.create_task(sandbox.commands.run("touch /tmp/sdk; sleep 30"))
    waited = await sandbox.commands.run(
        "until [ -e /tmp/osb ] && [ -e /tmp/sdk ]; do sleep 0.1; done",
        opts=RunCommandOpts(timeout=timedelta(seconds=20)),
    )
    assert waited.exit_code == 0
    await sandbox.kill()
    async with asyncio.timeout(20):
        (outcome,) = await asyncio.gather(running, return_exceptions=True)
        await osb.communicate()
    if not isinstance(outcome, BaseException):
        assert outcome.complete is None
        assert outcome.exit_code != 0
    assert osb.returncode == 1


async def test_uploads_are_there_for_the_next_command(async_client: Client, debian: str, place: str) -> None:
    """An upload that was acknowledged is whole for the command after it, many at once, on root and on a mount (R73)."""
    folder = async_client.site.host_folder / unique("uploads")
    folder.mkdir()
    sandbox = await async_client.create(
        DEBIAN, volumes=[Volume(name="v", host=Host(path=str(folder)), mountPath="/mnt/v")]
    )

    async def one(number: int) -> None:
        path = f"{'/mnt/v' if number % 2 else place}/{number}"
        data = bytes([number]) * (18_430 + number)
        await sandbox.files.write_file(path, data)
        seen = await sandbox.commands.run(["sha256sum", path])
        assert texts(seen.logs.stdout)[0].split()[0] == hashlib.sha256(data).hexdigest()

    for turn in range(5):
        await asyncio.gather(*(one(turn * 10 + n) for n in range(10)))


@pytest.mark.parametrize("target", ["report%2520name.txt", "report%20name.txt"])
async def test_paths_are_decoded_once(door: Door, place: str, target: str) -> None:
    """The name on the wire is decoded exactly once, direct and through the server (R76)."""
    for name in ("report%20name.txt", "report name.txt"):
        await door.sandbox.files.write_file(f"{place}/{name}", name)
    answer = await door.http.get(f"/files/download?path={place}/{target}")
    assert answer.text == target.replace("%25", "\0").replace("%20", " ").replace("\0", "%")


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/command", b"{}", 400),
        ("/command", b'{"command": ""}', 400),
        ("/command", b"not json", 400),
        ("/command", b'{"command": 5}', 400),
        ("/command", b'{"command": "true", "argv": ["true"]}', 400),
        ("/command", b'{"argv": []}', 400),
        ("/command", b'{"command": "true", "cwd": "/no/such/place"}', 400),
        ("/command", b'{"command": "true", "timeout": -1}', 400),
        ("/command", b'{"command": "true", "gid": 5}', 400),
        ("/session/none/run", b'{"command": "true"}', 404),
        ("/code", b'{"code": "1"}', 501),
        ("/pty", b"{}", 501),
        ("/nothing/here", b"{}", 404),
    ],
)
async def test_bad_requests_are_real_errors(door: Door, path: str, content: bytes, status: int) -> None:
    """What cannot start is answered with its status and JSON, never with an empty event stream (R88)."""
    answer = await door.http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"].startswith("application/json")
    assert set(answer.json()) >= {"code", "message"}
    assert all(isinstance(answer.json()[name], str) and answer.json()[name] for name in ("code", "message"))


async def test_stream_has_the_protocols_form(door: Door) -> None:
    """Frames are bare JSON in ASCII, init first, one terminal event last, and the connection's headers forbid buffering."""
    answer = await door.run(command="printf 'é\u2028\\n\\nx'; echo e >&2; exit 3")
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.text.isascii()
    assert answer.text.endswith("\n\n")
    seen = frames(answer.text)
    assert seen[0]["type"] == "init"
    assert all(isinstance(one["timestamp"], int) for one in seen)
    kinds = [one["type"] for one in seen if one["type"] != "ping"]
    assert kinds[-1] == "error"
    assert kinds.count("error") == 1
    assert "execution_complete" not in kinds
    assert seen[-1]["error"]["evalue"] == "3"
    assert isinstance(seen[-1]["error"]["traceback"], list)


async def test_quiet_command_keeps_its_connection_alive(site: Site, debian: str) -> None:
    """A command that says nothing for twenty seconds still sends a sign of life every fifteen, on both routes (R92)."""
    clients = [Client(site, "async", "direct"), Client(site, "async", "server-proxy")]
    try:
        seen = await asyncio.gather(*(_quiet(client, debian) for client in clients))
    finally:
        for client in clients:
            await client.close()
    for kinds, marks in seen:
        assert kinds[0] == "init"
        assert "ping" in kinds[1:-2]
        assert kinds[-2:] == ["stdout", "execution_complete"]
        assert max(after - before for before, after in itertools.pairwise(marks)) <= 15


async def _quiet(client: Client, sandbox_id: str) -> tuple[list[str], list[float]]:
    endpoint = await (await client.connect(sandbox_id)).get_endpoint(44772)
    headers = endpoint.build_request_headers(client.config())
    marks = [time.monotonic()]
    kinds: list[str] = []
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        http.stream(
            "POST", f"http://{endpoint.endpoint}/command", json={"command": "sleep 20; echo ok"}
        ) as answer,
    ):
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line:
                marks.append(time.monotonic())
                kinds.append(json.loads(line)["type"])
    return kinds, marks


async def test_key_alone_does_not_open_execd(site: Site, debian: str) -> None:
    """The platform's key is no key to execd, and execd's token none to the server (R106)."""
    client = Client(site, "async", "direct")
    try:
        endpoint = await (await client.connect(debian)).get_endpoint(44772)
        async with httpx.AsyncClient(timeout=10) as http:
            with_key = await http.get(
                f"http://{endpoint.endpoint}/metrics", headers={KEY_HEADER: site.live.key}
            )
            proxied = f"{site.live.url}/sandboxes/{debian}/proxy/44772/metrics"
            with_token = await http.get(proxied, headers=endpoint.headers)
            without = await http.get(proxied)
        assert (with_key.status_code, with_token.status_code, without.status_code) == (401, 401, 401)
    finally:
        await client.close()


async def test_volume_sees_the_last_words(site: Site, async_client: Client, engine: aiodocker.Docker) -> None:
    """TERM reaches an entrypoint behind a shell wrapper, which needs two seconds and gets them (R62)."""
    folder = site.host_folder / unique("words")
    folder.mkdir()
    script = "trap 'sleep 2; echo saved > /mnt/words/out; exit 0' TERM; echo ready > /mnt/words/ready; while :; do sleep 0.1; done"
    sandbox = await async_client.create(
        DEBIAN,
        entrypoint=["bash", "-c", script],
        volumes=[Volume(name="w", host=Host(path=str(folder)), mountPath="/mnt/words")],
    )
    async with asyncio.timeout(20):
        while not (folder / "ready").exists():
            await asyncio.sleep(0.05)
    await sandbox.kill()
    await removed(engine, sandbox.id)
    assert (folder / "out").read_text() == "saved\n"
