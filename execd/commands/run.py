"""Start, watch, stop commands: feeds events into the model and performs its effects.

A command is registered before its id is told to anybody. Its end is the end of its own
process; what it leaves running goes on, unless it is stopped, which ends its whole
family. Output is either streamed (a slow client slows the command down, nothing is
kept) or, in the background, spooled within a limit.

Source: execd contract §2.3, §3, §4.
"""

from __future__ import annotations

import os
import time

from execd.commands import model
from execd.environment import check_directory, directory
from execd.live import Live
from execd.loop import Event, TimedOut, child_exit, deadline, now, start
from execd.output.lines import Lines
from execd.output.pump import Leftovers, Pump, pipe
from execd.output.spool import Spool
from execd.processes.identity import resolve
from execd.processes.oom import OomCounter, memory_limit
from execd.processes.outcome import INTERRUPT, OUT_OF_MEMORY, SHUTDOWN, TIMEOUT, Outcome, outcome
from execd.processes.shell import Shells
from execd.processes.spawn import CannotStart, Program, Spawner, find_spawn_program, high
from execd.processes.tree import GONE_SECONDS, Family
from specs import stream
from specs.errors import CommandNotFound, ExecutionFailed, InvalidBody
from specs.execd import CommandStatus
from specs.names import ENV_COMMAND_ID
from specs.wire import encode, rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from execd.config import Settings
    from execd.environment import Environment
    from execd.processes.identity import Identity
    from specs.execd import RunCommandRequest

    class Listener(Protocol):
        """Whoever asked for a command and hears of it. Never raises for having gone away."""

        @property
        def gone(self) -> bool:
            """Whether nobody listens any more."""

        async def open(self, execution_id: str) -> None:
            """Say the id; first."""

        async def write(self, events: bytes) -> None:
            """Pass events on, waiting while the client is slow."""

        async def end(self, events: bytes) -> None:
            """Pass the last events on and end the stream."""


INTERRUPT_GRACE = 3.0  # seconds from TERM to KILL, execd contract §4.4
SHUTDOWN_GRACE = 2.0
MAX_ARGUMENT = 120 * 1024  # bytes of shell text given as an argument; the kernel's limit is 128 KiB
MAX_CONTENT = 4 * 1024  # characters of a command that its status repeats
SPOOLS = 4  # times the limit of one spool is what all finished ones may keep
SHARE = 16  # spools are kept in memory: one may take this part of the sandbox's limit


class Command:
    """One command, running or remembered."""

    __slots__ = (
        "background",
        "content",
        "ended",
        "family",
        "finished_at",
        "finished_ns",
        "id",
        "life",
        "oom_before",
        "pid",
        "spool",
        "started_at",
        "started_ns",
        "timeout_ms",
    )

    def __init__(self, id: str, content: str, background: bool, timeout_ms: int | None) -> None:  # noqa: A002
        self.id = id
        self.content = content
        self.background = background
        self.timeout_ms = timeout_ms
        self.life = model.Life()
        self.pid: int | None = None
        self.family: Family | None = None
        self.started_ns = time.time_ns()
        self.started_at = now()
        self.finished_ns: int | None = None
        self.finished_at = 0.0
        self.ended = Event()
        self.spool: Spool | None = None
        self.oom_before = 0

    @property
    def running(self) -> bool:
        """Say whether it has not ended."""
        return self.life.state != model.ENDED


class Plan:
    """A request that was understood: what to start."""

    __slots__ = ("argv", "content", "cwd", "environ", "file", "identity", "request", "script")

    def __init__(
        self,
        request: RunCommandRequest,
        argv: list[str],
        content: str,
        *,
        file: str | None,
        cwd: str | None,
        identity: Identity | None,
        environ: dict[str, str],
        script: bytes | None,
    ) -> None:
        self.request = request
        self.argv = argv
        self.content = content
        self.file = file
        self.cwd = cwd
        self.identity = identity
        self.environ = environ
        self.script = script  # shell text that is too long for an argument


