"""`boxwright status` about a store, and its hints."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boxwright import __version__
from boxwright.__main__ import app
from boxwright.status import hints, store_facts
from gateway.stores.database import Database, migrations


def test_a_store_is_looked_at_without_being_made(tmp_path: Path) -> None:
    """No file is made by asking; one that is there tells its schema, one that is none says so."""
    path = tmp_path / "boxwright.db"
    assert store_facts(path)["schema"] is None
    assert not path.exists()
    Database(path).close()
    assert store_facts(path)["schema"] == len(migrations())
    path.write_text("no database at all, but text that is long enough to be looked at")
    assert "problem" in store_facts(path)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"ready": None}, "up --detach"),
        ({"ready": None, "pid": 7}, "up.log"),
        ({"ready": False, "version": "1", "cli": "1"}, "boxwright doctor"),
        ({"ready": True, "version": "1", "cli": "2"}, "boxwright down"),
    ],
)
def test_what_is_wrong_comes_with_what_to_do(facts: dict[str, object], words: str) -> None:
    """Each state that is not good has a hint with a command."""
    assert words in " ".join(hints(facts))


def test_all_well_needs_no_hint() -> None:
    """A ready gateway of this release is left in peace."""
    assert hints({"ready": True, "version": "1", "cli": "1"}) == []


def test_nothing_running_is_status_one(tmp_path: Path) -> None:
    """Where nothing answers, the status is 1 and the JSON says so."""
    environment = {"BOXWRIGHT_HOME": str(tmp_path), "BOXWRIGHT_PORT": "1", "OPEN_SANDBOX_DOMAIN": ""}
    result = CliRunner().invoke(app, ["status", "-o", "json"], env=environment)
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert (facts["ready"], facts["cli"]) == (None, __version__)
