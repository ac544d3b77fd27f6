"""Death at a chosen moment: wrappers around store, engine and execd that count what is done through them.

A moment is a write to the store or a call to the engine or to execd. Dying before and after each of them
covers every instruction: between two moments a process changes nothing that outlives it. Reads of the store
are no moments for the same reason.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from gateway.operations.ports import ExecdPeer, Runtime, Store
from gateway.operations.steps import Step
from gateway.runtimes.docker.engine import Engine
from gateway.sandboxes.model import Address, LifeEvent, SandboxRecord

T = TypeVar("T")

BEFORE: Final = "before"
AFTER: Final = "after"


def kill() -> None:
    """End this process as the kernel would, with nothing tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """Says when a process dies: at a moment by number or by name, before or after it.

    Without a `blow` the process only plays dead: whatever it asks for from then on never comes back.
    """

    def __init__(
        self,
        *,
        at: int | None = None,
        name: str | None = None,
        when: str = BEFORE,
        blow: Callable[[], None] | None = None,
    ) -> None:
        self._at, self._name, self._when, self._blow = at, name, when, blow
        self.moments: list[str] = []
        self.struck: str | None = None
        self.dead = asyncio.Event()

    async def around(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        await self._live()
        number = len(self.moments)
        self.moments.append(name)
        mine = self.struck is None and (number == self._at or (self._name is not None and name == self._name))
        if mine and self._when == BEFORE:
            await self._die(name)
        result = await work()
        await self._live()
        if mine:
            await self._die(name)
        return result

    async def _live(self) -> None:
        if self.dead.is_set():
            await asyncio.Event().wait()

    async def _die(self, name: str) -> None:
        self.struck = name
        if self._blow is not None:
            self._blow()
        self.dead.set()
        await self._live()


class MortalStore:
    """A store whose writes are moments, named after the step that they begin or close."""

    def __init__(self, store: Store, fate: Fate) -> None:
        self._store, self._fate = store, fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def insert(
        self, record: SandboxRecord, event: LifeEvent, *, idempotency_key: str | None = None
    ) -> SandboxRecord | None:
        return await self._fate.around(
            recorded(record.step),
            lambda: self._store.insert(record, event, idempotency_key=idempotency_key),
        )

    async def update(self, record: SandboxRecord, *events: LifeEvent) -> SandboxRecord | None:
        before = await self._store.get(record.sandbox_id)
        assert before is not None
        name = recorded(record.step) if record.step else closed(before.step) if before.step else "record"
        return await self._fate.around(name, lambda: self._store.update(record, *events))


class MortalRuntime:
    """A runtime whose verbs are moments."""

    def __init__(self, runtime: Runtime, fate: Fate) -> None:
        self._runtime, self._fate = runtime, fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runtime, name)
        return _mortal(called(name), found, self._fate) if name in verbs(Runtime) else found

    async def changes(self) -> AsyncIterator[Any]:
        async for one in self._runtime.changes():
            if self._fate.dead.is_set():
                return
            yield one


class MortalPeer:
    def __init__(self, peer: ExecdPeer, fate: Fate) -> None:
        self._peer, self._fate = peer, fate

    async def wait_ready(self, address: Address, *, deadline: float) -> bool:
        return await self._fate.around(
            called("wait_ready"), lambda: self._peer.wait_ready(address, deadline=deadline)
        )


def mortal_engine(engine: Engine, fate: Fate) -> Engine:
    """Make every plain call of an engine a moment."""
    for name in verbs(Engine) - {"close"}:
        setattr(engine, name, _mortal(asked(name), getattr(engine, name), fate))
    return engine


def mortal(store: Store, runtime: Runtime, peer: ExecdPeer, fate: Fate) -> tuple[Store, Runtime, ExecdPeer]:
    return (
        cast("Store", MortalStore(store, fate)),
        cast("Runtime", MortalRuntime(runtime, fate)),
        MortalPeer(peer, fate),
    )


def verbs(kind: type) -> frozenset[str]:
    """Name the public coroutine methods of a class or protocol."""
    return frozenset(
        name
        for name, one in vars(kind).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(one)
    )


def recorded(step: str) -> str:
    return f"record {Step(step).value}" if step else "record"


def closed(step: str) -> str:
    return f"close {Step(step).value}"


def called(verb: str) -> str:
    return f"call {verb}"


def asked(verb: str) -> str:
    return f"engine {verb}"


def _mortal(name: str, found: Callable[..., Awaitable[Any]], fate: Fate) -> Callable[..., Awaitable[Any]]:
    async def moment(*values: Any, **named: Any) -> Any:
        return await fate.around(name, lambda: found(*values, **named))

    return moment
