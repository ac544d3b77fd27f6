"""What the doors get from the composition root, and nothing more."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gateway.config import Settings
from gateway.operations.ports import Capabilities
from gateway.sandboxes.model import Address, Secret

if TYPE_CHECKING:
    from gateway.operations.diagnostics import Diagnostics
    from gateway.operations.readiness import Readiness
    from gateway.operations.sandboxes import Sandboxes


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling: one API key.

    Attributes:
        key_id: the key's id, safe to log and to store.
        name: what its owner calls it.
    """

    key_id: str
    name: str


class Authenticator(Protocol):
    """Says who holds a key. Used alike for HTTP requests and WebSocket handshakes."""

    def __call__(self, key: str | None) -> Awaitable[Caller]:
        """
        Look up the value of the `OPEN-SANDBOX-API-KEY` header.

        Raises:
            MissingApiKey: there is no such header, or it is blank.
            Unauthorized: the key is not known or was revoked.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """Where the proxy sends what is meant for one sandbox."""

    address: Address
    token: Secret  # execd's; goes into X-EXECD-ACCESS-TOKEN
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class Services:
    """Everything the doors share."""

    settings: Settings
    operations: Sandboxes
    diagnostics: Diagnostics
    readiness: Readiness
    auth: Authenticator
    capabilities: Capabilities
    version: str
