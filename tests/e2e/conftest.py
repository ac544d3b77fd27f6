"""One live Boxwright for the whole run, shared sandboxes, and each Python client on each route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import aiodocker
import pytest
import pytest_asyncio
from opensandbox import Sandbox, SandboxSync

from tests.e2e.site import BUSYBOX, DEBIAN, STATIC, Client, Flavour, Route, Site, unique
from tests.live import boxwright


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a whole Boxwright that allows mounts below one folder of the host."""
    folder = tmp_path_factory.mktemp("host")
    folder.chmod(0o755)
    config = tmp_path_factory.mktemp("config") / "boxwright.toml"
    config.write_text(f"[storage]\nallowed_host_paths = {json.dumps([str(folder)])}\n")
    with boxwright({"BOXWRIGHT_CONFIG": str(config)}) as live:
        yield Site(live, folder)


@pytest.fixture(
    scope="module", params=["async-direct", "async-server-proxy", "sync-direct", "sync-server-proxy"]
)
def kind(request: pytest.FixtureRequest) -> tuple[Flavour, Route]:
    """Name each public Python client on each route in turn."""
    flavour, _, route = str(request.param).partition("-")
    return _flavour(flavour), _route(route)


@pytest_asyncio.fixture(loop_scope="session")
async def client(site: Site, kind: tuple[Flavour, Route]) -> AsyncIterator[Client]:
    """Give a client that destroys what the test made with it."""
    made = Client(site, *kind)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(params=["direct", "server-proxy"])
def route(request: pytest.FixtureRequest) -> Route:
    return _route(str(request.param))


@pytest_asyncio.fixture(loop_scope="session")
async def async_client(site: Site, route: Route) -> AsyncIterator[Client]:
    """Give the asynchronous client on each route, where the other flavour would add nothing."""
    made = Client(site, "async", route)
    try:
        yield made
    finally:
        await made.close()


def _shared(site: Site, image: str) -> Iterator[str]:
    made = SandboxSync.create(
        image,
        timeout=timedelta(minutes=30),
        connection_config=site.synchronous("direct"),
        metadata={"shared": "yes"},
    )
    try:
        yield made.id
    finally:
        made.destroy()


@pytest.fixture(scope="module")
def debian(site: Site) -> Iterator[str]:
    """Share one Debian sandbox among a module's tests, which keep to folders of their own."""
    yield from _shared(site, DEBIAN)


@pytest.fixture(scope="module")
def busybox(site: Site) -> Iterator[str]:
    yield from _shared(site, BUSYBOX)


@pytest.fixture(scope="module")
def static(site: Site) -> Iterator[str]:
    yield from _shared(site, STATIC)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sandbox(site: Site, kind: tuple[Flavour, Route], debian: str) -> AsyncIterator[Sandbox]:
    """Connect to the shared Debian sandbox through each client on each route."""
    made = Client(site, *kind)
    try:
        yield await made.connect(debian, skip_health_check=True)
    finally:
        await made.close()


@pytest.fixture
def place() -> str:
    """Name a folder inside a shared sandbox that no other test uses."""
    return f"/tmp/{unique('e2e')}"


@pytest_asyncio.fixture(loop_scope="session")
async def engine() -> AsyncIterator[aiodocker.Docker]:
    """Look at the engine itself, past Boxwright."""
    async with aiodocker.Docker() as docker:
        yield docker


@pytest.fixture(scope="session")
def service_source() -> bytes:
    """Read the HTTP service that tests start inside a sandbox."""
    return (Path(__file__).parent / "inside" / "service.py").read_bytes()


def _flavour(text: str) -> Flavour:
    return "async" if text == "async" else "sync"


def _route(text: str) -> Route:
    return "direct" if text == "direct" else "server-proxy"
