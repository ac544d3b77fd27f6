"""Replace a file's content all at once, or not at all.

The new content is written beside the target, into a file without a name where the file system
has such (nothing is left over even if the daemon is killed), then takes the target's name in one
rename. Until then the old file is untouched; afterwards the next command sees the new one.

Some targets cannot be replaced but can be written: a file bound into the container as a mount of
its own (/etc/hosts), a file in a directory that may not be written, a file of somebody else whose
ownership we could not give back. For those the content is collected completely first, then copied
into the existing file; only that last copy is not atomic. Hard links to a replaced file keep the
old content.

No fsync: what is promised is order and visibility inside of the sandbox, not durability across
a power cut of the host.

Source: open(2) O_TMPFILE, linkat(2), rename(2).
"""

from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISCHR, S_ISDIR, S_ISFIFO, S_ISREG

from execd.loop import checkpoint
from specs.errors import InvalidBody

PIECE = 1 << 20
_LINKS = 40  # the kernel's own bound on links in one path (path_resolution(7))
_NO_TMPFILE = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL))
_UNWRITABLE = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


class Target:
    """What is at a path that is to be written.

    Attributes:
        path: the path with links at its end resolved.
        before: what is there now, None when nothing is.
        stream: it is a pipe or a character device: to be written through, never replaced.
    """

    __slots__ = ("before", "path", "stream")

    def __init__(self, path: str, before: os.stat_result | None, stream: bool) -> None:
        self.path = path
        self.before = before
        self.stream = stream


def look(path: str) -> Target:
    """Find out what writing to a path means, following links as open(2) does.

    Raises:
        InvalidBody: it is a directory, a socket or a block device.
        OSError: links loop, or the path cannot be looked at.
    """
    try:
        st = os.stat(path)
    except FileNotFoundError:
        return Target(_follow(path), None, stream=False)
    if S_ISREG(st.st_mode):
        final = os.path.realpath(path)
        try:
            found = os.stat(final)
        except OSError:
            found = None
        if found is not None and (found.st_dev, found.st_ino) == (st.st_dev, st.st_ino):
            return Target(final, st, stream=False)
        return Target(path, st, stream=True)  # a link of /proc to an open file that has lost its name
    if S_ISDIR(st.st_mode):
        raise InvalidBody(f"cannot write {path}: it is a directory")
    if S_ISFIFO(st.st_mode) or S_ISCHR(st.st_mode):
        return Target(path, st, stream=True)
    raise InvalidBody(f"cannot write {path}: it is a socket or a block device")


