"""What `up --detach` shows and what `down` chooses."""

from pathlib import Path

import pytest
import typer

from boxwright.background import LOG_BYTES, Progress, chosen, turn_over
from boxwright.running import Record


def record(port: int) -> Record:
    return Record(1, 1, "boot", f"localhost:{port}", port, "0", "")


def test_progress_passes_on_what_is_said_to_people(tmp_path: Path) -> None:
    """Whole lines for people are passed on once, from where the start began; log lines are not."""
    log = tmp_path / "up.log"
    log.write_text("boxwright: of an earlier start\n")
    told: list[str] = []
    progress = Progress(log, log.stat().st_size, told.append)
    with log.open("a") as out:
        out.write('boxwright: engine\n{"event": "x"}\nboxwright: half')
    progress.show()
    progress.show()
    assert told == ["engine"]
    with log.open("a") as out:
        out.write(" a line\n")
    progress.show()
    assert told == ["engine", "half a line"]


def test_a_large_log_is_turned_over(tmp_path: Path) -> None:
    """One older log is kept; a small one goes on."""
    log = tmp_path / "up.log"
    turn_over(log)
    log.write_text("small")
    turn_over(log)
    assert log.exists()
    with log.open("r+b") as file:
        file.truncate(LOG_BYTES + 1)
    turn_over(log)
    assert not log.exists()
    assert (tmp_path / "up.log.1").exists()


def test_down_means_the_only_one_or_the_configured_one() -> None:
    """One gateway is meant wherever it listens; of several the configured port's, or all."""
    assert chosen([record(9)], 8080, every=False) == [record(9)]
    assert chosen([], 8080, every=False) == []
    both = [record(1), record(2)]
    assert chosen(both, 2, every=False) == [record(2)]
    assert chosen(both, 3, every=True) == both
    with pytest.raises(typer.Exit):
        chosen(both, 3, every=False)
