"""Read and change records: compare and set, then tell everyone who waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

import structlog

from gateway.operations.changes import Changes
from gateway.operations.ports import Clock, Store
from gateway.sandboxes.model import LifeEvent, SandboxRecord, Status
from specs.errors import Conflict, SandboxNotFound

ATTEMPTS: Final = 32

Change = Callable[[SandboxRecord], SandboxRecord | None]
"""Returns the changed record, or None to leave it as it is; raises to refuse."""

_log = structlog.get_logger(__name__)


class Register:
    """The one way in which operations and workers write a sandbox's record."""

    def __init__(self, store: Store, changes: Changes, clock: Clock) -> None:
        self.store = store
        self.changes = changes
        self.clock = clock
        self.worker = ""  # this process at the store; known from `join` on

    async def join(self) -> None:
        """Put this process among those at work on the store, before it begins anything."""
        self.worker = await self.store.enlist()

    def now(self) -> datetime:
        return self.clock.now()

    async def live(self, sandbox_id: str) -> SandboxRecord:
        """
        Read a record that was not deleted.

        Raises:
            SandboxNotFound: there is none, or only its tombstone.
        """
        record = await self.store.get(sandbox_id)
        if record is None or record.deleted_at is not None:
            raise SandboxNotFound(sandbox_id)
        return record

    async def add(self, record: SandboxRecord, idempotency_key: str | None) -> SandboxRecord | None:
        """Record a new sandbox, or return the one that the key is bound to already."""
        event = LifeEvent(record.sandbox_id, record.created_at, record.status.reason, record.status.message)
        earlier = await self.store.insert(self._signed(record), event, idempotency_key=idempotency_key)
        if earlier is None and record.expires_at is not None:
            self.changes.notify_expiry()
        return earlier

    async def change(
        self, sandbox_id: str, decide: Change, *, why: tuple[str, str] | None = None
    ) -> SandboxRecord:
        """
        Change a live record: read, decide, compare and set, and again if someone was faster.

        Args:
            sandbox_id: whose record.
            decide: pure; may be called several times.
            why: reason and message for the history; without it a changed state tells its own.

        Raises:
            SandboxNotFound: it was deleted meanwhile.
            Conflict: others kept changing it.
        """
        for _ in range(ATTEMPTS):
            record = await self.live(sandbox_id)
            changed = decide(record)
            if changed is None:
                return record
            saved = await self.save(record, changed, why)
            if saved is not None:
                return saved
        raise Conflict(f"sandbox {sandbox_id} is being changed by others all the time; try again")

    async def save(
        self, before: SandboxRecord, after: SandboxRecord, why: tuple[str, str] | None = None
    ) -> SandboxRecord | None:
        """Compare and set once; None when someone was faster."""
        after = self._signed(after)
        events = self._events(before, after, why)
        saved = await self.store.update(after, *events)
        if saved is None:
            return None
        self.changes.notify(after.sandbox_id)
        if after.expires_at != before.expires_at:
            self.changes.notify_expiry()
        for event in events:
            _log.info(
                "sandbox_changed", sandbox_id=event.sandbox_id, reason=event.reason, state=after.status.state
            )
        return saved

    def _signed(self, record: SandboxRecord) -> SandboxRecord:
        """Note who does what is under way: this process, unless it is another one's already."""
        worker = (record.worker or self.worker) if record.step else ""
        return record if worker == record.worker else replace(record, worker=worker)

    def _events(
        self, before: SandboxRecord, after: SandboxRecord, why: tuple[str, str] | None
    ) -> tuple[LifeEvent, ...]:
        if why is not None:
            return (LifeEvent(after.sandbox_id, self.now(), *why),)
        if (after.status.state, after.status.reason) != (before.status.state, before.status.reason):
            return (LifeEvent(after.sandbox_id, self.now(), after.status.reason, after.status.message),)
        return ()


def with_status(record: SandboxRecord, status: Status, *, step: str | None = None) -> SandboxRecord:
    """
    Return the record in another state, and at another step if one is given.
    """
    return replace(record, status=status, step=record.step if step is None else step)
