"""The argument block of the spawn program: what it must do before it becomes the program.

The order matters and is kept here: report first, so that every later failure is told;
resource limits and scores while still privileged; groups before the user, because
setuid gives up the right to set them; the working directory last, entered as the user.

Source: images/build/execd/spawn.c; credentials(7), setrlimit(2).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STEPS = {
    "e": "report",
    "m": "reset signals",
    "s": "start a session",
    "p": "start a process group",
    "t": "take the controlling terminal",
    "r": "limit a resource",
    "c": "adopt orphans",
    "k": "set the umask",
    "G": "set supplementary groups",
    "g": "set the group",
    "u": "set the user",
    "d": "enter the working directory",
    "x": "close descriptors",
    "!": "execute",
    "?": "read its arguments",
}


class Limit:
    """One resource limit; None is unlimited."""

    __slots__ = ("hard", "resource", "soft")

    def __init__(self, resource: int, soft: int | None, hard: int | None) -> None:
        self.resource = resource
        self.soft = soft
        self.hard = hard


class Setup:
    """Everything that the spawn program can be asked for."""

    __slots__ = (
        "cwd",
        "file",
        "gid",
        "groups",
        "keep",
        "limits",
        "oom_score",
        "session",
        "subreaper",
        "terminal",
        "uid",
        "umask",
    )

    def __init__(
        self,
        *,
        cwd: str | None = None,
        file: str | None = None,
        uid: int | None = None,
        gid: int | None = None,
        groups: Iterable[int] | None = None,
        session: bool = False,
        terminal: bool = False,
        limits: Iterable[Limit] = (),
        oom_score: int | None = None,
        subreaper: bool = False,
        umask: int | None = None,
        keep: Iterable[int] = (),
    ) -> None:
        self.cwd = cwd
        self.file = file  # executed instead of what the program's name stands for
        self.uid = uid
        self.gid = gid
        self.groups = None if groups is None else tuple(groups)  # None leaves them as they are
        self.session = session
        self.terminal = terminal  # descriptor 0 becomes the controlling terminal
        self.limits = tuple(limits)
        self.oom_score = oom_score
        self.subreaper = subreaper
        self.umask = umask
        self.keep = tuple(keep)  # descriptors above 2 that the program gets


def build(setup: Setup, report: int, argv: Sequence[str]) -> list[str]:
    """
    Return the arguments of the spawn program (without its own name).

    Args:
        setup: what to do.
        report: descriptor that a failure is written to.
        argv: the program and its arguments.

    Raises:
        ValueError: no program, or a user without a group.
    """
    if not argv or not argv[0]:
        raise ValueError("no program to run")
    if setup.uid is not None and (setup.gid is None or setup.groups is None):
        raise ValueError("a user is switched to only together with a group and supplementary groups")
    items = [f"e{report}", "m"]
    if setup.session:
        items.append("s")
    if setup.terminal:
        items.append("t")
    for limit in setup.limits:
        soft = "-" if limit.soft is None else limit.soft
        hard = "-" if limit.hard is None else limit.hard
        items.append(f"r{limit.resource}:{soft}:{hard}")
    if setup.oom_score is not None:
        items.append(f"o{setup.oom_score}")
    if setup.subreaper:
        items.append("c")
    if setup.umask is not None:
        items.append(f"k{setup.umask:o}")
    if setup.groups is not None:
        items.append("G" + ",".join([str(group) for group in setup.groups]))
    if setup.gid is not None:
        items.append(f"g{setup.gid}")
    if setup.uid is not None:
        items.append(f"u{setup.uid}")
    if setup.file is not None:
        items.append(f"f{setup.file}")
    if setup.cwd is not None:
        items.append(f"d{setup.cwd}")
    items.append("x" + ",".join([str(fd) for fd in setup.keep]))
    return [*items, "--", *argv]


def read_report(data: bytes) -> tuple[str, int] | None:
    """
    Read what the spawn program reported.

    Returns:
        The step that failed, in words, and its errno; None when the program runs.

    Raises:
        ValueError: not a report.
    """
    if not data:
        return None
    step, _, number = data.decode("ascii", "replace").strip().partition(" ")
    if step not in STEPS:
        raise ValueError(f"not a report of the spawn program: {data[:40]!r}")
    return STEPS[step], int(number)
