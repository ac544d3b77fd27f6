"""Work that belongs to the server and not to a request: it has an owner and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog

T = TypeVar("T")

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
STEADY_SECONDS: Final = 60.0

_log = structlog.get_logger(__name__)


class Tasks:
    """Owns tasks from their start to their end; closing it ends them all."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._promised: set[asyncio.Task[Any]] = set()
        self._closed = False

    def spawn(self, work: Coroutine[Any, Any, T], name: str, *, promised: bool = False) -> asyncio.Task[T]:
        """
        Start work that outlives the request it came from.

        Args:
            work: what to do.
            name: for logs.
            promised: a caller was told that it is done; closing gives it a moment to end.

        Raises:
            RuntimeError: the server is going down.
        """
        if self._closed:
            work.close()
            raise RuntimeError("the server is going down and starts nothing new")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        if promised:
            self._promised.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """
        Run work to its end even if the caller goes away meanwhile.
        """
        return await asyncio.shield(self.spawn(work, name))

    def supervise(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """
        Keep an endless worker going: when it fails, log why and start it again after a pause.
        """
        self.spawn(_keep_going(work, name), name)

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Let promised work end within a moment, then cancel everything and wait until it is gone."""
        self._closed = True
        if self._promised and grace_seconds > 0:
            await asyncio.wait(self._promised, timeout=grace_seconds)
        for task in self._running:
            task.cancel()
        while self._running:
            await asyncio.wait(self._running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._promised.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Whoever awaits the task handles it; this line is for the ones that nobody awaits.
            _log.debug("task_failed", task=task.get_name(), error=type(error).__name__)


async def _keep_going(work: Callable[[], Awaitable[None]], name: str) -> None:
    loop = asyncio.get_running_loop()
    delay = FIRST_DELAY
    while True:
        started = loop.time()
        try:
            await work()
        except Exception as error:  # the border of a supervisor: a worker never dies silently
            _log.exception("worker_failed", worker=name, error=type(error).__name__)
        if loop.time() - started > STEADY_SECONDS:
            delay = FIRST_DELAY
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)
