from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.routing import Match

from gateway.config import ProxySettings
from gateway.operations.services import Caller, ProxyTarget
from gateway.proxy.routes import mount
from specs.errors import MissingApiKey, SandboxNotFound


class Config:
    proxy = ProxySettings()


class Operations:
    async def target(self, sandbox_id: str) -> ProxyTarget:
        raise SandboxNotFound(sandbox_id)


class Services:
    settings = Config()
    operations = Operations()

    async def auth(self, key: str | None) -> Caller:
        raise MissingApiKey("no key")


@pytest.mark.parametrize(
    ("kind", "raw_path", "root_path", "matches"),
    [
        ("http", b"/v1/sandboxes/s/proxy/80/x", "", True),
        ("websocket", b"/sandboxes/s/proxy/80", "", True),
        ("http", b"/api/v1/sandboxes/s/proxy/80/x", "/api", True),
        ("http", b"/v1/sandboxes/s", "", False),
        ("lifespan", b"/v1/sandboxes/s/proxy/80/x", "", False),
    ],
)
def test_the_route_matches_its_own_paths(kind: str, raw_path: bytes, root_path: str, matches: bool) -> None:
    """HTTP and WebSocket paths of the proxy match, behind a root path too; nothing else does."""
    route = mount(FastAPI(), Services())

    found, _ = route.matches(
        {"type": kind, "raw_path": raw_path, "path": raw_path.decode(), "root_path": root_path, "headers": []}
    )

    assert found is (Match.FULL if matches else Match.NONE)


def test_the_route_is_the_last_and_no_part_of_the_document() -> None:
    """Routes mounted before win, and the OpenAPI document is written as without the proxy."""
    app = FastAPI()
    route = mount(app, Services())

    assert app.router.routes[-1] is route
    assert app.openapi()["paths"] == {}
