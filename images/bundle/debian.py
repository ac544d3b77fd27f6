"""The fallback without a compiler: the distribution's own interpreter, made relocatable.

Its loader and C library come along, and the program is told by PT_INTERP and
DT_RPATH to use them at the mount path, so the image's own are never looked at
(ld.so(8): DT_RPATH wins over LD_LIBRARY_PATH, DT_RUNPATH would not, and would
not serve the libraries that extension modules need).
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from images.bundle import apt, folder, frozen, spawn_program
from images.bundle.cache import Report, locked, log_path, made
from images.bundle.errors import PackageMissing
from images.bundle.keys import key_of
from images.bundle.model import ENTRYPOINTS, Manifest
from images.bundle.sources import ENTRY, HOUSE, STANDINS, need_source, roots, source_digest
from images.bundle.spawn_program import Compiler
from images.bundle.steps import run
from specs.names import MOUNT_BUNDLE

ROOM: Final = "runtimes"
RECORD: Final = "runtime.json"
OLDEST: Final = (3, 11)
SHARED_LIBRARIES: Final = ("libc6", "libexpat1", "zlib1g")
LOADERS: Final = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
UNPACK_SECONDS = 120.0
PATCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Record:
    """What an unpacked runtime consists of."""

    recipe: str
    python: str
    """The minor release, `3.11`."""
    packages: list[str]
    loader: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """The distribution's interpreter, unpacked; runs on this host through its own loader."""

    home: Path
    key: str
    record: Record

    @property
    def program(self) -> Path:
        return self.home / f"usr/bin/python{self.record.python}"

    @property
    def stdlib(self) -> Path:
        return self.home / f"usr/lib/python{self.record.python}"

    @property
    def dynload(self) -> Path:
        return self.stdlib / "lib-dynload"

    @property
    def libraries(self) -> Path:
        """The shared libraries, flat."""
        return self.home / "shared"

    @property
    def patchelf(self) -> Path:
        return self.home / "usr/bin/patchelf"

    @property
    def through_loader(self) -> tuple[str | Path, ...]:
        """The words before the program that run it with its own C library."""
        return (self.libraries / self.record.loader, "--library-path", self.libraries)


