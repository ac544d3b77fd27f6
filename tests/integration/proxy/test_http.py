from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
import struct
import zlib

import pytest

from gateway.config import ProxySettings
from gateway.sandboxes.model import Address
from tests.integration.proxy.conftest import KEY, TOKEN, Gateway, Sandbox, read_body, read_head, read_request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
P = b"/v1/sandboxes/s1/proxy/"


def parts(answer: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *lines = head.split(b"\r\n")
    return int(line.split()[1]), {k.lower(): v for k, _, v in (item.partition(b": ") for item in lines)}, body


def code(answer: bytes) -> tuple[int, str]:
    status, _, body = parts(answer)
    return status, json.loads(body)["code"]


@pytest.mark.parametrize("root", [b"/v1", b""])
@pytest.mark.parametrize(
    "rest",
    [
        b"/?a=1&a=2&b=&c&d=%2F%20+&e=%C3%28",
        b"/a%2Fb//c/./d",
        b"/a/../../x;p=1?q?r=/..//",
        b"",
        b"?x",
        b"/%00%zz%",
        b"//host/x",
        b"/~!$&'()*+,;=:@|^`{}[]\"<>",
    ],
)
async def test_targets_are_byte_identical(
    gateway: Gateway, sandbox: Sandbox, root: bytes, rest: bytes
) -> None:
    """The path and query behind the port arrive as sent (R98)."""
    answer = await gateway.raw(b"GET " + root + b"/sandboxes/s1/proxy/8000" + rest + b" HTTP/1.1\r\n")

    assert parts(answer)[0] == 200, answer
    shown = rest if rest.startswith(b"/") else b"/" + rest
    assert sandbox.requests[0].line == b"GET /proxy/8000" + shown + b" HTTP/1.1"


async def test_execd_itself_is_reached_at_its_root(gateway: Gateway, sandbox: Sandbox) -> None:
    """Port 44772 is execd, not a port behind it."""
    await gateway.raw(b"GET " + P + b"44772/ping?x HTTP/1.1\r\n")

    assert sandbox.requests[0].line == b"GET /ping?x HTTP/1.1"


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"]
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_every_method_passes_with_its_body(
    gateway: Gateway, sandbox: Sandbox, method: str, chunked: bool
) -> None:
    """No method is refused and no body is dropped, on GET and DELETE neither (R98)."""
    body = b'{"a": 1}' * 100
    framing = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(body)
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    if method == "HEAD":
        sandbox.answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")

    answer = await gateway.raw(method.encode() + b" " + P + b"8000/x HTTP/1.1\r\n" + framing, sent)

    assert parts(answer)[0] == 200
    assert sandbox.requests[0].line == method.encode() + b" /proxy/8000/x HTTP/1.1"
    assert sandbox.requests[0].body == body


async def test_only_the_proxys_own_headers_are_added(gateway: Gateway, sandbox: Sandbox) -> None:
    """The sandbox sees the caller's headers byte for byte, ours, and never the platform's key (R106)."""
    await gateway.raw(
        b"POST " + P + b"8000/x HTTP/1.1\r\nX-Odd: caf\xe9\r\nAuthorization: Basic eA==\r\nCookie: a=1\r\n"
        b"X-Two: 1\r\nX-Two: 2\r\nX-Execd-Access-Token: forged\r\nOpenSandbox-Secure-Access: s\r\n"
        b"OpenSandbox-Access-Renew: skip\r\nOpenSandbox-Egress-Auth: e\r\nX-Forwarded-For: 9.9.9.9\r\n"
        b"Accept-Encoding: br\r\nContent-Length: 0\r\n"
    )

    seen = sandbox.requests[0].headers
    assert seen == [
        (b"Host", f"127.0.0.1:{sandbox.port}".encode()),
        (b"x-odd", b"caf\xe9"),
        (b"authorization", b"Basic eA=="),
        (b"cookie", b"a=1"),
        (b"x-two", b"1"),
        (b"x-two", b"2"),
        (b"accept-encoding", b"br"),
        (b"content-length", b"0"),
        (b"X-Forwarded-Proto", b"http"),
        (b"X-Forwarded-Host", b"gw"),
        (b"X-Forwarded-For", b"127.0.0.1"),
        (b"X-Forwarded-Prefix", P + b"8000"),
        (b"X-EXECD-ACCESS-TOKEN", TOKEN.encode()),
    ]
    assert KEY.encode() not in repr(seen).encode()


async def test_the_egress_port_gets_the_callers_token_and_never_ours(
    gateway: Gateway, sandbox: Sandbox
) -> None:
    """Port 18080 is reachable with exactly what the caller sent (R108)."""
    await gateway.raw(b"POST " + P + b"18080/credential-vault HTTP/1.1\r\nContent-Length: 0\r\n")
    await gateway.raw(
        b"POST " + P + b"18080/policy HTTP/1.1\r\nOPENSANDBOX-EGRESS-AUTH: mine\r\nContent-Length: 0\r\n"
    )

    assert [r.values(b"opensandbox-egress-auth") for r in sandbox.requests] == [[], [b"mine"]]


async def test_large_headers_pass_both_ways(gateway: Gateway, sandbox: Sandbox) -> None:
    """8 KiB headers are nothing special (R98)."""
    big = b"v" * 8192
    sandbox.answering(b"HTTP/1.1 200 OK\r\nX-Back: " + big + b"\r\nContent-Length: 0\r\n\r\n")

    _, headers, _ = parts(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\nX-Big: " + big + b"\r\n"))

    assert sandbox.requests[0].values(b"x-big") == [big]
    assert headers[b"x-back"] == big


@pytest.mark.parametrize("says_continue", [True, False])
async def test_expect_continue_is_asked_of_the_sandbox(
    gateway: Gateway, sandbox: Sandbox, says_continue: bool
) -> None:
    """A body that waits for leave arrives whole, whether or not the service gives leave (R98)."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers = await read_head(reader)
        if says_continue:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await read_body(reader, headers)
        assert (b"expect", b"100-continue") in headers
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    sandbox.handler = handler

    answer = await gateway.raw(
        b"POST " + P + b"8000/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", b"hello"
    )

    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nhello")


async def test_a_refused_expectation_spares_the_body(gateway: Gateway, sandbox: Sandbox) -> None:
    """A final answer instead of 100 reaches the caller before any body was asked for."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    sandbox.handler = handler

    answer = await gateway.raw(
        b"PUT " + P + b"8000/ HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("method", "coding", "body", "with_length"),
    [
        ("GET", b"gzip", gzip.compress(b"a" * 9999), True),
        ("GET", b"gzip", gzip.compress(b"a" * 9999), False),
        ("GET", b"deflate, gzip", gzip.compress(zlib.compress(b"a" * 9999)), True),
        ("GET", b"br", b"\x8b\x01\x80abc\x03", True),
        ("GET", b"zstd", b"\x28\xb5\x2f\xfd\x00", False),
        ("HEAD", b"gzip", b"", True),
        ("HEAD", b"gzip", b"", False),
    ],
)
async def test_coded_bodies_come_back_raw_with_matching_headers(
    gateway: Gateway, sandbox: Sandbox, method: str, coding: bytes, body: bytes, with_length: bool
) -> None:
    """Nothing is decoded on the way (R95)."""
    length = b"Content-Length: %d\r\n" % (len(body) or 1234) if with_length else b""
    close = b"" if with_length else b"Connection: close\r\n"

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + b"\r\n" + length + close + b"\r\n" + body
        )
        await writer.drain()

    sandbox.handler = handler

    status, headers, got = parts(await gateway.raw(method.encode() + b" " + P + b"8000/ HTTP/1.1\r\n"))

    assert status == 200
    assert headers[b"content-encoding"] == coding
    if method == "HEAD":
        assert got == b""
        assert headers.get(b"content-length") == (b"1234" if with_length else None)
    elif with_length:
        assert (got, headers[b"content-length"]) == (body, b"%d" % len(body))
    else:
        assert got == b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_body_are_whole_and_reuse_the_connection(
    gateway: Gateway, sandbox: Sandbox, status: int
) -> None:
    """204 and 304 end with their head, with a length (legal in a 304) or without."""
    sandbox.answering(b"HTTP/1.1 %d X\r\nETag: e\r\nContent-Length: 77\r\n\r\n" % status)

    for _ in range(2):
        got, headers, body = parts(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n"))
        assert (got, headers[b"etag"], body) == (status, b"e", b"")
    assert sandbox.connections == 1


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (b"/x?a=%2F#f", P + b"8000/x?a=%2F#f"),
        (b"x", b"x"),
        (b"//host/x", b"//host/x"),
        (b"http://127.0.0.1:8000/x", P + b"8000/x"),
        (b"http://gw/x", P + b"8000/x"),
        (b"https://other/x", b"https://other/x"),
    ],
)
async def test_redirects_come_below_the_prefix(
    gateway: Gateway, sandbox: Sandbox, location: bytes, expected: bytes
) -> None:
    """A redirect of the service stays inside its proxy path (R97)."""
    sandbox.answering(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n")

    _, headers, _ = parts(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n"))

    assert headers[b"location"] == expected


@pytest.mark.parametrize(
    ("path", "key", "expected"),
    [
        (P + b"8000/", "", (401, "MISSING_API_KEY")),
        (P + b"8000/", "wrong", (401, "INVALID_API_KEY")),
        (b"/sandboxes/none/proxy/1/", KEY, (404, "DOCKER::SANDBOX_NOT_FOUND")),
        (b"/sandboxes/none/proxy/1/", "", (401, "MISSING_API_KEY")),
        (b"/sandboxes/paused/proxy/1/", KEY, (409, "DOCKER::SANDBOX_NOT_RUNNING")),
        (P + b"0/", KEY, (400, "DOCKER::INVALID_PORT")),
        (P + b"65536", KEY, (400, "DOCKER::INVALID_PORT")),
        (P + b"abc", KEY, (400, "DOCKER::INVALID_PORT")),
    ],
)
async def test_refusals_are_typed(
    gateway: Gateway, sandbox: Sandbox, path: bytes, key: str, expected: tuple[int, str]
) -> None:
    """Each refusal has its own status and code, and nothing reaches a sandbox."""
    assert code(await gateway.raw(b"GET " + path + b" HTTP/1.1\r\n", key=key)) == expected
    assert sandbox.connections == 0


async def test_a_websocket_upgrade_that_is_no_handshake_is_refused(
    gateway: Gateway, sandbox: Sandbox
) -> None:
    """`Upgrade: websocket` on plain HTTP is a 400 (lifecycle §1.4)."""
    assert parts(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\nUpgrade: websocket\r\n"))[0] == 400
    assert sandbox.connections == 0


async def test_a_closed_port_is_a_502(gateway: Gateway) -> None:
    """Nothing listening is a connection failure (R100)."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gateway.services.operations.address = Address("127.0.0.1", unused.getsockname()[1], None, None)
        answer = await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n")

    assert code(answer) == (502, "BACKEND_CONNECTION_FAILED")


async def test_an_unreachable_address_gives_way_to_the_published_port(
    gateway: Gateway, sandbox: Sandbox
) -> None:
    """When the sandbox's own address swallows packets, the published port is used, and remembered."""
    swallow = socket.socket()
    swallow.bind(("127.0.0.1", 0))
    swallow.listen(0)
    fillers = []
    for _ in range(4):  # a full backlog drops further SYNs
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(swallow.getsockname())
        fillers.append(filler)
    gateway.services.operations.address = Address(
        "127.0.0.1", swallow.getsockname()[1], "127.0.0.1", sandbox.port
    )
    loop = asyncio.get_running_loop()
    times = []
    for _ in range(2):
        sandbox.answering(OK.replace(b"Content-Length: 2", b"Connection: close\r\nContent-Length: 2"))
        start = loop.time()
        assert parts(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n"))[0] == 200
        times.append(loop.time() - start)
    for each in [swallow, *fillers]:
        each.close()

    assert times[0] >= 0.9
    assert times[1] < 0.5


@pytest.mark.parametrize("proxy_settings", [ProxySettings(answer_timeout_seconds=0.2)])
async def test_silence_before_the_head_is_a_504(gateway: Gateway, sandbox: Sandbox) -> None:
    """A service that accepts and never answers times out with a code (R100)."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    sandbox.handler = handler

    assert code(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n")) == (504, "BACKEND_TIMEOUT")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x01\x02\x03",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"",
    ],
)
async def test_garbage_is_a_502(gateway: Gateway, sandbox: Sandbox, answer: bytes) -> None:
    """What is not an HTTP answer is a response failure (R100)."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    sandbox.handler = handler

    assert code(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n")) == (502, "BACKEND_RESPONSE_FAILED")


@pytest.mark.parametrize(
    ("answer", "reset"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npart", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nzz\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npart", True),
    ],
)
async def test_a_break_in_the_body_is_no_clean_end(
    gateway: Gateway, sandbox: Sandbox, answer: bytes, reset: bool
) -> None:
    """A truncated answer cannot be taken for a whole one (R100)."""
    taken = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()
        await taken.wait()
        if reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    sandbox.handler = handler
    reader, writer = await gateway.connect()
    writer.write(
        b"GET " + P + b"8000/ HTTP/1.1\r\nHost: gw\r\nOPEN-SANDBOX-API-KEY: " + KEY.encode() + b"\r\n\r\n"
    )
    await reader.readuntil(b"part")
    taken.set()
    try:
        async with asyncio.timeout(5):
            rest = await reader.read(-1)
    except ConnectionResetError:
        rest = b""
    writer.close()

    assert b"0\r\n\r\n" not in rest
    assert len(rest) < 10


async def test_connections_are_reused_and_stale_ones_forgotten(gateway: Gateway, sandbox: Sandbox) -> None:
    """Keep-alive is used; a connection that the sandbox closed meanwhile costs nobody an error."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            sandbox.requests.append(await read_request(reader))
            writer.write(OK)
        # The third request on this connection is read and dropped: the race of a keep-alive time-out.
        await reader.readuntil(b"\r\n\r\n")

    sandbox.handler = handler

    for _ in range(6):
        assert parts(await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n"))[0] == 200
    assert sandbox.connections == 3


async def test_a_post_is_never_repeated(gateway: Gateway, sandbox: Sandbox) -> None:
    """A request that may not be repeated fails when a reused connection drops it."""
    drops = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal drops
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        drops += 1

    sandbox.handler = handler
    await gateway.raw(b"GET " + P + b"8000/ HTTP/1.1\r\n")

    answer = await gateway.raw(b"POST " + P + b"8000/ HTTP/1.1\r\nContent-Length: 0\r\n")

    assert code(answer) == (502, "BACKEND_RESPONSE_FAILED")
    assert (drops, sandbox.connections) == (1, 1)


@pytest.mark.parametrize("proxy_settings", [ProxySettings(answer_timeout_seconds=0.2)])
async def test_a_silent_stream_stays_open(gateway: Gateway, sandbox: Sandbox) -> None:
    """The deadline for the head does not cut a stream, and each event passes at once."""
    speak = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        writer.write(b"8\r\ndata: 1\n\r\n")
        await speak.wait()
        writer.write(b"8\r\ndata: 2\n\r\n0\r\n\r\n")

    sandbox.handler = handler
    reader, writer = await gateway.connect()
    writer.write(
        b"GET " + P + b"44772/ HTTP/1.1\r\nHost: gw\r\nOPEN-SANDBOX-API-KEY: " + KEY.encode() + b"\r\n\r\n"
    )
    await reader.readuntil(b"data: 1\n\r\n")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await reader.read(1)
    speak.set()
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"0\r\n\r\n") == b"8\r\ndata: 2\n\r\n0\r\n\r\n"
    writer.close()


@pytest.mark.parametrize("head_sent", [True, False])
async def test_a_caller_that_leaves_releases_the_sandbox(
    gateway: Gateway, sandbox: Sandbox, head_sent: bool
) -> None:
    """The sandbox's connection ends promptly when the caller's does, before the head as well as in a silent body."""
    arrived = asyncio.Event()
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if head_sent:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        arrived.set()
        try:
            await reader.read()
        finally:
            ended.set()

    sandbox.handler = handler
    reader, writer = await gateway.connect()
    writer.write(
        b"GET " + P + b"8000/ HTTP/1.1\r\nHost: gw\r\nOPEN-SANDBOX-API-KEY: " + KEY.encode() + b"\r\n\r\n"
    )
    await arrived.wait()
    if head_sent:
        await reader.readuntil(b"x\r\n")
    writer.close()

    async with asyncio.timeout(2):
        await ended.wait()


async def test_an_upload_that_breaks_off_does_not_look_complete(gateway: Gateway, sandbox: Sandbox) -> None:
    """When the caller vanishes in its body, the sandbox sees a broken request."""
    broken = asyncio.Event()
    began = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers = await read_head(reader)
        began.set()
        try:
            await read_body(reader, headers)
        except (OSError, asyncio.IncompleteReadError):
            broken.set()

    sandbox.handler = handler
    _, writer = await gateway.connect()
    writer.write(
        b"POST "
        + P
        + b"8000/ HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\nOPEN-SANDBOX-API-KEY: "
        + KEY.encode()
        + b"\r\n\r\n4\r\npart\r\n"
    )
    await began.wait()
    writer.close()

    async with asyncio.timeout(2):
        await broken.wait()


async def test_an_early_answer_ends_the_upload(gateway: Gateway, sandbox: Sandbox) -> None:
    """A service may answer before it read everything; the caller gets that answer."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    sandbox.handler = handler
    reader, writer = await gateway.connect()
    writer.write(
        b"POST "
        + P
        + b"8000/ HTTP/1.1\r\nHost: gw\r\nContent-Length: 99999999\r\nOPEN-SANDBOX-API-KEY: "
        + KEY.encode()
        + b"\r\n\r\nsome"
    )
    async with asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


@pytest.mark.parametrize("proxy_settings", [ProxySettings(connections_per_sandbox=2)])
async def test_a_sandbox_may_have_so_many_connections_and_not_more(
    gateway: Gateway, sandbox: Sandbox
) -> None:
    """Over the bound the answer is 429, and other sandboxes and later calls are not touched."""
    release = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            arrived.release()
            await release.wait()
            writer.write(OK)

    arrived = asyncio.Semaphore(0)
    sandbox.handler = handler
    request = b"GET " + P + b"8000/ HTTP/1.1\r\n"
    held = [asyncio.create_task(gateway.raw(request)) for _ in range(2)]
    for _ in held:
        await arrived.acquire()

    assert code(await gateway.raw(request)) == (429, "SANDBOX::TOO_MANY_REQUESTS")
    release.set()
    assert [parts(answer)[0] for answer in await asyncio.gather(*held)] == [200, 200]
    assert parts(await gateway.raw(request))[0] == 200


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("direction", ["down", "up"])
async def test_a_slow_side_does_not_fill_the_memory(
    gateway: Gateway, sandbox: Sandbox, direction: str
) -> None:
    """The fast side is stopped when the slow one stops reading: what was taken is bounded by buffers."""
    size = 200_000_000
    block = bytes(1_000_000)
    moved = 0
    stalled = asyncio.Event()
    go = asyncio.Event()

    async def pour(writer: asyncio.StreamWriter) -> None:
        nonlocal moved
        for _ in range(size // len(block)):
            writer.write(block)
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                stalled.set()
                await writer.drain()
            moved += len(block)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        if direction == "down":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            await pour(writer)
            return
        await go.wait()
        left = size
        while left:
            left -= len(await reader.read(1 << 20))
        writer.write(OK)
        await writer.drain()

    sandbox.handler = handler
    before = peak_kib()
    reader, writer = await gateway.connect()
    length = size if direction == "up" else 0
    writer.write(
        b"POST "
        + P
        + b"8000/ HTTP/1.1\r\nHost: gw\r\nContent-Length: %d\r\nOPEN-SANDBOX-API-KEY: " % length
        + KEY.encode()
        + b"\r\n\r\n"
    )
    pouring = asyncio.create_task(pour(writer)) if direction == "up" else None
    async with asyncio.timeout(20):
        await stalled.wait()
    assert moved < 40_000_000  # kernel buffers on two sockets and ours
    go.set()
    async with asyncio.timeout(30):
        if pouring is None:
            await reader.readuntil(b"\r\n\r\n")
            left = size
            while left:
                left -= len(await reader.read(1 << 20))
        else:
            await pouring
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()

    assert peak_kib() - before < 60_000
