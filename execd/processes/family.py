"""Which processes belong to one command: a table of processes in, a set out.

A process belongs if it is the leader, is in the leader's session or group, carries the
command's mark in its environment, or descends from one that does. A command that
hides from one of these (setsid, double fork, a cleared environment) is still caught by
another.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet


class Process:
    """One line of the process table."""

    __slots__ = ("group", "parent", "pid", "session", "started", "state")

    def __init__(self, pid: int, parent: int, group: int, session: int, state: str, started: int) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.session = session
        self.state = state  # one letter, proc_pid_stat(5)
        self.started = started  # clock ticks since boot

    @property
    def alive(self) -> bool:
        """Say whether it can still do anything."""
        return self.state not in "ZXx"


def read_stat(data: bytes) -> Process | None:
    """Read /proc/<pid>/stat; the name in it may hold anything, so fields count from its last parenthesis."""
    opening, closing = data.find(b"("), data.rfind(b")")
    if opening < 0 or closing < opening:
        return None
    fields = data[closing + 2 :].split()
    if len(fields) < 20:
        return None
    pid, state = int(data[:opening]), fields[0].decode()
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), state, int(fields[19]))


class Table:
    """The process table, with what is asked of it by every family laid out once."""

    __slots__ = ("children", "everyone", "named")

    def __init__(self, processes: Iterable[Process]) -> None:
        self.everyone = {process.pid: process for process in processes}
        self.children: dict[int, list[int]] = {}
        self.named: dict[int, list[int]] = {}  # by session and by group
        for process in self.everyone.values():
            self.children.setdefault(process.parent, []).append(process.pid)
            for name in {process.session, process.group}:
                self.named.setdefault(name, []).append(process.pid)


def members(
    table: Table,
    *,
    leader: int | None,
    session: int,
    marked: Callable[[], Iterable[int]],
    protected: AbstractSet[int],
    since: int = 0,
) -> list[Process]:
    """
    Return the processes of one command that are still alive.

    Args:
        table: all processes.
        leader: the command's own process; None once it was reaped.
        session: the leader's pid, which its session and group are named by.
        marked: returns the pids whose environment carries the mark.
        protected: never members, nor is anything by descent from them: execd, the entrypoint.
        since: processes in the session that started before (clock ticks) are not members unless
            marked; for one run of a longer-lived shell.
    """
    everyone = table.everyone
    named = everyone.get(session)
    # While anything is in session N, no new process gets pid N. So a process N that is not our
    # leader means that the number was given out anew: the names prove nothing then.
    reused = named is not None and leader is None and named.alive
    found: set[int] = set()
    waiting: list[int] = []

    def add(pid: int) -> None:
        if pid not in found and pid not in protected:
            found.add(pid)
            waiting.append(pid)

    def spread() -> None:
        while waiting:
            for child in table.children.get(waiting.pop(), ()):
                if everyone[child].started >= since:
                    add(child)

    if leader is not None and leader in everyone:
        add(leader)
    if not reused:
        for pid in table.named.get(session, ()):
            if everyone[pid].started >= since:
                add(pid)
    spread()
    for pid in marked():
        if pid in everyone and everyone[pid].alive:
            add(pid)
    spread()
    return [everyone[pid] for pid in sorted(found) if everyone[pid].alive]
