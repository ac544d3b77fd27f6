"""The whole gateway around a fake engine, called in every way its documents allow and some they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import httpx
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gateway.app import SystemClock
from tests.fakes.gateway import HEADERS, FakeGateway, Running, settings
from tests.integration.fuzz.calls import Call, Known, calls, texts
from tests.integration.fuzz.document import Operation, operations
from tests.integration.fuzz.judge import judge
from tests.integration.fuzz.profile import examples

OPERATIONS: Final = [*operations("lifecycle"), *operations("diagnostics")]
SERVER_PROXY: Final = frozenset(
    {"BACKEND_CONNECTION_FAILED", "BACKEND_RESPONSE_FAILED"}
)  # a fake engine's port


@dataclass
class World:
    """A gateway that lives as long as the module, with a loop of its own: examples are not coroutines."""

    loop: asyncio.Runner
    gateway: Running
    sandbox_ids: list[str]

    def send(self, call: Call) -> httpx.Response:
        sandbox_id = self.sandbox_ids[0]
        return self.loop.run(self._send(call, sandbox_id))

    async def _send(self, call: Call, sandbox_id: str) -> httpx.Response:
        if (await self.gateway.http.get(f"/sandboxes/{sandbox_id}")).status_code == 404:
            self.sandbox_ids[0] = await self.gateway.create()
        target = call.target.replace("KNOWN", self.sandbox_ids[0])
        headers = [(name.encode(), value.encode("latin-1")) for name, value in call.headers.items()]
        transport = httpx.ASGITransport(self.gateway.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.send(
                httpx.Request(call.method, f"http://gw{target}", headers=headers, content=call.content)
            )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base = settings(tmp_path_factory.mktemp("home"))
    # The fake engine's addresses might be someone's; its published ports are refused at once.
    site = FakeGateway(replace(base, proxy=replace(base.proxy, resolve_internal=False)), clock=SystemClock())
    structlog.configure(processors=[_drop])  # a story per example would be most of the work
    with asyncio.Runner() as loop:
        context = site.running()
        running = loop.run(context.__aenter__())
        yield World(loop, running, [loop.run(running.create())])
        loop.run(context.__aexit__(None, None, None))
    structlog.reset_defaults()


def _drop(_: object, __: str, ___: MutableMapping[str, Any]) -> NoReturn:
    raise structlog.DropEvent


IDS: Final = st.sampled_from(["KNOWN"] * 3) | texts
KNOWN: Final[Known] = {
    "sandbox_id": IDS,
    "uri": st.sampled_from(["img:1", "registry.example/a/b:c", ""]) | texts,
    "cpu": st.sampled_from(["1", "500m"]) | texts,
    "resourceLimits": st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.sampled_from(["1", "0.5", "500m"]) | texts,
            "memory": st.sampled_from(["64Mi", "1G"]) | texts,
            "gpu": texts,
        },
    ),
    "timeout": st.integers(60, 10**12) | st.integers(59, 100),
    "since": st.sampled_from(["30s", "2h", "999999d"]) | texts,
    "metadata": st.dictionaries(
        st.sampled_from(["a", "b.c/d"]) | texts, st.sampled_from(["1", "x"]) | texts, max_size=3
    ),
    "expiresAt": st.datetimes().map(lambda moment: moment.isoformat() + "Z")
    | st.integers()
    | st.sampled_from(["9999-12-31T23:59:59-14:00"]),
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=repr)
def test_every_answer_is_documented(world: World, operation: Operation) -> None:
    """No call makes the gateway fail, and every answer is one that its document describes."""
    known = {**KNOWN, "metadata": st.just("a=1") | texts} if operation.method == "GET" else KNOWN

    @examples(6 if operation.planned else 25)
    @given(call=calls(operation, known, HEADERS))
    def check(call: Call) -> None:
        answer = world.send(call)
        judge(
            operation,
            call,
            answer.status_code,
            answer.headers.get("content-type", ""),
            answer.content,
            excused=SERVER_PROXY if "/proxy/" in operation.path else frozenset(),
        )
        assert "x-request-id" in answer.headers

    check()
