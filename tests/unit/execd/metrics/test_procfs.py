"""The kernel's texts about processors and memory."""

import pytest

from execd.metrics import procfs

V1_GROUPS = """\
9:name=systemd:/
6:cpu,cpuacct:/docker/abc
4:memory:/docker/abc
0::/
"""
V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw,mode=755
31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro,nosuid master:9 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V2_GROUPS = "0::/\n"
V2_MOUNTS = "30 25 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "controller", "version", "directories"),
    [
        (V1_GROUPS, V1_MOUNTS, "memory", 1, ["/sys/fs/cgroup/memory"]),
        (V1_GROUPS, V1_MOUNTS, "cpuacct", 1, ["/sys/fs/cgroup/cpu,cpuacct"]),
        (V2_GROUPS, V2_MOUNTS, "memory", 2, ["/sys/fs/cgroup"]),
        ("0::/a/b\n", V2_MOUNTS, "cpu", 2, ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]),
        ("0::/../x\n", V2_MOUNTS, "cpu", 2, ["/sys/fs/cgroup"]),
        ("0::/other\n", V2_MOUNTS.replace(" / /sys", " /mine /sys"), "cpu", 2, ["/sys/fs/cgroup"]),
        ("0::/mine/x\n", V2_MOUNTS.replace(" / /sys", " /mine /sys"), "cpu", 2, ["/sys/fs/cgroup/x", "/sys/fs/cgroup"]),
        ("0::/\n", V2_MOUNTS.replace("/sys/fs/cgroup ", "/my\\040group "), "cpu", 2, ["/my group"]),
        ("4:memory:/process/x\n0::/\n", "32 30 0:28 / /m rw - cgroup cgroup rw,memory\n", "memory", 1,
         ["/m/process/x", "/m/process", "/m"]),
    ],
)  # fmt: skip
def test_a_group_is_found(
    groups: str, mounts: str, controller: str, version: int, directories: list[str]
) -> None:
    """The group's directory and what is above it, as far as it can be seen, in either version."""
    place = procfs.find_group(groups, mounts, controller)
    assert place is not None
    assert (place.version, place.directories) == (version, directories)


@pytest.mark.parametrize(
    ("groups", "mounts"),
    [("", ""), (V2_GROUPS, ""), ("", V2_MOUNTS), ("nonsense", "nonsense"), (V1_GROUPS, "x - y")],
)
def test_no_group_is_none(groups: str, mounts: str) -> None:
    """Without a hierarchy there is no group, and no crash."""
    assert procfs.find_group(groups, mounts, "memory") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024\n", 1024),
        ("max\n", None),
        ("-1\n", None),
        ("", None),
        (None, None),
        ("9223372036854771712\n", None),
    ],
)
def test_numbers(text: str | None, expected: int | None) -> None:
    """A number is read; no limit, in either version's words, is None."""
    assert procfs.read_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None), (None, None), ("1 0", None)],
)
def test_cpu_max(text: str | None, expected: float | None) -> None:
    """The v2 quota is in processors."""
    assert procfs.read_cpu_max(text) == expected


@pytest.mark.parametrize(
    ("quota", "period", "expected"),
    [("50000\n", "100000\n", 0.5), ("-1\n", "100000\n", None), (None, None, None), ("5", "0", None)],
)
def test_cfs(quota: str | None, period: str | None, expected: float | None) -> None:
    """The v1 quota is in processors."""
    assert procfs.read_cfs(quota, period) == expected


def test_keyed_files() -> None:
    """A key is found by its whole name."""
    text = "usage_usec 12\nuser_usec 7\ninactive_file 5\ntotal_inactive_file 9\nbad x\n"
    assert procfs.read_keyed(text, "inactive_file") == 5
    assert procfs.read_keyed(text, "usage") is None
    assert procfs.read_keyed(text, "bad") is None
    assert procfs.read_keyed(None, "x") is None


def test_meminfo() -> None:
    """What can be freed is not in use; old kernels are estimated."""
    text = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nBuffers: 10 kB\nCached: 90 kB\n"
    assert procfs.read_meminfo(text) == (1000 * 1024, 400 * 1024)
    assert procfs.read_meminfo(text.replace("MemAvailable", "x")) == (1000 * 1024, 800 * 1024)
    assert procfs.read_meminfo("") == (0, 0)


def test_stat() -> None:
    """Busy time leaves out idle and waiting, and does not count guests twice."""
    text = "cpu  100 10 50 1000 200 5 5 30 77 77\ncpu0 1 1 1 1\n"
    assert procfs.read_stat(text, 100) == 200 * 10_000_000
    assert procfs.read_stat("", 100) is None
