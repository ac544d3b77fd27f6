"""Subpaths of named volumes on engines that cannot mount them.

A sandbox that writes to a volume could swap a folder for a symbolic link between the
moment it is checked and the moment the engine mounts it, and so have any folder of the
host mounted. Therefore the folder is opened without following any link, and what was
opened is bound to a private place whose path nobody else can change; that place is
what the engine mounts. Needs the rights to mount, and the engine on this machine;
engines from API 1.45 on do all this themselves.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MS_BIND: Final = 4096
MNT_DETACH: Final = 2
UMOUNT_NOFOLLOW: Final = 8


class SubpathRefused(Exception):
    """The subpath is not a plain folder inside the volume, or it cannot be held here."""


@dataclass(frozen=True, slots=True)
class Held:
    """One folder of one volume and the private place it is bound to."""

    volume_root: str
    subpath: str
    create: bool
    place: str


def open_inside(root: str, subpath: str, *, create: bool) -> int:
    """
    Open a folder below `root`, following no symbolic link; return its descriptor.

    A folder that is made gets its parent's owner and mode, as the volume's root got the image's.

    Raises:
        SubpathRefused: a component is missing, is no folder, is a link or points up.
    """
    parts = [part for part in subpath.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise SubpathRefused(f"subPath {subpath!r} leaves the volume")
    try:
        at = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SubpathRefused(f"the volume's folder cannot be opened here: {error.strerror}") from error
    try:
        for part in parts:
            below = _step(at, part, subpath, create=create)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def check(root: str, subpath: str, *, create: bool) -> None:
    """Refuse what `open_inside` would refuse."""
    os.close(open_inside(root, subpath, create=create))


def _step(at: int, part: str, subpath: str, *, create: bool) -> int:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        if create:
            _make(at, part)
        return os.open(part, flags, dir_fd=at)
    except FileNotFoundError as error:
        raise SubpathRefused(f"subPath {subpath!r} does not exist in the volume") from error
    except NotADirectoryError as error:
        raise SubpathRefused(f"subPath {subpath!r}: {part!r} is a link or no folder") from error
    except OSError as error:
        raise SubpathRefused(f"subPath {subpath!r}: {part!r}: {error.strerror}") from error


def _make(at: int, part: str) -> None:
    parent = os.stat(f"/proc/self/fd/{at}")
    try:
        os.mkdir(part, 0o700, dir_fd=at)
    except FileExistsError:
        return
    made = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        os.fchown(made, parent.st_uid, parent.st_gid)
        os.fchmod(made, stat.S_IMODE(parent.st_mode))
    finally:
        os.close(made)


@contextmanager
def holding(held: tuple[Held, ...]) -> Iterator[None]:
    """
    Bind each folder to its place while the engine starts the workload.

    The workload's own mounts outlive ours, so ours are taken away at the end.
    """
    done: list[str] = []
    try:
        for one in held:
            _hold(one)
            done.append(one.place)
        yield
    finally:
        for place in done:
            release(place)


def _hold(one: Held) -> None:
    descriptor = open_inside(one.volume_root, one.subpath, create=one.create)
    try:
        make_place(one.place)
        _mount(f"/proc/self/fd/{descriptor}", one.place)
    except OSError as error:
        raise SubpathRefused(
            f"subPath {one.subpath!r} cannot be held for the engine ({error.strerror}): the gateway needs "
            "the rights to mount, or an engine of API 1.45 or newer"
        ) from error
    finally:
        os.close(descriptor)


def make_place(place: str) -> None:
    """Make the empty private folder that a create call may already name."""
    base = Path(place).parent
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(place).mkdir(mode=0o700, exist_ok=True)


def release(place: str) -> None:
    """Unbind and remove a place; one that is not there is fine."""
    libc = ctypes.CDLL(None, use_errno=True)
    while libc.umount2(place.encode(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0:
        pass
    try:
        os.rmdir(place)
    except OSError:
        return  # gone already, or still in use: the next removal tries again


def _mount(source: str, target: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), None, MS_BIND, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
