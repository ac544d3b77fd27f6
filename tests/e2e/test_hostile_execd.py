"""Attacks on execd, from inside its sandbox and from outside: it answers, stays small, and forgets nothing of its own.

Each sandbox has an execd that is PID 1, so its death is the sandbox's. After every storm the same is
asked: a ping and a command are served, and descriptors are back to where they were.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiodocker
import httpx
import pytest
import pytest_asyncio

from tests.e2e.site import BUSYBOX, DEBIAN, MARKS, Site, frames, until
from tests.live import boxwright

pytestmark = MARKS

PIDS = 256
BASE = 16  # descriptors of an execd that has served every kind of request and is idle again
GROWTH = 12 << 20  # bytes that a storm may leave behind: remembered commands, loaded modules


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a Boxwright whose sandboxes may have few processes."""
    config = tmp_path_factory.mktemp("config") / "boxwright.toml"
    config.write_text(f"[docker]\npids_limit = {PIDS}\n")
    with boxwright({"BOXWRIGHT_CONFIG": str(config)}) as live:
        yield Site(live, Path("/nowhere"))


@dataclass(slots=True)
class Box:
    """One sandbox: its execd's address, and its PID 1 as the host sees it."""

    id: str
    host: str
    port: int
    headers: dict[str, str]
    pid: int
    http: httpx.AsyncClient
    background: int = 0  # commands, each of which keeps the descriptor of its log

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def resident(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def head(self, method: str, target: str, *more: str, length: int | None = None) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", "Host: x", *more]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join([*lines, "", ""]).encode()

    def post(self, target: str, **body: Any) -> bytes:
        data = json.dumps(body).encode()
        return self.head("POST", target, length=len(data)) + data

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    async def ask(self, data: bytes, seconds: float = 10) -> bytes:
        """Send bytes as they are; return all that comes until the connection ends or nothing more comes."""
        reader, writer = await self.connect()
        got = b""
        try:
            writer.write(data)
            async with asyncio.timeout(seconds):
                while more := await reader.read(65536):
                    got += more
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.transport.abort()
        return got

    async def run(self, command: str | None = None, **body: Any) -> tuple[str, str]:
        """Run a command; return its output and its error's value, empty on success."""
        if command is not None:
            body["command"] = command
        answer = await self.http.post("/command", json=body)
        assert answer.status_code == 200, answer.text
        events = frames(answer.text)
        out = "\n".join(event["text"] for event in events if event["type"] == "stdout")
        return out, "" if events[-1]["type"] == "execution_complete" else str(events[-1]["error"])

    async def start(self, command: str | None = None, **body: Any) -> str:
        if command is not None:
            body["command"] = command
        answer = await self.http.post("/command", json={"background": True, **body})
        assert answer.status_code == 200, answer.text
        self.background += 1
        return str(frames(answer.text)[0]["text"])

    async def well(self) -> None:
        """Check that it serves, and that it has let go of what a storm took."""
        assert (await self.http.get("/ping")).status_code == 200
        assert await self.run("echo well") == ("well", "")

        async def back() -> bool:
            return self.descriptors() <= BASE + self.background

        await until(back, seconds=10)


async def open_box(site: Site, image: str, memory: str = "512Mi") -> Box:
    body = {
        "image": {"uri": image},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {"cpu": "2", "memory": memory},
        "timeout": 600,
    }
    async with site.api() as api, aiodocker.Docker() as docker:
        made = await api.post("/sandboxes", json=body)
        assert made.status_code == 202, made.text
        place = f"/sandboxes/{made.json()['id']}"

        async def running() -> bool:
            state: str = (await api.get(place)).json()["status"]["state"]
            assert state in {"Pending", "Running"}
            return state == "Running"

        await until(running, seconds=30)
        endpoint = (await api.get(f"{place}/endpoints/44772")).json()
        (container,) = [
            one for one in await docker.containers.list() if made.json()["id"] in str(one["Names"])
        ]
        pid = (await container.show())["State"]["Pid"]
    host, _, port = endpoint["endpoint"].partition(":")
    headers = endpoint["headers"]
    # Connections kept idle by the client would be mistaken for ones that execd has not let go of.
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=2)
    http = httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=headers, timeout=30, limits=limits)
    return Box(made.json()["id"], host, int(port), headers, pid, http)


