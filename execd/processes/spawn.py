"""Start a program: in a session of its own, standard input at its end, exec failures told apart.

Without a change of directory or user it is one posix_spawn, which reports a failed exec
at once. Anything more goes through the static spawn program (which a posix_spawn starts),
never through a fork of ourselves; only where a bundle has no spawn program the
interpreter's own fork-and-exec is used.

Each program leads a new session, so that whatever comes from it can be found again by
session id (`execd.processes.tree`).

Source: posix_spawn(3), execd contract §4.1, §4.3.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum`; typeshed has no stub
import errno
import os
import sys

from execd.loop import child_exit, close_fd, current_loop, read_some
from execd.spawn.block import Setup, build, read_report
from specs.errors import ExecutionFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from execd.processes.identity import Identity
    from execd.spawn.block import Limit

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OOM_SCORE = 500  # user processes die before execd does
_HIGH = 64  # descriptors handed to a program are kept clear of those it may want itself
_DEFAULTED = [n for n in range(1, 32) if n not in {_signal.SIGKILL, _signal.SIGSTOP}]


class CannotStart(ExecutionFailed):
    """The program was not started.

    Attributes:
        errno: the reason.
        step: what failed, in words.
    """

    def __init__(self, message: str, number: int, step: str) -> None:
        super().__init__(message)
        self.errno = number
        self.step = step

    @property
    def exit_code(self) -> int:
        """The exit code a shell would give: 127 not found, 126 otherwise."""
        return 127 if self.step == "execute" and self.errno in {errno.ENOENT, errno.ENOTDIR} else 126


class Program:
    """What to start."""

    __slots__ = (
        "argv",
        "cwd",
        "environ",
        "file",
        "identity",
        "keep",
        "limits",
        "stderr",
        "stdin",
        "stdout",
        "terminal",
    )

    def __init__(
        self,
        argv: list[str],
        environ: Mapping[str, str],
        *,
        stdout: int,
        stderr: int,
        file: str | None = None,
        stdin: int | None = None,
        cwd: str | None = None,
        identity: Identity | None = None,
        keep: Sequence[int] = (),
        limits: Sequence[Limit] = (),
        terminal: bool = False,
    ) -> None:
        self.argv = argv  # a bare name is looked up in the absolute entries of the environment's PATH
        self.environ = environ
        self.file = file  # executed instead of what argv[0] stands for
        self.stdin = stdin  # None: /dev/null
        self.stdout = stdout
        self.stderr = stderr
        self.cwd = cwd  # None: ours
        self.identity = identity  # None: ours
        self.keep = keep  # further descriptors, by the number they have here
        self.limits = limits
        self.terminal = terminal  # stdin becomes the controlling terminal


def find_spawn_program() -> str | None:
    """Return the spawn program that the bundle carries beside its interpreter, if it does."""
    path = f"{os.path.dirname(sys.executable or '')}/spawn"
    return path if os.access(path, os.X_OK) else None


class Spawner:
    """Starts programs.

    Args:
        spawn_program: path of the static spawn program; None where the bundle has none.
    """

    __slots__ = ("null", "spawn_program")

    def __init__(self, spawn_program: str | None) -> None:
        self.spawn_program = spawn_program
        self.null = high(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
        keep_inherited()

    async def start(self, program: Program) -> int:
        """
        Start a program; its exit status is then claimed with `loop.child_exit`.

        Returns:
            Its process id, which is also its session's and group's.

        Raises:
            CannotStart: it does not run; nothing of it is left.
        """
        if program.cwd is None and program.identity is None and not program.limits and not program.terminal:
            pid = self._start_directly(program)
            make_expendable(pid)
            return pid
        return await self._start_prepared(program)

    def _start_directly(self, program: Program) -> int:
        actions = self._actions(program)
        found = errno.ENOENT
        paths = [program.file] if program.file is not None else candidates(program.argv[0], program.environ)
        for path in paths:
            try:
                return _spawn(path, program.argv, program.environ, actions)
            except OSError as failure:
                number = failure.errno or errno.EINVAL
                if number not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                    raise refusal("execute", number, program) from failure
                if number == errno.EACCES:
                    found = number
        raise refusal("execute", found, program)

    async def _start_prepared(self, program: Program) -> int:
        report_in, report_out = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(report_in, False)
        report_out = high(report_out)
        try:
            try:
                if self.spawn_program is not None:
                    pid = self._start_helper(self.spawn_program, program, report_out)
                else:
                    pid = _fork_exec(program, self._stdin(program), report_in, report_out)
                    make_expendable(pid)
            except OSError as failure:
                raise refusal("start", failure.errno or errno.EINVAL, program) from failure
            finally:
                os.close(report_out)
            current_loop().watch_child(pid)
            told = b""
            while piece := await read_some(report_in, 512):
                told += piece
        finally:
            close_fd(report_in)
        failed = read_report(told) if self.spawn_program is not None else _read_errpipe(told)
        if failed is None:
            return pid
        await child_exit(pid)
        raise refusal(failed[0], failed[1], program)

    def _start_helper(self, helper: str, program: Program, report: int) -> int:
        identity = program.identity
        setup = Setup(
            cwd=program.cwd,
            file=program.file,
            uid=None if identity is None else identity.uid,
            gid=None if identity is None else identity.gid,
            groups=None if identity is None else identity.groups,
            terminal=program.terminal,
            limits=program.limits,
            oom_score=OOM_SCORE,
            # Another user's environment cannot be read without CAP_SYS_PTRACE, so its orphans
            # could not be recognised: they stay below the command instead.
            subreaper=identity is not None,
            keep=program.keep,
        )
        argv = [helper, *build(setup, report, program.argv)]
        actions = [*self._actions(program), (os.POSIX_SPAWN_DUP2, report, report)]
        return _spawn(helper, argv, program.environ, actions)

    def _stdin(self, program: Program) -> int:
        return self.null if program.stdin is None else program.stdin

    def _actions(self, program: Program) -> list[tuple[Any, ...]]:
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_DUP2, self._stdin(program), 0),
            (os.POSIX_SPAWN_DUP2, program.stdout, 1),
            (os.POSIX_SPAWN_DUP2, program.stderr, 2),
        ]
        # Onto itself: takes close-on-exec away in the child only.
        actions.extend([(os.POSIX_SPAWN_DUP2, fd, fd) for fd in program.keep])
        return actions


def _spawn(path: str, argv: list[str], environ: Mapping[str, str], actions: list[tuple[Any, ...]]) -> int:
    pid = os.posix_spawn(
        path, argv, environ, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULTED
    )
    current_loop().watch_child(pid)
    return pid


def candidates(name: str, environ: Mapping[str, str]) -> list[str]:
    """Return the paths a program name may stand for, in order; existing ones only for a bare name."""
    if "/" in name:
        return [name]
    out = []
    for folder in environ.get("PATH", DEFAULT_PATH).split(":"):
        if folder.startswith("/"):
            path = f"{folder}/{name}"
            try:
                if os.stat(path).st_mode & 0o170000 == 0o100000:
                    out.append(path)
            except OSError:
                continue
    return out


def high(fd: int) -> int:
    """Move a descriptor out of the range programs use for themselves; close-on-exec stays set."""
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    finally:
        os.close(fd)


def keep_inherited() -> None:
    """Keep to ourselves what whoever started us left open: our own descriptors are never passed on."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        names = [str(fd) for fd in range(3, 256)]
    for name in names:
        fd = int(name)
        if fd > 2:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                continue  # the directory's own descriptor, closed meanwhile


