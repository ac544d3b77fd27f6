"""What is measured, each beside its floor in the same run."""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.client import Api, Sandbox, command, concurrent, connect, exchange, sequential
from tests.bench.report import Row, percentile
from tests.raw_engine import Engine

COMPLETE = b'"execution_complete"'
MIB = 1 << 20


SPAWN = (
    "import os,time;t=[];e=dict(os.environ)\n"
    "for _ in range(300):\n"
    " b=time.perf_counter();os.waitpid(os.posix_spawn('/bin/bash',['bash','-c','true'],e),0);t.append(time.perf_counter()-b)\n"
    "print('floor',sorted(t)[150]*1000)"
)


def spawn_floor(sandbox: Sandbox) -> float:
    """What the kernel and the shell take for `bash -c true` inside the sandbox, without any daemon; ms."""
    with connect(sandbox) as link:
        body = json.dumps({"argv": ["python3", "-c", SPAWN]}).encode()
        got = exchange(link, sandbox.request("POST", "/command", body))
    found = re.search(rb"floor ([0-9.]+)", got)
    if found is None:
        raise RuntimeError(f"no floor in {got[-300:]!r}")
    return float(found.group(1))


def commands(sandbox: Sandbox, *, quick: bool) -> Iterator[Row]:
    """`POST /command` of `true`, warm, direct."""
    request = command(sandbox, "true")
    count = 300 if quick else 1000
    floor = spawn_floor(sandbox)
    times = [t * 1000 for t in sequential(sandbox, request, count, COMPLETE)]
    note = "floor: posix_spawn + wait of `bash -c true` inside the same sandbox"
    yield Row(
        "command true, sequential p50", statistics.median(times), "ms", 1.5, n=count, floor=floor, note=note
    )
    yield Row("command true, sequential p99", percentile(times, 0.99), "ms", 3.0, n=count)
    total = 2000 if quick else 6000
    spent, failures = concurrent(sandbox, request, 32, total, COMPLETE)
    yield Row("command true, 32 at once", total / spent, "/s", 1000, at_most=False, n=total)
    yield Row("command true, 32 at once, failures", failures, "", 0, n=total)


def plain_shell(api: Api, *, quick: bool) -> Iterator[Row]:
    """The same in an image whose shell is busybox: what is left when bash's own start is not paid."""
    made = api.create("boxwright/busybox:local")
    try:
        sandbox = api.endpoint(made)
        request, count = command(sandbox, "true"), 300 if quick else 1000
        times = [t * 1000 for t in sequential(sandbox, request, count, COMPLETE)]
        yield Row("command true, busybox sh, p50", statistics.median(times), "ms", n=count)
        spent, failures = concurrent(sandbox, request, 32, 4 * count, COMPLETE)
        note = f"{failures} failures"
        yield Row("command true, busybox sh, 32 at once", 4 * count / spent, "/s", n=4 * count, note=note)
    finally:
        api.delete(made)


def streams(sandbox: Sandbox, *, quick: bool) -> Iterator[Row]:
    """Standard output through the event stream, every byte compared."""
    for width, goal, size in ((80, 80, 96 if quick else 192), (65536, 300, 256 if quick else 512)):
        line = b"x" * (width - 1)
        each = 32 * MIB // width
        # One file, printed several times: the producer costs one process, so the stream is what is measured.
        prepare = f"l=$(head -c {width - 1} /dev/zero | tr '\\0' x); yes \"$l\" | head -n {each} > /tmp/lines; ls -l /tmp/lines"
        with connect(sandbox) as link:
            exchange(link, command(sandbox, prepare))
        times = size // 32
        count, make = each * times, "cat" + " /tmp/lines" * times
        best = 0.0
        room = bytearray(b"\1") * (
            size * MIB + count * 100 + 16 * MIB
        )  # touched: its pages fault before the clock runs
        for _ in range(3):
            spent, text = drain(sandbox, make, room)
            payload = event_lines(text)
            if len(payload) != count or any(one != line for one in set(payload)):
                raise RuntimeError(
                    f"stream of {width}-byte lines lost or changed bytes: {len(payload)} of {count} lines"
                )
            best = max(best, count * width / spent / 1e6)
        name = "80-byte lines" if width == 80 else "64 KiB lines"
        yield Row(
            f"stdout stream, {name}",
            best,
            "MB/s",
            goal,
            at_most=False,
            n=3,
            note=f"best of 3, {size} MiB, bytes compared",
        )


def drain(sandbox: Sandbox, text: str, room: bytearray) -> tuple[float, memoryview]:
    """Run a command and keep its whole answer in `room`; the clock runs from the first output to the last byte."""
    view, filled, began = memoryview(room), 0, 0.0
    with connect(sandbox) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
        link.sendall(command(sandbox, text))
        while True:
            got = link.recv_into(view[filled:], 4 * MIB)
            if not got:
                raise RuntimeError("the stream ended early")
            if not began and b'"stdout"' in room[filled : filled + min(got, 4096)]:
                began = time.perf_counter()
            filled += got
            if room[filled - 7 : filled] == b"\r\n0\r\n\r\n":
                return time.perf_counter() - began, view[:filled]