class Commands:
    """All commands of the sandbox."""

    def __init__(self, settings: Settings, environment: Environment, spawner: Spawner | None = None) -> None:
        self._settings = settings
        self._environment = environment
        self._spawner = Spawner(find_spawn_program()) if spawner is None else spawner
        self._shells = Shells(settings.base_environ)
        self._live: Live[Command] = Live()
        self._finished: dict[str, Command] = {}
        self._spooled: dict[str, Spool] = {}  # of those
        self._leftovers = Leftovers()
        self._oom = OomCounter()
        self._memory = memory_limit()

    # -- requests -------------------------------------------------------------

    def plan(self, request: RunCommandRequest) -> Plan:
        """
        Understand a request.

        Raises:
            InvalidBody: it cannot be carried out as it is; the message names the field.
        """
        identity = resolve(request.uid, request.gid)
        environ = self._environment.compose(request.envs)
        cwd = None
        where = self._environment.where()
        if request.cwd is not None:
            cwd = directory(request.cwd, environ, home=self._environment.home(), base=where, field="cwd")
            check_directory(cwd)
            environ["PWD"] = cwd
        if request.argv is not None:
            content = encode(list(request.argv)).decode("ascii")
            return Plan(
                request,
                request.argv,
                content[:MAX_CONTENT],
                file=None,
                cwd=cwd,
                identity=identity,
                environ=environ,
                script=None,
            )
        text = request.command
        if not text:
            raise InvalidBody("command: is required and must not be empty")
        shell = self._shells.get()
        raw = os.fsencode(text)
        long = len(raw) > MAX_ARGUMENT
        return Plan(
            request,
            [shell.name] if long else [shell.name, "-c", text],
            text[:MAX_CONTENT],
            file=shell.path,
            cwd=cwd,
            identity=identity,
            environ=environ,
            script=raw if long else None,
        )

    async def run(self, request: RunCommandRequest, listener: Listener) -> None:
        """
        Carry out a request and tell the listener about it, to the end.

        Raises:
            InvalidBody: the request is refused; nothing was started and nobody was told anything.
        """
        plan = self.plan(request)
        if request.background:
            await self._run_background(plan, listener)
        else:
            await self._run_foreground(plan, listener)

    async def _run_foreground(self, plan: Plan, listener: Listener) -> None:
        out_in, out_out = pipe()
        try:
            err_in, err_out = pipe()
        except ExecutionFailed:
            os.close(out_in)
            os.close(out_out)
            raise
        command = await self._start(plan, out_out, err_out)
        lines = Lines(), Lines()
        pumps = tuple(
            _follow(fd, kind, held, listener)
            for fd, kind, held in ((out_in, "stdout", lines[0]), (err_in, "stderr", lines[1]))
        )
        try:
            await listener.open(command.id)
            if command.pid is None:
                await listener.end(_last_event(command))
                return
            for pump in pumps:
                pump.start(f"output of {command.id}")
            status = await self._exit(command, command.pid)
            for pump in pumps:
                await pump.drain()
        finally:
            for pump in pumps:
                self._leftovers.add(pump.release())
        self._end(command, status)
        out, err = lines
        last = stream.output("stdout", out.flush(), _ms()) + stream.output("stderr", err.flush(), _ms())
        await listener.end(last + _last_event(command))

    async def _run_background(self, plan: Plan, listener: Listener) -> None:
        out_in, out_out = pipe()
        command = await self._start(plan, out_out, out_out)
        if command.pid is None:
            os.close(out_in)
            await listener.open(command.id)
            await listener.end(_last_event(command))
            return
        start(self._follow_background(command, command.pid, out_in), f"command {command.id}")
        await listener.open(command.id)
        await listener.end(stream.complete(_elapsed(command), _ms()))

    async def _follow_background(self, command: Command, pid: int, fd: int) -> None:
        spool = command.spool
        if spool is None:
            raise ExecutionFailed("a background command needs a spool")

        async def keep(data: bytes) -> None:
            spool.write(data)

        pump = Pump(fd, keep)
        pump.start(f"output of {command.id}")
        try:
            status = await self._exit(command, pid)
            await pump.drain()
        finally:
            self._leftovers.add(pump.release())
        self._end(command, status)

    # -- one command ------------------------------------------------------------

    async def _start(self, plan: Plan, out: int, err: int) -> Command:
        """Register and start; a command that cannot be started has ended already, without a pid."""
        request = plan.request
        command = Command(os.urandom(16).hex(), plan.content, request.background, request.timeout)
        plan.environ[ENV_COMMAND_ID] = command.id
        keep: list[int] = []
        argv = plan.argv
        self._live.add(command.id, command)
        try:
            if plan.script is not None:
                keep.append(_script(plan.script))
                argv = [*argv, f"/proc/self/fd/{keep[0]}"]
            if request.background:
                command.spool = Spool(self._settings.state_dir, self._spool_limit())
            command.oom_before = self._oom.read()
            command.pid = await self._spawner.start(
                Program(
                    argv,
                    plan.environ,
                    file=plan.file,
                    stdout=out,
                    stderr=err,
                    cwd=plan.cwd,
                    identity=plan.identity,
                    keep=keep,
                )
            )
            command.family = Family(command.pid, command.id)
            model.step(command.life, model.STARTED)
        except (CannotStart, OSError) as failure:
            refused = failure if isinstance(failure, CannotStart) else None
            text = refused.message if refused is not None else f"not started: {failure}"
            code = 126 if refused is None else refused.exit_code
            if request.background:
                code = model.START_REFUSED
            model.step(command.life, model.REFUSED, outcome=Outcome(code, text, (text,)))
            self._remember(command)
        finally:
            os.close(out)
            if err != out:
                os.close(err)
            for fd in keep:
                os.close(fd)
        return command

    async def _exit(self, command: Command, pid: int) -> int:
        """Wait for the command's own process; end all of it when its time is up."""
        seconds = None if command.timeout_ms is None else command.timeout_ms / 1000
        try:
            with deadline(seconds):
                return int(await child_exit(pid))
        except TimedOut:
            await self._perform(command, model.step(command.life, model.STOP_ASKED, reason=TIMEOUT))
        try:
            with deadline(GONE_SECONDS):
                return int(await child_exit(pid))
        except TimedOut:
            return 9  # the kernel holds it (an unreachable disk); the kill is pending

    async def _perform(self, command: Command, effects: tuple[str, ...]) -> None:
        family = command.family
        if family is None:
            return
        for effect in effects:
            if effect == model.KILL:
                await family.kill()
            elif effect == model.TERMINATE:
                grace = SHUTDOWN_GRACE if command.life.reason == SHUTDOWN else INTERRUPT_GRACE
                await family.terminate(grace)

    def _end(self, command: Command, status: int) -> None:
        number = status & 0x7F
        suspicious = number == 9 or (number == 0 and status >> 8 == OUT_OF_MEMORY)
        ended = outcome(
            status,
            reason=command.life.reason,
            timeout_ms=command.timeout_ms,
            out_of_memory=suspicious and self._oom.read() > command.oom_before,
        )
        model.step(command.life, model.EXITED, outcome=ended)
        self._remember(command)

    def _remember(self, command: Command) -> None:
        command.finished_ns = time.time_ns()
        command.finished_at = now()
        command.ended.set()
        self._finished[command.id] = command
        if command.spool is not None:
            self._spooled[command.id] = command.spool
        self._forget()

    def _forget(self) -> None:
        """Keep what has ended within bounds of count, age and bytes, the newest longest."""
        settings = self._settings
        moment = now()
        while self._finished:
            oldest = next(iter(self._finished.values()))
            if (
                len(self._finished) <= settings.retain_count
                and moment - oldest.finished_at <= settings.retain_seconds
            ):
                break
            self._finished.pop(oldest.id)
            self._live.drop(oldest.id)
            spool = self._spooled.pop(oldest.id, None)
            if spool is not None:
                spool.close()
        kept = sum([len(spool) for spool in self._spooled.values()])
        for spool in self._spooled.values():
            if kept <= SPOOLS * self._spool_limit():
                break
            kept -= len(spool)
            spool.close()

    def _spool_limit(self) -> int:
        return spool_limit(self._settings.spool_limit, self._memory)

    # -- questions --------------------------------------------------------------

    def knows(self, command_id: str) -> bool:
        """Say whether an id is a command's."""
        return self._live.get(command_id) is not None

    def get(self, command_id: str) -> Command:
        """
        Return a command.

        Raises:
            CommandNotFound: there is none, or it was forgotten.
        """
        self._forget()
        command = self._live.get(command_id)
        if command is None:
            raise CommandNotFound(f"no command {command_id}: it never existed or ended too long ago")
        return command

    def status(self, command_id: str) -> CommandStatus:
        """
        Return a command's status.

        Raises:
            CommandNotFound: there is none.
        """
        command = self.get(command_id)
        ended = command.life.outcome
        return CommandStatus(
            id=command.id,
            content=command.content,
            running=command.running,
            started_at=rfc3339(command.started_ns),
            exit_code=None if ended is None else ended.exit_code,
            error=None if ended is None else ended.error,
            finished_at=None if command.finished_ns is None else rfc3339(command.finished_ns),
        )

    def logs(self, command_id: str) -> tuple[Spool, bool]:
        """
        Return a background command's output and whether it is complete.

        Raises:
            CommandNotFound: there is no such command.
            InvalidBody: it runs or ran in the foreground; its output was streamed and not kept.
        """
        command = self.get(command_id)
        if command.spool is None:
            raise InvalidBody(f"id: command {command_id} is not a background command; its output is not kept")
        return command.spool, not command.running

    async def interrupt(self, command_id: str) -> None:
        """
        Stop a running command and all that came from it; return when it has gone.

        Raises:
            CommandNotFound: there is none, or it has ended.
            ExecutionFailed: the kernel does not let go of it.
        """
        command = self.get(command_id)
        if not command.running:
            raise CommandNotFound(f"command {command_id} has ended already")
        await self._stop(command, INTERRUPT)
        try:
            with deadline(INTERRUPT_GRACE + 2 * GONE_SECONDS):
                await command.ended.wait()
        except TimedOut:
            raise ExecutionFailed(f"command {command_id} was killed but has not gone yet") from None

    async def _stop(self, command: Command, reason: str) -> None:
        if command.life.state in {model.RUNNING, model.STOPPING}:
            await self._perform(command, model.step(command.life, model.STOP_ASKED, reason=reason))

    async def close(self) -> None:
        """End every running command, with a short grace; give back all space."""
        tasks = [
            start(self._stop(command, SHUTDOWN), f"stop {command.id}")
            for command in self._live
            if command.running
        ]
        for task in tasks:
            await task.join()
        await self._leftovers.close()
        for command in self._live:
            if command.spool is not None:
                command.spool.close()


