"""Read the kernel's texts about processors and memory. Pure: texts in, numbers out.

Sources: proc(5) for stat, meminfo, self/cgroup and self/mountinfo; the kernel's
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/{memory,cpuacct}.rst.
"""

from __future__ import annotations

NO_LIMIT = 1 << 60  # cgroup v1 says "no limit" with the largest page-aligned number, about 2**63


class Place:
    """Where a control group's files are: from the group itself up to the top of what is visible.

    Attributes:
        version: 1 or 2.
        directories: the group's directory first, each parent after it.
    """

    __slots__ = ("directories", "version")

    def __init__(self, version: int, directories: list[str]) -> None:
        self.version = version
        self.directories = directories


def find_group(cgroup: str, mountinfo: str, controller: str) -> Place | None:
    """Find the directories that a controller keeps for this process.

    A v1 hierarchy that carries the controller wins over the unified one, because on a hybrid
    system the unified one has no controllers.

    Args:
        cgroup: the text of /proc/self/cgroup.
        mountinfo: the text of /proc/self/mountinfo.
        controller: `cpu`, `cpuacct` or `memory`.
    """
    unified: str | None = None
    v1: str | None = None
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            unified = path
        elif controller in controllers.split(","):
            v1 = path
    for version, own in ((1, v1), (2, unified)):
        if own is None:
            continue
        for root, point in _mounts(mountinfo, version, controller):
            return Place(version, _upwards(point, _below(own, root)))
    return None


def _mounts(mountinfo: str, version: int, controller: str) -> list[tuple[str, str]]:
    """Return (root, mount point) of each mount of the hierarchy."""
    out: list[tuple[str, str]] = []
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" if version == 2 else kind[0] == "cgroup" and controller in kind[2].split(","):
            out.append((_unescape(fields[3]), _unescape(fields[4])))
    return out


def _unescape(text: str) -> str:
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, char)
    return text


def _below(path: str, root: str) -> str:
    """Return a group's path as seen from a mount's root; "" when it is that root or outside of it."""
    if root == "/":
        return path.strip("/") if not path.startswith("/..") else ""
    if path.startswith(root + "/"):
        return path[len(root) + 1 :]
    return ""


def _upwards(point: str, below: str) -> list[str]:
    out = []
    while below:
        out.append(f"{point}/{below}")
        below = below.rpartition("/")[0]
    return [*out, point]


def read_number(text: str | None) -> int | None:
    """Read a file that holds one number; None for "max", a v1 "no limit", or anything else."""
    if text is None:
        return None
    word = text.strip()
    if not word.isdigit():
        return None
    value = int(word)
    return value if value < NO_LIMIT else None


def read_keyed(text: str | None, key: str) -> int | None:
    """Read one number of a `key value` file such as memory.stat."""
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.strip().isdigit():
            return int(value)
    return None


def read_cpu_max(text: str | None) -> float | None:
    """Read how many processors cpu.max (v2) allows; None when there is no limit."""
    words = (text or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None


def read_cfs(quota: str | None, period: str | None) -> float | None:
    """Read how many processors cpu.cfs_quota_us and cpu.cfs_period_us (v1) allow; None for no limit."""
    limit, length = read_number(quota), read_number(period)
    return limit / length if limit and length else None


def read_meminfo(text: str) -> tuple[int, int]:
    """Return (total, in use) of the host in bytes; what the kernel could free is not in use."""
    kib = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            kib[name] = int(words[0])
    total = kib.get("MemTotal", 0)
    free = kib.get("MemAvailable")
    if free is None:  # before Linux 3.14
        free = kib.get("MemFree", 0) + kib.get("Buffers", 0) + kib.get("Cached", 0)
    return total * 1024, max(0, total - free) * 1024


def read_stat(text: str, ticks: int) -> int | None:
    """Return the nanoseconds that all processors of the host were busy, from /proc/stat.

    Args:
        text: the file.
        ticks: clock ticks per second, sysconf(_SC_CLK_TCK).
    """
    words = text.partition("\n")[0].split()
    if len(words) < 5 or words[0] != "cpu":
        return None
    spent = [int(word) for word in words[1:9]]
    idle = spent[3] + (spent[4] if len(spent) > 4 else 0)  # idle and waiting for I/O
    return (sum(spent) - idle) * 1_000_000_000 // ticks
