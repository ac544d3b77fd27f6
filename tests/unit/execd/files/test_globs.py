"""Search patterns: a table, a slow reference, and the time that hostile ones take."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execd.files.globs import BadPattern, Glob


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py", "x y.py"], ["a.pyc", "py", "a.PY"]),
        ("a*", ["a", "abc"], ["ba"]),
        ("*", ["", "a", ".hidden"], []),
        ("**", ["anything"], []),
        ("a.txt", ["a.txt"], ["a_txt", "a.txt.bak", ""]),
        ("?", ["a", "é", "🙂"], ["", "ab"]),
        ("a?c", ["abc"], ["ac", "abbc"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[!a-c]x", ["dx", "-x"], ["ax"]),
        ("[^a-c]x", ["dx"], ["bx"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\]\-]", ["]", "-"], ["\\"]),
        ("{a,b}.txt", ["a.txt", "b.txt"], ["c.txt", "a,b.txt"]),
        ("{a,b{c,d}}", ["a", "bc", "bd"], ["b", "ac"]),
        ("{,x}y", ["y", "xy"], ["zy"]),
        ("*.{c,h}*", ["a.c", "a.hpp"], ["a.o"]),
        (r"\*", ["*"], ["a"]),
        (r"\{a\}", ["{a}"], ["a"]),
        ("!(*.py)", ["a.c", ""], ["a.py"]),
        ("!(a|b)c", ["c", "xc", "abc"], ["ac", "bc"]),
        ("x!(a)", ["x", "xb", "xaa"], ["xa"]),
        ("!x", ["!x"], ["x"]),
        ("a,b|c)", ["a,b|c)"], ["a"]),
        ("a}", ["a}"], []),
        ("**.py", ["a.py"], ["a.c"]),
    ],
)
def test_patterns_without_a_slash_judge_a_base_name(pattern: str, yes: list[str], no: list[str]) -> None:
    """Each element of the pattern language means what the protocol says (§7.4)."""
    glob = Glob(pattern)
    assert not glob.whole_path
    assert [name for name in yes if not glob.matches(name)] == []
    assert [name for name in no if glob.matches(name)] == []


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "a.py", "x/src/a.py"]),
        ("**/a.py", ["a.py", "x/a.py", "x/y/a.py"], ["ba.py", "x/ba.py"]),
        ("src/**", ["src/a", "src/b/c"], ["src", "xsrc/a"]),
        ("src/**/t/*.py", ["src/t/a.py", "src/x/y/t/a.py"], ["src/t/x/a.py", "src/xt/a.py"]),
        ("a/?", ["a/b"], ["a//", "ab"]),
        ("a[!x]b/c", ["a-b/c"], ["a/b/c"]),
        ("./a/b", ["a/b"], ["x/a/b"]),
        ("{a,b/c}/d", ["a/d", "b/c/d"], ["b/d"]),
        ("!(a)/b", ["c/b"], ["a/b", "c/d/b"]),
        ("a**/b", ["axx/b"], ["a/x/b"]),
    ],
)
def test_patterns_with_a_slash_judge_the_relative_path(pattern: str, yes: list[str], no: list[str]) -> None:
    """Only ** between slashes crosses a slash."""
    glob = Glob(pattern)
    assert glob.whole_path
    assert [name for name in yes if not glob.matches(name)] == []
    assert [name for name in no if glob.matches(name)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a", "never closed"),
        ("[]", "never closed"),
        ("{a,b", "never closed"),
        ("!(a", "never closed"),
        ("a\\", "backslash"),
        ("[z-a]", "backwards"),
        ("!(a!(b))", "not supported"),
        ("{" * 20 + "}" * 20, "deep"),
        ("a" * 5000, "at most"),
    ],
)
def test_bad_patterns_say_why(pattern: str, reason: str) -> None:
    """A pattern that cannot be understood is refused with the reason."""
    with pytest.raises(BadPattern, match=reason):
        Glob(pattern)


# -- the reference: a backtracking matcher over the same tree, written for clearness ----------


def lengths(nodes: list[tuple[str, Any]], text: str, at: int) -> Iterator[int]:
    """Yield every position where the nodes can end when they begin at `at`."""
    if not nodes:
        yield at
        return
    (kind, what), rest = nodes[0], nodes[1:]
    ends: set[int] = set()
    reach = at
    while reach < len(text) and text[reach] != "/":
        reach += 1
    if kind == "text":
        ends = {at + len(str(what))} if text.startswith(str(what), at) else set()
    elif kind == "one":
        ends = {at + 1} if at < reach else set()
    elif kind == "star":
        ends = set(range(at, reach + 1))
    elif kind == "deep":
        ends = set(range(at, len(text) + 1))
    elif kind == "dirs":
        ends = {at} | {end for end in range(at + 1, len(text) + 1) if text[end - 1] == "/"}
    elif kind == "class":
        negated, ranges = what
        if at < reach and negated != any(low <= text[at] <= high for low, high in ranges):
            ends = {at + 1}
    elif kind == "either":
        ends = {end for branch in what for end in lengths(branch, text, at)}
    else:
        taken = {end for branch in what for end in lengths(branch, text, at)}
        ends = set(range(at, reach + 1)) - taken
    for end in ends:
        yield from lengths(rest, text, end)


ALPHABET = "ab/-"
pieces = st.sampled_from(["a", "b", "-", "/", "*", "**", "**/", "?", "[ab]", "[!a]", "[a-b/]", r"\*"])
patterns = st.recursive(
    st.lists(pieces, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] + "{" + two[1] + ",a}"),
        st.lists(inner, min_size=2, max_size=2).map("".join),
    ),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(
    patterns,
    st.booleans(),
    st.lists(pieces, max_size=3).map("".join),
    st.text(ALPHABET, max_size=7),
)
def test_the_sets_agree_with_backtracking(start: str, negate: bool, inner: str, name: str) -> None:
    """The position sets find exactly the matches that trying everything finds."""
    glob = Glob(f"{start}!({inner}|b)*" if negate else start)
    if not glob.whole_path:
        name = name.replace("/", "-")  # a base name holds none
    assert glob.matches(name) == (len(name) in set(lengths(glob._nodes, name, 0)))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 500 + "b", "a" * 255),
        ("{a,aa}" * 200 + "b", "a" * 255),
        ("**/" * 300 + "x", "a/" * 2000),
        ("!(*a*a*)b", "a" * 255),
        ("[a-z]*" * 300 + "1", "a" * 255),
    ],
)
def test_hostile_patterns_take_no_long_time(pattern: str, name: str) -> None:
    """Patterns that make a backtracking matcher explode are judged within a moment."""
    glob = Glob(pattern)
    before = time.process_time()
    assert not glob.matches(name)
    assert time.process_time() - before < 1
