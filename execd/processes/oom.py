"""Whether the kernel has killed something of ours for lack of memory.

Source: cgroup-v2 memory.events, cgroup-v1 memory.oom_control.
"""

from __future__ import annotations

import os

PLACES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


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