async def close_box(site: Site, box: Box) -> None:
    await box.http.aclose()
    async with site.api() as api:
        assert (await api.delete(f"/sandboxes/{box.id}")).status_code in {204, 404}


Opener = Callable[..., Awaitable[Box]]


@pytest_asyncio.fixture(loop_scope="session")
async def opened(hostile: Site) -> AsyncIterator[Opener]:
    """Open sandboxes that one test may ruin."""
    boxes: list[Box] = []

    async def make(image: str = BUSYBOX, **options: Any) -> Box:
        boxes.append(await open_box(hostile, image, **options))
        return boxes[-1]

    try:
        yield make
    finally:
        for box in boxes:
            await close_box(hostile, box)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def box(hostile: Site) -> AsyncIterator[Box]:
    """Share one sandbox whose execd must outlive all that follows."""
    box = await open_box(hostile, DEBIAN)
    try:
        yield box
        await box.well()
    finally:
        await close_box(hostile, box)


# -- processes and memory -----------------------------------------------------------------


async def test_a_fork_storm_leaves_execd_answering(hostile: Site, opened: Opener) -> None:
    """Files, pings and metrics go on; commands are refused in words; deletion works at once (R28)."""
    box = await opened(DEBIAN)  # its bash tries again where busybox's shell gives up
    await box.start("f() { f | f & }; f; sleep 60")

    async def refused() -> bool:
        return "limit of processes" in (await box.run("true"))[1]

    await until(refused, seconds=15)
    for path in ("/ping", "/files/info?path=/etc/passwd", "/metrics"):
        assert (await box.http.get(path)).status_code == 200

    async def no_session() -> bool:
        answer = await box.http.post("/session", json={})
        assert answer.status_code == 200 or "limit of processes" in answer.json()["message"]
        return answer.status_code == 500

    await until(no_session, seconds=15)
    async with asyncio.timeout(10):
        await close_box(hostile, box)

    async def gone() -> bool:
        return not Path(f"/proc/{box.pid}/fd").exists()

    await until(gone, seconds=20)


async def test_a_storm_ends_with_its_timeout(opened: Opener) -> None:
    """A fork storm that runs out of time is gone to the last process (R34, R38)."""
    box = await opened(DEBIAN)
    _, error = await box.run("f() { f | f & }; f; sleep 60", timeout=1000)
    assert "timed out" in error
    await box.well()
    seen, _ = await box.run(argv=["sh", "-c", "ls -d /proc/[0-9]* | wc -l"])
    assert int(seen) <= 6


async def test_memory_that_runs_out_ends_commands_alone(opened: Opener) -> None:
    """The kernel takes the command, never PID 1, and a background log does not eat what little there is (R10)."""
    box = await opened(DEBIAN, memory="64Mi")
    for _ in range(2):
        _, error = await box.run(argv=["python3", "-c", "x = bytearray(10**9)"])
        assert "out of memory" in error
        assert "137" in error
    scores = "sleep 0.2; cat /proc/1/oom_score_adj /proc/self/oom_score_adj"
    assert (await box.run(scores))[0] == "0\n500"
    noisy = await box.start("head -c 60000000 /dev/zero")

    async def ended() -> bool:
        return not (await box.http.get(f"/command/status/{noisy}")).json()["running"]

    await until(ended, seconds=20)
    kept = await box.http.get(f"/command/{noisy}/logs")
    assert 0 < len(kept.content) <= 4 << 20
    assert int(kept.headers["EXECD-COMMANDS-TAIL-CURSOR"]) == 60_000_000
    await box.well()


async def test_pid_1_cannot_be_killed_from_inside(box: Box) -> None:
    """KILL, STOP and SEGV from inside have no effect, whoever sends them."""
    await box.run("kill -9 1; kill -STOP 1; kill -SEGV 1")
    await box.well()


