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

from execd.loop import checkpoint, current_loop, now, sleep
from execd.processes.family import Table, members, read_stat
from specs.names import ENV_COMMAND_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from execd.loop import Loop
    from execd.processes.family import Process

ROUNDS = 64  # of stop-and-look-again: the most generations that may hide in one family
GONE_SECONDS = 5.0  # killed processes are gone by then, unless the kernel holds them
NOBODY = -1  # leader of a family whose leader was lost; its members are known by their mark
MAX_ENVIRON = 1 << 20
_MARK = f"{ENV_COMMAND_ID}=".encode()


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
        census = take_census()
        return members(
            census,
            leader=leader,
            session=self.leader,
            marked=lambda: census.carriers(self.mark.encode()),
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
            await checkpoint()  # a new look, after the stop
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
            # At times that all who wait have in common, so that they share one look.
            moment = now()
            await sleep(min((moment // pause + 1) * pause - moment, left))
            pause = min(pause * 2, 0.064)


_entrypoint: set[int] = set()


def protect(pid: int) -> None:
    """Never count `pid` as a member of anything: it is the sandbox's entrypoint."""
    _entrypoint.add(pid)


def protected() -> frozenset[int]:
    """Return the pids that no family may contain."""
    return frozenset((0, 1, os.getpid(), os.getppid(), *_entrypoint))


class Census(Table):
    """One look at all processes, shared by all who look in the same turn of the loop.

    Many families may end at once; if each looked for itself the work would grow with the square of
    their number. Within a turn nothing is reaped, so no pid of a child or an orphan changes its owner.
    """

    __slots__ = ("_carriers", "loop", "turn")

    def __init__(self, processes: Iterable[Process], loop: Loop) -> None:
        super().__init__(processes)
        self.loop = loop
        self.turn = loop.turn
        self._carriers: dict[bytes, list[int]] | None = None

    def carriers(self, mark: bytes) -> Sequence[int]:
        """Return the pids of the living that were started with a mark, or, if it ends in `/`, one that begins so."""
        if self._carriers is None:
            self._carriers = {}
            for process in self.everyone.values():
                if process.alive:
                    for key in keys_of(read_proc(f"/proc/{process.pid}/environ", MAX_ENVIRON)):
                        self._carriers.setdefault(key, []).append(process.pid)
        return self._carriers.get(mark, ())


def keys_of(environ: bytes) -> set[bytes]:
    """Return the marks in an environment, and their beginnings up to each `/`."""
    keys: set[bytes] = set()
    if _MARK not in environ:
        return keys
    for entry in environ.split(b"\0"):
        if entry.startswith(_MARK):
            mark = entry[len(_MARK) :]
            keys.add(mark)
            at = mark.find(b"/")
            while at >= 0:
                keys.add(mark[: at + 1])
                at = mark.find(b"/", at + 1)
    return keys


_latest: Census | None = None


def take_census() -> Census:
    """Return a look at all processes that is no older than this turn of the loop."""
    global _latest
    loop = current_loop()
    if _latest is None or _latest.loop is not loop or _latest.turn != loop.turn:
        _latest = Census(process_table(), loop)
    return _latest


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
