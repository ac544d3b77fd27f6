from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.typing import Origin, Subprotocol

from gateway.sandboxes.model import Address
from tests.integration.proxy.conftest import KEY, TOKEN, Gateway, Sandbox, read_head

Conversation = Callable[[ServerConnection], Awaitable[None]]


def dial(
    gateway: Gateway, path: str = "/v1/sandboxes/s1/proxy/8000/ws", key: str = KEY, **options: Any
) -> connect:
    headers = {"OPEN-SANDBOX-API-KEY": key} if key else {}
    options.setdefault("compression", None)
    options.setdefault("max_size", None)
    return connect(
        f"ws://{gateway.authority}{path}", additional_headers=headers, proxy=None, close_timeout=5, **options
    )


class Backend:
    """A WebSocket service behind execd."""

    def __init__(self) -> None:
        self.conversation: Conversation = self.echo
        self.seen: list[ServerConnection] = []
        self.ends: asyncio.Queue[tuple[int | None, str | None]] = asyncio.Queue()

    async def echo(self, connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async def serve(self, connection: ServerConnection) -> None:
        self.seen.append(connection)
        try:
            await self.conversation(connection)
            await connection.wait_closed()
        except ConnectionClosed:
            pass
        self.ends.put_nowait((connection.close_code, connection.close_reason))

    async def end(self) -> tuple[int | None, str | None]:
        async with asyncio.timeout(5):
            return await self.ends.get()


@pytest.fixture
async def backend(gateway: Gateway) -> AsyncIterator[Backend]:
    play = Backend()

    def choose(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return next((known for known in (Subprotocol("v2"), Subprotocol("v1")) if known in offered), None)

    async with serve(
        play.serve, "127.0.0.1", 0, select_subprotocol=choose, max_size=None, close_timeout=1
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        gateway.services.operations.address = Address("127.0.0.1", port, None, None)
        yield play


async def closed(connection: ClientConnection) -> tuple[int | None, str | None]:
    async with asyncio.timeout(5):
        await connection.wait_closed()
    return connection.close_code, connection.close_reason


async def test_kinds_of_messages_are_kept_apart(gateway: Gateway, backend: Backend) -> None:
    """Text comes back as text and bytes as bytes, the empty ones too, in order."""
    messages: list[str | bytes] = ["text", b"bytes", "", b"", "ünï", b"\xff\xfe"]
    async with dial(gateway) as client:
        for message in messages:
            await client.send(message)
        assert [await client.recv() for _ in messages] == messages


async def test_a_message_of_10_mb_passes(gateway: Gateway, backend: Backend) -> None:
    """Large messages pass both ways (R71)."""
    data = os.urandom(10_000_000)
    async with dial(gateway) as client:
        await client.send(data)
        assert await client.recv() == data


async def test_a_fragmented_message_arrives_whole(gateway: Gateway, backend: Backend) -> None:
    """Fragments of one message are one message."""

    async def fragments(connection: ServerConnection) -> None:
        await connection.send(["a", "b", "ü"])

    backend.conversation = fragments
    async with dial(gateway) as client:
        assert await client.recv() == "abü"


async def test_compression_of_the_caller_stops_at_the_proxy(gateway: Gateway, backend: Backend) -> None:
    """A caller that compresses is understood; the sandbox sees plain frames (R71)."""
    async with dial(gateway, compression="deflate") as client:
        await client.send("x" * 100_000)
        assert await client.recv() == "x" * 100_000
    assert "Sec-WebSocket-Extensions" not in backend.seen[0].request.headers  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["v1"], "v1"), (["v1", "v2"], "v2"), (["other", "v1"], "v1"), (["other"], None), (None, None)],
)
async def test_the_service_chooses_the_subprotocol(
    gateway: Gateway, backend: Backend, offered: list[Subprotocol] | None, chosen: str | None
) -> None:
    """What the caller offers reaches the service, and its choice reaches the caller (R71)."""
    async with dial(gateway, subprotocols=offered) as client:
        assert client.subprotocol == chosen


