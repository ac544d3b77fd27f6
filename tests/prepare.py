"""Set up what the tests need: an engine, local images, the execd bundle, the npm client.

`make test` runs it first. Each part is cached, so a second run takes seconds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from boxwright.bootstrap import apt_install, debian_root
from boxwright.engine import ensure_engine
from gateway.runtimes.docker.engine import Engine, EngineSettings
from images import bundle, local
from images.bundle.errors import ToolMissing
from images.bundle.packages import have

ROOT = Path(__file__).resolve().parents[1]
JS = ROOT / "tests" / "e2e" / "js"


def say(text: str) -> None:
    print(f"prepare: {text}", file=sys.stderr, flush=True)


def npm_client() -> None:
    """Install the npm client that the lock file pins, with Debian's node where none is there."""
    if shutil.which("npm") is None:
        if not debian_root():
            raise SystemExit(
                "prepare: npm is needed for the JavaScript client's tests (Debian/Ubuntu: apt-get install nodejs npm)"
            )
        apt_install("nodejs", "npm")
    lock, installed = JS / "package-lock.json", JS / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    say("installing the npm client")
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=JS, check=True)


def registry() -> None:
    """Have a real registry for the pull tests; on a machine that is not ours to change they say why they skip."""
    try:
        have("docker-registry", "docker-registry", say)
    except ToolMissing as error:
        say(str(error))


async def images() -> None:
    engine = Engine(EngineSettings())
    try:
        await local.ensure(("debian", "busybox", "static"), engine, say, 900.0)
    finally:
        await engine.close()


def main() -> None:
    began = time.monotonic()
    asyncio.run(ensure_engine(say, Path(tempfile.gettempdir()) / "boxwright-dockerd.log"))
    asyncio.run(images())
    made = bundle.build("frozen", source_root=ROOT, cache=bundle.default_cache(os.environ), report=say)
    say(f"bundle: {made.kind}, {made.size / 1e6:.1f} MB, {made.path}")
    npm_client()
    registry()
    say(f"ready after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
