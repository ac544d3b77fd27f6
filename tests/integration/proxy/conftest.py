"""A gateway with nothing but the proxy's routes, and a socket that plays execd."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from gateway.config import ProxySettings
from gateway.operations.services import Caller, ProxyTarget
from gateway.proxy.routes import ProxyRoute, mount
from gateway.proxy.websocket import MAX_MESSAGE_BYTES
from gateway.sandboxes.model import Address, Secret
from specs.errors import BoxwrightError, MissingApiKey, SandboxNotFound, SandboxNotRunning, Unauthorized

KEY = "platform-key-for-tests"
TOKEN = "token-of-execd"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Received(NamedTuple):
    """One request as the sandbox saw it."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    raw = await reader.readuntil(b"\r\n\r\n")
    line, *rest = raw[:-4].split(b"\r\n")
    headers = []
    for item in rest:
        name, _, value = item.partition(b": ")
        headers.append((name, value))
    return line, headers


async def read_body(reader: asyncio.StreamReader, headers: list[tuple[bytes, bytes]]) -> bytes:
    lowered = {name.lower(): value for name, value in headers}
    if b"transfer-encoding" in lowered:
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
        return b"".join(parts)
    return await reader.readexactly(int(lowered.get(b"content-length", b"0")))


async def read_request(reader: asyncio.StreamReader) -> Received:
    line, headers = await read_head(reader)
    return Received(line, headers, await read_body(reader, headers))


@dataclass
class Sandbox:
    """Plays execd: a listener whose behaviour each test sets."""

    handler: Handler
    port: int = 0
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[Received] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.handler(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.closed.set()

    def answering(self, *answers: bytes) -> None:
        """Answer each request with the next of `answers`, the last one for ever."""
        queue = list(answers)

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                self.requests.append(await read_request(reader))
                writer.write(queue.pop(0) if len(queue) > 1 else queue[0])
                await writer.drain()

        self.handler = handler


@dataclass
class Operations:
    """Knows one sandbox, `s1`, and some that cannot be had."""

    address: Address

    async def target(self, sandbox_id: str) -> ProxyTarget:
        if sandbox_id == "paused":
            raise SandboxNotRunning("sandbox paused is Paused; resume it first")
        if sandbox_id != "s1":
            raise SandboxNotFound(sandbox_id)
        return ProxyTarget(self.address, Secret(TOKEN), sandbox_id)


async def authenticate(key: str | None) -> Caller:
    if key is None:
        raise MissingApiKey("send OPEN-SANDBOX-API-KEY")
    if key != KEY:
        raise Unauthorized("unknown API key")
    return Caller("k1", "tests")


@dataclass
class Config:
    proxy: ProxySettings


@dataclass
class Services:
    operations: Operations
    settings: Config
    auth: Callable[[str | None], Awaitable[Caller]] = authenticate


class QuietServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Gateway:
    port: int
    services: Services
    route: ProxyRoute

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)

    async def raw(self, head: bytes, body: bytes = b"", *, key: str = KEY) -> bytes:
        """Send one request verbatim and return all bytes until the gateway closes the connection."""
        reader, writer = await self.connect()
        line, _, rest = head.partition(b"\r\n")
        auth = f"OPEN-SANDBOX-API-KEY: {key}\r\n".encode() if key else b""
        writer.write(line + b"\r\nHost: gw\r\nConnection: close\r\n" + auth + rest + b"\r\n" + body)
        try:
            async with asyncio.timeout(30):
                return await reader.read(-1)
        finally:
            writer.close()


@asynccontextmanager
async def serve(app: FastAPI) -> AsyncIterator[int]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        log_config=None,
        server_header=False,
        date_header=False,
        access_log=False,
        proxy_headers=False,
        ws_max_size=MAX_MESSAGE_BYTES,
        timeout_graceful_shutdown=1,
    )
    server = QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not server.started:
            await asyncio.sleep(0)
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        sock.close()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    play = Sandbox(nothing)
    server = await asyncio.start_server(play.serve, "127.0.0.1", 0, limit=1 << 20)
    play.port = server.sockets[0].getsockname()[1]
    play.answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    yield play
    server.close()


@pytest.fixture
def proxy_settings() -> ProxySettings:
    """Return the defaults; a test that needs others parametrises this name."""
    return ProxySettings()


@pytest.fixture
async def gateway(sandbox: Sandbox, proxy_settings: ProxySettings) -> AsyncIterator[Gateway]:
    app = FastAPI(openapi_url=None)

    async def render(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, BoxwrightError)
        return JSONResponse(error.body(), error.status)

    app.add_exception_handler(BoxwrightError, render)
    services = Services(Operations(Address("127.0.0.1", sandbox.port, None, None)), Config(proxy_settings))
    route = mount(app, services)
    async with serve(app) as port:
        yield Gateway(port, services, route)
        await route.close()
