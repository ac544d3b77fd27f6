"""How much memory the container may have, and whether the kernel has killed something for lack of it.

Source: cgroup-v2 memory.events, memory.max; cgroup-v1 memory.oom_control, memory.limit_in_bytes.
"""

from __future__ import annotations

import os

PLACES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit(places: tuple[str, ...] = LIMITS) -> int | None:
    """Return the container's memory limit in bytes; None when there is none, or the kernel does not tell."""
    for place in places:
        try:
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            text = os.read(fd, 64).strip()
        except OSError:
            continue
        finally:
            os.close(fd)
        return int(text) if text.isdigit() else None
    return None


class OomCounter:
    """The container's count of out-of-memory kills; stays 0 where the kernel does not tell."""

    __slots__ = ("_fd",)

    def __init__(self, places: tuple[str, ...] = PLACES) -> None:
        self._fd = -1
        for place in places:
            try:
                self._fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
                break
            except OSError:
                continue

    def read(self) -> int:
        """Return the count."""
        if self._fd < 0:
            return 0
        try:
            return count(os.pread(self._fd, 4096, 0))
        except OSError:
            return 0


def count(data: bytes) -> int:
    """Read `oom_kill N` out of a cgroup's events."""
    for line in data.splitlines():
        name, _, value = line.partition(b" ")
        if name == b"oom_kill" and value.strip().isdigit():
            return int(value)
    return 0
