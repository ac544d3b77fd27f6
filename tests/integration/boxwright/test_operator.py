"""An operator's day: start behind the terminal, look, save, stop, put back, clean up; with the real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live import Live, free_port, sweep

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[3]
KEY = "a key for this test only"


@dataclass(frozen=True)
class Site:
    """A state folder and a port of its own, and the command line on them."""

    home: Path
    port: int

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("BOXWRIGHT_", "OPEN_SANDBOX_"))
        }
        done = subprocess.run(
            [sys.executable, "-m", "boxwright", *arguments],
            cwd=ROOT,
            env={
                **environment,
                "BOXWRIGHT_HOME": str(self.home),
                "BOXWRIGHT_PORT": str(self.port),
                "BOXWRIGHT_API_KEY": KEY,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "-o", "json", code=code).stdout)

    def create(self, **metadata: str) -> str:
        body = {
            "image": {"uri": "boxwright/debian:local"},
            "entrypoint": ["sh", "-c", "echo hello; echo there; exec tail -f /dev/null"],
            "resourceLimits": {},
            "timeout": 600,
            "metadata": metadata,
        }
        asked = urllib.request.Request(
            f"http://localhost:{self.port}/v1/sandboxes",
            json.dumps(body).encode(),
            {"OPEN-SANDBOX-API-KEY": KEY, "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return str(json.load(answer)["id"])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    home = tmp_path / "home"
    found = Site(home, free_port())
    try:
        yield found
    finally:
        found.run("down", "--all", "--force")
        if (home / "boxwright.db").exists():
            with subprocess.Popen(["true"]) as nobody:
                sweep(Live("", KEY, home, nobody, home / "up.log"))


def test_an_operators_day(site: Site, tmp_path: Path) -> None:
    """What runs can be listed, read, saved, stopped, put back and removed, and each answer is true."""
    assert site.json("status", code=1)["ready"] is None
    assert "up --detach" in site.run("ps", code=1).stderr

    started = site.json("up", "--detach")
    assert site.json("up", "--detach")["pid"] == started["pid"]  # twice is once
    assert KEY not in (site.home / "up.log").read_text()
    facts = site.json("status")
    assert (facts["ready"], facts["pid"], facts["sandboxes"]) == (True, started["pid"], {})

    first = site.create(team="search")
    assert site.run("ps", "-q", "--metadata", "team=search").stdout.split() == [first]
    assert site.run("ps", "-q", "--state", "failed").stdout == ""
    deadline = time.monotonic() + 20
    while site.run("logs", first[:8], "--tail", "1").stdout != "there\n":  # the entrypoint may take its time
        assert time.monotonic() < deadline
    assert site.json("events", first)[-1]["reason"] == "CONTAINER_RUNNING"

    file = tmp_path / "backup.tar"
    assert site.json("backup", str(file))["sandboxes"] == 1
    assert "boxwright down" in site.run("restore", str(file), "--yes", code=1).stderr

    later = site.create()
    stopped = site.run("down")
    assert "2 sandboxes keep running" in stopped.stderr
    assert site.json("down") == []
    assert "--yes" in site.run("restore", str(file), code=1).stderr
    site.run("restore", str(file), "--yes")

    site.run("up", "--detach")
    assert [one["id"] for one in site.json("ps")] == [first]
    assert site.run("logs", first, "--since", "1h").stdout == "hello\nthere\n"
    assert "no sandbox" in site.run("logs", later, code=1).stderr
    assert site.json("rm", "--all", "--yes") == [{"id": first, "removed": True, "problem": None}]
    assert site.run("ps", "-q").stdout == ""


def test_a_start_that_fails_says_why_and_leaves_nothing(site: Site) -> None:
    """The end of the log is shown, the status is 1, and no process stays behind."""
    site.home.mkdir(parents=True)
    (site.home / "secret.key").write_bytes(b"too short")
    (site.home / "secret.key").chmod(0o600)
    failed = site.run("up", "--detach", "--no-base-image", code=1)
    assert "does not hold 32 bytes" in failed.stderr
    assert site.json("down") == []
