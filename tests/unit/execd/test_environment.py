"""The environment of user processes, and directories expanded with it."""

import os
from pathlib import Path

import pytest

from execd.environment import Environment, check_directory, directory
from specs.errors import InvalidBody
from specs.names import ENV_COMMAND_ID


def test_later_layers_win(tmp_path: Path) -> None:
    """Container, then file, then request; the mark cannot be overridden."""
    file = tmp_path / "vars"
    file.write_text("B=file\nC=file\n")
    environment = Environment({"A": "base", "B": "base", "C": "base"}, str(file))
    assert environment.compose({"C": "request $A", ENV_COMMAND_ID: "x"}, "id") == {
        "A": "base",
        "B": "file",
        "C": "request $A",
        ENV_COMMAND_ID: "id",
    }


def test_the_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    """R59: a variable set by one command is there for the next, and gone with the file."""
    file = tmp_path / "env" / "vars"
    environment = Environment({"A": "base"}, str(file))
    assert environment.compose() == {"A": "base"}
    file.parent.mkdir()
    file.write_text("A=1\n")
    assert environment.compose()["A"] == "1"
    with file.open("a") as out:
        out.write("B='x y'\n")
    assert environment.compose() == {"A": "1", "B": "x y"}
    file.unlink()
    assert environment.compose() == {"A": "base"}


def test_a_fifo_in_place_of_the_file_does_not_block(tmp_path: Path) -> None:
    """Whatever the user puts there, composing an environment goes on, and it is told once."""
    told: list[str] = []
    file = tmp_path / "vars"
    os.mkfifo(file)
    environment = Environment({"A": "base"}, str(file), told.append)
    assert environment.compose() == {"A": "base"}
    assert environment.compose() == {"A": "base"}
    assert len(told) == 1


def test_complaints_hold_no_value(tmp_path: Path) -> None:
    """R61: a skipped entry is told of by line, never by content."""
    told: list[str] = []
    file = tmp_path / "vars"
    file.write_text("TOKEN='s3cret\n")
    Environment({}, str(file), told.append).compose()
    assert len(told) == 1
    assert "s3cret" not in told[0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/a/../b", "/b"),
        ("x", "/base/x"),
        ("~", "/home/u"),
        ("~/x", "/home/u/x"),
        ("$D/${D}", "/d/d"),
        ("~x", "/base/~x"),
    ],
)
def test_a_directory_is_expanded(text: str, want: str) -> None:
    """Contract §7.1: variables, then a leading tilde, then relative to ours."""
    assert directory(text, {"D": "/d"}, home="/home/u", base="/base").replace("//", "/") == want


def test_an_unset_variable_is_refused() -> None:
    """A directory that names an unset variable is a mistake, not the rest of the path."""
    with pytest.raises(InvalidBody, match="NOPE"):
        directory("/x/$NOPE", {}, home="/", base="/")


def test_a_directory_must_be_one(tmp_path: Path) -> None:
    """R88: a missing directory or a file is refused before anything starts."""
    file = tmp_path / "f"
    file.touch()
    for path in (str(file), str(tmp_path / "none")):
        with pytest.raises(InvalidBody, match="cwd"):
            check_directory(path)
    assert check_directory(str(tmp_path)) == str(tmp_path)


def test_the_working_directory_may_vanish_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R46: without it `/` takes its place, and whatever is made where it was takes over again."""
    place = tmp_path / "w"
    place.mkdir()
    monkeypatch.chdir(place)
    environment = Environment({}, None)
    assert environment.where() == str(place)
    place.rmdir()
    assert environment.where() == "/"
    assert os.getcwd() == "/"
    place.mkdir()
    assert environment.where() == str(place)
    assert os.getcwd() == str(place)
    place.rename(tmp_path / "moved")
    assert environment.where() == str(tmp_path / "moved")


def test_what_no_process_could_be_given_is_left_out(tmp_path: Path) -> None:
    """An entry that the kernel would refuse does not keep every later command from starting."""
    told: list[str] = []
    file = tmp_path / "vars"
    file.write_text(f"A={'x' * (128 << 10)}\nB=1\n")
    assert Environment({}, str(file), told.append).compose() == {"B": "1"}
    assert len(told) == 1
    assert "A: longer than" in told[0]


def test_complaints_are_bounded(tmp_path: Path) -> None:
    """R61: a file of noise does not fill the log."""
    told: list[str] = []
    file = tmp_path / "vars"
    file.write_text("noise\n" * 1000)
    Environment({}, str(file), told.append).compose()
    assert len(told) == 21
    assert "980 more" in told[-1]
