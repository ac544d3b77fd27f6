"""Events of an execution stream as bytes: bare JSON objects, each followed by two LF.

Pure ASCII, because some clients split lines at U+0085 or U+2028, and one
physical line per event, below the 4 MiB that the strictest reader allows
(execd §0, §3). `output` is the hot path: a whole read of many lines is escaped
by C calls on the whole block and cut by one `replace`.
"""

from __future__ import annotations

from _json import encode_basestring_ascii as quote

CONTENT_TYPE = "text/event-stream"
HEADERS = (
    ("Content-Type", CONTENT_TYPE),
    ("Cache-Control", "no-cache"),
    ("X-Accel-Buffering", "no"),
)

MAX_LINE = 640 * 1024
"""Bytes of output that one event may carry: six characters each at worst stay below 4 MiB."""

# Every byte that a JSON string holds as itself, and the line feed, which ends an event here.
_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\') + b"\n"

# The other ASCII bytes and how they are written; the backslash first, since the rest bring backslashes in.
_ESCAPES = [(b"\\", b"\\\\"), (b'"', b'\\"')] + [
    (bytes([byte]), quote(chr(byte))[1:-1].encode("ascii")) for byte in (*range(0x20), 0x7F) if byte != 0x0A
]

_SAMPLE, _FEW = 4096, 4
"""A block whose first bytes hold so few line ends is cut line by line; right either way, this is speed."""

# A stand-in for the line feed must be a character that JSON writes as itself and no escape is made of.
_STAND_INS = "~^`|@#"


def init(execution_id: str, ms: int) -> bytes:
    """Say which id interrupts and queries this execution."""
    return f'{{"type":"init","text":{quote(execution_id)},"timestamp":{ms}}}\n\n'.encode("ascii")


def ping(ms: int) -> bytes:
    """Keep the stream alive."""
    return b'{"type":"ping","text":"pong","timestamp":%d}\n\n' % ms


def output(kind: str, lines: bytes, ms: int) -> bytes:
    r"""
    Encode whole lines of output, one event each, the terminator stripped.

    The work is done on the whole block in C: bytes that JSON holds as themselves are only
    cut at the line feeds, other ASCII is escaped byte by byte, and text is decoded and quoted.

    Args:
        kind: `stdout` or `stderr`.
        lines: lines, each ended by LF alone (a missing last LF is supplied), none longer than
            `MAX_LINE`. An empty line becomes the text `"\n"` (execd §0 rule 3). What is not UTF-8
            becomes U+FFFD.
        ms: time of the read, Unix milliseconds.
    """
    if not lines:
        return b""
    before = b'{"type":"%b","text":"' % kind.encode("ascii")
    after = b'","timestamp":%d}\n\n' % ms
    blank = lines[:1] == b"\n"
    if lines[-1:] == b"\n":
        lines = lines[:-1]
        blank = blank or lines[-1:] == b"\n"
    special = lines.translate(None, _PLAIN)
    if special.isascii():
        for byte, escape in _ESCAPES:
            if byte in special:
                lines = lines.replace(byte, escape)
        if lines.count(b"\n", 0, _SAMPLE) <= _FEW:
            # Cutting and joining copies faster than searching, as long as the pieces are few.
            texts = [line or b"\\n" for line in lines.split(b"\n")]
            return b"".join((before, (after + before).join(texts), after))
        blank = blank or b"\n\n" in lines
        body = lines.replace(b"\n", after + before)
    else:
        blank = blank or b"\n\n" in lines
        body = _quoted(lines.decode("utf-8", "replace"), after + before)
    events = b"".join((before, body, after))
    if blank:
        # A quote inside the text is always escaped, so this cannot match user output.
        events = events.replace(b'"text":""', b'"text":"\\n"')
    return events


def _quoted(text: str, between: bytes) -> bytes:
    if "\\" not in text:
        return quote(text)[1:-1].encode("ascii").replace(b"\\n", between)
    # A backslash in the text is written as two, and two followed by `n` look like a line feed.
    for stand_in in _STAND_INS:
        if stand_in not in text:
            quoted = quote(text.replace("\n", stand_in))[1:-1].encode("ascii")
            return quoted.replace(stand_in.encode("ascii"), between)
    return between.join([quote(line)[1:-1].encode("ascii") for line in text.split("\n")])


def status(text: str, ms: int) -> bytes:
    """Tell the reply status of a code run."""
    return f'{{"type":"status","text":{quote(text)},"timestamp":{ms}}}\n\n'.encode("ascii")


def error(ename: str, evalue: str, traceback: list[str], ms: int) -> bytes:
    """End the stream with a failure; `evalue` of a command is its exit code in decimal."""
    trace = ",".join([quote(line) for line in traceback])
    return (
        f'{{"type":"error","error":{{"ename":{quote(ename)},"evalue":{quote(evalue)},"traceback":[{trace}]}},'
        f'"timestamp":{ms}}}\n\n'
    ).encode("ascii")


def complete(elapsed_ms: int, ms: int) -> bytes:
    """End the stream with success."""
    return b'{"type":"execution_complete","execution_time":%d,"timestamp":%d}\n\n' % (elapsed_ms, ms)
