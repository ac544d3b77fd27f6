"""Sessions: one living shell each, runs one after another.

The shell keeps everything between runs: directory, variables exported or not, functions,
aliases, options, jobs. When it ends (`exit`, a run out of time, an interrupt) the next
run gets a new one that carries on with the directory, exports, and with bash the
functions and aliases, of the last run that ended by itself. How shell and daemon talk
is told in `execd.sessions.script`.

The output of a run goes to a pipe of its own: a FIFO, which only the shell and we open
and which has no name any more when the run ends. Late output of an earlier run's
children therefore never appears in another run.

Source: execd contract §2.4, §5; fifo(7).
"""

from __future__ import annotations

import os
import time

from execd.environment import check_directory, directory
from execd.live import Live
from execd.loop import (
    Cancelled,
    Event,
    TimedOut,
    child_exit,
    close_fd,
    deadline,
    now,
    read_some,
    start,
    write_all,
)
from execd.output.lines import Lines
from execd.output.pump import Leftovers, Pump, Turn, pipe
from execd.processes.oom import OomCounter
from execd.processes.outcome import (
    DISCONNECT,
    INTERRUPT,
    OUT_OF_MEMORY,
    SHUTDOWN,
    TIMEOUT,
    Outcome,
    outcome,
)
from execd.processes.shell import Shells
from execd.processes.spawn import CannotStart, Program, Spawner, find_spawn_program
from execd.processes.tree import GONE_SECONDS, NOBODY, Family
from execd.sessions import script
from specs import stream
from specs.errors import CommandNotFound, ContextNotFound, ExecutionFailed, InvalidBody
from specs.names import ENV_COMMAND_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from execd.config import Settings
    from execd.environment import Environment
    from execd.loop import Task
    from specs.execd import CreateSessionRequest, RunInSessionRequest

    class Listener(Protocol):
        """Whoever asked for a run and hears of it. Never raises for having gone away."""

        @property
        def gone(self) -> bool:
            """Whether nobody listens any more."""

        async def open(self, execution_id: str) -> None:
            """Say the id; first."""

        async def write(self, events: bytes) -> None:
            """Pass events on, waiting while the client is slow."""

        async def end(self, events: bytes) -> None:
            """Pass the last events on and end the stream."""


INTERRUPT_GRACE = 3.0  # seconds from TERM to KILL


class Shell:
    """One shell process and its two private pipes."""

    __slots__ = ("_closed", "_listening", "answers", "changed", "input", "output", "pid", "status")

    def __init__(self, pid: int, input_: int, output: int) -> None:
        self.pid = pid
        self.input = input_  # our end of its standard input
        self.output = output  # our end of its standard output
        self.answers = script.Answers()
        self.changed = Event()  # a run was answered, or the shell ended
        self.status: int | None = None  # wait status once it has ended
        self._closed = False
        self._listening: tuple[Task[None], Task[None]] = (
            start(self._listen(), f"answers of shell {pid}"),
            start(self._await_end(), f"end of shell {pid}"),
        )

    async def _listen(self) -> None:
        try:
            while data := await read_some(self.output, 65536):
                if self.answers.feed(data):
                    self.changed.set()
        except Cancelled:
            pass

    async def _await_end(self) -> None:
        self.status = int(await child_exit(self.pid))
        self.changed.set()

    def close(self) -> None:
        """Let go of its pipes; an idle shell ends by itself then."""
        if self._closed:
            return
        self._closed = True
        self._listening[0].cancel()
        close_fd(self.input)
        close_fd(self.output)


class Run:
    """One run of a session: waiting, running or over."""

    __slots__ = (
        "answered",
        "calm",
        "cwd",
        "number",
        "over",
        "reason",
        "request",
        "session",
        "since",
        "started_at",
        "stopping",
    )

    def __init__(self, session: Session, request: RunInSessionRequest, cwd: str | None) -> None:
        self.session = session
        self.request = request
        self.cwd = cwd
        self.number = 0  # given when its turn comes
        self.since = 0
        self.started_at = 0.0
        self.reason: str | None = None  # why it was stopped
        self.stopping = 0  # how many are ending it right now
        self.calm = Event()  # one of them has done so
        self.answered = False  # too late to stop it: its shell may be another run's already
        self.over = Event()


