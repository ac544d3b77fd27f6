"""End whole families of processes, however they hide.

TERM first where there is a grace; then everything found is stopped (SIGSTOP) and looked
for again until nothing new appears, so that a family that keeps forking cannot outrun
us; then KILL. The leader is signalled only while the loop still watches it, so never
after its number may have been given to something else.

Source: execd contract §4.4, proc(5), kill(2).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum`; typeshed has no stub
import errno
import os

from execd.loop import current_loop, now, sleep
from execd.processes.family import members, read_stat
from specs.names import ENV_COMMAND_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from execd.processes.family import Process

ROUNDS = 64  # of stop-and-look-again: the most generations that may hide in one family
GONE_SECONDS = 5.0  # killed processes are gone by then, unless the kernel holds them
NOBODY = -1  # leader of a family whose leader was lost; its members are known by their mark
MAX_ENVIRON = 1 << 20


class Family:
    """Everything that came from one leader.

    Args:
        leader: pid of a program started in a session of its own.
        mark: the value of our marking variable in its environment; a trailing `/` matches every
            value that begins so.
    """

    __slots__ = ("leader", "mark", "since", "spare")

    def __init__(self, leader: int, mark: str) -> None:
        self.leader = leader
        self.mark = mark
        self.since = 0  # unmarked processes that started before do not count (clock ticks)
        self.spare: frozenset[int] = frozenset()  # pids that are never touched, besides execd's own

    def find(self) -> list[Process]:
        """Return the members that are alive."""
        leader = self.leader if current_loop().is_watched(self.leader) else None
        wanted = f"{ENV_COMMAND_ID}={self.mark}".encode()
        exact = not self.mark.endswith("/")
        return members(
            process_table(),
            leader=leader,
            session=self.leader,
            marked=lambda pid: carries(pid, wanted, exact=exact),
            protected=protected() | self.spare,
            since=self.since,
        )

    def signal(self, processes: Iterable[Process], number: int) -> None:
        """Send a signal to each."""
        loop = current_loop()
        for process in processes:
            if process.pid == self.leader and not loop.is_watched(process.pid):
                continue
            send_signal(process.pid, number)

    async def kill(self) -> bool:
        """End all of it at once; return whether all of it is gone."""
        frozen: set[int] = set()
        found = self.find()
        for _ in range(ROUNDS):
            fresh = [process for process in found if process.pid not in frozen]
            if not fresh:
                break
            self.signal(fresh, _signal.SIGSTOP)
            frozen.update([process.pid for process in fresh])
            found = self.find()
        self.signal(found, _signal.SIGKILL)
        return await self.gone(GONE_SECONDS, kill=True)

    async def terminate(self, grace: float) -> bool:
        """Ask with TERM, wait, then `kill`; return whether all of it is gone."""
        self.signal(self.find(), _signal.SIGTERM)
        if await self.gone(grace):
            return True
        return await self.kill()

    async def gone(self, seconds: float, *, kill: bool = False) -> bool:
        """Wait until nothing is left; with `kill`, whatever still shows up is killed."""
        end = now() + seconds
        pause = 0.002  # nobody tells us of a grandchild's end, so we look, ever less often
        while True:
            found = self.find()
            if not found and not current_loop().is_watched(self.leader):
                return True
            if kill:
                self.signal(found, _signal.SIGKILL)
            left = end - now()
            if left <= 0:
                return not found
            await sleep(min(pause, left))
            pause = min(pause * 2, 0.05)


_entrypoint: set[int] = set()


def protect(pid: int) -> None:
    """Never count `pid` as a member of anything: it is the sandbox's entrypoint."""
    _entrypoint.add(pid)


def protected() -> frozenset[int]:
    """Return the pids that no family may contain."""
    return frozenset((0, 1, os.getpid(), os.getppid(), *_entrypoint))


def process_table() -> list[Process]:
    """Read all processes; one that ends meanwhile is left out."""
    table = []
    for name in os.listdir("/proc"):
        if "0" <= name[0] <= "9":
            data = read_proc(f"/proc/{name}/stat", 4096)
            process = read_stat(data) if data else None
            if process is not None:
                table.append(process)
    return table


def carries(pid: int, wanted: bytes, *, exact: bool) -> bool:
    """Say whether a process was started with `wanted` (`NAME=value`) in its environment."""
    data = read_proc(f"/proc/{pid}/environ", MAX_ENVIRON)
    if wanted not in data:
        return False
    return any(entry == wanted if exact else entry.startswith(wanted) for entry in data.split(b"\0"))


def read_proc(path: str, size: int) -> bytes:
    """Read a file of /proc; empty when the process has gone or is not ours to look at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        out = os.read(fd, size)
        while len(out) < size and (piece := os.read(fd, size - len(out))):
            out += piece
        return out
    except OSError:
        return b""
    finally:
        os.close(fd)


def send_signal(pid: int, number: int) -> bool:
    """Send a signal; False when the process has gone, or belongs to someone we may not signal."""
    try:
        os.kill(pid, number)
    except OSError as failure:
        if failure.errno not in {errno.ESRCH, errno.EPERM}:
            raise
        return False
    return True
