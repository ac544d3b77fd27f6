"""Requests and replies over real sockets, with routes made for the test: each promise as one sentence."""

import os
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from execd import loop
from execd.http import errors, streaming
from execd.http.exchange import ClientGone, Reply, Request
from execd.http.server import Patience, Server

Route = Callable[[Request, Reply], Any]
BODY = os.urandom(3 << 20)


def talk(route: Route, client: Callable[[socket.socket], Any], patience: Patience | None = None) -> Any:
    """Serve one route on the loop while `client` talks to it from a thread; return what it returns."""
    results: list[Any] = []

    async def main() -> None:
        async def handle(request: Request, reply: Reply) -> None:
            await errors.guarded(route, request, reply)

        server = Server(handle, patience)
        await server.listen("127.0.0.1", 0)
        server.start()
        ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

        def run() -> None:
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
                    results.append(client(sock))
            finally:
                os.close(wake)

        thread = threading.Thread(target=run)
        thread.start()
        with loop.deadline(30):
            await loop.readable(ended)
        thread.join()
        await server.close()
        loop.close_fd(ended)

    loop.run(main())
    return results[0]


def read_all(sock: socket.socket) -> bytes:
    out = b""
    while data := sock.recv(1 << 20):
        out += data
    return out


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def post(framed: bytes, length: int | None) -> Callable[[socket.socket], bytes]:
    """Send a body; return the whole answer."""
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length

    def client(sock: socket.socket) -> bytes:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + framing + b"\r\n\r\n" + framed)
        return read_all(sock)

    return client


def get(sock: socket.socket) -> bytes:
    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    return read_all(sock)


FRAMINGS = [
    (BODY, len(BODY)),
    (chunked(BODY, 700), None),
    (chunked(BODY, 300_000), None),
    (chunked(BODY, 1 << 22), None),
]
FRAMING_IDS = ["length", "small chunks", "large chunks", "one chunk"]


@pytest.mark.parametrize(("framed", "length"), FRAMINGS, ids=FRAMING_IDS)
@pytest.mark.parametrize("way", ["chunks", "read_into", "copy_to", "body", "mixed"])
def test_a_body_is_read_whole_whichever_way(way: str, framed: bytes, length: int | None) -> None:
    """Every way to read a body yields its exact bytes, however it is framed."""
    got: list[bytes] = []

    async def route(request: Request, reply: Reply) -> None:
        with tempfile.TemporaryFile() as file:
            if way == "body":
                got.append(await request.body(limit=1 << 22))
            elif way == "chunks":
                async for piece in request.chunks():
                    assert len(piece) <= 256 * 1024
                    got.append(piece)
            elif way == "read_into":
                buffer = bytearray(1 << 20)
                while count := await request.read_into(memoryview(buffer)):
                    got.append(bytes(buffer[:count]))
            elif way == "copy_to":
                assert await request.copy_to(file.fileno(), 1 << 30) == len(BODY)
            else:
                buffer = bytearray(1000)
                count = await request.read_into(memoryview(buffer))
                got.append(bytes(buffer[:count]))
                assert await request.copy_to(file.fileno(), 1 << 20) == 1 << 20
                file.seek(0)
                got.append(file.read())
                got.extend([piece async for piece in request.chunks()])
            if way == "copy_to":
                file.seek(0)
                got.append(file.read())
        await reply.json({"ok": True})

    answer = talk(route, post(framed, length))
    assert answer.endswith(b'{"ok":true}')
    assert b"".join(got) == BODY


@pytest.mark.parametrize(("framed", "length"), FRAMINGS[:2], ids=FRAMING_IDS[:2])
def test_a_body_has_a_limit(framed: bytes, length: int | None) -> None:
    """A body longer than a route takes is a 413."""

    async def route(request: Request, reply: Reply) -> None:
        await request.body(limit=1000)
        await reply.empty()

    answer = talk(route, post(framed, length))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"PAYLOAD_TOO_LARGE" in answer


@pytest.mark.parametrize("framed", [b"5\r\nhelloX\r\n", b"zz\r\n"])
def test_a_malformed_body_is_a_bad_request(framed: bytes) -> None:
    """Broken chunks are answered with 400 and the end of the connection."""

    async def route(request: Request, reply: Reply) -> None:
        await reply.json(await request.json())

    answer = talk(route, post(framed, None))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"INVALID_REQUEST_BODY" in answer