async def test_the_token_is_nowhere_inside(box: Box) -> None:
    """PID 1 knows the token's digest only, so no process of the sandbox can speak as its owner."""
    token = box.headers["X-EXECD-ACCESS-TOKEN"]
    seen, error = await box.run("tr '\\0' '\\n' < /proc/1/environ; cat /proc/1/cmdline; env")
    assert not error
    assert "TOKEN_HASH=sha256:" in seen
    assert token not in seen


# -- time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [10**10, 2**53 - 1])
async def test_a_far_timeout_is_one(box: Box, timeout: int) -> None:
    """A timeout of a century does not end the daemon, not even when nothing else happens meanwhile."""
    command = await box.start("sleep 0.7", timeout=timeout)
    await asyncio.sleep(1.5)  # longer than any other timer of an idle execd
    status = (await box.http.get(f"/command/status/{command}")).json()
    assert (status["running"], status["exit_code"]) == (False, 0)


# -- bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"command":"true","timeout":' + b"9" * 100_000 + b"}",
        b'{"command":"true","timeout":9007199254740992}',
        b'{"command":"a\\u0000b"}',
        b'{"command":"a\\ud800b"}',
        b'{"argv":["true","\\u0000"]}',
        b'{"command":"true","envs":{"A=B":"x"}}',
        b'{"command":"true","envs":{"A":"\\u0000"}}',
        b'{"command":"true","cwd":"/tmp\\u0000"}',
        b"\xff\xfe",
    ],
    ids=[
        "depth",
        "objects",
        "digits",
        "timeout",
        "nul",
        "surrogate",
        "argv",
        "name",
        "value",
        "cwd",
        "bytes",
    ],
)
async def test_monstrous_json_is_a_clean_400(box: Box, body: bytes) -> None:
    """Depth, digits, NUL, half surrogates: refused with code and message, and the daemon goes on."""
    answer = await box.http.post("/command", content=body)
    assert answer.status_code == 400
    assert set(answer.json()) >= {"code", "message"}


@pytest.mark.parametrize(
    "request_",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"A: b\r\n c: d\r\n\r\n",
        b"A: b\rContent-Length: 0\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: +2\r\n\r\n{}",
        b"A: " + b"x" * 1_000_000 + b"\r\n\r\n",
        b"A: b\r\n" * 5000 + b"\r\n",
    ],
    ids=["cl+te", "te", "te space", "fold", "cr", "two cl", "plus", "huge", "many"],
)
async def test_smuggled_requests_get_one_refusal(box: Box, request_: bytes) -> None:
    """Where two readers could disagree the answer is one error, and the connection ends."""
    got = await box.ask(b"POST /command HTTP/1.1\r\nHost: x\r\n" + request_)
    assert got.count(b"HTTP/1.1 ") == 1
    assert got.split()[1] in {b"400", b"431", b"501"}


async def test_our_own_port_proxied_to_itself_costs_nothing(box: Box) -> None:
    """Thousands of `/proxy/44772` in front of a path are peeled off without a hop."""
    assert (await box.http.get("/proxy/44772" * 4800 + "/ping")).status_code == 200


async def test_a_service_that_never_finishes_its_answer_is_given_up(box: Box) -> None:
    """Endless interim answers, and heads without end, are a 502."""
    source = (
        "import socket\n"
        "l = socket.create_server(('127.0.0.1', 9107))\n"
        "for head in (b'HTTP/1.1 100 Continue\\r\\n\\r\\n', b'HTTP/1.1 200 OK\\r\\n' + b'A: b\\r\\n' * 9):\n"
        "    c = l.accept()[0]; c.recv(65536)\n"
        "    try:\n"
        "        while True: c.sendall(head * 1000)\n"
        "    except OSError: c.close()\n"
    )
    await box.start(argv=["python3", "-c", source])

    async def listens() -> bool:
        return ":2393 00000000:0000 0A" in (await box.run(argv=["cat", "/proc/net/tcp"]))[0]

    await until(listens, seconds=10)
    for _ in range(2):
        assert (await box.http.get("/proxy/9107/")).status_code == 502


# -- connections ----------------------------------------------------------------------------