def _follow(path: str) -> str:
    """Follow the links at the end of a path whose last target does not exist."""
    for _ in range(_LINKS):
        try:
            link = os.readlink(path)
        except OSError as failure:
            if failure.errno in (errno.EINVAL, errno.ENOENT):
                return path
            raise
        path = os.path.join(os.path.dirname(path), link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def default_mode() -> int:
    """Return the mode of a new file that nobody gave one."""
    mask = os.umask(0o077)  # there is no other way to read it; one thread, so nobody sees it changed
    os.umask(mask)
    return 0o666 & ~mask


def open_stream(path: str) -> int:
    """Open a pipe or device to write through, without ever blocking.

    Raises:
        InvalidBody: nobody has the pipe open for reading.
        OSError: it cannot be opened.
    """
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as failure:
        if failure.errno == errno.ENXIO:
            raise InvalidBody(f"cannot write {path}: no reader has the pipe open") from None
        raise


class Staged:
    """New content on its way to a target. Always `close` it; without `publish` nothing changes."""

    __slots__ = ("_fd", "_in_place", "_name", "_target")

    def __init__(self, target: Target) -> None:
        """Open the staging file.

        Raises:
            OSError: neither the directory nor the existing file can be written.
        """
        self._target = target
        self._in_place = False
        self._name: str | None = None
        directory = os.path.dirname(target.path)
        try:
            self._fd = self._open(directory)
        except OSError as failure:
            writable = target.before is not None and os.access(target.path, os.W_OK, effective_ids=True)
            if failure.errno not in _UNWRITABLE or not writable:
                raise
            self._in_place = True
            self._fd = open_spool()

    def _open(self, directory: str) -> int:
        if os.path.exists("/proc/self/fd"):  # linkat(2) needs it to name the file later
            try:
                return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as failure:
                if failure.errno not in _NO_TMPFILE:
                    raise
        self._name = _unused_name(directory)
        return os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    @property
    def fd(self) -> int:
        """The open staging file."""
        return self._fd

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append to the new content."""
        write_out(self._fd, data)

    async def publish(self, mode: int | None = None, uid: int = -1, gid: int = -1) -> None:
        """Give the target the new content.

        Args:
            mode: permission bits; None keeps those of the old file (a new file gets the umask's).
            uid: the owner, -1 keeps the old file's.
            gid: the group, -1 keeps the old file's.

        Raises:
            OSError: it failed. The target is untouched, unless it had to be written in place.
        """
        before = self._target.before
        if not self._in_place:
            self._in_place = not self._dress(mode, uid, gid)
        if not self._in_place:
            self._in_place = not self._rename()
        if not self._in_place:
            return
        if before is None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), self._target.path)
        out = os.open(self._target.path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            await copy(self._fd, out)
            if uid >= 0 or gid >= 0:
                os.fchown(out, uid, gid)
            if mode is not None:
                os.fchmod(out, mode)
        finally:
            os.close(out)

    def _dress(self, mode: int | None, uid: int, gid: int) -> bool:
        """Set owner and mode; False when the old file's ownership cannot be given to a new file."""
        before = self._target.before
        fd = self._fd
        if uid >= 0 or gid >= 0:
            os.fchown(fd, uid, gid)
        if before is not None:
            now = os.fstat(fd)
            keep_uid = before.st_uid if uid < 0 and before.st_uid != now.st_uid else -1
            keep_gid = before.st_gid if gid < 0 and before.st_gid != now.st_gid else -1
            if keep_uid >= 0 or keep_gid >= 0:
                try:
                    os.fchown(fd, keep_uid, keep_gid)
                except PermissionError:
                    return False
        if mode is None:
            # Like a write, a replacement takes away the right to run as somebody else.
            mode = default_mode() if before is None else S_IMODE(before.st_mode) & ~0o6000
        os.fchmod(fd, mode)
        return True

    def _rename(self) -> bool:
        """Take the target's name; False when it is a mount point."""
        target = self._target.path
        if self._name is None:
            directory = os.path.dirname(target)
            holder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                name = os.path.basename(target)
                source = f"/proc/self/fd/{self._fd}"
                if self._target.before is None:
                    try:
                        # A directory descriptor makes Python call linkat with AT_SYMLINK_FOLLOW.
                        os.link(source, name, dst_dir_fd=holder)
                    except FileExistsError:
                        pass  # somebody was quicker: replace it
                    else:
                        return True
                self._name = _unused_name(directory)
                os.link(source, os.path.basename(self._name), dst_dir_fd=holder)
            finally:
                os.close(holder)
        try:
            os.rename(self._name, target)
        except OSError as failure:
            if failure.errno == errno.EBUSY:
                return False
            raise
        self._name = None
        return True

    def close(self) -> None:
        """Let go; what was not published is removed."""
        os.close(self._fd)
        if self._name is not None:
            name, self._name = self._name, None
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass


def _unused_name(directory: str) -> str:
    return os.path.join(directory, f".boxwright-{os.urandom(8).hex()}.partial")


def open_spool() -> int:
    """Open a file without a name in a directory for temporary files.

    Raises:
        OSError: there is no such directory that can be written.
    """
    failed: OSError | None = None
    for directory in ("/tmp", "/var/tmp", "/dev/shm", "/run/boxwright"):  # noqa: S108 - the file has no name
        try:
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            failed = failure
        try:
            name = _unused_name(directory)
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            failed = failure
        else:
            os.unlink(name)
            return fd
    raise failed or OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def write_out(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write everything to a regular file."""
    written = os.write(fd, data)
    if written == len(data):
        return
    view = memoryview(data)[written:]
    while view:
        view = view[os.write(fd, view) :]


async def copy(source: int, out: int) -> None:
    """Copy a whole regular file in pieces, leaving holes as holes; other tasks run in between."""
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as failure:
            if failure.errno == errno.ENXIO:  # only a hole is left
                break
            if failure.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            start, end = at, size
        os.lseek(source, start, os.SEEK_SET)
        os.lseek(out, start, os.SEEK_SET)
        at = start
        while at < end:
            data = os.read(source, min(PIECE, end - at))
            if not data:
                raise OSError(errno.EIO, "the file became shorter while it was copied")
            write_out(out, data)
            at += len(data)
            await checkpoint()
    os.ftruncate(out, size)
