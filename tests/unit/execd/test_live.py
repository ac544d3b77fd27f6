"""The holder of live things."""

import pytest

from execd.live import Live


def test_things_are_held_in_order_until_dropped() -> None:
    """What was added can be found, in order, until it is dropped."""
    live: Live[int] = Live()
    live.add("a", 1)
    live.add("b", 2)
    assert (live.get("a"), live.get("c"), list(live), len(live)) == (1, None, [1, 2], 2)
    assert live.oldest() == ("a", 1)
    assert (live.drop("a"), live.drop("a"), len(live)) == (1, None, 1)


def test_an_id_is_given_once() -> None:
    """Two things never share an id."""
    live: Live[int] = Live()
    live.add("a", 1)
    with pytest.raises(KeyError):
        live.add("a", 2)
    assert Live().oldest() is None
