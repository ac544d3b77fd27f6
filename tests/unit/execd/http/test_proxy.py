"""The pure half of the proxy, each promise as one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.http.proxy import InvalidProxyPort, split_proxy


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
