"""Read and finish bundle directories: modes, digests, manifest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from images.bundle.errors import BundleDamaged
from images.bundle.model import (
    MANIFEST,
    Bundle,
    File,
    Manifest,
    ManifestUnreadable,
    bundle_of,
    difference,
    parse,
    render,
)


def load(path: Path) -> Bundle:
    """
    Read a bundle and check every byte of it against its manifest.

    Raises:
        BundleDamaged: no manifest, an unreadable one, or files that differ from it.
    """
    try:
        manifest = parse((path / MANIFEST).read_text())
        found = list_files(path)
    except FileNotFoundError as error:
        raise BundleDamaged(path, f"{error.filename} is missing") from error
    except (ManifestUnreadable, UnicodeDecodeError) as error:
        raise BundleDamaged(path, str(error)) from error
    problem = difference(manifest, found)
    if problem is not None:
        raise BundleDamaged(path, problem)
    return bundle_of(manifest, path)


def finish(path: Path, manifest: Manifest) -> None:
    """Set the modes every sandbox user needs, list the files and write the manifest."""
    path.chmod(0o755)
    for parent, folders, names in os.walk(path):
        for name in folders:
            (Path(parent) / name).chmod(0o755)
        for name in names:
            file = Path(parent) / name
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
    complete = replace(manifest, files=tuple(list_files(path)))
    target = path / MANIFEST
    target.write_text(render(complete))
    target.chmod(0o644)


def list_files(path: Path) -> list[File]:
    """
    Describe every file but the manifest.

    Raises:
        BundleDamaged: something that is neither a file nor a directory.
    """
    found = []
    for file in sorted(path.rglob("*")):
        relative = file.relative_to(path).as_posix()
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise BundleDamaged(path, f"{relative} is neither a file nor a directory")
        if file.is_dir() or relative == MANIFEST:
            continue
        status = file.stat()
        with file.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
        found.append(File(relative, status.st_size, bool(status.st_mode & 0o100), digest))
    return found
