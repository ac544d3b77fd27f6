"""What a bundle is, and its manifest (pure).

A bundle is a directory that is mounted read-only into every sandbox. The
manifest beside the files says how to start it and what it holds; the digest
covers path, executable bit and content of every file but the manifest itself,
so that what was verified is what runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from specs.names import MOUNT_BUNDLE

Kind = Literal["frozen", "debian"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MANIFEST: Final = "bundle.json"
FORMAT: Final = 1

ENTRYPOINTS: Final[dict[Kind, tuple[str, ...]]] = {
    "frozen": (f"{MOUNT_BUNDLE}/execd",),
    "debian": (f"{MOUNT_BUNDLE}/bin/python3", "-I", "-S", "-B", f"{MOUNT_BUNDLE}/app/entry.py"),
}


@dataclass(frozen=True, slots=True)
class File:
    """One file of a bundle."""

    path: str
    """Relative to the bundle, with `/`."""
    size: int
    executable: bool
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `bundle.json` says."""

    kind: Kind
    python: str
    arch: str
    key: str
    """The cache key the bundle was built under."""
    spawn: str | None
    """The compiler the spawn program was built with; none where the machine had no compiler."""
    entrypoint: tuple[str, ...]
    files: tuple[File, ...]

    @property
    def digest(self) -> str:
        return content_digest(self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that is ready to be mounted at `specs.names.MOUNT_BUNDLE`."""

    kind: Kind
    path: Path
    """The directory on this host."""
    digest: str
    size: int
    python: str
    arch: str
    entrypoint: tuple[str, ...]


class ManifestUnreadable(ValueError):
    """The text is not a manifest of this format."""


def content_digest(files: Iterable[File]) -> str:
    """Return one name, `sha256:…`, for paths, executable bits and contents."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        mode = "x" if file.executable else "-"
        total.update(f"{file.sha256} {mode} {len(file.path)} {file.path}\n".encode())
    return f"sha256:{total.hexdigest()}"


def render(manifest: Manifest) -> str:
    """Return the text of `bundle.json`; equal manifests give equal text."""
    return (
        json.dumps(
            {
                "format": FORMAT,
                "kind": manifest.kind,
                "python": manifest.python,
                "arch": manifest.arch,
                "key": manifest.key,
                "digest": manifest.digest,
                "size": manifest.size,
                "spawn": manifest.spawn,
                "entrypoint": list(manifest.entrypoint),
                "files": [
                    {"path": f.path, "size": f.size, "executable": f.executable, "sha256": f.sha256}
                    for f in sorted(manifest.files, key=lambda file: file.path)
                ],
            },
            indent=1,
        )
        + "\n"
    )


def parse(text: str) -> Manifest:
    """
    Read `bundle.json`.

    Raises:
        ManifestUnreadable: not JSON, another format, a missing field, or a digest
            that its own file list does not give.
    """
    try:
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise ManifestUnreadable(f"manifest format {raw['format']!r}, expected {FORMAT}")
        if raw["kind"] not in KINDS:
            raise ManifestUnreadable(f"kind {raw['kind']!r}, expected one of {', '.join(KINDS)}")
        spawn = raw["spawn"]
        manifest = Manifest(
            kind=raw["kind"],
            python=str(raw["python"]),
            arch=str(raw["arch"]),
            key=str(raw["key"]),
            spawn=None if spawn is None else str(spawn),
            entrypoint=tuple(str(argument) for argument in raw["entrypoint"]),
            files=tuple(
                File(str(f["path"]), int(f["size"]), bool(f["executable"]), str(f["sha256"]))
                for f in raw["files"]
            ),
        )
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ManifestUnreadable(f"{MANIFEST} is not understood: {error!r}") from error
    if raw.get("digest") != manifest.digest:
        raise ManifestUnreadable(f"{MANIFEST} names a digest that its own file list does not give")
    return manifest


def difference(manifest: Manifest, found: Iterable[File]) -> str | None:
    """Say what first differs between the manifest and the files found, or None."""
    listed = {file.path: file for file in manifest.files}
    present = {file.path: file for file in found}
    for path in sorted(listed.keys() | present.keys()):
        if path not in present:
            return f"{path} is missing"
        if path not in listed:
            return f"{path} is not in the manifest"
        if listed[path] != present[path]:
            return f"{path} was changed"
    return None


def bundle_of(manifest: Manifest, path: Path) -> Bundle:
    """Return the bundle that lies at `path` under this manifest."""
    return Bundle(
        kind=manifest.kind,
        path=path,
        digest=manifest.digest,
        size=manifest.size,
        python=manifest.python,
        arch=manifest.arch,
        entrypoint=manifest.entrypoint,
    )
