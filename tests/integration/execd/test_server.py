"""A real execd process, spoken to in raw bytes: each promise as one sentence."""

import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from execd.wire import websocket as ws
from specs.names import ENV_ACCESS_TOKEN, ENV_ACCESS_TOKEN_HASH, ENV_STATE_DIR, PORT_EXECD

ROOT = Path(__file__).parents[3]
TOKEN = "correct horse"
AUTH = {"X-EXECD-ACCESS-TOKEN": TOKEN}
RAW_AUTH = f"X-EXECD-ACCESS-TOKEN: {TOKEN}\r\n".encode()


class Execd:
    """A running execd."""

    def __init__(self, state: Path, environ: dict[str, str], host: str = "127.0.0.1") -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        state.mkdir(mode=0o700, exist_ok=True)
        self.errors = state / "stderr"
        with self.errors.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-m", "execd", "--port", str(self.port), "--host", host],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], ENV_STATE_DIR: str(state), **environ},
                stderr=log,
            )
        self.url = f"http://127.0.0.1:{self.port}"
        until = time.monotonic() + 10
        while True:
            try:
                # From another address than the target's, or the probe could connect to itself.
                self.connect("127.0.0.2").close()
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.005)
            else:
                return

    def connect(self, source: str | None = None) -> socket.socket:
        origin = (source, 0) if source else None
        return socket.create_connection(("127.0.0.1", self.port), timeout=10, source_address=origin)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(10)


@pytest.fixture(scope="module")
def execd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Execd]:
    server = Execd(tmp_path_factory.mktemp("execd"), {ENV_ACCESS_TOKEN: TOKEN})
    yield server
    assert server.stop() == 0
    assert server.errors.read_text() == ""


@pytest.fixture
def client(execd: Execd) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=execd.url, headers=AUTH, timeout=10, trust_env=False) as session:
        yield session


def read_all(sock: socket.socket) -> bytes:
    """Read to the peer's end."""
    out = b""
    while data := sock.recv(65536):
        out += data
    return out


def read_until(sock: socket.socket, mark: bytes) -> bytes:
    """Read until `mark` was seen."""
    out = b""
    while mark not in out:
        data = sock.recv(65536)
        assert data, f"the peer closed after {out!r}"
        out += data
    return out


# -- HTTP ----------------------------------------------------------------------------


