"""Kill -9 before and after every write and every call, on a fake engine: the wide matrix."""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from gateway.app import Core, make_core
from gateway.config import Settings
from gateway.operations.ports import ExecdPeer, Runtime
from gateway.operations.steps import MAKING, Step
from gateway.stores.database import Database
from gateway.stores.sqlite import SqliteStore
from specs.errors import StartFailed
from specs.lifecycle import CreateSandboxRequest
from tests.fakes.clock import FakeClock
from tests.fakes.gateway import BUNDLE, SECRET, settings
from tests.fakes.peer import FakePeer
from tests.fakes.runtime import FakeRuntime
from tests.integration.crash.fate import AFTER, BEFORE, Fate, called, closed, mortal, recorded, verbs
from tests.integration.crash.world import (
    CALLER,
    KEY,
    Say,
    Scenario,
    Told,
    View,
    brief,
    check,
    check_key,
    clean,
    finished,
    life,
    refused,
    request_of,
)

# Verbs that are no part of any sequence, and why dying in them needs no test.
OUTSIDE: Final = {
    "inspect_text": "shows, changes nothing",
    "ping": "asks, changes nothing",
    "close": "the process ends anyway",
}
STEPS: Final = {recorded(step) for step in Step} | {closed(step) for step in Step if step not in MAKING}
NEEDED: Final = (
    STEPS
    | {closed(Step.STARTED), "record"}
    | {called(verb) for verb in verbs(Runtime) - set(OUTSIDE)}
    | {called(verb) for verb in verbs(ExecdPeer)}
)


@dataclass
class World:
    """What outlives a gateway: its files, the engine, the time of day."""

    home: Path
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    clock: FakeClock = field(default_factory=FakeClock)
    request: CreateSandboxRequest = field(default_factory=request_of)
    told: Told = field(default_factory=Told)

    @property
    def settings(self) -> Settings:
        return settings(self.home, create_wait_seconds=10.0)

    async def live(self, fate: Fate, act: Callable[[Core], Awaitable[None]]) -> None:
        """Run a gateway until it has done something or its fate strikes, and leave it where it fell."""
        database = Database(self.settings.database)
        store, runtime, peer = mortal(SqliteStore(database), self.runtime, FakePeer(), fate)
        core = make_core(
            self.settings,
            runtime=runtime,
            store=store,
            peer=peer,
            bundle=BUNDLE,
            secret=SECRET,
            clock=self.clock,
        )
        await core.begin()
        loop = asyncio.get_running_loop()
        doing, dying = loop.create_task(_run(act, core)), loop.create_task(fate.dead.wait())
        try:
            async with asyncio.timeout(30):
                await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            for task in (doing, dying):
                task.cancel()
            await asyncio.wait({doing, dying})
            await core.tasks.close()
            database.close()
            self.runtime._streams.clear()

    async def view(self, core: Core) -> View:
        database = Database(self.settings.database)
        rows = await database.read(
            lambda connection: [row[0] for row in connection.execute("SELECT sandbox_id FROM sandboxes")]
        )
        found = [await core.register.store.get(row) for row in rows]
        database.close()
        return View(
            {one.sandbox_id: one for one in found if one is not None},
            {key: one.phase for key, one in self.runtime.workloads.items()},
            dict(self.runtime.volumes),
        )


async def _run(act: Callable[[Core], Awaitable[None]], core: Core) -> None:
    await act(core)


async def expires(core: Core, request: CreateSandboxRequest, say: Say) -> None:
    """A sandbox whose time is over."""
    say("began create")
    made = await core.operations.create(request, CALLER, idempotency_key=KEY)
    say(f"created {made.sandbox_id}")
    say("began delete")
    clock = core.register.clock
    assert isinstance(clock, FakeClock)
    clock.advance(601)
    core.register.changes.notify_expiry()
    async with asyncio.timeout(10):
        while await core.register.store.all_live():
            await asyncio.sleep(0.005)
    await finished(core)


