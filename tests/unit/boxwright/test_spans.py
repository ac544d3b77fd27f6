"""Time spans for people."""

from datetime import UTC, datetime, timedelta

import pytest

from boxwright import spans


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (59, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3600, "1h"),
        (3661, "1h1m"),
        (90_000, "1d1h"),
    ],
)
def test_a_span_is_written_with_two_units(seconds: int, text: str) -> None:
    """The two greatest units are shown, and nothing before zero."""
    assert spans.short(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("5", None), ("", None), ("-1s", None)],
)
def test_a_span_is_read_or_refused(text: str, seconds: int | None) -> None:
    """Only a number with one unit is a span."""
    assert spans.parse(text) == (None if seconds is None else timedelta(seconds=seconds))


def test_nanoseconds_are_cut() -> None:
    """Instants of the engine have nine digits, of which six are kept."""
    assert spans.instant("2026-01-02T03:04:05.123456789Z") == datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)
