"""What every container backend promises (`operations.ports.Runtime`), written once.

A subclass gives two fixtures: `runtime`, and `make_plan`, which returns a plan with a fresh id for a workload
that keeps running; keyword arguments replace fields of the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.operations.ports import Runtime
from gateway.sandboxes.model import Mount, SandboxPlan
from specs.errors import SandboxNotFound, VolumeError

MakePlan = Callable[..., SandboxPlan]


def silent(text: str) -> None:
    del text


async def made(runtime: Runtime, plan: SandboxPlan) -> None:
    await runtime.ensure_image(plan.image, plan, None, silent)
    await runtime.create(plan)
    await runtime.start(plan.sandbox_id)


class RuntimeContract:
    async def test_making_twice_makes_one(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """Create and start are idempotent by sandbox id and name the same address again."""
        plan = make_plan()
        await runtime.ensure_image(plan.image, plan, None, silent)
        await runtime.create(plan)
        await runtime.create(plan)
        first = await runtime.start(plan.sandbox_id)
        assert await runtime.start(plan.sandbox_id) == first
        assert [one.sandbox_id for one in await runtime.observe_all()].count(plan.sandbox_id) == 1

    async def test_phases_follow_the_verbs(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """A workload is created, then running, paused, and running again."""
        plan = make_plan()
        await runtime.ensure_image(plan.image, plan, None, silent)
        await runtime.create(plan)
        phases = []
        for act in (None, runtime.start, runtime.pause, runtime.pause, runtime.resume, runtime.resume):
            if act is not None:
                await act(plan.sandbox_id)
            seen = await runtime.observe(plan.sandbox_id)
            assert seen is not None
            phases.append(seen.phase)
        assert phases == ["created", "running", "paused", "paused", "running", "running"]

    async def test_unknown_is_absent(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """A workload that never was is observed as None, and other verbs say that it is not found."""
        sandbox_id = make_plan().sandbox_id
        assert await runtime.observe(sandbox_id) is None
        for verb in (runtime.start, runtime.pause, runtime.resume):
            with pytest.raises(SandboxNotFound):
                await verb(sandbox_id)

    async def test_removing_is_always_fine(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """Remove works in every phase, twice, and on what never was."""
        plan = make_plan()
        await runtime.remove(plan.sandbox_id, volumes=("never-was",), grace_seconds=0)
        await made(runtime, plan)
        await runtime.pause(plan.sandbox_id)
        await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=1)
        assert await runtime.observe(plan.sandbox_id) is None
        await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0)

    async def test_volumes_leave_only_with_their_maker(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """Missing volumes are named before they are made, and removed only for the sandbox that made them."""
        first = make_plan()
        mount = Mount(
            "data", "volume", f"boxwright-test-{first.sandbox_id[:8]}", "/data", delete_with_sandbox=True
        )
        first, second = make_plan(sandbox_id=first.sandbox_id, mounts=(mount,)), make_plan(mounts=(mount,))
        assert await runtime.missing_volumes(first) == (mount.source,)
        await made(runtime, first)
        assert await runtime.missing_volumes(second) == ()
        await made(runtime, second)
        await runtime.remove(second.sandbox_id, volumes=(mount.source,), grace_seconds=0)
        assert await runtime.missing_volumes(second) == ()
        await runtime.remove(first.sandbox_id, volumes=(mount.source,), grace_seconds=0)
        assert await runtime.missing_volumes(first) == (mount.source,)

    async def test_a_volume_that_must_exist_is_missed(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """A missing volume with create switched off is refused by name."""
        plan = make_plan()
        mount = Mount("data", "volume", f"boxwright-test-{plan.sandbox_id[:8]}", "/data", create=False)
        with pytest.raises(VolumeError, match="data") as refused:
            await runtime.missing_volumes(make_plan(mounts=(mount,)))
        assert refused.value.code == "VOLUME::PVC_NOT_FOUND"

    async def test_changes_tell_what_happened(self, runtime: Runtime, make_plan: MakePlan) -> None:
        """The stream shows a workload start, pause and go."""
        plan = make_plan()
        seen: list[str] = []

        async def listen() -> None:
            async for observed in runtime.changes():
                if observed.sandbox_id == plan.sandbox_id:
                    seen.append(observed.phase)
                    if observed.phase == "gone":
                        return

        async with asyncio.timeout(30):
            listening = asyncio.get_running_loop().create_task(listen())
            await made(runtime, plan)
            while "running" not in seen:
                await asyncio.sleep(0.01)
            await runtime.pause(plan.sandbox_id)
            while "paused" not in seen:
                await asyncio.sleep(0.01)
            await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0)
            await listening
        assert seen[-1] == "gone"
