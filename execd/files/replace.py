"""Replace text in a file: every occurrence, byte for byte, in bounded memory, all at once.

Source: protocol, execd §7.3. The original rewrites the file in place, in one piece of memory.
"""

from __future__ import annotations

import os
from stat import S_ISREG

from execd.files.staging import Staged, look
from execd.loop import checkpoint
from specs.errors import InvalidBody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 256 << 10
_OUT = 1 << 20  # bytes of new text joined into one write


class Substitution:
    """Replaces in a stream, piece by piece. Pure.

    Attributes:
        count: occurrences so far.
    """

    __slots__ = ("_batch", "_kept", "_new", "_old", "count")

    def __init__(self, old: bytes, new: bytes) -> None:
        """Replace `old`, which is not empty, by `new`."""
        self._old = old
        self._new = new
        self._kept = b""
        self._batch = max(1, _OUT // (len(new) or 1))
        self.count = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next piece of the stream; yield what is certain of the result."""
        between = (self._kept + data).split(self._old)
        self.count += len(between) - 1
        rest = between.pop()
        border = max(0, len(rest) - len(self._old) + 1)  # an occurrence may begin after it
        self._kept = rest[border:]
        for start in range(0, len(between), self._batch):
            yield self._new.join((*between[start : start + self._batch], b""))
        if border:
            yield rest[:border]

    def finish(self) -> bytes:
        """Take the end of the stream; return what was held back."""
        kept, self._kept = self._kept, b""
        return kept


async def replace(path: str, old: bytes, new: bytes) -> int:
    """Replace every occurrence of `old` in a file, keeping its owner and mode; return how many.

    A file without an occurrence is not touched.

    Raises:
        InvalidBody: it is not a regular file.
        OSError: it cannot be read or replaced.
    """
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not S_ISREG(os.fstat(source).st_mode):
            raise InvalidBody(f"cannot replace in {path}: it is not a regular file")
        target = look(path)
        if target.stream:
            raise InvalidBody(f"cannot replace in {path}: it has no name that a new file could take")
        staged: Staged | None = None
        work = Substitution(old, new)
        try:
            staged = Staged(target)
            size = max(_PIECE, 4 * len(old))
            while data := os.read(source, size):
                for piece in work.feed(data):
                    staged.write(piece)
                    await checkpoint()
            if work.count:
                staged.write(work.finish())
                await staged.publish()
        finally:
            if staged is not None:
                staged.close()
        return work.count
    finally:
        os.close(source)
