"""Bytes to lines: the same lines for every way of cutting the input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.output.lines import Lines, boundary, whole_characters
from specs.stream import MAX_LINE


def all_of(parts: list[bytes], *, carriage_return: bool = True, blank: bool = True) -> bytes:
    lines = Lines(carriage_return=carriage_return, blank=blank)
    return b"".join([lines.feed(part) for part in parts]) + lines.flush()


def split(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"a\nb\n", b"a\nb\n", id="LF"),
        pytest.param(b"a\r\nb\r\n\r\nc", b"a\nb\n\nc\n", id="CRLF counts once, blank kept, last line kept"),
        pytest.param(b"10%\r20%\r", b"10%\n20%\n", id="CR ends a line"),
        pytest.param(b"a\r\r\nb", b"a\n\nb\n", id="CR CRLF"),
        pytest.param(b"\n\n", b"\n\n", id="blank lines"),
        pytest.param(b"x", b"x\n", id="no end"),
        pytest.param("é漢🙂\n".encode() * 3, "é漢🙂\n".encode() * 3, id="characters"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_how_the_input_is_cut(data: bytes, want: bytes, size: int) -> None:
    """R39, R40: any split of the input gives the same lines."""
    assert all_of(split(data, size)) == want


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\x00", b"\r").replace(b"\x01", b"\n"))))
def test_any_cut_of_any_bytes_gives_the_same_lines(parts: list[bytes]) -> None:
    """R39, R40: whatever the bytes are, cutting them does not matter."""
    assert all_of(parts) == all_of([b"".join(parts)])


def test_a_carriage_return_is_told_at_once() -> None:
    """R40: a progress line that ends with CR is not held back until the next byte."""
    lines = Lines()
    assert lines.feed(b"10%\r") == b"10%\n"
    assert lines.feed(b"\n") == b""
    assert lines.feed(b"\n") == b"\n"


def test_a_prompt_waits_for_its_end() -> None:
    """R40: two halves of a line are one event."""
    lines = Lines()
    assert lines.feed(b"x") == b""
    assert lines.feed(b"y\n") == b"xy\n"


@pytest.mark.parametrize("size", [1000, 65536, 1 << 20])
def test_a_long_line_comes_in_pieces(size: int) -> None:
    """R91: a line above the limit is cut between characters and nothing is lost."""
    data = ("é漢🙂" * 400_000).encode() + b"\nnext\n"
    out = all_of(split(data, size)).split(b"\n")
    assert out[-2:] == [b"next", b""]
    assert all(0 < len(piece) <= MAX_LINE for piece in out[:-1])
    assert "".join([piece.decode() for piece in out[:-2]]) == "é漢🙂" * 400_000


def test_a_line_of_exactly_the_limit_has_no_blank_line_after_it() -> None:
    """The end of a full line is not taken for an empty one."""
    assert all_of([b"x" * MAX_LINE, b"\n", b"y\n"]) == b"x" * MAX_LINE + b"\ny\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_session_drops_blank_lines_and_keeps_lone_carriage_returns(size: int) -> None:
    """Contract §3.4: in sessions CR is removed only directly before LF, and blank lines are dropped."""
    data = b"\na\r\n\r\n\nb\rc\n\n"
    assert all_of(split(data, size), carriage_return=False, blank=False) == b"a\nb\rc\n"


@pytest.mark.parametrize(
    ("text", "cut", "whole"),
    [("aé", 2, 1), ("a漢", 3, 1), ("a🙂", 4, 1), ("a🙂", 5, 5), ("ab", 2, 2), ("", 0, 0)],
)
def test_an_unfinished_character_is_recognised(text: str, cut: int, whole: int) -> None:
    """R39: only bytes that may still become a character are left off."""
    assert whole_characters(text.encode()[:cut]) == whole


def test_a_boundary_respects_characters_and_gives_up_on_garbage() -> None:
    """A cut moves back to the start of a character; bytes that are none are cut anywhere."""
    assert boundary("a漢b".encode(), 3) == 1
    assert boundary(b"\x80" * 10, 6) == 6
    assert boundary(b"abc", 9) == 3