def event_lines(answer: memoryview) -> list[bytes]:
    """Undo chunking and return the text of every stdout event, in order."""
    data = bytes(answer)
    head = data.index(b"\r\n\r\n") + 4
    body, place = [], head
    while True:
        end = data.index(b"\r\n", place)
        size = int(data[place:end], 16)
        if size == 0:
            break
        body.append(data[end + 2 : end + 2 + size])
        place = end + 2 + size + 2
    out = []
    for raw in b"".join(body).split(b"\n\n"):
        if b'"stdout"' in raw[:40] or b'"stdout"' in raw[-60:]:
            found = re.search(rb'"text":"([^"\\]*)"', raw)
            if found is None:
                raise RuntimeError(f"unexpected event {raw[:200]!r}")
            out.append(found.group(1))
    return out


def start_up(engine: Engine, api: Api, sandbox_id: str, bundle: Path, *, quick: bool) -> Iterator[Row]:
    """From exec of the bundle inside a running container to the first HTTP reply."""
    pid, address = engine.pid(sandbox_id), engine.address(sandbox_id)
    manifest = json.loads((bundle / "bundle.json").read_text())
    argv = ["nsenter", "-t", str(pid), "-m", "-u", "-n", "-p", "--", *manifest["entrypoint"]]
    times = []
    for turn in range(10 if quick else 40):
        port = 21000 + turn
        began = time.perf_counter()
        process = subprocess.Popen(
            [*argv, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while True:
            try:
                with socket.create_connection((address, port), timeout=5) as link:
                    link.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    link.recv(1000)
                break
            except ConnectionRefusedError:
                time.sleep(0.0002)
        times.append((time.perf_counter() - began) * 1000)
        process.terminate()
        process.wait(10)
    yield Row(
        "execd start to first reply, p50",
        statistics.median(times),
        "ms",
        25,
        n=len(times),
        note="inside a container, nsenter's own start included",
    )


def memory(engine: Engine, api: Api, image: str, *, quick: bool) -> Iterator[Row]:
    """Proportional set size of execd with 50 sandboxes alive."""
    count = 10 if quick else 50
    made = []
    try:
        for _ in range(count):
            made.append(api.create(image))
        for one in made:
            sandbox = api.endpoint(one)
            with connect(sandbox) as link:
                exchange(link, command(sandbox, "true"))
        sizes = []
        for one in made:
            text = Path(f"/proc/{engine.pid(one)}/smaps_rollup").read_text()
            sizes.append(int(re.search(r"^Pss:\s+(\d+)", text, re.M).group(1)) / 1024)  # type: ignore[union-attr]
        yield Row(
            f"execd PSS, {count} sandboxes, median",
            statistics.median(sizes),
            "MiB",
            4,
            n=count,
            note="after one command each",
        )
    finally:
        for one in made:
            api.delete(one)


def cold(engine: Engine, api: Api, image: str, *, quick: bool) -> Iterator[Row]:
    """Create to first finished command over the API, beside the engine's create+start+wait, interleaved."""
    count = 10 if quick else 30
    ours, theirs = [], []
    for turn in range(count + 2):
        floor = engine.cycle(image)
        began = time.perf_counter()
        made = api.create(image)
        sandbox = api.endpoint(made)
        with connect(sandbox) as link:
            got = exchange(link, command(sandbox, "true"))
        spent = time.perf_counter() - began
        if COMPLETE not in got:
            raise RuntimeError(f"the first command failed: {got[-300:]!r}")
        api.delete(made)
        wait_gone(engine, made)
        if turn >= 2:
            ours.append(spent * 1000)
            theirs.append(floor * 1000)
    p50, floor50 = statistics.median(ours), statistics.median(theirs)
    yield Row("cold create to first command, p50", p50, "ms", n=count, floor=floor50)
    yield Row(
        "cold create, ratio of p50 to engine",
        p50 / floor50,
        "x",
        1.05,
        n=count,
        floor=1.0,
        note="engine: create+start+wait of true, same network",
    )
    yield Row(
        "cold create to first command, p99",
        percentile(ours, 0.99),
        "ms",
        n=count,
        floor=percentile(theirs, 0.99),
    )


def wait_gone(engine: Engine, sandbox_id: str) -> None:
    """Keep the removal of the last sandbox out of the next measurement."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        listed = json.loads(
            engine.call("GET", '/containers/json?all=true&filters={"name":["sandbox-' + sandbox_id + '"]}')
        )
        if not listed:
            return
        time.sleep(0.02)
    raise RuntimeError(f"container of {sandbox_id} is still there")


def sdk(domain: str, key: str, image: str, *, quick: bool) -> Iterator[Row]:
    """The same cold path through the public Python SDK, its own polling included."""
    from opensandbox import SandboxSync
    from opensandbox.config import ConnectionConfigSync

    os.environ["OPENSANDBOX_DISABLE_METRICS"] = "1"
    times = []
    for _ in range(5 if quick else 15):
        began = time.perf_counter()
        sandbox = SandboxSync.create(
            image, connection_config=ConnectionConfigSync(domain=domain, api_key=key)
        )
        sandbox.commands.run("true")
        times.append((time.perf_counter() - began) * 1000)
        sandbox.kill()
        sandbox.close()
    yield Row(
        "cold create to first command, Python SDK p50",
        statistics.median(times),
        "ms",
        n=len(times),
        note="information: the client's polling included",
    )
