"""Decide which bytes a Range header asks for.

Pure. Python's integers do not overflow, so the only arithmetic left is clamping.

Source: RFC 9110 §14; protocol: execd §7.6.
"""

from __future__ import annotations

from specs.errors import RangeNotSatisfiable

_DIGITS_KEPT = 20  # 2**64 has 20 digits: no file reaches past it, so more digits only cost time


def choose(header: str, size: int) -> tuple[int, int] | None:
    """Return (offset, count) of the first satisfiable range, or None to serve the whole file.

    Only one range is ever served. A unit other than bytes is ignored, as the RFC demands.

    Args:
        header: the value of the Range header.
        size: the file's length in bytes.

    Raises:
        RangeNotSatisfiable: the byte ranges are malformed (code `UNKNOWN`, as the protocol has
            it) or none of them touches the file.
    """
    unit, equals, wanted = header.partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return None
    chosen: tuple[int, int] | None = None
    seen = False
    for item in wanted.split(","):
        spec = item.strip(" \t")
        if not spec:
            continue
        seen = True
        span = _span(spec, header, size)
        if chosen is None:
            chosen = span
    if not seen:
        raise _malformed(header)
    if chosen is None:
        raise RangeNotSatisfiable(f"Range {_quote(header)} lies outside of the file, which has {size} bytes")
    return chosen


def _span(spec: str, header: str, size: int) -> tuple[int, int] | None:
    first, dash, last = spec.partition("-")
    first, last = first.strip(" \t"), last.strip(" \t")
    if not dash or not (first or last):
        raise _malformed(header)
    low = _number(first, header) if first else None
    high = _number(last, header) if last else None
    if low is None:
        count = min(high or 0, size)
        return (size - count, count) if count else None
    if high is not None and high < low:
        raise _malformed(header)
    if low >= size:
        return None
    end = size - 1 if high is None else min(high, size - 1)
    return low, end - low + 1


def _number(digits: str, header: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise _malformed(header)
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _DIGITS_KEPT else 10**_DIGITS_KEPT


def _malformed(header: str) -> RangeNotSatisfiable:
    return RangeNotSatisfiable(
        f"Range {_quote(header)} is malformed: write bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT",
        code="UNKNOWN",
    )


def _quote(header: str) -> str:
    return repr(header if len(header) <= 80 else header[:77] + "...")
