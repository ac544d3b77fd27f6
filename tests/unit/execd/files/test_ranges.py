"""Which bytes a Range header names (R77)."""

import pytest

from execd.files.ranges import choose
from specs.errors import RangeNotSatisfiable

FIVE = 5


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("bytes=0-0", FIVE, (0, 1)),
        ("bytes=0-4", FIVE, (0, 5)),
        ("bytes=1-", FIVE, (1, 4)),
        ("bytes=-1", FIVE, (4, 1)),
        ("bytes=-9", FIVE, (0, 5)),
        ("bytes=2-9", FIVE, (2, 3)),
        (f"bytes=0-{2**63 - 1}", FIVE, (0, 5)),
        (f"bytes=-{2**64}", FIVE, (0, 5)),
        (f"bytes=0-{'9' * 5000}", FIVE, (0, 5)),
        ("bytes=000-00000000000000000000000001", FIVE, (0, 2)),
        ("BYTES = 0-1", FIVE, (0, 2)),
        ("bytes=0-0,3-4", FIVE, (0, 1)),
        ("bytes=7-8, 3-4", FIVE, (3, 2)),
        ("bytes=,0-1,", FIVE, (0, 2)),
        ("lines=0-1", FIVE, None),
        ("abc", FIVE, None),
    ],
)
def test_satisfiable_ranges_are_clamped(header: str, size: int, expected: tuple[int, int] | None) -> None:
    """The first range that touches the file is clamped to it; foreign units are ignored (R77)."""
    assert choose(header, size) == expected


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("bytes=5-", FIVE),
        ("bytes=5-9", FIVE),
        (f"bytes={2**64}-", FIVE),
        (f"bytes={'9' * 5000}-", FIVE),
        ("bytes=-0", FIVE),
        ("bytes=0-", 0),
        ("bytes=0-0", 0),
        ("bytes=-1", 0),
    ],
)
def test_ranges_outside_of_the_file_are_refused(header: str, size: int) -> None:
    """A range that touches no byte is not satisfiable (R74, R77)."""
    with pytest.raises(RangeNotSatisfiable) as caught:
        choose(header, size)
    assert caught.value.code == "RANGE_NOT_SATISFIABLE"
    assert str(size) in caught.value.message


@pytest.mark.parametrize(
    "header",
    [
        "bytes=",
        "bytes=-",
        "bytes=abc",
        "bytes=5-4",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=\u0661-2",
        "bytes=0-1,x",
    ],
)
def test_malformed_ranges_have_their_own_code(header: str) -> None:
    """A malformed byte range answers the protocol's code UNKNOWN."""
    with pytest.raises(RangeNotSatisfiable) as caught:
        choose(header, FIVE)
    assert caught.value.code == "UNKNOWN"


def test_a_long_header_is_not_quoted_whole() -> None:
    """An error message stays short whatever the header holds."""
    with pytest.raises(RangeNotSatisfiable) as caught:
        choose("bytes=" + "x" * 10_000, FIVE)
    assert len(caught.value.message) < 250