class Session:
    """A session: its shell, or what the next shell carries on with."""

    __slots__ = ("closed", "current", "cwd", "environ", "id", "runs", "shell", "state", "turn")

    def __init__(self, id: str, environ: dict[str, str], cwd: str | None) -> None:  # noqa: A002
        self.id = id
        self.environ = environ
        self.cwd = cwd
        self.state: bytes | None = None
        self.shell: Shell | None = None
        self.turn = Turn()
        self.current: Run | None = None
        self.runs = 0
        self.closed = False


class Sessions:
    """All sessions of the sandbox."""

    def __init__(self, settings: Settings, environment: Environment, spawner: Spawner | None = None) -> None:
        self._settings = settings
        self._environment = environment
        self._spawner = Spawner(find_spawn_program()) if spawner is None else spawner
        self._shells = Shells(settings.base_environ)
        self._live: Live[Session] = Live()
        self._leftovers = Leftovers()
        self._oom = OomCounter()

    # -- sessions -----------------------------------------------------------------

    async def create(self, request: CreateSessionRequest) -> str:
        """
        Start a session; return its id.

        Raises:
            InvalidBody: the directory cannot be made, or the image has no shell.
            ExecutionFailed: the shell does not start.
        """
        environ = self._environment.compose()
        cwd = None
        if request.cwd is not None:
            cwd = directory(
                request.cwd, environ, home=self._environment.home(), base=self._environment.where()
            )
            try:
                os.makedirs(cwd, exist_ok=True)
            except OSError as failure:
                raise InvalidBody(f"cwd: {cwd!r} cannot be made: {failure.strerror}") from failure
            check_directory(cwd)
        session = Session(_uuid(), environ, cwd)
        session.shell = await self._start_shell(session)
        self._live.add(session.id, session)
        return session.id

    def knows(self, session_id: str) -> bool:
        """Say whether an id is a session's."""
        return self._live.get(session_id) is not None

    def get(self, session_id: str) -> Session:
        """
        Return a session.

        Raises:
            ContextNotFound: there is none.
        """
        session = self._live.get(session_id)
        if session is None:
            raise ContextNotFound(f"no session {session_id}: it never existed or was deleted")
        return session

    async def delete(self, session_id: str) -> None:
        """
        End a session, its run and everything its runs have left running.

        Raises:
            ContextNotFound: there is none.
        """
        session = self.get(session_id)
        self._live.drop(session_id)
        await self._close(session)

    async def _close(self, session: Session) -> None:
        session.closed = True
        if session.current is not None and session.current.reason is None:
            session.current.reason = SHUTDOWN
        shell = session.shell
        await Family(NOBODY if shell is None else shell.pid, f"{session.id}/").kill()
        if shell is not None and session.current is None:
            session.shell = None
            shell.close()

    async def close(self) -> None:
        """End all sessions."""
        tasks = [start(self._close(session), f"close session {session.id}") for session in self._live]
        for task in tasks:
            await task.join()
        await self._leftovers.close()

    # -- runs ---------------------------------------------------------------------

    def plan(self, session_id: str, request: RunInSessionRequest) -> Run:
        """
        Understand a request.

        Raises:
            ContextNotFound: there is no such session.
            InvalidBody: the directory does not exist.
        """
        session = self.get(session_id)
        cwd = None
        if request.cwd is not None:
            cwd = directory(
                request.cwd, session.environ, home=self._environment.home(), base=self._environment.where()
            )
            check_directory(cwd)
        return Run(session, request, cwd)

    async def run(self, run: Run, listener: Listener) -> None:
        """Wait for the run's turn, run it, tell the listener about it to the end."""
        session = run.session
        await listener.open(session.id)
        await session.turn.take()
        try:
            run.started_at = now()
            ended, last = await self._take_turn(run, listener)
        finally:
            session.current = None
            run.over.set()
            session.turn.give()
        if ended.succeeded:
            final = stream.complete(int((now() - run.started_at) * 1000), _ms())
        else:
            final = stream.error("CommandExecError", ended.evalue, list(ended.traceback), _ms())
        await listener.end(stream.output("stdout", last, _ms()) + final)

    async def _take_turn(self, run: Run, listener: Listener) -> tuple[Outcome, bytes]:
        session = run.session
        if run.reason is not None or session.closed:
            text = "the session was deleted" if session.closed else "stopped before it began"
            return Outcome(-1, "-1", (text,)), b""
        try:
            shell = session.shell
            if shell is not None and shell.status is not None:
                shell.close()
                shell = session.shell = None
            if shell is None:
                shell = session.shell = await self._start_shell(session)
            path, ours, held = _output_pipe(self._settings.state_dir)
        except (ExecutionFailed, OSError) as failure:
            text = failure.message if isinstance(failure, ExecutionFailed) else f"not started: {failure}"
            return Outcome(126, text, (text,)), b""
        session.runs += 1
        session.current = run
        run.number = session.runs
        run.since = ticks_now()
        lines = Lines(carriage_return=False, blank=False)

        async def take(data: bytes) -> None:
            if listener.gone:
                return
            complete = lines.feed(data)
            if complete:
                await listener.write(stream.output("stdout", complete, _ms()))

        pump = Pump(ours, take)
        pump.start(f"output of session {session.id}")
        try:
            ended = await self._converse(run, shell, path)
        finally:
            if held >= 0:
                os.close(held)
            _unlink(path)
        try:
            await pump.drain()
        finally:
            self._leftovers.add(pump.release())
        return ended, lines.flush()

    async def _converse(self, run: Run, shell: Shell, path: str) -> Outcome:
        """Tell the shell what to do; wait for its answer, its end, or the end of the run's time."""
        session = run.session
        oom_before = self._oom.read()
        nonce = os.urandom(16).hex()
        shell.answers.expect(nonce)
        if shell.status is None:
            shell.changed.clear()
        text = script.run(
            run.request.command,
            mark=f"{session.id}/{run.number}",
            nonce=nonce,
            output=path,
            cwd=run.cwd,
            bash=self._shells.get().name == "bash",
        )
        seconds = None if run.request.timeout is None else run.request.timeout / 1000
        telling = start(_tell(shell.input, text), f"text for session {session.id}")
        try:
            with deadline(seconds):
                await shell.changed.wait()
        except TimedOut:
            await self.stop(run, TIMEOUT)
            try:
                with deadline(GONE_SECONDS):
                    await shell.changed.wait()
            except TimedOut:
                shell.status = 9  # the kernel holds it; the kill is pending
        finally:
            telling.cancel()
        while run.stopping:  # whatever it answered, its shell is being ended too
            run.calm.clear()
            await run.calm.wait()
        run.answered = True
        answers = shell.answers
        if run.reason is None and shell.status is None and answers.status is not None:
            session.state = answers.state
            session.cwd = _cwd_of(shell.pid) or session.cwd
            status = (answers.status & 0xFF) << 8
        else:
            status = 9 if shell.status is None else shell.status
            session.shell = None
            shell.close()
        number, code = status & 0x7F, status >> 8
        suspicious = number == 9 or (number == 0 and code == OUT_OF_MEMORY)
        return outcome(
            status,
            reason=run.reason,
            timeout_ms=run.request.timeout,
            out_of_memory=suspicious and self._oom.read() > oom_before,
        )

    async def stop(self, run: Run, reason: str) -> None:
        """End a run and all that it started; earlier runs' background jobs go on."""
        if run.answered:
            return
        if run.reason is None:
            run.reason = reason
        session = run.session
        shell = session.shell
        if session.current is not run or shell is None:
            return
        family = Family(shell.pid, f"{session.id}/{run.number}")
        family.since = run.since
        run.stopping += 1
        try:
            if reason in {TIMEOUT, DISCONNECT}:
                await family.kill()
            else:
                await family.terminate(INTERRUPT_GRACE)
        finally:
            run.stopping -= 1
            run.calm.set()

    async def interrupt(self, session_id: str) -> None:
        """
        Stop the session's present run; the session stays.

        Raises:
            ContextNotFound: there is no such session.
            CommandNotFound: nothing runs in it.
            ExecutionFailed: the kernel does not let go of it.
        """
        run = self.get(session_id).current
        if run is None:
            raise CommandNotFound(f"nothing runs in session {session_id}")
        await self.stop(run, INTERRUPT)
        try:
            with deadline(INTERRUPT_GRACE + 2 * GONE_SECONDS):
                await run.over.wait()
        except TimedOut:
            raise ExecutionFailed(
                f"the run in session {session_id} was killed but has not gone yet"
            ) from None

    async def _start_shell(self, session: Session) -> Shell:
        self._environment.where()
        found = self._shells.get()
        bash = found.name == "bash"
        argv = [found.name, "--noprofile", "--norc", "-s"] if bash else [found.name, "-s"]
        # What a lost shell exported says everything; of the first environment only the mark is needed.
        environ = dict(session.environ) if session.state is None else {}
        environ[ENV_COMMAND_ID] = f"{session.id}/0"
        answers_in, answers_out = pipe()
        try:
            ours, theirs = _input_pipe()
        except ExecutionFailed:
            os.close(answers_in)
            os.close(answers_out)
            raise
        try:
            pid = await self._spawner.start(
                Program(
                    argv,
                    environ,
                    file=found.path,
                    stdin=theirs,
                    stdout=answers_out,
                    stderr=self._spawner.null,
                )
            )
        except CannotStart:
            os.close(ours)
            os.close(answers_in)
            raise
        finally:
            os.close(theirs)
            os.close(answers_out)
        shell = Shell(pid, ours, answers_in)
        first = script.opening(bash=bash, cwd=session.cwd, state=session.state)
        if first:
            await _tell(ours, first)
        return shell


