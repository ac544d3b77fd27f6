"""Set up what the tests need: an engine, local images, the execd bundle, the npm client, a Redis server.

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
from images.bundle import apt
from images.bundle.errors import ToolMissing
from images.bundle.packages import have

RELEASES = {12: "bookworm", 13: "trixie"}
RELEASE_IMAGES = {f"debian{number}" for number in RELEASES}
# The server's own program by another name: the package redis-server would start a service at once.
REDIS = "redis-check-rdb"
ROOT = Path(__file__).resolve().parents[1]
JS = ROOT / "tests" / "e2e" / "js"
MCP_LOCK = ROOT / "tests" / "e2e" / "mcp" / "requirements.txt"
MCP_PACKAGES = Path(sys.prefix) / "mcp-server"


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


def mcp_server() -> None:
    """Give the MCP server the packages that its lock file pins apart from everybody else's."""
    stamp = MCP_PACKAGES / ".lock"
    if stamp.exists() and stamp.read_bytes() == MCP_LOCK.read_bytes():
        return
    say("installing what the MCP server has of its own")
    shutil.rmtree(MCP_PACKAGES, ignore_errors=True)
    words = ["uv", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", str(MCP_PACKAGES)]
    subprocess.run([sys.executable, "-m", *words, "-r", str(MCP_LOCK)], check=True)
    shutil.copyfile(MCP_LOCK, stamp)


def debian_image(number: int) -> str | None:
    """Name the image of a Debian release: this machine's own one where it is that; None where none can be made."""
    machine = apt.this_distribution()
    if machine.name != "debian":
        return None
    return local.reference("debian" if machine.codename == RELEASES[number] else f"debian{number}")


def redis_server() -> None:
    """Have the program of a Redis server, for the client-side pools' shared store, without its service."""
    if shutil.which(REDIS) is None:
        if not debian_root():
            raise SystemExit(
                "prepare: a Redis server is needed for the pools' tests (Debian/Ubuntu: apt-get install redis-tools)"
            )
        apt_install("redis-tools")


async def images() -> None:
    wanted = dict.fromkeys(filter(None, map(debian_image, RELEASES)))
    others = [name for name in local.NAMES if local.reference(name) in wanted or name not in RELEASE_IMAGES]
    engine = Engine(EngineSettings())
    try:
        await local.ensure(others, engine, say, 900.0)
    finally:
        await engine.close()


def main() -> None:
    began = time.monotonic()
    asyncio.run(ensure_engine(say, Path(tempfile.gettempdir()) / "boxwright-dockerd.log"))
    asyncio.run(images())
    made = bundle.build("frozen", source_root=ROOT, cache=bundle.default_cache(os.environ), report=say)
    say(f"bundle: {made.kind}, {made.size / 1e6:.1f} MB, {made.path}")
    npm_client()
    mcp_server()
    redis_server()
    registry()
    say(f"ready after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
