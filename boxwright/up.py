"""`boxwright up`: everything in one process on this machine's engine, in the foreground."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import socket
import time
from pathlib import Path

import typer
from rich.rule import Rule

from boxwright.demo import FIRST_KEY_FILE
from boxwright.demo_command import base_image, log_of_dockerd
from boxwright.engine import EngineMissing, ensure_engine
from boxwright.terminal import ConfigFile, err, fail, say, settings_from
from gateway.__main__ import KINDS, configure_logs, prepare, serve
from gateway.config import BadSetting, Settings
from gateway.sandboxes.model import BundleMount
from gateway.stores.database import StoreTooNew
from gateway.stores.installation import SecretDamaged
from images import bundle
from specs.errors import BoxwrightError

KEY_BYTES = 24


def up(
    config: ConfigFile = None,
    base: bool = typer.Option(
        True, "--base-image/--no-base-image", help="Build boxwright/debian:local, the image the examples use."
    ),
) -> None:
    """Make sure of an engine, have execd's bundle and a base image, then serve in the foreground.

    Prints the URL, the API key and a first command. State lives in BOXWRIGHT_HOME; the port is
    BOXWRIGHT_PORT (8080), the first key BOXWRIGHT_API_KEY (else one is made and kept in the home).
    Ctrl-C ends it; sandboxes keep running and are found again by the next `up`.
    """
    began = time.monotonic()
    settings = settings_from(config)
    try:
        check_port(settings.server.host, settings.server.port)
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
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
    except (EngineMissing, BadSetting, StoreTooNew, SecretDamaged, BoxwrightError, OSError) as error:
        fail(str(error))
    say(f"ready to serve after {time.monotonic() - began:.1f} s")
    greet(settings, key, image)
    serve(settings, app)


def check_port(host: str, port: int) -> None:
    """Refuse early, with the fix, when somebody else listens."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            fail(
                f"cannot listen on {host}:{port} ({error.strerror}). Is another Boxwright running? "
                "Choose another port with BOXWRIGHT_PORT."
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
    host = settings.server.host
    shown = "localhost" if host in {"0.0.0.0", "127.0.0.1", "::"} else host
    domain = f"{shown}:{settings.server.port}"
    lines = [
        f"URL      http://{domain}/v1   (documents: http://{domain}/docs)",
        f"API key  {key}",
        f"State    {settings.home}",
        "",
        "Try it in another terminal:",
        f"  export OPEN_SANDBOX_DOMAIN={domain} OPEN_SANDBOX_API_KEY={key}",
        f"  .venv/bin/boxwright demo{f' --image {image}' if image else ''}",
    ]
    err.print(Rule("Boxwright is up", style="green"))
    # No box around them: lines that are meant to be copied must stay whole in a narrow terminal.
    err.print("\n".join(lines), soft_wrap=True, markup=False)
    err.print(Rule(style="green"))
