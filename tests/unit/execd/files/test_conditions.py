"""Conditional headers of a download."""

import pytest

from execd.files.conditions import not_modified, range_applies
from execd.files.dates import http_date

TAG = '"1-2-3"'
AT = 784111777


@pytest.mark.parametrize(
    ("match", "since", "expected"),
    [
        (None, None, False),
        (TAG, None, True),
        (f'"x", W/{TAG}', None, True),
        ("*", None, True),
        ('"x"', None, False),
        ('"x"', http_date(AT), False),
        (None, http_date(AT), True),
        (None, http_date(AT + 1), True),
        (None, http_date(AT - 1), False),
        (None, "nonsense", False),
    ],
)
def test_a_good_copy_is_not_sent_again(match: str | None, since: str | None, expected: bool) -> None:
    """A tag decides alone; a date only without one; a date that cannot be read is ignored."""
    assert not_modified(match, since, TAG, AT) is expected


@pytest.mark.parametrize(
    ("if_range", "expected"),
    [
        (None, True),
        (TAG, True),
        ('"x"', False),
        (f"W/{TAG}", False),
        (http_date(AT), True),
        (http_date(AT + 1), False),
        ("nonsense", False),
    ],
)
def test_a_range_needs_the_very_version(if_range: str | None, expected: bool) -> None:
    """If-Range lets a part be sent only of the version the client has (R77)."""
    assert range_applies(if_range, TAG, AT) is expected
