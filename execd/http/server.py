"""Accept connections and carry requests and replies over them.

One task per connection. Deadlines of connections are data, swept by one timer while
there are connections, so a request costs no timer of its own. What was received
behind a request (a pipelined request, the first frames after an upgrade) stays in the
connection's buffer until somebody wants it.

Source: RFC 9112; sendfile(2), splice(2).
"""

from __future__ import annotations

import _socket
import errno
import os

from execd.http.exchange import Body, ClientGone, Reply, Request
from execd.loop import checkpoint, complain, current_loop, now, readable, sleep, start, writable
from execd.wire.http1 import (
    MAX_HEAD,
    ChunkedDecoder,
    ProtocolError,
    parse_request,
    render_head,
    status_line,
)
from execd.wire.target import parse_query, percent_text, split_target
from specs.errors import BoxwrightError, InvalidBody, PayloadTooLarge
from specs.wire import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from execd.loop import Task
    from execd.wire.http1 import RequestHead

    Handler = Callable[[Request, Reply], Awaitable[None]]

BACKLOG = 1024
MAX_CONNECTIONS = 4096
ACCEPTS_PER_WAKE = 64
PIECE = 256 * 1024
SMALL = 64 * 1024  # replies up to here are copied into one send
DRAIN = 256 * 1024  # of an unwanted body, read to keep the connection
LINGER = 16 << 20  # of one, read so that a client that is still sending gets the answer

BIND_SECONDS = 2.0  # for a port in the ephemeral range to be given back

_FOREVER = float("inf")


class Patience:
    """How long to wait for a client, in seconds."""

    __slots__ = ("body", "head", "idle", "linger", "stall", "sweep")

    def __init__(
        self,
        *,
        head: float = 30.0,
        idle: float = 300.0,
        body: float = 300.0,
        stall: float = 3600.0,
        linger: float = 2.0,
        sweep: float = 1.0,
    ) -> None:
        self.head = head  # from a head's first byte to its end
        self.idle = idle  # between requests
        self.body = body  # between two pieces of a request's body
        self.stall = stall  # while it takes nothing at all
        self.linger = linger  # to read the last answer before the connection is cut
        self.sweep = sweep  # between two looks at who is late


class Server:
    """A listener and its connections.

    Args:
        handle: answers one request; it must not raise but `ClientGone`.
        patience: how long to wait for clients.
    """

    def __init__(self, handle: Handler, patience: Patience | None = None) -> None:
        self.handle = handle
        self.patience = Patience() if patience is None else patience
        self.closing = False
        self.connections: set[Connection] = set()
        self._listener: _socket.socket | None = None
        self._accepting: Task[None] | None = None
        self._sweeping = False
        self.activity = 0  # requests begun and ended
        self._seen = 0  # of that, at the last sweep
        self._trimmed = 0  # and when memory was last given back

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._listener is None:
            raise RuntimeError("not listening")
        return int(self._listener.getsockname()[1])

    async def listen(self, host: str, port: int) -> None:
        """
        Bind and listen.

        Args:
            host: an address; `0.0.0.0` means every address, IPv6 included where there is any.
            port: 0 takes a free one.

        Raises:
            OSError: the address cannot be used.
        """
        until = now() + BIND_SECONDS
        while True:
            try:
                self._listener = _bind(host, port)
            except OSError as failure:
                # The port lies in the ephemeral range: a passing connection may hold it for a moment.
                if failure.errno != errno.EADDRINUSE or now() > until:
                    raise
                await sleep(0.05)
            else:
                return

    async def _accept(self) -> None:
        listener = self._listener
        if listener is None:
            raise RuntimeError("not listening")
        family = listener.family
        while True:
            await readable(listener.fileno())
            for _ in range(ACCEPTS_PER_WAKE):
                try:
                    fd, address = listener._accept()  # type: ignore[attr-defined]  # what `socket.accept` calls
                except (BlockingIOError, InterruptedError):
                    break
                except OSError as failure:
                    if failure.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                        complain(f"cannot accept: {failure.strerror}")
                        self._make_room()
                        await sleep(0.1)
                    break  # others concern a connection that is gone already
                sock = _socket.socket(family, _socket.SOCK_STREAM, 0, fd)
                sock.setblocking(False)
                connection = Connection(self, sock, str(address[0]))
                self.connections.add(connection)
                connection.task = start(connection.run(), "connection")
            if not self._sweeping and self.connections:
                self._sweeping = True
                current_loop().at(now() + self.patience.sweep, self._sweep)
            while len(self.connections) >= MAX_CONNECTIONS:
                self._make_room()
                await sleep(0.01)  # further ones wait in the kernel's backlog

    def _make_room(self) -> None:
        """Cut the connections without a request that are nearest to their end: idle ones never keep others out."""
        waiting = [connection for connection in self.connections if connection.waiting]
        for connection in sorted(waiting, key=_expiry)[:ACCEPTS_PER_WAKE]:
            connection.expire()

    def _sweep(self) -> None:
        moment = now()
        for connection in self.connections:
            if connection.expires < moment:
                connection.expire()
        if self.activity != self._trimmed and (self.activity == self._seen or not self.connections):
            self._trimmed = self.activity
            trim()
        self._seen = self.activity
        if self.connections:
            current_loop().at(moment + self.patience.sweep, self._sweep)
        else:
            self._sweeping = False

    def start(self) -> None:
        """Accept from now on, in a task of the server's own."""
        self._accepting = start(self._accept(), "accept")

    async def close(self) -> None:
        """Stop listening and break off every connection."""
        self.closing = True
        if self._accepting is not None:
            self._accepting.cancel()
        if self._listener is not None:
            current_loop().forget(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for connection in tuple(self.connections):
            if connection.task is not None:
                connection.task.cancel()
        await checkpoint()  # lets every one of them see it


def trim() -> None:
    """Give free memory back to the system, where the bundle's interpreter can; else it does so in its own time."""
    try:
        from _boxwright_memory import trim as give_back  # type: ignore[import-not-found]  # made by the bundle
    except ImportError:
        return
    give_back()


def _expiry(connection: Connection) -> float:
    return connection.expires


def _bind(host: str, port: int) -> _socket.socket:
    if host == "0.0.0.0":
        try:
            return _bind_family(_socket.AF_INET6, "::", port)
        except OSError as failure:
            if failure.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}:
                raise
        return _bind_family(_socket.AF_INET, host, port)
    return _bind_family(_socket.AF_INET6 if ":" in host else _socket.AF_INET, host, port)


