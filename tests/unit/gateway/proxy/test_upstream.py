from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream import Connection, ResponseHead, StaleConnection
from specs.errors import BackendResponseFailed, BackendTimeout


class Wire:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.written = b""
        self.paused = False
        self.gone = False

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.gone

    def abort(self) -> None:
        self.gone = True

    close = abort

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_extra_info(self, name: str) -> Any:
        return None


def connected() -> tuple[Connection, Wire]:
    connection, wire = Connection(), Wire()
    connection.connection_made(cast("asyncio.Transport", wire))
    return connection, wire


async def everything(connection: Connection) -> tuple[ResponseHead, bytes]:
    head = await connection.head()
    body = b""
    while data := await connection.read():
        body += data
    return head, body


WHOLE = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Empty:\r\n\r\nhello", b"hello", True),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: 1\r\n\r\n",
        b"hello",
        True,
    ),
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 201 X\r\nContent-Length: 0\r\n\r\n",
        b"",
        True,
    ),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", False),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", True),
]


@pytest.mark.parametrize(("raw", "body", "reusable"), WHOLE)
def test_an_answer_is_the_same_however_it_is_cut(raw: bytes, body: bytes, reusable: bool) -> None:
    """Cutting the bytes anywhere changes neither head nor body nor what may follow."""

    async def parse(first: int, second: int) -> None:
        connection, wire = connected()
        connection.begin(b"GET / HTTP/1.1\r\n\r\n", bodyless=False)
        connection.request_sent()
        for piece in (raw[:first], raw[first:second], raw[second:]):
            if piece:
                connection.data_received(piece)
        head, got = await everything(connection)
        assert 200 <= head.status < 400
        assert got == body
        assert [name for name, _ in head.headers if name in {b"T", b"Link"}] == []
        assert connection.reusable is reusable
        assert wire.written == b"GET / HTTP/1.1\r\n\r\n"

    @given(st.lists(st.integers(0, len(raw)), min_size=2, max_size=2).map(sorted))
    def cut(places: list[int]) -> None:
        asyncio.run(parse(*places))

    cut()


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(raw: bytes) -> None:
    """Any input gives an answer or a typed failure."""

    async def parse() -> None:
        connection, _ = connected()
        connection.begin(b"GET / HTTP/1.1\r\n\r\n", bodyless=False)
        connection.data_received(raw)
        connection.connection_lost(None)
        with pytest.raises(BackendResponseFailed):
            await everything(connection)

    asyncio.run(parse())


async def test_a_body_without_length_ends_with_the_connection() -> None:
    """A clean end of the connection ends such a body; a broken one does not."""
    for broken in (None, ConnectionResetError()):
        connection, _ = connected()
        connection.begin(b"", bodyless=False)
        connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nall")
        connection.connection_lost(broken)
        await connection.head()
        assert await connection.read() == b"all"
        if broken is None:
            assert await connection.read() == b""
        else:
            with pytest.raises(BackendResponseFailed):
                await connection.read()


async def test_reading_stops_while_nobody_takes_the_body() -> None:
    """The buffer is bounded and reading goes on once it was taken."""
    connection, wire = connected()
    connection.begin(b"", bodyless=False)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n")
    taken = 0
    while not wire.paused:
        connection.data_received(bytes(100_000))
        taken += 100_000
    assert taken <= 700_000
    assert len(await connection.read()) == taken
    assert not wire.paused


async def test_a_reused_connection_that_says_nothing_is_stale() -> None:
    """Only a reused connection that ended without a byte may be answered by another try."""
    connection, _ = connected()
    connection.begin(b"", bodyless=False)
    connection.request_sent()
    connection.data_received(b"HTTP/1.1 204 X\r\n\r\n")
    await everything(connection)
    connection.rest(0.0)
    connection.begin(b"", bodyless=False)
    connection.connection_lost(None)

    with pytest.raises(StaleConnection):
        await connection.head()


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    """An idle connection that speaks cannot carry another exchange."""
    connection, wire = connected()
    connection.begin(b"", bodyless=False)
    connection.request_sent()
    connection.data_received(b"HTTP/1.1 204 X\r\n\r\n")
    await everything(connection)
    connection.rest(0.0)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    assert wire.gone
    assert connection.closed


async def test_an_answer_with_more_than_its_body_is_not_followed_by_another() -> None:
    """Bytes behind an answer poison the connection, not the next caller."""
    connection, _ = connected()
    connection.begin(b"", bodyless=False)
    connection.request_sent()
    connection.data_received(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    )

    _, body = await everything(connection)
    assert body == b"ok"
    assert not connection.reusable


async def test_the_head_has_a_deadline() -> None:
    """A service that stays silent before its head times out; its body may be silent."""
    connection, _ = connected()
    connection.begin(b"", bodyless=False)
    connection.expect_head_within(0.01)
    with pytest.raises(BackendTimeout):
        await connection.head()


async def test_a_head_has_a_size() -> None:
    """Headers without end are refused."""
    connection, _ = connected()
    connection.begin(b"", bodyless=False)
    connection.data_received(b"HTTP/1.1 200 OK\r\n")
    for number in range(300):
        connection.data_received(b"X-%d: " % number + b"v" * 1000 + b"\r\n")
    with pytest.raises(BackendResponseFailed):
        await connection.head()
