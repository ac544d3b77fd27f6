"""`boxwright doctor`: is this machine able to run sandboxes, and if not, what mends it?"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from boxwright.access import FIRST_KEY_FILE
from boxwright.demo_command import log_of_dockerd
from boxwright.engine import EngineMissing, ensure_engine
from boxwright.terminal import ConfigFile, Format, Output, out, print_json, say, settings_from
from gateway.config import Settings
from gateway.stores.installation import FILE as SECRET_FILE
from specs.errors import BoxwrightError

if TYPE_CHECKING:  # the engine's client takes long to import, and `--help` does not need it
    from gateway.runtimes.docker.probe import Check, Level

MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]fail[/]"}
SAMPLE_PORTS = 200
LEAST_FREE_SHARE = 0.5


def doctor(
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Mend what is safe to mend and say each thing done: the engine (as root on Debian/Ubuntu), "
            "the state folder, the mode of its secrets.",
        ),
    ] = False,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Check engine, runtimes, kernel, disk, ports, clock and state folder; each line says ok, warn or fail, and the fix.

    Ends with 1 when a check failed; a warning alone ends with 0. No kernel module is loaded and no setting of the
    engine is changed, with --fix neither.
    """
    settings = settings_from(config)
    checks = look(settings)
    if fix:
        done = mend(settings, checks, say)
        checks = look(settings) if done else checks
    if output is Format.JSON:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        columns = (Column(title, overflow="fold") for title in ("", "check", "what was found", "fix"))
        table = Table(*columns, box=None, padding=(0, 2, 0, 0))
        for check in checks:
            table.add_row(MARKS[check.level], *map(escape, (check.name, check.text, check.fix)))
        out.print(table)
    if any(check.level == "fail" for check in checks):
        raise typer.Exit(1)


def look(settings: Settings) -> list[Check]:
    """Make every check."""
    return [*asyncio.run(engine_checks(settings)), *host_checks(settings)]


def mend(
    settings: Settings,
    checks: Sequence[Check],
    report: Callable[[str], None],
    start_engine: Callable[[], str] | None = None,
) -> bool:
    """
    Mend what failed and is safe to mend; say what is done, and whether anything was.

    Args:
        settings: in force.
        checks: what was found.
        report: told of each thing in a sentence.
        start_engine: brings an engine up or raises `EngineMissing`; a test brings its own.
    """
    done = False
    failed = {check.name for check in checks if check.level == "fail"}
    home = settings.home
    if "engine" in failed:
        try:
            (start_engine or (lambda: asyncio.run(ensure_engine(report, log_of_dockerd(home)))))()
            done = True
        except EngineMissing as error:
            report(f"the engine is for you to mend: {error}")
    if not home.exists() and "state folder" not in failed:
        report(f"making the state folder {home}")
        home.mkdir(parents=True, mode=0o700)
        done = True
    for path in open_to_others(home):
        report(f"taking {path} out of others' reach (mode 0{mode_for(path):o})")
        path.chmod(mode_for(path))
        done = True
    if not done:
        report("there is nothing to mend here that --fix may mend")
    return done


def open_to_others(home: Path) -> list[Path]:
    """Return what of the state others may read although it is ours and they must not."""
    secrets = (home, home / SECRET_FILE, home / FIRST_KEY_FILE)
    return [
        path
        for path in secrets
        if path.exists() and path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid()
    ]


def mode_for(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


async def engine_checks(settings: Settings) -> list[Check]:
    """Ask the engine about itself and really run a container with the configured runtime."""
    from gateway.runtimes.docker.engine import Engine, EngineSettings
    from gateway.runtimes.docker.probe import Check, check_runtime, engine_facts

    engine = Engine(EngineSettings(call_seconds=10.0))
    try:
        facts = await engine_facts(engine)
        runtime = await check_runtime(engine, settings.engine_runtime, report=say)
    except BoxwrightError as error:
        fix = "`boxwright doctor --fix` as root on Debian/Ubuntu installs and starts one; else: apt-get install docker.io"
        return [Check("engine", "fail", error.message, fix)]
    finally:
        await engine.close()
    return [*facts, runtime]


def host_checks(settings: Settings) -> Iterator[Check]:
    """Look at what does not depend on the engine."""
    from gateway.runtimes.docker.probe import Check

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
    from gateway.runtimes.docker.probe import Check

    home = settings.home
    place = home
    while not place.exists():
        place = place.parent
    opened = open_to_others(home)
    if opened:
        # What is in the folder is closed to others by itself, so an open folder alone is no danger yet.
        level: Level = "warn" if opened == [home] else "fail"
        text = f"others may read {', '.join(map(str, opened))}"
        return Check("state folder", level, text, "`boxwright doctor --fix`, or chmod go= on each")
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
    from gateway.runtimes.docker.probe import Check

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
    from gateway.runtimes.docker.probe import Check

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
    from gateway.runtimes.docker.probe import Check
    from images import bundle

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
