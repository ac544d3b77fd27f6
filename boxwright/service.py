"""`boxwright service`: a hardened systemd unit that runs the gateway, printed or installed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from boxwright.terminal import ConfigFile, examples, fail, say, settings_from

UNIT: Final = Path("/etc/systemd/system/boxwright.service")
ENVIRONMENT: Final = "/etc/boxwright/environment"
CACHE: Final = "/var/cache"
VOLUMES: Final = "/var/lib/docker/volumes"
SYSTEMD_RUNS: Final = Path("/run/systemd/system")
OWN_SUBPATHS: Final = (1, 45)  # from this engine API on, subpaths of volumes need no mounts of ours

app = typer.Typer(
    help="Run the gateway as a systemd service: print the unit, or install it.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """What a unit depends on.

    Attributes:
        mounts: the engine is old enough to need mounts made by the gateway, which it must be able to see.
        writable: folders beside the state folder that may be mounted into sandboxes and may have to be made.
    """

    program: str
    home: str
    config: str | None = None
    engine: str | None = None  # DOCKER_HOST
    mounts: bool = False
    writable: tuple[str, ...] = ()
    grace_seconds: int = 5


@app.command(
    "print",
    epilog=examples(
        "boxwright service print > boxwright.service   # look at it, change it, install it yourself"
    ),
)
def print_(config: ConfigFile = None) -> None:
    """Print the unit for this machine, its engine and the settings in force."""
    typer.echo(unit(facts(config)), nl=False)


@app.command(
    epilog=examples(
        "sudo boxwright service install --now          # runs, and starts with the machine",
        "sudo systemctl status boxwright               # how it does; journalctl -u boxwright: its log",
        "sudo boxwright down; sudo systemctl start boxwright   # stops; starts again",
    )
)
def install(
    now: Annotated[bool, typer.Option("--now", help="Also start it, and at every boot.")] = False,
    config: ConfigFile = None,
) -> None:
    """Write the unit and have systemd read it; --now starts it too. Needs root. Doing it again updates the unit.

    Settings come from --config and from /etc/boxwright/environment (lines such as BOXWRIGHT_PORT=8080).
    """
    if not SYSTEMD_RUNS.exists():
        fail("systemd does not run this machine; `boxwright up --detach` runs the gateway in the background")
    if os.geteuid() != 0:
        fail("a service is installed by root: sudo boxwright service install")
    put(UNIT, unit(facts(config)))
    run(["systemctl", "daemon-reload"])
    if now:
        run(["systemctl", "enable", "boxwright.service"])
        run(["systemctl", "restart", "boxwright.service"])
        say(
            "the service is started; `boxwright status` says when it is ready (a first start builds the bundle)"
        )
    else:
        say("start it, also at every boot: systemctl enable --now boxwright")


def put(path: Path, text: str) -> None:
    """Write the unit, saying whether that changes anything."""
    if path.exists() and path.read_text() == text:
        say(f"{path} is up to date")
        return
    draft = path.with_suffix(".new")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}")
    say(f"wrote {path}")


def run(command: Sequence[str]) -> None:
    say(" ".join(command))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fail(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")


def facts(config: Path | None) -> UnitFacts:
    """Find out what the unit depends on, or end with what is missing."""
    settings = settings_from(config)
    return UnitFacts(
        program=str(Path(sys.executable).parent / "boxwright"),
        home=str(settings.home),
        config=None if config is None else str(config.resolve()),
        engine=os.environ.get("DOCKER_HOST"),
        mounts=asyncio.run(engine_api()) < OWN_SUBPATHS,
        writable=settings.storage.allowed_host_paths,
        grace_seconds=settings.server.timeout_graceful_shutdown,
    )


async def engine_api() -> tuple[int, int]:
    """Return the engine's API version; without an engine the unit could not be right."""
    from gateway.runtimes.docker.engine import Engine, EngineSettings
    from specs.errors import BoxwrightError

    engine = Engine(EngineSettings(call_seconds=10.0))
    try:
        major, minor = (await engine.version()).api
        return major, minor
    except BoxwrightError as error:
        fail(
            f"the unit depends on the engine's version, and none answers: {error.message}. Try `boxwright doctor --fix`."
        )
    finally:
        await engine.close()


def unit(about: UnitFacts) -> str:
    """Return the unit's text."""
    program = quoted(about.program)
    environment = {
        "BOXWRIGHT_HOME": about.home,
        "XDG_CACHE_HOME": CACHE,
        **({"BOXWRIGHT_CONFIG": about.config} if about.config else {}),
        **({"DOCKER_HOST": about.engine} if about.engine else {}),
    }
    lines = [
        "# Printed by `boxwright service`. Settings: "
        + ENVIRONMENT
        + ", then `systemctl restart boxwright`.",
        "[Unit]",
        "Description=Boxwright gateway",
        "Wants=network-online.target docker.service",
        "After=network-online.target docker.service",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in environment.items()),
        f"EnvironmentFile=-{ENVIRONMENT}",
        f"ExecStartPre=+/usr/bin/install -d -m 0700 {quoted(about.home)} {CACHE}/boxwright",
        "# The bundle is built outside of the service's confinement, and is in the cache after the first time.",
        f"ExecStartPre=+{program} bundle build",
        f"ExecStart={program} up --no-greeting --no-base-image",
        "TimeoutStartSec=20min",
        f"TimeoutStopSec={about.grace_seconds + 20}",
        "KillMode=mixed",
        "Restart=on-failure",
        "RestartSec=2",
        "LimitNOFILE=1048576",
        "UMask=0077",
        "",
        "# Confinement. Who may use the engine's socket could undo it; it keeps accidents small.",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "RestrictNamespaces=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        "SystemCallArchitectures=native",
        "# A call outside of the filter is refused and not deadly: libraries try newer calls and do without.",
        "SystemCallErrorNumber=EPERM",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        *(confined_with_mounts() if about.mounts else confined_whole(about)),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def confined_with_mounts() -> tuple[str, ...]:
    return (
        "# This engine (API before 1.45) mounts subpaths of volumes from places that the gateway binds, so both",
        "# must see the same mounts: no option that gives the service a mount namespace of its own is here.",
        "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_NET_BIND_SERVICE CAP_SYS_ADMIN",
        "SystemCallFilter=@system-service @mount",
    )


def confined_whole(about: UnitFacts) -> tuple[str, ...]:
    writable = [about.home, f"{CACHE}/boxwright", f"-{VOLUMES}", *(f"-{path}" for path in about.writable)]
    return (
        "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_NET_BIND_SERVICE",
        "SystemCallFilter=@system-service",
        "ProtectSystem=strict",
        f"ReadWritePaths={' '.join(quoted(path) for path in writable)}",
        "ProtectHome=read-only",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
    )


def quoted(text: str) -> str:
    """Write a value as systemd reads it (systemd.syntax(7)): specifiers, quotes and blanks as themselves."""
    plain = text.replace("%", "%%")
    if not any(mark in plain for mark in " \t\"'\\"):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
