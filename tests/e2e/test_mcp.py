"""The MCP server, unmodified, over both of its transports, driven by the official client."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from mcp import Client as Mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from opensandbox import SandboxManagerSync
from opensandbox.exceptions import SandboxApiException

from tests.e2e.site import DEBIAN, KEY_HEADER, MARKS, Site, unique, until
from tests.live import free_port
from tests.prepare import MCP_PACKAGES

pytestmark = MARKS

SERVER: Final = str(Path(sys.executable).with_name("opensandbox-mcp"))
# Its own packages first, and a log whose lines are not folded.
OWN: Final = {"PYTHONPATH": str(MCP_PACKAGES), "COLUMNS": "1000"}
TOOLS: Final = {
    "command_interrupt",
    "command_run",
    "file_create_directories",
    "file_delete",
    "file_delete_directories",
    "file_move",
    "file_read",
    "file_replace_contents",
    "file_search",
    "file_write",
    "sandbox_connect",
    "sandbox_create",
    "sandbox_get_endpoint",
    "sandbox_get_info",
    "sandbox_get_metrics",
    "sandbox_healthcheck",
    "sandbox_kill",
    "sandbox_list",
    "sandbox_renew",
}


@dataclass(frozen=True, slots=True)
class Server:
    """One running MCP server and how to reach it."""

    log: Path
    client: Mcp
    url: str | None = None
    proxied: bool = False

    async def call(self, tool: str, *, through: Mcp | None = None, **arguments: Any) -> Any:
        """Call a tool and return its structured answer."""
        async with asyncio.timeout(60):
            answer = await (through or self.client).call_tool(tool, arguments)
        assert not answer.is_error, (tool, answer.content, self.log.read_text()[-3000:])
        said: Any = answer.structured_content
        return said["result"] if set(said) == {"result"} else said

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail; return what the client and the server's log are told."""
        before = len(self.log.read_bytes())
        async with asyncio.timeout(60):
            answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error, answer
        told = " ".join(one.text for one in answer.content if one.type == "text")
        return f"{told}\n{self.log.read_bytes()[before:].decode()}"


@asynccontextmanager
async def held(context: AbstractAsyncContextManager[Server]) -> AsyncIterator[Server]:
    """Open and close in one task, as the client's scopes demand; the halves of a fixture run in two."""
    opened: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
    enough = asyncio.Event()

    async def keep() -> None:
        async with context as server:
            opened.set_result(server)
            await enough.wait()

    task = asyncio.create_task(keep())
    task.add_done_callback(lambda _: opened.done() or opened.cancel())
    try:
        yield await opened
    finally:
        enough.set()
        await task


@asynccontextmanager
async def over_stdio(site: Site, log: Path) -> AsyncIterator[Server]:
    with log.open("a") as errors:
        server = StdioServerParameters(
            command=SERVER,
            args=["--transport", "stdio"],
            env={**OWN, "OPEN_SANDBOX_DOMAIN": site.live.domain, "OPEN_SANDBOX_API_KEY": site.live.key},
        )
        async with Mcp(stdio_client(server, errlog=errors)) as client:
            yield Server(log, client)


@asynccontextmanager
async def over_http(site: Site, log: Path) -> AsyncIterator[Server]:
    port = free_port()
    where = ("--transport", "streamable-http", "--port", str(port))
    what = ("--domain", site.live.domain, "--api-key", site.live.key, "--use-server-proxy")
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *(SERVER, *where, *what),
            env={**os.environ, **OWN},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        async with httpx.AsyncClient() as http:

            async def answers() -> bool:
                assert process.returncode is None, log.read_text()
                try:
                    await http.get(url)
                except httpx.ConnectError:
                    return False
                return True

            await until(answers)
        async with Mcp(url) as client:
            yield Server(log, client, url, proxied=True)
    finally:
        process.terminate()
        async with asyncio.timeout(20):
            await process.wait()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def stdio_server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with held(over_stdio(site, tmp_path_factory.mktemp("mcp") / "log")) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def http_server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with held(over_http(site, tmp_path_factory.mktemp("mcp") / "log")) as server:
        yield server


@pytest.fixture(params=["stdio", "streamable-http"])
def server(request: pytest.FixtureRequest, stdio_server: Server, http_server: Server) -> Server:
    """Give each transport in turn; direct access goes with the first, the way through the server with the other."""
    return stdio_server if request.param == "stdio" else http_server


@pytest_asyncio.fixture(loop_scope="session")
async def box(site: Site, server: Server) -> AsyncIterator[str]:
    """Make a sandbox through the MCP server; whatever became of it, it is gone afterwards."""
    made = await server.call(
        "sandbox_create", image=DEBIAN, metadata={"made-by": "mcp"}, env={"WHO": "agent"}
    )
    try:
        yield made["sandbox_id"]
    finally:
        kill(site, made["sandbox_id"])


