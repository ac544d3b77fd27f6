"""`resourceLimits` in the units of a container engine (lifecycle §2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from specs.errors import BadRequest

NANO: Final = 1_000_000_000
ALL_GPUS: Final = -1
MOST: Final = (1 << 63) - 1  # what an engine's int64 field holds

UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("kmgt", start=1)},
}

# Bounded: a million digits, or an exponent that stands for as many, take seconds to read.
_CPU: Final = re.compile(
    r"((?:[0-9]{1,10}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,2})?)m?", re.ASCII
)
_MEMORY: Final = re.compile(r"([0-9]+)\s*([A-Za-z]*)", re.ASCII)


def nano_cpus(text: str) -> int:
    """
    Read cores (`1.5`) or thousandths of a core (`500m`).

    Raises:
        BadRequest: not a finite number above zero.
    """
    match = _CPU.fullmatch(text)
    scale = NANO // 1000 if text.endswith("m") else NANO
    nanos = int(Decimal(match[1]) * scale) if match else 0
    if not 0 < nanos <= MOST:
        raise BadRequest(
            'resourceLimits.cpu is not a number above zero; write cores ("1.5") or thousandths ("500m")'
        )
    return nanos


def memory_bytes(text: str) -> int:
    """
    Read a whole number with an optional unit, decimal (`k`, `MB`) or binary (`Mi`).

    Raises:
        BadRequest: not a whole number above zero, or an unknown unit.
    """
    match = _MEMORY.fullmatch(text.strip())
    scale = UNITS.get(match[2].lower()) if match else None
    amount = int(match[1]) * scale if match and scale and len(match[1]) < 20 else 0
    if not 0 < amount <= MOST:
        raise BadRequest(
            "resourceLimits.memory is not a whole number above zero with a known unit; "
            'write "512Mi", "2Gi", "500m" (megabytes) or bytes'
        )
    return amount


def gpus(text: str) -> int:
    """
    Read a count of graphics processors, or `all` as -1.

    Raises:
        BadRequest: neither `all` nor a whole number above zero.
    """
    text = text.strip()
    if text.lower() == "all":
        return ALL_GPUS
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 1 << 31):
        raise BadRequest('resourceLimits.gpu is neither "all" nor a whole number above zero')
    return int(text[:10])
