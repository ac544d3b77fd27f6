"""What is done to a gateway before it dies, what was answered, and what must be true afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from gateway.app import Core
from gateway.operations.services import Caller
from gateway.operations.steps import stands
from gateway.sandboxes.model import SandboxRecord, State
from specs.errors import BoxwrightError, Conflict, EntrypointFailed, SandboxNotFound
from specs.lifecycle import CreateSandboxRequest

CALLER: Final = Caller("first", "first")
KEY: Final = "the client's key"


@dataclass
class Told:
    """What callers were answered, and so must hold."""

    created: str | None = None
    refused: bool = False
    metadata: dict[str, str] | None = None
    until: datetime | None = None
    state: str | None = None
    deleted: bool = False
    began: list[str] = field(default_factory=list)  # asked for; perhaps never answered

    def note(self, line: str) -> None:
        """Take up one line of a report that a process wrote before it died."""
        name, _, value = line.partition(" ")
        if name == "created":
            self.created = value
        elif name == "metadata":
            self.metadata = {"a": value}
        elif name == "until":
            self.until = datetime.fromisoformat(value)
        elif name == "state":
            self.state = value
        elif name == "began":
            self.began.append(value)
        elif name in {"refused", "deleted"}:
            setattr(self, name, True)


@dataclass(frozen=True)
class View:
    """Everything there is, seen after a restart."""

    records: dict[str, SandboxRecord]
    workloads: dict[str, str]  # sandbox → phase
    volumes: dict[str, str]  # name → the sandbox that made it


Say = Callable[[str], None]
Scenario = Callable[[Core, CreateSandboxRequest, Say], Awaitable[None]]


async def life(core: Core, request: CreateSandboxRequest, say: Say) -> None:
    """A sandbox from its create to its delete, with everything that can be asked of it."""
    operations = core.operations
    say("began create")
    made = await operations.create(request, CALLER, idempotency_key=KEY)
    say(f"created {made.sandbox_id}")
    await _until(core, made.sandbox_id, State.RUNNING)
    say("began metadata")
    await operations.patch_metadata(made.sandbox_id, {"a": "2"}, CALLER)
    say("metadata 2")
    until = core.register.now() + timedelta(hours=5)
    say("began renew")
    await operations.renew(made.sandbox_id, until, CALLER)
    say(f"until {until.isoformat()}")
    say("began pause")
    await operations.pause(made.sandbox_id, CALLER)
    say("state Paused")
    say("began resume")
    await operations.resume(made.sandbox_id, CALLER)
    say("state Running")
    say("began delete")
    await operations.delete(made.sandbox_id, CALLER)
    say("deleted")
    await finished(core)


async def refused(core: Core, request: CreateSandboxRequest, say: Say) -> None:
    """A create that fails, and is taken back."""
    say("began create")
    try:
        made = await core.operations.create(request, CALLER, idempotency_key=KEY)
    except BoxwrightError:
        say("refused")
    else:
        say(f"created {made.sandbox_id}")
    await finished(core)


async def brief(core: Core, request: CreateSandboxRequest, say: Say) -> None:
    """A sandbox whose entrypoint ends by itself."""
    say("began create")
    made = await core.operations.create(request, CALLER, idempotency_key=KEY)
    say(f"created {made.sandbox_id}")
    await finished(core)


async def finished(core: Core) -> None:
    """Wait until nothing is under way."""
    store = core.register.store
    async with asyncio.timeout(30):
        while (
            await store.due(core.register.now(), 1)
            or await store.unfinished()
            or core.provisioner._orphans
            or core.provisioner._removing
        ):
            await asyncio.sleep(0.005)


async def _until(core: Core, sandbox_id: str, state: State) -> None:
    async with asyncio.timeout(30):
        while (await core.operations.get(sandbox_id)).status.state is not state:
            await asyncio.sleep(0.005)


def check(view: View, told: Told) -> None:
    """Hold what was answered against what there is."""
    standing = {key for key, one in view.records.items() if stands(one)}
    for sandbox_id, record in view.records.items():
        assert record.step == "", f"{sandbox_id} is still at {record.step}"
        assert record.worker == ""
        assert record.status.state not in {
            State.PENDING,
            State.PAUSING,
            State.RESUMING,
            State.STOPPING,
            State.UNKNOWN,
        }
        phase = {State.RUNNING: "running", State.PAUSED: "paused"}.get(record.status.state)
        if phase is not None:
            assert view.workloads.get(sandbox_id) == phase
    assert set(view.workloads) <= standing, "a workload that no record stands for"
    assert set(view.volumes.values()) <= standing, "a volume of nobody"
    _check_answers(view, told)


def _check_answers(view: View, told: Told) -> None:
    if told.refused:
        assert not view.workloads
        assert all(one.deleted_at is not None for one in view.records.values())
    if told.created is None:
        # Nobody was told an id: at most one sandbox was made, whole or failed with its reason.
        assert len(view.records) <= 1
        return
    record = view.records[told.created]
    if told.deleted:
        assert record.deleted_at is not None
        assert (record.status.state, record.status.reason) == (State.TERMINATED, "DELETED")
        return
    if "delete" in told.began and record.deleted_at is not None:
        return
    assert record.deleted_at is None
    assert record.status.message
    if told.metadata is not None:
        assert record.metadata == told.metadata
    if told.until is not None:
        assert record.expires_at == told.until
    if told.state is not None and told.began[-1] in {told.state.lower(), "pause", "resume"}:
        busy = {"pause": "Paused", "resume": "Running"}[told.began[-1]]
        assert record.status.state in {told.state, busy}


async def check_key(core: Core, request: CreateSandboxRequest, told: Told) -> str | None:
    """The same key never makes a second sandbox, and finds the first one; return the id of what is there."""
    before = {one.sandbox_id for one in await core.register.store.all_live()}
    try:
        again = await core.operations.create(request, CALLER, idempotency_key=KEY)
    except Conflict:
        assert told.deleted or "delete" in told.began
        return None
    except EntrypointFailed:
        assert not before  # a create that failed made nothing, so its key is free again
        return None
    if told.created is not None and before:
        assert again.sandbox_id == told.created
    if before:
        assert {again.sandbox_id} == before
    return again.sandbox_id


async def clean(core: Core) -> None:
    """Delete everything and wait until it is gone."""
    for record in await core.register.store.all_live():
        with suppress(SandboxNotFound):
            await core.operations.delete(record.sandbox_id, CALLER)
    await finished(core)


def request_of(**changes: Any) -> CreateSandboxRequest:
    """Return a create that makes a volume and takes it away again."""
    whole: dict[str, Any] = {
        "image": {"uri": "img:1"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {},
        "timeout": 600,
        "metadata": {"a": "1"},
        "volumes": [
            {
                "name": "v",
                "mountPath": "/d",
                "pvc": {"claimName": f"crash-{os.urandom(4).hex()}", "deleteOnSandboxTermination": True},
            }
        ],
    }
    return CreateSandboxRequest.model_validate({**whole, **changes})
