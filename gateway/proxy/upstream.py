"""HTTP/1.1 connections to the daemons in the sandboxes, kept and reused.

A connection is an `asyncio.Protocol` around llhttp's response parser: the request's bytes go out exactly as
given, the body's bytes come back exactly as framed, nothing is decoded, retried or added behind the caller's
back, and reading pauses while the caller is slower than the sandbox. (aiohttp's client re-encodes header
values as UTF-8, upper-cases methods and may repeat a request whose streamed body is already spent.)

Idle connections are kept per sandbox, not per address: an address that the engine gives to the next sandbox
must not find the previous one's connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

import httptools

from gateway.config import ProxySettings
from gateway.operations.services import ProxyTarget
from gateway.proxy.headers import Header, transfer_codings, value_of
from gateway.proxy.target import authority, candidates
from gateway.sandboxes.model import Address
from specs.errors import (
    BackendConnectionFailed,
    BackendResponseFailed,
    BackendTimeout,
    BoxwrightError,
    TooMany,
)

_PAUSE_AT: Final = 512 * 1024  # bytes buffered before reading stops
_RESUME_AT: Final = 128 * 1024
_WRITE_HIGH: Final = 512 * 1024  # bytes the transport may hold before writers wait
_HEAD_LIMIT: Final = 256 * 1024  # bytes of one response head
_DIRECT_SECONDS: Final = 1.0  # patience with a sandbox's own address when a published one is left
_IDLE_SECONDS: Final = 15.0  # shorter than any server's own patience, so a reused connection is a live one
_IDLE_PER_SANDBOX: Final = 64

D = TypeVar("D", bound="Dialled")


class StaleConnection(BackendResponseFailed):
    """A reused connection turned out to be closed before a single byte of answer came."""


class _SurplusError(Exception):
    """Stops the parser behind the end of an answer."""


class ResponseHead(NamedTuple):
    status: int
    headers: list[Header]


class Dialled(asyncio.Protocol):
    """What every connection to a sandbox has: a transport, waiting writers, and somebody who counts it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._on_lost: Callable[[Dialled], None] | None = None
        self._may_write: asyncio.Future[None] | None = None
        self.authority = b""

    @property
    def closed(self) -> bool:
        return self._lost or self._transport is None or self._transport.is_closing()

    async def write(self, data: bytes) -> None:
        """Send bytes; wait while the sandbox is slow. A broken connection shows when reading, not here."""
        if self._transport is None or self.closed:
            return
        self._transport.write(data)
        if self._may_write is not None:
            await self._may_write

    def abort(self) -> None:
        """Drop the connection at once; the sandbox sees that its answer is no longer wanted."""
        if self._transport is not None:
            self._transport.abort()

    def watch_loss(self, callback: Callable[[Dialled], None]) -> None:
        """Have `callback` called once, when the connection is gone."""
        if self._lost:
            callback(self)
        else:
            self._on_lost = callback

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports satisfy the interface without inheriting from it.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            # A stream may be silent for hours, a vanished host must not be: the kernel asks.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
                if hasattr(socket, option):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._lost = True
        self.resume_writing()
        if self._on_lost is not None:
            self._on_lost(self)

    def pause_writing(self) -> None:
        if self._may_write is None:
            self._may_write = self._loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._may_write = self._may_write, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class Connection(Dialled):
    """One HTTP/1.1 connection; at any moment it carries at most one exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges = 0
        self.idle_since = 0.0
        self._busy = False
        self._reset()

    def _reset(self) -> None:
        self._head: ResponseHead | None = None
        self._status = 0
        self._headers: list[Header] = []
        self._head_bytes = 0
        self._chunks: list[bytes] = []
        self._buffered = 0
        self._reading_paused = False
        self._bodyless = False
        self._until_eof = False
        self._complete = False
        self._keep = False
        self._heard = False
        self._continued = False
        self._sent = False
        self._error: BoxwrightError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._leave: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # -- the exchange, as its owner sees it ------------------------------------------------

    @property
    def reusable(self) -> bool:
        """Whether the exchange ended so that another may follow on this connection."""
        return self._complete and self._keep and self._sent and not self._chunks and not self.closed

    @property
    def exhausted(self) -> bool:
        """Whether everything of a complete body was read."""
        return self._complete and not self._chunks

    def begin(self, head: bytes, *, bodyless: bool) -> None:
        """Send a request's head; `bodyless` says that no answer to it has a body (HEAD)."""
        self._reset()
        self._bodyless = bodyless
        self._busy = True
        self.exchanges += 1
        self._parser = httptools.HttpResponseParser(self)
        if self._transport is None or self.closed:
            self._fail(self._lost_error())
            return
        self._transport.write(head)

    def request_sent(self) -> None:
        """Note that the request is complete."""
        self._sent = True

    def expect_head_within(self, seconds: float) -> None:
        """Give the sandbox this long, from now, to begin its answer."""
        self.stop_deadline()
        if self._head is None and self._error is None:
            self._deadline = self._loop.call_later(seconds, self._head_overdue, seconds)

    async def wait_continue(self, seconds: float) -> bool:
        """Wait for leave to send the body; return False when the final answer (or the end) came instead."""
        if self._head is None and self._error is None and not self._continued:
            self._leave = self._loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._leave
            self._leave = None
        return self._head is None and self._error is None

    async def head(self) -> ResponseHead:
        """
        Wait for the response's head.

        Raises:
            BackendTimeout, BackendResponseFailed, StaleConnection
        """
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._head

    async def read(self) -> bytes:
        """
        Return what has arrived of the body, waiting for at least one byte; empty at its end.

        Raises:
            BackendResponseFailed: the connection broke or turned to garbage before the body's end.
        """
        while True:
            if self._chunks:
                data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                self._buffered = 0
                if self._reading_paused and self._transport is not None:
                    self._reading_paused = False
                    self._transport.resume_reading()
                return data
            if self._error is not None:
                raise self._error
            if self._complete:
                return b""
            await self._wait()

    def fail(self, error: BoxwrightError) -> None:
        """End the exchange from outside and drop the connection."""
        self._fail(error)

    def rest(self, now: float) -> None:
        """Put the connection between two exchanges."""
        self.stop_deadline()
        self._busy = False
        self.idle_since = now

    def abort(self) -> None:
        self.stop_deadline()
        self._busy = False
        super().abort()

    # -- asyncio.Protocol --------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._busy or self._complete:
            # Bytes nobody asked for: what follows them cannot be told from an answer.
            self._keep = False
            if self._transport is not None:
                self._transport.close()
            return
        self._heard = True
        if self._head is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(BackendResponseFailed("the service switched protocols without being asked"))
        except httptools.HttpParserError:
            self._fail(BackendResponseFailed("the service answered with something that is not HTTP"))
        else:
            if self._head is None and self._head_bytes > _HEAD_LIMIT:
                self._fail(BackendResponseFailed(f"the answer's headers exceed {_HEAD_LIMIT} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._busy and not self._complete:
            if self._head is not None and self._until_eof and exc is None and self._error is None:
                self._complete = True
                self._wake()
            else:
                self._fail(self._lost_error())
        super().connection_lost(exc)

    # -- llhttp's callbacks ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._keep = False  # a second answer to one request
            raise _SurplusError
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # else: a trailer, which HTTP lets a proxy drop
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return
        coding = transfer_codings(self._headers)
        if not 200 <= status <= 599 or (coding is not None and coding.strip().lower() != b"chunked"):
            self._fail(
                BackendResponseFailed(f"the service answered with an unusable status or coding ({status})")
            )
            return
        self.stop_deadline()
        self._bodyless = self._bodyless or status in {204, 304}
        self._until_eof = coding is None and value_of(self._headers, b"content-length") is None
        self._keep = self._parser.should_keep_alive()
        self._head = ResponseHead(status, self._headers)
        if self._bodyless:
            self._complete = True
        self._wake()

    def on_body(self, body: bytes) -> None:
        if self._complete or self._error is not None:
            self._keep = False
            return
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > _PAUSE_AT and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._head is None:
            self._continued = True  # an interim answer
        elif self._error is None:
            self._complete = True
        self._wake()

    # -- inner -------------------------------------------------------------------------------

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._leave is not None and not self._leave.done():
            self._leave.set_result(None)

    def stop_deadline(self) -> None:
        """Take the deadline for the head back."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_overdue(self, seconds: float) -> None:
        self._fail(BackendTimeout(f"the service did not begin to answer within {seconds:g} s"))

    def _lost_error(self) -> BoxwrightError:
        if self._heard:
            return BackendResponseFailed("the service closed the connection in the middle of its answer")
        if self.exchanges > 1:
            return StaleConnection("the service closed the connection without an answer")
        return BackendResponseFailed("the service closed the connection without an answer")

    def _fail(self, error: BoxwrightError) -> None:
        if self._error is None and not self._complete:
            self._error = error
        self._keep = False
        self.stop_deadline()
        self._wake()
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """Opens connections to sandboxes and keeps the idle ones for a while.

    Sandboxes share nothing here, so a slow one costs the others nothing.
    """

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._idle: dict[str, list[Dialled]] = {}
        self._open: dict[str, int] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._direct = settings.resolve_internal

    async def acquire(self, target: ProxyTarget, *, fresh: bool = False) -> Connection:
        """
        Return a connection to the sandbox's execd: an idle one, or a new one.

        Args:
            target: which sandbox, and where it answers.
            fresh: do not take an idle one.

        Raises:
            BackendConnectionFailed, BackendTimeout, TooMany: as `open`.
        """
        idle = self._idle.get(target.sandbox_id)
        while idle and not fresh:
            connection = idle.pop()
            if isinstance(connection, Connection) and not connection.closed:
                return connection
        return await self.open(target, Connection)

    def release(self, target: ProxyTarget, connection: Connection) -> None:
        """Take a connection back; it is kept when another exchange may follow on it."""
        idle = self._idle.setdefault(target.sandbox_id, [])
        if not connection.reusable or len(idle) >= _IDLE_PER_SANDBOX:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.rest(loop.time())
        idle.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(_IDLE_SECONDS, self._sweep)

    async def open(self, target: ProxyTarget, factory: Callable[[], D]) -> D:
        """
        Open a connection to the sandbox's execd.

        Raises:
            BackendConnectionFailed: nothing listens there.
            BackendTimeout: the address does not answer.
            TooMany: the sandbox has as many connections as it may have.
        """
        sandbox_id, limit = target.sandbox_id, self._settings.connections_per_sandbox
        if self._open.get(sandbox_id, 0) >= limit:
            idle = self._idle.get(sandbox_id)
            if not idle:
                raise TooMany(
                    f"sandbox {sandbox_id} has {limit} connections open through this proxy; close some"
                )
            idle.pop(0).abort()
        self._open[sandbox_id] = self._open.get(sandbox_id, 0) + 1
        try:
            connection = await self._dial(target.address, factory)
        except BaseException:
            self._forget(sandbox_id)
            raise
        connection.watch_loss(partial(self._lost, sandbox_id))
        return connection

    async def close(self) -> None:
        """Drop every idle connection."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for idle in list(self._idle.values()):
            for connection in list(idle):
                connection.abort()
        self._idle.clear()

    async def _dial(self, address: Address, factory: Callable[[], D]) -> D:
        """
        Connect at the sandbox's own address or at its published port.

        A refusal is an answer and final: the place was reached, and nothing listens. Which of the two
        addresses works is a fact about this machine, so it is remembered.
        """
        loop = asyncio.get_running_loop()
        places = candidates(address, internal=self._settings.resolve_internal)
        if not self._direct:
            places = places[::-1]
        for index, (host, port) in enumerate(places):
            last = index == len(places) - 1
            patience = self._settings.connect_timeout_seconds
            try:
                async with asyncio.timeout(patience if last else min(patience, _DIRECT_SECONDS)):
                    _, connection = await loop.create_connection(factory, host, port)
            except ConnectionRefusedError as error:
                raise BackendConnectionFailed("nothing listens where the sandbox should answer") from error
            except TimeoutError as error:
                if last:
                    raise BackendTimeout(
                        f"the sandbox's address did not answer within {patience:g} s"
                    ) from error
            except OSError as error:
                if last:
                    raise BackendConnectionFailed("the sandbox's address cannot be reached") from error
            else:
                if index:
                    self._direct = not self._direct
                connection.authority = authority(host, port)
                return connection
        raise BackendConnectionFailed("the sandbox has no address that this server can reach")

    def _lost(self, sandbox_id: str, connection: Dialled) -> None:
        idle = self._idle.get(sandbox_id)
        if idle and connection in idle:
            idle.remove(connection)
        self._forget(sandbox_id)

    def _forget(self, sandbox_id: str) -> None:
        left = self._open.get(sandbox_id, 0) - 1
        if left > 0:
            self._open[sandbox_id] = left
            return
        self._open.pop(sandbox_id, None)
        self._idle.pop(sandbox_id, None)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        limit = loop.time() - _IDLE_SECONDS
        for idle in self._idle.values():
            for connection in [c for c in idle if isinstance(c, Connection) and c.idle_since <= limit]:
                idle.remove(connection)
                connection.abort()
        self._sweeper = loop.call_later(_IDLE_SECONDS / 2, self._sweep) if any(self._idle.values()) else None
