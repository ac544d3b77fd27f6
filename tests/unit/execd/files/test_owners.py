"""Names and ids."""

import os
from pathlib import Path

import pytest

from execd.files.owners import Directory, groups, refresh, users
from specs.errors import InvalidBody


def test_root_is_known() -> None:
    """The usual databases answer."""
    refresh()
    assert users.name(0) == "root"
    assert groups.number("root") == 0


def test_an_unknown_id_is_told_in_digits() -> None:
    """An id without a name is told as its number (§7.2)."""
    assert users.name(3_999_999_999) == "3999999999"


@pytest.mark.parametrize("text", ["1234567", "0"])
def test_ids_are_accepted_as_names(text: str) -> None:
    """A number in digits needs no entry."""
    assert users.number(text) == int(text)


@pytest.mark.parametrize("text", ["nobody-here", "-1", "4294967295", "99999999999999999999", "\uff11", "a:b"])
def test_unknown_names_are_refused(text: str) -> None:
    """A name that does not exist is a caller's mistake and is named."""
    with pytest.raises(InvalidBody, match="no user") as caught:
        users.number(text)
    assert text in caught.value.message


def test_answers_are_kept_until_the_database_changes(tmp_path: Path) -> None:
    """A look-up happens once, and again after the file changed."""
    database = tmp_path / "passwd"
    database.write_text("x")
    asked: list[int] = []

    def look_up(number: int) -> str:
        asked.append(number)
        return f"n{len(asked)}"

    directory = Directory("user", str(database), look_up, int)
    directory.refresh()
    assert [directory.name(7), directory.name(7)] == ["n1", "n1"]
    directory.refresh()
    assert directory.name(7) == "n1"
    os.utime(database, ns=(1, 1))
    directory.refresh()
    assert directory.name(7) == "n2"
