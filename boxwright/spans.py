"""Instants and time spans as people read them (pure)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_SPAN: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)


def short(span: timedelta) -> str:
    """Write a span with its two greatest units: `3d4h`, `5m`, `0s`."""
    left = max(0, int(span.total_seconds()))
    parts: list[tuple[int, str]] = []
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, name))
        if len(parts) == 2:
            break
    return "".join(f"{count}{name}" for count, name in parts if count) or "0s"


def instant(text: str) -> datetime:
    """Read an instant of the API. Fractions of more than six digits are cut (Python reads no more)."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))


def parse(text: str) -> timedelta | None:
    """Read `30s`, `10m`, `2h` or `1d`; None for anything else."""
    match = _SPAN.fullmatch(text)
    return None if match is None else timedelta(seconds=int(match[1]) * dict(_UNITS)[match[2]])
