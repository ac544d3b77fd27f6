"""Which files of this project go into a bundle, and their digest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from images.bundle import graph
from images.bundle.errors import SourceMissing
from images.bundle.graph import Module
from images.bundle.keys import digest_of

HOUSE: Final = ("execd", "specs")
BUILD_FOLDER: Final = "images/build/execd"
MAIN_C: Final = f"{BUILD_FOLDER}/main.c"
SPAWN_C: Final = f"{BUILD_FOLDER}/spawn.c"
ENTRY: Final = f"{BUILD_FOLDER}/entry.py"
STANDINS: Final = f"{BUILD_FOLDER}/standins"
ENTRY_MODULE: Final = "execd.__main__"


def own_source_root() -> Path:
    """Return the folder this very file was imported from: the repository or site-packages."""
    return Path(__file__).resolve().parents[2]


def roots(source_root: Path) -> list[str]:
    """
    Return every module of execd, whether or not another imports it.

    Raises:
        SourceMissing: execd has no entry module.
    """
    names = sorted(_module_names(source_root))
    if ENTRY_MODULE not in names:
        raise SourceMissing(source_root / "execd/__main__.py")
    return names


def source_digest(source_root: Path) -> str:
    """
    Return one name for everything of ours that a bundle is made of.

    That is all of execd, what it reaches of `specs`, the C programs and the
    build itself.

    Raises:
        SourceMissing: a file that every bundle needs is not there.
    """
    found = graph.walk(roots(source_root), lambda name: _house_module(source_root, name))
    files = [(module.name, module.text) for module in found.modules.values()]
    standins = [path.relative_to(source_root).as_posix() for path in (source_root / STANDINS).rglob("*.py")]
    files += [
        (name, need_source(source_root / name).read_bytes()) for name in (MAIN_C, SPAWN_C, ENTRY, *standins)
    ]
    files += [
        (f"images/bundle/{path.name}", path.read_bytes()) for path in Path(__file__).parent.glob("*.py")
    ]
    return digest_of(files)


def need_source(path: Path) -> Path:
    """
    Return the path if there is such a file.

    Raises:
        SourceMissing: there is none.
    """
    if not path.is_file():
        raise SourceMissing(path)
    return path


def _module_names(source_root: Path) -> Iterator[str]:
    for path in (source_root / "execd").rglob("*.py"):
        parts = path.relative_to(source_root).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _house_module(source_root: Path, name: str) -> Module | None:
    if name.partition(".")[0] not in HOUSE:
        return None
    base = source_root.joinpath(*name.split("."))
    for path, package in ((base / "__init__.py", True), (base.with_suffix(".py"), False)):
        if path.is_file():
            return Module(name, "house", package, str(path), path.read_bytes())
    return None