async def test_idle_connections_keep_nobody_out(opened: Opener) -> None:
    """Five thousand connections that say nothing, and slow heads, give way to one that asks (from inside, without a token)."""
    box = await opened(DEBIAN)
    source = (
        "import resource, socket, time\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (9000, 9000))\n"
        "held = [socket.create_connection(('127.0.0.1', 44772)) for _ in range(5000)]\n"
        "[one.sendall(b'GET /ping HTTP/1.1\\r\\nA: ') for one in held[-1500:] if one]\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    before = box.resident()
    command = await box.start(argv=["python3", "-c", source])

    async def held() -> bool:
        return b"held" in (await box.http.get(f"/command/{command}/logs")).content

    await until(held, seconds=20)
    assert await box.run("echo served") == ("served", "")
    assert box.descriptors() > 3000
    await box.http.delete("/command", params={"id": command})
    await box.well()
    assert box.resident() - before < GROWTH


async def test_clients_that_leave_take_nothing_with_them(box: Box) -> None:
    """Two hundred clients that drop after the first event leave neither descriptors nor processes (R89)."""

    async def drop() -> None:
        reader, writer = await box.connect()
        writer.write(box.post("/command", command="yes | head -c 300000; sleep 1"))
        await reader.readuntil(b"pong")
        writer.transport.abort()

    await box.well()
    for _ in range(4):
        await asyncio.gather(*(drop() for _ in range(50)))
    await box.well()


async def test_every_exit_status_is_its_own(box: Box) -> None:
    """A hundred at a time, each gets its own status, and no orphan stays a zombie (R50)."""

    async def one(code: int) -> bool:
        return f"'evalue': '{code}'" in (await box.run(argv=["sh", "-c", f"exit {code}"]))[1]

    assert all(await asyncio.gather(*(one(1 + n % 120) for n in range(200))))
    await box.run("for i in $(seq 200); do (true &) ; done")

    async def reaped() -> bool:
        return " Z " not in (await box.run("cat /proc/[0-9]*/stat"))[0]

    await until(reaped, seconds=5)


async def test_many_commands_leave_no_trace(box: Box) -> None:
    """Memory is bounded, descriptors come back, and nothing is left on disk (R44)."""

    async def some(count: int) -> None:
        for _ in range(count):
            assert (await box.http.post("/command", json={"argv": ["/bin/true"]})).status_code == 200

    await some(50)
    before = box.resident()
    await asyncio.gather(*(some(60) for _ in range(10)))
    assert box.resident() - before < GROWTH
    assert (await box.run("find /run/boxwright -type f"))[0] == ""
    await box.well()


# -- sessions -------------------------------------------------------------------------------


async def test_many_sessions_end_together(box: Box) -> None:
    """A hundred shells run and are deleted at once; the work does not grow with the square of their number."""
    made = await asyncio.gather(*(box.http.post("/session", json={}) for _ in range(100)))
    ids = [one.json()["session_id"] for one in made]
    runs = await asyncio.gather(
        *(box.http.post(f"/session/{one}/run", json={"command": "echo $((6*7))"}) for one in ids)
    )
    assert all('"text":"42"' in one.text for one in runs)
    gone = await asyncio.gather(*(box.http.delete(f"/session/{one}") for one in ids))
    assert {one.status_code for one in gone} == {200}
    await box.well()


async def test_a_shell_that_kills_or_stops_itself_is_replaced(box: Box) -> None:
    """The run ends with an error, in time, and the next one works (R35)."""
    session = (await box.http.post("/session", json={})).json()["session_id"]
    for command in ("kill -9 $$", "kill -STOP $$", "exec sleep 60"):
        ended = await box.http.post(f"/session/{session}/run", json={"command": command, "timeout": 1000})
        assert frames(ended.text)[-1]["type"] == "error"
        after = await box.http.post(f"/session/{session}/run", json={"command": "echo here"})
        assert '"text":"here"' in after.text
    await box.http.delete(f"/session/{session}")


async def test_a_run_that_nobody_reads_ends_with_its_client(box: Box) -> None:
    """Ten megabytes wait for their reader in bounded memory; when it leaves, the session is free again."""
    session = (await box.http.post("/session", json={})).json()["session_id"]
    before = box.resident()
    _, writer = await box.connect()
    writer.write(box.post(f"/session/{session}/run", command="head -c 10000000 /dev/zero | tr '\\0' 'a'"))
    await writer.drain()
    assert await box.run("sleep 0.3; echo beside") == ("beside", "")
    assert box.resident() - before < GROWTH
    writer.transport.abort()
    after = await box.http.post(f"/session/{session}/run", json={"command": "echo free"})
    assert '"text":"free"' in after.text
    await box.http.delete(f"/session/{session}")
    await box.well()


async def test_interrupts_may_come_in_a_storm(box: Box) -> None:
    """Forty commands that ignore TERM are interrupted twice each at once; pings go on and nothing is left (R41)."""
    ids = [await box.start("trap '' TERM; while :; do sleep 1; done") for _ in range(40)]
    storm = asyncio.gather(*(box.http.delete("/command", params={"id": one}) for one in ids * 2))
    while not storm.done():
        assert (await box.http.get("/ping")).status_code == 200
        await asyncio.wait([storm], timeout=0.1)
    assert {one.status_code for one in storm.result()} <= {200, 404}
    for one in ids:
        assert (await box.http.get(f"/command/status/{one}")).json()["running"] is False


# -- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/proc/1/fd/4", "/proc/self/fd/5", "/proc/1/mem", "/dev/zero", "/dev/ptmx", "/proc/1/ns/net"],
)
async def test_what_is_no_file_is_not_downloaded(box: Box, path: str) -> None:
    """Magic links, our own pipes, devices: an error at once, and our own wake-up pipe is left alone."""
    answer = await box.http.get("/files/download", params={"path": path}, timeout=5)
    assert answer.status_code in {400, 500}
    await box.well()


