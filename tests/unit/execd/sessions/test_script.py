"""What is said to a shell and how its answers are read."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execd.sessions.script import MAX_STATE, Answers, opening, quote, run


@pytest.mark.parametrize("text", ["", "a b", "it's", "'", "''\n'", '$HOME `x` \\ "', "é🙂", "-n", "!"])
def test_a_quoted_text_is_one_literal_word(text: str) -> None:
    """A shell takes it as it is."""
    out = subprocess.run(
        ["sh", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True, timeout=10
    )
    assert out.stdout.decode() == text


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])))
def test_any_text_is_one_literal_word(text: str) -> None:
    """No text gets out of its quotes."""
    out = subprocess.run(
        ["sh", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True, timeout=10
    )
    assert out.stdout.decode() == text


def test_the_number_is_said_last_and_never_to_the_user() -> None:
    """R52: the run's number is in the lines around the user's text, not in what the text can see."""
    told = run("echo hi", mark="s/1", nonce="n0", output="/p", cwd="/a b", bash=True).decode()
    lines = told.splitlines()
    assert "n0" not in "".join(lines[:3])
    assert "command cd -- '/a b'" in lines[2]
    assert "eval 'echo hi' </dev/null >'/p' 2>&1" in lines[2]
    assert lines[-1] == "\\command echo n0"


def test_a_new_shell_carries_on() -> None:
    """What a lost shell said comes first, then the directory."""
    told = opening(bash=True, cwd="/x", state=b"export A='1'\n").decode().splitlines()
    assert told[0] == "\\shopt -s expand_aliases"
    assert told[-1] == "\\command cd -- '/x' >/dev/null"
    assert opening(bash=False, cwd=None, state=None) == b""


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_answers_are_read_at_any_cut(size: int) -> None:
    """Status and state are the same however the bytes arrive; another run's number counts nothing."""
    data = b"old 9\nold\nn1 7\nexport A='n1 8'\nn\nn1\nn1 99\nn1\n"
    answers = Answers()
    answers.expect("n1")
    done = [answers.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert any(done)
    assert answers.status == 7
    assert answers.state == b"export A='n1 8'\nn\n"


def test_without_a_run_nothing_is_an_answer() -> None:
    """What a shell says between runs is dropped."""
    answers = Answers()
    assert not answers.feed(b"n1 0\nn1\n")
    assert answers.status is None


def test_too_much_state_is_dropped() -> None:
    """A shell with megabytes of exports is still answered; only its state is not kept."""
    answers = Answers()
    answers.expect("n1")
    assert not answers.feed(b"n1 0\n")
    for _ in range(MAX_STATE // 65536 + 2):
        assert not answers.feed(b"x" * 65536)
    assert answers.feed(b"\nn1\n")
    assert (answers.status, answers.state) == (0, None)
