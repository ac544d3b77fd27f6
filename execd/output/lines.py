"""Bytes to lines, across any split.

The hot path of a stream works on whole reads: the last line feed is found from the
end, everything before it goes on as one block, the rest waits. A line is never cut
for being split over two reads, so neither is a character in it.

Source: execd contract §3.4.
"""

from __future__ import annotations

from specs.stream import MAX_LINE

PIECE = 256 * 1024
"""Longest input handled in one go, so that only the first line of it can be too long."""


class Lines:
    """The lines of one channel of output.

    Args:
        carriage_return: a CR ends a line too, and CRLF counts once (commands); otherwise a CR
            is dropped only directly before LF (sessions).
        blank: keep empty lines.
    """

    __slots__ = ("_after_cr", "_blank", "_carriage_return", "_held", "_size")

    def __init__(self, *, carriage_return: bool = True, blank: bool = True) -> None:
        self._carriage_return = carriage_return
        self._blank = blank
        self._held: list[bytes] = []  # the line that has no end yet
        self._size = 0
        self._after_cr = False  # the last byte was a CR: an LF now belongs to it

    def feed(self, data: bytes) -> bytes:
        """
        Take what was read; return the lines that are complete now.

        Returns:
            Lines, each ended by LF alone and none longer than `MAX_LINE` (a longer one comes in
            pieces, cut between characters). May be empty.
        """
        if len(data) > PIECE:
            return b"".join([self.feed(data[at : at + PIECE]) for at in range(0, len(data), PIECE)])
        if self._carriage_return:
            if self._after_cr and data:
                self._after_cr = False
                if data[0] == 0x0A:
                    data = data[1:]
            if b"\r" in data:
                self._after_cr = data[-1] == 0x0D
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n") + 1
        if end == 0:
            self._hold(data)
            return self._overflow() if self._size > MAX_LINE else b""
        pieces = b""
        if self._size and self._size + data.find(b"\n") > MAX_LINE:
            first = data.find(b"\n")
            self._hold(data[:first])
            pieces = self._overflow()
            data = data[first:]
            end -= first
        block = b"".join((*self._held, data[:end]))
        self._held.clear()
        self._size = 0
        self._hold(data[end:])
        return pieces + self._finished(block)

    def flush(self) -> bytes:
        """Return what is left when the output has ended: the last line if it had no end."""
        block = b"".join(self._held)
        self._held.clear()
        self._size = 0
        if not block:
            return b""
        if block.endswith(b"\r"):
            block = block[:-1]
        return self._finished(block + b"\n")

    def _hold(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._size += len(data)

    def _overflow(self) -> bytes:
        """Take full pieces off the held line; a byte stays at least, so that its end is no blank line."""
        held = b"".join(self._held)
        out = []
        while len(held) > MAX_LINE:
            cut = boundary(held, MAX_LINE)
            out.append(held[:cut])
            held = held[cut:]
        self._held[:] = [held]
        self._size = len(held)
        out.append(b"")
        return b"\n".join(out)

    def _finished(self, block: bytes) -> bytes:
        if not self._carriage_return and b"\r\n" in block:
            block = block.replace(b"\r\n", b"\n")
        if not self._blank:
            while b"\n\n" in block:
                block = block.replace(b"\n\n", b"\n")
            if block[:1] == b"\n":
                block = block[1:]
        return block


def boundary(data: bytes, end: int) -> int:
    """Return the last place at or before `end` that does not cut a UTF-8 sequence in two."""
    if end >= len(data):
        return len(data)
    for back in range(4):
        if end > back and data[end - back] & 0xC0 != 0x80:
            return end - back
    return end  # not UTF-8: nothing to respect


def whole_characters(data: bytes) -> int:
    """Return how many bytes of `data` remain when an unfinished UTF-8 sequence at its end is left off."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte & 0xF8 == 0xF0 else 3 if byte & 0xF0 == 0xE0 else 2 if byte & 0xE0 == 0xC0 else 1
        return len(data) - back if length > back else len(data)
    return len(data)
