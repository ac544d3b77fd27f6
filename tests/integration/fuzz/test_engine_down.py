"""The whole gateway on an engine that is absent, silent, refusing or talking nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.app import SystemClock
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.runtime import DockerRuntime
from tests.fakes.gateway import FakeGateway, Running, body, settings
from tests.fakes.runtime import FakeRuntime

CALL_SECONDS = 0.5
DEADLINE = 6.0  # a call may ask the engine several times, and readiness waits three seconds


@asynccontextmanager
async def engine(kind: str, place: Path) -> AsyncIterator[None]:
    """Listen where an engine would, and behave as badly as its kind says."""
    over = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                match kind:
                    case "silent":
                        await over.wait()
                        return
                    case "refusing":
                        told = b'{"message":"no space left on device"}'
                        writer.write(b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\n")
                        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(told), told))
                    case "nonsense":
                        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot json!")
                    case "hanging up":
                        return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    if kind == "absent":
        yield
        return
    server = await asyncio.start_unix_server(handle, place)
    try:
        yield
    finally:
        over.set()
        server.close()
        await server.wait_closed()


@pytest.fixture(params=["absent", "silent", "refusing", "nonsense", "hanging up"])
async def down(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Running, str]]:
    """A gateway that knows one running sandbox from better times."""
    base = settings(tmp_path / "home")
    base = replace(base, server=replace(base.server, timeout_graceful_shutdown=1))
    async with FakeGateway(base, clock=SystemClock()).running() as before:
        sandbox_id = await before.create(metadata={"a": "1"})
    place = tmp_path / "engine.sock"
    broken = DockerRuntime(
        Engine(
            EngineSettings(
                f"unix://{place}", call_seconds=CALL_SECONDS, start_seconds=CALL_SECONDS, pull_seconds=1.0
            )
        ),
        instance="test",
        parallel_starts=2,
        hold_dir=tmp_path / "held",
    )
    site = FakeGateway(base, runtime=cast(FakeRuntime, broken), clock=SystemClock())
    async with engine(str(request.param), place), site.running() as gw:
        yield gw, sandbox_id


async def test_every_route_answers_in_time(down: tuple[Running, str]) -> None:
    """What needs no engine works, what needs it says so in time, and nothing is lost or left."""
    gw, sandbox_id = down
    place = f"/sandboxes/{sandbox_id}"
    works: list[tuple[str, str, Any, int]] = [
        ("GET", "http://gw/health", None, 200),
        ("GET", "http://gw/version", None, 200),
        ("GET", "/sandboxes", None, 200),
        ("GET", place, None, 200),
        ("PATCH", f"{place}/metadata", {"b": "2"}, 200),
        ("POST", f"{place}/renew-expiration", {"expiresAt": "2199-01-01T00:00:00Z"}, 200),
        ("GET", f"{place}/endpoints/8080", None, 200),
        ("GET", f"{place}/diagnostics/events", None, 200),
    ]
    for method, path, content, status in works:
        async with asyncio.timeout(DEADLINE):
            answer = await gw.http.request(method, path, json=content)
        assert answer.status_code == status, (path, answer.text)
    ready = await gw.http.get("http://gw/readyz")
    assert ready.status_code == 503
    assert ready.json()["checks"]["store"] == "ok"
    fails: list[tuple[str, str, Any]] = [
        ("POST", "/sandboxes", body()),
        ("POST", f"{place}/pause", None),
        ("GET", f"{place}/diagnostics/logs", None),
        ("GET", f"{place}/diagnostics/inspect", None),
        ("GET", f"{place}/diagnostics/summary", None),
    ]
    for method, path, content in fails:
        async with asyncio.timeout(DEADLINE):
            answer = await gw.http.request(method, path, json=content)
        told = answer.json()
        assert answer.status_code in {500, 503}, (path, answer.text)
        assert told["code"].startswith("DOCKER::"), told
        assert told["message"]
    # An engine that did not say whether it paused leaves it open; nothing is believed that was not seen.
    assert (await gw.http.get(place)).json()["status"]["state"] in {"Running", "Unknown"}
    listed = (await gw.http.get("/sandboxes")).json()["items"]
    assert [one["id"] for one in listed] == [sandbox_id]
    async with asyncio.timeout(DEADLINE):
        assert (await gw.http.delete(place)).status_code == 204
        assert (await gw.http.get(place)).status_code == 404
