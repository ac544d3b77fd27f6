"""The rules for metadata, the same on every backend."""

from __future__ import annotations

import pytest

from gateway.sandboxes.metadata import check_labels, patched
from specs.errors import InvalidMetadataLabel, ReservedMetadataLabel


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("a", "", True),
        ("A_b.c-d", "x.y_z-1", True),
        ("k" * 63, "v" * 63, True),
        ("k" * 64, "v", False),
        ("k", "v" * 64, False),
        ("example.com/name", "v", True),
        (".".join(["p" * 62] * 4) + "/n", "v", True),
        ("p" * 254 + "/n", "v", False),
        ("Example.com/n", "v", False),
        ("/n", "v", False),
        ("a/b/c", "v", False),
        ("a/", "v", False),
        ("", "v", False),
        ("-a", "v", False),
        ("a b", "v", False),
        ("a", "v v", False),
        ("a", "a/b", False),
        ("a", "é", False),
        ("a", "🙂", False),
        ("a\n", "v", False),
        ("a", "v\n", False),
        ("opensandbox.io/x", "v", False),
    ],
)
def test_labels(key: str, value: str, good: bool) -> None:
    """Each pair is taken whole or refused with the key and the rule (R23)."""
    if good:
        check_labels({key: value})
        return
    with pytest.raises(InvalidMetadataLabel) as refused:
        check_labels({key: value})
    assert len(refused.value.message) < 400
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("current", "patch", "result"),
    [
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "1"}, {"a": None}, {}),
        ({"a": "1"}, {"b": None}, {"a": "1"}),
        ({"a": "1"}, {"a": "2", "b": ""}, {"a": "2", "b": ""}),
        ({"old key": "1"}, {"old key": None}, {}),
    ],
)
def test_patch(current: dict[str, str], patch: dict[str, str | None], result: dict[str, str]) -> None:
    """A string sets, null removes, the rest stays."""
    before = dict(current)
    assert patched(current, patch) == result
    assert current == before


def test_reserved_keys_have_their_own_code() -> None:
    """A patch of a reserved key is refused whether it sets or removes."""
    for value in ("1", None):
        with pytest.raises(ReservedMetadataLabel):
            patched({}, {"opensandbox.io/x": value})
