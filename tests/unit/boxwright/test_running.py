"""Records of running gateways and the lock they share."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from boxwright.running import (
    Record,
    StillRunning,
    boot_id,
    end,
    local_domain,
    myself,
    nobody_running,
    recorded,
    running,
    start_ticks,
)


def me(port: int = 8080) -> Record:
    return myself("127.0.0.1", port, "0.1.0", "2026-01-01T00:00:00+00:00")


def test_a_record_lasts_as_long_as_its_with(tmp_path: Path) -> None:
    """Several gateways of one folder are on record at once, each by its port."""
    with recorded(tmp_path, me(1)), recorded(tmp_path, me(2)):
        assert [one.port for one in running(tmp_path)] == [1, 2]
    assert running(tmp_path) == []


@pytest.mark.parametrize(
    "change",
    [{"ticks": 1}, {"boot": "another"}, {"pid": 2**22 + 1}],
    ids=["its id belongs to another process", "the machine was started again", "it is gone"],
)
def test_a_dead_ones_record_is_removed(tmp_path: Path, change: dict[str, object]) -> None:
    """A record proves nothing when the process it names did not start then."""
    stale = dataclasses.replace(me(), **change)  # type: ignore[arg-type]
    (tmp_path / "running-8080.json").write_text(json.dumps(dataclasses.asdict(stale)))
    assert running(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_broken_record_is_no_record(tmp_path: Path, text: str) -> None:
    """What a crash left half written is removed."""
    (tmp_path / "running-1.json").write_text(text)
    assert running(tmp_path) == []


def test_restoring_and_serving_exclude_each_other(tmp_path: Path) -> None:
    """While one runs the folder is not given away, and while it is given away none starts."""
    with (
        recorded(tmp_path, me()),
        pytest.raises(StillRunning, match=rf"{os.getpid()}.*boxwright down"),
        nobody_running(tmp_path),
    ):
        pass
    with nobody_running(tmp_path), pytest.raises(StillRunning, match="restored"), recorded(tmp_path, me()):
        pass


def sleeper() -> tuple[subprocess.Popen[bytes], Record]:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    ticks = start_ticks(process.pid)
    assert ticks is not None
    return process, Record(process.pid, ticks, boot_id(), "localhost:1", 1, "0", "")


@pytest.mark.parametrize(("force", "by"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_ending_signals_the_recorded_process(force: bool, by: signal.Signals) -> None:
    """The process gets TERM, or KILL when forced, and its end is waited for."""
    process, record = sleeper()
    assert end(record, force=force, seconds=20)
    assert process.wait(20) == -by
    assert end(record, force=force, seconds=1)


def test_a_process_that_got_the_id_later_is_left_alone() -> None:
    """A start time that does not fit keeps the signal from a stranger."""
    process, record = sleeper()
    try:
        assert end(dataclasses.replace(record, ticks=record.ticks - 1), force=True, seconds=1)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_one_that_does_not_end_is_told() -> None:
    """Waiting has a limit."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        ticks = start_ticks(process.pid)
        assert ticks is not None
        record = Record(process.pid, ticks, boot_id(), "localhost:1", 1, "0", "")
        try:
            assert not end(record, force=False, seconds=0.05)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("0.0.0.0", "localhost:1"),
        ("::", "localhost:1"),
        ("10.0.0.1", "10.0.0.1:1"),
        ("2001:db8::1", "[2001:db8::1]:1"),
    ],
)
def test_a_listening_address_becomes_one_to_dial(host: str, domain: str) -> None:
    """Every interface means this machine's name for itself."""
    assert local_domain(host, 1) == domain