def _bind_family(family: int, host: str, port: int) -> _socket.socket:
    listener = _socket.socket(family, _socket.SOCK_STREAM, 0)
    try:
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if family == _socket.AF_INET6:
            listener.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, int(host != "::"))
        # Accepted sockets inherit these (tcp(7)); dead peers of idle streams are found in two minutes.
        listener.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_KEEPALIVE, 1)
        listener.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_KEEPIDLE, 60)
        listener.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_KEEPINTVL, 20)
        listener.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_KEEPCNT, 3)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class Connection:
    """A client's connection.

    Attributes:
        buffer: received and not yet used.
        expires: when waiting for the client becomes too long (monotonic seconds).
        keep: whether another request may follow.
        waiting: whether there is no request to be answered.
    """

    __slots__ = ("buffer", "expires", "fd", "keep", "patience", "peer", "server", "sock", "task", "waiting")

    def __init__(self, server: Server, sock: _socket.socket, peer: str) -> None:
        self.server = server
        self.patience = server.patience
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer.removeprefix("::ffff:") if "." in peer else peer
        self.buffer = b""
        self.expires = _FOREVER
        self.keep = True
        self.waiting = True
        self.task: Task[None] | None = None

    def expire(self) -> None:
        """Make whoever waits for the client see the end of the stream."""
        self.expires = _FOREVER
        try:
            self.sock.shutdown(_socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was faster

    # -- bytes ---------------------------------------------------------------------

    async def recv(self, size: int, patience: float, *, at_once: bool = True) -> bytes:
        """Receive up to `size` bytes; empty at the end, whatever ended it."""
        self.expires = now() + patience
        try:
            while True:
                if at_once:
                    try:
                        return self.sock.recv(size)
                    except BlockingIOError:
                        pass
                at_once = True
                await readable(self.fd)
        except OSError:
            return b""
        finally:
            self.expires = _FOREVER

    async def send(self, data: bytes) -> None:
        """
        Send everything.

        Raises:
            ClientGone: the client hung up.
        """
        try:
            try:
                sent = self.sock.send(data)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                await self._send_rest([memoryview(data)[sent:]])
        except OSError as failure:
            raise ClientGone(failure.strerror) from None

    async def send_parts(self, parts: list[bytes | memoryview]) -> None:
        """
        Send several buffers without joining them.

        Raises:
            ClientGone: the client hung up.
        """
        try:
            await self._send_rest([memoryview(part) for part in parts])
        except OSError as failure:
            raise ClientGone(failure.strerror) from None

    async def _send_rest(self, views: list[memoryview]) -> None:
        try:
            while views:
                try:
                    sent = self.sock.sendmsg(views)
                except BlockingIOError:
                    self.expires = now() + self.patience.stall
                    await writable(self.fd)
                    continue
                while views and sent >= len(views[0]):
                    sent -= len(views.pop(0))
                if sent:
                    views[0] = views[0][sent:]
        finally:
            self.expires = _FOREVER

    # -- requests --------------------------------------------------------------------

    async def run(self) -> None:
        """Answer requests until the connection ends."""
        try:
            while await self._one():
                pass
        except ClientGone:
            pass
        finally:
            self.server.connections.discard(self)
            current_loop().forget(self.fd)
            self.sock.close()

    async def _one(self) -> bool:
        """Answer one request; say whether another may follow."""
        self.waiting = True
        try:
            head = await self._head()
        except ProtocolError as error:
            await self._refuse(error)
            return False
        if head is None:
            return False
        self.waiting = False
        self.server.activity += 1
        self.keep = head.keep and not self.server.closing
        request = ServerRequest(self, head)
        reply = ServerReply(self, request)
        await self.server.handle(request, reply)
        self.server.activity += 1
        if not reply.finished:
            self._reset_if_unframed(reply)
            return False
        if self.keep and await request.drain():
            return True
        if self.buffer or not request.complete:
            await self._linger()
        return False

    async def _head(self) -> RequestHead | None:
        """Receive a head; None when the client is done."""
        buffer = self.buffer.lstrip(b"\r\n")  # RFC 9112 §2.2
        scanned = 0
        until = now() + self.patience.head
        while True:
            if buffer:
                end = buffer.find(b"\r\n\r\n", scanned)
                if end > MAX_HEAD or (end < 0 and len(buffer) > MAX_HEAD):
                    raise ProtocolError(f"the head is longer than {MAX_HEAD} bytes", 431)
                if end >= 0:
                    self.buffer = buffer[end + 4 :]
                    return parse_request(buffer[:end])
                scanned = max(0, len(buffer) - 3)
                data = await self.recv(SMALL, until - now())
            else:
                data = await self.recv(SMALL, self.patience.idle, at_once=False)
                until = now() + self.patience.head
            if not data:
                return None
            buffer = buffer + data if buffer else data.lstrip(b"\r\n")

    async def _refuse(self, error: ProtocolError) -> None:
        body = encode({"code": "BAD_REQUEST", "message": str(error)})
        head = render_head(
            status_line(error.status),
            [
                ("Content-Type", "application/json"),
                ("Content-Length", str(len(body))),
                ("X-Request-ID", os.urandom(16).hex()),
                ("Connection", "close"),
            ],
        )
        await self.send(head + body)
        await self._linger()

    async def _linger(self) -> None:
        """Let the client read the last answer before its unread bytes turn the close into a reset."""
        try:
            self.sock.shutdown(_socket.SHUT_WR)
        except OSError:
            return
        until = now() + self.patience.linger
        left = LINGER
        while left > 0 and now() < until:
            data = await self.recv(SMALL, until - now())
            if not data:
                return
            left -= len(data)

    def _reset_if_unframed(self, reply: ServerReply) -> None:
        """A body that only the close ends must not look complete when it is not."""
        if reply.started and reply.close_delimited:
            self.sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


class ServerRequest(Request):
    """A request on a connection."""

    __slots__ = ("_connection", "_continue", "_decoder", "_left", "head")

    def __init__(self, connection: Connection, head: RequestHead) -> None:
        self._connection = connection
        self.head = head
        self.method = head.method
        self.headers = head.headers
        self.params = {}
        self.peer = connection.peer
        self.length = head.length
        self._left = head.length or 0
        self._decoder = ChunkedDecoder() if head.chunked else None
        self._continue = head.expects
        self.retarget(head.target)
        given = self.header("x-request-id")
        if given is not None and 0 < len(given) <= 128 and given.isascii() and given.isprintable():
            self.id = given
        else:
            self.id = os.urandom(16).hex()

    def retarget(self, target: bytes) -> None:
        """Take another target (the proxy's local alias)."""
        self.target = target
        path, query = split_target(target)
        self.path = percent_text(path)
        self.query = parse_query(query) if query else {}

    # -- the body ------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether the body has been read to its end."""
        return self._decoder.done if self._decoder is not None else not self._left

    @property
    def refusable(self) -> bool:
        """Whether the unread body is small enough to be read away."""
        return self.complete or (not self._continue and self._left <= DRAIN)

    async def _ask(self) -> None:
        """Tell a client that waits for it to send its body (RFC 9110 §10.1.1)."""
        self._continue = False
        if not self._connection.buffer:
            await self._connection.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _receive(self, size: int) -> bytes:
        connection = self._connection
        data = connection.buffer
        if data:
            connection.buffer = b""
            return data
        if self._continue:
            await self._ask()
        data = await connection.recv(size, connection.patience.body)
        if not data:
            raise ClientGone("the request's body broke off")
        return data

    async def _pieces(self, limit: int) -> list[bytes]:
        """Receive some of the body, at most `limit` bytes; an empty list at its end."""
        decoder = self._decoder
        connection = self._connection
        if decoder is None:
            if not self._left:
                return []
            want = min(self._left, limit)
            data = await self._receive(want)
            if len(data) > want:
                connection.buffer = data[want:]
                data = data[:want]
            self._left -= len(data)
            return [data]
        data = b""
        while not decoder.done:
            data += await self._receive(limit)
            try:
                pieces, used = decoder.feed(data, limit)
            except ProtocolError as error:
                connection.keep = False
                raise InvalidBody(f"the chunked body is malformed: {error}") from None
            data = data[used:]
            if pieces or decoder.done:
                connection.buffer = data
                return pieces
        return []

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            pieces = await self._pieces(PIECE)
            if not pieces:
                return
            for piece in pieces:
                yield piece

    async def read_into(self, view: memoryview) -> int:
        connection = self._connection
        decoder = self._decoder
        direct = self._left if decoder is None else decoder.left
        if connection.buffer or direct < SMALL:
            pieces = await self._pieces(len(view))
            at = 0
            for piece in pieces:
                view[at : at + len(piece)] = piece
                at += len(piece)
            return at
        if self._continue:
            await self._ask()
        want = view[: min(direct, len(view))]
        while True:
            try:
                count = connection.sock.recv_into(want)
            except BlockingIOError:
                connection.expires = now() + connection.patience.body
                try:
                    await readable(connection.fd)
                finally:
                    connection.expires = _FOREVER
                continue
            except OSError:
                count = 0
            if not count:
                raise ClientGone("the request's body broke off")
            self._account(count)
            return count

    def _account(self, count: int) -> None:
        if self._decoder is None:
            self._left -= count
        else:
            self._decoder.skip(count)

    async def copy_to(self, fd: int, count: int) -> int:
        moved = 0
        view = None
        pipe: tuple[int, int] | None = None
        try:
            while moved < count:
                left = self._left if self._decoder is None else self._decoder.left
                if left >= SMALL and not self._connection.buffer and pipe is None and view is None:
                    pipe = _splice_pipe()
                if left >= SMALL and not self._connection.buffer and pipe is not None:
                    done = await self._splice(pipe, fd, min(count - moved, left, 1 << 20))
                    if done < 0:
                        os.close(pipe[0])
                        os.close(pipe[1])
                        pipe = None
                        view = memoryview(bytearray(1 << 20))
                        continue
                else:
                    if view is None:
                        view = memoryview(bytearray(min(1 << 20, max(SMALL, count))))
                    done = await self.read_into(view[: min(len(view), count - moved)])
                    if not done:
                        break
                    _write_whole(fd, view[:done])
                moved += done
                await checkpoint()
        finally:
            if pipe is not None:
                os.close(pipe[0])
                os.close(pipe[1])
        return moved

    async def _splice(self, pipe: tuple[int, int], fd: int, count: int) -> int:
        """Move up to `count` bytes socket → pipe → file; -1 when the kernel cannot."""
        connection = self._connection
        if self._continue:
            await self._ask()
        while True:
            try:
                held = os.splice(connection.fd, pipe[1], count, flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK)  # type: ignore[attr-defined,unused-ignore]
                break
            except BlockingIOError:
                connection.expires = now() + connection.patience.body
                try:
                    await readable(connection.fd)
                finally:
                    connection.expires = _FOREVER
            except OSError as failure:
                if failure.errno in {errno.EINVAL, errno.ENOSYS, errno.EPERM}:
                    return -1
                held = 0
        if not held:
            raise ClientGone("the request's body broke off")
        self._account(held)
        left = held
        while left:
            try:
                left -= os.splice(pipe[0], fd, left, flags=os.SPLICE_F_MOVE)  # type: ignore[attr-defined,unused-ignore]
            except OSError as failure:
                if failure.errno not in {errno.EINVAL, errno.ENOSYS, errno.EPERM}:
                    raise
                data = os.read(pipe[0], left)  # a file system that cannot be spliced into
                _write_whole(fd, memoryview(data))
                left -= len(data)
        return held

    async def body(self, limit: int = 8 << 20) -> bytes:
        if self._left > limit:
            raise PayloadTooLarge(f"the body has {self._left} bytes, {limit} are allowed")
        pieces: list[bytes] = []
        size = 0
        while True:
            more = await self._pieces(PIECE)
            if not more:
                break
            for piece in more:
                size += len(piece)
                pieces.append(piece)
            if size > limit:
                raise PayloadTooLarge(f"the body has more than {limit} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def json(self) -> Any:
        try:
            return decode(await self.body())
        except ValueError as error:
            raise InvalidBody(f"the body is not JSON: {error}") from None

    async def drain(self) -> bool:
        """Read a small rest of the body away; say whether the connection can serve on."""
        if self.complete:
            return True
        if not self.refusable:
            return False
        left = DRAIN
        try:
            while left > 0:
                pieces = await self._pieces(PIECE)
                if not pieces:
                    return True
                left -= sum([len(piece) for piece in pieces])
        except (ClientGone, BoxwrightError):
            return False
        return self.complete


def _splice_pipe() -> tuple[int, int] | None:
    if not hasattr(os, "splice"):
        return None
    import fcntl

    ends = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << 20)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        pass  # unprivileged users have a limit on pipe memory; the usual size works too
    return ends


def _write_whole(fd: int, view: memoryview) -> None:
    while view:
        view = view[os.write(fd, view) :]


class ServerReply(Reply):
    """The reply on a connection.

    Attributes:
        finished: whether it was completed; if not, the connection is cut.
        switched: whether the connection was handed over.
        close_delimited: whether only the connection's end ends the body.
    """

    __slots__ = ("_connection", "_request", "close_delimited", "finished", "switched")

    def __init__(self, connection: Connection, request: ServerRequest) -> None:
        self.started = False
        self.finished = False
        self.switched = False
        self.close_delimited = False
        self._connection = connection
        self._request = request

    def _head(
        self, status: int, headers: list[tuple[str, str]], framing: list[tuple[str, str]], reason: str | None
    ) -> bytes:
        if self.started:
            raise RuntimeError("a reply is begun only once")
        connection = self._connection
        fields = [*headers, *framing]
        if not any(name.lower() == "x-request-id" for name, _ in headers):
            fields.append(("X-Request-ID", self._request.id))
        if connection.keep and not self._request.refusable:
            connection.keep = False
        if not connection.keep:
            fields.append(("Connection", "close"))
        elif self._request.head.minor == 0:
            fields.append(("Connection", "keep-alive"))
        data = render_head(status_line(status, reason), fields)
        self.started = True
        return data

    async def empty(self, status: int = 200) -> None:
        await self.send(status, [], b"")

    async def json(self, value: object, status: int = 200) -> None:
        await self.send(status, [("Content-Type", "application/json")], encode(value))

    async def send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        head = self._head(status, headers, [("Content-Length", str(len(body)))], None)
        if not body or self._request.method == "HEAD":
            await self._connection.send(head)
        elif len(body) <= SMALL:
            await self._connection.send(head + body)
        else:
            await self._connection.send_parts([head, body])
        self.finished = True

    async def start(
        self,
        status: int,
        headers: list[tuple[str, str]],
        length: int | None = None,
        *,
        reason: str | None = None,
        bodiless: bool = False,
    ) -> ServerBody:
        framing: list[tuple[str, str]] = []
        chunked = False
        if not bodiless:
            if length is not None:
                framing.append(("Content-Length", str(length)))
            elif self._request.head.minor == 1:
                framing.append(("Transfer-Encoding", "chunked"))
                chunked = True
            else:
                self._connection.keep = False
                self.close_delimited = True
        silent = bodiless or self._request.method == "HEAD"
        head = self._head(status, headers, framing, reason)
        return ServerBody(self, self._connection, head, length, chunked, silent)

    async def file(
        self, status: int, headers: list[tuple[str, str]], fd: int, offset: int, count: int
    ) -> None:
        head = self._head(status, headers, [("Content-Length", str(count))], None)
        connection = self._connection
        if self._request.method == "HEAD":
            count = 0
        if 0 < count <= SMALL:
            data = os.pread(fd, count, offset)
            await connection.send(head + data)
            if len(data) < count:
                return  # the file shrank: what was promised cannot be kept, so the connection is cut
            count = 0
        else:
            await connection.send(head)
        turn = 0
        while count:
            try:
                sent = os.sendfile(connection.fd, fd, offset, min(count, 1 << 20))
            except BlockingIOError:
                connection.expires = now() + connection.patience.stall
                try:
                    await writable(connection.fd)
                except OSError as failure:
                    raise ClientGone(failure.strerror) from None
                finally:
                    connection.expires = _FOREVER
                continue
            except OSError as failure:
                if failure.errno in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ETIMEDOUT}:
                    raise ClientGone(failure.strerror) from None
                if failure.errno not in {errno.EINVAL, errno.ENOSYS, errno.EOVERFLOW}:
                    raise
                # A file that cannot be mapped (/proc, some FUSE): through our own hands.
                data = os.pread(fd, min(count, PIECE), offset)
                await connection.send(data)
                sent = len(data)
            if not sent:
                return  # the file shrank
            offset += sent
            count -= sent
            turn += 1
            if turn % 4 == 0:
                await checkpoint()
        self.finished = True

    async def gone(self) -> None:
        connection = self._connection
        while True:
            try:
                await readable(connection.fd)
                data = connection.sock.recv(SMALL)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            connection.buffer += data
            while len(connection.buffer) > PIECE:
                await sleep(connection.patience.stall)  # too much was sent ahead to look behind it

    async def switch(self, head: bytes) -> tuple[_socket.socket, bytes]:
        connection = self._connection
        if self.started:
            raise RuntimeError("a reply is begun only once")
        self.started = True
        connection.keep = False
        await connection.send(head)
        self.finished = True
        self.switched = True
        rest, connection.buffer = connection.buffer, b""
        return connection.sock, rest


