"""Names of users and groups, and back.

Answers are kept until the database file changes, because a listing asks for the same few ids many
thousand times.

Source: passwd(5), group(5); protocol, execd §7.2, §7.3 (ids are accepted as well as names).
"""

from __future__ import annotations

import os

from execd.processes.accounts import Accounts
from specs.errors import InvalidBody
from specs.execd import MAX_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Directory:
    """One database: ids to names, names to ids."""

    __slots__ = ("_kind", "_look_up", "_names", "_path", "_search", "_stamp")

    def __init__(
        self, kind: str, path: str, look_up: Callable[[int], str], search: Callable[[str], int]
    ) -> None:
        """Take the two look-ups.

        Args:
            kind: what the names are called in messages.
            path: the file whose change makes kept answers void.
            look_up: id to name; raises KeyError.
            search: name to id; raises KeyError.
        """
        self._kind = kind
        self._path = path
        self._look_up = look_up
        self._search = search
        self._names: dict[int, str] = {}
        self._stamp: tuple[int, int, int] | None = None

    def refresh(self) -> None:
        """Forget the kept answers if the database file has changed."""
        try:
            st = os.stat(self._path)
            stamp = (st.st_mtime_ns, st.st_ino, st.st_size)
        except OSError:
            stamp = (0, 0, 0)
        if stamp != self._stamp:
            self._stamp = stamp
            self._names.clear()

    def name(self, number: int) -> str:
        """Return the name of an id, or its digits when it has none."""
        known = self._names.get(number)
        if known is None:
            try:
                known = self._look_up(number)
            except KeyError:
                known = str(number)
            self._names[number] = known
        return known

    def number(self, text: str) -> int:
        """Return the id that a name, or an id in digits, stands for.

        Raises:
            InvalidBody: there is no such name.
        """
        try:
            return self._search(text)
        except (KeyError, ValueError):
            pass
        if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_ID:
            return int(text)
        raise InvalidBody(f"there is no {self._kind} {text} in this sandbox; give a name or a numeric id")


_accounts = Accounts()


def _user_name(number: int) -> str:
    user = _accounts.user(number)
    if user is None:
        raise KeyError(number)
    return user.name


def _user_number(name: str) -> int:
    user = _accounts.user(name)
    if user is None:
        raise KeyError(name)
    return user.uid


def _group_name(number: int) -> str:
    group = _accounts.group(number)
    if group is None:
        raise KeyError(number)
    return group.name


def _group_number(name: str) -> int:
    group = _accounts.group(name)
    if group is None:
        raise KeyError(name)
    return group.gid


users = Directory("user", "/etc/passwd", _user_name, _user_number)
groups = Directory("group", "/etc/group", _group_name, _group_number)


def refresh() -> None:
    """Begin a request: kept names are void if the databases have changed."""
    users.refresh()
    groups.refresh()
