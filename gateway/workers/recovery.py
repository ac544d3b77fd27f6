"""Bring records and engine together: at the start, after another process ended, and now and then."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from gateway.operations.ports import Runtime
from gateway.operations.provisioning import Provisioner
from gateway.operations.register import Register
from gateway.operations.sandboxes import Sandboxes
from gateway.operations.steps import stands
from gateway.sandboxes.model import Observed, SandboxRecord
from specs.errors import BoxwrightError

EVERY: Final = 300.0
AGAIN: Final = 10.0  # what the engine was still doing for a process that was killed shows up late
RETRY: Final = 2.0

_log = structlog.get_logger(__name__)


class Recovery:
    """Adopts what runs, notes what ended, finishes or undoes what was under way, removes orphans."""

    def __init__(
        self, register: Register, provisioner: Provisioner, runtime: Runtime, sandboxes: Sandboxes
    ) -> None:
        self._register = register
        self._provisioner = provisioner
        self._runtime = runtime
        self._sandboxes = sandboxes
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Have it done soon: another process ended, and may have left something half done."""
        self._asked.set()

    async def run(self) -> None:
        """Reconcile at once, when asked, and again every few minutes."""
        while True:
            self._asked.clear()
            try:
                pause = AGAIN if await self.reconcile() else EVERY
            except BoxwrightError as error:
                _log.warning("not_reconciled", code=error.code, message=error.message, again_in=RETRY)
                pause = RETRY
            try:
                async with asyncio.timeout(pause):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def reconcile(self) -> bool:
        """
        Compare every record with what the engine has. An engine that does not answer proves nothing.

        Returns:
            True when something was half done.

        Raises:
            EngineUnavailable, EngineTimeout: nothing was judged; try again.
        """
        observed = {one.sandbox_id: one for one in await self._runtime.observe_all()}
        living = await self._register.store.enlisted()
        unfinished = await self._register.store.unfinished()
        taken = [await self._recovered(record, living) for record in unfinished]
        for record in await self._register.store.all_live():
            if not record.step:
                await self._note(record, observed.get(record.sandbox_id))
        for sandbox_id in observed:
            record_now = await self._register.store.get(sandbox_id)
            if not stands(record_now):
                self._provisioner.remove_orphan(sandbox_id, record_now)
        return any(taken)

    async def _recovered(self, record: SandboxRecord, living: frozenset[str]) -> bool:
        try:
            return await self._provisioner.recover(record, living)
        except BoxwrightError as error:
            # One sandbox that cannot be judged now does not keep the others waiting.
            _log.warning("not_recovered", sandbox_id=record.sandbox_id, code=error.code)
            return True

    async def _note(self, record: SandboxRecord, observed: Observed | None) -> None:
        if observed is not None:
            await self._sandboxes.note_observed(observed)
        elif stands(record):
            await self._sandboxes.note_missing(record.sandbox_id)
