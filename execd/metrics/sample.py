"""Measure what the sandbox may use and does use: its own limits and counters, not the host's.

Processor use needs two readings some time apart. While somebody asks, a task takes one each second,
so an answer never waits; only the first question after a pause waits a tenth of a second for its
second reading. Where a limit is not set, the host's number stands in for it; where the control group
keeps no counters (a root group, a kernel without the controller), the host's use does.

`cpu_used_pct` is the share of `cpu_count` in use: 100 means that the sandbox is at its limit.

Source: protocol, execd §8.
"""

from __future__ import annotations

import os
import time

from execd.loop import Event, now, sleep, start
from execd.metrics import procfs
from specs.execd import Metrics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BEAT = 1.0  # seconds between two readings
_FIRST = 0.1  # seconds the first question waits for its second reading
_IDLE = 5.0  # seconds without a question after which the beat stops
_MIB = 1 << 20


def read_text(path: str) -> str | None:
    """Read a small file of the kernel; None when it is not there or may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces = []
        while piece := os.read(fd, 65536):
            pieces.append(piece)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(pieces).decode("utf-8", "surrogateescape")


class Sources:
    """Finds and reads the counters. Where they are is looked up once."""

    __slots__ = ("_cpu", "_cpuacct", "_memory", "_processors", "_read", "_ticks")

    def __init__(self, read: Callable[[str], str | None], processors: int, ticks: int) -> None:
        """Take the facts.

        Args:
            read: reads a text file, None when it cannot be read.
            processors: how many processors this process may be put on.
            ticks: clock ticks per second.
        """
        self._read = read
        self._processors = processors
        self._ticks = ticks
        groups = read("/proc/self/cgroup") or ""
        mounts = read("/proc/self/mountinfo") or ""
        self._cpu = procfs.find_group(groups, mounts, "cpu")
        self._cpuacct = procfs.find_group(groups, mounts, "cpuacct")
        self._memory = procfs.find_group(groups, mounts, "memory")

    def cpu_count(self) -> float:
        """Return how many processors may be used: the tightest quota, or the processors there are."""
        count = float(self._processors)
        place = self._cpu
        for directory in place.directories if place is not None else ():
            if place is not None and place.version == 2:
                quota = procfs.read_cpu_max(self._read(f"{directory}/cpu.max"))
            else:
                quota = procfs.read_cfs(
                    self._read(f"{directory}/cpu.cfs_quota_us"), self._read(f"{directory}/cpu.cfs_period_us")
                )
            if quota is not None:
                count = min(count, quota)
        return count

    def cpu_nanoseconds(self) -> int:
        """Return the processor time used so far."""
        place = self._cpuacct
        if place is not None:
            own = place.directories[0]
            if place.version == 2:
                spent = procfs.read_keyed(self._read(f"{own}/cpu.stat"), "usage_usec")
                if spent is not None:
                    return spent * 1000
            else:
                spent = procfs.read_number(self._read(f"{own}/cpuacct.usage"))
                if spent is not None:
                    return spent
        return procfs.read_stat(self._read("/proc/stat") or "", self._ticks) or 0

    def memory(self) -> tuple[int, int]:
        """Return (total, in use) in bytes; page cache that can be dropped at once is not in use."""
        total, used = procfs.read_meminfo(self._read("/proc/meminfo") or "")
        place = self._memory
        if place is None:
            return total, used
        usage, limit, cache = (
            ("memory.current", "memory.max", "inactive_file")
            if place.version == 2
            else ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")
        )
        for directory in place.directories:
            allowed = procfs.read_number(self._read(f"{directory}/{limit}"))
            if allowed is not None and (allowed < total or not total):
                total = allowed
        own = place.directories[0]
        charged = procfs.read_number(self._read(f"{own}/{usage}"))
        if charged is not None:
            used = max(0, charged - (procfs.read_keyed(self._read(f"{own}/memory.stat"), cache) or 0))
        return total, used


def host_sources() -> Sources:
    """Return the sources of the machine that we run on."""
    return Sources(read_text, len(os.sched_getaffinity(0)), os.sysconf("SC_CLK_TCK"))


class Sampler:
    """Answers `GET /metrics`. Costs nothing while nobody asks."""

    __slots__ = ("_asked", "_beating", "_clock", "_newer", "_older", "_sources")

    def __init__(self, sources: Sources | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        """Take the sources and the wall clock; nothing is read yet."""
        self._sources = sources
        self._clock = clock
        self._older: tuple[float, int] | None = None
        self._newer: tuple[float, int] | None = None
        self._asked = 0.0
        self._beating: Event | None = None

    async def current(self) -> Metrics:
        """Return the present numbers."""
        if self._sources is None:
            self._sources = host_sources()
        sources = self._sources
        self._asked = now()
        if self._beating is None:
            self._beating = Event()
            self._older = self._newer = self._reading(sources)
            start(self._beat(sources, self._beating), "sample metrics")
            await sleep(_FIRST)
        else:
            await self._beating.wait()
        count = sources.cpu_count()
        total, used = sources.memory()
        return Metrics(
            cpu_count=_round(count),
            cpu_used_pct=_round(self._share(self._reading(sources), count)),
            mem_total_mib=_round(total / _MIB),
            mem_used_mib=_round(used / _MIB),
            timestamp=self._clock() // 1_000_000,
        )

    def _reading(self, sources: Sources) -> tuple[float, int]:
        return now(), sources.cpu_nanoseconds()

    def _share(self, latest: tuple[float, int], count: float) -> float:
        base = self._older or latest
        elapsed = latest[0] - base[0]
        if elapsed <= 0 or count <= 0:
            return 0.0
        return min(100.0, max(0.0, (latest[1] - base[1]) / 1e9 / elapsed / count * 100))

    async def _beat(self, sources: Sources, ready: Event) -> None:
        """Keep a reading that is between one and two beats old, until nobody has asked for a while."""
        try:
            await sleep(_FIRST)
            ready.set()
            while now() - self._asked < _IDLE:
                await sleep(_BEAT)
                self._older, self._newer = self._newer, self._reading(sources)
        finally:
            ready.set()
            self._beating = None


def _round(value: float) -> float:
    return round(value, 2)