def test_a_connection_serves_many_requests(execd: Execd) -> None:
    """A connection stays open between requests."""
    with execd.connect() as sock:
        for _ in range(5):
            sock.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            head = read_until(sock, b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
            assert re.search(rb"X-Request-ID: [0-9a-f]{32}\r\n", head)


def test_pipelined_requests_are_answered_in_order(execd: Execd) -> None:
    """Requests sent ahead are answered one after another."""
    with execd.connect() as sock:
        sock.sendall(
            b"".join(b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Request-ID: r%d\r\n\r\n" % n for n in range(20))
            + b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        answer = read_all(sock)
    assert re.findall(rb"X-Request-ID: r(\d+)", answer) == [b"%d" % n for n in range(20)]
    assert answer.endswith(b"Connection: close\r\n\r\n")


def test_a_request_may_arrive_byte_by_byte(execd: Execd) -> None:
    """A head is read however it is cut, empty lines before it are skipped."""
    with execd.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":
            sock.sendall(bytes([byte]))
        assert read_all(sock).startswith(b"HTTP/1.1 200 OK")


BAD = [
    (b"\x16\x03\x01\r\n\r\n", 400),
    (b"GET /ping HTTP/1.1\r\n\r\n", 400),
    (b"GET /ping HTTP/3.0\r\nHost: x\r\n\r\n", 505),
    (b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"GET /ping HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", 431),
    (b"GET /ping HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300 + b"\r\n", 431),
]


@pytest.mark.parametrize(
    ("request_", "status"), BAD, ids=["tls", "host", "version", "framing", "long", "many"]
)
def test_a_bad_request_is_answered_and_cut(execd: Execd, request_: bytes, status: int) -> None:
    """What is not a request gets a JSON error and the end of the connection."""
    with execd.connect() as sock:
        sock.sendall(request_)
        head, _, body = read_all(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert {"code", "message"} <= json.loads(body).keys()


def test_head_is_get_without_a_body(client: httpx.Client) -> None:
    """HEAD answers what GET does, headers only."""
    get, head = client.get("/metrics"), client.head("/metrics")
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert int(head.headers["content-length"]) > 0
    assert client.head("/ping").headers["content-length"] == "0"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "ROUTE_NOT_FOUND"),
        ("GET", "/command", 405, "METHOD_NOT_ALLOWED"),
        ("HEAD", "/metrics/watch", 405, ""),
        ("GET", "/command/status/", 404, "ROUTE_NOT_FOUND"),
        ("POST", "/pty", 501, "NOT_SUPPORTED"),
        ("POST", "/code/context", 501, "NOT_SUPPORTED"),
        ("GET", "/v1/isolated/sessions", 501, "NOT_SUPPORTED"),
        ("GET", "/v1/filesystem/0/0/files/info", 501, "NOT_SUPPORTED"),
        ("GET", "/proxy/x", 400, "INVALID_PORT"),
        ("GET", "/proxy/70000/", 400, "INVALID_PORT"),
        ("GET", "/proxy/0/", 400, "INVALID_PORT"),
        ("GET", "/proxy/1/", 502, "UPSTREAM_UNREACHABLE"),
        ("GET", "/proxy/44772/nope", 404, "ROUTE_NOT_FOUND"),
    ],
)
def test_every_refusal_has_code_and_message(
    client: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    """Every refusal is JSON with a code and a message, and carries the request's id."""
    answer = client.request(method, path, headers={"X-Request-ID": "mine"})
    assert answer.status_code == status
    assert answer.headers["x-request-id"] == "mine"
    if method != "HEAD":
        body = answer.json()
        assert body["code"] == code
        assert body["message"]
    if status == 405:
        assert answer.headers["allow"]


def test_old_clients_are_served(execd: Execd) -> None:
    """HTTP/1.0 is answered without chunks, and the connection ends unless it is to be kept."""
    with execd.connect() as sock:
        sock.sendall(b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: keep-alive\r\n" in read_until(sock, b"\r\n\r\n")
        sock.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        assert b"Connection: close\r\n" in read_all(sock)


def test_a_refused_body_is_read_away(execd: Execd) -> None:
    """A small body nobody wanted does not cost the connection."""
    with execd.connect() as sock:
        sock.sendall(b"POST /nope HTTP/1.1\r\nHost: x\r\n" + RAW_AUTH + b"Content-Length: 100000\r\n\r\n")
        sock.sendall(b"x" * 100_000 + b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 200 OK" in answer


def test_a_huge_refused_body_ends_the_connection(execd: Execd) -> None:
    """A large body nobody wanted is not read: the answer says close, and arrives whole."""
    with execd.connect() as sock:
        sock.sendall(b"POST /nope HTTP/1.1\r\nHost: x\r\n" + RAW_AUTH + b"Content-Length: 900000000\r\n\r\n")
        sock.sendall(b"x" * 200_000)
        answer = read_all(sock)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"Connection: close\r\n" in answer
    assert b"ROUTE_NOT_FOUND" in answer


def test_a_client_that_expects_is_told_to_continue(execd: Execd) -> None:
    """`100 Continue` comes when the body is wanted, and only then."""
    with execd.connect() as sock, echo(record_and_answer(ok(b"done"))) as (port, seen):
        sock.sendall(
            b"POST /proxy/%d/x HTTP/1.1\r\nHost: x\r\n%bExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
            % (port, RAW_AUTH)
        )
        assert read_until(sock, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"hello")
        assert b"done" in read_until(sock, b"done")
    assert seen[0].endswith(b"hello")
    with execd.connect() as sock:
        sock.sendall(
            b"POST /nope HTTP/1.1\r\nHost: x\r\n%bExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
            % RAW_AUTH
        )
        assert read_all(sock).startswith(b"HTTP/1.1 404 ")


def test_many_connections_at_once(execd: Execd) -> None:
    """R43: A burst of connections is accepted and answered, idle ones beside it."""
    idle = [execd.connect() for _ in range(50)]
    socks = [execd.connect() for _ in range(200)]
    for sock in socks:
        sock.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert all(read_all(sock).startswith(b"HTTP/1.1 200 OK") for sock in socks)
    for sock in (*idle, *socks):
        sock.close()


# -- the token -------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/nope", "/metrics", "/proxy/1/", f"/proxy/{PORT_EXECD}/ping", "/pty"])
@pytest.mark.parametrize("headers", [{}, {"X-EXECD-ACCESS-TOKEN": "wrong"}, {"X-EXECD-ACCESS-TOKEN": ""}])
def test_everything_but_health_needs_the_token(execd: Execd, path: str, headers: dict[str, str]) -> None:
    """Without the right token nothing is told, not even what exists."""
    answer = httpx.get(execd.url + path, headers=headers, trust_env=False)
    assert answer.status_code == 401
    assert answer.json()["code"] == "UNAUTHORIZED"
    assert answer.json()["message"]


@pytest.mark.parametrize("path", ["/ping", "/ready"])
def test_health_needs_no_token(execd: Execd, path: str) -> None:
    """Whether execd is there may be asked without the token."""
    assert httpx.get(execd.url + path, trust_env=False).status_code == 200
    assert httpx.head(execd.url + path, trust_env=False).status_code == 200
    assert httpx.post(execd.url + path, trust_env=False).status_code == 401


def test_a_hash_is_enough(tmp_path: Path) -> None:
    """execd needs only the token's hash, and then an environment token does not count."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    server = Execd(tmp_path, {ENV_ACCESS_TOKEN_HASH: f"sha256:{digest}", ENV_ACCESS_TOKEN: "other"})
    try:
        assert httpx.get(server.url + "/metrics", headers=AUTH, trust_env=False).status_code == 200
        other = {"X-EXECD-ACCESS-TOKEN": "other"}
        assert httpx.get(server.url + "/metrics", headers=other, trust_env=False).status_code == 401
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    "environ", [{ENV_ACCESS_TOKEN: ""}, {ENV_ACCESS_TOKEN_HASH: ""}, {ENV_ACCESS_TOKEN_HASH: "sha256:12"}]
)
def test_a_setting_that_is_not_understood_stops_the_start(tmp_path: Path, environ: dict[str, str]) -> None:
    """A broken token setting never means an open door."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "execd", "--port", "0"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], ENV_STATE_DIR: str(tmp_path), **environ},
        capture_output=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 2
    assert b"ACCESS_TOKEN" in done.stderr


def test_no_secret_is_logged(tmp_path: Path) -> None:
    """R61: Nothing a client sends reaches the log, not even when it is refused."""
    server = Execd(tmp_path, {ENV_ACCESS_TOKEN: TOKEN})
    canary = "canary-93c1"
    try:
        with httpx.Client(base_url=server.url, headers=AUTH, trust_env=False) as client:
            client.get(f"/nope?x={canary}", headers={"Authorization": canary})
            client.post("/command", content=f'{{"command": 5, "x": "{canary}"'.encode())
            client.get("/proxy/1/", headers={"X-EXECD-ACCESS-TOKEN": canary})
        with server.connect() as sock:
            sock.sendall(b"BAD %b\r\n\r\n" % canary.encode())
            read_all(sock)
    finally:
        server.stop()
    assert canary not in server.errors.read_text()
    assert TOKEN not in server.errors.read_text()


def test_every_address_is_served(tmp_path: Path) -> None:
    """The usual address takes IPv4 and, where there is any, IPv6."""
    server = Execd(tmp_path, {}, host="0.0.0.0")
    try:
        assert httpx.get(server.url + "/ping", trust_env=False).status_code == 200
        if socket.has_ipv6 and Path("/proc/net/if_inet6").read_text():
            assert httpx.get(f"http://[::1]:{server.port}/ping", trust_env=False).status_code == 200
    finally:
        assert server.stop() == 0


def test_a_taken_port_is_said(execd: Execd, tmp_path: Path) -> None:
    """A port that is in use ends the start with its reason."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "execd", "--port", str(execd.port), "--host", "127.0.0.1"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], ENV_STATE_DIR: str(tmp_path)},
        capture_output=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 1
    assert b"in use" in done.stderr


# -- the proxy -------------------------------------------------------------------------

Service = Callable[[socket.socket, list[bytes]], None]


@contextmanager
def echo(service: Service, family: int = socket.AF_INET) -> Iterator[tuple[int, list[bytes]]]:
    """Run a raw service in the background; yield its port and what it saw."""
    seen: list[bytes] = []
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as listener:
        listener.settimeout(10)

        def run() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                sock.settimeout(10)
                with sock:
                    service(sock, seen)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1], seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def record(sock: socket.socket) -> bytes:
    """Read one request with its body."""
    data = read_until(sock, b"\r\n\r\n")
    head, _, rest = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    if length:
        while len(rest) < int(length[1]):
            rest += sock.recv(1 << 20)
    elif b"chunked" in head.lower():
        while not rest.endswith(b"0\r\n\r\n"):
            rest += sock.recv(1 << 20)
    return head + b"\r\n\r\n" + rest


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def record_and_answer(answer: bytes) -> Service:
    def service(sock: socket.socket, seen: list[bytes]) -> None:
        seen.append(record(sock))
        sock.sendall(answer)

    return service


TARGETS = [
    (b"", b"/"),
    (b"?a=b", b"/?a=b"),
    (b"/", b"/"),
    (b"/a%2Fb/%E2%82%ac/..//x;p?q=%20+&q", b"/a%2Fb/%E2%82%ac/..//x;p?q=%20+&q"),
    (b"/%", b"/%"),
    (b"/a?b?c=/proxy/1/", b"/a?b?c=/proxy/1/"),
]


@pytest.mark.parametrize(("suffix", "target"), TARGETS, ids=[target.decode() for _, target in TARGETS])
def test_the_target_arrives_untouched(execd: Execd, suffix: bytes, target: bytes) -> None:
    """Path and query reach the service byte for byte."""
    with echo(record_and_answer(ok(b""))) as (port, seen), execd.connect() as sock:
        sock.sendall(
            b"GET /proxy/%d%b HTTP/1.1\r\nHost: sandbox:1\r\n%bX-Odd-CASE:  v \r\nConnection: x-hop\r\n"
            b"X-Hop: gone\r\nKeep-Alive: 5\r\n\r\n" % (port, suffix, RAW_AUTH)
        )
        read_until(sock, b"\r\n\r\n")
    head = seen[0]
    assert head.startswith(b"GET %b HTTP/1.1\r\nHost: localhost:%d\r\n" % (target, port))
    assert b"\r\nX-Odd-CASE:  v \r\n" in head
    assert b"\r\nX-Forwarded-Host: sandbox:1\r\n" in head
    assert b"\r\nX-Forwarded-For: 127.0.0.1\r\n" in head
    assert b"\r\nX-Forwarded-Proto: http\r\n" in head
    assert TOKEN.encode() not in head
    assert b"gone" not in head
    assert b"Keep-Alive" not in head


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "PROPFIND"])
def test_every_method_goes_through(client: httpx.Client, method: str) -> None:
    """The verb is the client's own, and so is what is known of the forwarding before us."""
    answer = b"HTTP/1.1 207 Odd Phrase\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 4\r\n\r\n"
    with echo(record_and_answer(answer + (b"" if method == "HEAD" else b"body"))) as (port, seen):
        got = client.request(method, f"/proxy/{port}/", headers={"X-Forwarded-For": "9.9.9.9, 8.8.8.8"})
    assert seen[0].startswith(method.encode() + b" / ")
    assert b"X-Forwarded-For: 9.9.9.9, 8.8.8.8\r\n" in seen[0]
    assert (got.status_code, got.reason_phrase) == (207, "Odd Phrase")
    assert got.headers.get_list("x-a") == ["1", "2"]
    assert got.headers["content-length"] == "4"
    assert got.content == (b"" if method == "HEAD" else b"body")


BODY = bytes(range(256)) * 8192


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_go_through_both_ways(client: httpx.Client, chunked: bool) -> None:
    """A large body arrives whole in both directions, framed as it was sent."""

    def service(sock: socket.socket, seen: list[bytes]) -> None:
        request = record(sock)
        head, _, body = request.partition(b"\r\n\r\n")
        if chunked:
            out, rest = b"", body
            while rest != b"0\r\n\r\n":
                size, _, rest = rest.partition(b"\r\n")
                out, rest = out + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
            body = out
        seen.append(head)
        frames = b"".join(
            b"%x\r\n%b\r\n" % (len(body[a : a + 9999]), body[a : a + 9999]) for a in range(0, len(body), 9999)
        )
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + frames + b"0\r\nT: x\r\n\r\n")

    with echo(service) as (port, seen):
        content = iter([BODY[:5], BODY[5:70_000], BODY[70_000:]]) if chunked else BODY
        got = client.post(f"/proxy/{port}/", content=content)
    assert got.content == BODY
    assert (b"chunked" in seen[0]) is chunked


@pytest.mark.parametrize(
    ("answer", "status", "content"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nold", 200, b"old"),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: x\r\n\r\n", 304, b""),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 1\r\n\r\nx", 500, b"x"),
        (b"", 502, None),
        (b"SSH-2.0-OpenSSH\r\n\r\n", 502, None),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, None),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 502, None),
    ],
    ids=["close", "old", "early", "204", "304", "500", "nothing", "ssh", "unasked", "endless early"],
)
def test_every_kind_of_answer_is_passed_on(
    client: httpx.Client, answer: bytes, status: int, content: bytes | None
) -> None:
    """Answers arrive as they are meant, whatever ends them; what is no answer is a 502."""
    with echo(record_and_answer(answer)) as (port, _):
        got = client.get(f"/proxy/{port}/")
        again = client.get("/ping")
    assert got.status_code == status
    if content is not None:
        assert got.content == content
    assert again.status_code == 200


def test_a_broken_answer_is_not_made_whole(client: httpx.Client) -> None:
    """R55: An answer that breaks off upstream breaks off for the client too."""
    for answer in (b"Content-Length: 10\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf"):
        service = record_and_answer(b"HTTP/1.1 200 OK\r\n" + answer)
        with echo(service) as (port, _), pytest.raises(httpx.RemoteProtocolError):
            client.get(f"/proxy/{port}/")


def test_events_arrive_as_they_are_sent(client: httpx.Client) -> None:
    """A stream is passed on piece by piece, its head before its first event."""
    step = threading.Event()

    def service(sock: socket.socket, seen: list[bytes]) -> None:
        seen.append(record(sock))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(3):
            step.wait(10)
            step.clear()
            sock.sendall(b"data: %d\n\n" % number)

    with echo(service) as (port, _), client.stream("GET", f"/proxy/{port}/") as stream:
        pieces = stream.iter_raw()
        for number in range(3):
            step.set()
            assert next(pieces) == b"data: %d\n\n" % number


def test_ipv6_services_are_found(client: httpx.Client) -> None:
    """A service that listens on ::1 alone is reached."""
    with echo(record_and_answer(ok(b"six")), socket.AF_INET6) as (port, _):
        assert client.get(f"/proxy/{port}/").content == b"six"


def test_an_aborted_client_ends_the_request_upstream(execd: Execd) -> None:
    """When the client hangs up, the service sees it at once, also while it is silent."""
    gone = threading.Event()

    def service(sock: socket.socket, seen: list[bytes]) -> None:
        seen.append(record(sock))
        if sock.recv(1) == b"":
            gone.set()

    with echo(service) as (port, seen):
        with execd.connect() as sock:
            sock.sendall(b"GET /proxy/%d/ HTTP/1.1\r\nHost: x\r\n%b\r\n" % (port, RAW_AUTH))
            until = time.monotonic() + 5
            while not seen and time.monotonic() < until:
                time.sleep(0.005)
        assert gone.wait(5)


def test_an_aborted_upload_is_not_made_whole(execd: Execd) -> None:
    """R55: An upload that breaks off never reaches the service as a complete body."""
    ended: list[bytes] = []
    done = threading.Event()

    def service(sock: socket.socket, seen: list[bytes]) -> None:
        seen.append(read_until(sock, b"\r\n\r\n"))
        try:
            ended.append(read_all(sock))
        except ConnectionResetError:
            ended.append(b"")
        done.set()

    with echo(service) as (port, _):
        with execd.connect() as sock:
            sock.sendall(
                b"POST /proxy/%d/ HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
                % (port, RAW_AUTH)
            )
        assert done.wait(5)
    assert not ended[0].endswith(b"0\r\n\r\n")


UPGRADE = (
    b"GET /proxy/%d/ws?x=%%20 HTTP/1.1\r\nHost: x\r\n%bConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"


def test_no_frame_beside_the_upgrade_is_lost(execd: Execd) -> None:
    """R68: Frames sent together with the handshake, or right behind it, arrive whole and in order both ways."""
    first = b"".join(ws.frame(ws.TEXT, b"hello %d" % n) for n in range(3))
    sent = b"".join(ws.frame(ws.BINARY, bytes([n]) * n, key=b"abcd") for n in range(200))

    def service(sock: socket.socket, seen: list[bytes]) -> None:
        head, _, rest = read_until(sock, b"\r\n\r\n").partition(b"\r\n\r\n")
        seen.append(head)
        sock.sendall(SWITCH + first)
        while len(rest) < len(sent):
            rest += sock.recv(65536)
        sock.sendall(rest)

    with echo(service) as (port, seen):
        for number in range(50):
            with execd.connect() as sock:
                request = UPGRADE % (port, RAW_AUTH)
                if number % 2:
                    sock.sendall(request + sent)
                else:
                    sock.sendall(request)
                    sock.sendall(sent)
                head, _, rest = read_until(sock, b"\r\n\r\n").partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
                assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
                assert rest + read_all(sock) == first + sent
    assert b"GET /ws?x=%20 HTTP/1.1\r\n" in seen[0]
    assert b"\r\nConnection: Upgrade\r\nUpgrade: websocket" in seen[0]


def test_each_direction_of_a_tunnel_ends_on_its_own(execd: Execd) -> None:
    """A half-closed tunnel still carries the other direction."""

    def service(sock: socket.socket, seen: list[bytes]) -> None:
        read_until(sock, b"\r\n\r\n")
        sock.sendall(SWITCH)
        seen.append(read_all(sock))
        sock.sendall(b"got %d" % len(seen[0]))

    with echo(service) as (port, seen), execd.connect() as sock:
        sock.sendall(UPGRADE % (port, RAW_AUTH))
        read_until(sock, b"\r\n\r\n")
        sock.sendall(BODY)
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == b"got %d" % len(BODY)
    assert seen == [BODY]


def test_a_refused_upgrade_is_an_answer(execd: Execd) -> None:
    """What is not a 101 is passed on as any answer."""
    service = record_and_answer(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")
    with echo(service) as (port, _), execd.connect() as sock:
        sock.sendall(UPGRADE % (port, RAW_AUTH))
        answer = read_until(sock, b"no")
        sock.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert answer.startswith(b"HTTP/1.1 403 No\r\n")


def test_our_own_port_is_an_alias(client: httpx.Client, execd: Execd) -> None:
    """The proxy's path to our own port is the same as no proxy, also when it is nested."""
    direct = client.get("/ready").json()
    for prefix in (f"/proxy/{PORT_EXECD}", f"/proxy/{execd.port}", f"/proxy/{PORT_EXECD}/proxy/{PORT_EXECD}"):
        assert client.get(f"{prefix}/ready").json() == direct
        with echo(record_and_answer(ok(b"through"))) as (port, seen):
            assert client.get(f"{prefix}/proxy/{port}/a%2Fb").content == b"through"
        assert seen[0].startswith(b"GET /a%2Fb ")


def test_uploads_and_downloads_stream_through(execd: Execd, client: httpx.Client, tmp_path: Path) -> None:
    """A file goes up and comes down through the alias, whole or a range of it."""
    path = str(tmp_path / "file")
    files: list[tuple[str, tuple[str, str | bytes, str]]] = [
        ("metadata", ("metadata", json.dumps({"path": path, "mode": 644}), "application/json")),
        ("file", ("file", BODY, "application/octet-stream")),
    ]
    assert client.post(f"/proxy/{PORT_EXECD}/files/upload", files=files).status_code == 200
    assert Path(path).read_bytes() == BODY
    whole = client.get(f"/proxy/{PORT_EXECD}/files/download", params={"path": path})
    assert whole.content == BODY
    part = client.get("/files/download", params={"path": path}, headers={"Range": "bytes=100-299"})
    assert (part.status_code, part.content) == (206, BODY[100:300])


# -- start and end ---------------------------------------------------------------------


def test_a_broken_client_does_not_hurt(execd: Execd, client: httpx.Client) -> None:
    """Connections that are reset at any moment leave nothing behind."""
    before = len(os.listdir(f"/proc/{execd.process.pid}/fd"))
    for cut in (0, 5, 30, 60):
        sock = execd.connect()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(b"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n"[:cut])
        sock.close()
    until = time.monotonic() + 5
    while len(os.listdir(f"/proc/{execd.process.pid}/fd")) > before and time.monotonic() < until:
        time.sleep(0.01)
    assert client.get("/ping").status_code == 200
    assert len(os.listdir(f"/proc/{execd.process.pid}/fd")) <= before + 1


def test_interrupt_ends_it_too(tmp_path: Path) -> None:
    """SIGINT ends a server without an entrypoint as SIGTERM does."""
    server = Execd(tmp_path, {})
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 0
