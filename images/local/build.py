"""Make the local images that the engine does not have yet.

Packages come from where this machine takes its own, with its keys and its proxies. The
result goes to the engine as one layer; nothing is left on disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from images.bundle import apt, apt_sources
from images.bundle.errors import BundleError
from images.bundle.packages import have
from images.bundle.steps import run
from images.local import rootfs
from images.local.recipes import (
    LABEL_RECIPE,
    REPOSITORY,
    TAG,
    Recipe,
    changes,
    chosen,
    of_release,
    recipe_hash,
    reference,
)
from specs.errors import BoxwrightError

Report = Callable[[str], None]

APP_SOURCE: Final = Path(__file__).with_name("static") / "app.c"
MERGED_USR_HOOK: Final = Path("/usr/share/mmdebstrap/hooks/maybe-merged-usr")
VARIANTS: Final = {"packages": "essential", "unpacked": "extract"}
PEOPLE: Final = "for f in passwd group; do cp usr/share/base-passwd/$f.master etc/$f; done"
QUICK_SECONDS: Final = 60.0
DPKG_OPTIONS: Final = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
)
LEFT_OUT: Final = (
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "var/lib/apt/lists",
    "var/cache/*",
    "var/log/*",
)
# Settings of the machine's apt that say how packages are reached and trusted.
APT_SETTINGS: Final = (
    "Acquire::http",
    "Acquire::https",
    "Acquire::ftp",
    "Acquire::Check-",
    "Acquire::Retries",
)


class ImageStore(Protocol):
    """What is needed of a container engine."""

    async def image_labels(self, image: str) -> dict[str, str] | None:
        """Return an image's labels; None when there is no such image."""
        ...

    async def import_image(self, tar: Path, *, repository: str, tag: str, changes: list[str]) -> None: ...


class LocalImageFailed(BoxwrightError):
    """A local image could not be made; the message says what to do."""

    code = "IMAGE::LOCAL_BUILD_FAILED"


async def ensure(
    names: Iterable[str], engine: ImageStore, report: Report, deadline: float = 600.0
) -> dict[str, str]:
    """
    Make sure that the engine has these local images; return their references by name.

    Args:
        names: of `recipes.NAMES`.
        engine: where they are needed.
        report: told in short sentences what is being made.
        deadline: seconds for all of it.

    Raises:
        LocalImageFailed: something needed is not on this machine, or a step failed.
        TimeoutError: not made within the deadline.
    """
    out: dict[str, str] = {}
    async with asyncio.timeout(deadline) as limit:
        end = limit.when() or 0.0
        for recipe in chosen(names):
            out[recipe.name] = reference(recipe.name)
            ingredients = await asyncio.to_thread(_ingredients, recipe, report)
            recipe_id = recipe_hash(recipe, ingredients)
            labels = await engine.image_labels(out[recipe.name])
            if labels is None or labels.get(LABEL_RECIPE) != recipe_id:
                await _make(recipe, recipe_id, engine, report, end)
    return out


async def _make(recipe: Recipe, recipe_id: str, engine: ImageStore, report: Report, end: float) -> None:
    began = time.monotonic()
    report(f"making image {reference(recipe.name)} from this machine's packages")
    work = Path(tempfile.mkdtemp(prefix="boxwright-image-"))
    tar = work / "root.tar"
    seconds = max(1.0, end - asyncio.get_running_loop().time())
    try:
        await asyncio.to_thread(_root_file_system, recipe, tar, work, seconds)
        await engine.import_image(
            tar, repository=f"{REPOSITORY}/{recipe.name}", tag=TAG, changes=changes(recipe, recipe_id)
        )
    except BundleError as error:
        raise LocalImageFailed(f"image {reference(recipe.name)}: {error.message}") from error
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)
    report(f"image {reference(recipe.name)} made in {time.monotonic() - began:.1f} s")


def _ingredients(recipe: Recipe, report: Report) -> dict[str, str]:
    """Name what this machine contributes, installing what is missing."""
    found = {"machine": platform.machine()}
    try:
        match recipe.kind:
            case "packages" | "unpacked":
                found["release"] = recipe.release or apt.this_distribution().codename
            case "busybox" | "dressed":
                found["busybox"] = _digest(have("busybox", "busybox-static", report))
            case "musl":
                found["busybox"] = _digest(have("busybox", "busybox-static", report))
                have("musl-gcc", "musl-tools", report)
                found["loader"] = _digest(_musl_loader())
                found["app"] = _digest(APP_SOURCE)
            case _:
                found["app"] = _digest(APP_SOURCE)
    except BundleError as error:
        raise LocalImageFailed(f"image {reference(recipe.name)}: {error.message}") from error
    return found


