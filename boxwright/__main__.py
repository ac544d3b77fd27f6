"""`boxwright`: stand up, try out, look after and measure a Boxwright on this machine."""

from __future__ import annotations

import sys
import tempfile
import traceback
from typing import Annotated

import typer

from boxwright import __version__
from boxwright.background import down
from boxwright.backup import backup, restore
from boxwright.bundle import app as bundle_app
from boxwright.config import app as config_app
from boxwright.demo_command import demo
from boxwright.doctor import doctor
from boxwright.errors import errors
from boxwright.keys import app as keys_app
from boxwright.sandboxes import events, logs, ps, rm
from boxwright.service import app as service_app
from boxwright.status import status
from boxwright.terminal import Format, Output, err, examples, print_json, say
from boxwright.up import up

EPILOG = """
First steps: `boxwright doctor` says whether this machine is ready, `boxwright up` serves, `boxwright demo` runs one \
sandbox and shows each step.

Exit codes: 0 done, 1 refused or failed (the message says why and what to do), 2 the command's words are off, \
130 interrupted. Results go to standard output, everything else to standard error; -o json is for programs.

Completion for your shell: `boxwright --install-completion`.
"""

SERVE, SANDBOXES, STATE, LEARN = "Serve", "Sandboxes", "State", "Learn and look"

app = typer.Typer(
    name="boxwright",
    help="A safe place for AI agents to run code: OpenSandbox-compatible sandboxes on your own container engine.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    rich_help_panel=SERVE,
    epilog=examples(
        "boxwright up                          # serve until Ctrl-C",
        "boxwright up --detach                 # serve in the background; `boxwright down` ends it",
        "BOXWRIGHT_PORT=9000 boxwright up -D   # on another port",
    ),
)(up)
app.command(
    rich_help_panel=SERVE,
    epilog=examples(
        "boxwright down            # running requests end first, sandboxes stay",
        "boxwright down --force    # kill it; the next `up` finishes what was under way",
    ),
)(down)
app.command(
    rich_help_panel=SERVE,
    epilog=examples("boxwright status -o json | jq .ready", "boxwright status && echo ready to work"),
)(status)
app.add_typer(service_app, name="service", rich_help_panel=SERVE)

app.command(
    rich_help_panel=SANDBOXES,
    epilog=examples(
        "boxwright ps",
        "boxwright ps --state failed --metadata team=search",
        "boxwright ps --all -o json | jq -r '.[].id'",
    ),
)(ps)
app.command(
    rich_help_panel=SANDBOXES,
    epilog=examples(
        "boxwright logs 3f2a --tail 20",
        "boxwright logs 3f2a --since 10m --timestamps",
        "boxwright logs 3f2a --follow    # until it ends, or Ctrl-C",
    ),
)(logs)
app.command(
    rich_help_panel=SANDBOXES,
    epilog=examples("boxwright events 3f2a    # why is it in the state it is in?"),
)(events)
app.command(
    rich_help_panel=SANDBOXES,
    epilog=examples(
        "boxwright rm 3f2a 77c1",
        "boxwright rm --all --state failed",
        "boxwright rm --all --metadata team=search --yes",
    ),
)(rm)

app.command(
    rich_help_panel=STATE,
    epilog=examples("boxwright backup /var/backups/boxwright-$(date +%F).tar    # also while it serves"),
)(backup)
app.command(
    rich_help_panel=STATE,
    epilog=examples("boxwright down", "boxwright restore boxwright-2025-01-31.tar", "boxwright up --detach"),
)(restore)
app.add_typer(keys_app, name="keys", rich_help_panel=STATE)
app.add_typer(config_app, name="config", rich_help_panel=STATE)
app.add_typer(bundle_app, name="bundle", rich_help_panel=STATE)

app.command(
    rich_help_panel=LEARN,
    epilog=examples(
        "boxwright doctor", "sudo boxwright doctor --fix    # install and start the engine, and so on"
    ),
)(doctor)
app.command(
    rich_help_panel=LEARN, epilog=examples("boxwright demo", "boxwright demo --image python:3.12-slim")
)(demo)
app.command(
    rich_help_panel=LEARN,
    epilog=examples("boxwright errors", "boxwright errors NOT_RUNNING", "boxwright errors -o json"),
)(errors)


@app.command(rich_help_panel=LEARN)
def version(output: Output = Format.TABLE) -> None:
    """Print the version that every component of this installation carries."""
    if output is Format.JSON:
        print_json({"version": __version__})
    else:
        typer.echo(__version__)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_tell_version),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; what nobody expected becomes a sentence and a file, never a traceback."""
    try:
        app()
    except Exception as error:  # the border to the terminal: every failure we know was said already
        with tempfile.NamedTemporaryFile(
            "w", prefix="boxwright-", suffix=".txt", delete=False, encoding="utf-8"
        ) as story:
            traceback.print_exception(error, file=story)
        say(f"unexpected {type(error).__name__}: {error}")
        err.print(
            f"This is a fault of Boxwright. The whole story is in {story.name}: please report it with that file.",
            soft_wrap=True,
            markup=False,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
