"""How commands read settings and speak: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from gateway.config import BadSetting, Settings, load

PIPED_WIDTH = 240  # whoever reads through a pipe wants whole lines

err = Console(stderr=True, highlight=False)
out = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


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


def confirm(question: str) -> None:
    """Ask, and end unless the answer is yes; who cannot be asked has to say --yes."""
    if not sys.stdin.isatty():
        fail(f"{question} There is no terminal to ask on: add --yes.")
    if not typer.confirm(question, err=True):
        fail("nothing was changed")


def examples(*lines: str) -> str:
    """Return the end of a command's help: each line an example, `command  # what it does`."""
    return "\n\n".join(["[bold]Examples[/]", *(f"  {escape(line)}" for line in lines)])


def settings_from(config: Path | None) -> Settings:
    """Read the settings, or end with the message that names the key and the fix."""
    try:
        return load(config, os.environ)
    except BadSetting as error:
        fail(str(error))


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
