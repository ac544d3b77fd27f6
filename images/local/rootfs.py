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


AGENT: Final = 1000
ENTRY: Final = '#!/bin/sh\necho this is the entry of the image\nexec "$@"\n'


def busybox(program: Path, applets: Iterable[str], out: Path) -> None:
    """Write a root file system of one program that is every command."""
    with tarfile.open(out, "w") as tar:
        _busybox(tar, program, applets)
        _people(tar, "", "")


def musl(program: Path, applets: Iterable[str], loader: Path, needs_it: Path, out: Path) -> None:
    """
    Write busybox and, as `/app`, a program that only runs with the loader beside it.

    Args:
        program: busybox.
        applets: its commands.
        loader: musl's dynamic loader, which is its library too; its name is part of programs.
        needs_it: a program linked dynamically.
        out: the tar file.
    """
    with tarfile.open(out, "w") as tar:
        _busybox(tar, program, applets)
        _people(tar, "", "")
        _folder(tar, "lib", 0o755)
        _file(tar, f"lib/{loader.name}", loader.read_bytes(), 0o755)
        _file(tar, "app", needs_it.read_bytes(), 0o755)


def dressed(program: Path, applets: Iterable[str], out: Path) -> None:
    """Write busybox with a user `agent`, its folders, a folder for a volume and `/bin/entry`."""
    with tarfile.open(out, "w") as tar:
        _busybox(tar, program, applets)
        _people(tar, f"agent:x:{AGENT}:{AGENT}:agent:/home/agent:/bin/sh\n", f"agent:x:{AGENT}:\n")
        for folder in ("home/agent", "home/agent/work", "data"):
            _folder(tar, folder, 0o755, owner=AGENT)
        _file(tar, "bin/entry", ENTRY.encode(), 0o755)


def program(executable: Path, out: Path) -> None:
    """Write a root file system that holds one program and nothing else."""
    with tarfile.open(out, "w") as tar:
        _file(tar, "app", executable.read_bytes(), 0o755)


def _busybox(tar: tarfile.TarFile, program: Path, applets: Iterable[str]) -> None:
    for folder, mode in FOLDERS:
        _folder(tar, folder, mode)
    _file(tar, "bin/busybox", program.read_bytes(), 0o755)
    for applet in sorted(set(applets) - {"busybox"}):
        _link(tar, f"bin/{applet}", "busybox")
    _link(tar, "usr/bin", "../bin")


def _people(tar: tarfile.TarFile, users: str, groups: str) -> None:
    _file(tar, "etc/passwd", (USERS + users).encode(), 0o644)
    _file(tar, "etc/group", (GROUPS + groups).encode(), 0o644)


def _folder(tar: tarfile.TarFile, name: str, mode: int, owner: int = 0) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
    tar.addfile(info)


def _file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
    tar.addfile(info)
