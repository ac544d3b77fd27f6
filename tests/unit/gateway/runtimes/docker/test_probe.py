"""gateway/runtimes/docker/probe.py: the judgements, on facts passed in."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.runtimes.docker import probe

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD: dict[str, Any] = {
    "Driver": "overlay2",
    "CgroupVersion": "2",
    "CgroupDriver": "systemd",
    "MemoryLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default"],
    "IPv4Forwarding": True,
    "Runtimes": {"runc": {}, "runsc": {}},
    "DefaultRuntime": "runc",
}


def levels(**changed: Any) -> dict[str, str]:
    return {check.name: check.level for check in probe.from_info(GOOD | changed) if check.level != "ok"}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        ({"Driver": "vfs"}, {"storage driver": "warn"}),
        ({"MemoryLimit": False}, {"limits": "fail"}),
        ({"SecurityOptions": []}, {"seccomp": "fail"}),
        ({"IPv4Forwarding": False}, {"IPv4 forwarding": "fail"}),
    ],
)
def test_the_engines_word_of_itself_is_judged(changed: dict[str, Any], expected: dict[str, str]) -> None:
    """
    What weakens every sandbox fails, what costs only speed warns.
    """
    assert levels(**changed) == expected


def test_whatever_is_not_ok_says_how_to_mend_it() -> None:
    """
    A finding without a fix is no help.
    """
    bad = {"Driver": "vfs", "MemoryLimit": False, "SecurityOptions": None, "IPv4Forwarding": False}
    checks = [*probe.from_info(GOOD | bad), probe.engine_version("1", (1, 20)), probe.nftables(errno.EINVAL)]

    assert all(check.fix for check in checks if check.level != "ok")


@pytest.mark.parametrize(
    ("seconds", "level"), [(0, "ok"), (1.5, "ok"), (-1.5, "ok"), (5, "warn"), (-5, "warn")]
)
def test_clock_skew_is_measured_around_the_call(seconds: float, level: str) -> None:
    """
    Time that the call itself took is no skew.
    """
    theirs = (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    assert probe.clock({"SystemTime": theirs}, NOW, NOW).level == level
    assert probe.clock({}, NOW, NOW).level == "warn"


@pytest.mark.parametrize(
    ("error", "level"), [(None, "ok"), (errno.EPERM, "warn"), (errno.EPROTONOSUPPORT, "warn")]
)
def test_nftables_answer(error: int | None, level: str) -> None:
    """
    Not being allowed to ask is not the same as not being there.
    """
    assert probe.nftables(error).level == level


def test_the_kernel_is_read_from_proc(tmp_path: Path) -> None:
    """
    Missing namespaces fail, missing overlayfs warns.
    """
    (tmp_path / "self" / "ns").mkdir(parents=True)
    for name in ("cgroup", "ipc", "mnt", "net", "pid", "uts"):
        (tmp_path / "self" / "ns" / name).touch()
    (tmp_path / "filesystems").write_text("nodev\tproc\n\text4\n")
    found = {check.name: check for check in probe.kernel(tmp_path)}

    assert found["overlay"].level == "warn"
    assert found["namespaces"].level == "fail"
    assert "user" in found["namespaces"].text


@pytest.mark.parametrize(
    ("content", "text"), [(None, "on (one"), ('{"userland-proxy": false}', "off"), ("{", "cannot be read")]
)
def test_the_userland_proxy_is_read_from_the_engines_file(
    tmp_path: Path, content: str | None, text: str
) -> None:
    """
    No file means the engine's default.
    """
    file = tmp_path / "daemon.json"
    if content is not None:
        file.write_text(content)

    assert text in probe.userland_proxy(file).text


def test_a_missing_folder_is_a_warning() -> None:
    """
    The engine's disk may be out of our sight.
    """
    assert probe.disk({"DockerRootDir": "/nonexistent"}).level == "warn"
    assert probe.disk({"DockerRootDir": "/"}).text.endswith("free in /")
