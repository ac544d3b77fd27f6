from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.peers.execd import HttpExecdPeer
from gateway.sandboxes.model import Address


@asynccontextmanager
async def listener(answer: bytes, port: int = 0) -> AsyncIterator[tuple[int, list[bytes]]]:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@pytest.mark.parametrize("published", [False, True])
async def test_a_daemon_that_answers_is_ready(published: bool) -> None:
    """The sandbox's own address is asked, or the published port where there is no other."""
    async with listener(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (port, asked):
        address = (
            Address(None, 44772, "127.0.0.1", port) if published else Address("127.0.0.1", port, None, None)
        )
        assert await HttpExecdPeer().wait_ready(address, deadline=5) is True
    assert asked[0].startswith(b"GET /ping HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 503 X\r\n\r\n", b"HTTP/1.1 401 X\r\n\r\n", b"x" * 5000, b"half"]
)
async def test_anything_but_a_200_is_not_ready(answer: bytes) -> None:
    """A port that is open is not yet a daemon that answers."""
    async with listener(answer) as (port, asked):
        assert await HttpExecdPeer().wait_ready(Address("127.0.0.1", port, None, None), deadline=0.2) is False
    assert len(asked) > 3


async def test_a_silent_listener_is_not_waited_for_beyond_the_deadline() -> None:
    """The deadline holds whatever the other side does."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        address = Address("127.0.0.1", sock.getsockname()[1], None, None)
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert await HttpExecdPeer().wait_ready(address, deadline=0.3) is False
        assert loop.time() - start < 1


async def test_no_address_is_not_ready() -> None:
    """Without a place to ask there is nothing to wait for."""
    assert await HttpExecdPeer().wait_ready(Address(None, 44772, None, None), deadline=5) is False


async def test_readiness_is_noticed_at_once() -> None:
    """A daemon that begins to listen later is found within the longest delay."""
    port = unused_port()
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(
        HttpExecdPeer().wait_ready(Address("127.0.0.1", port, None, None), deadline=5)
    )
    await asyncio.sleep(0.05)
    assert not waiting.done()
    async with listener(b"HTTP/1.1 200 OK\r\n\r\n", port):
        start = loop.time()
        assert await waiting is True
        assert loop.time() - start < 0.25


async def test_an_address_that_swallows_packets_gives_way_to_the_published_port() -> None:
    """Where the sandbox's own address cannot be reached, the published port says it."""
    swallow = socket.socket()
    swallow.bind(("127.0.0.1", 0))
    swallow.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(swallow.getsockname())
    async with listener(b"HTTP/1.1 200 OK\r\n\r\n") as (port, _):
        address = Address("127.0.0.1", swallow.getsockname()[1], "127.0.0.1", port)
        assert await HttpExecdPeer().wait_ready(address, deadline=5) is True
    for each in [swallow, *fillers]:
        each.close()
