"""A gateway on the real engine and a real store that is killed at a chosen moment, and the one that follows.

Each is a process of its own: the first one ends with SIGKILL, the second one finds what is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import quote

import structlog

from gateway.app import Core, make_core
from gateway.config import Settings, load
from gateway.operations.ports import Store
from gateway.peers.execd import HttpExecdPeer
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.runtime import DockerRuntime
from gateway.sandboxes.model import BundleMount, SandboxRecord
from gateway.stores.database import Database
from gateway.stores.installation import read_secret
from gateway.stores.sqlite import SqliteStore
from specs.lifecycle import CreateSandboxRequest
from specs.names import LABEL_ID, LABEL_INSTANCE
from tests.integration.crash.fate import Fate, MortalStore, kill, mortal_engine
from tests.integration.crash.world import (
    Scenario,
    Told,
    View,
    check,
    check_key,
    clean,
    finished,
    life,
    refused,
)
from tests.raw_engine import Engine as RawEngine

T = TypeVar("T")

SCENARIOS: Final[dict[str, Scenario]] = {"life": life, "refused": refused}
GOOD: Final = "good"
DURING: Final = "during"
DURING_SECONDS: Final = 0.004
SETTLED_SECONDS: Final = 15.0


class InTheMiddle(Fate):
    """A death while the engine is at work: it has the call, and nobody waits for its answer."""

    async def around(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        mine = name == self._name and self.struck is None
        if mine:
            self.struck = name
            threading.Timer(DURING_SECONDS, kill).start()
        result = await work()
        if mine:
            await asyncio.Event().wait()
        return result


@dataclass(frozen=True)
class Case:
    """One death.

    Attributes:
        name, when: the moment.
        scenario: what is being done.
    """

    name: str
    when: str
    scenario: str
    home: Path
    bundle: BundleMount
    request: str

    @property
    def report(self) -> Path:
        return self.home / "report"

    @property
    def verdict(self) -> Path:
        return self.home / "verdict"

    @property
    def settings(self) -> Settings:
        base = load(None, {"BOXWRIGHT_HOME": str(self.home), "BOXWRIGHT_API_KEY": "k" * 32})
        return replace(base, gateway=replace(base.gateway, create_wait_seconds=20.0))


def die(case: Case) -> None:
    """Do what the scenario says until killed; in a process of its own."""
    _quiet(case)
    fate = (
        InTheMiddle(name=case.name)
        if case.when == DURING
        else Fate(name=case.name, when=case.when, blow=kill)
    )
    request = CreateSandboxRequest.model_validate_json(case.request)
    report = os.open(case.report, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def say(line: str) -> None:
        os.write(report, f"{line}\n".encode())

    asyncio.run(_live(case, fate, lambda core: SCENARIOS[case.scenario](core, request, say)))


def judge(case: Case) -> None:
    """Start where the killed one ended, and write down whether all is well."""
    _quiet(case)
    try:
        asyncio.run(_live(case, Fate(), partial(_judge, case)))
    except BaseException:  # the verdict is what the test reads, whatever it is
        case.verdict.write_text(traceback.format_exc())
        raise
    case.verdict.write_text(GOOD)


def left(instance: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the engine has of an installation: workloads by phase, volumes by maker."""
    engine = RawEngine()
    filters = quote(json.dumps({"label": [f"{LABEL_INSTANCE}={instance}"]}))
    containers = json.loads(engine.call("GET", f"/containers/json?all=true&filters={filters}"))
    volumes = json.loads(engine.call("GET", f"/volumes?filters={filters}"))["Volumes"] or []
    engine.close()
    return (
        {one["Labels"][LABEL_ID]: one["State"] for one in containers},
        {one["Name"]: one["Labels"][LABEL_ID] for one in volumes},
    )


async def _live(case: Case, fate: Fate, act: Callable[[Core], Awaitable[None]]) -> None:
    settings = case.settings
    database = Database(settings.database)
    store = SqliteStore(database)
    runtime = DockerRuntime(
        mortal_engine(Engine(EngineSettings()), fate),
        instance=await store.instance(),
        parallel_starts=2,
        hold_dir=settings.home / "hold",
    )
    core = make_core(
        settings,
        runtime=runtime,
        store=cast("Store", MortalStore(store, fate)),
        peer=HttpExecdPeer(),
        bundle=case.bundle,
        secret=read_secret(settings.home),
    )
    await core.begin()
    try:
        await act(core)
    finally:
        await core.tasks.close()
        await runtime.close()
        database.close()


async def _judge(case: Case, core: Core) -> None:
    told = Told()
    for line in case.report.read_text().splitlines() if case.report.exists() else ():
        told.note(line)
    instance = await core.register.store.instance()
    end = asyncio.get_running_loop().time() + SETTLED_SECONDS
    while True:
        await core.recovery.reconcile()
        await finished(core)
        try:
            check(View(await _records(case, core), *left(instance)), told)
            break
        except AssertionError:
            # What the engine was still doing for the dead process is found by a later reconciliation.
            if asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(0.3)
    await check_key(core, CreateSandboxRequest.model_validate_json(case.request), told)
    await clean(core)
    assert left(instance) == ({}, {})
    assert not list((case.home / "hold").glob("*"))


async def _records(case: Case, core: Core) -> dict[str, SandboxRecord]:
    database = Database(case.settings.database)
    ids = await database.read(
        lambda connection: [row[0] for row in connection.execute("SELECT sandbox_id FROM sandboxes")]
    )
    database.close()
    found = [await core.register.store.get(one) for one in ids]
    return {one.sandbox_id: one for one in found if one is not None}


def _quiet(case: Case) -> None:
    """Keep the log of a death beside its store."""
    structlog.configure(logger_factory=structlog.WriteLoggerFactory((case.home / "log").open("a")))
