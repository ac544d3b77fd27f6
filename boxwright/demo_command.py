"""`boxwright demo`: one sandbox through the public Python SDK, step by step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from boxwright.access import Domain
from boxwright.engine import EngineMissing, ensure_engine
from boxwright.running import local_domain, running
from boxwright.terminal import ConfigFile, Format, Output, err, fail, print_json, say, settings_from
from gateway.config import Settings
from specs.errors import BoxwrightError

BASE_IMAGE = "debian"
BUILD_DEADLINE = 900.0


def demo(
    image: Annotated[
        str | None,
        typer.Option(
            "--image", "-i", help="Image to use (default: a base image built from Debian packages)."
        ),
    ] = None,
    domain: Domain = None,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Run one sandbox through the public Python SDK against a running `boxwright up`."""
    from boxwright.demo import DemoFailed, connection, run  # the SDK takes half a second to import

    settings = settings_from(config)
    found = running(settings.home)
    configured = local_domain(settings.server.host, settings.server.port)
    where = domain or (found[0].domain if len(found) == 1 else configured)
    try:
        if image is None:
            image = asyncio.run(base_image(settings))
        steps = asyncio.run(run(image, connection(where, settings.home), err))
    except (DemoFailed, EngineMissing, BoxwrightError) as failure:
        hint = "" if found else "\nNo Boxwright of this state folder runs: is BOXWRIGHT_HOME set as for `up`?"
        fail(f"{failure}{hint}")
    if output is Format.JSON:
        print_json([step.as_dict() for step in steps])


async def base_image(settings: Settings) -> str:
    """Return the local base image, building it from Debian packages the first time."""
    from gateway.runtimes.docker.engine import Engine, EngineSettings
    from images import local

    await ensure_engine(say, log_of_dockerd(settings.home))
    engine = Engine(EngineSettings())
    try:
        made = await local.ensure((BASE_IMAGE,), engine, say, BUILD_DEADLINE)
    finally:
        await engine.close()
    return made[BASE_IMAGE]


def log_of_dockerd(home: Path) -> Path:
    """Where a dockerd that we start writes."""
    return home / "dockerd.log"
