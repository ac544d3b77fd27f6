"""Compile the spawn program that execd starts user commands through."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from images.bundle.sources import SPAWN_C, need_source
from images.bundle.steps import run
from images.bundle.zig import Zig

NAME = "spawn"
COMPILE_SECONDS = 300.0
FLAGS = ("-std=c11", "-Os", "-g0", "-static", "-s", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler that makes static programs."""

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


def with_zig(zig: Zig) -> Compiler:
    """Return the frozen bundle's compiler."""
    # zig's sanitizer would pull in a runtime that this program is too small for.
    argv = (*zig.cc(), "-fno-sanitize=all")
    return Compiler(f"zig {zig.version}", argv, tuple(zig.env.items()))


def any_compiler(zig: Zig | None) -> Compiler | None:
    """Return the best compiler this machine has at hand, or None."""
    if zig is not None:
        return with_zig(zig)
    for name in ("musl-gcc", "gcc"):
        found = shutil.which(name)
        if found is not None:
            return Compiler(name, (found,))
    return None


def compile_spawn(source_root: Path, out: Path, compiler: Compiler, log: Path) -> None:
    """
    Compile the program into the file `out`.

    Raises:
        SourceMissing: the source is not there.
        StepFailed: it does not compile.
    """
    source = need_source(source_root / SPAWN_C)
    argv: list[str | Path] = [*compiler.argv, *FLAGS, "-o", out, source]
    run("compile spawn.c", argv, log=log, seconds=COMPILE_SECONDS, env=dict(compiler.env))
