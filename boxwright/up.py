"""`boxwright up`: everything in one process on this machine's engine, in the foreground or behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import signal
import socket
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.rule import Rule

from boxwright import __version__
from boxwright.access import FIRST_KEY_FILE
from boxwright.background import NotReady, start
from boxwright.demo_command import base_image, log_of_dockerd
from boxwright.engine import EngineMissing, ensure_engine
from boxwright.running import StillRunning, local_domain, myself, recorded, running
from boxwright.terminal import ConfigFile, Format, Output, err, fail, print_json, say, settings_from
from gateway.config import Settings
from specs.errors import BoxwrightError

KEY_BYTES = 24
READY_SECONDS = 900  # a first start builds a bundle and an image


def up(
    config: ConfigFile = None,
    base: Annotated[
        bool,
        typer.Option(
            "--base-image/--no-base-image", help="Build boxwright/debian:local, the image the examples use."
        ),
    ] = True,
    detach: Annotated[
        bool, typer.Option("--detach", "-D", help="Return when it serves; it goes on in the background.")
    ] = False,
    wait: Annotated[
        int, typer.Option("--wait", min=1, help="With --detach: seconds it may take until it serves.")
    ] = READY_SECONDS,
    greeting: Annotated[
        bool,
        typer.Option(
            "--greeting/--no-greeting", help="Print URL and key; off where output is kept as a log."
        ),
    ] = True,
    output: Output = Format.TABLE,
) -> None:
    """Make sure of an engine, have execd's bundle and a base image, then serve.

    Prints the URL, the API key and a first command. State lives in BOXWRIGHT_HOME; the port is
    BOXWRIGHT_PORT (8080), the first key BOXWRIGHT_API_KEY (else one is made and kept in the home).
    Ctrl-C or `boxwright down` ends it; sandboxes keep running and are found again by the next `up`.
    """
    settings = settings_from(config)
    if detach:
        behind(settings, config, base=base, seconds=wait, output=output)
        return
    if output is Format.JSON:
        fail("-o json goes with --detach: in the foreground `up` does not end")
    signal.signal(signal.SIGTERM, leave)
    foreground(settings, base=base, greeting=greeting)


def leave(number: int, frame: object) -> NoReturn:
    """End in good order: whoever asks for the end with SIGTERM wants cleaning up and status 0."""
    del number, frame
    raise SystemExit(0)


def foreground(settings: Settings, *, base: bool, greeting: bool) -> None:
    """Prepare, greet, serve until a signal."""
    from gateway.__main__ import KINDS, configure_logs, prepare, serve
    from gateway.config import BadSetting
    from gateway.sandboxes.model import BundleMount
    from gateway.stores.database import StoreTooNew
    from gateway.stores.installation import SecretDamaged
    from images import bundle

    began = time.monotonic()
    try:
        check_port(settings.server.host, settings.server.port)
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        me = myself(
            settings.server.host,
            settings.server.port,
            __version__,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        with recorded(settings.home, me):
            version = asyncio.run(ensure_engine(say, log_of_dockerd(settings.home)))
            say(f"engine: Docker {version}")
            made = bundle.quickest(
                source_root=bundle.own_source_root(),
                cache=bundle.default_cache(os.environ),
                report=say,
                kind=KINDS[settings.gateway.bundle],
            )
            say(f"execd: {made.kind} bundle, {made.size / 1e6:.1f} MB, python {made.python}")
            image = have_base_image(settings) if base else None
            settings, key = with_key(settings)
            configure_logs(settings)
            app = prepare(settings, BundleMount(str(made.path), made.entrypoint))
            say(f"ready to serve after {time.monotonic() - began:.1f} s")
            if greeting:
                greet(settings, key, image)
            serve(settings, app)
    except sqlite3.Error as error:
        fail(f"{settings.database} cannot be used ({error}); restore a backup: `boxwright restore FILE`")
    except OSError as error:
        fail(f"{error}. `boxwright doctor` looks for what is wrong with this machine.")
    except (EngineMissing, BadSetting, StillRunning, StoreTooNew, SecretDamaged, BoxwrightError) as error:
        fail(str(error))


def behind(settings: Settings, config: Path | None, *, base: bool, seconds: int, output: Format) -> None:
    """Start `up` as a process of its own, show its progress, return when it serves."""
    port = settings.server.port
    already = next((one for one in running(settings.home) if one.port == port), None)
    if already is not None:
        say(f"already up: process {already.pid} since {already.started}")
        process = already.pid
    else:
        check_port(settings.server.host, port)
        arguments = ["--no-greeting", *([] if base else ["--no-base-image"])]
        if config is not None:
            arguments += ["--config", str(config.resolve())]
        try:
            process = start(settings, arguments, report=say, seconds=seconds)
        except (NotReady, OSError) as error:
            fail(str(error))
    kept = settings.home / FIRST_KEY_FILE
    key = settings.server.api_key or (kept.read_text().strip() if kept.exists() else None)
    if output is Format.JSON:
        domain = local_domain(settings.server.host, port)
        print_json(
            {
                "pid": process,
                "url": f"http://{domain}/v1",
                "home": str(settings.home),
                "log": str(settings.home / "up.log"),
                "apiKeyFile": str(kept) if kept.exists() else None,
            }
        )
        return
    greet(settings, key, None)
    say("it goes on in the background; `boxwright status` shows how it does, `boxwright down` ends it")


def check_port(host: str, port: int) -> None:
    """Refuse early, with the fix, when somebody else listens."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            fail(
                f"cannot listen on {host}:{port} ({error.strerror}). Is another Boxwright running? "
                "`boxwright status` says so; choose another port with BOXWRIGHT_PORT."
            )


