"""The loop's promises, each as one sentence."""

import os
import time

import pytest

from execd import loop


def test_sleepers_wake_in_order_of_their_times() -> None:
    """Timers fire in the order of their times, not of their starts."""
    seen: list[str] = []

    async def nap(name: str, seconds: float) -> None:
        await loop.sleep(seconds)
        seen.append(name)

    async def main() -> None:
        tasks = [loop.start(nap("late", 0.03), "late"), loop.start(nap("early", 0.01), "early")]
        for task in tasks:
            await task.join()

    loop.run(main())
    assert seen == ["early", "late"]


def test_a_deadline_breaks_off_a_wait() -> None:
    """A deadline that passes raises TimedOut where the body waits."""

    async def main() -> str:
        try:
            with loop.deadline(0.01):
                await loop.sleep(10)
        except loop.TimedOut:
            return "timed out"
        return "finished"

    assert loop.run(main()) == "timed out"


def test_an_outer_deadline_passes_through_an_inner_one() -> None:
    """The deadline that passed is the one that raises."""

    async def main() -> str:
        try:
            with loop.deadline(0.01):
                try:
                    with loop.deadline(10):
                        await loop.sleep(20)
                except loop.TimedOut:
                    return "inner"
        except loop.TimedOut:
            return "outer"
        return "none"

    assert loop.run(main()) == "outer"


def test_a_deadline_that_holds_leaves_no_trace() -> None:
    """A body that ends in time is not interrupted later."""

    async def main() -> str:
        with loop.deadline(0.02):
            await loop.checkpoint()
        await loop.sleep(0.05)
        return "fine"

    assert loop.run(main()) == "fine"


def test_cancel_runs_cleanup_where_the_task_waits() -> None:
    """A cancelled task runs its finally blocks."""
    seen: list[str] = []

    async def worker() -> None:
        try:
            await loop.sleep(10)
        finally:
            seen.append("cleaned")

    async def main() -> None:
        task = loop.start(worker(), "worker")
        await loop.checkpoint()
        task.cancel()
        with pytest.raises(loop.Cancelled):
            await task.join()

    loop.run(main())
    assert seen == ["cleaned"]


def test_a_pipe_carries_more_than_it_holds() -> None:
    """A writer waits for its reader and no byte is lost."""
    payload = os.urandom(1 << 20)

    async def main() -> bytes:
        reader, writer = os.pipe2(os.O_NONBLOCK)

        async def feed() -> None:
            await loop.write_all(writer, payload)
            loop.close_fd(writer)

        loop.start(feed(), "feed")
        got = []
        while chunk := await loop.read_some(reader, 65536):
            got.append(chunk)
        loop.close_fd(reader)
        return b"".join(got)

    assert loop.run(main()) == payload


def test_every_child_keeps_its_own_exit_status() -> None:
    """500 children at once each report their own code (hard case R50)."""

    async def one(code: int) -> int:
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", f"exit {code}"], dict(os.environ))
        loop.current_loop().watch_child(pid)
        return os.waitstatus_to_exitcode(await loop.child_exit(pid))

    async def main() -> list[int]:
        out = []
        for _ in range(10):
            tasks = [loop.start(one(n % 200), f"child {n}") for n in range(50)]
            out += [await task.join() for task in tasks]
        return out

    assert loop.run(main()) == [n % 200 for _ in range(10) for n in range(50)]


def test_closing_a_descriptor_wakes_its_waiter() -> None:
    """A task that waits on a closed descriptor gets EBADF instead of sleeping for ever."""

    async def main() -> int | None:
        reader, writer = os.pipe2(os.O_NONBLOCK)

        async def wait() -> None:
            await loop.readable(reader)

        task = loop.start(wait(), "waiter")
        await loop.checkpoint()
        loop.close_fd(reader)
        try:
            await task.join()
        except OSError as failure:
            os.close(writer)
            return failure.errno
        return None

    assert loop.run(main()) == 9


@pytest.mark.parametrize("count", [1, 3])
def test_an_event_wakes_all_waiters(count: int) -> None:
    """One set wakes everyone who waits."""
    woken: list[int] = []

    async def main() -> None:
        flag = loop.Event()

        async def wait(number: int) -> None:
            await flag.wait()
            woken.append(number)

        tasks = [loop.start(wait(n), f"waiter {n}") for n in range(count)]
        await loop.checkpoint()
        flag.set()
        for task in tasks:
            await task.join()

    loop.run(main())
    assert woken == list(range(count))


def test_a_crash_reaches_whoever_joins() -> None:
    """An error inside a task is raised by join."""

    async def bad() -> None:
        raise ValueError("no")

    async def main() -> None:
        await loop.start(bad(), "bad").join()

    with pytest.raises(ValueError, match="no"):
        loop.run(main())


def spawn(*argv: str) -> int:
    pid = os.posix_spawnp(argv[0], argv, os.environ)
    loop.current_loop().watch_child(pid)
    return pid


@pytest.mark.parametrize("seconds", [1e7, 1e13, 1e300])
def test_a_deadline_may_be_as_far_as_one_likes(seconds: float) -> None:
    """A timer beyond what epoll_wait(2) can be told does not end the loop."""

    async def main() -> int:
        with loop.deadline(seconds):
            return int(await loop.child_exit(spawn("sleep", "0.02")))

    assert loop.run(main()) == 0


def test_a_status_outlives_a_deadline_that_passes_with_it() -> None:
    """A child that ends in the very turn in which the deadline passes can still be asked about."""

    async def block() -> None:
        time.sleep(0.2)  # so that the loop learns of both at once

    async def main() -> tuple[str, int]:
        pid = spawn("sh", "-c", "sleep 0.05; exit 7")
        loop.start(block(), "block")
        try:
            with loop.deadline(0.02):
                return "in time", int(await loop.child_exit(pid))
        except loop.TimedOut:
            assert not loop.current_loop().is_watched(pid)
            with loop.deadline(5):
                return "late", int(await loop.child_exit(pid))

    assert loop.run(main()) == ("late", 7 << 8)


def test_a_cancellation_outweighs_what_else_interrupts() -> None:
    """A task that is cancelled while an alarm is on its way is cancelled."""

    async def idle() -> None:
        await loop.sleep(10)

    async def main() -> BaseException | None:
        task = loop.start(idle(), "idle")
        task.interrupt(ValueError("something else"))
        task.cancel()
        await loop.checkpoint()
        await loop.checkpoint()
        return task.error

    assert isinstance(loop.run(main()), loop.Cancelled)


@pytest.mark.parametrize("kind", ["broken", "full", "closed"])
def test_a_complaint_that_nobody_takes_is_lost(kind: str) -> None:
    """Standard error belongs to the entrypoint too; whatever became of it, complaining does not fail."""
    kept = os.dup(2)
    reader, writer = os.pipe()
    try:
        if kind == "full":
            os.set_blocking(writer, False)
            with pytest.raises(BlockingIOError):
                while True:
                    os.write(writer, bytes(4096))
        else:
            os.close(reader)
        if kind == "closed":
            os.close(2)
        else:
            os.dup2(writer, 2)
        loop.complain("lost")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(writer)
        if kind == "full":
            os.close(reader)