async def test_a_search_through_proc_survives_what_ends_meanwhile(box: Box) -> None:
    """Processes come and go under the walk, which lists what there is."""
    churn = await box.start("while :; do (sleep 0.01 & sleep 0.01 &); /bin/true & wait; done", timeout=20000)
    for _ in range(15):
        answer = await box.http.get("/files/search", params={"path": "/proc", "pattern": "s*"})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()) > 10
    await box.http.delete("/command", params={"id": churn})


async def test_a_file_that_shrinks_while_it_is_sent_is_cut(box: Box, place: str) -> None:
    """The client sees a broken body, never a complete one that is wrong."""
    await box.run(f"mkdir -p {place}; truncate -s 200M {place}/big")
    with pytest.raises(httpx.RemoteProtocolError):
        async with box.http.stream("GET", "/files/download", params={"path": f"{place}/big"}) as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_raw():
                await box.run(f"truncate -s 1M {place}/big")
    await box.well()


async def upload(box: Box, path: str, data: bytes) -> httpx.Response:
    metadata = ("metadata", json.dumps({"path": path}).encode(), "application/json")
    return await box.http.post("/files/upload", files={"metadata": metadata, "file": ("file", data)})


async def test_an_upload_into_a_folder_that_is_being_removed(box: Box, place: str) -> None:
    """It is written, or refused by cause; never half, never an internal error."""
    remover = await box.start(f"while :; do rm -rf {place}/a; done", timeout=20000)
    codes = {(await upload(box, f"{place}/a/b/c/{n}", bytes(50_000))).status_code for n in range(60)}
    await box.http.delete("/command", params={"id": remover})
    assert codes <= {200, 403, 404}  # overlayfs says EPERM of a folder that is half removed
    assert 200 in codes


# -- the ground under it ---------------------------------------------------------------------


async def test_without_tmp_and_without_its_own_files_all_goes_on(opened: Opener) -> None:
    """`rm -rf` of /tmp, the state directory's content, and the working directory change nothing (R46)."""
    box = await opened(DEBIAN)
    await box.run("rm -rf /tmp /var/tmp /run/boxwright/* /run/boxwright/.[a-z]*")
    assert (await upload(box, "/tmp/new/file", b"x")).status_code == 200
    session = (await box.http.post("/session", json={"cwd": "/tmp/work"})).json()["session_id"]
    ran = await box.http.post(f"/session/{session}/run", json={"command": "cat /tmp/new/file"})
    assert '"text":"x"' in ran.text
    command = await box.start("echo kept")
    await box.well()
    assert (await box.http.get(f"/command/{command}/logs")).text == "kept\n"


