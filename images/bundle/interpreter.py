"""Build the static interpreter library: the slow stage, once per Python and compiler.

CPython's own configure and make, with zig as the compiler, every C module that
execd may want compiled in, and nothing that needs another library. The source
is the distribution's package, so its security patches are in.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from images.bundle import apt, apt_sources
from images.bundle.apt import Distribution, Tree
from images.bundle.cache import Report, locked, log_path, made
from images.bundle.errors import PackageMissing, StepFailed
from images.bundle.keys import key_of
from images.bundle.packages import have
from images.bundle.steps import run
from images.bundle.zig import Zig

ROOM: Final = "interpreters"
RECORD: Final = "interpreter.json"

# Newest first.
PYTHONS: Final = ("3.13", "3.12", "3.11")

# A Debian machine's mirror carries the other releases too; these have a Python worth freezing.
DEBIAN_RELEASES: Final = ("trixie",)

CONFIGURE_SECONDS = 1200.0
MAKE_SECONDS = 3600.0
UNPACK_SECONDS = 300.0

# Modules that need another library, or that a daemon has no use for.
LEFT_OUT: Final = (
    "_bz2",
    "_codecs_cn",
    "_codecs_hk",
    "_codecs_iso2022",
    "_codecs_jp",
    "_codecs_kr",
    "_codecs_tw",
    "_crypt",
    "_csv",
    "_ctypes",
    "_ctypes_test",
    "_curses",
    "_curses_panel",
    "_dbm",
    "_decimal",
    "_elementtree",
    "_gdbm",
    "_hashlib",
    "_interpchannels",
    "_interpqueues",
    "_interpreters",
    "_lsprof",
    "_lzma",
    "_multibytecodec",
    "_multiprocessing",
    "_posixshmem",
    "_sqlite3",
    "_ssl",
    "_statistics",
    "_tkinter",
    "_uuid",
    "_xxinterpchannels",
    "_xxsubinterpreters",
    "_zoneinfo",
    "audioop",
    "cmath",
    "nis",
    "ossaudiodev",
    "pyexpat",
    "readline",
    "spwd",
    "syslog",
    "unicodedata",
    "xxlimited",
    "xxlimited_35",
    "xxsubtype",
    "zlib",
)

CONFIGURE: Final = (
    "--disable-shared",
    "--disable-test-modules",
    "--without-ensurepip",
    "--without-doc-strings",
    "--with-pkg-config=no",
)

# zig turns on the undefined-behaviour sanitizer and debug information by default.
CFLAGS: Final = "-g0 -fno-sanitize=all -fno-semantic-interposition"
OPT: Final = "-O2 -DNDEBUG"
# The same as when execd is linked: zig builds its C library once for each way of linking.
LDFLAGS: Final = "-static -s -O2"
# zig refuses __DATE__, which getbuildinfo.c uses; SOURCE_DATE_EPOCH makes it harmless.
CFLAGS_NODIST: Final = (
    "-Wno-date-time -Wno-error=date-time -std=c11 -fvisibility=hidden "
    "-I{source}/Include/internal -I{source}/Include/internal/mimalloc"
)

# The parts of the source tree's library that are never frozen.
LIBRARY_LEFT_OUT: Final = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "pydoc_data",
    "__pycache__",
    "site-packages",
)


@dataclass(frozen=True, slots=True)
class Record:
    """What an interpreter in the cache was built from."""

    recipe: str
    python: str
    """The minor release, `3.13`."""
    source: str
    """The version of the source package."""
    zig: str
    target: str


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A built interpreter: libraries to link, headers, and itself to run."""

    home: Path
    key: str
    record: Record

    @property
    def program(self) -> Path:
        return self.home / "bin/python3"

    @property
    def stdlib(self) -> Path:
        return self.home / "lib" / f"python{self.record.python}"

    @property
    def include(self) -> Path:
        return self.home / "include"

    @property
    def archives(self) -> list[Path]:
        """Libraries in the order the linker wants them."""
        return [
            self.home / "lib" / f"libpython{self.record.python}.a",
            *sorted((self.home / "lib").glob("libHacl*.a")),
        ]


