"""What the server proxy needs from the rest of the gateway, as protocols."""

from __future__ import annotations

from typing import Protocol

from gateway.config import ProxySettings
from gateway.operations.services import Authenticator, ProxyTarget


class Targets(Protocol):
    """Knows where the sandboxes answer."""

    async def target(self, sandbox_id: str) -> ProxyTarget:
        """
        Return where to reach a sandbox; wait a bounded time for one that is being made.

        Raises:
            SandboxNotFound, SandboxNotRunning, NoAddressYet
        """
        ...


class ProxyConfig(Protocol):
    @property
    def proxy(self) -> ProxySettings: ...


class ProxyServices(Protocol):
    """The slice of the gateway's services that the proxy uses."""

    @property
    def settings(self) -> ProxyConfig: ...

    @property
    def operations(self) -> Targets: ...

    @property
    def auth(self) -> Authenticator: ...