def have_base_image(settings: Settings) -> str | None:
    """Return the local base image; a machine that cannot build one serves all the same, and says so."""
    try:
        return asyncio.run(base_image(settings))
    except (BoxwrightError, TimeoutError) as error:
        say(f"warning: no local base image: {error}. Sandboxes from other images work all the same.")
        return None


def with_key(settings: Settings) -> tuple[Settings, str | None]:
    """Return settings with a first key: the operator's own, the one kept in the home, or a new one.

    The key comes back only when it is ours to show.
    """
    if settings.server.api_key is not None:
        return settings, settings.server.api_key
    kept = settings.home / FIRST_KEY_FILE
    if kept.exists():
        key = kept.read_text().strip()
    else:
        key = f"bx-{secrets.token_urlsafe(KEY_BYTES)}"
        keep(kept, key)
    return dataclasses.replace(settings, server=dataclasses.replace(settings.server, api_key=key)), key


def keep(path: Path, key: str) -> None:
    """Write the key so that only its owner can read it, whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(f"{key}\n")
    draft.replace(path)


def greet(settings: Settings, key: str | None, image: str | None) -> None:
    """Print where it is, the key, and one command to copy."""
    domain = local_domain(settings.server.host, settings.server.port)
    shown = key or "<one that `boxwright keys create` made>"
    lines = [
        f"URL      http://{domain}/v1   (documents: http://{domain}/docs)",
        f"API key  {shown}",
        f"State    {settings.home}",
        "",
        "Try it in another terminal:",
        f"  export OPEN_SANDBOX_DOMAIN={domain} OPEN_SANDBOX_API_KEY={shown}",
        *([f"  export BOXWRIGHT_HOME={settings.home}"] if os.environ.get("BOXWRIGHT_HOME") else []),
        f"  .venv/bin/boxwright demo{f' --image {image}' if image else ''}",
    ]
    err.print(Rule("Boxwright is up", style="green"))
    # No box around them: lines that are meant to be copied must stay whole in a narrow terminal.
    err.print("\n".join(lines), soft_wrap=True, markup=False)
    err.print(Rule(style="green"))