def kill(site: Site, sandbox_id: str) -> None:
    """Delete a sandbox behind the MCP server's back."""
    with SandboxManagerSync.create(site.synchronous("direct")) as manager:
        try:
            manager.kill_sandbox(sandbox_id)
        except SandboxApiException as gone:
            if gone.status_code != 404:
                raise


def lines(execution: Any) -> list[str]:
    return [one["text"] for one in execution["logs"]["stdout"]]


async def test_every_tool_is_known(server: Server) -> None:
    """The server offers 19 tools; a twentieth would go untested here."""
    assert {tool.name for tool in (await server.client.list_tools()).tools} == TOOLS


async def test_sandbox_tools(site: Site, server: Server, box: str) -> None:
    """Every sandbox tool does what it says."""
    info = await server.call("sandbox_get_info", sandbox_id=box)
    assert (info["status"]["state"], info["metadata"]["made-by"]) == ("Running", "mcp")
    assert (await server.call("sandbox_healthcheck", sandbox_id=box))["healthy"] is True
    assert (await server.call("sandbox_get_metrics", sandbox_id=box))["memory_total_in_mib"] > 0
    listed = await server.call("sandbox_list", filter={"metadata": {"made-by": "mcp"}, "states": ["RUNNING"]})
    assert box in [one["id"] for one in listed["sandbox_infos"]]
    renewed = await server.call("sandbox_renew", sandbox_id=box, timeout_seconds=1800)
    again = await server.call("sandbox_get_info", sandbox_id=box)
    assert again["expires_at"] == renewed["expires_at"] > info["expires_at"]
    endpoint = await server.call("sandbox_get_endpoint", sandbox_id=box, port=8000)
    assert (f"/sandboxes/{box}/proxy/8000" in endpoint["endpoint"]) is server.proxied

    connected = await server.call("sandbox_connect", sandbox_id=box)
    assert (connected["sandbox_id"], connected["info"]["status"]["state"]) == (box, "Running")
    assert await server.call("sandbox_kill", sandbox_id=box) == {"status": "killed"}
    async with site.api() as api:
        assert (await api.get(f"/sandboxes/{box}")).status_code == 404


async def test_command_tools(server: Server, box: str) -> None:
    """Commands run, tell how they ended, run in the background and are interrupted."""
    done = await server.call(
        "command_run", sandbox_id=box, command='echo "$WHO in $PWD"; echo bad >&2', working_directory="/var"
    )
    assert (lines(done), done["exit_code"], done["error"]) == (["agent in /var"], 0, None)
    assert [one["text"] for one in done["logs"]["stderr"]] == ["bad"]
    started = await server.call("command_run", sandbox_id=box, command="exec sleep 300", background=True)
    assert await server.call("command_interrupt", sandbox_id=box, execution_id=started["id"]) == {
        "status": "interrupted"
    }
    left = await server.call("command_run", sandbox_id=box, command="pgrep -fx 'sleep 300' || echo none")
    assert lines(left) == ["none"]


async def test_file_tools(server: Server, box: str) -> None:
    """Every file tool does what it says."""
    place = f"/tmp/{unique('mcp')}"
    one, two = f"{place}/d/one é.txt", f"{place}/e/two.txt"
    ask: dict[str, Any] = {"sandbox_id": box}
    made = await server.call("file_create_directories", **ask, entries=[{"path": f"{place}/d", "mode": 750}])
    assert made == {"status": "created"}
    written = await server.call("file_write", **ask, path=one, content="red ü\nand red\n", mode=640)
    assert written == {"status": "written"}
    assert (await server.call("file_read", **ask, path=one))["content"] == "red ü\nand red\n"
    ranged = await server.call("file_read", **ask, path=one, range_header="bytes=0-2")
    assert ranged["content"] == "red"
    (replaced,) = await server.call(
        "file_replace_contents", **ask, entries=[{"path": one, "old_content": "red", "new_content": "blue"}]
    )
    assert replaced["replaced_count"] == 2
    moved = await server.call("file_move", **ask, entries=[{"src": one, "dest": two}])
    assert moved == {"status": "moved"}
    found = await server.call("file_search", **ask, path=place, pattern="*.txt")
    assert [(entry["path"], entry["mode"]) for entry in found] == [(two, 640)]
    assert (await server.call("file_read", **ask, path=two))["content"] == "blue ü\nand blue\n"
    assert await server.call("file_delete", **ask, paths=[two]) == {"status": "deleted"}
    assert await server.call("file_delete_directories", **ask, paths=[place]) == {"status": "deleted"}
    left = await server.call("command_run", **ask, command=f"ls -d {place} || echo gone")
    assert lines(left) == ["gone"]


