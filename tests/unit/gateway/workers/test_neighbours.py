"""Two gateways on one store and one engine: each leaves the other's work alone, and takes it over at death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gateway.app import Core, make_core
from gateway.operations.provisioning import Attempt
from gateway.operations.services import Caller
from gateway.sandboxes.model import SandboxRecord, State
from gateway.stores.database import Database
from gateway.stores.sqlite import SqliteStore
from specs.errors import Conflict, SandboxNotFound, SandboxNotRunning
from specs.lifecycle import CreateSandboxRequest
from tests.fakes.clock import FakeClock
from tests.fakes.gateway import BUNDLE, SECRET, body, settings
from tests.fakes.peer import FakePeer
from tests.fakes.runtime import FakeRuntime

CALLER = Caller("first", "first")
VOLUME = [{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c", "deleteOnSandboxTermination": True}}]


@dataclass
class Pair:
    """Two gateways at once; either can be taken away as kill -9 would."""

    home: Path
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    clock: FakeClock = field(default_factory=FakeClock)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Core]:
        found = settings(self.home, create_wait_seconds=0.05, endpoint_wait_seconds=5.0)
        database = Database(found.database)
        core = make_core(
            found,
            runtime=self.runtime,
            store=SqliteStore(database),
            peer=FakePeer(),
            bundle=BUNDLE,
            secret=SECRET,
            clock=self.clock,
        )
        await core.begin()
        await core.recovery.reconcile()
        try:
            yield core
        finally:
            await core.tasks.close()
            database.close()


@pytest.fixture
async def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.fixture
async def both(pair: Pair) -> AsyncIterator[tuple[Core, Core]]:
    async with pair.one() as left, pair.one() as right:
        assert left.register.worker != right.register.worker
        yield left, right


async def created(core: Core, **changes: object) -> SandboxRecord:
    request = CreateSandboxRequest.model_validate(body(**changes))
    return await core.operations.create(request, CALLER)


async def settled(core: Core, sandbox_id: str, state: State | None) -> SandboxRecord:
    """Wait until a record is in a state with nothing under way; None is deleted."""
    async with asyncio.timeout(10):
        while True:
            found = await core.register.store.get(sandbox_id)
            assert found is not None
            if found.step == "" and (
                found.deleted_at is not None if state is None else found.status.state is state
            ):
                return found
            await asyncio.sleep(0.01)


async def test_a_create_under_way_is_left_to_its_maker(pair: Pair, both: tuple[Core, Core]) -> None:
    """The recovery of one gateway neither undoes nor finishes what the other is making."""
    left, right = both
    for verb in ("ensure_image", "create", "start"):
        hold = pair.runtime.holds[verb] = asyncio.Event()
        made = await created(left)
        before = len(pair.runtime.calls)
        await right.recovery.reconcile()
        assert right.provisioner.active(made.sandbox_id) is None
        assert {name for name, _ in pair.runtime.calls[before:]} <= {"observe_all", "observe"}
        hold.set()
        assert (await settled(right, made.sandbox_id, State.RUNNING)).worker == ""


async def test_a_newcomer_leaves_it_too(pair: Pair) -> None:
    """A gateway that is started while another one makes a sandbox does not touch it."""
    async with pair.one() as left:
        hold = pair.runtime.holds["start"] = asyncio.Event()
        made = await created(left)
        async with pair.one() as right:
            assert (await right.operations.get(made.sandbox_id)).status.state is State.PENDING
            hold.set()
            await settled(right, made.sandbox_id, State.RUNNING)


@pytest.mark.parametrize("verb", ["ensure_image", "missing_volumes", "create", "start"])
async def test_deleted_through_the_other_while_it_is_made(
    pair: Pair, both: tuple[Core, Core], verb: str
) -> None:
    """A delete through another gateway wins at once, and nothing is left, whatever the maker is at."""
    left, right = both
    hold = pair.runtime.holds[verb] = asyncio.Event()
    made = await created(left, volumes=VOLUME)
    await right.operations.delete(made.sandbox_id, CALLER)
    with pytest.raises(SandboxNotFound):
        await left.operations.get(made.sandbox_id)
    hold.set()
    await settled(right, made.sandbox_id, None)
    assert (pair.runtime.workloads, pair.runtime.volumes) == ({}, {})


async def test_a_maker_that_was_taken_for_dead_cleans_up(pair: Pair, both: tuple[Core, Core]) -> None:
    """What comes into being after the removal is removed by the one who made it."""
    left, right = both
    hold = pair.runtime.holds["create"] = asyncio.Event()
    made = await created(left, volumes=VOLUME)
    attempt = left.provisioner.active(made.sandbox_id)
    assert isinstance(attempt, Attempt)
    record = await right.register.store.get(made.sandbox_id)
    assert record is not None
    assert await right.provisioner.recover(record, frozenset({right.register.worker}))
    await right.operations.delete(made.sandbox_id, CALLER)
    await settled(right, made.sandbox_id, None)
    hold.set()
    async with asyncio.timeout(10):
        while pair.runtime.workloads or pair.runtime.volumes or left.provisioner.active(made.sandbox_id):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("verb", "state"), [("ensure_image", State.FAILED), ("start", State.RUNNING)])
async def test_the_work_of_a_dead_gateway_is_taken_over(pair: Pair, verb: str, state: State) -> None:
    """When a gateway ends in the middle, the other one finishes or undoes its creates within a moment."""
    async with pair.one() as right, AsyncExitStack() as life:
        left = await life.enter_async_context(pair.one())
        await asyncio.sleep(1.1)  # the longest time after which the newcomer is known
        pair.runtime.holds[verb] = asyncio.Event()
        made = await created(left)
        await life.aclose()
        pair.runtime.holds[verb].set()
        assert (await settled(right, made.sandbox_id, state)).worker == ""


async def test_a_removal_is_taken_over(pair: Pair) -> None:
    """A delete that was answered by a gateway that ended is done by the other one."""
    async with pair.one() as right, AsyncExitStack() as life:
        left = await life.enter_async_context(pair.one())
        made = await created(left)
        await settled(right, made.sandbox_id, State.RUNNING)
        await asyncio.sleep(1.1)
        hold = pair.runtime.holds["remove"] = asyncio.Event()
        await left.operations.delete(made.sandbox_id, CALLER)
        await life.aclose()
        hold.set()
        await settled(right, made.sandbox_id, None)
        assert pair.runtime.workloads == {}


async def test_a_pause_under_way_is_left_alone(pair: Pair, both: tuple[Core, Core]) -> None:
    """Neither gateway's recovery settles a pause that is being done."""
    left, right = both
    made = await created(left)
    await settled(left, made.sandbox_id, State.RUNNING)
    hold = pair.runtime.holds["pause"] = asyncio.Event()
    pausing = asyncio.get_running_loop().create_task(left.operations.pause(made.sandbox_id, CALLER))
    async with asyncio.timeout(5):
        while ("pause", made.sandbox_id) not in pair.runtime.calls:
            await asyncio.sleep(0.005)
    for core in both:
        await core.recovery.reconcile()
        assert (await core.operations.get(made.sandbox_id)).status.state is State.PAUSING
    with pytest.raises(SandboxNotRunning):
        await right.operations.pause(made.sandbox_id, CALLER)
    hold.set()
    await pausing
    assert (await right.operations.get(made.sandbox_id)).status.state is State.PAUSED


