"""The npm client, unmodified, in node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.e2e.site import DEBIAN, MARKS, Route, Site

pytestmark = [
    *MARKS,
    pytest.mark.skipif(
        shutil.which("node") is None, reason="node is not installed, so the npm client cannot run"
    ),
]

JS = Path(__file__).parent / "js"


async def test_npm_client_does_the_main_job(site: Site, route: Route) -> None:
    """Create, run, files, sessions, list, pause, resume and kill work from JavaScript."""
    process = await asyncio.create_subprocess_exec(
        *("node", "client.mjs", DEBIAN, route),
        cwd=JS,
        env={**os.environ, "OPEN_SANDBOX_DOMAIN": site.live.domain, "OPEN_SANDBOX_API_KEY": site.live.key},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    seen = json.loads(out)
    assert seen["info"]["state"] == "Running"
    assert seen["info"]["expires"] is True
    assert seen["healthy"] is True
    assert seen["memory"] == pytest.approx(256)
    assert seen["run"] == {
        "stdout": ["hello agent", "\n"],
        "stderr": ["bad"],
        "exitCode": 0,
        "events": ["init", "complete"],
    }
    assert seen["failed"] == {"exitCode": 7, "name": "CommandExecError"}
    assert seen["options"] == ["/var $HOME"]
    assert (seen["logs"], seen["running"]) == ("one\n", False)
    assert seen["session"] == ["kept /tmp"]
    assert seen["bytes"] is True
    assert (seen["text"], seen["stream"], seen["window"]) == ("blue\nand blue\n", "in pieces", "and blue")
    assert seen["file"] == {"mode": 640, "size": 14, "type": "file"}
    assert seen["found"] == ["b/moved", "bytes", "text é%20.txt"]
    assert (seen["missing"]["status"], seen["missing"]["code"]) == (404, "FILE_NOT_FOUND")
    assert seen["patched"]["extra"] == "1"
    assert seen["listed"] == {"mine": [True], "total": 1}
    assert seen["paused"] == "Paused"
    assert (seen["pausedTwice"]["status"], seen["pausedTwice"]["code"]) == (
        409,
        "DOCKER::SANDBOX_NOT_RUNNING",
    )
    assert seen["resumed"] == ["again"]
    assert ("/v1/sandboxes/" in seen["endpoint"]) is (route == "server-proxy")
    assert (seen["killed"]["status"], seen["killed"]["code"]) == (404, "DOCKER::SANDBOX_NOT_FOUND")
