"""When a sandbox ends by the clock, and how that may be moved (lifecycle §2.7, §3.5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gateway.sandboxes.model import SandboxRecord
from specs.errors import BadRequest, InvalidExpiration, NoExpirationToRenew


def expires_at(accepted: datetime, timeout: int | None) -> datetime | None:
    """
    Return when a sandbox ends; it lives from the moment it was accepted.

    Raises:
        BadRequest: that is beyond the calendar.
    """
    try:
        return None if timeout is None else accepted + timedelta(seconds=timeout)
    except OverflowError as error:
        raise BadRequest(
            "timeout: ends after the year 9999; ask for less, or leave it out for a sandbox without end"
        ) from error


def is_due(record: SandboxRecord, now: datetime) -> bool:
    """
    Tell whether a record is past its end and nobody has ended it yet.
    """
    return record.deleted_at is None and record.expires_at is not None and record.expires_at <= now


def renewed(record: SandboxRecord, until: datetime, now: datetime) -> SandboxRecord:
    """
    Move the end of a sandbox, later or sooner.

    Raises:
        NoExpirationToRenew: the sandbox has no end by the clock.
        InvalidExpiration: the new end is not ahead of now.
    """
    if record.expires_at is None:
        raise NoExpirationToRenew(
            f"sandbox {record.sandbox_id} was created without a timeout and never expires; delete it when "
            "it is done"
        )
    if until <= now:
        raise InvalidExpiration("expiresAt is not in the future; give an instant ahead of the server's clock")
    return replace(record, expires_at=until)
