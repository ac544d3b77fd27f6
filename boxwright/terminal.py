"""How commands read settings and speak: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from gateway.config import BadSetting, Settings, load

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="BOXWRIGHT_CONFIG",
        help="Settings file (TOML; an OpenSandbox server file works too). Environment variables win over it.",
    ),
]


def say(text: str) -> None:
    """Tell the person what happens."""
    err.print(f"[dim]boxwright:[/dim] {escape(text)}", soft_wrap=True)


def fail(message: str) -> NoReturn:
    """Say why and what to do, and end with 1."""
    err.print(f"[bold red]boxwright:[/bold red] {escape(message)}", soft_wrap=True)
    raise typer.Exit(1)


def settings_from(config: Path | None) -> Settings:
    """Read the settings, or end with the message that names the key and the fix."""
    try:
        return load(config, os.environ)
    except BadSetting as error:
        fail(str(error))


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
