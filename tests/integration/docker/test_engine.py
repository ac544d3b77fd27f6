"""gateway/runtimes/docker/engine.py and what leans on it, with an engine that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web

from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.runtime import DockerRuntime
from specs import names
from specs.errors import EngineTimeout, EngineUnavailable

LABELS = {names.LABEL_ID: "abc", names.LABEL_INSTANCE: "inst"}
INSPECT = {"Name": "/sandbox-abc", "State": {"Status": "running"}, "Config": {"Labels": LABELS}}


class FakeEngine:
    """Just enough of the API to break it: hangs, cuts streams, forgets containers."""

    def __init__(self) -> None:
        self.present = True
        self.since: list[str | None] = []
        self.hang = asyncio.Event()
        self.inspections = 0
        self.inspected_twice = asyncio.Event()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/version", self.version)
        app.router.add_get("/v1.41/containers/json", self.containers)
        app.router.add_get("/v1.41/containers/sandbox-abc/json", self.inspect)
        app.router.add_get("/v1.41/events", self.events)
        app.router.add_get("/v1.41/info", self.never)
        app.router.add_get("/_ping", self.garbage)
        return app

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41", "Version": "20", "Os": "linux", "Arch": "amd64"})

    async def containers(self, _: web.Request) -> web.Response:
        return web.json_response([{"Labels": LABELS}] if self.present else [])

    async def inspect(self, _: web.Request) -> web.Response:
        if not self.present:
            return web.json_response({"message": "No such container: sandbox-abc"}, status=404)
        self.inspections += 1
        if self.inspections == 2:
            self.inspected_twice.set()
        return web.json_response(INSPECT)

    async def events(self, request: web.Request) -> web.StreamResponse:
        self.since.append(request.query.get("since"))
        answer = web.StreamResponse()
        await answer.prepare(request)
        if len(self.since) == 1:
            line = {
                "Type": "container",
                "Action": "start",
                "timeNano": 7_000_000_005,
                "Actor": {"Attributes": LABELS},
            }
            await answer.write(json.dumps(line).encode() + b"\n")
            await self.inspected_twice.wait()
            self.present = False  # it ends while nobody listens
            return answer
        await self.hang.wait()
        return answer

    async def never(self, _: web.Request) -> web.Response:
        await self.hang.wait()
        return web.Response()

    async def garbage(self, _: web.Request) -> web.Response:
        return web.Response(status=503, text="shutting down")


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    fake = FakeEngine()
    runner = web.AppRunner(fake.app())
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "engine.sock")).start()
    yield fake
    fake.hang.set()
    await runner.cleanup()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = Engine(EngineSettings(host=f"unix://{tmp_path}/engine.sock", call_seconds=0.3))
    yield engine
    await engine.close()


async def test_a_silent_engine_is_a_timeout(fake: FakeEngine, engine: Engine) -> None:
    """
    Every call ends within its deadline.
    """
    with pytest.raises(EngineTimeout, match="GET info"):
        await engine.info()


async def test_a_missing_engine_is_unavailable_until_it_appears(tmp_path: Path) -> None:
    """
    The gateway may start first; nothing has to be opened anew when the engine comes.
    """
    engine = Engine(EngineSettings(host=f"unix://{tmp_path}/engine.sock", call_seconds=1.0))
    with pytest.raises(EngineUnavailable):
        await engine.version()

    runner = web.AppRunner(FakeEngine().app())
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "engine.sock")).start()
    assert (await engine.version()).api == (1, 41)
    with pytest.raises(EngineUnavailable, match="shutting down"):
        await engine.ping()
    await engine.close()
    await runner.cleanup()


async def test_a_broken_event_stream_loses_nothing(fake: FakeEngine, engine: Engine, tmp_path: Path) -> None:
    """
    After a cut the stream goes on from the last event, and what vanished meanwhile is told.
    """
    runtime = DockerRuntime(engine, instance="inst", parallel_starts=1, hold_dir=tmp_path / "held")
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(5), aclosing(runtime.changes()) as changes:  # type: ignore[type-var]
        async for one in changes:
            seen.append((one.sandbox_id, one.phase))
            if one.phase == "gone" and len(fake.since) == 2:
                break

    assert seen[0] == ("abc", "running")
    assert seen[-1] == ("abc", "gone")
    assert fake.since == [None, "7.000000005"]


async def test_unknown_is_never_absent(fake: FakeEngine, engine: Engine, tmp_path: Path) -> None:
    """
    Only the engine's own "no such container" makes an observation None.
    """
    runtime = DockerRuntime(engine, instance="inst", parallel_starts=1, hold_dir=tmp_path / "held")
    assert await runtime.observe("abc") is not None
    fake.present = False
    assert await runtime.observe("abc") is None
    fake.hang.set()
    await engine.close()
    (tmp_path / "engine.sock").unlink()
    with pytest.raises(EngineUnavailable):
        await runtime.observe("abc")
