"""Line windows at any chunking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.files.lines import LineWindow


def cut(data: bytes, offset: int, limit: int | None, size: int) -> bytes:
    window = LineWindow(offset, limit)
    return b"".join(window.feed(data[at : at + size]) for at in range(0, len(data), size))


@pytest.mark.parametrize(
    ("data", "offset", "limit", "expected"),
    [
        (b"line1\nline2\nline3\nline4\nline5\n", 2, 2, b"line2\nline3"),
        (b"a\nb\nc", 1, None, b"a\nb\nc"),
        (b"a\nb\nc\n", 1, None, b"a\nb\nc"),
        (b"a\nb\nc\n", 3, 5, b"c"),
        (b"a\nb\nc\n", 4, None, b""),
        (b"", 1, None, b""),
        (b"\n", 1, 1, b""),
        (b"\n\n\n", 1, 2, b"\n"),
        (b"a\r\nb\r\n", 1, None, b"a\nb"),
        (b"a\rb\r\nc\r", 1, None, b"a\rb\nc"),
        (b"a\r\r\nb", 1, None, b"a\r\nb"),
        (b"\r\n\r\nx", 1, None, b"\n\nx"),
        (b"a\n", 10**18 - 1, 10**18 - 1, b""),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_windows(data: bytes, offset: int, limit: int | None, expected: bytes, size: int) -> None:
    """Lines lose LF and the CR before it, and are joined by LF without a last one (§7.6)."""
    assert cut(data, offset, limit, size) == expected


def reference(data: bytes, offset: int, limit: int | None) -> bytes:
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    chosen = lines[offset - 1 :] if limit is None else lines[offset - 1 : offset - 1 + limit]
    return b"\n".join(line.removesuffix(b"\r") for line in chosen)


@given(
    st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"bb"]), max_size=12).map(b"".join),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 5)),
    st.integers(1, 6),
)
def test_any_chunking_gives_what_splitting_gives(
    data: bytes, offset: int, limit: int | None, size: int
) -> None:
    """Chunk borders inside of CR LF change nothing."""
    assert cut(data, offset, limit, size) == reference(data, offset, limit)


def test_a_complete_window_wants_no_more() -> None:
    """The reader may stop as soon as the last line of the window is there."""
    window = LineWindow(1, 1)
    assert window.feed(b"a\nb") == b"a"
    assert window.done
    assert window.feed(b"c\nd") == b""


def test_a_huge_line_passes_through_piece_by_piece() -> None:
    """A line of any length is never collected."""
    window = LineWindow(2, 1)
    window.feed(b"first\n")
    assert sum(len(window.feed(b"x" * 65536)) for _ in range(100)) == 6_553_600
