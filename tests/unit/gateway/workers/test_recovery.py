"""After a restart, and when events are lost, records and engine agree again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.operations.steps import Step
from gateway.sandboxes.model import LifeEvent, SandboxRecord, State, Status
from gateway.stores.database import Database
from gateway.stores.sqlite import SqliteStore
from gateway.workers.recovery import Recovery
from specs.errors import QueryFailed, StartFailed
from tests.fakes.clock import START
from tests.fakes.gateway import FakeGateway, Running, gateway, settled


async def rewound(
    site: FakeGateway, sandbox_id: str, step: str, state: State, *, deleted: bool = False
) -> None:
    """Put a record back to where a crash would have left it."""
    database = Database(site.settings.database)
    store = SqliteStore(database)
    record = await store.get(sandbox_id)
    assert record is not None
    status = Status(state, "WHY", "as it was", START)
    await store.update(replace(record, step=step, status=status, deleted_at=START if deleted else None))
    database.close()


@pytest.fixture
async def stopped(tmp_path: Path) -> tuple[FakeGateway, str]:
    """A gateway that was stopped with one sandbox running."""
    site = gateway(tmp_path)
    async with site.running() as gw:
        sandbox_id = await gw.create(volumes=[{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c"}}])
    return site, sandbox_id


async def test_what_runs_is_adopted(stopped: tuple[FakeGateway, str]) -> None:
    """A running sandbox keeps its address and token over a restart, and is not touched."""
    site, sandbox_id = stopped
    before = len(site.runtime.calls)
    async with site.running() as gw:
        assert await gw.state(sandbox_id) == "Running"
        assert (await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/80")).status_code == 200
        await settled(lambda: ("observe_all", "") in site.runtime.calls[before:])
        assert not {"start", "create", "remove"} & {verb for verb, _ in site.runtime.calls[before:]}


async def test_what_ended_meanwhile_is_noted(stopped: tuple[FakeGateway, str]) -> None:
    """The end that nobody saw is on record after the restart."""
    site, sandbox_id = stopped
    site.runtime.end(sandbox_id, 137, oom_killed=True)
    async with site.running() as gw:
        shown = await gw.until(sandbox_id, "Failed")
        assert shown["status"]["reason"] == "OOMKilled"


async def test_what_vanished_meanwhile_is_noted(stopped: tuple[FakeGateway, str]) -> None:
    """A workload that was removed by hand is a failed sandbox with that reason."""
    site, sandbox_id = stopped
    site.runtime.lose(sandbox_id)
    async with site.running() as gw:
        assert (await gw.until(sandbox_id, "Failed"))["status"]["reason"] == "CONTAINER_GONE"


@pytest.mark.parametrize("step", [Step.CREATING, Step.STARTED])
@pytest.mark.parametrize("phase", ["created", "running"])
async def test_a_create_is_finished(stopped: tuple[FakeGateway, str], step: str, phase: str) -> None:
    """What was made before the crash is started and becomes Running."""
    site, sandbox_id = stopped
    site.runtime.workloads[sandbox_id].phase = phase
    await rewound(site, sandbox_id, step, State.PENDING)
    async with site.running() as gw:
        await gw.until(sandbox_id, "Running")


@pytest.mark.parametrize("step", [Step.ACCEPTED, Step.CREATING])
async def test_a_create_without_workload_fails_and_is_undone(
    stopped: tuple[FakeGateway, str], step: str
) -> None:
    """What was not made by the crash is failed with a reason, and its volume is gone."""
    site, sandbox_id = stopped
    site.runtime.lose(sandbox_id)
    await rewound(site, sandbox_id, step, State.PENDING)
    database = Database(site.settings.database)
    store = SqliteStore(database)
    record = await store.get(sandbox_id)
    assert record is not None
    await store.update(replace(record, managed_volumes=("c",)))
    database.close()
    async with site.running() as gw:
        shown = await gw.until(sandbox_id, "Failed")
        assert "restarted" in shown["status"]["message"]
        await settled(lambda: not site.runtime.volumes)


@pytest.mark.parametrize(
    ("step", "deleted"), [(Step.REMOVING, True), (Step.UNDOING, False), (Step.UNDOING, True)]
)
async def test_a_removal_is_finished(stopped: tuple[FakeGateway, str], step: str, deleted: bool) -> None:
    """A removal goes on after a crash at any point."""
    site, sandbox_id = stopped
    await rewound(
        site, sandbox_id, step, State.STOPPING if step == Step.REMOVING else State.FAILED, deleted=deleted
    )
    async with site.running():
        await settled(lambda: not site.runtime.workloads)


async def test_a_pause_is_settled_by_the_engines_word(stopped: tuple[FakeGateway, str]) -> None:
    """A pause that the crash cut short is what the engine says it is."""
    site, sandbox_id = stopped
    await rewound(site, sandbox_id, Step.PAUSING, State.PAUSING)
    site.runtime.workloads[sandbox_id].phase = "paused"
    async with site.running() as gw:
        await gw.until(sandbox_id, "Paused")
        assert (await gw.http.post(f"/sandboxes/{sandbox_id}/resume")).status_code == 202


async def test_orphans_go_and_others_stay(stopped: tuple[FakeGateway, str]) -> None:
    """A workload of this installation without a record is removed, one with a record is not."""
    site, sandbox_id = stopped
    plan = site.runtime.workloads[sandbox_id].plan
    site.runtime.adopt(replace(plan, sandbox_id="orphan"))
    async with site.running() as gw:
        await settled(lambda: "orphan" not in site.runtime.workloads)
        assert await gw.state(sandbox_id) == "Running"


@pytest.mark.parametrize("told", ["event", "sweep"])
async def test_what_an_undone_create_brings_forth_late_goes(tmp_path: Path, told: str) -> None:
    """What the engine was still making for a create that was taken back is removed when it shows, volume and all."""
    site = gateway(tmp_path, create_wait_seconds=0.02)
    hold = site.runtime.holds["start"] = asyncio.Event()
    site.runtime.failures["start"] = [StartFailed("no")]
    volumes = [{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c"}}]
    async with site.running() as gw:
        sandbox_id = await gw.create(volumes=volumes)
        await settled(lambda: ("start", sandbox_id) in site.runtime.calls)
        plan = site.runtime.workloads[sandbox_id].plan
        hold.set()
        await gw.until(sandbox_id, "Failed")
        await settled(lambda: not site.runtime.workloads)
        if told == "event":
            site.runtime.adopt(plan, "created")
            site.runtime.volumes["c"] = sandbox_id
            site.runtime._tell(sandbox_id)
            await settled(lambda: not site.runtime.workloads and not site.runtime.volumes)
    if told == "sweep":
        site.runtime.adopt(plan)
        site.runtime.volumes["c"] = sandbox_id
        async with site.running() as gw:
            await settled(lambda: not site.runtime.workloads and not site.runtime.volumes)
            assert await gw.state(sandbox_id) == "Failed"


async def test_one_that_cannot_be_judged_does_not_stop_the_others(tmp_path: Path) -> None:
    """The recovery of one sandbox may fail; the others are recovered all the same."""
    site = gateway(tmp_path)
    async with site.running() as gw:
        first, second = [await gw.create() for _ in range(2)]
    for one in (first, second):
        await rewound(site, one, Step.PAUSING, State.PAUSING)
    site.runtime.failures["observe"] = [QueryFailed("strange")]
    async with site.running() as gw:
        await settled(lambda: not site.runtime.failures["observe"])
        async with asyncio.timeout(5):
            while "Running" not in {await gw.state(first), await gw.state(second)}:
                await asyncio.sleep(0.01)


async def test_a_create_that_is_just_being_recorded_is_left_alone(site: FakeGateway, gw: Running) -> None:
    """A sweep between the record of a create and its beginning does not take it for one that was left behind."""
    operations = gw.services.operations
    store, provisioner = operations._register.store, operations._provisioner
    original = store.insert

    async def swept(
        record: SandboxRecord, event: LifeEvent, *, idempotency_key: str | None = None
    ) -> SandboxRecord | None:
        found = await original(record, event, idempotency_key=idempotency_key)
        recovery = Recovery(operations._register, provisioner, site.runtime, operations)
        assert await recovery.reconcile() is False
        return found

    store.insert = swept  # type: ignore[method-assign]
    assert await gw.state(await gw.create()) == "Running"


async def test_recovery_is_not_bound_by_the_queue(tmp_path: Path) -> None:
    """More half-made sandboxes than the gateway takes creates at once are all recovered."""
    site = gateway(tmp_path)
    async with site.running() as gw:
        made = [await gw.create() for _ in range(5)]
    for one in made:
        await rewound(site, one, Step.STARTED, State.PENDING)
    site.settings = replace(site.settings, gateway=replace(site.settings.gateway, start_queue=2))
    async with site.running() as gw:
        for one in made:
            await gw.until(one, "Running")


async def test_a_silent_engine_proves_nothing(stopped: tuple[FakeGateway, str]) -> None:
    """While the engine does not answer, nothing is judged and the API serves; then it is made good."""
    site, sandbox_id = stopped
    site.runtime.unreachable = True
    async with site.running() as gw:
        await settled(lambda: site.runtime.calls.count(("observe_all", "")) > 1)
        assert await gw.state(sandbox_id) == "Running"
        assert (await gw.http.get("http://gw/readyz")).status_code == 503
        site.runtime.unreachable = False
        site.runtime.workloads[sandbox_id].phase = "exited"
        site.runtime.workloads[sandbox_id].exit_code = 0
        await gw.until(sandbox_id, "Terminated")


async def test_events_move_the_state(site: FakeGateway, gw: Running) -> None:
    """Ends, hand-made pauses and removals arrive without being asked for; a late event moves nothing deleted."""
    ended, paused, lost, deleted = [await gw.create() for _ in range(4)]
    site.runtime.end(ended, 0)
    await site.runtime.pause(paused)
    site.runtime.lose(lost)
    hold = site.runtime.holds["remove"] = asyncio.Event()
    await gw.http.delete(f"/sandboxes/{deleted}")
    site.runtime.end(deleted, 0)
    await gw.until(ended, "Terminated")
    await gw.until(paused, "Paused")
    await gw.until(lost, "Failed")
    assert await gw.state(deleted) == "404"
    record = await gw.store.get(deleted)
    assert record is not None
    assert record.status.state == "Stopping"
    hold.set()
