"""A real engine, images made here, and a stand-in for the execd bundle: one static shell."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gateway.runtimes.docker.engine import Engine, EngineRefused, EngineSettings
from gateway.runtimes.docker.runtime import DockerRuntime
from gateway.sandboxes.model import Address, BundleMount, Hardening, Limits, SandboxPlan
from images.local import ensure, reference

DROPPED = ("AUDIT_WRITE", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE")

# Stands where execd will stand: answers on its port, then becomes the user's command.
ENTRY = """
shift
/opt/boxwright/busybox httpd -p 44772 -h /opt/boxwright/www
exec "$@"
"""


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> BundleMount:
    folder = tmp_path_factory.mktemp("bundle")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    shutil.copy("/bin/busybox", folder / "busybox")
    (folder / "entry").write_text(ENTRY)
    (folder / "www").mkdir()
    (folder / "www" / "ping").write_text("pong")
    return BundleMount(str(folder), ("/opt/boxwright/busybox", "sh", "/opt/boxwright/entry"))


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    async def make() -> dict[str, str]:
        engine = Engine(EngineSettings())
        try:
            return await ensure(["busybox", "static", "debian"], engine, print, deadline=300.0)
        finally:
            await engine.close()

    return asyncio.run(make())


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(EngineSettings(call_seconds=20.0, start_seconds=40.0))
    yield engine
    await engine.close()


@pytest.fixture
async def runtime(engine: Engine, tmp_path: Path) -> AsyncIterator[DockerRuntime]:
    """A runtime of its own installation; whatever it made is gone afterwards."""
    instance = f"test-{uuid.uuid4().hex[:8]}"
    runtime = DockerRuntime(engine, instance=instance, parallel_starts=2, hold_dir=tmp_path / "held")
    yield runtime
    for seen in await runtime.observe_all():
        await runtime.remove(seen.sandbox_id, volumes=(), grace_seconds=0)
    assert await runtime.observe_all() == []
    assert not list((tmp_path / "held").glob("*"))


@dataclass
class Maker:
    """Makes plans with everything that a test does not care about filled in."""

    runtime: DockerRuntime
    bundle: BundleMount
    volumes: list[str] = field(default_factory=list)

    def plan(self, command: str = "exec sleep 60", **changed: Any) -> SandboxPlan:
        sandbox_id = uuid.uuid4().hex[:12]
        plan = SandboxPlan(
            sandbox_id=sandbox_id,
            instance=self.runtime._instance,
            image=reference("busybox"),
            platform=None,
            auth=None,
            entrypoint=("/opt/boxwright/busybox", "sh", "-c", command),
            env=(),
            token_hash="sha256:" + "0" * 64,
            labels=(),
            limits=Limits(memory_bytes=64 << 20, pids=64),
            mounts=(),
            extra_binds=(),
            hardening=Hardening(drop_capabilities=DROPPED),
            bundle=self.bundle,
            network="bridge",
            publish_host="127.0.0.1",
            # Below the kernel's range for outgoing connections, which take listening ports away.
            publish_ports=(21000, 31000),
            runtime=None,
            stop_grace_seconds=2,
        )
        return replace(plan, **changed)

    def volume(self) -> str:
        self.volumes.append(f"boxwright-test-{uuid.uuid4().hex[:8]}")
        return self.volumes[-1]

    async def run(self, plan: SandboxPlan) -> Address:
        await self.runtime.ensure_image(plan.image, plan, plan.auth, lambda _: None)
        await self.runtime.create(plan)
        return await self.runtime.start(plan.sandbox_id)

    async def output(self, plan: SandboxPlan) -> str:
        """Run a command that ends by itself and return what it printed."""
        await self.runtime.ensure_image(plan.image, plan, plan.auth, lambda _: None)
        await self.runtime.create(plan)
        name = f"sandbox-{plan.sandbox_id}"
        await self.runtime._start(name)
        await self.runtime.engine.wait_container(name, "not-running", 20.0)
        return await self.runtime.logs(plan.sandbox_id, tail=1000, since=None, timestamps=False)


@pytest.fixture
async def maker(runtime: DockerRuntime, bundle: BundleMount, images: dict[str, str]) -> AsyncIterator[Maker]:
    maker = Maker(runtime, bundle)
    yield maker
    for seen in await runtime.observe_all():
        await runtime.remove(seen.sandbox_id, volumes=(), grace_seconds=0)
    for volume in maker.volumes:
        try:
            await runtime.engine.remove_volume(volume)
        except EngineRefused as error:
            assert error.status == 404
