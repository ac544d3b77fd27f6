"""`boxwright bundle`: build execd's bundle, or look at one."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from boxwright.bootstrap import ROOT
from boxwright.terminal import Format, Output, examples, fail, out, print_json, say

if TYPE_CHECKING:  # imported where it is used: `--help` shall be quick
    from images import bundle as bundles

app = typer.Typer(
    help="Build or inspect the bundle that carries execd into every sandbox.", no_args_is_help=True
)


class Wanted(StrEnum):
    AUTO = "auto"
    FROZEN = "frozen"
    DEBIAN = "debian"


KINDS: dict[Wanted, bundles.Kind | None] = {
    Wanted.AUTO: None,
    Wanted.FROZEN: "frozen",
    Wanted.DEBIAN: "debian",
}
CacheFolder = Annotated[
    Path | None,
    typer.Option("--cache", help="Build cache (default: boxwright below the user's cache folder)."),
]


def show(bundle: bundles.Bundle, output: Format) -> None:
    """Print what a bundle is."""
    facts = {
        "kind": bundle.kind,
        "path": str(bundle.path),
        "digest": bundle.digest,
        "size": bundle.size,
        "python": bundle.python,
        "arch": bundle.arch,
        "entrypoint": list(bundle.entrypoint),
    }
    if output is Format.JSON:
        print_json(facts)
        return
    table = Table("", Column(overflow="fold"), show_header=False, box=None)
    for name, value in facts.items():
        shown = " ".join(value) if isinstance(value, list) else str(value)
        table.add_row(name, f"{bundle.size / 1e6:.1f} MB" if name == "size" else shown)
    out.print(table)


@app.command(epilog=examples("boxwright bundle build", "boxwright bundle build --kind frozen -o json"))
def build(
    kind: Annotated[
        Wanted, typer.Option("--kind", help="Which kind; auto takes what is had soonest.")
    ] = Wanted.AUTO,
    cache: CacheFolder = None,
    output: Output = Format.TABLE,
) -> None:
    """Build the bundle of today's sources, or take it from the cache (content-addressed).

    `frozen` is one static file (musl CPython and execd), minutes the first time and seconds
    afterwards. `debian` is a relocatable Debian interpreter, seconds. `auto` takes whichever is
    quickest to have and says which.
    """
    from images import bundle as bundles

    folder = cache or bundles.default_cache(os.environ)
    try:
        made = bundles.quickest(source_root=ROOT, cache=folder, report=say, kind=KINDS[kind])
    except bundles.BundleError as error:
        fail(str(error))
    show(made, output)


@app.command(epilog=examples("boxwright bundle inspect $(boxwright bundle build -o json | jq -r .path)"))
def inspect(
    path: Annotated[Path, typer.Argument(help="A bundle's folder, as `boxwright bundle build` prints it.")],
    output: Output = Format.TABLE,
) -> None:
    """Check a bundle folder's files against its manifest and print what it is."""
    from images import bundle as bundles

    try:
        found = bundles.load(path)
    except bundles.BundleError as error:
        fail(str(error))
    show(found, output)
