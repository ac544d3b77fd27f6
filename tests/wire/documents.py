"""Where the documents are: ours under `specs/openapi`, the contract's bare shapes beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.wire.compare import SERVED, Difference, Named, compare, merge, undocumented

ROOT: Final = Path(__file__).parents[2]
OURS: Final = ROOT / "specs" / "openapi"
THEIRS: Final = Path(__file__).parent / "contract"
# The C parser reads the same YAML ten times as fast, where it was built.
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NAMES: Final = ("lifecycle", "execd", "egress", "diagnostics")

# Each contract document with the documents of ours that together must honour it.
PAIRS: Final = {
    "lifecycle-1.1.1": ("lifecycle", "diagnostics"),
    "lifecycle-2026-06": ("lifecycle",),
    "diagnostics": ("diagnostics",),
    "execd": ("execd",),
    "egress": ("egress",),
}


def ours(name: str) -> dict[str, Any]:
    return _read(OURS / f"{name}.yaml")


def theirs(name: str) -> dict[str, Any]:
    return _read(THEIRS / f"{name}.yaml")


def gateway_document() -> dict[str, Any]:
    """
    Return what the gateway says it serves, from both documents that describe it.
    """
    return merge(ours("lifecycle"), ours("diagnostics"))


def named_differences() -> list[Named]:
    """
    Read the differences that were decided on, with their reasons.
    """
    entries = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text())
    return [Named(**entry) for entry in entries]


def compare_contract(name: str) -> list[Difference]:
    """
    Hold our documents against one document of the contract.
    """
    mine = [ours(one) for one in PAIRS[name]]
    return compare(theirs(name), mine[0] if len(mine) == 1 else merge(*mine), name)


def compare_served(document: dict[str, Any]) -> list[Difference]:
    """
    Hold a document that the gateway serves against the ones we publish, both ways.
    """
    published = gateway_document()
    return compare(published, document, "served", SERVED) + undocumented(document, published, "served")


@cache
def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(), Loader=LOADER)
    return document
