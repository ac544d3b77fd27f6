"""A clock that goes only when told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 10, 1, 8, 0, tzinfo=UTC)


class FakeClock:
    def __init__(self, moment: datetime = START) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
