"""`osb` where things go wrong, and where it watches: hard cases R170 and R172."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.site import BUSYBOX, MARKS, Client, Site

pytestmark = MARKS

OSB = Path(sys.executable).with_name("osb")


@asynccontextmanager
async def osb(site: Site, home: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start one call; it does not outlive the test."""
    process = await asyncio.create_subprocess_exec(
        *(str(OSB), "--no-color", *arguments),
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "COLUMNS": "200",
            "OPEN_SANDBOX_DOMAIN": site.live.domain,
            "OPEN_SANDBOX_API_KEY": site.live.key,
            "PYTHONUNBUFFERED": "1",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("flags", [(), ("--use-server-proxy",)], ids=["direct", "server-proxy"])
async def test_stream_that_ends_early_is_no_success(
    site: Site, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """A command whose sandbox is deleted under it ends with a status that is not 0, and says why (R170)."""
    client = Client(site, "async", "direct")
    try:
        sandbox = await client.create(BUSYBOX)
        words = (*flags, "command", "run", sandbox.id, "--", "sh", "-c", "echo started; exec sleep 300")
        async with osb(site, tmp_path, *words) as process:
            assert process.stdout is not None
            assert await process.stdout.readexactly(7) == b"started"  # its line end comes with what follows
            await sandbox.kill()
            out, err = await process.communicate()
        assert process.returncode not in {0, None}, (out, err)
        assert err.strip()
    finally:
        await client.close()


async def test_watched_metrics_come_and_end_at_an_interrupt(site: Site, tmp_path: Path) -> None:
    """`metrics --watch` understands every record of the stream, and Ctrl-C ends it (R172)."""
    client = Client(site, "async", "direct")
    try:
        sandbox = await client.create(BUSYBOX)
        async with osb(site, tmp_path, "sandbox", "metrics", sandbox.id, "--watch", "-o", "raw") as process:
            assert process.stdout is not None
            seen = [await process.stdout.readline() for _ in range(2)]
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        assert all(b"cpu" in line.lower() and b"mem" in line.lower() for line in seen), seen
        assert b"Traceback" not in err
    finally:
        await client.close()