async def test_the_handshake_carries_what_belongs_to_the_service(gateway: Gateway, backend: Backend) -> None:
    """Origin, target and the proxy's headers reach the service; the platform's key does not (R106)."""
    path = "/v1/sandboxes/s1/proxy/8000/a%2Fb//c?x=%20+&x"
    async with dial(gateway, path, origin=Origin("https://app.example")):
        pass
    request = backend.seen[0].request
    assert request is not None
    assert request.path == "/proxy/8000/a%2Fb//c?x=%20+&x"
    assert request.headers["Origin"] == "https://app.example"
    assert request.headers["X-EXECD-ACCESS-TOKEN"] == TOKEN
    assert request.headers["X-Forwarded-Prefix"] == "/v1/sandboxes/s1/proxy/8000"
    assert request.headers["X-Forwarded-Proto"] == "http"
    assert KEY not in str(request.headers)


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (1000, "bye", (1000, "bye")),
        (1001, "", (1001, "")),
        (1011, "broke", (1011, "broke")),
        (4000, "ö" * 60, (4000, "ö" * 60)),
        (None, "", (1000, "")),
    ],
)
async def test_the_sandboxs_close_reaches_the_caller(
    gateway: Gateway, backend: Backend, code: int | None, reason: str, expected: tuple[int, str]
) -> None:
    """Code and reason are relayed, and what was said before the close arrives first (R70)."""

    async def leave(connection: ServerConnection) -> None:
        await connection.send("last words")
        connection.protocol.send_close(code, reason)
        connection.send_data()

    backend.conversation = leave
    async with dial(gateway) as client:
        assert await client.recv() == "last words"
        assert await closed(client) == expected
    await backend.end()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (1000, "bye", (1000, "bye")),
        (1001, "", (1001, "")),
        (1011, "broke", (1011, "broke")),
        (4000, "mine", (4000, "mine")),
        (None, "", (1000, "")),
    ],
)
async def test_the_callers_close_reaches_the_sandbox(
    gateway: Gateway, backend: Backend, code: int | None, reason: str, expected: tuple[int, str]
) -> None:
    """Code and reason are relayed, and what was said before the close arrives first (R70)."""
    heard: list[object] = []

    async def listen(connection: ServerConnection) -> None:
        async for message in connection:
            heard.append(message)

    backend.conversation = listen
    async with dial(gateway) as client:
        await client.send("last words")
        client.protocol.send_close(code, reason)
        client.send_data()
        assert await backend.end() == expected
        await closed(client)
    assert heard == ["last words"]


