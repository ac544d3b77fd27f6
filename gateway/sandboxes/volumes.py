"""Which volumes may be mounted where (lifecycle §2.8).

A host path is judged twice: as written, and as it really is once every link is followed. The second
form is the one that is mounted.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.sandboxes.model import Mount
from specs.errors import VolumeError
from specs.lifecycle import Volume
from specs.names import MOUNT_BUNDLE, MOUNT_STATE

OWN_MOUNTS: Final = (MOUNT_BUNDLE, MOUNT_STATE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def host_paths(volumes: Sequence[Volume]) -> tuple[str, ...]:
    """
    List the host paths, with `subPath`, whose real form must be looked up before planning.
    """
    return tuple(_written(volume) for volume in volumes if volume.host is not None)


def plan_mounts(
    volumes: Sequence[Volume], allowed: Sequence[str], resolved: Mapping[str, str]
) -> tuple[Mount, ...]:
    """
    Turn the volumes of a request into mounts, or refuse the first bad one.

    Args:
        volumes: as in the request.
        allowed: the folders whose content may be mounted; none means no host path at all.
        resolved: each path of `host_paths` with every link followed.

    Raises:
        VolumeError: with the volume's name, the rule and the fix.
    """
    names: set[str] = set()
    targets: set[str] = set()
    mounts: list[Mount] = []
    for volume in volumes:
        if volume.name in names:
            raise _refusal(volume, "DUPLICATE_NAME", "its name is used twice; give each volume its own")
        names.add(volume.name)
        target = _target(volume)
        if target in targets:
            raise _refusal(volume, "INVALID_MOUNT_PATH", "its mountPath is used twice; mount it elsewhere")
        targets.add(target)
        _check_subpath(volume)
        mounts.append(_mount(volume, target, allowed, resolved))
    return tuple(mounts)


def _mount(volume: Volume, target: str, allowed: Sequence[str], resolved: Mapping[str, str]) -> Mount:
    if volume.host is not None:
        source = _allowed_source(volume, allowed, resolved)
        return Mount(volume.name, "bind", source, target, read_only=volume.read_only)
    if volume.pvc is not None:
        return Mount(
            volume.name,
            "volume",
            volume.pvc.claim_name,
            target,
            read_only=volume.read_only,
            subpath=volume.sub_path or None,
            create=volume.pvc.create_if_not_exists,
            delete_with_sandbox=volume.pvc.delete_on_sandbox_termination,
        )
    raise _refusal(volume, "UNSUPPORTED_BACKEND", "ossfs is not available here; use host or pvc")


def _target(volume: Volume) -> str:
    path = volume.mount_path
    if not path.startswith("/") or ":" in path or _CONTROL.search(path) or ".." in path.split("/"):
        raise _refusal(
            volume,
            "INVALID_MOUNT_PATH",
            "its mountPath is not a plain absolute path; leave out `..`, `:` and controls",
        )
    target = posixpath.normpath("/" + path.lstrip("/"))
    if target == "/":
        raise _refusal(volume, "INVALID_MOUNT_PATH", "its mountPath is the root; mount it in a folder")
    if any(_is_at_or_below(own, target) or _is_at_or_below(target, own) for own in OWN_MOUNTS):
        raise _refusal(
            volume, "INVALID_MOUNT_PATH", "its mountPath covers a folder of the platform; mount it elsewhere"
        )
    return target


def _check_subpath(volume: Volume) -> None:
    path = volume.sub_path
    if not path:
        return
    if path.startswith("/") or ".." in path.split("/") or _CONTROL.search(path) or "\\" in path:
        raise _refusal(
            volume,
            "INVALID_SUB_PATH",
            "its subPath is not relative and plain; leave out a leading `/` and `..`",
        )


def _written(volume: Volume) -> str:
    path = volume.host.path if volume.host is not None else ""
    return posixpath.join(path, volume.sub_path) if volume.sub_path else path


def _allowed_source(volume: Volume, allowed: Sequence[str], resolved: Mapping[str, str]) -> str:
    path = volume.host.path if volume.host is not None else ""
    if not _is_plain(path):
        raise _refusal(
            volume,
            "INVALID_HOST_PATH",
            "its host.path is not a plain absolute path; leave out `..`, `//` and a last `/`",
        )
    real = resolved[_written(volume)]
    if not _is_below_any(path, allowed) or not _is_below_any(real, allowed):
        raise _refusal(
            volume,
            "HOST_PATH_NOT_ALLOWED",
            "its host.path is not below a folder that the operator allowed; ask for it in "
            "storage.allowed_host_paths",
        )
    return real


def _is_plain(path: str) -> bool:
    return (
        path.startswith("/")
        and posixpath.normpath(path) == path
        and not path.startswith("//")
        and not (_CONTROL.search(path) or ":" in path)
    )


def _is_below_any(path: str, folders: Sequence[str]) -> bool:
    return any(_is_at_or_below(path, folder.rstrip("/")) for folder in folders)


def _is_at_or_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _refusal(volume: Volume, code: str, what: str) -> VolumeError:
    return VolumeError(f"volume {volume.name}: {what}", code=f"VOLUME::{code}")
