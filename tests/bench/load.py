"""Rows about many sandboxes at once, the server proxy, big files, long lists and restarts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.sandboxes.model import LifeEvent, SandboxRecord, State, Status
from gateway.stores.database import Database
from gateway.stores.sqlite import SqliteStore
from tests.bench.client import Api, Sandbox, connect
from tests.bench.report import Row, percentile
from tests.live import Live, label, start, stop
from tests.raw_engine import Engine

MIB = 1 << 20
GIB = 1 << 30
PARALLEL = (4, 8)  # the engine's own best lies here: two to four starts for each core


# -- bursts and churn --------------------------------------------------------------------


def engine_best(image: str, count: int) -> float:
    """The engine's own best rate of create + start on the default bridge, containers per second."""

    def one(_: int) -> str:
        engine = Engine()
        body = {"Image": image, "Cmd": ["sleep", "600"], "HostConfig": {"PortBindings": {}}}
        made = str(json.loads(engine.call("POST", "/containers/create", body))["Id"])
        engine.call("POST", f"/containers/{made}/start")
        engine.close()
        return made

    best = 0.0
    for width in PARALLEL:
        with ThreadPoolExecutor(width) as pool:
            began = time.perf_counter()
            made = list(pool.map(one, range(count)))
            best = max(best, count / (time.perf_counter() - began))
            list(pool.map(_remove, made))
    return best


def _remove(container: str) -> None:
    engine = Engine()
    engine.call("DELETE", f"/containers/{container}?force=true")
    engine.close()


def bursts(live: Live, image: str, *, quick: bool) -> Iterator[Row]:
    """Many creates at once: none may fail, and the engine must stay the limit."""
    floor = engine_best(image, 16 if quick else 32)
    for count in (16,) if quick else (32, 100):

        def one(_: int) -> str | None:
            api = Api(live.domain, live.key)
            status, answer = api.call(
                "POST",
                "/sandboxes",
                {
                    "image": {"uri": image},
                    "entrypoint": ["tail", "-f", "/dev/null"],
                    "timeout": 3600,
                    "resourceLimits": {},
                },
            )
            if status != 202:
                return None
            while True:  # a lookup waits for the address and then says what clients retry on
                status, _found = api.call("GET", f"/sandboxes/{answer['id']}/endpoints/44772")
                if status != 404:
                    return str(answer["id"]) if status == 200 else None

        with ThreadPoolExecutor(count) as pool:
            began = time.perf_counter()
            made = list(pool.map(one, range(count)))
            spent = time.perf_counter() - began
        api = Api(live.domain, live.key)
        for sandbox in made:
            if sandbox is not None:
                api.delete(sandbox)
        failures = made.count(None)
        yield Row(f"{count} creates at once, failures", failures, "", 0, n=count)
        yield Row(
            f"{count} creates at once, ratio to the engine's best",
            count / spent / floor,
            "x",
            0.9,
            at_most=False,
            n=count,
            floor=1.0,
            note=f"{count / spent:.1f}/s against {floor:.1f}/s create+start, same network, best of 4 and 8 parallel",
        )
        settle(live)


def settle(live: Live) -> None:
    """Wait until no sandbox but the bench's own warm one is left."""
    engine = Engine()
    mine, end = label(live), time.monotonic() + 300
    while time.monotonic() < end:
        if len(engine.labelled(mine)) <= 1:
            engine.close()
            return
        time.sleep(0.2)
    raise RuntimeError("sandboxes are still there after 300 s")


