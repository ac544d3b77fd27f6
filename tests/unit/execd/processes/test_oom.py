"""The kernel's count of out-of-memory kills."""

from pathlib import Path

import pytest

from execd.processes.oom import OomCounter, count, memory_limit


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 0\n", 3),
        (b"oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", 12),
        (b"oom_kill_disable 0\n", 0),
        (b"", 0),
    ],
)
def test_both_forms_are_read(data: bytes, want: int) -> None:
    """cgroup v1 and v2 write the same line."""
    assert count(data) == want


def test_the_count_is_read_anew_each_time(tmp_path: Path) -> None:
    """One open file serves all commands."""
    file = tmp_path / "memory.events"
    file.write_text("oom_kill 1\n")
    counter = OomCounter((str(tmp_path / "none"), str(file)))
    assert counter.read() == 1
    file.write_text("oom_kill 2\n")
    assert counter.read() == 2
    assert OomCounter(()).read() == 0


@pytest.mark.parametrize(("text", "limit"), [("67108864\n", 67108864), ("max\n", None), ("", None)])
def test_the_memory_limit_is_read(tmp_path: Path, text: str, limit: int | None) -> None:
    """The first place that exists says it; `max` is no limit."""
    (tmp_path / "memory.max").write_text(text)
    assert memory_limit((str(tmp_path / "missing"), str(tmp_path / "memory.max"))) == limit


def test_no_control_group_is_no_limit(tmp_path: Path) -> None:
    """Where the kernel does not tell there is nothing to keep to."""
    assert memory_limit((str(tmp_path / "missing"),)) is None
