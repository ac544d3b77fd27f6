"""One request and its reply, as every route sees them.

A route is `async def route(request: Request, reply: Reply, services: Services) -> None`.
It raises from `specs.errors` to refuse; once `Reply.start` was called an error can only be
told inside the stream or by cutting the connection.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import AsyncIterator
    from typing import Any


class Request:
    """A request whose head has been read; the body is read on demand.

    Attributes:
        method: the verb, as sent.
        target: the raw request target in origin form, never decoded.
        path: the target's path, percent-decoded exactly once (UTF-8, surrogateescape).
        query: the target's query, decoded once (`+` is a space), in order, repeated keys kept.
        headers: (lower-case name, value) pairs in order, latin-1.
        params: the values of the route's `{placeholders}`.
        peer: the client's address, without a port.
        id: what `X-Request-ID` says on the reply.
        length: bytes of the body as declared; None when chunked or absent.
    """

    __slots__ = ("headers", "id", "length", "method", "params", "path", "peer", "query", "target")

    method: str
    target: bytes
    path: str
    query: dict[str, list[str]]
    headers: list[tuple[str, str]]
    params: dict[str, str]
    peer: str
    id: str
    length: int | None

    def header(self, name: str) -> str | None:
        """Return the first value of a header, by lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def first(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else None

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body's bytes as they arrive, de-chunked, in pieces of at most 256 KiB."""
        raise NotImplementedError

    async def read_into(self, view: memoryview) -> int:
        """
        Receive some bytes of the body straight into `view`; 0 at the body's end.

        One reused buffer of about 1 MiB makes this the fast way to take an upload apart.
        """
        raise NotImplementedError

    async def copy_to(self, fd: int, count: int) -> int:
        """
        Move up to `count` bytes of the body into an open file without passing them through Python.

        Uses splice(2) where the body's length was declared and the kernel can. Returns how many
        bytes were moved; fewer than `count` only at the body's end.
        """
        raise NotImplementedError

    async def body(self, limit: int = 8 << 20) -> bytes:
        """Read the whole body.

        Raises:
            PayloadTooLarge: it is longer than `limit` bytes.
        """
        raise NotImplementedError

    async def json(self) -> Any:
        """Read and decode a JSON body.

        Raises:
            InvalidBody: it is not JSON; the message says where.
        """
        raise NotImplementedError


class Body:
    """A reply's body being written piece by piece."""

    __slots__ = ()

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send one piece (one chunk on the wire), waiting while the client is slow.

        The first piece travels together with the head.

        Raises:
            ClientGone: the client hung up; nothing more can be told.
        """
        raise NotImplementedError

    async def flush(self) -> None:
        """Send the head now if no piece has been written yet.

        Raises:
            ClientGone: the client hung up.
        """
        raise NotImplementedError

    def offer(self, data: bytes) -> bool:
        """
        Send one piece if nothing else is being sent and the socket has room, without waiting.

        For heartbeats: never between the halves of another piece. What did not fit goes
        ahead of the next piece. Returns whether the piece was taken.
        """
        raise NotImplementedError

    async def finish(self, last: bytes = b"") -> None:
        """End the body properly; `last` is a final piece that travels with the end.

        Raises:
            ClientGone: the client hung up.
        """
        raise NotImplementedError


class ClientGone(Exception):
    """The client closed its connection while we were talking to it."""


class Reply:
    """The answer to one request."""

    __slots__ = ("started",)

    started: bool

    async def empty(self, status: int = 200) -> None:
        """Answer without a body (`Content-Length: 0`)."""
        raise NotImplementedError

    async def json(self, value: object, status: int = 200) -> None:
        """Answer with compact ASCII JSON."""
        raise NotImplementedError

    async def send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer with a complete body; Content-Length is added."""
        raise NotImplementedError

    async def start(
        self,
        status: int,
        headers: list[tuple[str, str]],
        length: int | None = None,
        *,
        reason: str | None = None,
        bodiless: bool = False,
    ) -> Body:
        """
        Begin a body. The head is sent with the first piece; `Body.flush` sends it sooner.

        Args:
            status: the status code.
            headers: without framing; this adds Content-Length or Transfer-Encoding.
            length: chunked when None, otherwise exactly so many bytes.
            reason: another phrase than the usual one.
            bodiless: an answer that has no body by its nature (to HEAD, or 304): the headers
                go out as given and nothing is written after them.
        """
        raise NotImplementedError

    async def file(
        self, status: int, headers: list[tuple[str, str]], fd: int, offset: int, count: int
    ) -> None:
        """Answer with `count` bytes of an open file from `offset`, by sendfile(2)."""
        raise NotImplementedError

    async def gone(self) -> None:
        """Return when the client has hung up (use it in a task of its own, cancel it when done).

        Only after the request's body has been read to its end.
        """
        raise NotImplementedError

    async def switch(self, head: bytes) -> tuple[socket, bytes]:
        """
        Send `head` (a complete 101 answer) and hand the connection over.

        Returns:
            The socket and the bytes the client has already sent after its request. The route
            may use both until it returns; the connection is closed then.
        """
        raise NotImplementedError