def spool_limit(wanted: int, memory: int | None) -> int:
    """Return how many bytes of output one background command may keep where memory is limited."""
    return wanted if memory is None else min(wanted, max(1 << 20, memory // SHARE))


def _follow(fd: int, kind: str, lines: Lines, listener: Listener) -> Pump:
    async def take(data: bytes) -> None:
        if listener.gone:
            return  # nobody hears of it, so it is not worth taking apart
        complete = lines.feed(data)
        if complete:
            await listener.write(stream.output(kind, complete, _ms()))

    return Pump(fd, take)


def _script(text: bytes) -> int:
    """Put shell text into memory that the shell reads as its script, whoever it runs as."""
    fd = high(os.memfd_create("command", os.MFD_CLOEXEC))
    view = memoryview(text)
    while view:
        view = view[os.write(fd, view) :]
    return fd


def _last_event(command: Command) -> bytes:
    ended = command.life.outcome
    if ended is None:
        raise ExecutionFailed(f"command {command.id} has not ended")
    if ended.succeeded:
        return stream.complete(_elapsed(command), _ms())
    return stream.error("CommandExecError", ended.evalue, list(ended.traceback), _ms())


def _elapsed(command: Command) -> int:
    return int((now() - command.started_at) * 1000)


def _ms() -> int:
    return time.time_ns() // 1_000_000
