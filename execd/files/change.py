"""Delete files, set permissions, make directories.

Source: protocol, execd §7.3; unlink(2), chown(2), chmod(2), mkdir(2).
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR

from execd.files import tree
from execd.files.faults import refusal, telling
from execd.files.owners import groups, users
from execd.files.pace import Pace
from execd.loop import checkpoint
from specs.errors import InvalidBody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from specs.execd import Permission


def delete(path: str) -> None:
    """Remove a file, or a link itself; a missing one is fine.

    Raises:
        InvalidBody: it is a directory.
        BoxwrightError: it cannot be removed; the class says why.
    """
    with telling("delete", path):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            if os.path.isdir(path) and not os.path.islink(path):
                raise InvalidBody(
                    f"cannot delete {path}: it is a directory; use DELETE /directories"
                ) from None
            raise


async def delete_tree(path: str) -> None:
    """Remove a file, a link itself, or a whole tree, while other tasks run; a missing one is fine.

    Raises:
        BoxwrightError: something cannot be removed; the message names it. What was removed
            before stays removed.
    """
    pace = Pace()
    try:
        for _ in tree.remove(path):
            if pace.due():
                await checkpoint()
    except OSError as failure:
        raise refusal(failure, "delete", failure.filename or path) from failure


def ids(wanted: Permission) -> tuple[int, int]:
    """Return the uid and gid asked for, -1 for each that is to be left.

    Raises:
        InvalidBody: there is no such user or group.
    """
    uid = -1 if wanted.owner is None else users.number(wanted.owner)
    gid = -1 if wanted.group is None else groups.number(wanted.group)
    return uid, gid


def permit(path: str, wanted: Permission) -> None:
    """Set owner, group and mode of what a path leads to.

    The owner comes first: changing it takes away set-user-id and set-group-id bits.

    Raises:
        PathNotFound: nothing is there.
        BoxwrightError: it is not allowed, or there is no such user or group.
    """
    uid, gid = ids(wanted)
    with telling("set permissions of", path):
        if uid >= 0 or gid >= 0:
            os.chown(path, uid, gid)
        if wanted.mode is not None:
            os.chmod(path, wanted.mode)
        if uid < 0 and gid < 0 and wanted.mode is None:
            os.stat(path)


def make_directories(path: str, uid: int = -1, gid: int = -1, mode: int = 0o777) -> bool:
    """Make a directory and those above it that are missing; return whether the last one is new.

    Args:
        path: absolute and clean.
        uid: the owner of every directory that is made, -1 for ours.
        gid: the group, likewise.
        mode: for every directory that is made; the umask applies.

    Raises:
        OSError: one cannot be made, or something else has the name.
    """
    missing: list[str] = []
    at = path
    while True:
        try:
            found = os.stat(at)
        except FileNotFoundError:
            missing.append(at)
            at = os.path.dirname(at)
            continue
        if not S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTDIR if missing else errno.EEXIST, "is not a directory", at)
        break
    made = False
    for directory in reversed(missing):
        try:
            os.mkdir(directory, mode)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
            made = False
            continue
        made = True
        if uid >= 0 or gid >= 0:
            os.chown(directory, uid, gid)
    return made


def make_directory(path: str, wanted: Permission) -> None:
    """Make a directory as `mkdir -p` does; one that exists is left as it is.

    Owner and group go to every directory that had to be made, the mode to the last one only.

    Raises:
        InvalidBody: something else has the name, or there is no such user or group.
        BoxwrightError: it cannot be made.
    """
    uid, gid = ids(wanted)
    with telling("make the directory", path):
        made = make_directories(path, uid, gid)
        if made and wanted.mode is not None:
            os.chmod(path, wanted.mode)
