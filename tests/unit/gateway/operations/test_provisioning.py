"""Making and removing, with failures, disconnects, deletions and crashes in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from gateway.operations.steps import Step
from gateway.sandboxes.model import LifeEvent, SandboxRecord
from specs.errors import (
    DeleteFailed,
    EngineUnavailable,
    PauseFailed,
    SandboxNotFound,
    StartFailed,
    Unavailable,
)
from tests.fakes.gateway import KEY, FakeGateway, Running, body, gateway, settled


async def test_a_slow_pull_answers_pending_with_progress(tmp_path: Path) -> None:
    """The answer comes in time, the pull's progress is in the status, and then it runs (R04)."""
    site = gateway(tmp_path, create_wait_seconds=0.02)
    site.runtime.holds["ensure_image"] = asyncio.Event()
    async with site.running() as gw:
        sandbox_id = await gw.create()
        async with asyncio.timeout(5):
            while (shown := (await gw.http.get(f"/sandboxes/{sandbox_id}")).json())["status"][
                "reason"
            ] != "IMAGE_PULLING":
                await asyncio.sleep(0.005)
        assert shown["status"]["state"] == "Pending"
        assert "pulling img:1" in shown["status"]["message"]
        site.runtime.holds["ensure_image"].set()
        await gw.until(sandbox_id, "Running")


