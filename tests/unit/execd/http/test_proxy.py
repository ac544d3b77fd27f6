"""The pure half of the proxy, each promise as one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd import loop
from execd.http.proxy import InvalidProxyPort, _Flow, _outlast, local_location, split_proxy


@pytest.mark.parametrize(
    ("target", "port", "inner"),
    [
        (b"/proxy/8000", 8000, b"/"),
        (b"/proxy/8000/", 8000, b"/"),
        (b"/proxy/8000?a", 8000, b"/?a"),
        (b"/proxy/1//x%2F?a?b", 1, b"//x%2F?a?b"),
        (b"/proxy/65535/proxy/1", 65535, b"/proxy/1"),
        (b"/proxy/080/", 80, b"/"),
    ],
)
def test_the_inner_target_is_cut_out_untouched(target: bytes, port: int, inner: bytes) -> None:
    """Behind the port everything stays as it is; nothing there means the root."""
    assert split_proxy(target) == (port, inner)


@pytest.mark.parametrize("target", [b"/proxy", b"/proxy/", b"/proxy//", b"/proxy/0", b"/proxy/65536", b"/proxy/-1", b"/proxy/1a",
                                    b"/proxy/%31", b"/proxy/ 1", b"/proxy/000001", b"/proxy/?1"])  # fmt: skip
def test_what_is_no_port_is_refused(target: bytes) -> None:
    """A port is a plain number from 1 to 65535."""
    with pytest.raises(InvalidProxyPort):
        split_proxy(target)


@given(st.binary(max_size=30))
def test_nothing_else_is_raised(rest: bytes) -> None:
    """Any target gives a port and a path, or the refusal."""
    try:
        port, inner = split_proxy(b"/proxy/" + rest)
    except InvalidProxyPort:
        return
    assert 0 < port < 65536
    assert inner.startswith(b"/")


@pytest.mark.parametrize("moving", [False, True])
def test_half_a_tunnel_lasts_while_something_moves(moving: bool) -> None:
    """When one direction has ended and nothing moves in the other its peer may be gone, so it is given up."""

    async def main() -> bool:
        flow = _Flow()

        async def over() -> None:
            flow.ended.set()

        async def other() -> None:
            for _ in range(6):
                await loop.sleep(0.02)
                flow.moved += moving

        ways = loop.start(over(), "over"), loop.start(other(), "other")
        await flow.ended.wait()
        await _outlast(ways, flow, 0.05)
        ended = ways[1].done
        ways[1].cancel()
        return ended

    assert loop.run(main()) == moving


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("/share/", "/proxy/8000/share/"),
        ("/", "/proxy/8000/"),
        ("/?a=1#b", "/proxy/8000/?a=1#b"),
        ("http://localhost:8000/x?y", "/proxy/8000/x?y"),
        ("http://localhost:8000", "/proxy/8000/"),
        ("//localhost:8000/x", "/proxy/8000/x"),
        ("share", "share"),
        ("../up", "../up"),
        ("/proxy/8000/x", "/proxy/8000/x"),
        ("/proxy/80001/x", "/proxy/8000/proxy/80001/x"),
        ("//elsewhere/x", "//elsewhere/x"),
        ("https://elsewhere/x", "https://elsewhere/x"),
        ("http://localhost:80001/x", "http://localhost:80001/x"),
    ],
)
def test_a_redirect_to_the_service_itself_stays_below_its_prefix(value: str, seen: str) -> None:
    """Root-relative redirects and ones to the service's own address are rewritten, others are not (R97)."""
    assert local_location(value, 8000) == seen
