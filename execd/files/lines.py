"""Cut a window of lines out of a byte stream, in bounded memory.

Pure. A line ends at LF; one CR directly before it is not part of the line. The window's
lines are joined by LF, without a final one. Lines may be longer than any piece.

Source: protocol, execd §7.6.
"""

from __future__ import annotations


class LineWindow:
    """Takes the stream piece by piece; gives the window's bytes piece by piece.

    Attributes:
        done: the window is complete, nothing more need be fed.
    """

    __slots__ = ("_fresh", "_held", "_left", "_skip", "_started", "done")

    def __init__(self, offset: int, limit: int | None) -> None:
        """Begin at line `offset` (1-based) and take at most `limit` lines."""
        self._skip = offset - 1
        self._left = limit
        self._held = False  # a CR at the end of the last piece: part of the line unless LF or the end follows
        self._fresh = True  # the next byte begins a line
        self._started = False  # a line was given already, so the next one needs a separator
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Take the next piece; return what of it belongs to the window."""
        at = 0
        while self._skip and at < len(data):
            end = data.find(b"\n", at)
            if end < 0:
                return b""
            self._skip -= 1
            at = end + 1
        if self.done or at >= len(data):
            return b""
        end = len(data)
        if self._left is not None:
            at_line = at
            for _ in range(self._left):
                found = data.find(b"\n", at_line)
                if found < 0:
                    break
                self._left -= 1
                at_line = found + 1
            if self._left == 0:
                self.done = True
                end = at_line
        return self._give(data[at:end])

    def _give(self, piece: bytes) -> bytes:
        lead = b""
        if self._fresh and self._started:
            lead = b"\n"
        if self._held:
            self._held = False
            if not piece.startswith(b"\n"):
                lead += b"\r"
        self._started = True
        self._fresh = piece.endswith(b"\n")
        text = piece.replace(b"\r\n", b"\n")
        if self._fresh:
            text = text[:-1]  # its LF becomes the separator once another line begins
        elif text.endswith(b"\r"):
            text = text[:-1]
            self._held = True
        return lead + text
