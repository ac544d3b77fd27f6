from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.target import (
    authority,
    candidates,
    own_authorities,
    parse_path,
    rewrite_location,
    upstream_target,
)
from gateway.sandboxes.model import Address
from specs.errors import InvalidPort

PREFIX = b"/v1/sandboxes/s1/proxy/8000"
OWN = own_authorities(8000, [b"gw.example.com", b""])
TARGET_BYTES = st.binary(max_size=60).map(
    lambda raw: bytes(b for b in raw if b > 0x20 and b not in b"?#\x7f")
)


@given(rest=TARGET_BYTES, query=TARGET_BYTES, root=st.sampled_from([b"", b"/api"]))
def test_path_and_query_reach_the_sandbox_untouched(rest: bytes, query: bytes, root: bytes) -> None:
    """Whatever stands behind the port arrives byte for byte."""
    path = parse_path(root + PREFIX + b"/" + rest, root)

    assert path is not None
    assert path.prefix == root + PREFIX
    suffix = b"?" + query if query else b""
    assert upstream_target(8000, path.rest, query) == b"/proxy/8000/" + rest + suffix
    assert upstream_target(44772, path.rest, query) == b"/" + rest + suffix


@pytest.mark.parametrize(
    ("raw", "sandbox", "port", "rest"),
    [
        (b"/sandboxes/s1/proxy/8000", "s1", b"8000", b""),
        (b"/v1/sandboxes/s1/proxy/8000/", "s1", b"8000", b"/"),
        (b"/v1/sandboxes/s1/proxy/8000//a/../b%2F", "s1", b"8000", b"//a/../b%2F"),
        (b"/sandboxes/s%31/proxy/x", "s1", b"x", b""),
    ],
)
def test_a_proxy_path_is_taken_apart(raw: bytes, sandbox: str, port: bytes, rest: bytes) -> None:
    """Both prefixes are known, the port is not judged yet."""
    path = parse_path(raw)

    assert path is not None
    assert (path.sandbox_id, path.port, path.rest) == (sandbox, port, rest)


@pytest.mark.parametrize(
    "raw",
    [
        b"/",
        b"/v1/sandboxes/s1",
        b"/v1/sandboxes/s1/proxy",
        b"/v1/sandboxes/s1/proxy/",
        b"/v2/sandboxes/s1/proxy/80",
        b"/v1/v1/sandboxes/s1/proxy/80",
        b"/v1/sandboxes//proxy/80",
        b"/sandboxes/a/b/proxy/80",
    ],
)
def test_other_paths_are_not_the_proxys(raw: bytes) -> None:
    """A path that is not exactly one of the two routes is left to others."""
    assert parse_path(raw) is None


@pytest.mark.parametrize(
    "port", [b"0", b"65536", b"99999999999999999999", b"-1", b"+80", b"abc", b"8 0", "٣".encode()]
)
def test_a_port_outside_the_range_is_refused(port: bytes) -> None:
    """Only 1..65535 in plain digits is a port."""
    path = parse_path(b"/sandboxes/s1/proxy/" + port)

    assert path is not None
    with pytest.raises(InvalidPort):
        path.port_number()


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (b"/x", PREFIX + b"/x"),
        (b"/", PREFIX + b"/"),
        (b"/x?next=/y#z", PREFIX + b"/x?next=/y#z"),
        (b"x", b"x"),
        (b"../x", b"../x"),
        (b"?q=1", b"?q=1"),
        (b"#f", b"#f"),
        (b"", b""),
        (b"//other.example/x", b"//other.example/x"),
        (b"https://other.example/x", b"https://other.example/x"),
        (b"http://127.0.0.1:8000/x?a=%2F#f", PREFIX + b"/x?a=%2F#f"),
        (b"HTTP://LocalHost:8000/x", PREFIX + b"/x"),
        (b"//127.0.0.1:8000/x", PREFIX + b"/x"),
        (b"http://[::1]:8000/x", PREFIX + b"/x"),
        (b"http://127.0.0.1:8000", PREFIX + b"/"),
        (b"http://127.0.0.1:8000?q", PREFIX + b"/?q"),
        (b"http://127.0.0.1:8001/x", b"http://127.0.0.1:8001/x"),
        (b"http://127.0.0.1/x", b"http://127.0.0.1/x"),
        (b"https://gw.example.com/x", PREFIX + b"/x"),
        (b"https://gw.example.com:443/x", PREFIX + b"/x"),
        (b"https://gw.example.com:8443/x", b"https://gw.example.com:8443/x"),
        (b"https://user@127.0.0.1:8000/x", b"https://user@127.0.0.1:8000/x"),
        (b"mailto:a@b", b"mailto:a@b"),
        (PREFIX + b"/x", PREFIX + b"/x"),
        (PREFIX, PREFIX),
        (PREFIX + b"0/x", PREFIX + PREFIX + b"0/x"),
        (b"https://gw.example.com" + PREFIX + b"/x", PREFIX + b"/x"),
    ],
)
def test_redirects_stay_below_the_prefix(location: bytes, expected: bytes) -> None:
    """Root-relative and own-host redirects come below the prefix once; all others are untouched."""
    assert rewrite_location(location, PREFIX, OWN) == expected


ADDRESS = Address(ip="172.17.0.2", port=44772, published_host="127.0.0.1", published_port=40001)


@pytest.mark.parametrize(
    ("address", "internal", "expected"),
    [
        (ADDRESS, True, (("172.17.0.2", 44772), ("127.0.0.1", 40001))),
        (ADDRESS, False, (("127.0.0.1", 40001),)),
        (Address(None, 44772, "h", 1), True, (("h", 1),)),
        (Address("10.0.0.1", 44772, None, None), False, (("10.0.0.1", 44772),)),
        (Address(None, 44772, None, None), True, ()),
    ],
)
def test_where_execd_may_be_dialled(
    address: Address, internal: bool, expected: tuple[tuple[str, int], ...]
) -> None:
    """The sandbox's own address comes first, unless the settings say otherwise."""
    assert candidates(address, internal=internal) == expected


def test_an_ipv6_authority_has_brackets() -> None:
    """RFC 3986 §3.2.2."""
    assert authority("fd00::2", 44772) == b"[fd00::2]:44772"
    assert authority("10.0.0.1", 44772) == b"10.0.0.1:44772"
