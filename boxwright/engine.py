"""Make sure a container engine answers, installing and starting Debian's where we may.

Only `boxwright up`, `boxwright demo` and the test set-up come here. On a machine where we are
root on Debian or Ubuntu, `docker.io` is installed and `dockerd` started, and both are said.
Elsewhere one instruction is printed; nothing is guessed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from boxwright.bootstrap import apt_install, debian_root
from specs.errors import Unavailable

START_DEADLINE = 60.0  # seconds for dockerd to answer after it was started
PING_DEADLINE = 5.0

Report = Callable[[str], None]


class EngineMissing(Exception):
    """No engine answers and we cannot bring one up; the message says what to do."""


async def engine_answers() -> str | None:
    """Return the engine's version, or None when none answers."""
    from gateway.runtimes.docker.engine import Engine, EngineRefused, EngineSettings

    engine = Engine(EngineSettings(call_seconds=PING_DEADLINE))
    try:
        return (await engine.version()).engine
    except (Unavailable, EngineRefused):
        return None
    finally:
        await engine.close()


async def ensure_engine(report: Report, log: Path) -> str:
    """Return the version of an engine that answers, bringing one up if allowed.

    Args:
        report: told of every step in one sentence.
        log: where a dockerd that we start writes its log.

    Raises:
        EngineMissing: none answers and we may not (or could not) start one.
    """
    version = await engine_answers()
    if version is not None:
        return version
    if os.environ.get("DOCKER_HOST"):
        raise EngineMissing(
            f"DOCKER_HOST={os.environ['DOCKER_HOST']} does not answer. Start that engine, or unset DOCKER_HOST."
        )
    if shutil.which("dockerd") is None:
        if not debian_root():
            raise EngineMissing(
                "no Docker engine answers on this machine. Install and start one (Debian/Ubuntu: "
                "sudo apt-get install docker.io), make sure this user may use it (sudo usermod -aG docker $USER, "
                "then log in again), and try again."
            )
        apt_install("docker.io", "iptables")
    elif os.geteuid() != 0:
        raise EngineMissing(
            "a Docker engine is installed but does not answer this user. Start it (sudo systemctl start docker) "
            "and join its group (sudo usermod -aG docker $USER)."
        )
    start_engine(report, log)
    return await _wait(report, log)


def start_engine(report: Report, log: Path) -> None:
    """Start dockerd by systemd where systemd runs, otherwise as a process of its own."""
    if Path("/run/systemd/system").exists():
        report("starting the engine: systemctl start docker")
        subprocess.run(["systemctl", "start", "docker"], check=False)
        return
    report(f"starting the engine: dockerd (log: {log})")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )


async def _wait(report: Report, log: Path) -> str:
    end = time.monotonic() + START_DEADLINE
    while time.monotonic() < end:  # dockerd has no event for "ready" that a stranger can wait for
        version = await engine_answers()
        if version is not None:
            report(f"engine {version} answers")
            return version
        await asyncio.sleep(0.1)
    tail = log.read_text(errors="replace")[-1500:] if log.exists() else ""
    raise EngineMissing(f"dockerd did not answer within {START_DEADLINE:.0f} s. The end of its log:\n{tail}")