async def deleted_while_made(core: Core, request: CreateSandboxRequest, say: Say) -> None:
    """A sandbox that is deleted before it runs."""
    say("began create")
    making = asyncio.get_running_loop().create_task(
        core.operations.create(request, CALLER, idempotency_key=KEY)
    )
    try:
        async with asyncio.timeout(10):
            while not (live := await core.register.store.all_live()):
                await asyncio.sleep(0)
        say("began delete")
        await core.operations.delete(live[0].sandbox_id, CALLER)
        await finished(core)
    finally:
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)


def plain(world: World) -> None:
    del world


def fails(world: World) -> None:
    world.runtime.failures["start"] = [StartFailed("no")]


def ends(world: World) -> None:
    world.runtime.ends_at_start = 3


SCENARIOS: Final[dict[str, tuple[Scenario, Callable[[World], None]]]] = {
    "life": (life, plain),
    "refused": (refused, fails),
    "brief": (brief, ends),
    "expires": (expires, plain),
    "deleted_while_made": (deleted_while_made, plain),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once."""
    home = tmp_path_factory.mktemp("template")
    Database(home / "boxwright.db").close()
    return home


def fresh(template: Path, folder: Path, prepare: Callable[[World], None]) -> World:
    shutil.copytree(template, folder)
    world = World(folder)
    prepare(world)
    return world


async def played(scenario: Scenario, world: World, core: Core) -> None:
    await scenario(core, world.request, world.told.note)


async def restarted(world: World) -> None:
    """Start a gateway on what the dead one left, and hold everything against what was answered."""

    async def judge(core: Core) -> None:
        await core.recovery.reconcile()
        await finished(core)
        check(await world.view(core), world.told)
        if "create" in world.told.began and world.told.metadata is None and not world.runtime.ends_at_start:
            await check_key(core, world.request, world.told)
        await clean(core)
        assert world.runtime.workloads == {}
        assert world.runtime.volumes == {}

    await world.live(Fate(), judge)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_killed_at_every_moment(name: str, template: Path, tmp_path: Path) -> None:
    """Killed before or after any write or call, everything is finished or undone, and what was answered holds."""
    scenario, prepare = SCENARIOS[name]
    whole = Fate()
    world = fresh(template, tmp_path / "whole", prepare)
    await world.live(whole, functools.partial(played, scenario, world))
    for number in range(len(whole.moments)):
        for when in (BEFORE, AFTER):
            fate = Fate(at=number, when=when)
            world = fresh(template, tmp_path / f"{number}-{when}", prepare)
            await world.live(fate, functools.partial(played, scenario, world))
            world.runtime.failures.clear()
            try:
                await restarted(world)
            except BaseException as error:
                error.add_note(f"killed {when} moment {number}: {fate.struck} of {whole.moments}")
                raise


@pytest.mark.parametrize(
    "first", [called("create"), called("start"), recorded(Step.CREATING), closed(Step.PAUSING)]
)
async def test_killed_while_recovering(first: str, template: Path, tmp_path: Path) -> None:
    """A gateway that is killed while it cleans up after a kill leaves nothing behind either."""

    async def recover(core: Core) -> None:
        await core.recovery.reconcile()
        await finished(core)

    async def dead(folder: Path) -> World:
        world = fresh(template, folder, plain)
        await world.live(
            Fate(name=first, when=AFTER if first.startswith("call") else BEFORE),
            functools.partial(played, life, world),
        )
        return world

    whole = Fate()
    await (await dead(tmp_path / "whole")).live(whole, recover)
    for number in range(len(whole.moments)):
        for when in (BEFORE, AFTER):
            world = await dead(tmp_path / f"{number}-{when}")
            fate = Fate(at=number, when=when)
            await world.live(fate, recover)
            await restarted(world)


async def test_no_moment_was_left_out(template: Path, tmp_path: Path) -> None:
    """Every step and every verb of the engine is died at above: a new one needs a scenario that meets it."""
    met: set[str] = set()
    for name, (scenario, prepare) in SCENARIOS.items():
        whole, world = Fate(), fresh(template, tmp_path / name, prepare)
        await world.live(whole, functools.partial(played, scenario, world))
        met.update(whole.moments)
    assert met >= NEEDED, NEEDED - met
    assert verbs(Runtime) >= set(OUTSIDE)
