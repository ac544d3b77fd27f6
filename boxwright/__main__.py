"""`boxwright`: stand up, try out, look after and measure a Boxwright on this machine."""

from __future__ import annotations

import typer

from boxwright import __version__
from boxwright.bundle import app as bundle_app
from boxwright.config import app as config_app
from boxwright.demo_command import demo
from boxwright.doctor import doctor
from boxwright.keys import app as keys_app
from boxwright.up import up

EPILOG = """
First steps: `boxwright doctor` says whether this machine is ready, `boxwright up` serves,
`boxwright demo` runs one sandbox and shows each step. Exit codes: 0 done, 1 refused or failed
(the message says why and what to do), 2 the command's words are off, 130 interrupted.
"""

app = typer.Typer(
    name="boxwright",
    help="A safe place for AI agents to run code: OpenSandbox-compatible sandboxes on your own container engine.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up)
app.command()(demo)
app.command()(doctor)
app.add_typer(keys_app, name="keys")
app.add_typer(bundle_app, name="bundle")
app.add_typer(config_app, name="config")


@app.command()
def version() -> None:
    """Print the version that every component of this installation carries."""
    typer.echo(__version__)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
