"""A whole gateway in this process: the real app and store around a fake engine and a fake execd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from gateway.app import create_app
from gateway.config import Settings, load
from gateway.operations.ports import Clock
from gateway.operations.services import Services
from gateway.sandboxes.model import BundleMount
from gateway.stores.database import Database
from gateway.stores.keys import SqliteKeys
from gateway.stores.sqlite import SqliteStore
from tests.fakes.clock import FakeClock
from tests.fakes.peer import FakePeer
from tests.fakes.runtime import FakeRuntime

KEY = "a key for tests only"
HEADERS = {"OPEN-SANDBOX-API-KEY": KEY}
SECRET = b"s" * 32
BUNDLE = BundleMount("/bundle", ("/opt/boxwright/execd",))


def settings(home: Path, **gateway: Any) -> Settings:
    """Return settings for one test; keyword arguments replace keys of [gateway]."""
    base = load(None, {"BOXWRIGHT_HOME": str(home), "BOXWRIGHT_API_KEY": KEY})
    defaults: dict[str, Any] = {
        "create_wait_seconds": 5.0,
        "endpoint_wait_seconds": 1.0,
        "ready_deadline_seconds": 5.0,
    }
    return replace(base, gateway=replace(base.gateway, **{**defaults, **gateway}))


def body(**changes: Any) -> dict[str, Any]:
    """Return a good create request; None removes a member."""
    whole = {
        "image": {"uri": "img:1"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {},
        "timeout": 600,
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


@dataclass
class FakeGateway:
    """The parts that a test turns and looks at."""

    settings: Settings
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    peer: FakePeer = field(default_factory=FakePeer)
    clock: Clock = field(default_factory=FakeClock)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Running]:
        """Start the gateway on the state that its home has; stop it at the end."""
        database = Database(self.settings.database)
        app = create_app(
            self.settings,
            runtime=self.runtime,
            store=SqliteStore(database),
            keys=SqliteKeys(database, self.clock),
            peer=self.peer,
            bundle=BUNDLE,
            secret=SECRET,
            clock=self.clock,
        )
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://gw:8080/v1", headers=HEADERS) as http,
        ):
            yield Running(app, http, database)
        database.close()


@dataclass
class Running:
    app: FastAPI
    http: httpx.AsyncClient
    database: Database

    @property
    def services(self) -> Services:
        found: Services = self.app.state.services
        return found

    @property
    def store(self) -> SqliteStore:
        return SqliteStore(self.database)

    async def create(self, **changes: Any) -> str:
        """Create a sandbox and return its id."""
        answer = await self.http.post("/sandboxes", json=body(**changes))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def state(self, sandbox_id: str) -> str:
        answer = await self.http.get(f"/sandboxes/{sandbox_id}")
        return str(answer.json()["status"]["state"]) if answer.status_code == 200 else str(answer.status_code)

    async def until(self, sandbox_id: str, *states: str) -> dict[str, Any]:
        """Wait for one of these states; return the sandbox as shown."""
        async with asyncio.timeout(5):
            while True:
                shown: dict[str, Any] = (await self.http.get(f"/sandboxes/{sandbox_id}")).json()
                if shown.get("status", {}).get("state") in states:
                    return shown
                await asyncio.sleep(0.005)


async def settled(check: Any) -> None:
    """Wait until a condition about the world holds."""
    async with asyncio.timeout(5):
        while not check():
            await asyncio.sleep(0.005)


def gateway(home: Path, **changes: Any) -> FakeGateway:
    return FakeGateway(settings(home, **changes))
