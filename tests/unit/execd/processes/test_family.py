"""Which processes belong to a command, as a table."""

from collections.abc import Iterable

import pytest

from execd.processes.family import Process, Table, members, read_stat


def proc(
    pid: int, parent: int, session: int, *, group: int = 0, state: str = "S", started: int = 100
) -> Process:
    return Process(pid, parent, group or session, session, state, started)


BASE = [proc(1, 0, 1), proc(5, 1, 1), proc(10, 5, 10)]  # init, execd, the command


@pytest.mark.parametrize(
    ("more", "marked", "want"),
    [
        pytest.param([], (), {10}, id="alone"),
        pytest.param([proc(11, 10, 10), proc(12, 11, 10)], (), {10, 11, 12}, id="children"),
        pytest.param([proc(11, 10, 11), proc(12, 11, 11)], (), {10, 11, 12}, id="setsid child, by descent"),
        pytest.param([proc(11, 1, 10)], (), {10, 11}, id="orphan in the session"),
        pytest.param([proc(11, 1, 11, group=10)], (), {10, 11}, id="orphan in the group"),
        pytest.param([proc(11, 1, 11)], (), {10}, id="a stranger"),
        pytest.param([proc(11, 1, 11)], (11,), {10, 11}, id="setsid and double fork, by the mark"),
        pytest.param([proc(11, 1, 11), proc(12, 11, 12)], (11,), {10, 11, 12}, id="below a marked one"),
        pytest.param([proc(11, 10, 10, state="Z")], (), {10}, id="a zombie is gone"),
        pytest.param([proc(11, 10, 10, state="Z"), proc(12, 11, 12)], (), {10, 12}, id="below a zombie"),
        pytest.param([], (1, 5), {10}, id="execd and init never, even marked"),
    ],
)
def test_a_family_is_found(more: list[Process], marked: Iterable[int], want: set[int]) -> None:
    """R34, R38: descent, session, group or mark: one is enough; protected ones are never members."""
    found = members(Table([*BASE, *more]), leader=10, session=10, marked=lambda: marked, protected={0, 1, 5})
    assert {process.pid for process in found} == want


def test_a_number_given_out_anew_proves_nothing() -> None:
    """When the leader was reaped and its pid belongs to another process, only the mark counts."""
    table = Table([*BASE, proc(11, 10, 10), proc(20, 1, 20)])
    found = members(table, leader=None, session=10, marked=lambda: [20, 77], protected={0, 1, 5})
    assert {process.pid for process in found} == {20}


def test_earlier_processes_of_a_shell_are_spared() -> None:
    """A run's family leaves out what an earlier run left in the shell's session, unless it is marked."""
    table = Table(
        [*BASE, proc(11, 10, 10, started=50), proc(12, 10, 10, started=200), proc(13, 11, 10, started=50)]
    )
    found = members(table, leader=10, session=10, marked=lambda: (), protected={0, 1, 5}, since=150)
    assert {process.pid for process in found} == {10, 12}


def test_stat_is_read_whatever_the_name_is() -> None:
    """A process may be called `) R 1 (`."""
    line = b"42 (a) R 1 (b) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 2 3"
    process = read_stat(line)
    assert process is not None
    assert (process.pid, process.parent, process.group, process.session) == (42, 7, 8, 9)
    assert (process.state, process.started) == ("S", 12345)
    assert read_stat(b"") is None
    assert read_stat(b"1 (x) S 2") is None
