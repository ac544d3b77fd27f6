"""The C compiler of the frozen bundle: zig, from the Python package `ziglang`.

It carries musl for every architecture and needs nothing from the machine.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.bundle.cache import Report, log_path, made
from images.bundle.keys import key_of
from images.bundle.steps import run

REQUIREMENT: Final = "ziglang>=0.14,<0.18"
INSTALL_SECONDS = 600.0
FIRST_CALL_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Zig:
    """A compiler in the cache."""

    program: Path
    version: str
    target: str
    objects: Path
    """zig's own cache of compiled C runtimes."""

    @property
    def env(self) -> dict[str, str]:
        return {"ZIG_GLOBAL_CACHE_DIR": str(self.objects), "ZIG_LOCAL_CACHE_DIR": str(self.objects)}

    def cc(self) -> list[str]:
        return [str(self.program), "cc", "-target", self.target]


def target() -> str:
    """Return zig's name for a static program of this machine's architecture."""
    return f"{platform.machine()}-linux-musl"


def cached(cache: Path) -> Zig | None:
    """Return the compiler if it is installed already."""
    home = cache / "tools" / _key()
    return _zig(cache, home) if home.is_dir() else None


def install(cache: Path, report: Report) -> Zig:
    """
    Install the compiler into the cache, through pip as the machine configures it.

    Raises:
        StepFailed: pip or the compiler's first call failed.
    """
    log = log_path(cache, "zig")

    def make(aside: Path) -> None:
        report(f"installing the C compiler ({REQUIREMENT})")
        argv: list[str | Path] = [_python_with_pip(aside / "venv", log), "-m", "pip", "install"]
        argv += ["--no-compile", "--no-deps", "--only-binary", ":all:"]
        argv += ["--target", aside / "packages", REQUIREMENT]
        run("pip install ziglang", argv, log=log, seconds=INSTALL_SECONDS)
        shutil.rmtree(aside / "venv", ignore_errors=True)
        program = aside / "packages/ziglang/zig"
        version = run("zig version", [program, "version"], log=log, seconds=FIRST_CALL_SECONDS)
        (aside / "version").write_bytes(version)

    return _zig(cache, made(cache, "tools", _key(), make, report))


def _python_with_pip(venv: Path, log: Path) -> str | Path:
    """Return this interpreter, or one in a passing environment where this one was set up without pip."""
    if importlib.util.find_spec("pip") is not None:
        return sys.executable
    argv: list[str | Path] = [sys.executable, "-m", "venv", venv]
    run("python -m venv", argv, log=log, seconds=INSTALL_SECONDS)
    return venv / "bin/python"


def _key() -> str:
    return "zig-" + key_of({"requirement": REQUIREMENT, "machine": platform.machine()})


def _zig(cache: Path, home: Path) -> Zig:
    version = (home / "version").read_text().strip()
    return Zig(home / "packages/ziglang/zig", version, target(), cache / "tools" / f"objects-{version}")
