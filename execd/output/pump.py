"""Read one channel of a program's output until the program has ended.

A program has ended when its process has, not when the pipe is closed: a child that it
left behind may hold the pipe for ever. So at the end what is in the pipe now is taken, and
the pipe goes to `Leftovers`, which keeps reading and throws away, so that the child
neither blocks nor dies of SIGPIPE.

Source: execd contract §3.4, §4.1.
"""

from __future__ import annotations

import fcntl
import os

from execd.loop import Cancelled, Event, close_fd, readable, start
from specs.errors import ExecutionFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from execd.loop import Task

READ = 64 * 1024
"""Bytes per read: allocators recycle blocks of this size, and map larger ones anew each time."""

PIPE_SIZE = 1 << 20
_FIONREAD = 0x541B
_MAX_LEFTOVERS = 256


class _Ended(Exception):
    pass


def pipe() -> tuple[int, int]:
    """
    Make a pipe: a non-blocking end for us, a blocking one for a program.

    Raises:
        ExecutionFailed: there are too many open files.
    """
    try:
        ours, theirs = os.pipe2(os.O_CLOEXEC)
    except OSError as failure:
        raise ExecutionFailed(f"no pipe can be made for the output: {failure.strerror}") from failure
    os.set_blocking(ours, False)
    return ours, theirs


class Pump:
    """
    One channel being read.

    Args:
        fd: our end; owned by the pump.
        take: given every piece; while it waits, nothing is read (that is the backpressure).
    """

    __slots__ = ("_ended", "_fd", "_left", "_take", "_task", "_waiting", "_wide", "finished")

    def __init__(self, fd: int, take: Callable[[bytes], Awaitable[None]]) -> None:
        self._fd = fd
        self._take = take
        self._task: Task[None] | None = None
        self._waiting = False
        self._ended = False
        self._left = 0
        self._wide = False
        self.finished = False  # the pipe was closed by everyone

    def start(self, name: str) -> None:
        """Begin reading in a task of its own."""
        self._task = start(self._run(), name)

    async def drain(self) -> None:
        """The program has ended: take what it left in the pipe, then return."""
        self._ended = True
        self._left = -1
        task = self._task
        if task is None:
            return
        if self._waiting and not task.done:
            task.interrupt(_Ended())
        await task.join()

    def cancel(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()

    def release(self) -> int | None:
        """Give the descriptor away if someone still holds the other end, else close it."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and (self.finished or self._task is None):
            close_fd(fd)
            return None
        return fd if fd >= 0 else None

    async def _run(self) -> None:
        while True:
            size = READ
            if self._ended:
                if self._left < 0:
                    self._left = available(self._fd)
                if self._left == 0:
                    self.finished = self._is_closed()
                    return
                size = min(size, self._left)
            try:
                data = os.read(self._fd, size)
            except BlockingIOError:
                if self._ended:
                    return
                self._waiting = True
                try:
                    await readable(self._fd)
                except _Ended:
                    pass
                finally:
                    self._waiting = False
                continue
            if not data:
                self.finished = True
                return
            if self._ended:
                self._left -= len(data)
            elif len(data) == READ and not self._wide:
                self._widen()
            await self._take(data)

    def _is_closed(self) -> bool:
        try:
            return not os.read(self._fd, READ)  # what comes now was written after the end
        except BlockingIOError:
            return False

    def _widen(self) -> None:
        """A program that writes much gets a larger pipe; one that does not costs nothing."""
        self._wide = True
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            pass  # over the user's share of pipe memory: the usual size will do


def available(fd: int) -> int:
    """Return how many bytes are in a pipe."""
    return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, bytes(4)), "little")


class Leftovers:
    """Pipes that a child of an ended program still holds: read and thrown away, at most so many."""

    __slots__ = ("_held", "_next")

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Task[None]]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, fd: int | None) -> None:
        """Take over a descriptor; the oldest is closed when there are too many."""
        if fd is None:
            return
        if len(self._held) >= _MAX_LEFTOVERS:
            self._drop(next(iter(self._held)))
        self._next += 1
        self._held[self._next] = fd, start(self._discard(self._next, fd), "leftover output")

    async def close(self) -> None:
        """Close all."""
        for key, (_, task) in list(self._held.items()):
            self._drop(key)
            try:
                await task.join()
            except Cancelled:
                pass  # it had not begun

    def _drop(self, key: int) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            fd, task = held
            task.cancel()
            close_fd(fd)

    async def _discard(self, key: int, fd: int) -> None:
        try:
            while True:
                try:
                    if not os.read(fd, READ):
                        break
                except BlockingIOError:
                    await readable(fd)
        except Cancelled:
            return  # the descriptor is closed already, its number perhaps someone else's
        self._held.pop(key, None)
        close_fd(fd)


class Turn:
    """One at a time, in no promised order."""

    __slots__ = ("_free", "_taken")

    def __init__(self) -> None:
        self._free = Event()
        self._taken = False

    async def take(self) -> None:
        """Wait for the turn."""
        while self._taken:
            self._free.clear()
            await self._free.wait()
        self._taken = True

    def give(self) -> None:
        """End the turn."""
        self._taken = False
        self._free.set()
