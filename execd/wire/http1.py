"""HTTP/1.1 without I/O: heads and chunked bodies, as a server and as a client.

Strict where two readers could disagree about where a message ends (that is how
requests are smuggled), tolerant where nothing hangs on it.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HEAD = 64 * 1024
MAX_HEADERS = 200
MAX_CHUNK_LINE = 4096
MAX_TRAILERS = 16 * 1024

_NAME_CHARS = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# Names seen most, so that neither checking nor lowering them is needed.
_KNOWN = {
    name: name.lower()
    for spelling in (  # noqa: SIM905 - a table, read as text
        "Host User-Agent Accept Accept-Encoding Accept-Language Connection Content-Type Content-Length "
        "Transfer-Encoding Expect Range If-Range Upgrade Cookie Origin Referer Authorization Cache-Control "
        "X-EXECD-ACCESS-TOKEN X-Request-ID X-Forwarded-For X-Forwarded-Proto X-Forwarded-Host X-Real-IP "
        "Sec-WebSocket-Key Sec-WebSocket-Version Sec-WebSocket-Protocol Sec-WebSocket-Extensions"
    ).split()
    for name in (spelling, spelling.lower(), spelling.title())
}

_FRAMING = {
    name: name for name in ("content-length", "transfer-encoding", "connection", "expect", "upgrade", "host")
}

REASONS = {
    100: "Continue",
    101: "Switching Protocols",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    206: "Partial Content",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}


class ProtocolError(ValueError):
    """The peer does not speak HTTP/1 properly; `status` is what a server answers."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class RequestHead:
    """A request's line and headers.

    Attributes:
        method: the verb, as sent.
        target: in origin form (`/path?query`), or `*`.
        minor: 0 or 1, of HTTP/1.x.
        headers: (lower-case name, value) pairs in order.
        lines: the header lines as they were sent.
        length: what Content-Length declares; None without one.
        chunked: whether the body is chunked.
        keep: whether the connection may serve another request.
        expects: whether the client waits for `100 Continue`.
        upgrade: the protocol asked for; None without `Connection: upgrade`.
    """

    __slots__ = (
        "chunked",
        "expects",
        "headers",
        "keep",
        "length",
        "lines",
        "method",
        "minor",
        "target",
        "upgrade",
    )

    def __init__(self, method: str, target: bytes, minor: int, lines: list[str]) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        self.lines = lines
        self.headers: list[tuple[str, str]] = []
        self.length: int | None = None
        self.chunked = False
        self.keep = minor == 1
        self.expects = False
        self.upgrade: str | None = None


class ResponseHead:
    """A response's line and headers, read as a client.

    Attributes:
        headers: (name as sent, value) pairs in order.
        length: what Content-Length declares; None without one, or when chunked.
    """

    __slots__ = ("chunked", "headers", "length", "minor", "reason", "status")

    def __init__(self, status: int, reason: str, minor: int) -> None:
        self.status = status
        self.reason = reason
        self.minor = minor
        self.headers: list[tuple[str, str]] = []
        self.length: int | None = None
        self.chunked = False

    def bodiless(self, method: str) -> bool:
        """Say whether this answer has no body, whatever its headers say (RFC 9112 §6.3)."""
        return method == "HEAD" or self.status in {204, 304} or self.status < 200


