"""Services inside a sandbox, reached at their endpoints: HTTP, server-sent events and WebSocket."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from opensandbox import SandboxSync
from opensandbox.models.execd import RunCommandOpts
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.e2e.site import DEBIAN, KEY_HEADER, MARKS, Client, Site, unique

pytestmark = MARKS

PORT = 8000
LOG = "/tmp/requests.log"


@pytest.fixture(scope="module")
def service(site: Site, service_source: bytes) -> Iterator[str]:
    """Run the service in one Debian sandbox for the whole module."""
    made = SandboxSync.create(
        DEBIAN, timeout=timedelta(minutes=30), connection_config=site.synchronous("direct")
    )
    try:
        made.files.write_file("/srv/service.py", service_source)
        command = ["python3", "/srv/service.py", str(PORT), LOG]
        made.commands.run(command, opts=RunCommandOpts(background=True))
        probe = f"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))' 2>/dev/null; do sleep 0.1; done"
        waited = made.commands.run(probe, opts=RunCommandOpts(timeout=timedelta(seconds=20)))
        assert waited.exit_code == 0, waited
        yield made.id
    finally:
        made.destroy()


@pytest_asyncio.fixture(loop_scope="session")
async def door(async_client: Client, service: str) -> AsyncIterator[httpx.AsyncClient]:
    """Open the service's endpoint just as the public client would, with its headers."""
    sandbox = await async_client.connect(service)
    endpoint = await sandbox.get_endpoint(PORT)
    headers = endpoint.build_request_headers(async_client.config())
    async with httpx.AsyncClient(base_url=f"http://{endpoint.endpoint}", headers=headers, timeout=30) as http:
        yield http


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the service saw it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    size: int
    sha256: str

    @classmethod
    def of(cls, answer: httpx.Response) -> Seen:
        assert answer.status_code == 200, answer.text
        lines = [line.partition(" ")[::2] for line in answer.text.splitlines()]
        one = dict(lines)
        headers = [tuple(value.split(": ", 1)) for kind, value in lines if kind == "header"]
        return cls(one["method"], one["target"], cast(Any, headers), int(one["size"]), one["sha256"])

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_method_query_and_body_pass(door: httpx.AsyncClient, method: str) -> None:
    """Any method arrives with its raw target and its whole body."""
    body = b"" if method == "GET" else bytes(range(256)) * 700
    answer = await door.request(method, "/some%20path/%2Fraw?q=a%2Bb&q=%20&empty", content=body)
    seen = Seen.of(answer)
    assert seen.method == method
    assert seen.target == "/some%20path/%2Fraw?q=a%2Bb&q=%20&empty"
    assert (seen.size, seen.sha256) == (len(body), hashlib.sha256(body).hexdigest())


async def test_head_has_headers_and_no_body(door: httpx.AsyncClient) -> None:
    """HEAD is served."""
    answer = await door.head("/")
    assert (answer.status_code, answer.content, answer.headers["X-Method"]) == (200, b"", "HEAD")


async def test_chunked_body_passes(door: httpx.AsyncClient) -> None:
    """A body of unknown length arrives whole."""

    async def parts() -> AsyncIterator[bytes]:
        for n in range(50):
            yield bytes([n]) * 5000

    assert Seen.of(await door.post("/", content=parts())).size == 250_000


async def test_status_headers_and_cookies_come_back(door: httpx.AsyncClient) -> None:
    """The service's own status and headers are kept, duplicates included."""
    answer = await door.get("/teapot")
    assert (answer.status_code, answer.text, answer.headers["X-Kind"]) == (418, "short and stout", "teapot")
    cookies = await door.get("/cookies")
    assert cookies.headers.get_list("Set-Cookie") == ["a=1", "b=2"]


async def test_redirect_stays_behind_the_door(door: httpx.AsyncClient) -> None:
    """A redirect to an absolute path leads to the same service through the server."""
    answer = await door.get("/redirect")
    assert answer.status_code == 302
    if "/sandboxes/" in str(door.base_url):
        assert answer.headers["Location"].endswith(f"/proxy/{PORT}/echo?moved=1")


async def test_credentials_for_the_service_pass(door: httpx.AsyncClient) -> None:
    """Authorization and Cookie belong to the workload's own service and reach it."""
    seen = Seen.of(await door.get("/", headers={"Authorization": "Bearer of-the-app", "Cookie": "sid=1"}))
    assert seen.header("authorization") == ["Bearer of-the-app"]
    assert seen.header("cookie") == ["sid=1"]


