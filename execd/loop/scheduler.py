"""One thread, one epoll instance, coroutines that suspend on a `Wait`.

A coroutine suspends by yielding a `Wait`; the loop arms it, and whoever
completes it hands the task back to the ready list with a value or an exception.
A descriptor stays armed between waits (an idle keep-alive connection costs no
epoll_ctl per request) and is disarmed only when it reports something nobody
waits for.

Child exits arrive by SIGCHLD and a wake-up descriptor, and are collected with
waitpid(-1): this loop is the only place that waits, so orphans adopted by PID 1
or by a child subreaper are reaped, and no exit status is ever lost. A pid must
be registered (`child_exit`) before the task that spawned it suspends.

Source: epoll(7), signal(7), prctl(2) PR_SET_CHILD_SUBREAPER.
"""

# ruff: noqa: ARG002 - every Wait is armed and disarmed with the same two arguments

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum`; typeshed has no stub
import errno
import os
import select
import time
from _heapq import heapify, heappop, heappush  # what `heapq` is made of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import TracebackType
    from typing import Any, Generic, Self, TypeVar

    T = TypeVar("T")

    class _Of(Generic[T]):
        pass
else:
    T = None

    class _Of:
        def __class_getitem__(cls, item: object) -> type:
            return cls


now = time.monotonic

READ = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLPRI
WRITE = select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP

LONGEST_POLL = 86400.0  # epoll_wait(2) takes milliseconds in 32 bits; a later timer is looked at again then


class Cancelled(BaseException):
    """Thrown into a task that was cancelled, at the point where it waits."""


class TimedOut(Exception):
    """A `deadline` passed before its body finished."""


class _Alarm(BaseException):
    """Travels from a deadline's timer to the `with` that owns it."""


class Wait:
    """What a coroutine yields to suspend."""

    __slots__ = ()

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        raise NotImplementedError

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        raise NotImplementedError

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)


class Task(_Of[T]):
    """A running coroutine. `join` waits for it; `cancel` stops it where it waits."""

    __slots__ = ("_coro", "_interrupt", "_joined", "_wait", "done", "error", "loop", "name", "result")

    def __init__(self, loop: Loop, coro: Coroutine[Any, Any, T], name: str) -> None:
        self.loop = loop
        self.name = name
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self._coro = coro
        self._wait: Wait | None = None
        self._interrupt: BaseException | None = None
        self._joined: list[Task[Any]] = []

    def cancel(self) -> None:
        """Throw `Cancelled` into the task at its present or next wait."""
        self.interrupt(Cancelled())

    def interrupt(self, error: BaseException) -> None:
        if self.done:
            return
        wait = self._wait
        if wait is None:
            # A cancellation outweighs an alarm or whatever else is on its way.
            if self._interrupt is None or isinstance(error, Cancelled):
                self._interrupt = error
            return
        wait.disarm(self.loop, self)
        self._wait = None
        self.loop.resume(self, None, error)

    async def join(self) -> T:
        """Wait for the end; return its result or raise its error."""
        if not self.done:
            await _Join(self)
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]  # set when done without error


class _Join(Wait):
    __slots__ = ("_task",)

    def __init__(self, task: Task[Any]) -> None:
        self._task = task

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        if self._task.done:
            loop.resume(task, None, None)
        else:
            self._task._joined.append(task)

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        self._task._joined.remove(task)


class Event:
    """A flag that tasks can wait for."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task[Any]] = []

    def is_set(self) -> bool:
        return self._set

    def clear(self) -> None:
        self._set = False

    def set(self) -> None:
        """Raise the flag and wake every waiter."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            task._wait = None
            task.loop.resume(task, None, None)

    async def wait(self) -> None:
        if not self._set:
            await _EventWait(self)


class _EventWait(Wait):
    __slots__ = ("_event",)

    def __init__(self, event: Event) -> None:
        self._event = event

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        self._event._waiting.append(task)

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        self._event._waiting.remove(task)


class Timer:
    """Something to do at a time; set `live` to False to call it off."""

    __slots__ = ("act", "live", "when")

    def __init__(self, when: float, act: Callable[[], None]) -> None:
        self.when = when
        self.act = act
        self.live = True

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class _Sleep(Wait):
    __slots__ = ("_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: Timer | None = None

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        def wake() -> None:
            task._wait = None
            loop.resume(task, None, None)

        self._timer = loop.at(now() + self._seconds, wake)

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        if self._timer is not None:
            self._timer.live = False


class _Checkpoint(Wait):
    __slots__ = ()

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        task._wait = None
        loop.resume(task, None, None)

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        """Nothing is held: the task is ready already."""


class _Source:
    """What the loop knows of one descriptor."""

    __slots__ = ("fd", "mask", "reader", "writer")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.mask = 0
        self.reader: Task[Any] | None = None
        self.writer: Task[Any] | None = None


class _Ready(Wait):
    __slots__ = ("_fd", "_write")

    def __init__(self, fd: int, write: bool) -> None:
        self._fd = fd
        self._write = write

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        source = loop._sources.get(self._fd)
        if source is None:
            source = loop._sources[self._fd] = _Source(self._fd)
        if self._write:
            if source.writer is not None:
                raise RuntimeError(f"two tasks wait to write descriptor {self._fd}")
            source.writer = task
            wanted = source.mask | WRITE
        else:
            if source.reader is not None:
                raise RuntimeError(f"two tasks wait to read descriptor {self._fd}")
            source.reader = task
            wanted = source.mask | READ
        if wanted != source.mask:
            loop.set_mask(source, wanted)

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        source = loop._sources.get(self._fd)
        if source is not None:
            if source.writer is task:
                source.writer = None
            if source.reader is task:
                source.reader = None


class _ChildWait(Wait):
    __slots__ = ("_pid",)

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __await__(self) -> Generator[Wait, Any, int]:
        # The status stays with the loop until it is taken here: a deadline that passes while it is on
        # its way must not lose it, or the next wait for this child would be for ever.
        yield self
        return current_loop()._exited.pop(self._pid)

    def arm(self, loop: Loop, task: Task[Any]) -> None:
        if self._pid in loop._exited:
            loop.resume(task, None, None)
        else:
            loop._children[self._pid] = task

    def disarm(self, loop: Loop, task: Task[Any]) -> None:
        if loop._children.get(self._pid) is task:
            loop._children[self._pid] = None


class Loop:
    """The scheduler. Make one with `run`; reach it from a task with `current_loop`."""

    def __init__(self) -> None:
        self.current: Task[Any] | None = None
        self._epoll = select.epoll()
        self._ready: list[tuple[Task[Any], Any, BaseException | None]] = []
        self._timers: list[Timer] = []
        self._timers_bound = 256
        self.turn = 0  # counts looks at what has happened; nothing is reaped within one
        self._sources: dict[int, _Source] = {}
        self._children: dict[int, Task[Any] | None] = {}
        self._exited: dict[int, int] = {}
        self._signals: dict[int, Callable[[], None]] = {}
        self._caught: list[int] = []
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._wake_in, select.EPOLLIN)
        self.orphan: Callable[[int, int], None] | None = None  # told of every reaped child nobody watches

    # -- tasks ---------------------------------------------------------------

    def start(self, coro: Coroutine[Any, Any, T], name: str) -> Task[T]:
        """Run a coroutine as a task of its own; a crash nobody joins is printed with its name."""
        task: Task[T] = Task(self, coro, name)
        self._ready.append((task, None, None))
        return task

    def resume(self, task: Task[Any], value: Any, error: BaseException | None) -> None:
        task._wait = None
        self._ready.append((task, value, error))

    def _step(self, task: Task[Any], value: Any, error: BaseException | None) -> None:
        if task.done:
            return
        self.current = task
        if error is None and task._interrupt is not None:
            error, task._interrupt = task._interrupt, None
        try:
            while True:
                wait = task._coro.send(value) if error is None else task._coro.throw(error)
                if task._interrupt is None:
                    break
                error, task._interrupt = task._interrupt, None
        except StopIteration as stop:
            self._finish(task, stop.value, None)
        except (Exception, Cancelled, _Alarm) as failure:  # the border of every task: kept for whoever joins
            self._finish(task, None, failure)
        else:
            task._wait = wait
            try:
                wait.arm(self, task)
            except (OSError, RuntimeError, ValueError) as failure:
                wait.disarm(self, task)
                self.resume(task, None, failure)
        self.current = None

    def _finish(self, task: Task[Any], result: Any, error: BaseException | None) -> None:
        task.done = True
        task.result = result
        task.error = error
        joined, task._joined = task._joined, []
        for waiter in joined:
            self.resume(waiter, None, None)
        if error is not None and not joined and not isinstance(error, Cancelled):
            print_crash(task.name, error)

    # -- time ------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> Timer:
        """Call `act` at `when` (monotonic seconds); set `.live = False` on the result to call it off."""
        timers = self._timers
        if len(timers) >= self._timers_bound:
            # Most deadlines are called off long before their time: drop those now and then.
            timers[:] = [timer for timer in timers if timer.live]
            heapify(timers)
            self._timers_bound = max(256, 2 * len(timers))
        timer = Timer(when, act)
        heappush(timers, timer)
        return timer

    # -- descriptors -------------------------------------------------------------

    def set_mask(self, source: _Source, mask: int) -> None:
        if source.mask == 0:
            self._epoll.register(source.fd, mask)
        elif mask == 0:
            self._epoll.unregister(source.fd)
        else:
            self._epoll.modify(source.fd, mask)
        source.mask = mask

    def forget(self, fd: int) -> None:
        """Drop a descriptor before it is closed; its waiters get EBADF."""
        source = self._sources.pop(fd, None)
        if source is None:
            return
        if source.mask:
            try:
                self._epoll.unregister(fd)
            except OSError as failure:
                if failure.errno not in (errno.ENOENT, errno.EBADF):
                    raise
        for task in (source.reader, source.writer):
            if task is not None:
                self.resume(task, None, OSError(errno.EBADF, "descriptor closed while waiting"))

    # -- children and signals ------------------------------------------------------

    def watch_child(self, pid: int) -> None:
        """Claim a child's exit status before the spawning task suspends."""
        self._exited.pop(pid, None)  # of an earlier child with this number, that nobody asked about
        self._children.setdefault(pid, None)

    def is_watched(self, pid: int) -> bool:
        """Say whether `pid` is a child of ours that has not been reaped (so it may be signalled)."""
        return pid in self._children

    def on_signal(self, number: int, act: Callable[[], None]) -> None:
        """Call `act` in the loop, outside of any task, after each delivery of a signal."""
        self._signals[number] = act
        _signal.signal(number, self._caught_signal)

    def _caught_signal(self, number: int, _frame: object) -> None:
        self._caught.append(number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._children:
                task = self._children.pop(pid)
                self._exited[pid] = status
                if task is not None:
                    self.resume(task, None, None)
            elif self.orphan is not None:
                self.orphan(pid, status)

    def _drain_wake(self) -> None:
        try:
            while len(os.read(self._wake_in, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass
        caught, self._caught = self._caught, []
        for number in dict.fromkeys(caught):
            if number == _signal.SIGCHLD:
                self._reap()
            act = self._signals.get(number)
            if act is not None:
                act()

    # -- the loop ------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until `main` ends; return its result or raise its error."""
        global _loop
        if _loop is not None:
            raise RuntimeError("a loop is running already")
        _loop = self
        before = _signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)
        old_chld = _signal.signal(_signal.SIGCHLD, self._caught_signal)
        task = self.start(main, "main")
        try:
            while not task.done:
                self._turn(task)
        finally:
            _signal.signal(_signal.SIGCHLD, old_chld)
            _signal.set_wakeup_fd(before)
            _loop = None
            self._epoll.close()
            os.close(self._wake_in)
            os.close(self._wake_out)
        if task.error is not None:
            raise task.error
        return task.result  # type: ignore[return-value]  # set when done without error

    def _turn(self, main: Task[Any]) -> None:
        self.turn += 1
        ready, self._ready = self._ready, []
        for task, value, error in ready:
            self._step(task, value, error)
        if main.done:
            return
        timers = self._timers
        while timers and not timers[0].live:
            heappop(timers)
        if self._ready:
            timeout = 0.0
        elif timers:
            timeout = min(max(0.0, timers[0].when - now()), LONGEST_POLL)
        else:
            timeout = -1
        for fd, happened in self._epoll.poll(timeout, 256):
            if fd == self._wake_in:
                self._drain_wake()
                continue
            source = self._sources.get(fd)
            if source is not None:
                self._deliver(source, happened)
        moment = now()
        while timers and timers[0].when <= moment:
            timer = heappop(timers)
            if timer.live:
                timer.live = False
                timer.act()

    def _deliver(self, source: _Source, happened: int) -> None:
        idle = 0
        if happened & (READ | BROKEN):
            if source.reader is not None:
                task, source.reader = source.reader, None
                self.resume(task, None, None)
            else:
                idle |= READ
        if happened & (WRITE | BROKEN):
            if source.writer is not None:
                task, source.writer = source.writer, None
                self.resume(task, None, None)
            else:
                idle |= WRITE
        if idle & source.mask:
            self.set_mask(source, source.mask & ~idle)


_loop: Loop | None = None


def current_loop() -> Loop:
    """Return the running loop.

    Raises:
        RuntimeError: nothing runs.
    """
    if _loop is None:
        raise RuntimeError("no loop is running")
    return _loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh loop."""
    return Loop().run(main)


def start(coro: Coroutine[Any, Any, T], name: str) -> Task[T]:
    """Start a task on the running loop."""
    return current_loop().start(coro, name)


def sleep(seconds: float) -> Wait:
    """Suspend for some seconds."""
    return _Sleep(seconds)


def checkpoint() -> Wait:
    """Let every other ready task run once."""
    return _Checkpoint()


def readable(fd: int) -> Wait:
    """Suspend until a descriptor can be read, or is at its end, or broken."""
    return _Ready(fd, write=False)


def writable(fd: int) -> Wait:
    """Suspend until a descriptor can be written, or is broken."""
    return _Ready(fd, write=True)


def child_exit(pid: int) -> Wait:
    """Suspend until a watched child ends; the value is its wait status (waitpid(2))."""
    return _ChildWait(pid)


class deadline:  # noqa: N801 - reads as a statement: `with deadline(5):`
    """Bound the body of a `with`: when `seconds` pass first, the body is broken off with `TimedOut`.

    `None` means no bound.
    """

    __slots__ = ("_alarm", "_seconds", "_timer")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._alarm = _Alarm()
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        if self._seconds is not None:
            loop = current_loop()
            task = loop.current
            if task is None:
                raise RuntimeError("a deadline needs a task")
            self._timer = loop.at(now() + self._seconds, lambda: task.interrupt(self._alarm))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.live = False
            task = current_loop().current
            if task is not None and task._interrupt is self._alarm:
                task._interrupt = None
        if error is self._alarm:
            raise TimedOut(f"not done within {self._seconds} s") from None


def complain(text: str) -> None:
    """
    Write a line to standard error, best effort.

    The entrypoint shares it and may have made it non-blocking, and whoever reads it may be slow or
    gone: a lost line is better than a lost daemon.
    """
    try:
        os.write(2, f"execd: {text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass


def print_crash(name: str, error: BaseException) -> None:
    """Write a task's uncaught failure to standard error without importing `traceback`."""
    lines = [f"task {name} failed: {type(error).__name__}: {error}"]
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f"  at {code.co_filename}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    complain("\n".join(lines))
