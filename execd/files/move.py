"""Move files and directories, across file systems too, without overwriting.

A file is given its new name by link(2), which refuses an existing one in the same step; a directory
is checked, then renamed. Across file systems the whole tree is copied beside the destination with
owners, modes, times, extended attributes, holes and hard links kept, renamed into place, and only
then is the source removed.

Source: protocol, execd §7.3; link(2), rename(2).
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from execd.files import tree
from execd.files.change import delete_tree, make_directories
from execd.files.faults import telling
from execd.files.pace import Pace
from execd.files.staging import copy
from execd.loop import checkpoint
from specs.errors import InvalidBody

_NO_LINK = frozenset((errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES))


async def move(source: str, dest: str) -> None:
    """Move one entry; a link is moved itself.

    Raises:
        PathNotFound: there is no source.
        InvalidBody: the destination exists, or lies inside of the source.
        BoxwrightError: it cannot be moved; the source is still whole.
    """
    with telling("move", source):
        st = os.lstat(source)
    _refuse_taken(source, dest)
    if S_ISDIR(st.st_mode) and (dest + "/").startswith(source.rstrip("/") + "/"):
        raise InvalidBody(f"cannot move {source} to {dest}: the destination lies inside of the source")
    with telling("make the directory", os.path.dirname(dest)):
        make_directories(os.path.dirname(dest), mode=0o755)
    with telling(f"move {source} to", dest):
        try:
            if S_ISDIR(st.st_mode) or not _relinked(source, dest):
                os.rename(source, dest)
            return
        except FileExistsError:
            raise _taken(source, dest) from None
        except OSError as failure:
            if failure.errno != errno.EXDEV:
                raise
    await _across(source, dest, st)


def _refuse_taken(source: str, dest: str) -> None:
    if os.path.lexists(dest):
        raise _taken(source, dest)


def _taken(source: str, dest: str) -> InvalidBody:
    return InvalidBody(f"cannot move {source} to {dest}: the destination exists; delete it first")


def _relinked(source: str, dest: str) -> bool:
    """Move by link and unlink; False where links are not possible and nothing has taken the name."""
    try:
        os.link(source, dest, follow_symlinks=False)
    except OSError as failure:
        if failure.errno in _NO_LINK and not os.path.lexists(dest):
            return False
        raise
    try:
        os.unlink(source)
    except OSError:
        os.unlink(dest)
        raise
    return True


async def _across(source: str, dest: str, st: os.stat_result) -> None:
    staging = os.path.join(os.path.dirname(dest), f".boxwright-{os.urandom(8).hex()}.partial")
    try:
        with telling(f"copy {source} to", dest):
            await _copy_tree(source, staging, st)
            _refuse_taken(source, dest)
            if S_ISDIR(st.st_mode) or not _relinked(staging, dest):
                os.rename(staging, dest)
    except BaseException:  # whatever ended it, cancellation included: no half copy stays behind
        await delete_tree(staging)
        raise
    await delete_tree(source)


async def _copy_tree(source: str, dest: str, st: os.stat_result) -> None:
    if not S_ISDIR(st.st_mode):
        holder = os.open(os.path.dirname(source), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await _copy_entry(os.path.basename(source), holder, dest, st)
        finally:
            os.close(holder)
        return
    os.mkdir(dest, 0o700)
    made: list[tuple[str, str, os.stat_result]] = [(source, dest, st)]
    first_names: dict[tuple[int, int], str] = {}
    pace = Pace()
    entries = tree.walk(source, skip_vanished=False)
    try:
        for entry in entries:
            if pace.due():
                await checkpoint()
            if entry is None:
                continue
            to = f"{dest}/{entry.relative}"
            here = entry.stat
            if S_ISDIR(here.st_mode):
                os.mkdir(to, 0o700)
                made.append((f"{source}/{entry.relative}", to, here))
                continue
            identity = (here.st_dev, here.st_ino)
            if here.st_nlink > 1 and identity in first_names:
                os.link(first_names[identity], to, follow_symlinks=False)
                continue
            await _copy_entry(entry.name, entry.directory, to, here)
            if here.st_nlink > 1:
                first_names[identity] = to
    finally:
        entries.close()  # type: ignore[attr-defined]  # the iterator is a generator
    for original, to, here in reversed(made):  # a directory's times change while it is filled
        fd = os.open(to, tree.DIRECTORY)
        try:
            _dress(fd, original, here)
        finally:
            os.close(fd)


async def _copy_entry(name: str, holder: int, to: str, st: os.stat_result) -> None:
    if S_ISREG(st.st_mode):
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=holder)
        try:
            out = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                await copy(source, out)
                _dress(out, source, st)
            finally:
                os.close(out)
        finally:
            os.close(source)
        return
    if S_ISLNK(st.st_mode):
        os.symlink(os.readlink(name, dir_fd=holder), to)
    else:
        os.mknod(to, st.st_mode, st.st_rdev)
        os.chmod(to, S_IMODE(st.st_mode))
    if (st.st_uid, st.st_gid) != (os.geteuid(), os.getegid()):
        os.chown(to, st.st_uid, st.st_gid, follow_symlinks=False)
    os.utime(to, ns=(st.st_atime_ns, st.st_mtime_ns), follow_symlinks=False)


def _dress(fd: int, original: int | str, st: os.stat_result) -> None:
    """Give a copy the owner, mode, extended attributes and times of its original."""
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (st.st_uid, st.st_gid):
        os.fchown(fd, st.st_uid, st.st_gid)
    os.fchmod(fd, S_IMODE(st.st_mode))
    try:
        for attribute in os.listxattr(original):
            os.setxattr(fd, attribute, os.getxattr(original, attribute))
    except OSError as failure:
        # The other file system may have no such attributes, or we may not set them (security.*).
        if failure.errno not in (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ENODATA):
            raise
    os.utime(fd, ns=(st.st_atime_ns, st.st_mtime_ns))
