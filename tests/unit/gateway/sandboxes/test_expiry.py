"""When a sandbox ends by the clock."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.sandboxes.expiry import expires_at, is_due, renewed
from specs.errors import BadRequest, InvalidExpiration, NoExpirationToRenew
from tests.contracts.store import record
from tests.fakes.clock import START


def test_life_begins_when_accepted() -> None:
    """The timeout counts from acceptance; none means never."""
    assert expires_at(START, 60) == START + timedelta(seconds=60)
    assert expires_at(START, None) is None


@pytest.mark.parametrize("timeout", [10**12, 10**30])
def test_an_end_beyond_the_calendar_is_refused(timeout: int) -> None:
    """A timeout that no instant can hold is the caller's mistake."""
    with pytest.raises(BadRequest, match="timeout"):
        expires_at(START, timeout)


@pytest.mark.parametrize(
    ("seconds", "deleted", "due"),
    [(-1, False, True), (0, False, True), (1, False, False), (-1, True, False), (None, False, False)],
)
def test_due(seconds: int | None, deleted: bool, due: bool) -> None:
    """Due is what is over, has an end, and nobody has ended."""
    end = None if seconds is None else START + timedelta(seconds=seconds)
    assert is_due(record(expires_at=end, deleted_at=START if deleted else None), START) is due


@pytest.mark.parametrize("seconds", [1, 10**9])
def test_renewing_takes_any_future(seconds: int) -> None:
    """Sooner or later than before, as long as it is ahead of now."""
    until = START + timedelta(seconds=seconds)
    assert renewed(record(expires_at=START + timedelta(hours=1)), until, START).expires_at == until


def test_refusals() -> None:
    """The past is no end, and a sandbox without an end gets none."""
    with pytest.raises(InvalidExpiration):
        renewed(record(expires_at=START), START, START)
    with pytest.raises(NoExpirationToRenew):
        renewed(record(), START + timedelta(hours=1), START)
