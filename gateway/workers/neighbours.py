"""Notice what other processes on the same store do, and when one of them ends.

SQLite tells nobody that something was written, so it is asked, and often only while there is somebody
else who could have written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.operations.provisioning import Provisioner
from gateway.operations.register import Register

TOGETHER: Final = 0.2
ALONE: Final = 1.0


class Neighbours:
    """Wakes whoever waits for a change that another process makes, and ends what it asked to be ended.

    Args:
        departed: called when a process is gone that was there before.
    """

    def __init__(self, register: Register, provisioner: Provisioner, departed: Callable[[], None]) -> None:
        self._register = register
        self._provisioner = provisioner
        self._departed = departed
        self._known: frozenset[str] = frozenset()
        self._seen: int | None = None

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            await asyncio.sleep(TOGETHER if self._known else ALONE)

    async def look(self) -> None:
        """See who is there, and what they wrote since the last time."""
        store = self._register.store
        living = await store.enlisted() - {self._register.worker}
        gone, self._known = self._known - living, living
        written = await store.foreign_writes()
        if written != self._seen:
            self._seen = written
            self._register.changes.notify_all()
            for record in await store.unfinished():
                self._provisioner.look(record)
        if gone:
            self._departed()
