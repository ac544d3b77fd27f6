"""Paths as callers write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.files.paths import Paths, clean, expand
from specs.errors import InvalidBody

ENVIRON = {"HOME": "/home/u", "WORK": "/w", "EMPTY": "", "A_1": "x"}


def resolve(text: str, *existing: str) -> str:
    return Paths(ENVIRON, "/cwd", exists=set(existing).__contains__).resolve(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/b", "/a/b"),
        ("a", "/cwd/a"),
        ("", ""),
        ("./a/../b//c/", "/cwd/b/c"),
        ("//a", "/a"),
        ("/..", "/"),
        ("/", "/"),
        ("~", "/home/u"),
        ("~/x", "/home/u/x"),
        ("~bob", "/cwd/~bob"),
        ("/~", "/~"),
        ("$WORK/a", "/w/a"),
        ("${WORK}a", "/wa"),
        ("$A_1.txt", "/cwd/x.txt"),
        ("/a$EMPTY", "/a"),
        ("/price$", "/price$"),
        ("/cost$5", "/cost$5"),
        ("/a${", "/a${"),
        ("/a${}", "/a${}"),
        ("/a$$WORK", "/a$/w"),
        ("-rf", "/cwd/-rf"),
        ("a\nb", "/cwd/a\nb"),
        ("report%20name.txt", "/cwd/report%20name.txt"),
        ("/é/漢\udcff", "/é/漢\udcff"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    """Variables, the home directory and the working directory are put in, then dots removed (§7.1, R76)."""
    if not text:
        with pytest.raises(InvalidBody, match="empty"):
            resolve(text)
        return
    assert resolve(text) == expected


def test_an_undefined_variable_is_named() -> None:
    """A variable that is not set refuses the path and is named."""
    with pytest.raises(InvalidBody, match="NOPE") as caught:
        resolve("$NOPE/x")
    assert caught.value.status == 400


def test_a_name_with_a_dollar_is_addressable() -> None:
    """A path that exists as it stands is meant as it stands."""
    assert resolve("/t/$WORK", "/t/$WORK") == "/t/$WORK"
    assert resolve("/t/a$b", "/t/a$b") == "/t/a$b"


def test_a_name_with_a_dollar_can_be_created() -> None:
    """A variable that is not set leaves the text as it stands when its directory exists."""
    assert resolve("/t/a$b", "/t") == "/t/a$b"


def test_a_leading_undefined_variable_is_never_a_name() -> None:
    """A mistyped $DIR does not become a directory of that name in the working directory."""
    with pytest.raises(InvalidBody):
        resolve("$TYPO", "/cwd")


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_is_no_path_is_refused(text: str) -> None:
    """NUL and half surrogate pairs are refused with 400."""
    with pytest.raises(InvalidBody):
        resolve(text)


@given(st.text("ab$X{}_/1", max_size=12))
def test_expansion_keeps_what_it_does_not_know(text: str) -> None:
    """Text without a set variable loses only names that are reported missing."""
    out, missing = expand(text, {})
    if missing is None:
        assert out == text
    assert expand(out, {"X": ""})[0] is not None


@given(st.text("a./", max_size=12))
def test_clean_paths_stay_clean(text: str) -> None:
    """Cleaning twice is cleaning once, and the result has no dots to resolve."""
    once = clean("/" + text)
    assert clean(once) == once
    assert once.startswith("/")
    assert ".." not in once.split("/")
    assert "//" not in once
