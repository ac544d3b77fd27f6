"""What is answered about the sandbox's processors and memory."""

import pytest

from execd import loop
from execd.metrics import sample
from specs.execd import Metrics

MEMINFO = "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"
V2 = {
    "/proc/self/cgroup": "0::/\n",
    "/proc/self/mountinfo": "30 25 0:26 / /c ro - cgroup2 cgroup rw\n",
    "/proc/meminfo": MEMINFO,
    "/proc/stat": "cpu  100 0 0 0 0 0 0 0\n",
    "/c/cpu.max": "150000 100000\n",
    "/c/cpu.stat": "usage_usec 1000000\nuser_usec 1\n",
    "/c/memory.max": "536870912\n",
    "/c/memory.current": "209715200\n",
    "/c/memory.stat": "anon 1\ninactive_file 104857600\n",
}
V1 = {
    "/proc/self/cgroup": "3:cpu,cpuacct:/d/x\n4:memory:/d/x\n",
    "/proc/self/mountinfo": (
        "31 30 0:27 /d/x /c/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:28 /d/x /c/memory ro - cgroup cgroup rw,memory\n"
    ),
    "/proc/meminfo": MEMINFO,
    "/c/cpu/cpu.cfs_quota_us": "50000\n",
    "/c/cpu/cpu.cfs_period_us": "100000\n",
    "/c/cpu/cpuacct.usage": "1000000000\n",
    "/c/memory/memory.limit_in_bytes": "536870912\n",
    "/c/memory/memory.usage_in_bytes": "209715200\n",
    "/c/memory/memory.stat": "inactive_file 7\ntotal_inactive_file 104857600\n",
}
MIB = 1 << 20


def sources(files: dict[str, str]) -> sample.Sources:
    return sample.Sources(files.get, 4, 100)


@pytest.mark.parametrize(("files", "count"), [(V2, 1.5), (V1, 0.5)], ids=["v2", "v1"])
def test_the_limits_are_the_containers(files: dict[str, str], count: float) -> None:
    """Quota, limit and use are the container's, without page cache that can be dropped."""
    it = sources(files)
    assert it.cpu_count() == count
    assert it.cpu_nanoseconds() == 1_000_000_000
    assert it.memory() == (512 * MIB, 100 * MIB)


def test_without_limits_the_hosts_stand_in() -> None:
    """No limit is the host's size; the use is still the container's."""
    it = sources({**V2, "/c/cpu.max": "max 100000\n", "/c/memory.max": "max\n"})
    assert it.cpu_count() == 4
    assert it.memory() == (8192 * MIB, 100 * MIB)


def test_without_a_group_everything_is_the_hosts() -> None:
    """A root group keeps no counters."""
    it = sources({"/proc/meminfo": MEMINFO, "/proc/stat": "cpu  100 0 0 50 0 0 0 0\n"})
    assert (it.cpu_count(), it.cpu_nanoseconds()) == (4, 1_000_000_000)
    assert it.memory() == (8192 * MIB, 4096 * MIB)


def test_a_parents_limit_counts() -> None:
    """The tightest limit on the way up is the one that bites."""
    files = {**V2, "/proc/self/cgroup": "0::/a\n", "/c/a/memory.max": "max\n", "/c/a/cpu.max": "max 1\n",
             "/c/a/memory.current": "1048576\n"}  # fmt: skip
    it = sources(files)
    assert it.memory() == (512 * MIB, MIB)
    assert it.cpu_count() == 1.5


def test_the_first_answer_comes_soon_and_measures() -> None:
    """The first question waits a tenth of a second, later ones do not wait."""
    files = dict(V2)

    async def main() -> tuple[Metrics, Metrics, float, float]:
        sampler = sample.Sampler(sources(files), clock=lambda: 1_791_000_000_123_456_789)

        async def burn() -> None:
            await loop.sleep(0.05)
            files["/c/cpu.stat"] = "usage_usec 1075000\n"

        loop.start(burn(), "burn")
        begin = loop.now()
        first = await sampler.current()
        middle = loop.now()
        second = await sampler.current()
        return first, second, middle - begin, loop.now() - middle

    first, second, waited, then = loop.run(main())
    assert 0.08 < waited < 1
    assert then < 0.05
    assert 30 < first.cpu_used_pct <= 50  # 75 ms of 1.5 processors in a little more than 100 ms
    assert second.timestamp == 1_791_000_000_123
    assert (first.mem_total_mib, first.mem_used_mib, first.cpu_count) == (512, 100, 1.5)


def test_two_first_questions_share_one_measurement() -> None:
    """Questions that come together each get a measured answer."""

    async def main() -> list[float]:
        files = dict(V2)
        sampler = sample.Sampler(sources(files))
        tasks = [loop.start(sampler.current(), "a"), loop.start(sampler.current(), "b")]
        await loop.sleep(0.02)
        files["/c/cpu.stat"] = "usage_usec 1030000\n"
        return [(await task.join()).cpu_used_pct for task in tasks]

    assert all(share > 5 for share in loop.run(main()))


def test_the_beat_stops_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read while nobody asks, and the next question begins anew."""
    monkeypatch.setattr(sample, "_IDLE", 0.1)
    monkeypatch.setattr(sample, "_BEAT", 0.02)

    async def main() -> None:
        sampler = sample.Sampler(sources(V2))
        await sampler.current()
        with loop.deadline(5):
            while sampler._beating is not None:
                await loop.sleep(0.02)
        assert (await sampler.current()).cpu_used_pct == 0

    loop.run(main())


def test_this_machine_can_be_read() -> None:
    """The real files of whatever runs the tests give sensible numbers."""
    it = sample.host_sources()
    total, used = it.memory()
    assert 0 < used < total
    assert it.cpu_count() > 0
    assert it.cpu_nanoseconds() > 0
