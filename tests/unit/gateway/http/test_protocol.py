"""What a stranger can make the server read before it asks for a key."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.http.protocol import MOST_HEAD_BYTES, BoundedProtocol


class Wire(asyncio.Transport):
    """A connection that keeps what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed.set()

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def status(self) -> int:
        return int(self.written[9:12])

    @property
    def body(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.written.partition(b"\r\n\r\n")[2])
        return found


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def connection(wire: Wire) -> BoundedProtocol:
    config = uvicorn.Config(app, http=BoundedProtocol, log_config=None, lifespan="off")
    config.load()
    made = BoundedProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    made.connection_made(wire)
    return made


async def answered(connection: BoundedProtocol) -> None:
    async with asyncio.timeout(5):
        while connection.tasks:
            await asyncio.wait(connection.tasks)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * MOST_HEAD_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * MOST_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * MOST_HEAD_BYTES + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else str(value),
)
async def test_what_is_no_request_is_refused(
    connection: BoundedProtocol, wire: Wire, head: bytes, status: int
) -> None:
    """An oversized, ambiguous or broken head gets the common shape and the end of the connection."""
    connection.data_received(head)
    assert wire.status == status
    assert set(wire.body) == {"code", "message"}
    assert wire.closed.is_set()


async def test_a_head_in_pieces_is_bounded_too(connection: BoundedProtocol, wire: Wire) -> None:
    """A field that never ends is not kept in memory."""
    connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
    fed = 0
    while not wire.closed.is_set() and fed < 10 * MOST_HEAD_BYTES:
        connection.data_received(b"a" * 1000)
        fed += 1000
    assert wire.status == 431
    assert fed <= MOST_HEAD_BYTES + 1000


async def test_a_large_body_is_no_large_head(connection: BoundedProtocol, wire: Wire) -> None:
    """Only the head counts, and each request has its own."""
    body = b"x" * (2 * MOST_HEAD_BYTES)
    for _ in range(3):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.data_received(head[:20])
        connection.data_received(head[20:] + body[:100])
        connection.data_received(body[100:])
        await answered(connection)
    assert wire.written.count(b"HTTP/1.1 204") == 3
    assert not wire.closed.is_set()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n"])
async def test_a_slow_head_ends(wire: Wire, sent: bytes) -> None:
    """A connection that does not come to the end of its head in time is closed."""

    class Impatient(BoundedProtocol):
        head_seconds = 0.01

    config = uvicorn.Config(app, http=Impatient, log_config=None, lifespan="off")
    config.load()
    slow = Impatient(config, ServerState(), {}, asyncio.get_running_loop())
    slow.connection_made(wire)
    if sent:
        slow.data_received(sent)
    async with asyncio.timeout(5):
        await wire.closed.wait()
