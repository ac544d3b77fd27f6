"""Many at once on the real engine: the event loop stays free, and back-to-back deletes leave nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from gateway.__main__ import have_bundle
from gateway.app import create_app
from gateway.config import load
from gateway.peers.execd import HttpExecdPeer
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.runtime import DockerRuntime
from gateway.stores.database import Database
from gateway.stores.keys import SqliteKeys
from gateway.stores.sqlite import SqliteStore
from tests.fakes.clock import FakeClock
from tests.soak.gateways import image

pytestmark = pytest.mark.engine

KEY: Final = "a key for tests only"
AT_ONCE: Final = 20
BEAT: Final = 0.01
LONGEST: Final = 0.1


class Heart:
    """Beats on the event loop, and knows how long the loop kept it from beating.

    The time for which the kernel had no processor for this thread (proc(5), schedstat) is no fault of the
    loop's, and is taken off.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    async def beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began, starved = loop.time(), self._starved()
            await asyncio.sleep(BEAT)
            late = loop.time() - began - BEAT - (self._starved() - starved)
            self.longest = max(self.longest, late)

    def _starved(self) -> float:
        return int(self._schedule.read_text().split()[1]) / 1e9


@pytest.fixture(scope="module")
def busybox() -> str:
    return image()


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway in this process, on the real engine; afterwards the engine has nothing of it."""
    settings = load(None, {"BOXWRIGHT_HOME": str(tmp_path), "BOXWRIGHT_API_KEY": KEY})
    bundle = have_bundle(settings, os.environ)
    database = Database(settings.database)
    store = SqliteStore(database)
    runtime = DockerRuntime(
        Engine(EngineSettings()),
        instance=await store.instance(),
        parallel_starts=settings.gateway.starts,
        hold_dir=settings.home / "hold",
    )
    app = create_app(
        settings,
        runtime=runtime,
        store=store,
        keys=SqliteKeys(database, FakeClock()),
        peer=HttpExecdPeer(),
        bundle=bundle,
        secret=b"s" * 32,
    )
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=transport,
            base_url="http://gw:8080/v1",
            headers={"OPEN-SANDBOX-API-KEY": KEY},
            timeout=60,
        ) as client,
    ):
        yield client
        for item in (await client.get("/sandboxes", params={"pageSize": 200})).json()["items"]:
            await client.delete(f"/sandboxes/{item['id']}")
        async with asyncio.timeout(60):
            while await runtime.observe_all():
                await asyncio.sleep(0.05)
    database.close()


def body(busybox: str, **changes: Any) -> dict[str, Any]:
    return {
        "image": {"uri": busybox},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"memory": "64Mi"},
        "timeout": 600,
        **changes,
    }


async def test_creates_do_not_hold_the_loop(http: httpx.AsyncClient, busybox: str) -> None:
    """While twenty sandboxes are made, used and deleted, no callback holds the event loop (R109)."""
    await http.post("/sandboxes", json=body(busybox))  # what is loaded once is loaded now
    heart = Heart()
    beating = asyncio.get_running_loop().create_task(heart.beat())
    try:
        made = await asyncio.gather(*(http.post("/sandboxes", json=body(busybox)) for _ in range(AT_ONCE)))
        assert {answer.status_code for answer in made} == {202}
        for answer in made:
            place = f"/sandboxes/{answer.json()['id']}"
            assert (await http.get(f"{place}/endpoints/44772")).status_code == 200
            assert (await http.delete(place)).status_code == 204
    finally:
        beating.cancel()
        await asyncio.wait({beating})
    assert heart.longest < LONGEST


async def test_create_and_delete_back_to_back(http: httpx.AsyncClient, busybox: str) -> None:
    """Whoever deletes at once, or while the create has not answered, leaves nothing behind (R11, R16)."""

    async def cycle(number: int) -> None:
        if number % 2:
            made = await http.post("/sandboxes", json=body(busybox))
            assert made.status_code == 202
            place = f"/sandboxes/{made.json()['id']}"
        else:
            mark = {"turn": str(number)}
            making = asyncio.get_running_loop().create_task(
                http.post("/sandboxes", json=body(busybox, metadata=mark))
            )
            items: list[dict[str, Any]] = []
            while not items:
                page = await http.get("/sandboxes", params={"metadata": f"turn={number}"})
                items = page.json()["items"]
            place = f"/sandboxes/{items[0]['id']}"
        assert (await http.delete(place)).status_code == 204
        assert (await http.get(place)).status_code == 404
        if number % 2 == 0:
            assert (await making).status_code in {202, 404}

    async def worker(first: int) -> None:
        for number in range(first, 40, 8):
            await cycle(number)

    await asyncio.gather(*(worker(first) for first in range(8)))