def cached(cache: Path, target: str) -> Interpreter | None:
    """Return the newest interpreter of today's recipe that is in the cache; ask no network."""
    found = []
    for path in (cache / ROOM).glob(f"*/{RECORD}"):
        record = Record(**json.loads(path.read_text()))
        if record.recipe == recipe() and record.target == target:
            found.append((path.stat().st_mtime, Interpreter(path.parent, path.parent.name, record)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def build(cache: Path, zig: Zig, report: Report) -> Interpreter:
    """
    Build the newest interpreter source the machine's mirrors offer, unless it is in the cache.

    Raises:
        PackageMissing: no source of a Python that can be frozen.
        StepFailed: a build step failed; its log is named.
        ToolMissing: make or dpkg-source is not here and may not be installed.
    """
    have("make", "make", report)
    have("dpkg-source", "dpkg-dev", report)
    log = log_path(cache, "interpreter")
    failure: StepFailed | None = None
    machine = apt.this_distribution()
    report("asking the package mirror for Python sources")
    with (
        locked(cache, "apt-sources", report),
        apt.open_tree(cache / "tmp/apt-sources", _entries(machine), log, strict=False) as tree,
    ):
        for python, version in candidates(tree):
            record = Record(recipe(), python, version, zig.version, zig.target)
            home = cache / ROOM / key_of(asdict(record))
            if home.is_dir():
                return Interpreter(home, home.name, record)
            source = cache / "tmp/python-source"
            shutil.rmtree(source, ignore_errors=True)
            try:
                dsc = tree.download_source(f"python{python}", version, source)
            except StepFailed as error:
                # Mirrors list versions that they do not hold (a security pocket's, mostly).
                report(f"python{python} {version} cannot be had, trying the next ({error.brief})")
                failure = error
                continue
            report(f"building the interpreter from python{python} {version}: some minutes, log in {log}")
            began = time.monotonic()
            try:
                made(cache, ROOM, home.name, partial(_make, dsc, record, zig, log, report), report)
            finally:
                shutil.rmtree(source)
            report(f"interpreter built in {time.monotonic() - began:.0f} s")
            return Interpreter(home, home.name, record)
    reason = failure or tree.problem
    raise PackageMissing(
        f"the package mirrors offer no source of Python {' or '.join(PYTHONS)}; a frozen bundle cannot be "
        f"built on this machine, the debian kind can{f' ({reason.brief})' if reason else ''}"
    )


def recipe() -> str:
    """Return the name of this way of building; a change of flags changes it."""
    text = "\n".join(
        [*CONFIGURE, *LEFT_OUT, CFLAGS, LDFLAGS, OPT, CFLAGS_NODIST, *LIBRARY_LEFT_OUT, "layout 2"]
    )
    return key_of({"recipe": text, "machine": platform.machine()})


def candidates(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield release and source version of each Python on offer, the newest first."""
    for python in PYTHONS:
        for version in reversed(tree.versions(f"python{python}")):
            yield python, version


def _entries(machine: Distribution) -> tuple[apt_sources.Entry, ...]:
    ahead = DEBIAN_RELEASES if machine.name == "debian" else ()
    releases = tuple(dict.fromkeys((*ahead, machine.codename)))
    return apt_sources.source_entries(machine.entries, machine.codename, releases)


def _make(dsc: Path, record: Record, zig: Zig, log: Path, report: Report, home: Path) -> None:
    work = home / "work"
    work.mkdir()
    _compile(dsc, work, zig, record.python, log, report)
    _keep(work, home, record.python)
    shutil.rmtree(work)
    (home / RECORD).write_text(json.dumps(asdict(record)))


def _compile(dsc: Path, work: Path, zig: Zig, python: str, log: Path, report: Report) -> None:
    source, build, tools = work / "python", work / "build", work / "tools"
    for folder in (build, tools):
        folder.mkdir()
    wrappers = {
        "cc": zig.cc(),
        "ar": [str(zig.program), "ar"],
        "ranlib": [str(zig.program), "ranlib"],
    }
    for name, words in wrappers.items():
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        script.chmod(0o755)

    argv: list[str | Path] = ["dpkg-source", "--extract", dsc, source]
    run("dpkg-source", argv, log=log, seconds=UNPACK_SECONDS)
    env = {
        **zig.env,
        "LC_ALL": "C.UTF-8",
        "PKG_CONFIG": "/bin/false",
        "MODULE_BUILDTYPE": "static",
        # The moment of the source, so that the same source gives the same bytes.
        "SOURCE_DATE_EPOCH": str(int((source / "configure").stat().st_mtime)),
        "CC": str(tools / "cc"),
        "AR": str(tools / "ar"),
        "RANLIB": str(tools / "ranlib"),
        "LDFLAGS": LDFLAGS,
        "OPT": OPT,
        "CFLAGS": CFLAGS,
    }
    report("configuring the interpreter")
    argv = [source / "configure", *CONFIGURE, *(f"py_cv_module_{name}=n/a" for name in LEFT_OUT)]
    run("configure", argv, log=log, seconds=CONFIGURE_SECONDS, cwd=build, env=env, gently=True)
    if python == "3.11":
        # Later releases read this file by themselves; 3.11 would build these modules as shared ones.
        # A new time on it makes make write config.c anew.
        shutil.copyfile(build / "Modules/Setup.stdlib", build / "Modules/Setup.local")
    report("compiling the interpreter")
    nodist = CFLAGS_NODIST.format(source=source)
    argv = ["make", f"-j{os.cpu_count() or 1}", f"CFLAGS_NODIST={nodist}", "python", f"libpython{python}.a"]
    run("make", argv, log=log, seconds=MAKE_SECONDS, cwd=build, env=env, gently=True)


def _keep(work: Path, home: Path, python: str) -> None:
    """Take what freezing needs out of the build tree."""
    source, build = work / "python", work / "build"
    lib = home / "lib"
    for folder in (home / "bin", lib):
        folder.mkdir(exist_ok=True)
    shutil.copy2(build / "python", home / "bin/python3")
    shutil.copy2(build / f"libpython{python}.a", lib)
    for archive in (build / "Modules/_hacl").glob("*.a"):
        shutil.copy2(archive, lib)
    shutil.copytree(source / "Include", home / "include")
    shutil.copy2(build / "pyconfig.h", home / "include")
    stdlib = lib / f"python{python}"
    shutil.copytree(source / "Lib", stdlib, ignore=shutil.ignore_patterns(*LIBRARY_LEFT_OUT))
    # The interpreter knows its home by this folder, though nothing is in it.
    (stdlib / "lib-dynload").mkdir(exist_ok=True)