def _input_pipe() -> tuple[int, int]:
    """Make a pipe: a non-blocking end for us to write to, a blocking one for the shell to read."""
    try:
        theirs, ours = os.pipe2(os.O_CLOEXEC)
    except OSError as failure:
        raise ExecutionFailed(f"no pipe can be made for the shell: {failure.strerror}") from failure
    os.set_blocking(ours, False)
    return ours, theirs


async def _tell(fd: int, text: bytes) -> None:
    try:
        await write_all(fd, text)
    except (BrokenPipeError, Cancelled):
        pass  # it has ended, which is noticed elsewhere
    except OSError as failure:
        import errno

        if failure.errno != errno.EBADF:
            raise


def _output_pipe(state_dir: str) -> tuple[str, int, int]:
    """
    Make a pipe that has a path.

    Returns:
        The path, our reading end, and a writing end that is held until the run has ended, so that
        the pipe is never at its end before the shell has opened it.
    """
    name = os.urandom(16).hex()
    for folder in (state_dir, "/dev/shm", "/tmp"):  # noqa: S108 - a random name, ours alone, made exclusively
        path = f"{folder}/{name}"
        try:
            if folder == state_dir:
                os.makedirs(folder, 0o700, exist_ok=True)
            os.mkfifo(path, 0o600)
        except OSError:
            continue
        ours = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return path, ours, os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            os.close(ours)
            _unlink(path)
            raise
    ours, held = pipe()
    return f"/proc/{os.getpid()}/fd/{held}", ours, held


def _unlink(path: str) -> None:
    if not path.startswith("/proc/"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _cwd_of(pid: int) -> str | None:
    try:
        path = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
    return path if os.path.isdir(path) else None


def ticks_now() -> int:
    """Return the time since boot in the unit of /proc/<pid>/stat."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _uuid() -> str:
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def _ms() -> int:
    return time.time_ns() // 1_000_000
