"""HTTP/1.1 heads and chunked bodies, each promise as one sentence."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from execd.wire.http1 import (
    MAX_HEADERS,
    ChunkedDecoder,
    ProtocolError,
    parse_request,
    parse_response,
    render_head,
    status_line,
)


def test_a_request_is_read() -> None:
    """Line, headers and what follows from them are taken apart."""
    head = parse_request(
        b"POST /a%2Fb?x=1 HTTP/1.1\r\nHost: h\r\nCONTENT-length: 5\r\nX-Thing:  v \r\nConnection: close"
    )
    assert (head.method, head.target, head.minor) == ("POST", b"/a%2Fb?x=1", 1)
    assert (head.length, head.chunked, head.keep) == (5, False, False)
    assert head.headers[2] == ("x-thing", "v")
    assert head.lines[1] == "CONTENT-length: 5"


@pytest.mark.parametrize(
    ("target", "origin"),
    [(b"http://h/a?b", b"/a?b"), (b"http://h", b"/"), (b"HTTPS://h?q", b"/?q"), (b"/%zz", b"/%zz")],
)
def test_absolute_targets_become_paths(target: bytes, origin: bytes) -> None:
    """A target with scheme and authority means its path (RFC 9112 §3.2.2)."""
    assert parse_request(b"GET %b HTTP/1.1\r\nHost: h" % target).target == origin


BAD = [
    (b"", 400),
    (b"GET /", 400),
    (b"GET  / HTTP/1.1\r\nHost: h", 400),
    (b"GET / HTTP/1.1 \r\nHost: h", 400),
    (b"G(T / HTTP/1.1\r\nHost: h", 400),
    (b"GET / HTTP/2.0\r\nHost: h", 505),
    (b"GET / HTTX/1.1\r\nHost: h", 400),
    (b"GET x HTTP/1.1\r\nHost: h", 400),
    (b"GET / HTTP/1.1", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nHost: h", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nbad", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nbad name: x", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nname : x", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\n folded: x", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\na: b\nc: d", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\na: b\rc", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\na: \0", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +1", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: \xb2", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked", 501),
    (b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
    (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nExpect: gold", 417),
    (b"GET / HTTP/1.1\r\nHost: h" + b"\r\na: b" * MAX_HEADERS, 431),
]


@pytest.mark.parametrize(("block", "status"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_an_ambiguous_request_is_refused(block: bytes, status: int) -> None:
    """Where two readers could disagree about a message, it is refused."""
    with pytest.raises(ProtocolError) as caught:
        parse_request(block)
    assert caught.value.status == status


@given(st.binary(max_size=300))
@example(b"GET / HTTP/1.1\r\nHost: h\r\n")
def test_the_parser_raises_nothing_else(block: bytes) -> None:
    """Arbitrary bytes give a request, or the protocol's error."""
    for parse in (parse_request, parse_response):
        try:
            parse(block)
        except ProtocolError:
            pass


HEADERISH = st.lists(
    st.tuples(
        st.sampled_from(
            ["Host", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade", "X"]
        ),
        st.text(st.characters(max_codepoint=255), max_size=12)
        | st.sampled_from(["5", "chunked", "close", "upgrade", "100-continue", "keep-alive, Upgrade"]),
    ),
    max_size=8,
)


@given(HEADERISH, st.sampled_from(["HTTP/1.1", "HTTP/1.0"]))
def test_no_framing_headers_raise_anything_else(headers: list[tuple[str, str]], version: str) -> None:
    """Any mixture of framing headers gives one unambiguous length, or the protocol's error."""
    block = f"GET / {version}\r\n" + "\r\n".join(f"{name}: {value}" for name, value in headers)
    try:
        head = parse_request(block.encode("latin-1"))
    except ProtocolError:
        return
    assert not (head.chunked and head.length is not None)


@pytest.mark.parametrize(
    ("version", "connection", "keep"),
    [("1.1", None, True), ("1.1", "close", False), ("1.1", "x, Close", False), ("1.0", None, False),
     ("1.0", "keep-alive", True), ("1.0", "close", False)],
)  # fmt: skip
def test_connections_are_kept_as_the_version_says(version: str, connection: str | None, keep: bool) -> None:
    """HTTP/1.1 keeps unless told to close, HTTP/1.0 closes unless told to keep."""
    extra = f"\r\nConnection: {connection}" if connection else ""
    assert parse_request(f"GET / HTTP/{version}\r\nHost: h{extra}".encode()).keep is keep


def test_an_upgrade_needs_the_connection_option() -> None:
    """Upgrade counts only where Connection lists it (RFC 9110 §7.8)."""
    base = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket"
    assert parse_request(base).upgrade is None
    assert parse_request(base + b"\r\nConnection: keep-alive, Upgrade").upgrade == "websocket"


def test_a_response_is_read() -> None:
    """A response keeps the spelling of its headers, and its reason may be empty."""
    head = parse_response(b"HTTP/1.1 200 \r\nX-Custom-NAME: v\r\nContent-Length: 3")
    assert (head.status, head.reason, head.length) == (200, "", 3)
    assert head.headers[0] == ("X-Custom-NAME", "v")
    assert parse_response(b"HTTP/1.0 404").status == 404


@pytest.mark.parametrize(
    "block",
    [
        b"HTTP/1.1 20 x",
        b"HTTP/1.1 abc x",
        b"SSH-2.0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2",
    ],
)
def test_a_response_that_is_not_http_is_refused(block: bytes) -> None:
    """What is not a response is not guessed at."""
    with pytest.raises(ProtocolError):
        parse_response(block)


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "\r\n\r\nbody", "a\0"])
def test_headers_cannot_break_out(value: str) -> None:
    """A header value with a line break is never sent."""
    with pytest.raises(ValueError):
        render_head(status_line(200), [("X", value)])


@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=8),
    st.data(),
    st.integers(1, 100),
    st.sampled_from([b"", b";ext=1", b" ; a=b"]),
    st.sampled_from([b"", b"T: x\r\n"]),
)
def test_any_chunking_gives_the_same_body(
    chunks: list[bytes], data: st.DataObject, limit: int, extension: bytes, trailer: bytes
) -> None:
    """However a chunked body is cut on the way, the same bytes come out and nothing behind it is touched."""
    wire = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    wire += b"0\r\n" + trailer + b"\r\nNEXT"
    decoder = ChunkedDecoder()
    out, rest = b"", b""
    while wire and not decoder.done:
        cut = data.draw(st.integers(1, len(wire)))
        rest, wire = rest + wire[:cut], wire[cut:]
        while True:
            pieces, used = decoder.feed(rest, limit)
            rest = rest[used:]
            out += b"".join(pieces)
            assert sum(len(piece) for piece in pieces) <= limit
            if not pieces:
                break
    assert decoder.done
    assert out == b"".join(chunks)
    assert rest + wire == b"NEXT"


@pytest.mark.parametrize(
    "wire",
    [b"x\r\n", b"-1\r\n", b"\r\n", b"0x5\r\n", b"5\r\nhelloX\r\n", b"1" * 16 + b"\r\n", b"5" + b" " * 5000,
     b"1\n\r\n", b"0\r\n" + b"a: " + b"b" * 3000 + b"\r\n" + (b"a: " + b"b" * 3000 + b"\r\n") * 6],
    ids=lambda wire: wire[:10].decode("latin-1"),
)  # fmt: skip
def test_broken_chunks_are_refused(wire: bytes) -> None:
    """A chunked body that is malformed or without bounds raises the protocol's error."""
    with pytest.raises(ProtocolError):
        ChunkedDecoder().feed(wire, 1 << 20)
