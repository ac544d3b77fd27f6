"""Fetch packages with the machine's own apt, in a tree of our own.

Nothing of the machine's package state is read or changed: lists, archives and
status are private. Mirrors, keys, proxies and credentials are the machine's;
apt checks signatures as always.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from images.bundle import apt_sources
from images.bundle.apt_sources import Entry
from images.bundle.errors import PackageMissing, StepFailed
from images.bundle.steps import need, run

UPDATE_SECONDS = 300.0
DOWNLOAD_SECONDS = 600.0
QUERY_SECONDS = 60.0

OS_RELEASE = Path("/etc/os-release")
APT_ETC = Path("/etc/apt")


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the machine runs and where its packages come from."""

    name: str
    codename: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A private apt tree whose lists are up to date."""

    root: Path
    log: Path
    problem: StepFailed | None = None
    """Why not every list could be fetched."""

    def versions(self, source: str) -> list[str]:
        """Return the versions of a source package on offer, newest last."""
        text = self._query("apt-cache", "showsrc", "--only-source", source)
        found = [
            line.partition(":")[2].strip()
            for stanza in text.split("\n\n")
            if f"Package: {source}\n" in stanza
            for line in stanza.splitlines()
            if line.startswith("Version:")
        ]
        return sorted_versions(found, self.log)

    def packages(self, pattern: str) -> list[str]:
        """Return names of binary packages that match an anchored regular expression."""
        text = self._query("apt-cache", "--names-only", "search", pattern)
        return [line.split(" ", 1)[0] for line in text.splitlines() if line]

    def files(self, names: Sequence[str]) -> list[str]:
        """Return `file name, size, checksum` of the packages that would be downloaded."""
        text = self._query("apt-get", "download", "--print-uris", *names)
        return sorted(line.partition(" ")[2] for line in text.splitlines() if line.startswith("'"))

    def download_source(self, source: str, version: str, into: Path) -> Path:
        """Fetch a source package and return its `.dsc`."""
        wanted = f"{source}={version}"
        self._fetch("apt-get", "source", "--download-only", "--only-source", wanted, into=into)
        return _only(into, "*.dsc")

    def download(self, names: Sequence[str], into: Path) -> list[Path]:
        """Fetch binary packages and return their files."""
        self._fetch("apt-get", "download", *names, into=into)
        return sorted(into.glob("*.deb"))

    def _query(self, program: str, *words: str) -> str:
        return run(
            f"{program} {words[0]}",
            [program, *_options(self.root), *words],
            log=self.log,
            seconds=QUERY_SECONDS,
            env=_PLAIN,
            cwd=self.root,
        ).decode()

    def _fetch(self, program: str, *words: str, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        step = f"{program} {words[0]} {words[-1]}"
        argv = [program, *_options(self.root), *words]
        run(step, argv, log=self.log, seconds=DOWNLOAD_SECONDS, env=_PLAIN, cwd=into)


def this_distribution(os_release: Path = OS_RELEASE, etc: Path = APT_ETC) -> Distribution:
    """
    Read what this machine is and where it gets packages from.

    Args:
        os_release: the file that names the distribution, os-release(5).
        etc: apt's configuration folder.

    Raises:
        PackageMissing: not a machine whose packages apt manages.
    """
    facts = apt_sources.parse_os_release(os_release.read_text()) if os_release.is_file() else {}
    codename = facts.get("VERSION_CODENAME", "")
    if not etc.is_dir() or not codename:
        raise PackageMissing("this machine has no apt package sources; bundles are made of Debian packages")
    entries: list[Entry] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]:
        if path.is_file():
            entries.extend(apt_sources.parse_list(path.read_text()))
    for path in sorted((etc / "sources.list.d").glob("*.sources")):
        entries.extend(apt_sources.parse_deb822(path.read_text()))
    own = apt_sources.own_entries(entries, codename)
    if not own:
        raise PackageMissing(f"{etc} names no source of the {codename} release with the component main")
    return Distribution(facts.get("ID", ""), codename, own)


@contextmanager
def open_tree(root: Path, entries: Sequence[Entry], log: Path, *, strict: bool = True) -> Iterator[Tree]:
    """
    Make a private tree for these sources and fetch their lists; it is removed at the end.

    Args:
        root: where the tree is made.
        entries: the sources.
        log: gets apt's output.
        strict: every list must be had. If not, a suite that a mirror lacks is
            passed over; signatures are checked either way.

    Raises:
        StepFailed: a list could not be fetched, and all were wanted.
    """
    need("apt-get", "apt")
    need("dpkg-deb", "dpkg")
    shutil.rmtree(root, ignore_errors=True)
    try:
        _lay_out(root, entries)
        problem = None
        try:
            argv = ["apt-get", *_options(root), "update"]
            run("apt-get update", argv, log=log, seconds=UPDATE_SECONDS, env=_PLAIN)
        except StepFailed as error:
            if strict:
                raise
            problem = error
        yield Tree(root, log, problem)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _lay_out(root: Path, entries: Sequence[Entry]) -> None:
    for folder in ("parts", "state/lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True)
    (root / "state/status").touch()
    (root / "none.list").touch()
    (root / "parts/own.sources").write_text(apt_sources.render(entries))


def sorted_versions(versions: Sequence[str], log: Path) -> list[str]:
    """Sort Debian versions, oldest first, as dpkg itself compares them."""

    def insert(done: list[str], version: str) -> list[str]:
        older = [v for v in done if _at_most(v, version, log)]
        return [*older, version, *(v for v in done if v not in older)]

    return reduce(insert, dict.fromkeys(versions), [])


def _at_most(left: str, right: str, log: Path) -> bool:
    script = 'if dpkg --compare-versions "$1" le "$2"; then echo yes; else echo no; fi'
    argv = ["sh", "-c", script, "compare", left, right]
    return run("dpkg --compare-versions", argv, log=log, seconds=QUERY_SECONDS).strip() == b"yes"


def _options(root: Path) -> list[str]:
    settings = {
        "Dir::Etc::sourcelist": root / "none.list",
        "Dir::Etc::sourceparts": root / "parts",
        "Dir::State": root / "state",
        "Dir::State::status": root / "state/status",
        "Dir::Cache": root / "cache",
        "Acquire::Languages": "none",
    }
    return ["-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]


_PLAIN = {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise PackageMissing(f"expected one {pattern} in {folder}, found {len(found)}")
    return found[0]
