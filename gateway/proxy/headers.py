"""Which headers cross the server proxy, as pure functions over raw bytes.

Names and values stay the bytes they were: nothing is decoded, folded, sorted or merged.
The trap is spelling: CGI-style servers read `X_Forwarded_For` and `X-Forwarded-For` as one
name, so names are compared with `_` and `-` as equals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from specs import names

Header = tuple[bytes, bytes]


def _key(name: str) -> bytes:
    return name.lower().encode("ascii")


# RFC 9110 §7.6.1 and lifecycle §1.4; framing is rebuilt by whoever sends the message on.
HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# What a client says of its own origin is hearsay; the proxy says what it saw itself.
FORWARDING: Final = frozenset(
    {
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)

# Addressed to the platform, never to a workload.
PLATFORM: Final = frozenset(
    {
        _key(names.HEADER_API_KEY),
        _key(names.HEADER_SECURE_ACCESS),
        _key(names.HEADER_ACCESS_RENEW),
        _key(names.HEADER_INGRESS_TO),
        _key(names.HEADER_ACCESS_TOKEN),
    }
)

_NOT_FORWARDED: Final = HOP_BY_HOP | FORWARDING | PLATFORM | {b"host"}
_NOT_RETURNED: Final = HOP_BY_HOP | {b"server"}
_API_KEY: Final = _key(names.HEADER_API_KEY)
_EGRESS_AUTH: Final = _key(names.HEADER_EGRESS_AUTH)
_WEBSOCKET_PREFIX: Final = b"sec-websocket-"
# Connection may name any header; these carry meaning for the message itself and stay (RFC 9110 §7.6.1).
_END_TO_END: Final = frozenset({b"content-length", b"content-type", b"content-encoding", b"expect"})


@dataclass(frozen=True, slots=True)
class Forwarding:
    """What the proxy itself says to the sandbox about one call.

    Attributes:
        authority: `Host` of the upstream.
        port: the port inside the sandbox that the caller addressed.
        token: execd's access token.
        prefix: public path prefix of this route, so that an app can build its own links.
        scheme: scheme the caller used, `http` or `https`.
        host: the caller's `Host`.
        peer: the caller's address.
    """

    authority: bytes
    port: int
    token: bytes
    prefix: bytes
    scheme: bytes
    host: bytes
    peer: bytes


def value_of(headers: Iterable[Header], name: bytes) -> bytes | None:
    """Return the first value of a header (lower-case name), or None."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


def api_key(headers: Iterable[Header]) -> str | None:
    """Return the caller's API key as sent, or None."""
    value = value_of(headers, _API_KEY)
    return None if value is None else value.decode("latin-1")


def asks_for_websocket(headers: Iterable[Header]) -> bool:
    """Say whether a plain HTTP request asks to be upgraded to a WebSocket."""
    value = value_of(headers, b"upgrade")
    return value is not None and b"websocket" in _tokens(value)


def request_headers(inbound: list[Header], call: Forwarding, *, websocket: bool = False) -> list[Header]:
    """
    Return the headers of the upstream request, framing excluded.

    `Authorization` and `Cookie` pass: they belong to the workload's own service. A header of any name that
    carries the caller's API key does not pass: some clients fill other headers with it. The egress token
    passes to the egress port alone; elsewhere it would hand the workload power over its own rules.

    Args:
        inbound: the caller's headers, in order.
        call: what the proxy adds.
        websocket: drop the handshake's own headers too; the new handshake has others.
    """
    dropped = _NOT_FORWARDED | _listed(inbound)
    if call.port != names.PORT_EGRESS:
        dropped |= {_EGRESS_AUTH}
    secret = value_of(inbound, _API_KEY)
    out: list[Header] = [(b"Host", call.authority)]
    for name, value in inbound:
        key = name.lower().replace(b"_", b"-")
        if key in dropped or (websocket and key.startswith(_WEBSOCKET_PREFIX)):
            continue
        if secret and value.rpartition(b" ")[2] == secret and key not in _END_TO_END:
            continue
        out.append((name, value))
    out.append((b"X-Forwarded-Proto", call.scheme))
    if call.host:
        out.append((b"X-Forwarded-Host", call.host))
    if call.peer:
        out.append((b"X-Forwarded-For", call.peer))
    out.append((b"X-Forwarded-Prefix", call.prefix))
    out.append((names.HEADER_ACCESS_TOKEN.encode("ascii"), call.token))
    return out


def response_headers(upstream: list[Header], status: int) -> list[Header]:
    """
    Return the headers for the caller: everything but hop-by-hop headers and `Server`, repeats kept.

    A 204 or 304 loses its `Content-Length`: no body follows, and the HTTP server in front counts bytes.
    """
    dropped = _NOT_RETURNED | _listed(upstream)
    if status in {204, 304}:
        dropped |= {b"content-length"}
    return [(name.lower(), value) for name, value in upstream if name.lower() not in dropped]


def transfer_codings(headers: Iterable[Header]) -> bytes | None:
    """Return the value of `Transfer-Encoding`, or None when the message is not so framed."""
    return value_of(headers, b"transfer-encoding")


def render_request(method: str, target: bytes, headers: Iterable[Header]) -> bytes:
    """Write the head of an HTTP/1.1 request."""
    parts = [method.encode("ascii"), b" ", target, b" HTTP/1.1\r\n"]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def _tokens(value: bytes) -> list[bytes]:
    return [token.strip().lower() for token in value.split(b",")]


def _listed(headers: Iterable[Header]) -> frozenset[bytes]:
    """Names that `Connection` declares to be for this hop only."""
    found: set[bytes] = set()
    for name, value in headers:
        if name.lower() == b"connection":
            found.update(_tokens(value))
    return frozenset(found - _END_TO_END)
