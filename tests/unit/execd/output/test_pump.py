"""A pump ends with its program, not with its pipe."""

import os
import resource
from collections.abc import Callable
from typing import Any

import pytest

from execd import loop
from execd.output.pump import Leftovers, Pump, Turn, available, pipe
from specs.errors import ExecutionFailed

Run = Callable[[Any], Any]


def test_what_is_in_the_pipe_at_the_end_is_taken(run: Run) -> None:
    """R37: draining takes what was written before and does not wait for whoever holds the pipe."""

    async def main() -> tuple[bytes, bool]:
        ours, theirs = pipe()
        got = bytearray()

        async def take(data: bytes) -> None:
            got.extend(data)

        pump = Pump(ours, take)
        pump.start("pump")
        await loop.checkpoint()
        os.write(theirs, b"x" * 60_000)
        await pump.drain()
        leftovers = Leftovers()
        leftovers.add(pump.release())
        os.write(theirs, b"late")
        os.close(theirs)
        while len(leftovers):
            await loop.sleep(0.001)
        return bytes(got), pump.finished

    got, finished = run(main())
    assert got == b"x" * 60_000
    assert not finished


def test_a_slow_reader_holds_the_writer_back(run: Run) -> None:
    """While a piece is being taken nothing more is read: memory does not grow."""

    async def main() -> int:
        ours, theirs = pipe()
        os.set_blocking(theirs, False)
        go = loop.Event()

        async def take(data: bytes) -> None:
            await go.wait()

        pump = Pump(ours, take)
        pump.start("pump")
        written = 0
        for _ in range(50):
            await loop.checkpoint()
            try:
                written += os.write(theirs, b"x" * 65536)
            except BlockingIOError:
                break
        waiting = available(ours)
        go.set()
        os.close(theirs)
        await pump.drain()
        pump.release()
        assert waiting
        return written

    assert run(main()) < 3 << 20


def test_leftovers_are_bounded_and_closed(run: Run) -> None:
    """Pipes that nobody closes are given up when there are too many, and all at the end."""

    async def main() -> tuple[int, int]:
        before = len(os.listdir("/proc/self/fd"))
        leftovers = Leftovers()
        writers = []
        for _ in range(300):
            ours, theirs = pipe()
            writers.append(theirs)
            leftovers.add(ours)
            await loop.checkpoint()
        count = len(leftovers)
        await leftovers.close()
        for fd in writers:
            os.close(fd)
        return count, len(os.listdir("/proc/self/fd")) - before

    count, leaked = run(main())
    assert count <= 257
    assert leaked == 0


def test_a_turn_is_taken_by_one(run: Run) -> None:
    """Two tasks never hold the turn together."""

    async def main() -> int:
        turn, inside, most = Turn(), 0, 0

        async def work() -> None:
            nonlocal inside, most
            await turn.take()
            inside += 1
            most = max(most, inside)
            await loop.sleep(0.001)
            inside -= 1
            turn.give()

        for task in [loop.start(work(), f"work {n}") for n in range(5)]:
            await task.join()
        return most

    assert run(main()) == 1


def test_without_descriptors_a_pipe_is_refused_in_words() -> None:
    """A sandbox that has run out of open files says so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ExecutionFailed, match="no pipe"):
            pipe()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
