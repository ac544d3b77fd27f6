"""Which shell the image has."""

import os
from pathlib import Path

import pytest

from execd.processes.shell import Shells
from specs.errors import InvalidBody


def program(path: Path) -> None:
    path.write_text("#!/bin/true\n")
    path.chmod(0o755)


def test_bash_is_preferred_and_a_vanished_one_is_replaced(tmp_path: Path) -> None:
    """R47: bash, else sh; looked up again when the file has gone."""
    program(tmp_path / "sh")
    program(tmp_path / "bash")
    shells = Shells({"PATH": f"relative:{tmp_path}"})
    assert shells.get().path == str(tmp_path / "bash")
    os.unlink(tmp_path / "bash")
    assert (shells.get().name, shells.get().path) == ("sh", str(tmp_path / "sh"))


def test_no_shell_is_a_clear_refusal(tmp_path: Path) -> None:
    """R47: without a shell the message says what works instead."""
    with pytest.raises(InvalidBody, match="argv"):
        Shells({"PATH": str(tmp_path)}).get()
