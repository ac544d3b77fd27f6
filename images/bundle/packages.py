"""Have a program that a build calls, installing its Debian package where that is ours to do."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from images.bundle.errors import BundleError, ToolMissing
from images.bundle.steps import run


def have(name: str, package: str, report: Callable[[str], None]) -> Path:
    """
    Find a program; as root on a Debian-like machine, install its package when it is not there.

    Args:
        name: the program, looked up on PATH.
        package: the Debian package that brings it.
        report: told before anything is installed.

    Raises:
        ToolMissing: it is not here and we may not install it; the message names the package.
        StepFailed: apt-get failed.
    """
    found = shutil.which(name)
    if found is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise ToolMissing(name, package)
        report(f"installing the package {package}, which brings {name}")
        _install(package)
        found = shutil.which(name)
    if found is None:
        raise ToolMissing(name, package)
    return Path(found)


def _install(package: str) -> None:
    with tempfile.TemporaryDirectory(prefix="boxwright-apt-") as folder:
        log = Path(folder) / "log"
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        words = ["apt-get", "install", "-y", "--no-install-recommends", package]
        try:
            run(f"apt-get install {package}", words, log=log, seconds=300.0, env=env)
        except BundleError:
            # Lists that were never fetched, or are old, are the usual reason.
            run("apt-get update", ["apt-get", "update"], log=log, seconds=300.0, env=env)
            run(f"apt-get install {package}", words, log=log, seconds=300.0, env=env)
