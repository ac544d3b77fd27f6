"""The one sweep that ends sandboxes whose time is over, and forgets old tombstones."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Final

import structlog

from gateway.operations.register import Register
from gateway.operations.sandboxes import Sandboxes
from specs.errors import BoxwrightError

BATCH: Final = 100
SHORTEST_SLEEP: Final = 0.01
LONGEST_SLEEP: Final = 30.0  # clocks jump; a sleeping timer does not notice
PURGE_EVERY: Final = timedelta(hours=1)

_log = structlog.get_logger(__name__)


class ExpirySweep:
    """Sleeps until the next expiry or until told that one was moved; decides nothing by itself."""

    def __init__(self, register: Register, sandboxes: Sandboxes, *, tombstone_days: int) -> None:
        self._register = register
        self._sandboxes = sandboxes
        self._keep = timedelta(days=tombstone_days)
        self._purged: datetime | None = None

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await self.sweep()
            try:
                async with asyncio.timeout(await self._pause()):
                    await self._register.changes.expiry_changed()
            except TimeoutError:
                continue

    async def sweep(self) -> int:
        """End every sandbox that is due now; return how many were."""
        ended = 0
        while True:
            batch = await self._register.store.due(self._register.now(), BATCH)
            outcomes = [await self._ended(record.sandbox_id) for record in batch]
            ended += sum(outcomes)
            if not any(outcomes):
                break
        await self._purge()
        return ended

    async def _ended(self, sandbox_id: str) -> bool:
        try:
            return await self._sandboxes.expire(sandbox_id)
        except BoxwrightError as error:
            # One that cannot be ended now does not keep the others alive.
            _log.warning("not_expired", sandbox_id=sandbox_id, code=error.code)
            return False

    async def _pause(self) -> float:
        following = await self._register.store.next_expiry()
        if following is None:
            return LONGEST_SLEEP
        return min(max((following - self._register.now()).total_seconds(), SHORTEST_SLEEP), LONGEST_SLEEP)

    async def _purge(self) -> None:
        now = self._register.now()
        if self._purged is None or now - self._purged > PURGE_EVERY:
            self._purged = now
            forgotten = await self._register.store.purge(now - self._keep)
            if forgotten:
                _log.info("tombstones_forgotten", count=forgotten)
