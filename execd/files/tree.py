"""Walk and remove directory trees without following a link and without keeping descriptors.

One directory is open at a time. Going up is `..`, and the directory found there must be the one
we came from, so a tree that is moved or swapped for a link while it is walked never leads
outside. Depth is bounded by memory, not by PATH_MAX or by the descriptor limit.

Both walks are plain generators: they yield None when a good deal of work was done without
a result, so that whoever drives them can let other tasks run.

Source: openat(2), unlinkat(2), symlink(7).
"""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PAUSE = 512  # names read, or entries removed, between two pauses
_RUN = 8192  # names put in order at a time
# A directory of an ended process in /proc says ESRCH, its `net` EINVAL.
_VANISHED = frozenset((errno.ENOENT, errno.ESRCH, errno.EINVAL))
_PASSES = 3  # times a directory is emptied again when somebody fills it meanwhile


class Entry:
    """One entry met on a walk.

    Attributes:
        relative: its path below the root.
        name: its base name.
        stat: what lstat says.
        directory: the open directory that holds it; valid until the walk goes on.
    """

    __slots__ = ("directory", "name", "relative", "stat")

    def __init__(self, relative: str, name: str, stat: os.stat_result, directory: int) -> None:
        self.relative = relative
        self.name = name
        self.stat = stat
        self.directory = directory


class _Frame:
    __slots__ = ("identity", "name", "names", "passes", "prefix")

    def __init__(self, name: str, prefix: str, fd: int) -> None:
        st = os.fstat(fd)
        self.name = name
        self.prefix = prefix
        self.identity = (st.st_dev, st.st_ino)
        self.names: list[str] = []
        self.passes = 0


def walk(root: str, depth: int | None = None, *, skip_vanished: bool = True) -> Iterator[Entry | None]:
    """Yield every entry below `root` in lexical order, a directory directly before what it holds.

    Entries that vanish during the walk are left out.

    Args:
        root: a directory; a link to one is refused.
        depth: how many levels to enter; None for all.
        skip_vanished: go on when a directory vanishes while it is read.

    Raises:
        OSError: a directory cannot be read; `filename` is its path below the root.
    """
    if depth == 0:
        return
    top = os.open(root, DIRECTORY)
    current = os.dup(top)
    try:
        frames = [_Frame("", "", current)]
        yield from _names(current, frames[0])
        while frames:
            frame = frames[-1]
            if not frame.names:
                frames.pop()
                if frames:
                    above = _climb(current, frames, top, give_up=skip_vanished)
                    os.close(current)
                    current = above
                continue
            name = frame.names.pop()
            relative = frame.prefix + name
            try:
                st = os.stat(name, dir_fd=current, follow_symlinks=False)
            except OSError as failure:
                if failure.errno in _VANISHED:
                    continue
                failure.filename = relative
                raise
            yield Entry(relative, name, st, current)
            if not S_ISDIR(st.st_mode) or (depth is not None and len(frames) >= depth):
                continue
            try:
                below = os.open(name, DIRECTORY, dir_fd=current)
            except OSError as failure:
                if skip_vanished and failure.errno in (*_VANISHED, errno.ENOTDIR, errno.ELOOP):
                    continue  # it vanished, or is something else by now
                failure.filename = relative
                raise
            os.close(current)
            current = below
            frames.append(_Frame(name, relative + "/", current))
            try:
                yield from _names(current, frames[-1])
            except OSError as gone:
                if not skip_vanished or gone.errno not in _VANISHED:
                    raise
                frames[-1].names.clear()
    finally:
        os.close(current)
        os.close(top)


def _names(fd: int, frame: _Frame) -> Iterator[None]:
    """Read the names of a directory in pieces, and keep them in reverse order.

    Runs are put in order as they come, so that the last sort only has to merge them: it is the
    one step that cannot be interrupted.
    """
    names = frame.names
    ordered = 0
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) % _PAUSE == 0:
                    if len(names) - ordered >= _RUN:
                        names[ordered:] = sorted(names[ordered:], reverse=True)
                        ordered = len(names)
                    yield None
    except OSError as failure:
        failure.filename = frame.prefix.rstrip("/")
        raise
    names.sort(reverse=True)


