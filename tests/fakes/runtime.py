"""A container engine in memory: true to the runtime contract, and it fails and waits on command."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gateway.operations.ports import Capabilities, Progress
from gateway.sandboxes.model import Address, Observed, RegistryAuth, SandboxPlan
from specs.errors import (
    BoxwrightError,
    EngineUnavailable,
    EntrypointFailed,
    ImageRefused,
    PauseFailed,
    ResumeFailed,
    SandboxNotFound,
    StartFailed,
    VolumeError,
)

FIRST_PORT = 40000


@dataclass
class Workload:
    plan: SandboxPlan
    phase: str = "created"
    address: Address | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    output: str = ""


@dataclass
class FakeRuntime:
    """
    Script it before use:

    Attributes:
        missing_images: images that no registry has.
        ends_at_start: the exit code of workloads that end as soon as they are started.
        failures: errors to raise, by verb, one for each call.
        holds: a verb waits here, after it was called and before it acts.
        unreachable: the engine does not answer at all.
    """

    instance: str = "fake"
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(pause=True))
    missing_images: set[str] = field(default_factory=set)
    ends_at_start: int | None = None
    failures: dict[str, list[BoxwrightError]] = field(default_factory=lambda: defaultdict(list))
    holds: dict[str, asyncio.Event] = field(default_factory=dict)
    unreachable: bool = False
    workloads: dict[str, Workload] = field(default_factory=dict)
    volumes: dict[str, str] = field(default_factory=dict)  # name → the sandbox that made it
    calls: list[tuple[str, str]] = field(default_factory=list)
    closed: bool = False
    _streams: list[asyncio.Queue[Observed]] = field(default_factory=list)
    _ports: int = FIRST_PORT

    # -- the port ----------------------------------------------------------------------

    async def ensure_image(
        self, image: str, plan: SandboxPlan, auth: RegistryAuth | None, progress: Progress
    ) -> None:
        del auth
        if "ensure_image" in self.holds:
            progress(f"pulling {image}")
        await self._enter("ensure_image", plan.sandbox_id)
        if image in self.missing_images:
            raise ImageRefused(f"image {image} was not found; check its name")

    async def missing_volumes(self, plan: SandboxPlan) -> tuple[str, ...]:
        await self._enter("missing_volumes", plan.sandbox_id)
        missing = [
            mount for mount in plan.mounts if mount.kind == "volume" and mount.source not in self.volumes
        ]
        for mount in missing:
            if not mount.create:
                raise VolumeError(
                    f"volume {mount.name}: {mount.source} does not exist", code="VOLUME::PVC_NOT_FOUND"
                )
        return tuple(dict.fromkeys(mount.source for mount in missing))

    async def create(self, plan: SandboxPlan) -> None:
        await self._enter("create", plan.sandbox_id)
        for mount in plan.mounts:
            if mount.kind == "volume":
                self.volumes.setdefault(mount.source, plan.sandbox_id)
        self._fail("create_late")
        self.workloads.setdefault(plan.sandbox_id, Workload(plan))

    async def start(self, sandbox_id: str) -> Address:
        await self._enter("start", sandbox_id)
        workload = self._workload(sandbox_id)
        if workload.phase == "created":
            self._ports += 1
            workload.address = Address("172.17.0.9", 44772, "127.0.0.1", self._ports)
            workload.phase = "running"
            if self.ends_at_start is not None:
                workload.phase, workload.exit_code = "exited", self.ends_at_start
            self._tell(sandbox_id)
        if workload.phase == "exited":
            raise EntrypointFailed(f"the first process ended at once with exit code {workload.exit_code}")
        if workload.address is None:
            raise StartFailed("no address")
        return workload.address

    async def observe(self, sandbox_id: str) -> Observed | None:
        await self._enter("observe", sandbox_id)
        return self._observed(sandbox_id) if sandbox_id in self.workloads else None

    async def observe_all(self) -> list[Observed]:
        await self._enter("observe_all", "")
        return [self._observed(sandbox_id) for sandbox_id in self.workloads]

    async def pause(self, sandbox_id: str) -> None:
        await self._enter("pause", sandbox_id)
        workload = self._workload(sandbox_id)
        if workload.phase not in {"running", "paused"}:
            raise PauseFailed(f"the workload is {workload.phase}")
        workload.phase = "paused"
        self._tell(sandbox_id)

    async def resume(self, sandbox_id: str) -> None:
        await self._enter("resume", sandbox_id)
        workload = self._workload(sandbox_id)
        if workload.phase not in {"running", "paused"}:
            raise ResumeFailed(f"the workload is {workload.phase}")
        workload.phase = "running"
        self._tell(sandbox_id)

    async def remove(self, sandbox_id: str, *, volumes: tuple[str, ...], grace_seconds: int) -> None:
        del grace_seconds
        await self._enter("remove", sandbox_id)
        if self.workloads.pop(sandbox_id, None) is not None:
            self._put(Observed(sandbox_id, "gone", instance=self.instance))
        for name in volumes:
            if self.volumes.get(name) == sandbox_id:
                del self.volumes[name]

    async def logs(self, sandbox_id: str, *, tail: int, since: datetime | None, timestamps: bool) -> str:
        del since
        await self._enter("logs", sandbox_id)
        lines = self._workload(sandbox_id).output.splitlines()[-tail:]
        stamp = "2026-10-01T08:00:00.000000000Z " if timestamps else ""
        return "".join(f"{stamp}{line}\n" for line in lines)

    async def inspect_text(self, sandbox_id: str) -> str:
        await self._enter("inspect_text", sandbox_id)
        return f"Workload: {self._workload(sandbox_id).phase}"

    async def changes(self) -> AsyncIterator[Observed]:
        stream: asyncio.Queue[Observed] = asyncio.Queue()
        self._streams.append(stream)
        for sandbox_id in list(self.workloads):
            stream.put_nowait(self._observed(sandbox_id))
        while True:
            yield await stream.get()

    async def ping(self) -> None:
        await self._enter("ping", "")

    async def close(self) -> None:
        self.closed = True

    # -- the world outside --------------------------------------------------------------

    def end(self, sandbox_id: str, exit_code: int, *, oom_killed: bool = False) -> None:
        """The entrypoint ends by itself."""
        workload = self.workloads[sandbox_id]
        workload.phase, workload.exit_code, workload.oom_killed = "exited", exit_code, oom_killed
        self._tell(sandbox_id)

    def lose(self, sandbox_id: str) -> None:
        """Someone removes the workload behind the gateway's back."""
        del self.workloads[sandbox_id]
        self._put(Observed(sandbox_id, "gone", instance=self.instance))

    def adopt(self, plan: SandboxPlan, phase: str = "running") -> None:
        """There is a workload that nobody asked for."""
        self._ports += 1
        address = Address("172.17.0.9", 44772, "127.0.0.1", self._ports)
        self.workloads[plan.sandbox_id] = Workload(plan, phase, address)

    # -- inside --------------------------------------------------------------------------

    async def _enter(self, verb: str, sandbox_id: str) -> None:
        self.calls.append((verb, sandbox_id))
        if verb in self.holds:
            await self.holds[verb].wait()
        if self.unreachable:
            raise EngineUnavailable("the engine does not answer")
        self._fail(verb)

    def _fail(self, verb: str) -> None:
        if self.failures.get(verb):
            raise self.failures[verb].pop(0)

    def _workload(self, sandbox_id: str) -> Workload:
        try:
            return self.workloads[sandbox_id]
        except KeyError:
            raise SandboxNotFound(sandbox_id) from None

    def _observed(self, sandbox_id: str) -> Observed:
        workload = self.workloads[sandbox_id]
        return Observed(
            sandbox_id,
            workload.phase,
            exit_code=workload.exit_code,
            oom_killed=workload.oom_killed,
            finished_at=datetime(2026, 10, 1, 8, 1, tzinfo=UTC) if workload.phase == "exited" else None,
            address=workload.address if workload.phase != "exited" else None,
            instance=self.instance,
            labels=dict(workload.plan.labels),
        )

    def _tell(self, sandbox_id: str) -> None:
        self._put(replace(self._observed(sandbox_id)))

    def _put(self, observed: Observed) -> None:
        for stream in self._streams:
            stream.put_nowait(observed)
