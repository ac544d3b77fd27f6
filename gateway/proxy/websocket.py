"""One proxied WebSocket: messages both ways, each kind kept, ends told to the other side.

The sandbox is asked first and the caller accepted after, so that the caller learns the subprotocol that the
service chose; what the service sends in the same breath as its 101 waits in the connection. Frames are
handled by `websockets`' protocol core. Compression is not offered to the sandbox (a local hop).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, NamedTuple, cast

from starlette.types import Message, Receive, Scope, Send
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from gateway.config import ProxySettings
from gateway.operations.services import ProxyTarget
from gateway.proxy import closing
from gateway.proxy.headers import Header, render_request, request_headers
from gateway.proxy.http import forwarding
from gateway.proxy.target import ProxyPath, upstream_target
from gateway.proxy.upstream import Dialled, Pool
from specs.errors import BackendResponseFailed, BackendTimeout

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_CLOSE_SECONDS: Final = 5.0  # patience with the sandbox's half of the closing handshake
_PAUSE_AT: Final = 512 * 1024  # bytes of whole messages waiting for the caller before reading stops
_NOWHERE: Final = WebSocketURI(secure=False, host="sandbox", port=80, path="/", query="")

logger = logging.getLogger(__name__)


class End(NamedTuple):
    """How one side's half of the conversation ended."""

    code: int
    reason: str


class HandshakeRefused(BackendResponseFailed):
    """The service answered the handshake with something else than a valid 101.

    Attributes:
        answer: HTTP status it gave; 0 when there was none to speak of.
    """

    def __init__(self, message: str, answer: int) -> None:
        super().__init__(message)
        self.answer = answer


class SocketConnection(Dialled):
    """The sandbox's side of one WebSocket."""

    def __init__(self, subprotocols: list[str]) -> None:
        super().__init__()
        offered = [Subprotocol(name) for name in subprotocols]
        self._core = ClientProtocol(
            _NOWHERE,
            subprotocols=offered or None,
            max_size=MAX_MESSAGE_BYTES,
            logger=logger.getChild("frames"),
        )
        self._messages: deque[Message] = deque()
        self._buffered = 0
        self._parts: list[bytes] = []
        self._text = False
        self._paused = False
        self._discarding = False  # the caller is gone: what still comes only makes way for the close
        self._open = False
        self._refused: Exception | None = None
        self._end: End | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @property
    def subprotocol(self) -> str | None:
        return self._core.subprotocol

    def handshake_headers(self, offered: list[str]) -> list[Header]:
        """Return the headers that make a request a WebSocket handshake."""
        headers = [
            (b"Upgrade", b"websocket"),
            (b"Connection", b"Upgrade"),
            (b"Sec-WebSocket-Key", self._core.key.encode("ascii")),
            (b"Sec-WebSocket-Version", b"13"),
        ]
        if offered:
            headers.append((b"Sec-WebSocket-Protocol", ", ".join(offered).encode("latin-1")))
        return headers

    async def shake_hands(self, head: bytes, seconds: float) -> None:
        """
        Send the handshake and wait for the 101.

        Raises:
            HandshakeRefused, BackendTimeout
        """
        await self.write(head)
        try:
            async with asyncio.timeout(seconds):
                while not self._open:
                    if self._refused is not None or self._end is not None:
                        raise self._refusal()
                    await self._wait()
        except TimeoutError as error:
            raise BackendTimeout(f"the service did not answer the handshake within {seconds:g} s") from error

    async def receive(self) -> Message | End:
        """Return the next message for the caller, or the end."""
        while not self._messages:
            if self._end is not None:
                return self._end
            await self._wait()
        message = self._messages.popleft()
        self._buffered -= len(message.get("bytes") or message.get("text") or b"")
        if self._paused and not self._messages and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return message

    async def send(self, message: Message) -> None:
        """Send one message of the caller. After the sandbox closed, this does nothing."""
        if self._core.state is not State.OPEN:
            return
        data = message.get("bytes")
        if data is not None:
            self._core.send_binary(data)
        else:
            self._core.send_text(cast("str", message["text"]).encode("utf-8"))
        for piece in self._core.data_to_send():
            await self.write(piece)

    async def finish(self, end: End | None) -> None:
        """Close the sandbox's side: a close frame if one is due, patience for its echo, then drop it."""
        self._discarding = True
        self._messages.clear()
        try:
            if end is not None and self._core.state is State.OPEN:
                self._core.send_close(end.code, end.reason)
                self._flush()
            if self._core.state in {State.CLOSING, State.CLOSED} and not self.closed:
                if self._paused and self._transport is not None:
                    self._paused = False
                    self._transport.resume_reading()
                await asyncio.wait((self._gone,), timeout=_CLOSE_SECONDS)
        finally:
            self.abort()

    # -- asyncio.Protocol --------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._core.receive_data(data)
        self._handle()

    def eof_received(self) -> bool:
        self._core.receive_eof()
        self._handle()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_end(closing.ABNORMAL, "the sandbox's connection broke")
        if not self._gone.done():
            self._gone.set_result(None)
        super().connection_lost(exc)

    # -- inner -------------------------------------------------------------------------------

    def _handle(self) -> None:
        for event in self._core.events_received():
            if isinstance(event, Response):
                try:
                    self._core.process_response(event)
                except InvalidHandshake as error:
                    self._refused = error
                else:
                    self._open = True
            elif isinstance(event, Frame):
                self._frame(event)
        self._flush()
        if self._core.handshake_exc is not None and self._refused is None:
            self._refused = self._core.handshake_exc
        if self._core.parser_exc is not None:
            # The core has sent the fitting close frame (1002, 1007, 1009); the caller gets the same code.
            sent = self._core.close_sent
            self._note_end(
                sent.code if sent else closing.ABNORMAL, "the sandbox broke the WebSocket protocol"
            )
        self._wake()

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            received = self._core.close_rcvd
            assert received is not None
            self._note_end(received.code, received.reason)
            return
        if frame.opcode not in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
            return  # the core answers pings by itself
        if frame.opcode is not Opcode.CONT:
            self._text = frame.opcode is Opcode.TEXT
        self._parts.append(frame.data if isinstance(frame.data, bytes) else bytes(frame.data))
        if not frame.fin:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        if not self._text:
            self._push({"type": "websocket.send", "bytes": data}, len(data))
            return
        try:
            self._push({"type": "websocket.send", "text": data.decode("utf-8")}, len(data))
        except UnicodeDecodeError:
            self._core.fail(1007, "a text message is not UTF-8")
            self._note_end(1007, "the sandbox sent a text message that is not UTF-8")

    def _push(self, message: Message, size: int) -> None:
        if self._discarding:
            return
        self._messages.append(message)
        self._buffered += size
        if self._buffered > _PAUSE_AT and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        for piece in self._core.data_to_send():
            if piece:
                transport.write(piece)
            elif transport.can_write_eof() and not transport.is_closing():
                transport.write_eof()

    def _note_end(self, code: int, reason: str) -> None:
        if self._end is None:
            self._end = End(code, reason)
            self._wake()

    def _refusal(self) -> HandshakeRefused:
        if isinstance(self._refused, InvalidStatus):
            answer = self._refused.response.status_code
            return HandshakeRefused(f"the service refused the WebSocket handshake: HTTP {answer}", answer)
        if self._refused is not None:
            return HandshakeRefused("the service's answer to the WebSocket handshake is not valid", 0)
        return HandshakeRefused("the service closed the connection during the WebSocket handshake", 0)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def refuse(send: Send, code: int, reason: str) -> None:
    """Refuse a caller in a way that every client can read: accept, then close (lifecycle §1.4)."""
    try:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": code, "reason": closing.fit_reason(reason)})
    except OSError:
        logger.debug("caller left before it was refused")


