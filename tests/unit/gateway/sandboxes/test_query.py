"""What a list call asks for."""

from __future__ import annotations

import pytest

from gateway.sandboxes.query import Filter, Page, parse_filter, parse_pairs, refuse_unknown
from specs.errors import BadRequest, InvalidMetadataFormat


@pytest.mark.parametrize(
    ("given", "states"),
    [
        (None, None),
        ([], ()),
        (["Running"], ("Running",)),
        (["running", "PAUSED", "running"], ("Paused", "Running")),
        (["nope"], ()),
        (["nope", "failed"], ("Failed",)),
        ([""], ()),
    ],
)
def test_states(given: list[str] | None, states: tuple[str, ...] | None) -> None:
    """Case does not matter; what does not exist matches nothing, never everything."""
    assert parse_filter(given, None) == Filter(states, ())


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (None, ()),
        ("a=1", (("a", "1"),)),
        ("a=1&b=2", (("a", "1"), ("b", "2"))),
        ("a=", (("a", ""),)),
        ("a%2Fb=c%20d", (("a/b", "c d"),)),
        ("a=1=2", (("a", "1=2"),)),
    ],
)
def test_pairs(text: str | None, pairs: tuple[tuple[str, str], ...]) -> None:
    """Pairs are decoded once more than the query was."""
    assert parse_pairs(text) == pairs


@pytest.mark.parametrize("text", ["", "broken", "a=1&", "&", "=1", "a=1&b", "a=%ff", "&".join(["a=1"] * 65)])
def test_bad_pairs(text: str) -> None:
    """A filter that cannot be read is refused."""
    with pytest.raises(InvalidMetadataFormat):
        parse_pairs(text)


def test_unknown_parameters() -> None:
    """A mistyped parameter is named, with those there are."""
    refuse_unknown(["state", "pageSize"])
    with pytest.raises(BadRequest, match=r"'stat'.*metadata, page, pageSize, state"):
        refuse_unknown(["page", "stat"])


@pytest.mark.parametrize(("total", "size", "pages"), [(0, 20, 0), (1, 20, 1), (20, 20, 1), (21, 20, 2)])
def test_pages(total: int, size: int, pages: int) -> None:
    """Page counts round up; nothing makes no page."""
    assert Page(1, size).count(total) == pages
    assert Page(3, size).offset == 2 * size
