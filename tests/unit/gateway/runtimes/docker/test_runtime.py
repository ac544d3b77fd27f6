"""gateway/runtimes/docker/runtime.py: its small decisions (the verbs: tests/integration/docker)."""

from __future__ import annotations

import pytest

from gateway.runtimes.docker import runtime
from gateway.sandboxes.model import Mount, RegistryAuth, Secret
from specs.errors import StartFailed, VolumeError

MOUNT = Mount("m", "volume", "vol", "/m", subpath="a")


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (
            'invalid mount config for type "bind": bind source path does not exist: /x',
            VolumeError,
            "VOLUME::HOST_PATH_NOT_FOUND",
        ),
        ("Duplicate mount point: /a", VolumeError, "VOLUME::INVALID_MOUNT_PATH"),
        ("no space left on device", StartFailed, "DOCKER::SANDBOX_START_FAILED"),
    ],
)
def test_create_failures_are_sorted(words: str, kind: type[Exception], code: str) -> None:
    """
    A bad mount is the caller's, the rest is the engine's.
    """
    failure = runtime._create_failure(words)

    assert (type(failure), failure.code) == (kind, code)
    assert words in failure.message


@pytest.mark.parametrize("found", [{"Driver": "nfs"}, {"Driver": "local", "Options": {"type": "nfs"}}, {}])
def test_subpaths_need_a_plain_local_volume(found: dict[str, object]) -> None:
    """
    Elsewhere the folder is not where it seems to be.
    """
    with pytest.raises(VolumeError) as caught:
        runtime._check_subpath_driver(MOUNT, found)
    assert caught.value.code == "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER"
    runtime._check_subpath_driver(MOUNT, {"Driver": "local", "Options": None})


def test_credentials_are_compared_by_fingerprint() -> None:
    """
    A failed pull answers only those with the same credentials, and does not keep them.
    """
    one, other = RegistryAuth("u", Secret("p")), RegistryAuth("u", Secret("q"))

    assert runtime._fingerprint(one) != runtime._fingerprint(other)
    assert runtime._fingerprint(one) == runtime._fingerprint(RegistryAuth("u", Secret("p")))
    assert runtime._fingerprint(None) == ""
