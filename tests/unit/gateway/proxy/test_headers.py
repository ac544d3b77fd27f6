from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.proxy.headers import (
    Forwarding,
    Header,
    api_key,
    asks_for_websocket,
    render_request,
    request_headers,
    response_headers,
)

CALL = Forwarding(
    authority=b"172.17.0.2:44772",
    port=8000,
    token=b"execd-token",
    prefix=b"/v1/sandboxes/s1/proxy/8000",
    scheme=b"https",
    host=b"gw.example.com",
    peer=b"10.1.2.3",
)
ADDED: list[Header] = [
    (b"X-Forwarded-Proto", b"https"),
    (b"X-Forwarded-Host", b"gw.example.com"),
    (b"X-Forwarded-For", b"10.1.2.3"),
    (b"X-Forwarded-Prefix", b"/v1/sandboxes/s1/proxy/8000"),
    (b"X-EXECD-ACCESS-TOKEN", b"execd-token"),
]


def passed(inbound: list[Header], **changes: object) -> list[Header]:
    call = replace(CALL, **changes)  # type: ignore[arg-type]
    headers = request_headers(inbound, call)
    assert headers[0] == (b"Host", CALL.authority)
    assert headers[len(headers) - len(ADDED) :] == ADDED
    return headers[1 : len(headers) - len(ADDED)]


@pytest.mark.parametrize(
    "name",
    [
        b"host",
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"open-sandbox-api-key",
        b"OPEN-SANDBOX-API-KEY",
        b"open_sandbox_api_key",
        b"opensandbox-secure-access",
        b"opensandbox-access-renew",
        b"opensandbox-ingress-to",
        b"x-execd-access-token",
        b"X_Execd_Access_Token",
        b"forwarded",
        b"x-forwarded-for",
        b"x_forwarded_for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
        b"x-real-ip",
        b"opensandbox-egress-auth",
    ],
)
def test_what_is_meant_for_this_hop_or_the_platform_does_not_pass(name: bytes) -> None:
    """Hop-by-hop, platform and hearsay headers stay at the proxy, however they are spelled."""
    assert passed([(name, b"x"), (b"accept", b"*/*")]) == [(b"accept", b"*/*")]


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer app-token"),
        (b"cookie", b"a=1; b=2"),
        (b"x-odd", b"caf\xe9 \xff"),
        (b"content-length", b"7"),
        (b"expect", b"100-continue"),
        (b"x-empty", b""),
        (b"origin", b"https://example.com"),
        (b"accept-encoding", b"br"),
    ],
)
def test_end_to_end_headers_pass_byte_for_byte(header: Header) -> None:
    """The workload's own headers arrive as they were, non-ASCII bytes included."""
    assert passed([header]) == [header]


def test_repeats_and_order_are_kept() -> None:
    """Repeated headers are neither merged nor moved."""
    inbound = [(b"x-a", b"1"), (b"x-b", b"2"), (b"x-a", b"3")]

    assert passed(inbound) == inbound


def test_connection_lists_names_of_this_hop() -> None:
    """A header that Connection names is for this hop, but no one can so remove the body's framing."""
    inbound = [
        (b"connection", b"close, X-Private , Content-Length"),
        (b"x-private", b"1"),
        (b"content-length", b"3"),
    ]

    assert passed(inbound) == [(b"content-length", b"3")]


@pytest.mark.parametrize(
    "name_value",
    [
        (b"authorization", b"Bearer the-platform-key"),
        (b"x-api-key", b"the-platform-key"),
        (b"opensandbox-egress-auth", b"the-platform-key"),
    ],
)
def test_the_platform_key_does_not_pass_under_another_name(name_value: Header) -> None:
    """A client that copies the platform's key into other headers does not give it to the workload."""
    inbound = [(b"open-sandbox-api-key", b"the-platform-key"), name_value]

    assert passed(inbound, port=18080) == []


def test_a_short_key_cannot_take_the_framing_away() -> None:
    """A key that happens to equal a length leaves Content-Length in place."""
    assert passed([(b"open-sandbox-api-key", b"7"), (b"content-length", b"7")]) == [(b"content-length", b"7")]


def test_the_callers_egress_token_passes_to_the_egress_port_only() -> None:
    """Port 18080 gets the token that the caller sent and never one of ours."""
    inbound = [(b"opensandbox-egress-auth", b"t")]

    assert passed(inbound, port=18080) == inbound
    assert passed([], port=18080) == []


def test_a_websocket_handshake_is_a_new_one() -> None:
    """Sec-WebSocket headers are of this hop; Origin is the caller's."""
    inbound = [(b"sec-websocket-key", b"k"), (b"sec-websocket-extensions", b"e"), (b"origin", b"o")]

    names = [name for name, _ in request_headers(inbound, CALL, websocket=True)]

    assert b"origin" in names
    assert not [name for name in names if name.startswith(b"sec-")]


def test_an_answer_loses_hop_by_hop_headers_and_server_only() -> None:
    """Everything else of an answer stays, repeated cookies and the content coding included."""
    upstream = [
        (b"Server", b"x"),
        (b"Connection", b"keep-alive, X-Hop"),
        (b"X-Hop", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"Content-Encoding", b"gzip, br"),
        (b"Content-Length", b"9"),
    ]

    assert response_headers(upstream, 200) == [
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"content-encoding", b"gzip, br"),
        (b"content-length", b"9"),
    ]
    assert (b"content-length", b"9") not in response_headers(upstream, 304)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([(b"upgrade", b"websocket")], True),
        ([(b"Upgrade", b"h2c, WebSocket")], True),
        ([(b"upgrade", b"h2c")], False),
        ([], False),
    ],
)
def test_an_upgrade_to_websocket_is_seen(headers: list[Header], expected: bool) -> None:
    """Only a websocket upgrade counts."""
    assert asks_for_websocket(headers) is expected


def test_the_api_key_is_read_as_sent() -> None:
    """The first key header is the key; none is None."""
    assert api_key([(b"open-sandbox-api-key", b"k")]) == "k"
    assert api_key([]) is None


def test_a_request_head_is_written_verbatim() -> None:
    """Method, target and headers are written as they are."""
    assert (
        render_request("PROPFIND", b"/a%2Fb?c", [(b"X", b"1")])
        == b"PROPFIND /a%2Fb?c HTTP/1.1\r\nX: 1\r\n\r\n"
    )
