"""Wait for a change of one sandbox without asking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Changes:
    """In-process notices: who writes a record says so, who waits for it wakes up."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._expiry = asyncio.Event()

    def notify(self, sandbox_id: str) -> None:
        """Wake everyone who waits for this sandbox."""
        for event in self._waiting.get(sandbox_id, ()):
            event.set()

    def notify_all(self) -> None:
        """Wake everyone: another process wrote, and what it wrote is not known."""
        for events in self._waiting.values():
            for event in events:
                event.set()
        self.notify_expiry()

    def notify_expiry(self) -> None:
        """Tell the expiry sweep that some expiry is new or was moved."""
        self._expiry.set()

    async def expiry_changed(self) -> None:
        """Wait until `notify_expiry` was called since the last time this returned."""
        await self._expiry.wait()
        self._expiry.clear()

    async def until(
        self, sandbox_id: str, read: Callable[[], Awaitable[T | None]], deadline: float
    ) -> T | None:
        """
        Call `read` now and after every change, until it returns something.

        Args:
            sandbox_id: whose changes count.
            read: returns None to wait on; raises to give up.
            deadline: seconds after which None is returned.
        """
        changed = asyncio.Event()
        self._waiting.setdefault(sandbox_id, set()).add(changed)
        try:
            async with asyncio.timeout(deadline):
                while True:
                    changed.clear()
                    found = await read()
                    if found is not None:
                        return found
                    await changed.wait()
        except TimeoutError:
            return None
        finally:
            waiting = self._waiting[sandbox_id]
            waiting.discard(changed)
            if not waiting:
                del self._waiting[sandbox_id]
