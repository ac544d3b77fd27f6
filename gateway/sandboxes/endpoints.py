"""Where a port of a sandbox is, and the token that opens it (lifecycle §6)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from gateway.sandboxes.model import Address, Secret
from specs.errors import EndpointUnavailable, InvalidPort
from specs.names import HEADER_ACCESS_TOKEN, PORT_EXECD

EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::", "[::]", "*"})


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names under which clients may reach this machine, in the order in which they are tried.

    Attributes:
        public: the operator's word (`server.eip`): host, or base address with a path; no scheme needed.
        host_ip: the machine's address, used when ports are published on every interface.
        asked: host and port under which the caller reached this server (its Host header).
        prefix: `/v1` or nothing, as in the call that asks.
    """

    public: str | None
    host_ip: str | None
    asked: str
    prefix: str = "/v1"


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint as a client gets it."""

    endpoint: str
    headers: tuple[tuple[str, str], ...] = ()


def derive_token(secret: bytes, sandbox_id: str, salt: str) -> Secret:
    """
    Compute execd's token. It is stored nowhere; who has the installation's secret can compute it again.
    """
    message = b"execd-token\0" + sandbox_id.encode() + b"\0" + salt.encode()
    digest = hmac.new(secret, message, hashlib.sha256).digest()
    return Secret(base64.urlsafe_b64encode(digest).rstrip(b"=").decode())


def token_hash(token: Secret) -> str:
    """
    Return the only form in which a token enters a container.
    """
    return "sha256:" + hashlib.sha256(token.reveal().encode()).hexdigest()


def check_port(port: int) -> None:
    """
    Raises:
        InvalidPort: no TCP port has this number.
    """
    if not 1 <= port <= 65535:
        raise InvalidPort(
            "port is outside 1..65535; give the port that the service inside the sandbox listens on"
        )


def direct(address: Address | None, port: int, hosts: Hosts, token: Secret) -> Route:
    """
    Compose the address that leads straight to a sandbox: its published port, and from there through execd.

    Raises:
        EndpointUnavailable: the sandbox has no published port.
    """
    if address is None or address.published_port is None:
        raise EndpointUnavailable(
            "the sandbox has no published port; ask for the endpoint with use_server_proxy=true instead"
        )
    base = f"{_direct_host(address, hosts)}:{address.published_port}"
    endpoint = base if port == PORT_EXECD else f"{base}/proxy/{port}"
    return Route(endpoint, ((HEADER_ACCESS_TOKEN, token.reveal()),))


def through_server(sandbox_id: str, port: int, hosts: Hosts) -> Route:
    """
    Compose the address that leads through this server. It needs the API key and carries no token.
    """
    base = f"{hosts.asked}{hosts.prefix}" if hosts.public is None else _without_scheme(hosts.public)
    return Route(f"{base}/sandboxes/{sandbox_id}/proxy/{port}")


def _direct_host(address: Address, hosts: Hosts) -> str:
    if hosts.public is not None:
        return _host_only(_without_scheme(hosts.public))
    published = address.published_host or ""
    if published not in EVERYWHERE:
        return _bracketed(published)
    return _bracketed(hosts.host_ip) if hosts.host_ip else _host_only(hosts.asked)


def _without_scheme(base: str) -> str:
    return base.split("://", 1)[-1].rstrip("/")


def _host_only(authority: str) -> str:
    host = authority.split("/", 1)[0]
    if host.startswith("["):
        return host.split("]", 1)[0] + "]"
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