def test_malformed_json_says_where() -> None:
    """A body that is not JSON is a 400 whose message has the place."""

    async def route(request: Request, reply: Reply) -> None:
        await reply.json(await request.json())

    answer = talk(route, post(b'{"a" 1}', 7))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"char 5" in answer


def test_an_aborted_body_is_not_a_body() -> None:
    """R55: A body that breaks off raises; it is never taken for a shorter one."""
    seen: list[str] = []

    async def route(request: Request, reply: Reply) -> None:
        try:
            await request.body()
        except ClientGone:
            seen.append("gone")
            raise
        await reply.empty()

    def client(sock: socket.socket) -> bytes:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)

    assert talk(route, client) == b""
    assert seen == ["gone"]


def test_a_crash_is_a_500_with_the_id(capfd: pytest.CaptureFixture[str]) -> None:
    """Anything unforeseen is a 500 that names the request; the trace goes to standard error."""

    async def route(request: Request, reply: Reply) -> None:
        raise KeyError("secret detail")

    answer = talk(route, get)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"RUNTIME_ERROR" in answer
    assert b"secret" not in answer
    request_id = answer.partition(b"X-Request-ID: ")[2].partition(b"\r\n")[0].decode()
    assert request_id in capfd.readouterr().err


def test_a_crash_within_a_body_cuts_it(capfd: pytest.CaptureFixture[str]) -> None:
    """R55: After the reply has begun, a failure cuts the connection without a proper end."""

    async def route(request: Request, reply: Reply) -> None:
        body = await reply.start(200, [])
        await body.write(b"part")
        raise KeyError("late")

    answer = talk(route, get)
    assert answer.endswith(b"4\r\npart\r\n")
    assert "KeyError" in capfd.readouterr().err


def test_the_first_piece_travels_with_the_head() -> None:
    """Pieces are chunks, the last one and the end go together; an old client gets neither."""

    async def route(request: Request, reply: Reply) -> None:
        body = await reply.start(200, [("X-A", "b")])
        await body.write(b"")
        await body.write(b"one")
        await body.write(memoryview(bytearray(BODY)))
        await body.finish(b"last")

    head, _, body = talk(route, get).partition(b"\r\n\r\n")
    assert b"X-A: b\r\nTransfer-Encoding: chunked\r\n" in head
    assert body == b"3\r\none\r\n%x\r\n%b\r\n4\r\nlast\r\n0\r\n\r\n" % (len(BODY), BODY)

    def old(sock: socket.socket) -> bytes:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return read_all(sock)

    head, _, body = talk(route, old).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"one" + BODY + b"last"


def test_a_body_keeps_its_promise() -> None:
    """A body of a declared length that comes out shorter is cut, not padded."""

    async def route(request: Request, reply: Reply) -> None:
        body = await reply.start(200, [], length=10)
        await body.write(b"short")

    assert talk(route, get).endswith(b"Content-Length: 10\r\nX-Request-ID: ") is False
    assert talk(route, get).endswith(b"\r\n\r\nshort")


