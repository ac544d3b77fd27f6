"""Open what a client wants to read, without ever blocking and without ever reading for ever.

Three kinds matter. A regular file with blocks is sent by the kernel. A file that the kernel makes
up (/proc, /sys) states a length that is wrong, so it is read to find out. A pipe is a stream.
Devices are refused: some never end, and reading others has effects.

Source: open(2), proc(5), fifo(7).
"""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISFIFO, S_ISREG

from execd.loop import checkpoint
from specs.errors import InvalidBody

SMALL = 1 << 20  # what is read to learn the true length of a file that may state a wrong one
LIMIT = 64 << 20  # of a file that states no length but does not end
_PIECE = 64 << 10


def open_to_read(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file or a pipe; the descriptor does not block.

    Raises:
        InvalidBody: it is a directory, a device, a socket or somebody's pipe.
        OSError: it cannot be opened.
    """
    _check(path, os.stat(path))
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        st = os.fstat(fd)
        _check(path, st)
        if S_ISFIFO(st.st_mode) and st.st_dev == _unnamed_pipes():
            raise InvalidBody(f"cannot read {path}: it is an unnamed pipe, whose bytes belong to its reader")
    except BaseException:
        os.close(fd)
        raise
    return fd, st


def _check(path: str, st: os.stat_result) -> None:
    if S_ISREG(st.st_mode) or S_ISFIFO(st.st_mode):
        return
    if S_ISDIR(st.st_mode):
        raise InvalidBody(f"cannot read {path}: it is a directory; list it with GET /directories/list")
    raise InvalidBody(f"cannot read {path}: it is a device or a socket, which may never end")


def _unnamed_pipes() -> int:
    """Return the device that pipes without a name are on; /proc/<pid>/fd leads to them, ours included."""
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        return os.fstat(ends[0]).st_dev
    finally:
        os.close(ends[0])
        os.close(ends[1])


def states_true_length(st: os.stat_result) -> bool:
    """Say whether a regular file's size can be believed without reading it.

    Files made up by the kernel have no blocks and say 0, or one page. A large file
    without blocks is one hole.
    """
    return st.st_blocks > 0 or st.st_size > SMALL


async def read_small(fd: int) -> tuple[bytes, bool]:
    """Read from where the descriptor stands; return the bytes and whether the end was met.

    Stops, not at the end, once more than `SMALL` bytes were read or no more come at once.
    """
    pieces: list[bytes] = []
    total = 0
    while total <= SMALL:
        try:
            piece = os.read(fd, _PIECE)
        except BlockingIOError:
            return b"".join(pieces), False
        if not piece:
            return b"".join(pieces), True
        pieces.append(piece)
        total += len(piece)
        await checkpoint()
    return b"".join(pieces), False
