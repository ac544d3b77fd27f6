"""A relay in front of the engine's socket that can be cut, or made to say nothing, and mended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.raw_engine import SOCKET

CHUNK: Final = 1 << 16


class Relay:
    """Carries bytes between a socket of its own and the engine's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    async def mend(self) -> None:
        """Carry again."""
        self._flowing.set()
        if self._server is None:
            self.path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._carry, self.path)

    async def cut(self) -> None:
        """End every connection, and refuse new ones as a daemon that is not there does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.path.unlink(missing_ok=True)
        for writer in tuple(self._open):
            writer.transport.abort()

    def hush(self) -> None:
        """Keep every connection open and carry nothing, as a daemon that hangs does."""
        self._flowing.clear()

    async def close(self) -> None:
        self._flowing.set()
        await self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        below, engine = await asyncio.open_unix_connection(SOCKET)
        self._open |= {writer, engine}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pour(reader, engine))
                group.create_task(self._pour(below, writer))
        except* OSError:
            pass
        finally:
            for one in (writer, engine):
                self._open.discard(one)
                one.transport.abort()

    async def _pour(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while chunk := await source.read(CHUNK):
            await self._flowing.wait()
            target.write(chunk)
            await target.drain()
        with contextlib.suppress(OSError):
            target.write_eof()


@asynccontextmanager
async def relay(folder: Path) -> AsyncIterator[Relay]:
    """Open a relay for the length of a `with`."""
    made = Relay(folder / "engine.sock")
    await made.mend()
    try:
        yield made
    finally:
        await made.close()