async def test_a_full_state_directory_is_no_obstacle(opened: Opener) -> None:
    """What the user fills up is not needed: commands, sessions and short logs work."""
    box = await opened()
    await box.run("dd if=/dev/zero of=/run/boxwright/fill bs=1M")
    command = await box.start("echo kept; seq 1000")
    session = (await box.http.post("/session", json={})).json()["session_id"]
    ran = await box.http.post(f"/session/{session}/run", json={"command": "echo here"})
    assert '"text":"here"' in ran.text

    async def logged() -> bool:
        return (await box.http.get(f"/command/{command}/logs")).text.endswith("\n1000\n")

    await until(logged, seconds=5)


ENVS = "/run/boxwright/env/vars"


@pytest.mark.parametrize(
    "setup",
    [
        f"mkfifo {ENVS}",
        f"mkdir {ENVS}",
        f"ln -s /dev/zero {ENVS}",
        f"ln -s vars {ENVS}",
        f"truncate -s 10G {ENVS}",
        f"head -c 3000000 /dev/urandom > {ENVS}",
        f"(printf X=; head -c 3000000 /dev/zero | tr '\\0' x) > {ENVS}",
    ],
    ids=["fifo", "folder", "endless", "loop", "huge", "noise", "long"],
)
async def test_the_environment_file_may_be_anything(box: Box, setup: str) -> None:
    """Whatever stands in its place, commands start, and a good file counts again afterwards (R59)."""
    await box.run(f"rm -rf {ENVS}; mkdir -p /run/boxwright/env; {setup}")
    assert await box.run("echo started") == ("started", "")
    await box.run(f"rm -rf {ENVS}; echo 'WORD=\"a  b#\"' > {ENVS}")
    assert await box.run('echo "$WORD"') == ("a  b#", "")


@pytest.mark.parametrize("setup", ["mkfifo /etc/passwd /etc/group", "ln -s /dev/zero /etc/passwd"])
async def test_account_files_may_be_anything(opened: Opener, setup: str) -> None:
    """A pipe or an endless device in place of the user database blocks nobody; ids stand for names."""
    box = await opened()
    await box.run(f"rm -f /etc/passwd /etc/group; {setup}")
    described = await box.http.get("/files/info", params={"path": "/bin/sh"}, timeout=5)
    assert described.json()["/bin/sh"]["owner"] == "0"
    assert await box.run(argv=["/bin/busybox", "echo", "x"], uid=33, gid=33) == ("x", "")
    refused = await box.http.post("/command", json={"argv": ["/bin/sh"], "uid": 33})
    assert refused.status_code == 400
    await box.http.get("/ping", timeout=5)


async def test_nobody_can_take_our_port(box: Box) -> None:
    """No address and no socket option lets a workload listen where execd does."""
    source = (
        "import socket\n"
        "for family, address in ((2, '127.0.0.1'), (2, '0.0.0.0'), (10, '::1'), (10, '::')):\n"
        "    for reuse in (0, 1):\n"
        "        one = socket.socket(family)\n"
        "        one.setsockopt(1, socket.SO_REUSEADDR, reuse); one.setsockopt(1, socket.SO_REUSEPORT, reuse)\n"
        "        try: one.bind((address, 44772)); one.listen(); print('taken', address, reuse)\n"
        "        except OSError: pass\n"
    )
    assert await box.run(argv=["python3", "-c", source]) == ("", "")


async def test_a_flood_without_an_end_of_line_fits_in_little_memory(box: Box) -> None:
    """A hundred megabytes in one line stream through (R40, R91)."""
    before = box.resident()
    size = 0
    async with box.http.stream(
        "POST", "/command", json={"command": "head -c 100000000 /dev/zero | tr '\\0' x"}
    ) as answer:
        async for piece in answer.aiter_raw():
            size += len(piece)
    assert size > 100_000_000
    assert box.resident() - before < GROWTH
