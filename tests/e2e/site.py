"""What every e2e test shares: the running Boxwright, its images, and the public clients under one face."""

from __future__ import annotations

import asyncio
import inspect
import json
import platform
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast

import aiodocker
import httpx
import pytest
from opensandbox import Sandbox, SandboxManager, SandboxManagerSync, SandboxSync
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SandboxEndpoint

from tests.live import Live

DEBIAN: Final = "boxwright/debian:local"
BUSYBOX: Final = "boxwright/busybox:local"
STATIC: Final = "boxwright/static:local"

KEY_HEADER: Final = "OPEN-SANDBOX-API-KEY"
TOKEN_HEADER: Final = "X-EXECD-ACCESS-TOKEN"

# One event loop for all of e2e, so that a client may be opened once and used by many tests.
MARKS: Final = [pytest.mark.e2e, pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

Route = Literal["direct", "server-proxy"]
Flavour = Literal["async", "sync"]

MACHINE: Final = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
OTHER_MACHINE: Final = "arm64" if MACHINE == "amd64" else "amd64"


@dataclass(frozen=True, slots=True)
class Site:
    """The Boxwright under test and the one host folder that its sandboxes may mount."""

    live: Live
    host_folder: Path

    def asynchronous(self, route: Route, **changes: Any) -> ConnectionConfig:
        return ConnectionConfig(**self._common(route, changes))

    def synchronous(self, route: Route, **changes: Any) -> ConnectionConfigSync:
        return ConnectionConfigSync(**self._common(route, changes))

    def _common(self, route: Route, changes: dict[str, Any]) -> dict[str, Any]:
        return {
            "domain": self.live.domain,
            "api_key": self.live.key,
            "use_server_proxy": route == "server-proxy",
            "request_timeout": timedelta(seconds=30),
            **changes,
        }

    def api(self, **changes: Any) -> httpx.AsyncClient:
        """Speak to the lifecycle API without a client library."""
        return httpx.AsyncClient(
            base_url=self.live.url,
            headers={KEY_HEADER: self.live.key, **changes.pop("headers", {})},
            timeout=30,
            **changes,
        )


SERVICES: Final = ("commands", "files", "metrics", "diagnostics")


class Awaited:
    """A synchronous client behind the asynchronous one's face: each call runs in a thread of its own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name in SERVICES:
            return Awaited(value)
        if not inspect.ismethod(value) or name == "get_base_url":
            return value

        async def call(*arguments: Any, **named: Any) -> Any:
            answer = await asyncio.to_thread(value, *arguments, **named)
            return _stepwise(cast("Iterator[bytes]", answer)) if inspect.isgenerator(answer) else answer

        return call


async def _stepwise(items: Iterator[bytes]) -> AsyncIterator[bytes]:
    end = object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield cast("bytes", item)


@dataclass(slots=True)
class Client:
    """One public Python client on one route; it destroys what it made."""

    site: Site
    flavour: Flavour
    route: Route
    made: list[str] = field(default_factory=list)
    opened: list[Sandbox | SandboxManager] = field(default_factory=list)

    def config(self, **changes: Any) -> Any:
        make = self.site.asynchronous if self.flavour == "async" else self.site.synchronous
        return make(self.route, **changes)

    async def create(self, image: str | None = DEBIAN, **options: Any) -> Sandbox:
        sandbox = await self._open(Sandbox.create, SandboxSync.create, image, **options)
        self.made.append(sandbox.id)
        return sandbox

    async def connect(self, sandbox_id: str, **options: Any) -> Sandbox:
        return await self._open(Sandbox.connect, SandboxSync.connect, sandbox_id, **options)

    async def resume(self, sandbox_id: str, **options: Any) -> Sandbox:
        return await self._open(Sandbox.resume, SandboxSync.resume, sandbox_id, **options)

    async def manager(self) -> SandboxManager:
        manager: SandboxManager
        if self.flavour == "async":
            manager = await SandboxManager.create(self.config())
        else:
            manager = cast(SandboxManager, Awaited(SandboxManagerSync.create(self.config())))
        self.opened.append(manager)
        return manager

    async def _open(self, asynchronous: Any, synchronous: Any, *arguments: Any, **options: Any) -> Sandbox:
        options.setdefault("connection_config", self.config())
        sandbox: Sandbox
        if self.flavour == "async":
            sandbox = await asynchronous(*arguments, **options)
        else:
            sandbox = cast(Sandbox, Awaited(await asyncio.to_thread(synchronous, *arguments, **options)))
        self.opened.append(sandbox)
        return sandbox

    async def close(self) -> None:
        manager = await self.manager()
        for sandbox_id in self.made:
            try:
                await manager.kill_sandbox(sandbox_id)
            except SandboxApiException as gone:
                if gone.status_code != 404:
                    raise
        for one in self.opened:
            await one.close()


def endpoint_headers(endpoint: SandboxEndpoint, config: Any) -> dict[str, str]:
    """Return exactly the headers that the public client sends to this endpoint."""
    return endpoint.build_request_headers(config)


def frames(body: str) -> list[dict[str, Any]]:
    """Split an event stream into its bare JSON frames."""
    return [json.loads(frame) for frame in body.split("\n\n") if frame.strip()]


def texts(messages: list[Any]) -> list[str]:
    return [message.text for message in messages]


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"


async def removed(engine: aiodocker.Docker, sandbox_id: str) -> None:
    """Wait until the engine has nothing left of a sandbox that was deleted; the answer comes before the removal."""

    async def gone() -> bool:
        containers = await engine.containers.list(all=True)
        return not any(sandbox_id in f"{one['Labels']} {one['Names']}" for one in containers)

    await until(gone, seconds=40)


async def until(question: Callable[[], Any], seconds: float = 20.0, pause: float = 0.1) -> Any:
    """Ask again until the answer is true; return it, or fail when the time is up."""
    async with asyncio.timeout(seconds):
        while True:
            answer = question()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(pause)
