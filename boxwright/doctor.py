"""`boxwright doctor`: is this machine able to run sandboxes, and if not, what mends it?"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import sys
from collections.abc import Iterator

import typer
from rich.table import Table

from boxwright.terminal import ConfigFile, Format, Output, out, print_json, say, settings_from
from gateway.config import Settings
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.probe import Check, check_runtime, engine_facts
from images import bundle
from specs.errors import BoxwrightError

MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]fail[/]"}
SAMPLE_PORTS = 200
LEAST_FREE_SHARE = 0.5


def doctor(config: ConfigFile = None, output: Output = Format.TABLE) -> None:
    """Check engine, runtimes, kernel, disk, ports, clock and state folder; each line says ok, warn or fail, and the fix.

    Ends with 1 when a check failed; a warning alone ends with 0.
    """
    settings = settings_from(config)
    checks = [*asyncio.run(engine_checks(settings)), *host_checks(settings)]
    if output is Format.JSON:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        table = Table("", "check", "what was found", "fix", box=None, padding=(0, 2, 0, 0))
        for check in checks:
            table.add_row(MARKS[check.level], check.name, check.text, check.fix)
        out.print(table)
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(1)


async def engine_checks(settings: Settings) -> list[Check]:
    """Ask the engine about itself and really run a container with the configured runtime."""
    engine = Engine(EngineSettings(call_seconds=10.0))
    try:
        facts = await engine_facts(engine)
        runtime = await check_runtime(engine, settings.engine_runtime, report=say)
    except BoxwrightError as error:
        fix = "`boxwright up` as root on Debian/Ubuntu installs and starts one; else: sudo apt-get install docker.io"
        return [Check("engine", "fail", error.message, fix)]
    finally:
        await engine.close()
    return [*facts, runtime]


def host_checks(settings: Settings) -> Iterator[Check]:
    """Look at what does not depend on the engine."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", "ok" if sys.version_info >= (3, 11) else "fail", version, "")
    yield home_check(settings)
    yield listen_check(settings.server.host, settings.server.port)
    yield range_check(
        settings.docker.publish_host, settings.docker.port_range_min, settings.docker.port_range_max
    )
    yield bundle_check()


def home_check(settings: Settings) -> Check:
    """The state folder exists or can be made, and is ours to write."""
    home = settings.home
    place = home
    while not place.exists():
        place = place.parent
    if os.access(place, os.W_OK):
        return Check("state folder", "ok", f"{home}{'' if home.exists() else ' (made at the first start)'}")
    return Check(
        "state folder",
        "fail",
        f"{home} cannot be written",
        "choose another with BOXWRIGHT_HOME, or run as its owner",
    )


def listen_check(host: str, port: int) -> Check:
    """The API's port is free (a running Boxwright holds it, which is no fault)."""
    name = f"port {port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return Check(
                name,
                "warn",
                f"not free on {host}: {error.strerror}",
                "another Boxwright? else choose one with BOXWRIGHT_PORT",
            )
    return Check(name, "ok", f"free on {host}")


def range_check(host: str, low: int, high: int) -> Check:
    """Enough of the sandboxes' port range is free; a sample is tried."""
    step = max(1, (high - low + 1) // SAMPLE_PORTS)
    tried = list(range(low, high + 1, step))
    free = sum(_is_free(host, port) for port in tried)
    text = f"{low}-{high} on {host}, {100 * free // len(tried)} % of a sample of {len(tried)} free"
    if free < LEAST_FREE_SHARE * len(tried):
        return Check("port range", "warn", text, "choose another: [docker] port_range_min, port_range_max")
    return Check("port range", "ok", text)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def bundle_check() -> Check:
    """The sources that execd's bundle is made of are whole."""
    try:
        root = bundle.own_source_root()
        digest = bundle.source_digest(root)
    except BoxwrightError as error:
        return Check("execd bundle", "fail", error.message, "restore the folder from Git")
    return Check(
        "execd bundle",
        "ok",
        f"sources {digest[:19]}…; `boxwright up` builds or takes it from {bundle.default_cache(os.environ)}",
    )
