"""Take a multipart body apart while it arrives, whatever the chunking.

The parser is pushed bytes and answers with events. Data events are views into what
was pushed: consume them before the next push. Only the head of a part is buffered.

Source: RFC 2046 §5.1, RFC 7578.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MAX_PART_HEAD = 16 * 1024
MAX_BOUNDARY = 200

_HEAD, _DATA, _EPILOGUE = range(3)


class MultipartError(ValueError):
    """The body is not the multipart it claims to be."""


class Part:
    """The head of one part.

    Attributes:
        headers: (lower-case name, value) pairs.
        name: the field's name; empty when none is given.
        filename: what the sender calls the file; None when it names none.
    """

    __slots__ = ("filename", "headers", "name")

    def __init__(self, headers: list[tuple[str, str]], name: str, filename: str | None) -> None:
        self.headers = headers
        self.name = name
        self.filename = filename


class Data:
    """Some bytes of the part last begun."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view


class End:
    """The part last begun is complete."""

    __slots__ = ()


class MultipartParser:
    """Push body bytes with `feed`; check with `finish` when the body ended."""

    __slots__ = ("_delimiter", "_head", "_held", "_inside", "_state")

    def __init__(self, boundary: bytes) -> None:
        self._delimiter: Final = b"\r\n--" + boundary
        self._state = _DATA
        self._inside = False  # of a part; data before the first delimiter is the preamble
        self._held = b"\r\n"  # what may be the start of a delimiter; the first needs no line before it
        self._head = bytearray()

    @property
    def closed(self) -> bool:
        """Whether the closing delimiter was seen."""
        return self._state == _EPILOGUE

    def feed(self, data: bytes | bytearray, end: int | None = None) -> list[Part | Data | End]:
        """
        Take the next bytes of the body.

        Args:
            data: a buffer; it must not change before the events were consumed.
            end: how much of the buffer counts.

        Raises:
            MultipartError: a part's head is malformed or too long.
        """
        out: list[Part | Data | End] = []
        stop = len(data) if end is None else end
        at = 0
        while at < stop:
            if self._state == _DATA:
                at = self._data(data, at, stop, out)
            elif self._state == _HEAD:
                at = self._part_head(data, at, stop, out)
            else:
                break
        return out

    def finish(self) -> None:
        """
        Check that the body was whole.

        Raises:
            MultipartError: it ended before the closing delimiter.
        """
        if self._state == _HEAD and self._head == b"--":
            self._state = _EPILOGUE
        if self._state != _EPILOGUE:
            raise MultipartError("the body ends before the closing boundary")

    def _data(self, data: bytes | bytearray, at: int, stop: int, out: list[Part | Data | End]) -> int:
        delimiter = self._delimiter
        held = self._held
        if held:
            border = held + bytes(data[at : min(stop, at + len(delimiter))])
            found = border.find(delimiter)
            if 0 <= found < len(held):
                self._held = b""
                self._emit(memoryview(held)[:found], out)
                return self._end_data(at + found + len(delimiter) - len(held), out)
            if len(border) < len(held) + len(delimiter) and delimiter.startswith(border):
                self._held = border
                return stop
            # Nothing can begin inside `held` except at its own first byte: a delimiter has one CR.
            self._held = b""
            self._emit(memoryview(held), out)
        found = data.find(delimiter, at, stop)
        if found >= 0:
            self._emit(memoryview(data)[at:found], out)
            return self._end_data(found + len(delimiter), out)
        keep = data.rfind(b"\r", max(at, stop - len(delimiter) + 1), stop)
        if keep >= 0 and delimiter.startswith(data[keep:stop]):
            self._held = bytes(data[keep:stop])
        else:
            keep = stop
        self._emit(memoryview(data)[at:keep], out)
        return stop

    def _emit(self, view: memoryview, out: list[Part | Data | End]) -> None:
        if view and self._inside:
            out.append(Data(view))

    def _end_data(self, at: int, out: list[Part | Data | End]) -> int:
        if self._inside:
            out.append(End())
        self._inside = False
        self._state = _HEAD
        return at

    def _part_head(self, data: bytes | bytearray, at: int, stop: int, out: list[Part | Data | End]) -> int:
        head = self._head
        before = len(head)
        head += data[at : min(stop, at + MAX_PART_HEAD + 4 - before)]
        if head.startswith(b"--"):
            self._state = _EPILOGUE
            return stop
        found = head.find(b"\r\n\r\n", max(0, before - 3))
        if found < 0:
            if len(head) >= MAX_PART_HEAD + 4:
                raise MultipartError(f"the head of a part is longer than {MAX_PART_HEAD} bytes")
            return stop
        lines = bytes(head[:found]).split(b"\r\n")
        if lines[0].strip(b" \t"):
            raise MultipartError("a boundary is followed by something else than the end of its line")
        out.append(_read_part(lines[1:]))
        head.clear()
        self._inside = True
        self._state = _DATA
        return at + found + 4 - before


