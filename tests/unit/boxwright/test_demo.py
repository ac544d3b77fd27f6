"""Where the demo finds its key."""

from pathlib import Path

import pytest

from boxwright.access import FIRST_KEY_FILE
from boxwright.demo import DemoFailed, connection


def test_the_kept_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a variable the demo takes the key that `up` keeps in its home."""
    for name in ("OPEN_SANDBOX_API_KEY", "BOXWRIGHT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / FIRST_KEY_FILE).write_text("kept-key\n")
    assert connection("localhost:1", tmp_path).api_key == "kept-key"


def test_no_key_is_one_clear_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no key anywhere the message names the variable and the command."""
    for name in ("OPEN_SANDBOX_API_KEY", "BOXWRIGHT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DemoFailed, match=r"OPEN_SANDBOX_API_KEY.*boxwright up"):
        connection("localhost:1", tmp_path)
