"""Write and read the dates of HTTP headers.

`datetime` is avoided because importing it costs every sandbox more than these few lines.

Source: RFC 9110 §5.6.7 (IMF-fixdate).
"""

from __future__ import annotations

import time

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FIRST_SECOND = -62135596800  # 0001-01-01T00:00:00Z
_LAST_SECOND = 253402300799  # 9999-12-31T23:59:59Z


def http_date(seconds: int) -> str:
    """Return a moment as an IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`."""
    at = time.gmtime(min(max(seconds, _FIRST_SECOND), _LAST_SECOND))
    day = f"{_DAYS[at[6]]}, {at[2]:02d} {_MONTHS[at[1] - 1]} {at[0]:04d}"
    return f"{day} {at[3]:02d}:{at[4]:02d}:{at[5]:02d} GMT"


def parse_http_date(text: str) -> int | None:
    """Return the second an IMF-fixdate names; None when it is anything else (such a header is ignored)."""
    words = text.split()
    if len(words) != 6 or words[5] != "GMT" or words[2] not in _MONTHS or words[0].rstrip(",") not in _DAYS:
        return None
    clock = words[4].split(":")
    numbers = [words[1], words[3], *clock]
    if len(clock) != 3 or not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in numbers):
        return None
    day, year, hour, minute, second = map(int, numbers)
    if not (1 <= day <= 31 and hour <= 23 and minute <= 59 and second <= 60):
        return None
    return _days(year, _MONTHS.index(words[2]) + 1, day) * 86400 + hour * 3600 + minute * 60 + second


def _days(year: int, month: int, day: int) -> int:
    """Count the days from the epoch to a date of the Gregorian calendar."""
    shifted = year - (month <= 2)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1  # the year is taken to begin in March
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719468