def _read_part(lines: list[bytes]) -> Part:
    headers: list[tuple[str, str]] = []
    name = ""
    filename: str | None = None
    for line in lines:
        key, colon, value = line.decode("utf-8", "surrogateescape").partition(":")
        key = key.strip(" \t").lower()
        value = value.strip(" \t")
        if not colon or not key:
            raise MultipartError("a line in the head of a part is not a header")
        headers.append((key, value))
        if key == "content-disposition":
            params = parameters(value)
            name = params.get("name", "")
            filename = params.get("filename*", params.get("filename"))
    return Part(headers, name, filename)


def parameters(value: str) -> dict[str, str]:
    """
    Return the parameters of a header value such as `form-data; name="x"`, by lower-case name.

    Quoted strings are unquoted; of `name*=UTF-8''...` the percent-encoding is decoded.
    """
    out: dict[str, str] = {}
    at = value.find(";")
    while 0 <= at < len(value):
        equals = value.find("=", at)
        if equals < 0:
            break
        name = value[at + 1 : equals].strip(" \t;").lower()
        at = equals + 1
        while at < len(value) and value[at] in " \t":
            at += 1
        if value[at : at + 1] == '"':
            text, at = _quoted(value, at + 1)
            at = value.find(";", at)
        else:
            end = value.find(";", at)
            end = len(value) if end < 0 else end
            text, at = value[at:end].strip(" \t"), end
        if name.endswith("*"):
            charset, _, rest = text.partition("'")
            text = _percent(rest.partition("'")[2], charset)
        out.setdefault(name, text)
    return out


def _quoted(value: str, at: int) -> tuple[str, int]:
    """Read a quoted string from behind its first quote; return it and where it ended."""
    pieces: list[str] = []
    while True:
        quote = value.find('"', at)
        slash = value.find("\\", at)
        if quote < 0:
            pieces.append(value[at:])
            return "".join(pieces), len(value)
        if slash < 0 or quote < slash:
            pieces.append(value[at:quote])
            return "".join(pieces), quote + 1
        following = value[slash + 1 : slash + 2]
        # Only these two are escapes: a path such as C:\new is sent unescaped by old senders.
        pieces.append(value[at:slash] + (following if following in {'"', "\\"} else "\\" + following))
        at = slash + 2


def _percent(text: str, charset: str) -> str:
    from execd.wire.target import percent_bytes

    encoding = "latin-1" if charset.lower() == "iso-8859-1" else "utf-8"
    return percent_bytes(text.encode("utf-8", "surrogateescape")).decode(encoding, "surrogateescape")


def boundary_of(content_type: str | None) -> bytes:
    """
    Return the boundary that a Content-Type names.

    Raises:
        MultipartError: it is not multipart, or its boundary is missing or unusable.
    """
    if content_type is None or not content_type.lower().lstrip().startswith("multipart/"):
        raise MultipartError("the Content-Type is not multipart/form-data")
    boundary = parameters(content_type).get("boundary", "").rstrip(" ")
    if not boundary or len(boundary) > MAX_BOUNDARY or not boundary.isascii() or not boundary.isprintable():
        raise MultipartError("the Content-Type names no usable boundary")
    return boundary.encode("ascii")