async def test_a_late_failure_stays_on_record(tmp_path: Path) -> None:
    """After the answer a failure is a Failed sandbox with its reason; nothing of it is in the engine."""
    site = gateway(tmp_path, create_wait_seconds=0.02)
    hold = site.runtime.holds["start"] = asyncio.Event()
    site.runtime.failures["start"] = [StartFailed("the engine's own words")]
    async with site.running() as gw:
        sandbox_id = await gw.create(volumes=[{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c"}}])
        hold.set()
        shown = await gw.until(sandbox_id, "Failed")
        assert shown["status"]["reason"] == "SANDBOX_START_FAILED"
        assert "own words" in shown["status"]["message"]
        await settled(lambda: not site.runtime.workloads and not site.runtime.volumes)
        assert (await gw.http.delete(f"/sandboxes/{sandbox_id}")).status_code == 204


async def test_a_caller_that_goes_away_changes_nothing(site: FakeGateway, gw: Running) -> None:
    """A create whose caller hangs up is finished and listed (R05)."""
    hold = site.runtime.holds["ensure_image"] = asyncio.Event()
    for _ in range(5):
        call = asyncio.get_running_loop().create_task(gw.http.post("/sandboxes", json=body()))
        count = len(site.runtime.calls)
        await settled(lambda count=count: len(site.runtime.calls) > count)
        call.cancel()
        await asyncio.wait({call})
    hold.set()
    await settled(lambda: len(site.runtime.workloads) == 5)
    listed = (await gw.http.get("/sandboxes")).json()["items"]
    assert {item["id"] for item in listed} == set(site.runtime.workloads)


@pytest.mark.parametrize("verb", ["ensure_image", "missing_volumes", "create", "start"])
async def test_delete_wins_over_create(tmp_path: Path, verb: str) -> None:
    """Deleted in any phase of its making, a sandbox leaves nothing behind (R11, R16)."""
    site = gateway(tmp_path, create_wait_seconds=0.02)
    hold = site.runtime.holds[verb] = asyncio.Event()
    async with site.running() as gw:
        sandbox_id = await gw.create(volumes=[{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c"}}])
        await settled(lambda: (verb, sandbox_id) in site.runtime.calls)
        assert (await gw.http.delete(f"/sandboxes/{sandbox_id}")).status_code == 204
        assert await gw.state(sandbox_id) == "404"
        hold.set()
        await settled(lambda: ("remove", sandbox_id) in site.runtime.calls)
        await settled(lambda: not site.runtime.workloads and not site.runtime.volumes)
        record = await gw.store.get(sandbox_id)
        async with asyncio.timeout(5):
            while record is not None and record.step:
                await asyncio.sleep(0.005)
                record = await gw.store.get(sandbox_id)
        assert record is not None
        assert record.status.state == "Terminated"


async def test_delete_while_execd_comes_up(tmp_path: Path) -> None:
    """A sandbox whose execd never answers can be deleted at once."""
    site = gateway(tmp_path, create_wait_seconds=0.02, ready_deadline_seconds=60)
    site.peer.ready.clear()
    async with site.running() as gw:
        sandbox_id = await gw.create()
        await settled(lambda: site.peer.asked)
        await gw.http.delete(f"/sandboxes/{sandbox_id}")
        await settled(lambda: not site.runtime.workloads)


async def test_running_means_that_execd_answers(tmp_path: Path) -> None:
    """Until execd answers the sandbox is Pending; if it never does the sandbox fails and is removed (R08)."""
    site = gateway(tmp_path, create_wait_seconds=0.02, ready_deadline_seconds=0.1)
    site.peer.ready.clear()
    async with site.running() as gw:
        sandbox_id = await gw.create()
        assert await gw.state(sandbox_id) == "Pending"
        shown = await gw.until(sandbox_id, "Failed")
        assert "execd did not answer" in shown["status"]["message"]
        await settled(lambda: not site.runtime.workloads)


@pytest.mark.parametrize(("code", "state"), [(0, "Terminated"), (3, "Failed"), (137, "Failed")])
async def test_a_short_entrypoint_is_a_sandbox_that_ended(
    site: FakeGateway, gw: Running, code: int, state: str
) -> None:
    """An entrypoint that ran and ended is 202 with its end, and its output can be read."""
    site.runtime.ends_at_start = code
    made = await gw.http.post("/sandboxes", json=body(entrypoint=["true"]))
    assert (made.status_code, made.json()["status"]["state"]) == (202, state)
    assert f"exit code {code}" in made.json()["status"]["message"]
    assert len(site.runtime.workloads) == 1
    assert (await gw.http.get(f"/sandboxes/{made.json()['id']}/diagnostics/logs")).status_code == 200


async def test_an_entrypoint_that_cannot_start_is_refused(site: FakeGateway, gw: Running) -> None:
    """A program that is not in the image is a 400, and nothing is left."""
    site.runtime.ends_at_start = 127
    answer = await gw.http.post("/sandboxes", json=body(entrypoint=["nothing"]))
    assert (answer.status_code, answer.json()["code"]) == (400, "DOCKER::SANDBOX_START_FAILED")
    assert site.runtime.workloads == {}


async def test_it_ends_while_execd_comes_up(tmp_path: Path) -> None:
    """The end of the entrypoint is noticed at once, not at the deadline of execd."""
    site = gateway(tmp_path, create_wait_seconds=0.02, ready_deadline_seconds=60)
    site.peer.ready.clear()
    async with site.running() as gw:
        sandbox_id = await gw.create()
        await settled(lambda: site.peer.asked)
        site.runtime.end(sandbox_id, 1)
        await gw.until(sandbox_id, "Failed")
        second = await gw.create()
        await settled(lambda: len(site.peer.asked) == 2)
        site.runtime.lose(second)
        shown = await gw.until(second, "Failed")
        assert "removed outside" in shown["status"]["message"]


async def test_a_delete_that_fails_is_tried_again(site: FakeGateway, gw: Running) -> None:
    """The engine's refusals do not stop a removal, and an undo either."""
    sandbox_id = await gw.create()
    site.runtime.failures["remove"] = [DeleteFailed("busy"), EngineUnavailable("down")]
    await gw.http.delete(f"/sandboxes/{sandbox_id}")
    await settled(lambda: not site.runtime.workloads)
    assert site.runtime.calls.count(("remove", sandbox_id)) == 3
    site.runtime.failures["remove"] = [DeleteFailed("busy")]
    site.peer.ready.clear()
    site.runtime.failures["create_late"] = [StartFailed("no")]
    assert (await gw.http.post("/sandboxes", json=body())).status_code == 500
    await settled(lambda: not site.runtime.failures["remove"])


async def test_too_many_creates_are_told_so(tmp_path: Path) -> None:
    """Above the bound a create is 429 with Retry-After and records nothing; places come back."""
    site = gateway(tmp_path, create_wait_seconds=0.02, start_queue=2)
    hold = site.runtime.holds["create"] = asyncio.Event()
    async with site.running() as gw:
        made = [await gw.create(), await gw.create()]
        busy = await gw.http.post("/sandboxes", json=body())
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        assert (await gw.http.get("/sandboxes")).json()["pagination"]["totalItems"] == 2
        hold.set()
        for sandbox_id in made:
            await gw.until(sandbox_id, "Running")
        await gw.create()
        await gw.http.post("/sandboxes", json=body(), headers={"Idempotency-Key": "k"})
        for _ in range(5):
            again = await gw.http.post("/sandboxes", json=body(), headers={"Idempotency-Key": "k"})
            assert again.status_code == 202


async def test_starts_are_given_to_the_engine_a_few_at_a_time(tmp_path: Path) -> None:
    """Creates beyond the number of concurrent starts wait for their turn."""
    site = gateway(tmp_path, create_wait_seconds=0.02, concurrent_starts=2)
    hold = site.runtime.holds["create"] = asyncio.Event()
    async with site.running() as gw:
        await asyncio.gather(*(gw.create() for _ in range(6)))
        assert len([call for call in site.runtime.calls if call[0] == "create"]) == 2
        hold.set()
        await settled(lambda: len(site.runtime.workloads) == 6)


async def test_target_of_the_proxy(site: FakeGateway, gw: Running) -> None:
    """The proxy gets address and token of what runs, and at once a reason for what does not."""
    sandbox_id = await gw.create()
    operations = gw.services.operations
    found = await operations.target(sandbox_id)
    endpoint = (await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/44772")).json()
    assert endpoint["headers"]["X-EXECD-ACCESS-TOKEN"] == found.token.reveal()
    await gw.http.post(f"/sandboxes/{sandbox_id}/pause")
    answer = await gw.http.get(f"/sandboxes/{sandbox_id}/proxy/80/")
    assert (answer.status_code, answer.json()["code"]) == (409, "DOCKER::SANDBOX_NOT_RUNNING")
    assert "Paused" in answer.json()["message"]
    with pytest.raises(SandboxNotFound):
        await operations.target("none")


async def test_an_end_told_while_the_create_closes_is_not_lost(site: FakeGateway, gw: Running) -> None:
    """A sandbox that ends between execd's first answer and the record of it ends on record."""
    operations = gw.services.operations
    store = operations._register.store
    original = store.update

    async def ends_first(record: SandboxRecord, *events: LifeEvent) -> SandboxRecord | None:
        if record.status.state == "Running" and record.step == "":
            store.update = original  # type: ignore[method-assign]
            site.runtime.end(record.sandbox_id, 1)
            await operations.note_observed(site.runtime._observed(record.sandbox_id))
        return await original(record, *events)

    store.update = ends_first  # type: ignore[method-assign]
    await gw.until(await gw.create(), "Failed")


async def test_an_end_told_during_a_resume_is_not_lost(site: FakeGateway, gw: Running) -> None:
    """A sandbox that ends as soon as it is thawed ends on record, not only at the next sweep."""
    sandbox_id = await gw.create()
    await gw.http.post(f"/sandboxes/{sandbox_id}/pause")
    resume = site.runtime.resume

    async def thaw_and_end(sandbox_id: str) -> None:
        await resume(sandbox_id)
        site.runtime.end(sandbox_id, 2)

    site.runtime.resume = thaw_and_end  # type: ignore[method-assign]
    assert (await gw.http.post(f"/sandboxes/{sandbox_id}/resume")).status_code == 202
    assert await gw.state(sandbox_id) == "Failed"


async def test_a_pause_that_the_engine_refuses(site: FakeGateway, gw: Running) -> None:
    """The engine's refusal is a 500 and the sandbox runs on; an end that we had missed is a 409."""
    sandbox_id = await gw.create()
    site.runtime.failures["pause"] = [PauseFailed("freezer is stuck")]
    answer = await gw.http.post(f"/sandboxes/{sandbox_id}/pause")
    assert (answer.status_code, answer.json()["code"]) == (500, "DOCKER::SANDBOX_PAUSE_FAILED")
    assert "freezer is stuck" in answer.json()["message"]
    assert await gw.state(sandbox_id) == "Running"
    workload = site.runtime.workloads[sandbox_id]
    workload.phase, workload.exit_code = "exited", 0
    answer = await gw.http.post(f"/sandboxes/{sandbox_id}/pause")
    assert (answer.status_code, answer.json()["details"]["state"]) == (409, "Terminated")


@pytest.mark.parametrize(("did", "state"), [(False, "Running"), (True, "Paused")])
async def test_a_pause_that_the_engine_did_not_answer(
    site: FakeGateway, gw: Running, did: bool, state: str
) -> None:
    """The engine's silence is told as what it is; what became of the pause is asked until it answers."""
    sandbox_id = await gw.create()
    site.runtime.failures["pause"] = [EngineUnavailable("gone")]
    site.runtime.failures["observe"] = [EngineUnavailable("gone"), EngineUnavailable("still gone")]
    if did:
        site.runtime.workloads[sandbox_id].phase = "paused"
    answer = await gw.http.post(f"/sandboxes/{sandbox_id}/pause")
    assert answer.status_code == 503
    shown = (await gw.http.get(f"/sandboxes/{sandbox_id}")).json()["status"]
    assert (shown["state"], shown["reason"]) == ("Unknown", "ENGINE_SILENT")
    assert (await gw.http.post(f"/sandboxes/{sandbox_id}/pause")).status_code == 409
    await gw.until(sandbox_id, state)


async def test_a_pause_that_cannot_be_looked_at_is_a_pause(site: FakeGateway, gw: Running) -> None:
    """When only the look after a pause fails, the sandbox is paused all the same."""
    sandbox_id = await gw.create()
    site.runtime.failures["observe"] = [EngineUnavailable("gone")]
    assert (await gw.http.post(f"/sandboxes/{sandbox_id}/pause")).status_code == 202
    assert await gw.state(sandbox_id) == "Paused"


async def test_an_end_comes_with_the_last_words(site: FakeGateway, gw: Running) -> None:
    """The status of a sandbox that ended shows what it printed last, on one line and not for ever."""
    sandbox_id = await gw.create()
    site.runtime.workloads[sandbox_id].output = "first\n\x1b[31mred\x1b[0m\n" + "x" * 1000 + "\n"
    site.runtime.end(sandbox_id, 3)
    message = (await gw.until(sandbox_id, "Failed"))["status"]["message"]
    assert message.startswith("the entrypoint ended with exit code 3; its last output: …xxx")
    assert len(message) < 500
    other = await gw.create()
    site.runtime.workloads[other].output = "one\n\x1b[31mtwo\n"
    site.runtime.end(other, 0)
    assert "one | [31mtwo" in (await gw.until(other, "Terminated"))["status"]["message"]


async def test_an_undo_that_takes_long_is_told_as_the_failure_it_is(tmp_path: Path) -> None:
    """A create that failed and is still being taken back answers its error, never 202 for what is not found."""
    site = gateway(tmp_path, create_wait_seconds=0.5)
    site.runtime.failures["start"] = [StartFailed("no")]
    site.runtime.holds["remove"] = asyncio.Event()
    async with site.running() as gw:
        gw.services.operations.undo_seconds = 0.05
        assert (await gw.http.post("/sandboxes", json=body())).status_code == 500
        site.runtime.holds["remove"].set()
        await settled(lambda: not site.runtime.workloads)


async def test_a_store_that_is_full_does_not_keep_a_failed_create(site: FakeGateway, gw: Running) -> None:
    """A failure that cannot be recorded at once is recorded in the end, and what was made is removed."""
    store = gw.services.operations._register.store
    original, refusals = store.update, [1, 1]

    async def full(record: SandboxRecord, *events: LifeEvent) -> SandboxRecord | None:
        if record.step == Step.UNDOING and refusals:
            refusals.pop()
            raise Unavailable("the disk is full")
        return await original(record, *events)

    store.update = full  # type: ignore[method-assign]
    site.runtime.failures["start"] = [StartFailed("no")]
    assert (await gw.http.post("/sandboxes", json=body())).status_code == 500
    await settled(lambda: not site.runtime.workloads)
    assert refusals == []


async def test_no_secret_is_logged_or_stored(site: FakeGateway, gw: Running) -> None:
    """Credentials, environment values, keys and tokens are in no log line and in no file."""
    auth = {"uri": "img:1", "auth": {"username": "u", "password": "planted-secret-1"}}
    site.runtime.failures["create"] = [StartFailed("no")]
    with structlog.testing.capture_logs() as lines:
        await gw.http.post("/sandboxes", json=body(image=auth, env={"A": "planted-secret-2"}))
        sandbox_id = await gw.create(image=auth, env={"A": "planted-secret-2"})
        endpoint = (await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/80")).json()
        await gw.http.delete(f"/sandboxes/{sandbox_id}")
        await settled(lambda: not site.runtime.workloads)
    token = endpoint["headers"]["X-EXECD-ACCESS-TOKEN"]
    said = str(lines) + str([path.read_bytes() for path in site.settings.home.rglob("*") if path.is_file()])
    assert "audit" in said
    for secret in ("planted-secret-1", "planted-secret-2", KEY, token):
        assert secret not in said
