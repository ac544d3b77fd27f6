"""Bring records and engine together: at the start, and now and then in case an event was lost."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from gateway.operations.ports import Runtime
from gateway.operations.provisioning import Provisioner
from gateway.operations.register import Register
from gateway.operations.sandboxes import Sandboxes
from gateway.sandboxes.model import Observed
from specs.errors import BoxwrightError

EVERY: Final = 300.0

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

    async def run(self) -> None:
        """Reconcile at once, and again every few minutes."""
        while True:
            await self.reconcile()
            await asyncio.sleep(EVERY)

    async def reconcile(self) -> None:
        """
        Compare every record with what the engine has. An engine that does not answer proves nothing.

        Raises:
            EngineUnavailable, EngineTimeout: nothing was judged; try again.
        """
        observed = {one.sandbox_id: one for one in await self._runtime.observe_all()}
        for record in await self._register.store.unfinished():
            await self._provisioner.recover(record, observed.get(record.sandbox_id))
        for record in await self._register.store.all_live():
            if not record.step:
                await self._note(record.sandbox_id, observed.get(record.sandbox_id))
        for sandbox_id in observed:
            await self._remove_orphan(sandbox_id)

    async def _note(self, sandbox_id: str, observed: Observed | None) -> None:
        if observed is None:
            await self._sandboxes.note_missing(sandbox_id)
        else:
            await self._sandboxes.note_observed(observed)

    async def _remove_orphan(self, sandbox_id: str) -> None:
        """Remove a workload of this installation that no record stands for, nor is being removed."""
        record = await self._register.store.get(sandbox_id)
        if record is not None and (record.deleted_at is None or record.step):
            return
        try:
            await self._runtime.remove(sandbox_id, volumes=(), grace_seconds=0)
        except BoxwrightError as error:
            _log.warning("orphan_not_removed", sandbox_id=sandbox_id, code=error.code)
            return
        _log.warning("orphan_removed", sandbox_id=sandbox_id)