def rss(pid: int) -> float:
    """Resident memory in MiB."""
    found = re.search(r"^VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found.group(1)) / 1024 if found else 0.0


def peak(pid: int) -> float:
    """Highest resident memory in MiB since `reset_peak`."""
    found = re.search(r"^VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found.group(1)) / 1024 if found else 0.0


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def churn(live: Live, image: str, *, quick: bool) -> Iterator[Row]:
    """Create and delete over and over: nothing may grow."""
    cycles, width = (60, 4) if quick else (1000, 4)
    pid = live.process.pid

    def run(count: int) -> None:
        def one(_: int) -> None:
            api = Api(live.domain, live.key)
            api.delete(api.create(image))

        with ThreadPoolExecutor(width) as pool:
            list(pool.map(one, range(count)))
        settle(live)

    engine = Engine()
    volumes = len(json.loads(engine.call("GET", "/volumes"))["Volumes"] or ())
    run(max(20, cycles // 10))  # caches and pools fill once
    before, files = rss(pid), len(os.listdir(f"/proc/{pid}/fd"))
    began = time.perf_counter()
    run(cycles)
    spent = time.perf_counter() - began
    engine.close()
    engine = Engine()
    grown = len(json.loads(engine.call("GET", "/volumes"))["Volumes"] or ()) - volumes
    note = f"{cycles / spent:.1f} cycles/s"
    yield Row("create + delete, gateway memory growth", rss(pid) - before, "MiB", 10, n=cycles, note=note)
    yield Row(
        "create + delete, descriptor growth", len(os.listdir(f"/proc/{pid}/fd")) - files, "", 8, n=cycles
    )
    yield Row("create + delete, volumes left", grown, "", 0, n=cycles)
    engine.close()


# -- the server proxy and files ------------------------------------------------------------


def plain(link: socket.socket, request: bytes) -> None:
    """One exchange whose answer has no body."""
    link.sendall(request)
    got = b""
    while not got.endswith(b"\r\n\r\n"):
        piece = link.recv(65536)
        if not piece:
            raise RuntimeError(f"connection ended early: {got!r}")
        got += piece
    if b" 200 " not in got[:20]:
        raise RuntimeError(f"unexpected answer {got[:200]!r}")


def pings(sandbox: Sandbox, count: int) -> list[float]:
    request = sandbox.request("GET", "/ping")
    with connect(sandbox) as link:
        for _ in range(50):
            plain(link, request)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            plain(link, request)
            times.append((time.perf_counter() - began) * 1000)
    return times


def ping_rate(sandbox: Sandbox, links: int, seconds: float) -> float:
    """Requests per second over many connections."""
    request = sandbox.request("GET", "/ping")
    epoll = select.epoll()
    opened = {}
    for _ in range(links):
        link = connect(sandbox)
        opened[link.fileno()] = link
        epoll.register(link.fileno(), select.EPOLLIN)
    for link in opened.values():
        link.sendall(request)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for number, _ in epoll.poll(5):
            if not opened[number].recv(65536).endswith(b"\r\n\r\n"):
                raise RuntimeError("an answer came in pieces or the connection ended")
            done += 1
            opened[number].sendall(request)
    spent = time.perf_counter() - began
    for link in opened.values():
        link.close()
    epoll.close()
    return done / spent


def upload(sandbox: Sandbox, path: str, size: int) -> float:
    """Upload `size` bytes; MB/s."""
    edge = "bench-boundary"
    head = (
        f'--{edge}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n'
        f'Content-Type: application/json\r\n\r\n{{"path":"{path}","mode":644}}\r\n'
        f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    ).encode()
    tail = f"\r\n--{edge}--\r\n".encode()
    lines = [f"POST {sandbox.base}/files/upload HTTP/1.1", f"Host: {sandbox.host}:{sandbox.port}"]
    lines += [f"{name}: {value}" for name, value in sandbox.headers.items()]
    lines += [
        f"Content-Type: multipart/form-data; boundary={edge}",
        f"Content-Length: {len(head) + size + len(tail)}",
        "",
        "",
    ]
    block = os.urandom(4 * MIB)
    with connect(sandbox) as link:
        began = time.perf_counter()
        link.sendall("\r\n".join(lines).encode() + head)
        for _ in range(size // len(block)):
            link.sendall(block)
        link.sendall(tail)
        answer = link.recv(65536)
        spent = time.perf_counter() - began
    if b" 200 " not in answer[:20]:
        raise RuntimeError(f"upload refused: {answer[:300]!r}")
    return size / spent / 1e6


def download(sandbox: Sandbox, path: str, size: int) -> float:
    """Download `size` bytes; MB/s."""
    room = bytearray(4 * MIB)
    with connect(sandbox) as link:
        began = time.perf_counter()
        link.sendall(sandbox.request("GET", f"/files/download?path={path}"))
        got = link.recv(65536)
        while b"\r\n\r\n" not in got:
            got += link.recv(65536)
        if b" 200 " not in got[:20]:
            raise RuntimeError(f"download refused: {got[:300]!r}")
        left = size - (len(got) - got.index(b"\r\n\r\n") - 4)
        while left > 0:
            count = link.recv_into(room)
            if not count:
                raise RuntimeError(f"download ended {left} bytes early")
            left -= count
        return size / (time.perf_counter() - began) / 1e6


def proxied(live: Live, engine: Engine, sandbox_id: str, folder: Path, *, quick: bool) -> Iterator[Row]:
    """The way through the gateway beside the direct one, and big files both ways."""
    api = Api(live.domain, live.key)
    direct, through = api.endpoint(sandbox_id), api.endpoint(sandbox_id, proxy=True)
    count = 500 if quick else 2000
    here, there = pings(direct, count), pings(through, count)
    added = statistics.median(there) - statistics.median(here)
    yield Row("server proxy, added p50", added, "ms", 2, n=count, floor=statistics.median(here))
    rate = ping_rate(through, 32, 2 if quick else 5)
    yield Row("server proxy, requests", rate, "/s", 1000, at_most=False, floor=ping_rate(direct, 32, 2))
    size = 256 * MIB if quick else GIB
    pid, gateway = engine.pid(sandbox_id), live.process.pid
    target = "/mnt/bench/file"
    for name, sandbox, goals in (("direct", direct, (1000, 2000)), ("server proxy", through, (300, 300))):
        before, gate = rss(pid), rss(gateway)
        reset_peak(pid)
        reset_peak(gateway)
        up = max(upload(sandbox, target, size) for _ in range(3))
        down = max(download(sandbox, target, size) for _ in range(3))
        if (folder / "file").stat().st_size != size:
            raise RuntimeError("the uploaded file has another size")
        label = f"{size // MIB} MiB"
        yield Row(
            f"upload {label}, {name}", up, "MB/s", goals[0], at_most=False, n=3, note="best of 3, to tmpfs"
        )
        yield Row(
            f"download {label}, {name}",
            down,
            "MB/s",
            goals[1],
            at_most=False,
            n=3,
            note="best of 3, from tmpfs",
        )
        yield Row(
            f"execd memory growth, {label}, {name}",
            peak(pid) - before,
            "MiB",
            8,
            note="peak over the transfers",
        )
        if sandbox is through:
            yield Row(
                f"gateway memory growth, {label}",
                peak(gateway) - gate,
                "MiB",
                16,
                note="peak over the transfers",
            )
    (folder / "file").unlink(missing_ok=True)


# -- lists and restarts ----------------------------------------------------------------------


def insert_records(home: Path, count: int) -> list[str]:
    """Put ended sandboxes on record, as a busy gateway would have."""
    moment = datetime.now(UTC) - timedelta(hours=1)

    async def work() -> list[str]:
        database = Database(home / "boxwright.db")
        store = SqliteStore(database)
        made = []
        for number in range(count):
            sandbox_id = str(uuid.uuid4())
            status = Status(State.TERMINATED, "CONTAINER_EXITED", "ended with exit code 0", moment)
            record = SandboxRecord(
                sandbox_id=sandbox_id,
                status=status,
                created_at=moment + timedelta(milliseconds=number),
                expires_at=None,
                image="python:3.12-slim",
                entrypoint=("tail", "-f", "/dev/null"),
                metadata={"team": f"t{number % 10}", "run": str(number)},
                extensions={},
                platform=None,
                token_salt="bench",
                address=None,
                managed_volumes=(),
            )
            await store.insert(record, LifeEvent(sandbox_id, moment, "ACCEPTED", "accepted"))
            made.append(sandbox_id)
        database.close()
        return made

    return asyncio.run(work())


def timed(count: int, call: Callable[[], object]) -> list[float]:
    for _ in range(20):
        call()
    out = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        out.append((time.perf_counter() - began) * 1000)
    return out


def lists(live: Live, *, quick: bool) -> Iterator[Row]:
    """A page of 20 and a get, with few records and with 5,000."""
    api = Api(live.domain, live.key)
    count = 100 if quick else 400
    insert_records(live.home, 50)
    few = statistics.median(timed(count, lambda: api.must("GET", "/sandboxes?pageSize=20")))
    made = insert_records(live.home, 950 if quick else 4950)
    total = api.must("GET", "/sandboxes?pageSize=1")["pagination"]["totalItems"]
    many = timed(count, lambda: api.must("GET", "/sandboxes?pageSize=20"))
    filtered = timed(count, lambda: api.must("GET", "/sandboxes?pageSize=20&metadata=team%3Dt3"))
    one = timed(count, lambda: api.must("GET", f"/sandboxes/{made[len(made) // 2]}"))
    yield Row(
        f"list of {total}, page of 20, p50",
        statistics.median(many),
        "ms",
        10,
        n=count,
        floor=few,
        note="floor: the same with 50 records",
    )
    yield Row(f"list of {total}, by metadata, p50", statistics.median(filtered), "ms", 10, n=count)
    yield Row(f"get among {total}, p50", statistics.median(one), "ms", 4, n=count)
    yield Row(f"get among {total}, p99", percentile(one, 0.99), "ms", n=count)


def restart(live: Live, image: str, *, quick: bool) -> Iterator[Row]:
    """kill -9 with records and live sandboxes on the books; how long until it serves again?"""
    alive = 10 if quick else 50
    api = Api(live.domain, live.key)
    total = api.must("GET", "/sandboxes?pageSize=1")["pagination"]["totalItems"]
    if total < 2000:
        insert_records(live.home, 2000 - total)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: Api(live.domain, live.key).create(image), range(alive)))
    port = int(live.domain.rpartition(":")[2])
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait(10)
    began = time.perf_counter()
    again = start(live.home, port, live.key)
    served = time.perf_counter() - began
    try:
        fresh = Api(again.domain, again.key)
        states = {fresh.must("GET", f"/sandboxes/{one}")["status"]["state"] for one in made}
        if states != {"Running"}:
            raise RuntimeError(f"after the restart the live sandboxes are {states}")
        note = "from exec of `boxwright up` to ready, after kill -9"
        yield Row(f"restart with ≥ 2000 records and {alive} live", served, "s", 2, n=1, note=note)
        for one in made:
            fresh.delete(one)
        settle(live)
    finally:
        stop(again)


def shared_folder() -> Path:
    """A folder on tmpfs that sandboxes of the bench may mount."""
    folder = Path("/dev/shm") / f"boxwright-bench-{os.getpid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    return folder


def drop_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
