"""Have a bundle: the kind that was asked for, or the one that is had soonest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from images.bundle import debian, frozen, interpreter, spawn_program, zig
from images.bundle.cache import Report
from images.bundle.errors import BundleDamaged, BundleError, SourceMissing
from images.bundle.folder import load
from images.bundle.model import Bundle, Kind


def build(kind: Kind, *, source_root: Path, cache: Path, report: Report, refresh: bool = False) -> Bundle:
    """
    Build a bundle of one kind, or take it from the cache.

    Args:
        kind: `frozen` needs pip, apt, make and some minutes the first time;
            `debian` needs apt and some seconds.
        source_root: the folder that holds `execd/`, `specs/` and `images/build/execd/`.
        cache: the root of the build cache.
        report: told each step in a short sentence.
        refresh: ask the package mirrors for newer packages even if the cache has
            an interpreter that would do.

    Raises:
        BundleError: with what is missing, or which step failed and where its log is.
    """
    makers: dict[Kind, Callable[[], Path]] = {
        "frozen": lambda: _frozen(source_root, cache, report, refresh=refresh),
        "debian": lambda: _debian(source_root, cache, report, refresh=refresh),
    }
    return _sound(makers[kind], report)


def quickest(*, source_root: Path, cache: Path, report: Report, kind: Kind | None = None) -> Bundle:
    """
    Return a bundle of today's sources in the least time.

    In this order: a frozen one (in the cache, or seconds away because its
    interpreter is), a relocatable one, and only then a frozen one from nothing.

    Args:
        source_root: the folder that holds `execd/`, `specs/` and `images/build/execd/`.
        cache: the root of the build cache.
        report: told what was chosen and why.
        kind: a setting's choice; no other kind is then considered.

    Raises:
        BundleError: no kind could be had; the message has the reasons.
    """
    if kind is not None:
        report(f"the {kind} bundle was asked for")
        return build(kind, source_root=source_root, cache=cache, report=report)
    if zig.cached(cache) is not None and interpreter.cached(cache, zig.target()) is not None:
        report("frozen bundle: its interpreter is in the cache")
        return build("frozen", source_root=source_root, cache=cache, report=report)
    report("relocatable bundle: seconds away, while a frozen one would take minutes the first time")
    try:
        return build("debian", source_root=source_root, cache=cache, report=report)
    except SourceMissing:
        # The other kind is made of the same sources.
        raise
    except BundleError as error:
        report(f"the relocatable bundle could not be had ({error.brief}); building the frozen one")
        try:
            return build("frozen", source_root=source_root, cache=cache, report=report)
        except BundleError as second:
            raise BundleError(
                f"no bundle could be built. debian: {error.message} frozen: {second.message}"
            ) from second


def _frozen(source_root: Path, cache: Path, report: Report, *, refresh: bool) -> Path:
    compiler = zig.install(cache, report)
    ready = None if refresh else interpreter.cached(cache, compiler.target)
    if ready is None:
        ready = interpreter.build(cache, compiler, report)
    return frozen.freeze(source_root, cache, ready, compiler, report)


def _debian(source_root: Path, cache: Path, report: Report, *, refresh: bool) -> Path:
    runtime = None if refresh else debian.cached(cache)
    if runtime is None:
        runtime = debian.fetch(cache, report)
    compiler = spawn_program.any_compiler(zig.cached(cache))
    return debian.assemble(source_root, cache, runtime, compiler, report)


def _sound(make: Callable[[], Path], report: Report) -> Bundle:
    """Load what was made; if the cache's copy was damaged, throw it away and make it again, once."""
    path = make()
    try:
        return load(path)
    except BundleDamaged as error:
        report(f"{error.message}: building it again")
        shutil.rmtree(path)
        return load(make())