def _climb(fd: int, frames: list[_Frame], top: int, *, give_up: bool = False) -> int:
    """Open the directory of the last frame, from inside of a child of it.

    Args:
        fd: the child.
        frames: the directories on the way to it.
        top: the directory of the first frame.
        give_up: when that directory has vanished, drop its frame, and those of its parents that have
            vanished too, and open the one above.

    Raises:
        OSError: ESTALE when the tree was rearranged, so that the way back is gone.
    """
    wanted = frames[-1].identity
    try:
        above = os.open("..", DIRECTORY, dir_fd=fd)
    except OSError as refused:
        # A directory that may be read but not searched, or one that has vanished.
        if refused.errno not in (*_VANISHED, errno.EACCES, errno.EPERM):
            raise
        above = -1
    if above >= 0:
        if _identity(above) == wanted:
            return above
        os.close(above)
    above = os.dup(top)
    try:
        for depth, frame in enumerate(frames[1:], 1):
            try:
                below = os.open(frame.name, DIRECTORY, dir_fd=above)
            except OSError as missing:
                if not give_up or missing.errno not in _VANISHED:
                    raise
                del frames[depth:]
                wanted = frames[-1].identity
                break
            os.close(above)
            above = below
        if _identity(above) == wanted:
            return above
    except OSError:
        pass  # the same answer as for a directory that is another one by now
    os.close(above)
    failure = OSError(errno.ESTALE, "the tree was rearranged while it was read")
    failure.filename = frames[-1].prefix.rstrip("/")
    raise failure


def _identity(fd: int) -> tuple[int, int]:
    st = os.fstat(fd)
    return st.st_dev, st.st_ino


def remove(path: str) -> Iterator[None]:
    """Remove a file, a link (never what it points to) or a whole tree; a missing path is fine.

    Raises:
        OSError: something cannot be removed; `filename` is its path. What was removed before
            stays removed.
    """
    holder, name = os.path.split(path)
    if not name:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
    try:
        parent = os.open(holder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    current = top = -1
    try:
        current = _enter_or_unlink(name, parent, path)
        if current < 0:
            return
        top = os.dup(current)
        frames = [_Frame(name, path + "/", current)]
        yield from _empty(current, frames[0])
        while frames:
            frame = frames[-1]
            if frame.names:
                child = frame.names.pop()
                below = _enter_or_unlink(child, current, frame.prefix + child)
                if below >= 0:
                    os.close(current)
                    current = below
                    frames.append(_Frame(child, f"{frame.prefix}{child}/", current))
                    yield from _empty(current, frames[-1])
                continue
            frames.pop()
            yield None
            if frames:
                above = _climb(current, frames, top)
                os.close(current)
                current = above
            within = current if frames else parent
            if _gone(frame, within):
                continue
            below = _enter_or_unlink(frame.name, within, frame.prefix.rstrip("/"))
            if below >= 0:  # somebody filled it since it was emptied
                os.close(current)
                current = below
                frame.identity = _identity(current)
                frames.append(frame)
                if len(frames) == 1:
                    os.dup2(current, top, inheritable=False)
                yield from _empty(current, frame)
    finally:
        for fd in (current, top, parent):
            if fd >= 0:
                os.close(fd)


def _gone(frame: _Frame, holder: int) -> bool:
    """Remove an emptied directory; False when it is not empty and worth another pass."""
    try:
        os.rmdir(frame.name, dir_fd=holder)
    except FileNotFoundError:
        return True
    except OSError as failure:
        frame.passes += 1
        if failure.errno == errno.ENOTEMPTY and frame.passes < _PASSES:
            return False
        failure.filename = frame.prefix.rstrip("/")
        raise
    return True


def _enter_or_unlink(name: str, holder: int, shown: str) -> int:
    """Open a directory, or remove anything else; -1 when nothing is left to enter."""
    try:
        return os.open(name, DIRECTORY, dir_fd=holder)
    except FileNotFoundError:
        return -1
    except OSError as failure:
        if failure.errno not in (errno.ENOTDIR, errno.ELOOP):
            if failure.errno == errno.EACCES and _removed_unread(name, holder):
                return -1
            failure.filename = shown
            raise
    try:
        os.unlink(name, dir_fd=holder)
    except FileNotFoundError:
        pass
    except OSError as failure:
        failure.filename = shown
        raise
    return -1


def _removed_unread(name: str, holder: int) -> bool:
    """Remove a directory that may not be read, which works when it is empty."""
    try:
        os.rmdir(name, dir_fd=holder)
    except OSError:
        return False
    return True


def _empty(fd: int, frame: _Frame) -> Iterator[None]:
    """Remove everything but directories; keep the names of those."""
    done = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                frame.names.append(entry.name)
            else:
                try:
                    os.unlink(entry.name, dir_fd=fd)
                except FileNotFoundError:
                    pass
                except IsADirectoryError:
                    frame.names.append(entry.name)
                except OSError as failure:
                    failure.filename = frame.prefix + entry.name
                    raise
            done += 1
            if done % _PAUSE == 0:
                yield None