async def test_api_key_never_reaches_the_service(
    async_client: Client, door: httpx.AsyncClient, service: str
) -> None:
    """Nothing inside the sandbox ever sees the platform's key, whatever the Python client does (R106)."""
    mark = unique("key")
    sandbox = await async_client.connect(service)
    await sandbox.commands.run("true")
    await sandbox.files.write_file(f"/tmp/{mark}", "x")
    seen = Seen.of(await door.get(f"/{mark}"))
    assert seen.header(KEY_HEADER.lower()) == []
    everything = await sandbox.commands.run(
        f"cat {LOG}; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; env"
    )
    assert mark in everything.text
    leaked = [line for line in everything.text.splitlines() if async_client.site.live.key in line]
    assert leaked == []


async def test_key_sent_by_mistake_is_dropped_on_the_way(
    site: Site, async_client: Client, door: httpx.AsyncClient
) -> None:
    """A client that sends the key to the sandbox plane as well, as one SDK does, does not leak it to the service (R106)."""
    seen = Seen.of(await door.get("/", headers={KEY_HEADER: site.live.key}))
    assert seen.header(KEY_HEADER.lower()) == []


async def test_events_pass_as_they_come(door: httpx.AsyncClient) -> None:
    """Server-sent events are not held back until the end."""
    async with door.stream("GET", "/sse") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        lines = [(time.monotonic(), line) async for line in answer.aiter_lines() if line.startswith("data:")]
    assert [line for _, line in lines] == [f"data: tick {n}" for n in range(4)]
    assert lines[-1][0] - lines[0][0] > 0.5


async def test_websocket_echoes(async_client: Client, service: str) -> None:
    """Text, binary, large frames and the chosen subprotocol pass both ways, and so does the close."""
    sandbox = await async_client.connect(service)
    endpoint = await sandbox.get_endpoint(PORT)
    headers = endpoint.build_request_headers(async_client.config())
    async with connect(
        f"ws://{endpoint.endpoint}/ws",
        additional_headers=headers,
        subprotocols=[Subprotocol("echo.v1"), Subprotocol("other")],
        proxy=None,
        max_size=None,
        compression=None,
    ) as socket:
        assert socket.subprotocol == "echo.v1"
        for message in ("héllo 🙂", b"\x00\xff", "x" * 200, b"y" * 70_000, "", "z" * 1_500_000):
            await socket.send(message)
            assert await socket.recv() == message
        await socket.close(4001, "enough")
    assert socket.close_code == 4001


async def test_http_server_of_the_image_is_reached(async_client: Client, service: str) -> None:
    """A service that knows nothing of proxies works behind its endpoint."""
    sandbox = await async_client.connect(service)
    port = 8001 if async_client.route == "direct" else 8002
    await sandbox.files.write_file(f"/srv/{port}/page.html", f"<p>{port}")
    await sandbox.commands.run(
        ["python3", "-m", "http.server", str(port), "--directory", f"/srv/{port}"],
        opts=RunCommandOpts(background=True),
    )
    endpoint = await sandbox.get_endpoint(port)
    headers = endpoint.build_request_headers(async_client.config())
    async with httpx.AsyncClient(headers=headers, timeout=10) as http, asyncio.timeout(20):
        while (answer := await http.get(f"http://{endpoint.endpoint}/page.html")).status_code != 200:
            assert answer.status_code == 502
            await asyncio.sleep(0.1)
        assert answer.text == f"<p>{port}"
        assert "page.html" in (await http.get(f"http://{endpoint.endpoint}/")).text


async def test_port_without_a_service_is_502(async_client: Client, service: str) -> None:
    """Nothing listens there: the answer says so, with a code."""
    sandbox = await async_client.connect(service)
    endpoint = await sandbox.get_endpoint(9)
    headers = endpoint.build_request_headers(async_client.config())
    async with httpx.AsyncClient(headers=headers, timeout=20) as http:
        answer = await http.get(f"http://{endpoint.endpoint}/")
    assert answer.status_code == 502
    assert set(answer.json()) >= {"code", "message"}
    assert "9" in answer.json()["message"]


async def test_doors_are_locked(site: Site, async_client: Client, service: str) -> None:
    """Without the token (direct) or the key (through the server) nothing is served, WebSockets included."""
    sandbox = await async_client.connect(service)
    endpoint = await sandbox.get_endpoint(PORT)
    async with httpx.AsyncClient(timeout=10) as http:
        for path in ("/", "/echo"):
            refused = await http.get(f"http://{endpoint.endpoint}{path}")
            assert refused.status_code == 401
            assert set(json.loads(refused.content)) >= {"code", "message"}
    told: int | None
    try:
        async with connect(f"ws://{endpoint.endpoint}/ws", proxy=None) as socket:
            await socket.wait_closed()
        told = socket.close_code
    except InvalidStatus as shut:
        told = shut.response.status_code
    assert told == (401 if async_client.route == "direct" else 1008)
