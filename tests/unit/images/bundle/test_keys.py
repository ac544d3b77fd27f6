"""Cache keys."""

import pytest

from images.bundle.keys import KEY_LENGTH, digest_of, key_of


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": "1"}, {"a": "2"}),
        ({"a": "1"}, {"b": "1"}),
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "1", "b": ""}, {"a": "1"}),
        ({"a": "1:b=1:2"}, {"a": "1", "b": "2"}),
    ],
)
def test_different_inputs_have_different_keys(left: dict[str, str], right: dict[str, str]) -> None:
    """
    No two sets of inputs run together into one text.
    """
    assert key_of(left) != key_of(right)


def test_equal_inputs_have_equal_keys_in_any_order() -> None:
    """
    A key is a short name of the inputs and nothing else.
    """
    assert key_of({"a": "1", "b": b"2"}) == key_of({"b": "2", "a": b"1"})
    assert len(key_of({})) == KEY_LENGTH


def test_a_digest_names_contents_with_their_names() -> None:
    """
    Order does not matter, names and bytes do.
    """
    files = [("a", b"1"), ("b", b"2")]

    assert digest_of(files) == digest_of(reversed(files))
    assert digest_of(files) != digest_of([("a", b"2"), ("b", b"1")])
