"""The sandbox's users and groups, read from their two files.

The C library is not asked: the files belong to the user, who may have put a FIFO or an
endless device in their place, and then it would block, or fill the memory of, the one
thread that serves everybody. What is no regular file of a sane size has no entries.

Source: passwd(5), group(5).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE = 4 << 20


class User:
    """One line of the user database."""

    __slots__ = ("gid", "home", "name", "uid")

    def __init__(self, name: str, uid: int, gid: int, home: str) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.home = home


class Group:
    """One line of the group database."""

    __slots__ = ("gid", "members", "name")

    def __init__(self, name: str, gid: int, members: list[str]) -> None:
        self.name = name
        self.gid = gid
        self.members = members


class Accounts:
    """Both databases; every question reads its file anew.

    Args:
        users: path of the user database.
        groups: path of the group database.
    """

    __slots__ = ("_groups", "_users")

    def __init__(self, users: str = "/etc/passwd", groups: str = "/etc/group") -> None:
        self._users = users
        self._groups = groups

    def user(self, wanted: int | str) -> User | None:
        """Return a user by id or name, the first one that fits."""
        for name, fields in _entries(self._users, 6):
            uid, gid = _number(fields[1]), _number(fields[2])
            if uid is not None and gid is not None and wanted == (name if isinstance(wanted, str) else uid):
                return User(name, uid, gid, fields[4])
        return None

    def group(self, wanted: int | str) -> Group | None:
        """Return a group by id or name, the first one that fits."""
        for group in self._all_groups():
            if wanted == (group.name if isinstance(wanted, str) else group.gid):
                return group
        return None

    def groups_of(self, name: str, gid: int) -> set[int]:
        """Return `gid` and the ids of all groups that list the user."""
        return {gid, *[group.gid for group in self._all_groups() if name in group.members]}

    def _all_groups(self) -> Iterator[Group]:
        for name, fields in _entries(self._groups, 3):
            gid = _number(fields[1])
            if gid is not None:
                yield Group(name, gid, fields[2].split(",") if len(fields) > 2 else [])


def _entries(path: str, least: int) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry's name and its other fields; lines that are no entry are passed over."""
    for line in _read(path).decode("utf-8", "surrogateescape").split("\n"):
        name, *fields = line.split(":")
        if name and len(fields) >= least - 1:
            yield name, fields


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b""
    try:
        found = os.fstat(fd)
        if found.st_mode & 0o170000 != 0o100000 or found.st_size > MAX_FILE:
            return b""
        return os.read(fd, MAX_FILE)
    except OSError:
        return b""
    finally:
        os.close(fd)
