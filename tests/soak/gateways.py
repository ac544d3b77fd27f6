"""Several gateway processes on one store, each of which can be killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from gateway.runtimes.docker.engine import Engine as TypedEngine
from gateway.runtimes.docker.engine import EngineSettings
from images.local import ensure, reference
from specs.names import HEADER_API_KEY, LABEL_ID, LABEL_INSTANCE
from tests.live import ROOT, free_port
from tests.raw_engine import Engine

KEY: Final = "a key for the soak only"
READY_SECONDS: Final = 60.0


@dataclass
class Gateways:
    """Processes that share one home.

    Attributes:
        extra: environment of every one of them.
    """

    home: Path
    count: int = 1
    extra: dict[str, str] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes] | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = [free_port() for _ in range(self.count)]
        self.processes = [None] * self.count

    def url(self, number: int = 0) -> str:
        return f"http://127.0.0.1:{self.ports[number]}/v1"

    @property
    def headers(self) -> dict[str, str]:
        return {HEADER_API_KEY: KEY}

    @property
    def log(self) -> Path:
        return self.home / "gateways.log"

    def start(self, number: int = 0, *, wait: bool = True) -> None:
        environment = {
            **os.environ,
            "BOXWRIGHT_HOME": str(self.home),
            "BOXWRIGHT_PORT": str(self.ports[number]),
            "BOXWRIGHT_API_KEY": KEY,
            **self.extra,
        }
        with self.log.open("ab") as out:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "gateway"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        if wait:
            self.wait(number)

    def wait(self, number: int = 0, path: str = "readyz") -> None:
        """Wait until a gateway answers; `health` is answered without an engine too."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            process = self.processes[number]
            if process is None or process.poll() is not None:
                break
            with contextlib.suppress(OSError, urllib.error.URLError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.ports[number]}/{path}", timeout=2).close()
                return
            time.sleep(0.02)
        raise RuntimeError(f"gateway {number} did not come up; the log ends:\n{self.log.read_text()[-4000:]}")

    def kill(self, number: int = 0) -> None:
        """End a gateway as the kernel would."""
        self._end(number, signal.SIGKILL)

    def stop(self, number: int = 0) -> None:
        """End a gateway as its supervisor would."""
        self._end(number, signal.SIGTERM)

    def _end(self, number: int, how: signal.Signals) -> None:
        process = self.processes[number]
        self.processes[number] = None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(30)

    @property
    def instance(self) -> str:
        with closing(sqlite3.connect(self.home / "boxwright.db")) as store:
            (found,) = store.execute("SELECT value FROM meta WHERE name = 'instance'").fetchone()
        return str(found)

    def rows(self, condition: str) -> list[tuple[Any, ...]]:
        """Read the store past the gateways."""
        with closing(sqlite3.connect(self.home / "boxwright.db")) as store:
            return store.execute(
                f"SELECT sandbox_id, state, reason, step, message FROM sandboxes WHERE {condition}"
            ).fetchall()

    def leftovers(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return what the engine has of this installation: workloads by phase, volumes by maker."""
        filters = quote(json.dumps({"label": [f"{LABEL_INSTANCE}={self.instance}"]}))
        with closing(Engine()) as engine:
            containers = json.loads(engine.call("GET", f"/containers/json?all=true&filters={filters}"))
            volumes = json.loads(engine.call("GET", f"/volumes?filters={filters}"))["Volumes"] or []
        return (
            {one["Labels"][LABEL_ID]: one["State"] for one in containers},
            {one["Name"]: one["Labels"][LABEL_ID] for one in volumes},
        )

    def sweep(self) -> None:
        """Remove what is left in the engine: the state folder goes away, so nobody would come back for it."""
        if not (self.home / "boxwright.db").exists():
            return
        with closing(Engine()) as engine:
            engine.remove_labelled(f"{LABEL_INSTANCE}={self.instance}")
            for name in self.leftovers()[1]:
                engine.call("DELETE", f"/volumes/{name}?force=true")


@contextmanager
def gateways(home: Path, count: int = 1, **extra: str) -> Iterator[Gateways]:
    """Start gateways on one home; at the end stop them and leave nothing in the engine."""
    made = Gateways(home, count, extra)
    try:
        for number in range(count):
            made.start(number, wait=False)
        for number in range(count):
            made.wait(number)
        yield made
    finally:
        for number in range(count):
            made.stop(number)
        made.sweep()


def image(name: str = "busybox") -> str:
    """Have a local image; return its reference."""

    async def make() -> None:
        engine = TypedEngine(EngineSettings())
        try:
            await ensure([name], engine, lambda _: None, deadline=300.0)
        finally:
            await engine.close()

    asyncio.run(make())
    return reference(name)
