"""Cursors."""

import pytest

from execd.http.commands import FAR, _cursor
from specs.errors import InvalidBody


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (None, 0),
        ("", 0),
        ("12", 12),
        (" 7 ", 7),
        ("x", 0),
        ("-0", 0),
        ("1e3", 0),
        ("9" * 5000, FAR),
        ("9" * 18, 10**18 - 1),
    ],
)
def test_a_cursor_is_a_number_of_any_length(text: str | None, want: int) -> None:
    """What is not a number is the beginning, what is beyond all output the end."""
    assert _cursor(text) == want


@pytest.mark.parametrize("text", ["-1", "-" + "9" * 5000])
def test_a_negative_cursor_is_refused(text: str) -> None:
    """Output does not begin before its beginning."""
    with pytest.raises(InvalidBody):
        _cursor(text)
