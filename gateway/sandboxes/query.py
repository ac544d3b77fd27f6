"""What a list call asks for (lifecycle §1.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from gateway.sandboxes.model import State
from specs.errors import BadRequest, InvalidMetadataFormat

PARAMETERS: Final = frozenset({"state", "metadata", "page", "pageSize"})
MOST_PAIRS: Final = 64

_STATES: Final = {state.value.lower(): state.value for state in State}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sandboxes are wanted.

    Attributes:
        states: None for any; an empty tuple matches nothing.
        metadata: pairs that must all be there.
    """

    states: tuple[str, ...] | None
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    number: int
    size: int

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.size

    def count(self, total: int) -> int:
        """Return how many pages `total` items make; 0 when there are none."""
        return -(-total // self.size)


def parse_filter(states: Sequence[str] | None, metadata: str | None) -> Filter:
    """
    Read the filters, already decoded once by the HTTP server.

    A state that does not exist matches nothing; it never widens the result.

    Raises:
        InvalidMetadataFormat: `metadata` is not `key=value&key=value`.
    """
    if states is None:
        return Filter(None, parse_pairs(metadata))
    known = {_STATES[state.lower()] for state in states if state.lower() in _STATES}
    return Filter(tuple(sorted(known)), parse_pairs(metadata))


def parse_pairs(text: str | None) -> tuple[tuple[str, str], ...]:
    """
    Read `key=value&key=value`, encoded a second time or not.

    Raises:
        InvalidMetadataFormat: a part has no `=`, a key is empty, or the encoding is broken.
    """
    if text is None:
        return ()
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MOST_PAIRS
        )
    except ValueError as error:
        raise InvalidMetadataFormat(
            "metadata is not of the form key=value&key=value; encode it once"
        ) from error
    if not pairs or any(not key for key, _ in pairs):
        raise InvalidMetadataFormat("metadata has a pair without a key; write key=value&key=value")
    return tuple(pairs)


def refuse_unknown(names: Iterable[str], known: frozenset[str] = PARAMETERS) -> None:
    """
    Refuse query parameters that nobody reads: a mistyped filter must not match everything.

    Raises:
        BadRequest: with the name, and the names there are.
    """
    for name in names:
        if name not in known:
            raise BadRequest(
                f"query parameter {name[:40]!a} does not exist here; there are {', '.join(sorted(known))}"
            )
