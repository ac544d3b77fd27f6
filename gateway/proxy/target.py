"""Where a proxied call goes and how its redirects come back, as pure functions over raw bytes.

The path and the query are never parsed beyond the route's own prefix: percent-encoding, dot
segments, empty segments and odd queries belong to the service in the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.sandboxes.model import Address
from specs.errors import InvalidPort
from specs.names import PORT_EXECD

_ROUTE: Final = re.compile(rb"((?:/v1)?/sandboxes/([^/]+)/proxy/([^/]+))(/.*)?", re.DOTALL)
_PORT: Final = re.compile(rb"[0-9]{1,8}")
_ABSOLUTE: Final = re.compile(rb"(https?):(//.*)", re.DOTALL | re.IGNORECASE)
_AUTHORITY: Final = re.compile(rb"//([^/?#]*)(.*)", re.DOTALL)
_HAS_PORT: Final = re.compile(rb".*:[0-9]+")
_DEFAULT_PORT: Final = {b"http": b":80", b"https": b":443"}


@dataclass(frozen=True, slots=True)
class ProxyPath:
    """A request path that belongs to the server proxy.

    Attributes:
        sandbox_id: which sandbox.
        port: what the caller wrote as port, not judged yet.
        prefix: public path up to and including the port, as the caller wrote it.
        rest: what follows it, empty or beginning with `/`, untouched.
    """

    sandbox_id: str
    port: bytes
    prefix: bytes
    rest: bytes

    def port_number(self) -> int:
        """
        Return the port.

        Raises:
            InvalidPort: not a number in 1..65535.
        """
        if not _PORT.fullmatch(self.port) or not 1 <= int(self.port) <= 65535:
            raise InvalidPort("port in the proxy path: expected a number in 1..65535")
        return int(self.port)


def parse_path(raw_path: bytes, root_path: bytes = b"") -> ProxyPath | None:
    """
    Take a raw request path apart, or return None when it is not one of the proxy's.

    Args:
        raw_path: path without query, as it stood in the request line (behind `root_path`).
        root_path: prefix under which the whole gateway is published; part of public links.
    """
    inner = raw_path.removeprefix(root_path)
    found = _ROUTE.fullmatch(inner)
    if found is None:
        return None
    prefix, sandbox_id, port, rest = found.groups()
    return ProxyPath(
        sandbox_id=unquote_to_bytes(sandbox_id).decode("utf-8", "replace"),
        port=port,
        prefix=root_path + prefix,
        rest=rest or b"",
    )


def upstream_target(port: int, rest: bytes, query: bytes) -> bytes:
    """Return the request target for execd, which serves its own port at `/` and all others below `/proxy`."""
    path = rest or b"/"
    if port != PORT_EXECD:
        path = b"/proxy/%d%b" % (port, path)
    return path + b"?" + query if query else path


def candidates(address: Address, *, internal: bool) -> tuple[tuple[str, int], ...]:
    """
    Return the places where execd may be dialled, best first.

    Args:
        address: as the runtime gave it; its `ip` is set only where the gateway may use it.
        internal: whether to dial the sandbox's own address at all.
    """
    found: list[tuple[str, int]] = []
    if address.ip is not None:
        found.append((address.ip, address.port))
    if address.published_host and address.published_port:
        published = (address.published_host, address.published_port)
        found = [*found, published] if internal else [published]
    return tuple(found)


def authority(host: str, port: int) -> bytes:
    """Return `host:port` as a `Host` header has it."""
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode("ascii")


def own_authorities(port: int, known: Iterable[bytes]) -> frozenset[bytes]:
    """Return every `host:port` under which the service may know itself: the loopback's, and those given."""
    number = b"%d" % port
    loopback = {b"127.0.0.1:" + number, b"localhost:" + number, b"[::1]:" + number}
    return frozenset(loopback | {place.lower() for place in known if place})


def rewrite_location(value: bytes, prefix: bytes, own: Collection[bytes], scheme: bytes = b"http") -> bytes:
    """
    Bring a redirect that would leave the proxy's path back below `prefix`.

    Root-relative references and absolute ones to the service itself are rewritten; relative references,
    other hosts and what already lies below the prefix (a service that honours `X-Forwarded-Prefix`)
    are returned untouched.

    Args:
        value: the `Location` header.
        prefix: public prefix of this route.
        own: the service's own authorities, in lower case.
        scheme: scheme of a reference that names none.
    """
    absolute = _ABSOLUTE.fullmatch(value)
    reference = value
    if absolute is not None:
        scheme, reference = absolute.group(1).lower(), absolute.group(2)
    named = _AUTHORITY.fullmatch(reference)
    if named is not None:
        place, path = named.group(1).lower(), named.group(2)
        if place not in own and _with_port(place, scheme) not in {_with_port(o, scheme) for o in own}:
            return value
        if not path.startswith(b"/"):
            path = b"/" + path
    elif value.startswith(b"/"):
        path = value
    else:
        return value
    if path.startswith(prefix) and path[len(prefix) :][:1] in {b"", b"/", b"?", b"#"}:
        return path if named is not None else value
    return prefix + path


def _with_port(place: bytes, scheme: bytes) -> bytes:
    return place if _HAS_PORT.fullmatch(place) else place + _DEFAULT_PORT[scheme]