@pytest.mark.parametrize(("offset", "count"), [(0, 3 << 20), (1000, 5), (5, (3 << 20) - 5), (7, 0)])
def test_a_file_is_sent_exactly(tmp_path: Path, offset: int, count: int) -> None:
    """Any range of a file arrives byte for byte."""
    path = tmp_path / "file"
    path.write_bytes(BODY)

    async def route(request: Request, reply: Reply) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            await reply.file(200, [("Content-Type", "x/y")], fd, offset, count)
        finally:
            os.close(fd)

    head, _, body = talk(route, get).partition(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % count in head + b"\r\n"
    assert body == BODY[offset : offset + count]


def test_a_file_that_shrank_is_cut(tmp_path: Path) -> None:
    """R55: A file that became shorter than was promised ends in a cut connection."""
    path = tmp_path / "file"
    path.write_bytes(BODY[: 1 << 20])

    async def route(request: Request, reply: Reply) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            await reply.file(200, [], fd, 0, 2 << 20)
        finally:
            os.close(fd)

    assert len(talk(route, get).partition(b"\r\n\r\n")[2]) == 1 << 20


def test_a_quiet_stream_is_kept_alive() -> None:
    """A stream begins with init and a ping, is pinged while quiet, and ends with its terminal event."""

    async def route(request: Request, reply: Reply) -> None:
        stream = streaming.EventStream(reply, heartbeat_seconds=0.02)
        await stream.open("id-1")
        await loop.sleep(0.09)
        await stream.end(b"THE END\n\n")

    answer = talk(route, get)
    assert b"Content-Type: text/event-stream\r\n" in answer
    assert answer.index(b'"type":"init"') < answer.index(b'"type":"ping"')
    assert 3 <= answer.count(b'"type":"ping"') <= 5
    assert answer.endswith(b"9\r\nTHE END\n\n\r\n0\r\n\r\n")


def test_a_busy_stream_is_not_pinged() -> None:
    """No ping is sent while events flow."""

    async def route(request: Request, reply: Reply) -> None:
        stream = streaming.EventStream(reply, heartbeat_seconds=0.05)
        await stream.open("id-1")
        for _ in range(10):
            await loop.sleep(0.01)
            await stream.write(b"EVENT\n\n")
        await stream.end()

    assert talk(route, get).count(b'"type":"ping"') == 1


def test_a_ping_never_falls_inside_an_event() -> None:
    """However slow the client, what arrives is whole events."""
    event = b"[" + b"x" * 4_000_000 + b"]\n\n"
    pause = threading.Event()

    async def route(request: Request, reply: Reply) -> None:
        stream = streaming.EventStream(reply, heartbeat_seconds=0.01)
        await stream.open("id-1")
        for _ in range(4):
            await stream.write(event)
            await loop.sleep(0.03)
        await stream.end()

    def slow(sock: socket.socket) -> bytes:
        sock.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
        out = b""
        while data := sock.recv(1 << 18):
            out += data
            pause.wait(0.001)
        return out

    events = talk(route, slow).partition(b"\r\n\r\n")[2].split(b"\n\n")
    assert events.pop() == b""
    assert sum(event[:1] == b"[" for event in events) == 4
    assert all(event[-1:] in {b"]", b"}"} and event[:1] in {b"[", b"{"} for event in events)


def test_a_client_that_hangs_up_is_noticed() -> None:
    """`gone` returns when the client closes, requests sent ahead do not count."""
    seen: list[str] = []
    noticed = threading.Event()

    async def route(request: Request, reply: Reply) -> None:
        body = await reply.start(200, [])
        await body.flush()
        with loop.deadline(5):
            await reply.gone()
        seen.append("gone")
        noticed.set()

    def client(sock: socket.socket) -> bytes:
        request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        sock.sendall(request)
        head = sock.recv(65536)
        sock.sendall(request)
        sock.close()
        return head

    def waiting(sock: socket.socket) -> bytes:
        head = client(sock)
        noticed.wait(5)
        return head

    assert talk(route, waiting).startswith(b"HTTP/1.1 200 OK")
    assert seen == ["gone"]


def test_writing_to_nobody_says_so() -> None:
    """A reply to a client that is gone raises instead of going nowhere for ever."""
    seen: list[str] = []
    finished = threading.Event()

    async def route(request: Request, reply: Reply) -> None:
        body = await reply.start(200, [])
        try:
            while True:
                await body.write(BODY)
        except ClientGone:
            seen.append("gone")
            raise
        finally:
            finished.set()

    def client(sock: socket.socket) -> bool:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.recv(10)
        sock.close()
        return finished.wait(10)

    assert talk(route, client)
    assert seen == ["gone"]


SLOW = {
    "silent": b"",
    "slow head": b"GET / HT",
    "slow body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_client_that_stops_talking_is_cut(sent: bytes) -> None:
    """R43: A client that never finishes its request holds its connection for a bounded time only."""

    async def route(request: Request, reply: Reply) -> None:
        await request.body()
        await reply.empty()

    def client(sock: socket.socket) -> bytes:
        sock.sendall(sent)
        return read_all(sock)

    assert talk(route, client, Patience(head=0.05, idle=0.05, body=0.05, sweep=0.02)) == b""


def test_a_client_that_takes_nothing_is_cut() -> None:
    """A client that never reads its answer holds its connection for a bounded time only."""
    seen: list[str] = []
    finished = threading.Event()

    async def route(request: Request, reply: Reply) -> None:
        try:
            await reply.send(200, [], BODY * 8)
        except ClientGone:
            seen.append("gone")
            raise
        finally:
            finished.set()

    def client(sock: socket.socket) -> bool:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return finished.wait(10)

    assert talk(route, client, Patience(stall=0.05, sweep=0.02))
    assert seen == ["gone"]
