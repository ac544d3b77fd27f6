"""Which volumes may be mounted where."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.sandboxes.model import Mount
from gateway.sandboxes.volumes import host_paths, plan_mounts
from specs.errors import VolumeError
from specs.lifecycle import Volume

ALLOWED = ("/srv/data", "/mnt/x")


def volume(**changes: Any) -> Volume:
    return Volume.model_validate({"name": "v", "mountPath": "/data", "pvc": {"claimName": "c"}, **changes})


def host(path: str, **changes: Any) -> Volume:
    return volume(pvc=None, host={"path": path}, **changes)


def code(volumes: list[Volume], allowed: tuple[str, ...] = ALLOWED, **resolved: str) -> str | None:
    try:
        plan_mounts(volumes, allowed, {path: resolved.get("real", path) for path in host_paths(volumes)})
    except VolumeError as error:
        assert error.message.startswith("volume ")
        return error.code.removeprefix("VOLUME::")
    return None


@pytest.mark.parametrize(
    ("path", "real", "expected"),
    [
        ("/srv/data", "/srv/data", None),
        ("/srv/data/a", "/srv/data/a", None),
        ("/srv/data/a", "/mnt/x/b", None),
        ("/srv/data2", "/srv/data2", "HOST_PATH_NOT_ALLOWED"),
        ("/", "/", "HOST_PATH_NOT_ALLOWED"),
        ("/proc", "/proc", "HOST_PATH_NOT_ALLOWED"),
        ("/var/run/docker.sock", "/run/docker.sock", "HOST_PATH_NOT_ALLOWED"),
        ("/srv/data/link", "/etc", "HOST_PATH_NOT_ALLOWED"),
        ("/link-to-data", "/srv/data", "HOST_PATH_NOT_ALLOWED"),
        ("/srv/data/../../etc", "/etc", "INVALID_HOST_PATH"),
        ("/srv/data/", "/srv/data", "INVALID_HOST_PATH"),
        ("/srv//data", "/srv/data", "INVALID_HOST_PATH"),
        ("//srv/data", "/srv/data", "INVALID_HOST_PATH"),
        ("/srv/data/a:b", "/srv/data/a:b", "INVALID_HOST_PATH"),
        ("C:\\data", "C:\\data", "INVALID_HOST_PATH"),
    ],
)
def test_host_paths(path: str, real: str, expected: str | None) -> None:
    """A host path is allowed as written and as it really is, or refused with its rule (R29)."""
    assert code([host(path)], real=real) == expected
    if expected is None:
        assert code([host(path)], (), real=real) == "HOST_PATH_NOT_ALLOWED"


def test_the_judged_path_is_the_mounted_one() -> None:
    """What is mounted is the resolved path, sub path included."""
    wanted = [host("/srv/data/a", subPath="b", readOnly=True)]
    assert host_paths(wanted) == ("/srv/data/a/b",)
    mounts = plan_mounts(wanted, ALLOWED, {"/srv/data/a/b": "/mnt/x/b"})
    assert mounts == (Mount("v", "bind", "/mnt/x/b", "/data", read_only=True),)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"subPath": "a/b"}, None),
        ({"subPath": ""}, None),
        ({"subPath": "/a"}, "INVALID_SUB_PATH"),
        ({"subPath": "a/../../b"}, "INVALID_SUB_PATH"),
        ({"subPath": "..", "readOnly": True}, "INVALID_SUB_PATH"),
        ({"mountPath": "/a/../b"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "/"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "//"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "/a:ro"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "/opt/boxwright"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "/opt"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "/run/boxwright/env"}, "INVALID_MOUNT_PATH"),
        ({"mountPath": "/opt/boxwright2"}, None),
        (
            {"pvc": None, "ossfs": {"bucket": "bbb", "endpoint": "e"}},
            "UNSUPPORTED_BACKEND",
        ),
    ],
)
def test_other_rules(changes: dict[str, Any], expected: str | None) -> None:
    """Each rule has its code."""
    assert code([volume(**changes)]) == expected


def test_names_and_places_are_used_once() -> None:
    """Two volumes share neither name nor mount path, however it is spelled."""
    assert code([volume(), volume(mountPath="/other")]) == "DUPLICATE_NAME"
    assert code([volume(), volume(name="w", mountPath="//data/")]) == "INVALID_MOUNT_PATH"


def test_named_volume() -> None:
    """A claim becomes a named volume with its options."""
    wanted = volume(
        subPath="s", pvc={"claimName": "c", "createIfNotExists": False, "deleteOnSandboxTermination": True}
    )
    assert plan_mounts([wanted], (), {}) == (
        Mount("v", "volume", "c", "/data", subpath="s", create=False, delete_with_sandbox=True),
    )
