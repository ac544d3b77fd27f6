"""The client-side pools of the Python SDK, with their store in memory and in Redis."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiodocker
import pytest
import pytest_asyncio
import redis
import redis.asyncio
from opensandbox import (
    InMemoryAsyncPoolStateStore,
    InMemoryPoolStateStore,
    PoolCreationSpec,
    SandboxPoolAsync,
    SandboxPoolManagerAsync,
    SandboxPoolManagerSync,
    SandboxPoolSync,
)
from opensandbox.exceptions import (
    PoolAcquireFailedException,
    PoolDestroyedException,
    PoolEmptyException,
)
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.pool import AcquirePolicy, PoolState
from opensandbox.pool_redis import AsyncRedisPoolStateStore, RedisPoolStateStore

from tests.e2e.site import BUSYBOX, MARKS, Awaited, Client, Flavour, Site, removed, texts, unique, until
from tests.prepare import REDIS

pytestmark = MARKS

HOUR: Final = timedelta(hours=1)


@pytest.fixture(scope="module")
def redis_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a Redis server that nothing but these tests can reach and that keeps nothing."""
    folder = tmp_path_factory.mktemp("redis")
    socket, log = folder / "s", folder / "log"
    program = shutil.which(REDIS)
    assert program is not None, "tests/prepare.py installs it"
    words = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    with log.open("wb") as out:
        server = subprocess.Popen(words, executable=program, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 20
        while not socket.is_socket():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.02)
        yield socket
    finally:
        server.terminate()
        server.wait(20)


@dataclass(slots=True)
class Pools:
    """Pools of one flavour on one kind of store; closed, and emptied, when the test is over."""

    site: Site
    client: Client
    store: Any
    mark: str = field(default_factory=lambda: unique("pool"))
    made: list[Any] = field(default_factory=list)
    taken: list[Any] = field(default_factory=list)

    @property
    def flavour(self) -> Flavour:
        return self.client.flavour

    async def start(self, max_idle: int, **options: Any) -> Any:
        spec = PoolCreationSpec(
            image=BUSYBOX, metadata={"pool": self.mark}, resource={"cpu": "1", "memory": "64Mi"}
        )
        common: dict[str, Any] = {
            "pool_name": self.mark,
            "max_idle": max_idle,
            "state_store": self.store,
            "connection_config": self.client.config(),
            "creation_spec": spec,
            "idle_timeout": HOUR,
            "warmup_health_check_polling_interval": timedelta(milliseconds=50),
            **options,
        }
        pool: Any = (
            SandboxPoolAsync(**common) if self.flavour == "async" else Awaited(SandboxPoolSync(**common))
        )
        self.made.append(pool)
        await pool.start()
        return pool

    async def acquire(self, pool: Any, policy: AcquirePolicy, timeout: timedelta | None = None) -> Any:
        sandbox = await pool.acquire(sandbox_timeout=timeout, policy=policy)
        sandbox = sandbox if self.flavour == "async" else Awaited(sandbox)
        self.taken.append(sandbox)
        return sandbox

    async def idle(self, pool: Any) -> list[str]:
        return [entry.sandbox_id for entry in await pool.snapshot_idle_entries()]

    async def full(self, pool: Any, count: int) -> list[str]:
        """Wait until so many sandboxes lie ready."""

        async def ready() -> bool:
            snapshot = await pool.snapshot()
            assert snapshot.failure_count == 0, snapshot
            return bool(snapshot.idle_count == count)

        await until(ready, seconds=40, pause=0.05)
        return await self.idle(pool)

    async def alive(self) -> dict[str, datetime | None]:
        """Ask the server which sandboxes of this pool there are, and until when."""
        manager = await self.client.manager()
        listed = await manager.list_sandbox_infos(SandboxFilter(metadata={"pool": self.mark}, page_size=200))
        return {one.id: one.expires_at for one in listed.sandbox_infos}

    async def close(self) -> None:
        for pool in self.made:
            await pool.shutdown(graceful=False)
            await pool.release_all_idle()
        for sandbox in self.taken:
            await sandbox.close()
        self.client.made.extend(await self.alive())
        await self.client.close()


@pytest_asyncio.fixture(
    loop_scope="session", params=["async-memory", "async-redis", "sync-memory", "sync-redis"]
)
async def pools(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Pools]:
    """Give each flavour of pool each kind of store."""
    flavour, _, kind = str(request.param).partition("-")
    closing: list[Callable[[], Awaitable[None]]] = []
    store: Any
    if kind == "memory":
        store = InMemoryAsyncPoolStateStore() if flavour == "async" else InMemoryPoolStateStore()
    else:
        socket = str(request.getfixturevalue("redis_socket"))
        if flavour == "async":
            far = redis.asyncio.Redis(unix_socket_path=socket)
            closing.append(far.aclose)
            store = AsyncRedisPoolStateStore(far)
        else:
            near = redis.Redis(unix_socket_path=socket)
            closing.append(lambda: asyncio.to_thread(near.close))
            store = RedisPoolStateStore(near)
    made = Pools(site, Client(site, "async" if flavour == "async" else "sync", "direct"), store)
    try:
        yield made
    finally:
        await made.close()
        for close in closing:
            await close()