def make_expendable(pid: int) -> None:
    """
    Let the kernel prefer this program, and what it has started already, over execd when memory runs out.

    Best effort. A score is inherited, so only children from before it was set need theirs; raising our
    own while we start a program would spare that, but starting one is just when memory runs out.
    """
    waiting = [pid]
    while waiting:
        pid = waiting.pop()
        try:
            fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            continue  # no /proc, or it has ended already
        try:
            os.write(fd, b"%d" % OOM_SCORE)
        except OSError:
            continue  # the container may have a higher score than ours already
        finally:
            os.close(fd)
        waiting += children(pid)


def children(pid: int) -> list[int]:
    """Return the children of a process with one thread; none where the kernel does not list them."""
    try:
        fd = os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [int(word) for word in os.read(fd, 4096).split()]
    except OSError:
        return []
    finally:
        os.close(fd)


def refusal(step: str, number: int, program: Program) -> CannotStart:
    """Say what went wrong and what would mend it."""
    name = program.argv[0]
    reason = os.strerror(number)
    if number == errno.EAGAIN:
        text = "no process can be made: the sandbox's limit of processes is reached"
    elif step == "enter the working directory":
        text = f"cwd: {program.cwd!r} cannot be entered: {reason}"
    elif step in {"set supplementary groups", "set the group", "set the user"}:
        text = f"uid, gid: {step}: {reason}; the sandbox needs CAP_SETUID and CAP_SETGID to switch users"
    elif number == errno.E2BIG:
        text = "the arguments and the environment together are longer than the kernel allows"
    elif step == "execute" and number == errno.ENOENT and "/" not in name:
        text = f"{name}: executable file not found in PATH"
    elif step == "execute" and number == errno.ENOEXEC:
        text = f"{name}: exec format error: neither a program for this machine nor a script with a #! line"
    elif step == "execute":
        text = f"{name}: {reason}"
    else:
        text = f"{name}: not started: {step}: {reason}"
    return CannotStart(text, number, step)


def _fork_exec(program: Program, stdin: int, report_in: int, report_out: int) -> int:
    """Start through the interpreter's own fork-and-exec; it knows directory, user, session."""
    from _posixsubprocess import fork_exec

    if program.limits or program.terminal:
        raise OSError(errno.ENOSYS, "needs the spawn program")
    name = program.argv[0]
    if program.file is not None:
        paths = [os.fsencode(program.file)]
    elif "/" in name:
        paths = [os.fsencode(name)]
    else:
        folders = program.environ.get("PATH", DEFAULT_PATH).split(":")
        paths = [os.fsencode(f"{folder}/{name}") for folder in folders if folder.startswith("/")]
    identity = program.identity
    environ = [os.fsencode(f"{key}={value}") for key, value in program.environ.items()]
    arguments: tuple[Any, ...] = (
        [os.fsencode(item) for item in program.argv],
        paths,
        True,
        tuple(sorted({report_out, *program.keep})),
        None if program.cwd is None else os.fsencode(program.cwd),
        environ,
        stdin,
        -1,
        -1,
        program.stdout,
        -1,
        program.stderr,
        report_in,
        report_out,
        True,
        True,
        -1,
        None if identity is None else identity.gid,
        None if identity is None else list(identity.groups),
        None if identity is None else identity.uid,
        -1,
        None,
    )
    try:
        start: Any = fork_exec
        return int(start(*arguments, True))  # 3.11 to 3.13: with the choice of vfork
    except TypeError:
        return int(start(*arguments))


def _read_errpipe(data: bytes) -> tuple[str, int] | None:
    """Read what the interpreter's child wrote: `OSError:<errno in hex>:<where>`."""
    if not data:
        return None
    _, number, where = data.decode("ascii", "replace").split(":", 2)
    steps = {"": "execute", "noexec:chdir": "enter the working directory", "noexec": "prepare"}
    return steps.get(where, "prepare"), int(number, 16)
