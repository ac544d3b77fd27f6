"""`boxwright config`: print the sample file, or check one."""

from __future__ import annotations

import dataclasses

import typer

from boxwright.terminal import ConfigFile, Format, Output, examples, out, print_json, say, settings_from
from gateway.config import Settings, render_sample

app = typer.Typer(help="Settings: print the commented sample, or check a file.", no_args_is_help=True)


@app.command(epilog=examples("boxwright config sample > boxwright.toml"))
def sample() -> None:
    """Print every setting with its meaning, unit and default, as a TOML file."""
    typer.echo(render_sample(), nl=False)


@app.command(
    epilog=examples(
        "boxwright config check --config boxwright.toml", "BOXWRIGHT_LOG_LEVEL=DEBUG boxwright config check"
    )
)
def check(config: ConfigFile = None, output: Output = Format.TABLE) -> None:
    """Read the settings as `boxwright up` would; say what differs from the defaults."""
    settings = settings_from(config)
    for warning in settings.warnings:
        say(f"warning: {warning}")
    differing = differences(settings)
    if output is Format.JSON:
        print_json(differing)
    else:
        for name, value in differing.items():
            out.print(f"{name} = {value!r}")
        say("settings are understood")


def differences(settings: Settings) -> dict[str, object]:
    """Return `section.key → value` of everything that is not the default; the key itself stays hidden."""
    default, found = Settings(), {}
    for section in dataclasses.fields(settings):
        mine, theirs = getattr(settings, section.name), getattr(default, section.name)
        if not dataclasses.is_dataclass(mine):
            continue
        for key in dataclasses.fields(mine):
            value = getattr(mine, key.name)
            if value != getattr(theirs, key.name):
                found[f"{section.name}.{key.name}"] = "…" if key.name == "api_key" else value
    return found