class ServerBody(Body):
    """A body on a connection."""

    __slots__ = ("_ahead", "_chunked", "_connection", "_left", "_reply", "_sending", "_silent", "_stuck")

    def __init__(
        self,
        reply: ServerReply,
        connection: Connection,
        head: bytes,
        length: int | None,
        chunked: bool,
        silent: bool,
    ) -> None:
        self._reply = reply
        self._connection = connection
        self._ahead = head  # goes before the next piece
        self._left = length
        self._chunked = chunked
        self._silent = silent
        self._sending = False
        self._stuck = False

    def _count(self, size: int) -> None:
        if self._left is not None:
            if size > self._left:
                raise RuntimeError("a body is longer than was declared")
            self._left -= size

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        size = len(data)
        if not size or self._silent:
            return
        self._count(size)
        ahead = self._ahead
        self._ahead = b""
        self._stuck = False
        self._sending = True
        try:
            if size <= SMALL:
                if self._chunked:
                    await self._connection.send(b"".join((ahead, b"%x\r\n" % size, data, b"\r\n")))
                else:
                    await self._connection.send(b"".join((ahead, data)))
            elif self._chunked:
                await self._connection.send_parts([b"%b%x\r\n" % (ahead, size), memoryview(data), b"\r\n"])
            else:
                await self._connection.send_parts([ahead, memoryview(data)])
        finally:
            self._sending = False

    async def flush(self) -> None:
        ahead = self._ahead
        if ahead:
            self._ahead = b""
            self._stuck = False
            self._sending = True
            try:
                await self._connection.send(ahead)
            finally:
                self._sending = False

    def offer(self, data: bytes) -> bool:
        if self._sending or self._stuck or self._silent or not data or self._left is not None:
            return False
        piece = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
        piece = self._ahead + piece
        try:
            sent = self._connection.sock.send(piece)
        except BlockingIOError:
            return False
        except OSError as failure:
            raise ClientGone(failure.strerror) from None
        self._ahead = piece[sent:]
        self._stuck = bool(self._ahead)
        return True

    async def finish(self, last: bytes = b"") -> None:
        size = len(last)
        ahead = self._ahead
        self._ahead = b""
        self._sending = True
        if self._silent:
            data = ahead
        else:
            self._count(size)
            if self._left:
                raise RuntimeError("a body is shorter than was declared")
            if self._chunked:
                data = b"%b%x\r\n%b\r\n0\r\n\r\n" % (ahead, size, last) if size else ahead + b"0\r\n\r\n"
            else:
                data = ahead + last
        if data:
            await self._connection.send(data)
        self._reply.finished = True
