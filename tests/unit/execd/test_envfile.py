"""The grammar of the environment file."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execd.envfile import MAX_ENTRY, expand, fit, is_name, parse

VARIABLES = {"HOME": "/root", "A": "1"}


def double_quoted(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(plain, escaped)
    return f'"{value}"'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("A=1\nB=2", {"A": "1", "B": "2"}, id="two"),
        pytest.param("# no\n\n  \nA=1\n", {"A": "1"}, id="comments and blanks"),
        pytest.param("A= a b  ", {"A": "a b"}, id="unquoted is trimmed"),
        pytest.param("A=a#b", {"A": "a#b"}, id="a hash inside stays"),
        pytest.param("A=a=b=c", {"A": "a=b=c"}, id="equals signs stay"),
        pytest.param("A=", {"A": ""}, id="empty"),
        pytest.param("A=$HOME/x ${A}y $$ ${ $1", {"A": "/root/x 1y $$ ${ $1"}, id="expanded"),
        pytest.param("A=$NOPE-", {"A": "-"}, id="unknown expands to nothing"),
        pytest.param("A='$HOME \\n \"x\"'", {"A": '$HOME \\n "x"'}, id="single quotes are literal"),
        pytest.param("A='line1\nB=no\nline3'\nC=3", {"A": "line1\nB=no\nline3", "C": "3"}, id="spans lines"),
        pytest.param('A=" a\\n\\t\\r\\\\\\" \\x"', {"A": ' a\n\t\r\\" \\x'}, id="escapes"),
        pytest.param('A="it\'s $HOME"', {"A": "it's /root"}, id="double quotes expand"),
        pytest.param('A="two\nlines"', {"A": "two\nlines"}, id="double quotes span lines"),
        pytest.param("A=1\nA=2", {"A": "2"}, id="last wins"),
        pytest.param("A='' ", {"A": ""}, id="space after the quote"),
        pytest.param("A= 'x'", {"A": "x"}, id="space before the quote"),
    ],
)
def test_an_entry_is_read(text: str, want: dict[str, str]) -> None:
    """Every form of the grammar gives its value."""
    assert parse(text, VARIABLES) == (want, [])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("just text\nB=2", "line 1: no `=`", id="no equals"),
        pytest.param("1A=x\nB=2", "line 1: not a variable name before `=`", id="bad name"),
        pytest.param("B=2\nA='x", "line 2: the quote is never closed", id="unterminated"),
        pytest.param("A='x' y\nB=2", "line 1: text after the closing quote", id="trailing text"),
        pytest.param("A=a\0b\nB=2", "line 1: a NUL character", id="NUL"),
    ],
)
def test_a_broken_entry_is_skipped_and_named(text: str, complaint: str) -> None:
    """A complaint names the line and never the value; other entries count."""
    assert parse(text, {}) == ({"B": "2"}, [complaint])


@given(st.text(alphabet=st.characters(exclude_characters="\0'", exclude_categories=["Cs"])))
def test_single_quotes_round_trip(value: str) -> None:
    """R59: what the client writes in single quotes is read back the same."""
    assert parse(f"X='{value}'\n", VARIABLES)[0] == {"X": value}


@given(st.text(alphabet=st.characters(exclude_characters="\0$", exclude_categories=["Cs"])))
def test_double_quotes_round_trip(value: str) -> None:
    """R59: what the client escapes in double quotes is read back the same."""
    assert parse(f"X={double_quoted(value)}\n", VARIABLES)[0] == {"X": value}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["a b", "a#b", "\"q'", "$HOME", "1\n2", "", "🙂", "a=b=c", "it's", " x "])))
def test_many_entries_round_trip(values: list[str]) -> None:
    """R59: entries one after the other do not disturb each other."""
    text = "".join(
        f"V{at}='{value}'\n" if "'" not in value else f"V{at}={double_quoted(value)}\n"
        for at, value in enumerate(values)
    )
    assert parse(text, {})[0] == {f"V{at}": value for at, value in enumerate(values)}


def test_single_quotes_mean_what_a_shell_means() -> None:
    """The literal form agrees with sh."""
    text = "X='cost $5 ${HOME} \\n tail'\n"
    out = subprocess.run(["sh", "-c", f'{text}printf %s "$X"'], capture_output=True, check=True, timeout=10)
    assert parse(text, VARIABLES)[0]["X"] == out.stdout.decode()


@pytest.mark.parametrize(
    ("name", "good"), [("A", True), ("_a1", True), ("1a", False), ("", False), ("é", False)]
)
def test_names(name: str, good: bool) -> None:
    """A variable's name is a letter or underscore, then letters, digits, underscores."""
    assert is_name(name) is good


def test_unknown_names_are_told() -> None:
    """Whoever must refuse an unset variable learns its name."""
    assert expand("$A/$B/${C}", VARIABLES) == ("1//", ["B", "C"])


def test_entries_fit_the_kernels_bounds() -> None:
    """Each string and all of them together; names are told, values never."""
    long = "é" * (MAX_ENTRY // 2)
    some = {f"N{n}": "y" * 100_000 for n in range(12)}
    kept, complaints = fit({"LONG": long, **some, "SMALL": "1"})
    assert list(kept) == [*(f"N{n}" for n in range(10)), "SMALL"]
    assert [text.partition(":")[0] for text in complaints] == ["LONG", "N10", "N11"]
    assert not any("y" * 9 in text or "é" in text for text in complaints)
    assert fit({"A": "x" * (MAX_ENTRY - 2)}) == ({"A": "x" * (MAX_ENTRY - 2)}, [])