class Relay:
    """One WebSocket between a caller and a port of a sandbox."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        path: ProxyPath,
        target: ProxyTarget,
        settings: ProxySettings,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._path = path
        self._port = path.port_number()
        self._target = target
        self._settings = settings

    async def run(self, pool: Pool) -> None:
        """
        Open the sandbox's side, accept the caller, carry messages until either side ends.

        Raises:
            BackendConnectionFailed, BackendTimeout, HandshakeRefused, TooMany: the caller is not accepted.
        """
        offered: list[str] = list(self._scope.get("subprotocols") or ())
        upstream = await pool.open(self._target, lambda: SocketConnection(offered))
        try:
            await upstream.shake_hands(
                self._handshake(upstream, offered), self._settings.answer_timeout_seconds
            )
            try:
                await self._send({"type": "websocket.accept", "subprotocol": upstream.subprotocol})
            except OSError:
                await upstream.finish(End(closing.GOING_AWAY, ""))
            else:
                await self._carry(upstream)
        finally:
            upstream.abort()

    def _handshake(self, upstream: SocketConnection, offered: list[str]) -> bytes:
        call = forwarding(self._scope, self._path, self._port, self._target, upstream.authority)
        headers = request_headers(self._scope["headers"], call, websocket=True)
        headers += upstream.handshake_headers(offered)
        target = upstream_target(self._port, self._path.rest, self._scope["query_string"])
        return render_request("GET", target, headers)

    async def _carry(self, upstream: SocketConnection) -> None:
        loop = asyncio.get_running_loop()
        down = loop.create_task(self._down(upstream))
        up = loop.create_task(self._up(upstream))
        end: End | None = End(closing.GOING_AWAY, "the proxy is stopping")
        try:
            await asyncio.wait((down, up), return_when=asyncio.FIRST_COMPLETED)
            end = up.result() if up.done() and up.exception() is None else None
        finally:
            down.cancel()
            up.cancel()
            await asyncio.wait((down, up))
            await upstream.finish(end)
        for task in (down, up):
            if not task.cancelled():
                task.result()

    async def _down(self, upstream: SocketConnection) -> None:
        """Carry the sandbox's messages to the caller, then its end."""
        try:
            while True:
                message = await upstream.receive()
                if isinstance(message, End):
                    code = closing.to_client(message.code)
                    reason = closing.fit_reason(message.reason)
                    await self._send({"type": "websocket.close", "code": code, "reason": reason})
                    return
                await self._send(message)
        except OSError:
            logger.debug("caller left: sandbox %s port %d", self._target.sandbox_id, self._port)

    async def _up(self, upstream: SocketConnection) -> End:
        """Carry the caller's messages to the sandbox; return how the caller ended."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.receive":
                try:
                    async with asyncio.timeout(self._settings.answer_timeout_seconds):
                        await upstream.send(message)
                except TimeoutError:
                    reason = "the service stopped reading"
                    await self._send({"type": "websocket.close", "code": closing.INTERNAL, "reason": reason})
                    return End(closing.GOING_AWAY, reason)
            elif message["type"] == "websocket.disconnect":
                # The HTTP server reports a connection that just vanished as 1005 too, but without a reason.
                vanished = "reason" not in message
                code = closing.ABNORMAL if vanished else message.get("code", closing.NO_STATUS)
                return End(closing.to_backend(code), closing.fit_reason(message.get("reason") or ""))


def refusal_code(error: Exception) -> int:
    """Return the close code for a caller whose socket could not be opened."""
    if isinstance(error, HandshakeRefused) and 0 < error.answer < 500:
        return closing.POLICY
    return closing.INTERNAL
