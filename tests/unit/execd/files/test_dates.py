"""Dates of HTTP headers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.files.dates import http_date, parse_http_date


def test_the_example_of_the_rfc() -> None:
    """The date of RFC 9110 §5.6.7 is written and read."""
    assert http_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT") == 784111777


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001
def test_every_date_is_read_back(moment: datetime) -> None:
    """What is written is read as the same second."""
    seconds = int(moment.replace(tzinfo=UTC, microsecond=0).timestamp())
    assert parse_http_date(http_date(seconds)) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "now", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 25:49:37 GMT",
     "Sun, xx Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "Sun, 06 Nov 99999 08:49:37 GMT"],
)  # fmt: skip
def test_other_dates_are_ignored(text: str) -> None:
    """A date that cannot be read is no date."""
    assert parse_http_date(text) is None


@pytest.mark.parametrize("seconds", [-(10**18), 10**18])
def test_impossible_times_are_clamped(seconds: int) -> None:
    """A file may carry any time; a header stays a header."""
    assert http_date(seconds).endswith("GMT")
