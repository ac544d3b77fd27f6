"""The clock ends sandboxes once, never against a renewal, and across restarts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from gateway.operations.services import Caller
from gateway.sandboxes.model import SandboxRecord
from specs.errors import Conflict, SandboxNotFound
from tests.fakes.clock import FakeClock
from tests.fakes.gateway import FakeGateway, Running, gateway, settled

CALLER = Caller("first", "first")


def clock_of(site: FakeGateway) -> FakeClock:
    assert isinstance(site.clock, FakeClock)
    return site.clock


async def test_expired_sandboxes_end(site: FakeGateway, gw: Running) -> None:
    """What is due is removed and no longer found; the rest lives, paused or not."""
    short, long, manual = (
        await gw.create(timeout=60),
        await gw.create(timeout=600),
        await gw.create(timeout=None),
    )
    await gw.http.post(f"/sandboxes/{short}/pause")
    clock_of(site).advance(61)
    await gw.http.post(f"/sandboxes/{long}/renew-expiration", json={"expiresAt": "2030-01-01T00:00:00Z"})
    await settled(lambda: short not in site.runtime.workloads)
    assert [await gw.state(one) for one in (short, long, manual)] == ["404", "Running", "Running"]
    events = [event.reason for event in await gw.store.events(short, 10)]
    assert "EXPIRED" in events


async def test_life_is_counted_from_the_create(site: FakeGateway, gw: Running) -> None:
    """A sandbox made later lives its whole time (R17)."""
    clock_of(site).advance(10_000)
    made = await gw.http.get(f"/sandboxes/{await gw.create(timeout=120)}")
    assert made.json()["expiresAt"] == "2026-10-01T10:48:40.000000Z"


async def test_renewal_and_expiry_never_both_win(site: FakeGateway, gw: Running) -> None:
    """Whatever the order, a renewal that was told 200 means that the sandbox lives, and else it is gone (R01)."""
    operations, clock = gw.services.operations, clock_of(site)
    names = [await gw.create(timeout=60) for _ in range(25)]
    clock.advance(60)
    until = clock.now() + timedelta(seconds=600)

    async def renew(sandbox_id: str) -> bool:
        try:
            await operations.renew(sandbox_id, until, CALLER)
        except (SandboxNotFound, Conflict):
            return False
        return True

    outcomes = await asyncio.gather(
        *(work for one in names for work in (renew(one), operations.expire(one), renew(one), renew(one)))
    )
    for number, sandbox_id in enumerate(names):
        first, expired, *others = outcomes[number * 4 : number * 4 + 4]
        renewed = any((first, *others))
        assert renewed != expired
        assert await gw.state(sandbox_id) == ("404" if expired else "Running")
    await settled(lambda: len(site.runtime.workloads) == outcomes[1::4].count(False))


async def test_the_check_is_made_again_before_the_end(site: FakeGateway, gw: Running) -> None:
    """A renewal between the sweep's check and its act saves the sandbox (R01, unit form)."""
    sandbox_id = await gw.create(timeout=60)
    clock, operations, store = clock_of(site), gw.services.operations, gw.services.operations._register.store
    clock.advance(61)
    original, renewed = store.update, asyncio.Event()

    async def slow_update(record: SandboxRecord, *events: object) -> SandboxRecord | None:
        if record.deleted_at is not None and not renewed.is_set():
            renewed.set()
            await operations.renew(sandbox_id, clock.now() + timedelta(hours=1), CALLER)
        return await original(record, *events)  # type: ignore[arg-type]

    store.update = slow_update  # type: ignore[method-assign]
    assert await operations.expire(sandbox_id) is False
    assert await gw.state(sandbox_id) == "Running"


async def test_the_renewed_time_survives_a_restart(tmp_path: Path) -> None:
    """After a restart a renewed sandbox lives on and an overdue one is removed, once (R02)."""
    site = gateway(tmp_path)
    async with site.running() as gw:
        kept, overdue = await gw.create(timeout=120), await gw.create(timeout=120)
        await gw.http.post(f"/sandboxes/{kept}/renew-expiration", json={"expiresAt": "2026-10-01T09:00:00Z"})
    clock_of(site).advance(130)
    async with site.running() as gw:
        await settled(lambda: overdue not in site.runtime.workloads)
        assert await gw.state(kept) == "Running"
        assert (await gw.http.post(f"/sandboxes/{kept}/pause")).status_code == 202
        assert site.runtime.calls.count(("remove", overdue)) == 1
