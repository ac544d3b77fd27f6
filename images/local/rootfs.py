"""Small root file systems as tar files: everything in them is listed here."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

USERS: Final = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
GROUPS: Final = "root:x:0:\nnogroup:x:65534:\n"
FOLDERS: Final = (
    ("bin", 0o755),
    ("etc", 0o755),
    ("root", 0o700),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("home", 0o755),
)


def busybox(program: Path, applets: Iterable[str], out: Path) -> None:
    """Write a root file system of one program that is every command."""
    with tarfile.open(out, "w") as tar:
        for folder, mode in FOLDERS:
            _folder(tar, folder, mode)
        _file(tar, "etc/passwd", USERS.encode(), 0o644)
        _file(tar, "etc/group", GROUPS.encode(), 0o644)
        _file(tar, "bin/busybox", program.read_bytes(), 0o755)
        for applet in sorted(set(applets) - {"busybox"}):
            _link(tar, f"bin/{applet}", "busybox")
        _link(tar, "usr/bin", "../bin")


def program(executable: Path, out: Path) -> None:
    """Write a root file system that holds one program and nothing else."""
    with tarfile.open(out, "w") as tar:
        _file(tar, "app", executable.read_bytes(), 0o755)


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    tar.addfile(info)


def _file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    tar.addfile(info)
