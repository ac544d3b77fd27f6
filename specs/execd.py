"""Shapes of the execution API that execd reads and writes.

Plain classes: this module is loaded inside every sandbox. `from_json` raises
`BadField`, naming the field. Source: execd contract §2, §4.6, §7, §8.
"""

from __future__ import annotations

from specs.wire import BadField, boolean, check_text, environment, integer, kind, record, string_list, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

MAX_ID = 4_294_967_294
"""The largest uid or gid; one more means "unchanged" to the kernel (chown(2))."""

MAX_TIMEOUT = 2**53 - 1
"""The longest timeout in milliseconds: the largest whole number that every JSON reader keeps exact."""


class RunCommandRequest:
    """`POST /command`."""

    __slots__ = ("argv", "background", "command", "cwd", "envs", "gid", "timeout", "uid")

    def __init__(
        self,
        command: str | None = None,
        argv: list[str] | None = None,
        cwd: str | None = None,
        background: bool = False,
        timeout: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        envs: dict[str, str] | None = None,
    ) -> None:
        self.command = command  # shell text
        self.argv = argv  # run without a shell
        self.cwd = cwd
        self.background = background
        self.timeout = timeout  # milliseconds; None: no limit
        self.uid = uid
        self.gid = gid
        self.envs = {} if envs is None else envs

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read a request body.

        Raises:
            BadField: a field is wrong, or not exactly one of command and argv is given.
        """
        obj = record(value)
        command = text(obj, "command")
        argv = string_list(obj, "argv")
        if command is not None and argv is not None and command:
            raise BadField("argv", "give either command or argv, not both")
        if argv is not None:
            if not argv or not argv[0]:
                raise BadField("argv", "the first element must name a program")
            command = None
        elif not command:
            raise BadField("command", "is required and must not be empty")
        uid = integer(obj, "uid", minimum=0, maximum=MAX_ID)
        gid = integer(obj, "gid", minimum=0, maximum=MAX_ID)
        if gid is not None and uid is None:
            raise BadField("gid", "needs uid as well")
        return cls(
            command=command,
            argv=argv,
            cwd=text(obj, "cwd") or None,
            background=boolean(obj, "background"),
            timeout=integer(obj, "timeout", minimum=0, maximum=MAX_TIMEOUT) or None,
            uid=uid,
            gid=gid,
            envs=environment(obj, "envs"),
        )


class CreateSessionRequest:
    """`POST /session`; the body may be empty."""

    __slots__ = ("cwd",)

    def __init__(self, cwd: str | None = None) -> None:
        self.cwd = cwd

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read a request body; None stands for an empty one.

        Raises:
            BadField: a field is wrong.
        """
        if value is None:
            return cls()
        return cls(text(record(value), "cwd") or None)


class RunInSessionRequest:
    """`POST /session/{id}/run`."""

    __slots__ = ("command", "cwd", "timeout")

    def __init__(self, command: str, cwd: str | None = None, timeout: int | None = None) -> None:
        self.command = command
        self.cwd = cwd
        self.timeout = timeout  # milliseconds; None: no limit

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read a request body.

        Raises:
            BadField: a field is wrong.
        """
        obj = record(value)
        return cls(
            text(obj, "command", required=True, empty=False),
            text(obj, "cwd") or None,
            integer(obj, "timeout", minimum=0, maximum=MAX_TIMEOUT) or None,
        )


class CommandStatus:
    """`GET /command/status/{id}` (§4.6)."""

    __slots__ = ("content", "error", "exit_code", "finished_at", "id", "running", "started_at")

    def __init__(
        self,
        id: str,  # noqa: A002 - the wire's name
        content: str,
        running: bool,
        started_at: str,
        exit_code: int | None = None,
        error: str | None = None,
        finished_at: str | None = None,
    ) -> None:
        self.id = id
        self.content = content
        self.running = running
        self.started_at = started_at  # RFC 3339
        self.exit_code = exit_code
        self.error = error
        self.finished_at = finished_at  # RFC 3339

    def to_json(self) -> dict[str, object]:
        """Return the wire object; absent members are left out."""
        out: dict[str, object] = {"id": self.id}
        if self.content:
            out["content"] = self.content
        out["running"] = self.running
        if self.exit_code is not None:
            out["exit_code"] = self.exit_code
        if self.error is not None:
            out["error"] = self.error
        out["started_at"] = self.started_at
        if self.finished_at is not None:
            out["finished_at"] = self.finished_at
        return out


# -- files ------------------------------------------------------------------------


def mode_bits(obj: dict[str, Any], name: str = "mode") -> int | None:
    """
    Read a mode: a decimal number whose digits are octal (`644` is 0o644).

    Returns:
        The permission bits; None when absent or 0, which both mean "leave it".

    Raises:
        BadField: it is not an integer, or a digit is not octal, or there are too many.
    """
    value = integer(obj, name, minimum=0, maximum=7777)
    if not value:
        return None
    try:
        return int(str(value), 8)
    except ValueError:
        raise BadField(name, f"{value} has a digit that is not octal") from None


def mode_digits(mode: int) -> int:
    """Write the permission bits of a mode as a decimal number with octal digits (0o644 is `644`)."""
    return int(f"{mode & 0o7777:o}")


def _owner(obj: dict[str, Any], name: str) -> str | None:
    """Read an owner or group: a name, or a number as a number or in digits; None: leave it."""
    value = obj.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(integer(obj, name, minimum=0, maximum=MAX_ID))
    if not isinstance(value, str):
        raise BadField(name, f"a name or an id is expected, got {kind(value)}")
    return check_text(value, name)


class Permission:
    """Owner, group and mode asked for; None leaves each as it is."""

    __slots__ = ("group", "mode", "owner")

    def __init__(self, owner: str | None = None, group: str | None = None, mode: int | None = None) -> None:
        self.owner = owner  # a name, or an id in digits
        self.group = group
        self.mode = mode  # permission bits, not the wire's digits

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read one entry of a permission map.

        Raises:
            BadField: a field is wrong.
        """
        obj = record(value, "permission")
        return cls(_owner(obj, "owner"), _owner(obj, "group"), mode_bits(obj))


