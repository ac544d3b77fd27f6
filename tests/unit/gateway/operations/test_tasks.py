"""Server-owned work has an owner and an end."""

from __future__ import annotations

import asyncio

import pytest

from gateway.operations.tasks import Tasks


async def test_a_worker_that_fails_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is no end."""
    monkeypatch.setattr("gateway.operations.tasks.FIRST_DELAY", 0.001)
    runs: list[int] = []
    again = asyncio.Event()

    async def work() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise RuntimeError("broken")
        again.set()
        await asyncio.Event().wait()

    tasks = Tasks()
    tasks.supervise(work, "worker")
    await asyncio.wait_for(again.wait(), 5)
    await tasks.close()
    assert len(runs) == 3


async def test_work_outlives_its_caller() -> None:
    """A cancelled caller does not cancel what it asked for; closing does."""
    tasks, gate, done = Tasks(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    caller = asyncio.get_running_loop().create_task(tasks.finish(work(), "work"))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    gate.set()
    await asyncio.wait_for(done.wait(), 1)
    await tasks.close()
    with pytest.raises(RuntimeError):
        tasks.spawn(work(), "late")
