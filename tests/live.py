"""A whole Boxwright, started as a person would start it, for e2e tests and the bench."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from specs.names import LABEL_INSTANCE
from tests.raw_engine import Engine

ROOT = Path(__file__).resolve().parents[1]
READY_DEADLINE = 90.0


@dataclass(frozen=True, slots=True)
class Live:
    """Where a running Boxwright answers."""

    domain: str  # host:port
    key: str
    home: Path
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.domain}/v1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(home: Path, port: int, key: str, extra: dict[str, str] | None = None) -> Live:
    """Start `boxwright up` and return when it is ready."""
    log = home / "up.log"
    environment = {
        **os.environ,
        "BOXWRIGHT_HOME": str(home),
        "BOXWRIGHT_PORT": str(port),
        "BOXWRIGHT_API_KEY": key,
        **(extra or {}),
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "boxwright", "up"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    live = Live(f"127.0.0.1:{port}", key, home, process, log)
    end = time.monotonic() + READY_DEADLINE
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://{live.domain}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return live
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    stop(live)
    raise RuntimeError(f"boxwright up did not become ready; its log ends:\n{log.read_text()[-4000:]}")


def stop(live: Live) -> None:
    """End it as Ctrl-C would, and hard if that does not help."""
    if live.process.poll() is None:
        live.process.send_signal(signal.SIGINT)
        try:
            live.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(live.process.pid, signal.SIGKILL)
            live.process.wait(10)


@contextmanager
def boxwright(extra: dict[str, str] | None = None) -> Iterator[Live]:
    """Run one for the length of a `with`; afterwards remove whatever sandboxes it left."""
    with tempfile.TemporaryDirectory(prefix="boxwright-") as folder:
        live = start(Path(folder), free_port(), "test-key-" + os.urandom(8).hex(), extra)
        try:
            yield live
        finally:
            try:
                if live.process.poll() is None:
                    remove_leftovers(live)
            finally:
                stop(live)
                sweep(live)


def sweep(live: Live) -> None:
    """Remove what a killed gateway could not: its state folder goes away, so nobody would come back for it."""
    with closing(Engine()) as engine:
        engine.remove_labelled(label(live))


def label(live: Live) -> str:
    """The label that every container of this Boxwright carries."""
    with closing(sqlite3.connect(live.home / "boxwright.db")) as store:
        (instance,) = store.execute("SELECT value FROM meta WHERE name = 'instance'").fetchone()
    return f"{LABEL_INSTANCE}={instance}"


def remove_leftovers(live: Live) -> None:
    """Delete every sandbox through the API, as a tidy client would."""
    headers = {"OPEN-SANDBOX-API-KEY": live.key}
    while True:
        asked = urllib.request.Request(f"{live.url}/sandboxes?pageSize=200", headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            items = json.load(answer)["items"]
        if not items:
            return
        for item in items:
            gone = urllib.request.Request(
                f"{live.url}/sandboxes/{item['id']}", headers=headers, method="DELETE"
            )
            try:
                urllib.request.urlopen(gone, timeout=60).close()
            except urllib.error.HTTPError as failure:
                if failure.code != 404:
                    raise
