"""Pass `/proxy/{port}/...` on to a port of the sandbox.

The path and query go through byte for byte; bodies stream both ways with bounded
memory; an upgrade becomes a tunnel of raw bytes. Our own port is a local alias: the
same routes, on the same connection, without a hop. The access token is for us and
stays here.

Source: execd contract §10; RFC 9110 §7.6 (what an intermediary drops).
"""

from __future__ import annotations

import _socket

from execd.http.auth import TOKEN_HEADER
from execd.http.exchange import ClientGone
from execd.loop import Event, TimedOut, deadline, recv_some, send_all, start
from execd.upstream import dial, hang_up
from execd.wire.http1 import (
    MAX_HEAD,
    ChunkedDecoder,
    ProtocolError,
    parse_response,
    render_head,
    split_list,
    status_line,
)
from specs.errors import (
    BackendResponseFailed,
    BadRequest,
    BoxwrightError,
    ExecdNotSupported,
    UpstreamUnreachable,
)
from specs.names import (
    HEADER_ACCESS_RENEW,
    HEADER_API_KEY,
    HEADER_INGRESS_TO,
    HEADER_SECURE_ACCESS,
    PORT_EGRESS,
    PORT_EXECD,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.http.exchange import Body, Reply
    from execd.http.server import ServerRequest
    from execd.loop import Task
    from execd.wire.http1 import ResponseHead

PREFIX = b"/proxy/"
PIECE = 256 * 1024
TUNNEL_PIECE = 64 * 1024
HALF_OPEN_SECONDS = 120.0  # without a byte, once a tunnel's other direction has ended
WEBSOCKET_HALF_OPEN_SECONDS = 5.0  # the same where the end of one is the end of both (RFC 6455 §7.1.1)
MAX_INTERIM = 16  # answers such as 100 or 103 before the final one

_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_REPLACED = frozenset(
    {
        "host",
        "content-length",
        "expect",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        TOKEN_HEADER,
        # The platform's own: some clients send their key on direct calls too, and no service may see it.
        HEADER_API_KEY.lower(),
        HEADER_SECURE_ACCESS.lower(),
        HEADER_ACCESS_RENEW.lower(),
        HEADER_INGRESS_TO.lower(),
    }
)


class InvalidProxyPort(BadRequest):
    """The path names no port."""

    code = "INVALID_PORT"


def split_proxy(target: bytes) -> tuple[int, bytes]:
    """
    Take the port and the inner target out of a raw target that begins with `/proxy/`.

    Raises:
        InvalidProxyPort: there is no port from 1 to 65535.
    """
    rest = target[len(PREFIX) :]
    end = len(rest)
    for mark in (b"/", b"?"):
        at = rest.find(mark)
        if 0 <= at < end:
            end = at
    digits = rest[:end]
    if not digits or len(digits) > 5 or digits.strip(b"0123456789") or not 0 < int(digits) < 65536:
        raise InvalidProxyPort("the path must be /proxy/{port}/..., with a port from 1 to 65535")
    inner = rest[end:]
    return int(digits), inner if inner.startswith(b"/") else b"/" + inner


def resolve(request: ServerRequest, own_port: int) -> int | None:
    """
    Strip the aliases of our own port from a request's target.

    Returns:
        The port to pass the request on to; None when it is for us.

    Raises:
        InvalidProxyPort: the path names no port.
    """
    target = request.target
    while target.startswith(PREFIX) or target == PREFIX[:-1]:
        port, inner = split_proxy(target)
        if port not in {PORT_EXECD, own_port}:
            request.target = inner
            return port
        target = inner
    if target is not request.target:
        request.retarget(target)
    return None


def request_head(request: ServerRequest, port: int) -> bytes:
    """Build the head that the service gets: header lines as they were sent, ours replaced."""
    head = request.head
    dropped = set(_HOP | _REPLACED)
    forwarded: dict[str, str] = {"x-forwarded-for": request.peer, "x-forwarded-proto": "http"}
    for name, value in head.headers:
        if name == "connection":
            dropped.update(split_list(value))
        elif name in {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"}:
            forwarded[name] = value
        elif name == "host":
            forwarded.setdefault("x-forwarded-host", value)
    first = f"{head.method} {request.target.decode('latin-1')} HTTP/1.1"
    out = [first, f"Host: localhost:{port}"]
    out += [line for line, (name, _) in zip(head.lines, head.headers, strict=True) if name not in dropped]
    out += [f"{name.title()}: {value}" for name, value in forwarded.items()]
    if head.chunked:
        out.append("Transfer-Encoding: chunked")
    elif head.length is not None:
        out.append(f"Content-Length: {head.length}")
    if head.upgrade is not None:
        out += ["Connection: Upgrade", f"Upgrade: {head.upgrade}"]
    else:
        out.append("Connection: close")
    return "\r\n".join([*out, "", ""]).encode("latin-1")


def local_location(value: str, port: int) -> str:
    """
    Bring a redirect to the service itself back below `/proxy/{port}`.

    An outer proxy that says its own prefix (`X-Forwarded-Prefix`) rewrites by itself, so this is for direct
    callers only. Relative references and other hosts are returned untouched.
    """
    prefix = f"{PREFIX.decode('ascii')}{port}"
    for own in (f"http://localhost:{port}", f"//localhost:{port}"):
        if value == own or value.startswith(own + "/"):
            value = value[len(own) :] or "/"
            break
    if not value.startswith("/") or value.startswith("//"):
        return value
    if value == prefix or value.startswith(prefix + "/"):
        return value
    return prefix + value


class _Upstream:
    """Our connection to the service."""

    __slots__ = ("buffer", "failure", "sock")

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.failure: Exception | None = None  # why the client's half ended

    def abort(self, failure: Exception) -> None:
        """Break it off because of the client; whoever reads from it sees the end."""
        self.failure = failure
        _shut(self.sock, _socket.SHUT_RDWR)

    async def receive(self) -> bytes:
        """
        Return buffered or fresh bytes; empty at the end.

        Raises:
            OSError: the connection broke.
        """
        if self.buffer:
            data, self.buffer = self.buffer, b""
            return data
        return await recv_some(self.sock, PIECE)

    async def head(self) -> ResponseHead:
        """
        Receive the head of the final answer, or of a switch of protocols.

        Raises:
            BackendResponseFailed: it does not speak HTTP, or closed without an answer.
        """
        buffer = b""
        interim = 0
        while True:
            end = buffer.find(b"\r\n\r\n")
            if end >= 0:
                self.buffer = buffer[end + 4 :]
                try:
                    head = parse_response(buffer[:end])
                except ProtocolError as error:
                    raise BackendResponseFailed(f"the service's answer is malformed: {error}") from None
                if head.status >= 200 or head.status == 101:
                    return head
                interim += 1
                if interim > MAX_INTERIM:
                    raise BackendResponseFailed("the service answers without end before its final answer")
                buffer = self.buffer
                self.buffer = b""
                continue
            if len(buffer) > MAX_HEAD:
                raise BackendResponseFailed("the head of the service's answer is too long")
            try:
                data = await self.receive()
            except OSError:
                data = b""
            if not data:
                raise BackendResponseFailed("the service closed the connection without an answer")
            buffer += data


async def forward(request: ServerRequest, reply: Reply, port: int) -> None:
    """
    Pass one request on and its answer back.

    Raises:
        UpstreamUnreachable: nobody listens on the port.
        BackendTimeout: the port does not accept in time.
        BackendResponseFailed: the answer is not HTTP.
        ClientGone: the client hung up.
    """
    try:
        upstream = _Upstream(await dial(port))
    except UpstreamUnreachable:
        if port == PORT_EGRESS:
            raise ExecdNotSupported(
                "no egress sidecar runs beside this sandbox: network policies and the credential vault are not "
                "available here (GET /v1/capabilities says what is)"
            ) from None
        raise
    try:
        try:
            await send_all(upstream.sock, request_head(request, port))
        except OSError:
            pass  # it may have answered before it closed
        sender = start(_send_body(request, reply, upstream), "proxy upload")
        try:
            head = await upstream.head()
            if head.status != 101:
                if request.header("x-forwarded-prefix") is None:
                    head.headers = [
                        (name, local_location(value, port) if name.lower() == "location" else value)
                        for name, value in head.headers
                    ]
                await _relay(request.method, reply, head, upstream)
                return
        except BackendResponseFailed:
            if upstream.failure is not None:
                raise upstream.failure from None
            raise
        finally:
            sender.cancel()
        if request.head.upgrade is None:
            raise BackendResponseFailed("the service switched protocols without being asked")
        await _tunnel(request, reply, head, upstream)
    finally:
        hang_up(upstream.sock)


async def _send_body(request: ServerRequest, reply: Reply, upstream: _Upstream) -> None:
    """Pass the body on, then watch the client: when it hangs up, so do we."""
    try:
        if not request.complete:
            chunked = request.head.chunked
            async for piece in request.chunks():
                data = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
                await send_all(upstream.sock, data)
            if chunked:
                await send_all(upstream.sock, b"0\r\n\r\n")
    except (ClientGone, BoxwrightError) as failure:
        upstream.abort(failure)
        return
    except OSError:
        pass  # the service reads no further; its answer may be on the way
    await reply.gone()
    upstream.abort(ClientGone("the client hung up"))


async def _relay(method: str, reply: Reply, head: ResponseHead, upstream: _Upstream) -> None:
    bodiless = head.bodiless(method)
    dropped = set(_HOP)
    if not bodiless or head.status == 204:
        dropped.add("content-length")
    for name, value in head.headers:
        if name.lower() == "connection":
            dropped.update(split_list(value))
    headers = [(name, value) for name, value in head.headers if name.lower() not in dropped]
    body = await reply.start(head.status, headers, head.length, reason=head.reason, bodiless=bodiless)
    if bodiless:
        await body.finish()
        return
    if not upstream.buffer and head.length != 0:
        await body.flush()
    try:
        whole = await _relay_body(body, head, upstream)
    except (OSError, ProtocolError):
        return  # broken off: the reply stays unfinished and the connection is cut
    if whole:
        await body.finish()


async def _relay_body(body: Body, head: ResponseHead, upstream: _Upstream) -> bool:
    """Pass a body on as it comes; say whether it was whole."""
    if head.chunked:
        decoder = ChunkedDecoder()
        rest = b""
        while not decoder.done:
            data = await upstream.receive()
            if not data:
                return False
            rest += data
            pieces, used = decoder.feed(rest, len(rest))
            rest = rest[used:]
            if pieces:
                await body.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return True
    left = head.length
    while left is None or left > 0:
        data = await upstream.receive()
        if not data:
            return left is None and upstream.failure is None
        if left is not None:
            data = data[:left]
            left -= len(data)
        await body.write(data)
    return True


async def _tunnel(request: ServerRequest, reply: Reply, head: ResponseHead, upstream: _Upstream) -> None:
    """Carry bytes both ways, those already received first, each direction ended on its own."""
    headers = list(head.headers)
    if not any(name.lower() == "x-request-id" for name, _ in headers):
        headers.append(("X-Request-ID", request.id))
    answer = render_head(status_line(101, head.reason), headers)
    client, sent_ahead = await reply.switch(answer + upstream.buffer)
    flow = _Flow()
    websocket = (request.head.upgrade or "").strip().lower() == "websocket"
    ways = (
        start(_pump(client, upstream.sock, sent_ahead, flow), "tunnel up"),
        start(_pump(upstream.sock, client, b"", flow), "tunnel down"),
    )
    try:
        await flow.ended.wait()
        await _outlast(ways, flow, WEBSOCKET_HALF_OPEN_SECONDS if websocket else HALF_OPEN_SECONDS)
    finally:
        for way in ways:
            way.cancel()


class _Flow:
    """What both directions of a tunnel tell."""

    __slots__ = ("ended", "moved")

    def __init__(self) -> None:
        self.ended = Event()  # one of them is over
        self.moved = 0  # bytes


async def _outlast(ways: tuple[Task[None], Task[None]], flow: _Flow, seconds: float) -> None:
    """Let the other direction of a tunnel go on, as long as something moves: its peer may have gone for good."""
    for way in ways:
        while not way.done:
            before = flow.moved
            try:
                with deadline(seconds):
                    await way.join()
            except TimedOut:
                if flow.moved == before:
                    return


async def _pump(source: _socket.socket, target: _socket.socket, first: bytes, flow: _Flow) -> None:
    try:
        data = first or await recv_some(source, TUNNEL_PIECE)
        while data:
            await send_all(target, data)
            flow.moved += len(data)
            data = await recv_some(source, TUNNEL_PIECE)
        _shut(target, _socket.SHUT_WR)
    except OSError:
        _shut(target, _socket.SHUT_RDWR)
        _shut(source, _socket.SHUT_RDWR)
    finally:
        flow.ended.set()


def _shut(sock: _socket.socket, how: int) -> None:
    try:
        sock.shutdown(how)
    except OSError:
        pass  # closed by the peer already