def _root_file_system(recipe: Recipe, tar: Path, work: Path, seconds: float) -> None:
    log = work / "log"
    match recipe.kind:
        case "packages" | "unpacked":
            _bootstrap(recipe, tar, work, log, seconds)
        case "busybox":
            rootfs.busybox(*_busybox(log), tar)
        case "dressed":
            rootfs.dressed(*_busybox(log), tar)
        case "musl":
            gcc = str(have("musl-gcc", "musl-tools", _silent))
            rootfs.musl(*_busybox(log), _musl_loader(), _compiled([gcc], work, log, seconds), tar)
        case _:
            rootfs.program(_compiled([_compiler(), "-static"], work, log, seconds), tar)


def _busybox(log: Path) -> tuple[Path, list[str]]:
    path = have("busybox", "busybox-static", _silent)
    return path, run("busybox --list", [path, "--list"], log=log, seconds=QUICK_SECONDS).decode().split()


def _musl_loader() -> Path:
    """Find musl's loader by the one name that programs linked with musl know (its package puts it there)."""
    return Path(f"/lib/ld-musl-{platform.machine()}.so.1")


def _compiled(compiler: list[str], work: Path, log: Path, seconds: float) -> Path:
    program = work / "app"
    words: list[str | Path] = [*compiler, "-Os", "-s", "-o", program, APP_SOURCE]
    run("compiling app.c", words, log=log, seconds=min(seconds, 120.0))
    return program


def _bootstrap(recipe: Recipe, tar: Path, work: Path, log: Path, seconds: float) -> None:
    machine = apt.this_distribution()
    sources = work / "own.sources"
    entries = of_release(machine.entries, machine.codename, recipe.release)
    sources.write_text(apt_sources.render(entries), encoding="utf-8")
    settings = work / "apt.conf"
    settings.write_text(_apt_settings(log), encoding="utf-8")
    tool = have("mmdebstrap", "mmdebstrap", _silent)
    words: list[str | Path] = [
        tool,
        f"--variant={VARIANTS[recipe.kind]}",
        f"--include={','.join(recipe.packages)}",
    ]
    if MERGED_USR_HOOK.is_dir():
        # Merges /usr as the release does, without the package that needs all of perl for it.
        words.append(f"--hook-dir={MERGED_USR_HOOK}")
    words += [f"--aptopt={settings}", *(f"--dpkgopt={option}" for option in DPKG_OPTIONS)]
    # The sources may name a private mirror, with a password even: they stay here.
    # Without a configuration there is no moment to customize.
    hook = "--extract-hook" if recipe.kind == "unpacked" else "--customize-hook"
    words.append(f'{hook}=cd "$1" && rm -rf {" ".join(LEFT_OUT)}')
    if "python3" in recipe.packages:
        words.append(f'{hook}=ln -sf python3 "$1"/usr/bin/python')
    if recipe.kind == "unpacked":
        # What the script of base-passwd would have done.
        words.append(f'{hook}=cd "$1" && {PEOPLE}')
    words += [recipe.release or machine.codename, tar, sources]
    run("mmdebstrap", words, log=log, seconds=seconds, env={"LC_ALL": "C.UTF-8", "TMPDIR": str(work)})


def _apt_settings(log: Path) -> str:
    lines = (
        run("apt-config dump", ["apt-config", "dump"], log=log, seconds=QUICK_SECONDS).decode().splitlines()
    )
    return "".join(f"{line}\n" for line in lines if line.startswith(APT_SETTINGS))


def _compiler() -> str:
    """Choose a compiler that can link statically: the small C library first, installed if there is none."""
    for name in ("musl-gcc", "cc", "gcc"):
        if shutil.which(name):
            return name
    return str(have("musl-gcc", "musl-tools", _silent))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _silent(sentence: str) -> None:
    """Say nothing: what is needed was installed when the ingredients were named."""