def cached(cache: Path) -> Runtime | None:
    """Return the newest runtime in the cache; ask no network."""
    found = []
    for path in (cache / ROOM).glob(f"*/{RECORD}"):
        record = Record(**json.loads(path.read_text()))
        if record.recipe == recipe():
            found.append((path.stat().st_mtime, Runtime(path.parent, path.parent.name, record)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def recipe() -> str:
    """Return the name of this way of unpacking."""
    return key_of(
        {"recipe": "layout 1", "packages": " ".join(SHARED_LIBRARIES), "machine": platform.machine()}
    )


def fetch(cache: Path, report: Report) -> Runtime:
    """
    Download and unpack the newest interpreter of the machine's own release.

    Raises:
        PackageMissing: no Python of 3.11 or later, or an unknown architecture.
        StepFailed: apt or dpkg failed.
    """
    log = log_path(cache, "debian")
    machine = apt.this_distribution()
    loader = LOADERS.get(platform.machine())
    if loader is None:
        raise PackageMissing(f"no relocatable interpreter for {platform.machine()}")
    report(f"asking the package mirror for the Python of {machine.codename}")
    with (
        locked(cache, "apt-packages", report),
        apt.open_tree(cache / "tmp/apt-packages", machine.entries, log) as tree,
    ):
        python = newest_python(tree.packages(r"^python3\.[0-9]+-minimal$"))
        names = [
            f"python{python}-minimal",
            f"libpython{python}-minimal",
            f"libpython{python}-stdlib",
            *SHARED_LIBRARIES,
            "patchelf",
        ]
        record = Record(recipe(), python, tree.files(names), loader)
        key = key_of({"recipe": record.recipe, "packages": "\n".join(record.packages)})

        def make(aside: Path) -> None:
            report(f"downloading and unpacking python{python}")
            _unpack(tree, names, Runtime(aside, key, record), log)
            (aside / RECORD).write_text(json.dumps(asdict(record)))

        return Runtime(made(cache, ROOM, key, make, report), key, record)


def newest_python(packages: list[str]) -> str:
    """
    Return the newest minor release among `python3.N-minimal` package names.

    Raises:
        PackageMissing: none is 3.11 or later.
    """
    found = [re.fullmatch(r"python(3)\.(\d+)-minimal", name) for name in packages]
    releases = [(int(match[1]), int(match[2])) for match in found if match]
    best = max((release for release in releases if release >= OLDEST), default=None)
    if best is None:
        raise PackageMissing("the package mirrors offer no Python of 3.11 or later")
    return f"{best[0]}.{best[1]}"


def key(source_root: Path, runtime: Runtime, compiler: Compiler | None) -> str:
    """Return the cache key of the bundle of these sources and this runtime."""
    parts = {
        "runtime": runtime.key,
        "sources": source_digest(source_root),
        "compiler": compiler.name if compiler else "none",
    }
    return "debian-" + key_of(parts)


def assemble(
    source_root: Path, cache: Path, runtime: Runtime, compiler: Compiler | None, report: Report
) -> Path:
    """
    Return the bundle directory, making it if the cache does not have it.

    Without a compiler the bundle has no spawn program; the manifest says so.

    Raises:
        ImportsUnmet: execd imports what the interpreter does not have.
        SourceMissing: execd's entry module or a build source is not there.
        StepFailed: a build step failed; its log is named.
    """
    log = log_path(cache, "debian")
    name = key(source_root, runtime, compiler)

    def make(aside: Path) -> None:
        began = time.monotonic()
        report("assembling the relocatable interpreter and execd")
        lib = f"lib/python{runtime.record.python}"
        plan = {
            "house": dict.fromkeys(HOUSE, str(source_root)),
            "roots": roots(source_root),
            "standins": str(source_root / STANDINS),
            "stdlib": str(runtime.stdlib),
            "dynload": str(runtime.dynload),
            "blob": "",
            "tree": str(aside),
            "app": "app",
            "lib": lib,
            "mount": MOUNT_BUNDLE,
        }
        answer = frozen.ask(runtime.program, plan, log, runtime.through_loader)
        dynload = aside / lib / "lib-dynload"
        dynload.mkdir()
        extensions = [Path(m["path"]) for m in answer["modules"] if m["origin"] == "extension"]
        for path in extensions:
            shutil.copy2(path, dynload)
        (aside / "bin").mkdir()
        program = aside / "bin/python3"
        shutil.copy2(runtime.program, program)
        for library in _libraries(runtime, [program, *extensions], log):
            shutil.copy2(library, aside / "lib")
        loader = f"{MOUNT_BUNDLE}/lib/{runtime.record.loader}"
        argv: list[str | Path] = [runtime.patchelf, "--set-interpreter", loader]
        argv += ["--force-rpath", "--set-rpath", f"{MOUNT_BUNDLE}/lib", program]
        run("patchelf", argv, log=log, seconds=PATCH_SECONDS)
        shutil.copy2(need_source(source_root / ENTRY), aside / "app/entry.py")
        if compiler is not None:
            spawn_program.compile_spawn(source_root, aside / spawn_program.NAME, compiler, log)
        else:
            report("no C compiler on this machine: the bundle has no spawn program")
        manifest = Manifest(
            kind="debian",
            python=answer["python"],
            arch=platform.machine(),
            key=name,
            spawn=compiler.name if compiler else None,
            entrypoint=ENTRYPOINTS["debian"],
            files=(),
        )
        folder.finish(aside, manifest)
        report(f"assembled {len(answer['modules'])} modules in {time.monotonic() - began:.1f} s")

    return made(cache, frozen.ROOM, name, make, report)


def _unpack(tree: apt.Tree, names: list[str], runtime: Runtime, log: Path) -> None:
    archives = runtime.home / "archives"
    for archive in tree.download(names, archives):
        argv: list[str | Path] = ["dpkg-deb", "--extract", archive, runtime.home]
        run(f"unpack {archive.name}", argv, log=log, seconds=UNPACK_SECONDS)
    shutil.rmtree(archives)
    runtime.libraries.mkdir()
    for path in sorted(runtime.home.rglob("*.so*")):
        if path.parent in {runtime.libraries, runtime.dynload} or not path.is_file():
            continue
        # Under their SONAME, which is what the loader asks for.
        if not (runtime.libraries / path.name).exists() and "gconv" not in path.parts:
            shutil.copy2(path, runtime.libraries / path.name)
    for extension in sorted(runtime.dynload.glob("*.so")):
        if any(not (runtime.libraries / name).is_file() for name in _needed(runtime, extension, log)):
            # It wants a library that does not come along (OpenSSL, SQLite, …).
            extension.unlink()


def _libraries(runtime: Runtime, programs: list[Path], log: Path) -> list[Path]:
    """Return the shared libraries that these files need, and the loader."""
    found = {runtime.record.loader: runtime.libraries / runtime.record.loader}
    waiting = list(programs)
    while waiting:
        for name in _needed(runtime, waiting.pop(), log):
            if name not in found:
                found[name] = runtime.libraries / name
                if not found[name].is_file():
                    raise PackageMissing(f"{name} is needed by the interpreter but came with no package")
                waiting.append(found[name])
    return [found[name] for name in sorted(found)]


def _needed(runtime: Runtime, path: Path, log: Path) -> list[str]:
    argv: list[str | Path] = [runtime.patchelf, "--print-needed", path]
    return run("patchelf --print-needed", argv, log=log, seconds=PATCH_SECONDS).decode().split()
