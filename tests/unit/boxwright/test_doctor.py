"""What `doctor --fix` does and leaves."""

from pathlib import Path

import pytest

from boxwright.doctor import home_check, listen_check, mend, range_check
from boxwright.engine import EngineMissing
from gateway.config import Settings, load
from gateway.runtimes.docker.probe import Check


def settings(home: Path) -> Settings:
    return load(None, {"BOXWRIGHT_HOME": str(home)})


ENGINE_MISSING = Check("engine", "fail", "does not answer")


def test_an_engine_that_fails_is_brought_up(tmp_path: Path) -> None:
    """The engine is started only when its check failed."""
    started: list[str] = []
    told: list[str] = []

    def start() -> str:
        started.append("engine")
        return "1"

    assert mend(settings(tmp_path), [ENGINE_MISSING], told.append, start)
    tmp_path.chmod(0o700)
    assert not mend(settings(tmp_path), [Check("engine", "ok", "")], told.append, start)
    assert started == ["engine"]


def test_what_is_not_ours_to_start_is_told(tmp_path: Path) -> None:
    """Where we may not install or start, the instruction is passed on and nothing is done."""
    tmp_path.chmod(0o700)
    told: list[str] = []

    def refuse() -> str:
        raise EngineMissing("sudo apt-get install docker.io")

    assert not mend(settings(tmp_path), [ENGINE_MISSING], told.append, refuse)
    assert "sudo apt-get install docker.io" in told[0]


def test_the_state_folder_is_made_for_its_owner(tmp_path: Path) -> None:
    """A missing folder is made, closed to others, and that is said."""
    told: list[str] = []
    home = tmp_path / "a" / "home"
    assert mend(settings(home), [], told.append)
    assert home.stat().st_mode & 0o777 == 0o700
    assert str(home) in told[0]


def test_secrets_that_others_may_read_are_closed(tmp_path: Path) -> None:
    """An open secret fails the check, and --fix takes it out of others' reach."""
    tmp_path.chmod(0o700)
    secret = tmp_path / "secret.key"
    secret.write_bytes(b"x" * 32)
    secret.chmod(0o644)
    assert home_check(settings(tmp_path)).level == "fail"
    told: list[str] = []
    assert mend(settings(tmp_path), [], told.append)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert home_check(settings(tmp_path)).level == "ok"


@pytest.mark.parametrize("level", ["warn", "fail"])
def test_other_checks_are_left_to_people(tmp_path: Path, level: str) -> None:
    """No kernel module is loaded and no setting of the engine changed, whatever failed."""
    tmp_path.chmod(0o700)
    told: list[str] = []
    checks = [Check(name, level, "") for name in ("overlay", "nftables", "disk")]  # type: ignore[arg-type]
    assert not mend(settings(tmp_path), checks, told.append)


def test_ports_are_looked_at() -> None:
    """A free port is ok; what cannot be bound is a warning with the setting to change."""
    assert listen_check("127.0.0.1", 0).level == "ok"
    assert "BOXWRIGHT_PORT" in listen_check("192.0.2.1", 1).fix
    assert range_check("192.0.2.1", 20000, 20100).level == "warn"