def reset(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


@pytest.mark.parametrize("how", ["reset", "eof"])
async def test_a_sandbox_that_vanishes_is_an_error_to_the_caller(
    gateway: Gateway, backend: Backend, how: str
) -> None:
    """An abnormal end of the sandbox's side is 1011 with a reason (R70)."""

    async def vanish(connection: ServerConnection) -> None:
        await connection.recv()
        if how == "reset":
            reset(connection.transport)
        else:
            connection.transport.close()

    backend.conversation = vanish
    async with dial(gateway) as client:
        await client.send("go")
        code, reason = await closed(client)
    assert code == 1011
    assert reason


async def test_a_caller_that_vanishes_is_going_away_to_the_sandbox(
    gateway: Gateway, backend: Backend
) -> None:
    """An abnormal end of the caller's side is 1001 (R70)."""
    client = await dial(gateway)
    await client.send("x")
    await client.recv()
    reset(client.transport)

    assert (await backend.end())[0] == 1001
    await client.wait_closed()


async def test_a_sandbox_that_breaks_the_protocol_is_closed_on_both_sides(
    gateway: Gateway, backend: Backend
) -> None:
    """A frame that is none ends both sides with 1002."""

    async def break_it(connection: ServerConnection) -> None:
        connection.transport.write(b"\xff\xff\xff\xff")

    backend.conversation = break_it
    async with dial(gateway) as client:
        assert (await closed(client))[0] == 1002
    assert (await backend.end())[0] == 1002


async def test_text_that_is_not_utf8_ends_with_1007(gateway: Gateway, backend: Backend) -> None:
    """A text message must be UTF-8 (RFC 6455 §8.1)."""

    async def lie(connection: ServerConnection) -> None:
        connection.transport.write(Frame(Opcode.TEXT, b"\xff").serialize(mask=False))

    backend.conversation = lie
    async with dial(gateway) as client:
        assert (await closed(client))[0] == 1007


@pytest.mark.parametrize(
    ("path", "key", "code"),
    [
        ("/v1/sandboxes/s1/proxy/8000/", "", 1008),
        ("/v1/sandboxes/s1/proxy/8000/", "wrong", 1008),
        ("/sandboxes/none/proxy/8000/", KEY, 1011),
        ("/sandboxes/paused/proxy/8000/", KEY, 1011),
        ("/sandboxes/s1/proxy/0/", KEY, 1011),
    ],
)
async def test_a_refused_caller_learns_why(
    gateway: Gateway, sandbox: Sandbox, path: str, key: str, code: int
) -> None:
    """The socket is accepted and closed with a code and a reason (lifecycle §1.4); no sandbox is touched."""
    async with dial(gateway, path, key) as client:
        got, reason = await closed(client)
    assert got == code
    assert reason
    assert sandbox.connections == 0


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 1008),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 1008),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", 1011),
        (b"SSH-2.0\r\n", 1011),
        (b"", 1011),
        (
            b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
            1011,
        ),
    ],
)
async def test_a_refused_handshake_is_told(
    gateway: Gateway, sandbox: Sandbox, answer: bytes, code: int
) -> None:
    """A service that refuses is a policy's refusal, a broken one an error."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(answer)
        await writer.drain()

    sandbox.handler = handler
    async with dial(gateway) as client:
        assert (await closed(client))[0] == code


async def test_frames_in_one_breath_with_the_handshake_are_kept(gateway: Gateway, sandbox: Sandbox) -> None:
    """Frames sent together with the 101 arrive, in order, 200 times out of 200, and so do the caller's (R68)."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers = await read_head(reader)
        key = next(value for name, value in headers if name.lower() == b"sec-websocket-key")
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", usedforsecurity=False).digest()
        frames = [Frame(Opcode.TEXT, b"%d" % n).serialize(mask=False) for n in range(3)]
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n" + b"".join(frames)
        )
        first = await reader.readexactly(2 + 4 + 5)
        mask = first[2:6]
        heard = bytes(b ^ mask[i % 4] for i, b in enumerate(first[6:]))
        writer.write(Frame(Opcode.BINARY, heard).serialize(mask=False))
        writer.write(Frame(Opcode.CLOSE, struct.pack("!H", 1000)).serialize(mask=False))
        await reader.read()

    sandbox.handler = handler
    for _ in range(200):
        async with dial(gateway) as client:
            await client.send("early")
            assert [await client.recv() for _ in range(4)] == ["0", "1", "2", b"early"]


async def test_pings_of_both_sides_are_answered(gateway: Gateway, backend: Backend) -> None:
    """Each hop answers its own pings, so a silent socket stays up."""
    answered = asyncio.Event()

    async def ping(connection: ServerConnection) -> None:
        await (await connection.ping(b"p"))
        answered.set()

    backend.conversation = ping
    async with asyncio.timeout(5), dial(gateway) as client:
        await (await client.ping(b"q"))
        await answered.wait()


async def test_a_slow_caller_stops_the_sandbox(gateway: Gateway, backend: Backend) -> None:
    """The proxy buffers a bounded amount for a caller that does not read."""
    sent = 0
    stalled = asyncio.Event()
    message = bytes(1_000_000)

    async def pour(connection: ServerConnection) -> None:
        nonlocal sent
        for _ in range(100):
            try:
                async with asyncio.timeout(1):
                    await connection.send(message)
            except TimeoutError:
                stalled.set()
                return
            sent += 1

    backend.conversation = pour
    async with dial(gateway, max_queue=1, ping_interval=None) as client:
        async with asyncio.timeout(20):
            await stalled.wait()
        assert sent < 40
        reset(client.transport)
