"""Addresses and tokens."""

from __future__ import annotations

import pytest

from gateway.sandboxes.endpoints import Hosts, derive_token, direct, through_server, token_hash
from gateway.sandboxes.model import Address, Secret
from specs.errors import EndpointUnavailable

TOKEN = Secret("t")


def hosts(public: str | None = None, host_ip: str | None = None, asked: str = "gw.example:8080") -> Hosts:
    return Hosts(public, host_ip, asked)


@pytest.mark.parametrize(
    ("published", "names", "endpoint"),
    [
        ("127.0.0.1", hosts(), "127.0.0.1:40001"),
        ("10.0.0.5", hosts(host_ip="192.0.2.1"), "10.0.0.5:40001"),
        ("0.0.0.0", hosts(), "gw.example:40001"),
        ("0.0.0.0", hosts(asked="[2001:db8::1]:8080"), "[2001:db8::1]:40001"),
        ("0.0.0.0", hosts(asked="gw.example"), "gw.example:40001"),
        ("0.0.0.0", hosts(host_ip="192.0.2.1"), "192.0.2.1:40001"),
        ("::", hosts(host_ip="2001:db8::2"), "[2001:db8::2]:40001"),
        ("::1", hosts(), "[::1]:40001"),
        ("127.0.0.1", hosts(public="box.example"), "box.example:40001"),
        ("127.0.0.1", hosts(public="https://box.example:8443/base/"), "box.example:40001"),
    ],
)
def test_direct_host(published: str, names: Hosts, endpoint: str) -> None:
    """The host is the operator's word, the published one, or the one the caller used (R103)."""
    address = Address("172.17.0.2", 44772, published, 40001)
    assert direct(address, 44772, names, TOKEN).endpoint == endpoint
    assert direct(address, 80, names, TOKEN).endpoint == f"{endpoint}/proxy/80"
    assert direct(address, 80, names, TOKEN).headers == (("X-EXECD-ACCESS-TOKEN", "t"),)


@pytest.mark.parametrize(
    ("names", "endpoint"),
    [
        (hosts(), "gw.example:8080/v1/sandboxes/s/proxy/80"),
        (Hosts(None, None, "gw", ""), "gw/sandboxes/s/proxy/80"),
        (hosts(public="https://box.example/base/"), "box.example/base/sandboxes/s/proxy/80"),
    ],
)
def test_through_the_server(names: Hosts, endpoint: str) -> None:
    """The way through the server carries no token."""
    route = through_server("s", 80, names)
    assert (route.endpoint, route.headers) == (endpoint, ())


def test_no_published_port() -> None:
    """Without a port there is no direct way, and the refusal names the other one."""
    with pytest.raises(EndpointUnavailable, match="use_server_proxy"):
        direct(Address("172.17.0.2", 44772, None, None), 80, hosts(), TOKEN)
    with pytest.raises(EndpointUnavailable):
        direct(None, 80, hosts(), TOKEN)


def test_tokens_differ_by_everything() -> None:
    """Secret, sandbox and salt each change the token; the same three give it again; only its hash is public."""
    tokens = {
        derive_token(secret, sandbox, salt).reveal()
        for secret in (b"a" * 32, b"b" * 32)
        for sandbox in ("s1", "s2")
        for salt in ("x", "y")
    }
    assert len(tokens) == 8
    token = derive_token(b"a" * 32, "s1", "x")
    assert token.reveal() in tokens
    assert len(token.reveal()) == 43
    assert token_hash(token).startswith("sha256:")
    assert token.reveal() not in token_hash(token)
    assert token.reveal() not in repr(token)
