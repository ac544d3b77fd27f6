"""`boxwright up --detach` and `boxwright down`: the gateway as a process behind the terminal."""

from __future__ import annotations

import functools
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from boxwright.access import NoKey, base_url, find_key
from boxwright.api import Api, ApiFailure, send_http
from boxwright.running import Record, end, running
from boxwright.terminal import ConfigFile, Format, Output, fail, print_json, say, settings_from
from gateway.config import Settings

LOG_FILE: Final = "up.log"
LOG_BYTES: Final = 20_000_000  # beyond it the log is turned over at the next start
TAIL_BYTES: Final = 2000
SPOKEN: Final = "boxwright: "  # how a line for people begins; the gateway's own log lines are JSON
READY_TURN: Final = 0.1
COUNT_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 15.0  # for ending, beyond what running requests get


class NotReady(Exception):
    """It does not serve; the message has the end of its log."""


def start(
    settings: Settings, arguments: Sequence[str], *, report: Callable[[str], None], seconds: float
) -> int:
    """
    Start `boxwright up` in a session of its own and return its process id when it serves.

    Raises:
        NotReady: it ended, or was not ready in time and was stopped.
    """
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = settings.home / LOG_FILE
    turn_over(log)
    # 0600: whatever a library prints some day, only the owner reads it.
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as target:
        position = target.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "boxwright", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=target,
            start_new_session=True,
            env={**os.environ, "BOXWRIGHT_HOME": str(settings.home)},
        )
    progress = Progress(log, position, report)
    try:
        wait_ready(process, settings, progress, seconds)
    except BaseException:  # also Ctrl-C: nothing half started stays behind
        stop(process)
        raise
    return process.pid


def wait_ready(
    process: subprocess.Popen[bytes], settings: Settings, progress: Progress, seconds: float
) -> None:
    """
    Return when the process that was started serves.

    Raises:
        NotReady
    """
    deadline = time.monotonic() + seconds
    port = settings.server.port
    while time.monotonic() < deadline:
        try:
            code = process.wait(READY_TURN)  # ends early when the process does
        except subprocess.TimeoutExpired:
            code = None
        progress.show()
        if code is not None:
            raise NotReady(
                f"it ended with status {code} before it served; its log {progress.log} ends:\n{progress.tail()}"
            )
        mine = [one for one in running(settings.home) if (one.pid, one.port) == (process.pid, port)]
        if mine and answers(mine[0]):
            progress.show()
            return
    raise NotReady(
        f"it was not ready within {seconds:g} s and was stopped (--wait gives it longer); its log {progress.log} "
        f"ends:\n{progress.tail()}"
    )


def answers(record: Record) -> bool:
    """Say whether a gateway is ready to work."""
    try:
        return send_http("GET", f"http://{record.domain}/readyz", {}, 2.0).status == 200
    except (OSError, http.client.HTTPException):
        return False


class Progress:
    """Passes on what a process says to people in its log."""

    def __init__(self, log: Path, position: int, report: Callable[[str], None]) -> None:
        self.log = log
        self._position = position
        self._report = report

    def show(self) -> None:
        with self.log.open("rb") as file:
            file.seek(self._position)
            news = file.read()
        whole = news.rpartition(b"\n")[0]
        self._position += len(whole) + 1 if whole else 0
        for line in whole.decode("utf-8", "replace").splitlines():
            if line.startswith(SPOKEN):
                self._report(line.removeprefix(SPOKEN))

    def tail(self) -> str:
        return self.log.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace").strip()


def turn_over(log: Path) -> None:
    """Keep one older log when this one has grown large."""
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def down(
    force: Annotated[
        bool, typer.Option("--force", help="Kill it at once; what it was doing is finished by the next `up`.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Every gateway of this state folder.")] = False,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Stop the gateway that runs from this state folder. Sandboxes keep running.

    Running requests get a moment ([server] timeout_graceful_shutdown). Ends with 0 also when none ran.
    """
    settings = settings_from(config)
    found = chosen(running(settings.home), settings.server.port, every=every)
    stopped: list[dict[str, Any]] = []
    for record in found:
        count = count_sandboxes(record, settings.home)
        say(f"stopping process {record.pid} on port {record.port}")
        if not end(record, force=force, seconds=settings.server.timeout_graceful_shutdown + GRACE_SECONDS):
            fail(f"process {record.pid} has not ended in time; `boxwright down --force` kills it")
        stopped.append({"pid": record.pid, "port": record.port, "sandboxes": count})
        left = "sandboxes" if count is None else f"{count} sandbox{'' if count == 1 else 'es'}"
        say(f"stopped; {left} keep running and are found again by the next `boxwright up`")
    running(settings.home)  # a killed process left its record behind
    if output is Format.JSON:
        print_json(stopped)
    elif not found:
        say(f"no gateway runs from {settings.home}")


def chosen(found: Sequence[Record], port: int, *, every: bool) -> Sequence[Record]:
    """Return which gateways are meant: all, the only one, or the one on the configured port."""
    if every or len(found) <= 1:
        return found
    here = [one for one in found if one.port == port]
    if not here:
        ports = ", ".join(str(one.port) for one in found)
        fail(f"several gateways run, on ports {ports}: choose one with BOXWRIGHT_PORT, or say --all")
    return here


def count_sandboxes(record: Record, home: Path) -> int | None:
    """Ask how many sandboxes there are; None when the gateway does not say."""
    base = base_url(record.domain)
    try:
        api = Api(base, find_key(base, home, os.environ), functools.partial(send_http, seconds=COUNT_SECONDS))
        return int(api.json("/v1/sandboxes", [("pageSize", "1")])["pagination"]["totalItems"])
    except (ApiFailure, NoKey):
        return None
