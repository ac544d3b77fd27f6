"""Append-only output of one background command, with byte cursors and a size limit.

Two unnamed files hold the newest output: when the current one reaches half of the
limit, the older one is dropped and a new one begun. A cursor counts bytes since the
start of the output for ever; one that points at what was dropped is moved up to what
is left. The files have no name, so nothing can read or delete them from outside, and
`rm -rf /tmp` does not matter.

Source: execd contract §4.5, §4.7; open(2) O_TMPFILE, memfd_create(2).
"""

from __future__ import annotations

import errno
import os

from execd.output.lines import whole_characters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 256 * 1024
SCANT = 512 * 1024  # half of what is kept in memory when the disk is full


def open_unnamed(directory: str) -> int:
    """Open a file without a name: on disk in `directory` where that works, in memory otherwise, or without one."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.memfd_create("boxwright", os.MFD_CLOEXEC)


class Spool:
    """
    The newest output of one command.

    Args:
        directory: where the files live.
        limit: bytes kept at most.
    """

    __slots__ = ("_current", "_directory", "_half", "_older", "_size", "closed", "end", "start", "truncated")

    def __init__(self, directory: str, limit: int) -> None:
        self._directory = directory
        self._half = max(1, limit // 2)
        self._older: tuple[int, int] | None = None  # descriptor, size
        self._current = open_unnamed(directory)
        self._size = 0  # of the current file
        self.start = 0  # cursor of the oldest byte that is left
        self.end = 0  # cursor behind the newest byte
        self.truncated = False  # something was dropped
        self.closed = False

    def __len__(self) -> int:
        return self.end - self.start

    def write(self, data: bytes) -> None:
        """Append; drop the oldest half when the limit is reached or the disk is full."""
        if self.closed:
            return
        view = memoryview(data)
        while view:
            if self._size >= self._half:
                self._turn()
            part = view[: self._half - self._size]
            try:
                written = os.pwrite(self._current, part, self._size)
            except OSError as failure:
                if failure.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                    raise
                if self.start == self.end and self._directory:
                    self._to_memory()
                    continue
                if self.start == self.end:
                    # Nothing of ours is left to make room with: what cannot be kept is skipped.
                    self.end += len(view)
                    self.start = self.end
                    self.truncated = True
                    return
                self._turn(full=True)
                continue
            self._size += written
            self.end += written
            view = view[written:]

    def _to_memory(self) -> None:
        """The disk is full of what is not ours: keep a little in memory rather than nothing."""
        self._directory = ""
        self._half = min(self._half, SCANT)
        os.close(self._current)
        self._current = open_unnamed(self._directory)
        self._size = 0

    def _turn(self, *, full: bool = False) -> None:
        if self._older is not None:
            fd, size = self._older
            os.close(fd)
            self._older = None
            self.start += size
            self.truncated = True
            if full:
                return
        if full:
            os.close(self._current)
            self.start, self.truncated = self.end, True
        else:
            self._older = (self._current, self._size)
        self._current = open_unnamed(self._directory)
        self._size = 0

    def snapshot(self, cursor: int, *, finished: bool = True) -> Snapshot:
        """
        Hold fast what is there from a cursor on, whatever is written or dropped meanwhile.

        Args:
            cursor: a byte offset; moved into what is left.
            finished: no more will be written, so an unfinished character at the end counts too.
        """
        cursor = min(max(cursor, self.start), self.end)
        if self.closed:
            return Snapshot(cursor, [])
        at = cursor - self.start
        parts = []
        for fd, size in (*([] if self._older is None else [self._older]), (self._current, self._size)):
            if at < size:
                parts.append((os.dup(fd), at, size - at))
            at = max(0, at - size)
        taken = Snapshot(cursor, parts)
        if not finished:
            taken.end_with_character()
        return taken

    def close(self) -> None:
        """Give the space back."""
        if self.closed:
            return
        self.closed = True
        os.close(self._current)
        if self._older is not None:
            os.close(self._older[0])
            self._older = None
        self.start = self.end


class Snapshot:
    """A stretch of output that does not change. Close it."""

    __slots__ = ("_parts", "cursor", "length")

    def __init__(self, cursor: int, parts: list[tuple[int, int, int]]) -> None:
        self._parts = parts  # descriptor, offset, bytes
        self.cursor = cursor
        self.length = sum(size for _, _, size in parts)

    @property
    def after(self) -> int:
        """The cursor behind it."""
        return self.cursor + self.length

    def end_with_character(self) -> None:
        """Leave off a character that is not complete yet; the next snapshot will have it whole."""
        tail = b"".join(self._read(max(0, self.length - 4)))
        cut = len(tail) - whole_characters(tail)
        self.length -= cut

    def pieces(self) -> Iterator[bytes]:
        """Read it, at most `PIECE` bytes at a time."""
        return self._read(0)

    def _read(self, start: int) -> Iterator[bytes]:
        left = self.length - start
        for fd, offset, size in self._parts:
            at, end = offset + start, offset + size
            start = max(0, start - size)
            while at < end and left > 0:
                data = os.pread(fd, min(PIECE, end - at, left), at)
                if not data:
                    raise OSError(errno.EIO, "a spool is shorter than what was written to it")
                at += len(data)
                left -= len(data)
                yield data

    def close(self) -> None:
        """Let go of it."""
        parts, self._parts = self._parts, []
        for fd, _, _ in parts:
            os.close(fd)
