"""Having a build's programs."""

from pathlib import Path

import pytest

from images.bundle.errors import ToolMissing
from images.bundle.packages import have


def test_a_program_that_is_here_is_found_without_a_word() -> None:
    """Nothing is installed or said when the program is there."""
    said: list[str] = []

    assert have("sh", "dash", said.append).name == "sh"
    assert said == []


def test_what_may_not_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without apt-get the message names the program and its package."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolMissing, match=r"no-such-tool .* no-such-package"):
        have("no-such-tool", "no-such-package", print)