async def test_pool_is_warm_and_stays_full(pools: Pools) -> None:
    """What is acquired was ready, gets the shorter life that was asked for, works, and is replaced."""
    pool = await pools.start(2)
    ready = await pools.full(pool, 2)
    soon = datetime.now(UTC)
    alive = await pools.alive()
    assert set(alive) == set(ready)
    assert all(until_when and HOUR / 2 < until_when - soon <= HOUR for until_when in alive.values())

    sandbox = await pools.acquire(pool, AcquirePolicy.FAIL_FAST, timedelta(minutes=2))
    assert sandbox.id in ready
    expires = (await sandbox.get_info()).expires_at
    assert expires is not None
    assert timedelta(minutes=1) < expires - datetime.now(UTC) <= timedelta(minutes=2)
    assert texts((await sandbox.commands.run("echo mine")).logs.stdout) == ["mine"]
    assert sandbox.id not in await pools.full(pool, 2)
    assert len(await pools.alive()) == 3
    assert (await pool.snapshot()).state is PoolState.HEALTHY


async def test_empty_pool_does_what_the_policy_says(pools: Pools) -> None:
    """Without anything idle two policies refuse at once and two create."""
    pool = await pools.start(0)
    for policy in (AcquirePolicy.FAIL_FAST, AcquirePolicy.RETRY_NEXT_IDLE):
        with pytest.raises(PoolEmptyException):
            await pools.acquire(pool, policy)
    made = [
        await pools.acquire(pool, policy, timedelta(minutes=3))
        for policy in (AcquirePolicy.DIRECT_CREATE, AcquirePolicy.RETRY_NEXT_IDLE_THEN_CREATE)
    ]
    assert set(await pools.alive()) == {sandbox.id for sandbox in made}
    for sandbox in made:
        expires = (await sandbox.get_info()).expires_at
        assert timedelta(minutes=2) < expires - datetime.now(UTC) <= timedelta(minutes=3)


async def test_idle_sandbox_that_went_away_is_passed_over(pools: Pools) -> None:
    """Where an idle sandbox was deleted outside, the pool goes on to the next or creates one."""
    pool = await pools.start(2, acquire_ready_timeout=timedelta(seconds=2))
    dead, _ = await pools.full(pool, 2)
    manager = await pools.client.manager()
    await manager.kill_sandbox(dead)
    for policy in (AcquirePolicy.RETRY_NEXT_IDLE, AcquirePolicy.RETRY_NEXT_IDLE_THEN_CREATE):
        sandbox = await pools.acquire(pool, policy)
        assert sandbox.id != dead
        assert texts((await sandbox.commands.run("echo alive")).logs.stdout) == ["alive"]


async def test_stale_idle_is_refused_by_name(pools: Pools) -> None:
    """The policy that tries one idle sandbox only says that this one could not be reached."""
    pool = await pools.start(1, acquire_ready_timeout=timedelta(seconds=2))
    (only,) = await pools.full(pool, 1)
    manager = await pools.client.manager()
    await manager.kill_sandbox(only)
    with pytest.raises(PoolAcquireFailedException, match=only):
        await pools.acquire(pool, AcquirePolicy.FAIL_FAST)
    assert only not in await pools.full(pool, 1)


@pytest.mark.parametrize(
    "pools", ["async-memory", "sync-redis"], indirect=True
)  # the store adds nothing here
async def test_burst_of_warm_ups_fails_none(pools: Pools, engine: aiodocker.Docker) -> None:
    """Twelve creates within a second all become ready, and releasing them leaves nothing in the engine."""
    pool = await pools.start(12, warmup_create_qps=12)
    ready = await pools.full(pool, 12)
    assert set(await pools.alive()) == set(ready)
    await pool.shutdown(graceful=True)
    assert await pool.release_all_idle() == 12
    assert await pools.alive() == {}
    await asyncio.gather(*(removed(engine, sandbox_id) for sandbox_id in ready))


@pytest.mark.parametrize("pools", ["async-redis", "sync-redis"], indirect=True)  # memory is not shared
async def test_owners_of_one_store_share_one_pool(pools: Pools) -> None:
    """Of two owners one makes the sandboxes, both hand them out, and destroying the pool ends it for both."""
    one = await pools.start(2, owner_id="one")
    ready = await pools.full(one, 2)
    two = await pools.start(2, owner_id="two")
    assert set(await pools.idle(two)) == set(ready)
    mine, yours = [
        await pools.acquire(pool, AcquirePolicy.FAIL_FAST, timedelta(minutes=5)) for pool in (two, one)
    ]
    assert {mine.id, yours.id} == set(ready)
    await one.shutdown(graceful=True)
    again = await pools.full(two, 2)  # who stopped let go of the lock
    assert set(await pools.alive()) == {*ready, *again}

    common: dict[str, Any] = {"connection_config": pools.client.config(), "state_store": pools.store}
    manager: Any = (
        SandboxPoolManagerAsync(**common)
        if pools.flavour == "async"
        else Awaited(SandboxPoolManagerSync(**common))
    )
    done = await manager.destroy(pools.mark)
    assert (done.killed_idle_count, done.persistent_state_cleared) == (2, True)
    assert set(await pools.alive()) == set(ready)
    with pytest.raises(PoolDestroyedException):
        await pools.start(1)
