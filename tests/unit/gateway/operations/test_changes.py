"""Waiting for a change neither misses one nor outlives its deadline."""

from __future__ import annotations

import asyncio

from gateway.operations.changes import Changes


async def test_a_change_between_reading_and_waiting_is_not_lost() -> None:
    """A notice that comes while the value is being read leads to another reading."""
    changes, values = Changes(), iter([None, None, "done"])

    async def read() -> str | None:
        value = next(values)
        changes.notify("s")
        await asyncio.sleep(0)
        return value

    assert await changes.until("s", read, 1) == "done"


async def test_the_deadline_holds() -> None:
    """Without a change the answer is None in time, and nothing is kept."""
    changes = Changes()

    async def read() -> str | None:
        return None

    assert await changes.until("s", read, 0.01) is None
    assert changes._waiting == {}
