"""Carry what the engine tells of its own accord into the records."""

from __future__ import annotations

import structlog

from gateway.operations.ports import Runtime
from gateway.operations.sandboxes import Sandboxes
from specs.errors import BoxwrightError

_log = structlog.get_logger(__name__)


class EngineEvents:
    """Reads the engine's stream of changes for as long as it lasts."""

    def __init__(self, runtime: Runtime, sandboxes: Sandboxes) -> None:
        self._runtime = runtime
        self._sandboxes = sandboxes

    async def run(self) -> None:
        """Take note of every change; one that cannot be noted does not stop the next."""
        async for observed in self._runtime.changes():
            try:
                await self._sandboxes.note_observed(observed)
            except BoxwrightError as error:
                _log.warning("change_not_noted", sandbox_id=observed.sandbox_id, code=error.code)