class FileMetadata:
    """The `metadata` part of an upload (§7.5)."""

    __slots__ = ("path", "permission")

    def __init__(self, path: str, permission: Permission) -> None:
        self.path = path
        self.permission = permission

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read a metadata part.

        Raises:
            BadField: a field is wrong or the path is missing.
        """
        obj = record(value, "metadata")
        return cls(text(obj, "path", required=True, empty=False), Permission.from_json(obj))


class MoveItem:
    """One entry of `POST /files/mv`."""

    __slots__ = ("dest", "src")

    def __init__(self, src: str, dest: str) -> None:
        self.src = src
        self.dest = dest

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read one entry.

        Raises:
            BadField: a field is wrong or missing.
        """
        obj = record(value, "item")
        return cls(
            text(obj, "src", required=True, empty=False), text(obj, "dest", required=True, empty=False)
        )


class ReplaceItem:
    """One value of `POST /files/replace`."""

    __slots__ = ("new", "old")

    def __init__(self, old: str, new: str) -> None:
        self.old = old
        self.new = new

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Read one value; an absent `new` deletes.

        Raises:
            BadField: a field is wrong, or `old` is empty.
        """
        obj = record(value, "item")
        return cls(text(obj, "old", required=True, empty=False, nul=True), text(obj, "new", nul=True) or "")


class FileInfo:
    """One file, directory, symbolic link or other entry (§7.2)."""

    __slots__ = ("created_at", "group", "mode", "modified_at", "owner", "path", "size", "type")

    def __init__(
        self,
        path: str,
        type: str,  # noqa: A002 - the wire's name
        size: int,
        modified_at: str,
        created_at: str,
        owner: str,
        group: str,
        mode: int,
    ) -> None:
        self.path = path
        self.type = type  # file, directory, symlink, other
        self.size = size
        self.modified_at = modified_at  # RFC 3339
        self.created_at = created_at
        self.owner = owner
        self.group = group
        self.mode = mode  # st_mode; the wire gets its permission bits as digits

    def to_json(self) -> dict[str, object]:
        """Return the wire object."""
        return {
            "path": self.path,
            "type": self.type,
            "size": self.size,
            "modified_at": self.modified_at,
            "created_at": self.created_at,
            "owner": self.owner,
            "group": self.group,
            "mode": mode_digits(self.mode),
        }


class Metrics:
    """`GET /metrics` (§8)."""

    __slots__ = ("cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "timestamp")

    def __init__(
        self,
        cpu_count: float,
        cpu_used_pct: float,
        mem_total_mib: float,
        mem_used_mib: float,
        timestamp: int,
    ) -> None:
        self.cpu_count = cpu_count
        self.cpu_used_pct = cpu_used_pct
        self.mem_total_mib = mem_total_mib
        self.mem_used_mib = mem_used_mib
        self.timestamp = timestamp  # Unix milliseconds

    def to_json(self) -> dict[str, object]:
        """Return the wire object."""
        return {
            "cpu_count": self.cpu_count,
            "cpu_used_pct": self.cpu_used_pct,
            "mem_total_mib": self.mem_total_mib,
            "mem_used_mib": self.mem_used_mib,
            "timestamp": self.timestamp,
        }