def parse_request(block: bytes) -> RequestHead:
    """
    Parse the bytes before the empty line that ends a head.

    Raises:
        ProtocolError: it is not a request that can be answered.
    """
    first, *lines = _lines(block)
    words = first.split(" ")
    if len(words) != 3:
        raise ProtocolError("the request line is not three words")
    method, target, version = words
    if not method or method.strip(_NAME_CHARS):
        raise ProtocolError("the method is not a token")
    if version == "HTTP/1.1":
        minor = 1
    elif version == "HTTP/1.0":
        minor = 0
    elif version.startswith("HTTP/") and version[5:6].isdigit():
        raise ProtocolError("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
    else:
        raise ProtocolError("the request line does not end with a version")
    head = RequestHead(method, _origin_form(method, target), minor, lines)
    head.headers = _fields(lines)
    hosts = 0
    connection = ""
    upgrade = ""
    for name, value in head.headers:
        if name not in _FRAMING:
            continue
        if name == "content-length":
            if head.length is not None:
                raise ProtocolError("Content-Length is given more than once")
            head.length = parse_length(value)
        elif name == "transfer-encoding":
            if head.chunked or value.lower() != "chunked":
                raise ProtocolError("the only transfer coding is chunked, once", 501)
            head.chunked = True
        elif name == "connection":
            connection = f"{connection},{value}" if connection else value
        elif name == "host":
            hosts += 1
        elif name == "upgrade":
            upgrade = f"{upgrade}, {value}" if upgrade else value
        elif value.lower() == "100-continue":
            head.expects = minor == 1
        else:
            raise ProtocolError("the only expectation met is 100-continue", 417)
    if head.chunked and (head.length is not None or minor == 0):
        raise ProtocolError("Transfer-Encoding does not go with Content-Length or HTTP/1.0")
    if hosts > 1 or (hosts == 0 and minor == 1):
        raise ProtocolError("exactly one Host is required")
    if connection:
        options = split_list(connection)
        if "close" in options:
            head.keep = False
        elif minor == 0:
            head.keep = "keep-alive" in options
        if upgrade and "upgrade" in options:
            head.upgrade = upgrade
    return head


def parse_response(block: bytes) -> ResponseHead:
    """
    Parse the bytes before the empty line that ends a response's head.

    Raises:
        ProtocolError: it is not HTTP/1.
    """
    first, *lines = _lines(block)
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if version not in {"HTTP/1.1", "HTTP/1.0"} or len(code) != 3 or not _digits(code) or code < "100":
        raise ProtocolError("the status line is not of HTTP/1")
    head = ResponseHead(int(code), reason, int(version[-1]))
    for line, (name, value) in zip(lines, _fields(lines), strict=True):
        head.headers.append((line[: len(name)], value))
        if name == "content-length":
            length = parse_length(value)
            if head.length not in {None, length}:
                raise ProtocolError("the lengths declared differ")
            head.length = length
        elif name == "transfer-encoding":
            if head.chunked or value.lower() != "chunked":
                raise ProtocolError("the only transfer coding understood is chunked, once")
            head.chunked = True
    if head.chunked:
        head.length = None
    return head


def _lines(block: bytes) -> list[str]:
    text = block.decode("latin-1")
    lines = text.split("\r\n")
    breaks = len(lines) - 1
    if "\0" in text or text.count("\r") != breaks or text.count("\n") != breaks:
        raise ProtocolError("the head has a stray control character")
    if breaks > MAX_HEADERS:
        raise ProtocolError(f"more than {MAX_HEADERS} headers", 431)
    return lines


def _fields(lines: list[str]) -> list[tuple[str, str]]:
    out = []
    for line in lines:
        name, colon, value = line.partition(":")
        lower = _KNOWN.get(name)
        if lower is None:
            if not name or name.strip(_NAME_CHARS):
                raise ProtocolError("a header's name is not a token")
            lower = name.lower()
        if not colon:
            raise ProtocolError("a header has no colon")
        out.append((lower, value.strip(" \t")))
    return out


def _origin_form(method: str, target: str) -> bytes:
    if target.startswith("/"):
        return target.encode("latin-1")
    if target == "*" and method == "OPTIONS":
        return b"*"
    scheme, mark, rest = target.partition("://")
    if mark and scheme.lower() in {"http", "https"}:
        at = min((i for i in (rest.find("/"), rest.find("?")) if i >= 0), default=len(rest))
        path = rest[at:]
        return (path if path.startswith("/") else "/" + path).encode("latin-1")
    raise ProtocolError("the target is not a path")


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_length(value: str) -> int:
    """
    Read a Content-Length.

    Raises:
        ProtocolError: it is not a plain decimal number below 10^18.
    """
    if not _digits(value) or len(value) > 18:
        raise ProtocolError("Content-Length is not a number")
    return int(value)


def split_list(value: str) -> list[str]:
    """Return the lower-case members of a comma-separated header value."""
    return [item for item in (part.strip(" \t").lower() for part in value.split(",")) if item]


def render_head(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """
    Build a head from its first line and headers, the ending empty line included.

    Raises:
        ValueError: a name or value would break the framing.
    """
    lines = [first, *[f"{name}: {value}" for name, value in headers], "", ""]
    text = "\r\n".join(lines)
    breaks = len(lines) - 1
    if text.count("\r") != breaks or text.count("\n") != breaks or "\0" in text:
        raise ValueError("a header holds a line break")
    return text.encode("latin-1")


def status_line(status: int, reason: str | None = None) -> str:
    """Return `HTTP/1.1 200 OK`."""
    return f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown') if reason is None else reason}"


_SIZE, _BYTES, _BREAK, _TRAILER, _DONE = range(5)


class ChunkedDecoder:
    """Take a chunked body apart (RFC 9112 §7.1); extensions and trailers are dropped.

    Attributes:
        left: bytes of the present chunk not seen yet; they may be received elsewhere
            directly, told by `skip`.
    """

    __slots__ = ("_state", "_trailers", "left")

    def __init__(self) -> None:
        self.left = 0
        self._state = _SIZE
        self._trailers = 0

    @property
    def done(self) -> bool:
        """Whether the body is complete."""
        return self._state == _DONE

    def skip(self, count: int) -> None:
        """Account for `count` bytes of the present chunk that were received elsewhere."""
        self.left -= count
        if not self.left:
            self._state = _BREAK

    def feed(self, data: bytes, limit: int) -> tuple[list[bytes], int]:
        """
        Take what can be taken.

        Args:
            data: what the last call left over, and more.
            limit: stop once so many body bytes were found.

        Returns:
            The pieces of the body, and how many bytes of `data` were used.

        Raises:
            ProtocolError: the framing is broken.
        """
        pieces: list[bytes] = []
        at = 0
        found = 0
        while self._state != _DONE and found < limit:
            if self._state == _BYTES:
                take = min(self.left, len(data) - at, limit - found)
                if not take:
                    break
                pieces.append(data[at : at + take])
                at += take
                found += take
                self.skip(take)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > MAX_CHUNK_LINE:
                    raise ProtocolError("a chunk's size line is too long")
                break
            self._line(data[at:end])
            at = end + 2
        return pieces, at

    def _line(self, line: bytes) -> None:
        if len(line) > MAX_CHUNK_LINE:
            raise ProtocolError("a chunk's size line is too long")
        if b"\n" in line or b"\r" in line:
            raise ProtocolError("a stray line break between chunks")
        if self._state == _BREAK:
            if line:
                raise ProtocolError("a chunk is longer than its size")
            self._state = _SIZE
        elif self._state == _SIZE:
            digits = line.partition(b";")[0].rstrip(b" \t")
            if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
                raise ProtocolError("a chunk's size is not a hexadecimal number")
            self.left = int(digits, 16)
            self._state = _BYTES if self.left else _TRAILER
        elif line:
            self._trailers += len(line)
            if self._trailers > MAX_TRAILERS:
                raise ProtocolError("the trailers are too long", 431)
        else:
            self._state = _DONE