async def test_waiting_ends_when_the_other_is_done(pair: Pair, both: tuple[Core, Core]) -> None:
    """Whoever waits at one gateway is woken by what the other one wrote, long before the deadline."""
    left, right = both
    hold = pair.runtime.holds["start"] = asyncio.Event()
    made = await created(left)
    loop = asyncio.get_running_loop()
    asking = loop.create_task(right.operations.target(made.sandbox_id))
    began = loop.time()
    hold.set()
    assert (await asking).sandbox_id == made.sandbox_id
    assert loop.time() - began < 4


async def test_an_expiry_fires_once(pair: Pair, both: tuple[Core, Core]) -> None:
    """Two sweeps end a sandbox once between them, with one line in its history."""
    made = [await created(both[number % 2], timeout=60) for number in range(10)]
    for one in made:
        await settled(both[0], one.sandbox_id, State.RUNNING)
    pair.clock.advance(61)
    for core in both:
        core.register.changes.notify_expiry()
    for one in made:
        await settled(both[0], one.sandbox_id, None)
        reasons = [event.reason for event in await both[1].register.store.events(one.sandbox_id, 50)]
        assert reasons.count("EXPIRED") == 2  # it was ended, and then nothing of it was left
        assert pair.runtime.calls.count(("remove", one.sandbox_id)) == 1


async def test_renewal_and_expiry_across_gateways(pair: Pair, both: tuple[Core, Core]) -> None:
    """A renewal at one gateway and an expiry at the other never both win (R01), two hundred times."""
    left, right = both
    made = [await created(left, timeout=60) for _ in range(20)]
    for one in made:
        await settled(left, one.sandbox_id, State.RUNNING)
    ids = [one.sandbox_id for one in made]
    seen = set[bool]()
    for turn in range(10):
        pair.clock.advance(60)
        until = pair.clock.now() + timedelta(seconds=60)

        async def renew(core: Core, sandbox_id: str, delay: float, until: datetime = until) -> bool:
            await asyncio.sleep(delay)
            try:
                await core.operations.renew(sandbox_id, until, CALLER)
            except (SandboxNotFound, Conflict):
                return False
            return True

        here, there = (left, right) if turn % 2 else (right, left)
        outcomes = await asyncio.gather(
            *(
                work
                for number, sandbox_id in enumerate(ids)
                for work in (
                    there.operations.expire(sandbox_id),
                    here.operations.expire(sandbox_id),
                    renew(here, sandbox_id, number % 4 / 500),
                    renew(there, sandbox_id, number % 5 / 500),
                )
            )
        )
        alive = []
        for number, sandbox_id in enumerate(ids):
            *expired, first, second = outcomes[number * 4 : number * 4 + 4]
            assert expired != [True, True]
            assert not (any(expired) and (first or second))
            found = await there.register.store.get(sandbox_id)
            assert found is not None
            # The sweeps of both run as well, so neither call need have been the one that ended it.
            assert (found.deleted_at is None) == (first or second)
            seen.add(first or second)
            if first or second:
                assert found.expires_at == until
                alive.append(sandbox_id)
        ids = alive + [(await created(left, timeout=60)).sandbox_id for _ in range(20 - len(alive))]
    assert seen == {True, False}