async def test_failed_work_is_no_success(site: Site, server: Server, box: str) -> None:
    """A lost stream, an unknown execution, a missing file and a failed command are each told as such (R170)."""
    failed = await server.call("command_run", sandbox_id=box, command="echo some; exit 7")
    assert (lines(failed), failed["exit_code"], failed["error"]["name"]) == (["some"], 7, "CommandExecError")
    assert "FILE_NOT_FOUND" in await server.refused("file_read", sandbox_id=box, path="/no/such/file")
    assert "no-such-one" in await server.refused(
        "command_interrupt", sandbox_id=box, execution_id="no-such-one"
    )

    running = asyncio.create_task(
        server.client.call_tool("command_run", {"sandbox_id": box, "command": "echo $$ > /tmp/up; sleep 300"})
    )
    async with asyncio.timeout(60):
        while not lines(
            await server.call("command_run", sandbox_id=box, command="cat /tmp/up 2>/dev/null || true")
        ):
            await asyncio.sleep(0.05)
        kill(site, box)
        lost = await running
    execution = lost.structured_content or {}
    assert lost.is_error or execution["exit_code"] != 0, lost


async def test_sandbox_that_went_away_is_told(site: Site, server: Server, box: str) -> None:
    """A handle whose sandbox was deleted outside fails at once and by name, and spoils nothing else (R175)."""
    kill(site, box)
    gone: dict[str, Any] = {"sandbox_id": box}
    for tool, arguments in (
        ("sandbox_get_info", gone),
        ("sandbox_renew", gone | {"timeout_seconds": 60}),
        ("sandbox_connect", gone),
        ("sandbox_kill", gone),
    ):
        assert "DOCKER::SANDBOX_NOT_FOUND" in await server.refused(tool, **arguments)
    for tool, arguments in (
        ("command_run", gone | {"command": "true"}),
        ("file_read", gone | {"path": "/etc/hostname"}),
    ):
        assert tool in await server.refused(tool, **arguments)
    fresh = await server.call("sandbox_create", image=DEBIAN)
    try:
        done = await server.call("command_run", sandbox_id=fresh["sandbox_id"], command="echo fresh")
        assert lines(done) == ["fresh"]
    finally:
        await server.call("sandbox_kill", sandbox_id=fresh["sandbox_id"])


@pytest.mark.parametrize("server", ["streamable-http"], indirect=True)  # one server, two clients
async def test_cancelled_calls_harm_no_other(server: Server, box: str) -> None:
    """Of 20 calls at once from two clients half are cancelled; the others end well, and so do all later ones (R173)."""
    assert server.url is not None
    mark = unique("race")

    def run(number: int, client: Mcp) -> asyncio.Task[Any]:
        file = f"/tmp/{mark}/{number}"
        command = f": > {file}; while [ ! -e /tmp/{mark}/go ]; do sleep 0.1; done; mv {file} {file}-done; echo {number}"
        return asyncio.create_task(
            server.call("command_run", through=client, sandbox_id=box, command=command)
        )

    async def say(command: str) -> list[str]:
        return lines(await server.call("command_run", sandbox_id=box, command=command))

    async def counted(pattern: str, wanted: int) -> bool:
        found = await server.call("file_search", sandbox_id=box, path=f"/tmp/{mark}", pattern=pattern)
        return len(found) == wanted

    async with Mcp(server.url) as other:
        await server.call(
            "file_create_directories", sandbox_id=box, entries=[{"path": f"/tmp/{mark}", "mode": 755}]
        )
        calls = [run(number, (server.client, other)[number // 2 % 2]) for number in range(20)]
        await until(partial(counted, "[0-9]*", 20))
        for number in range(1, 20, 2):
            calls[number].cancel()
        await asyncio.wait(calls[1::2], timeout=20)
        assert all(call.cancelled() for call in calls[1::2])
        await server.call("file_write", sandbox_id=box, path=f"/tmp/{mark}/go", content="")
        async with asyncio.timeout(60):
            kept = await asyncio.gather(*calls[::2])
        assert [lines(one) for one in kept] == [[str(number)] for number in range(0, 20, 2)]
        await until(partial(counted, "*-done", 20))  # who only stopped listening stopped no work
        for client in (server.client, other):
            again = await asyncio.gather(
                *(
                    server.call("command_run", through=client, sandbox_id=box, command=f"echo {number}")
                    for number in range(10)
                )
            )
            assert [lines(one) for one in again] == [[str(number)] for number in range(10)]
    assert await say("echo after") == ["after"]


async def test_wrong_key_is_told(site: Site, tmp_path: Path) -> None:
    """A server set up with a key that nobody has fails its calls with the reason."""
    log = tmp_path / "log"
    with log.open("a") as errors:
        stranger = StdioServerParameters(
            command=SERVER, args=["--domain", site.live.domain, "--api-key", "not-the-key"], env=OWN
        )
        async with Mcp(stdio_client(stranger, errlog=errors)) as client:
            assert "INVALID_API_KEY" in await Server(log, client).refused("sandbox_list")
    async with site.api(headers={KEY_HEADER: site.live.key}) as api:
        assert (await api.get("/sandboxes")).status_code == 200
