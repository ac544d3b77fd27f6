"""Who a process runs as: user id, group id, supplementary groups. Unknown is an error.

Source: execd contract §4.3, credentials(7).
"""

from __future__ import annotations

import os

from execd.processes.accounts import Accounts
from specs.errors import InvalidBody


class Identity:
    """Credentials to switch to, exactly."""

    __slots__ = ("gid", "groups", "uid")

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...]) -> None:
        self.uid = uid
        self.gid = gid
        self.groups = groups

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and (self.uid, self.gid, self.groups) == (
            other.uid,
            other.gid,
            other.groups,
        )

    def __hash__(self) -> int:
        return hash((self.uid, self.gid, self.groups))

    def __repr__(self) -> str:
        return f"Identity({self.uid}, {self.gid}, {self.groups})"


def resolve(uid: int | None, gid: int | None) -> Identity | None:
    """
    Say what to switch to; None when the process keeps our identity.

    The group and the supplementary groups come from the user's entry in the container's
    user database; a given gid overrides the group.

    Raises:
        InvalidBody: gid without uid, or a uid the container does not know and no gid with it. It
            never runs in a group that nobody asked for.
    """
    if uid is None:
        if gid is not None:
            raise InvalidBody("gid: give uid as well; a group alone is not switched to")
        return None
    if uid == os.geteuid() and (gid is None or gid == os.getegid()):
        return None
    accounts = Accounts()
    user = accounts.user(uid)
    if user is None:
        if gid is None:
            raise InvalidBody(
                f"uid: {uid} is not in the sandbox's user database, so its group is unknown; give gid too"
            )
        return Identity(uid, gid, ())
    group = user.gid if gid is None else gid
    return Identity(uid, group, tuple(sorted(accounts.groups_of(user.name, group))))
