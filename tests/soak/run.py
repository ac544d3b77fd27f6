"""The soak: clients that do what clients do, and a monkey that kills gateways and sandboxes.

Each client keeps to sandboxes of its own, so that it knows exactly what must be true of them. Whatever is
answered is held against that; what a kill cut off may have happened or not, and both are right.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from tests.raw_engine import Engine
from tests.soak.gateways import Gateways

# What a caller may be told when others kill gateways and sandboxes under it.
FINE: Final = frozenset({200, 202, 204, 404, 409, 429, 503})
SETTLE_SECONDS: Final = 60.0
IDLE: Final = ["tail", "-f", "/dev/null"]


@dataclass
class Mine:
    """One sandbox, as its client knows it.

    Attributes:
        hurt: it was killed from outside, so any end is right.
        sure: no answer about it is missing; what is known is exact.
    """

    sandbox_id: str
    until: datetime | None
    metadata: dict[str, str]
    volume: str | None = None
    hurt: bool = False
    sure: bool = True


Act = Callable[[httpx.AsyncClient, random.Random, list[Mine], Mine], Awaitable[None]]


@dataclass
class Soak:
    """One run.

    Attributes:
        wrong: what was not as it must be; empty at the end of a good run.
        done: how often what was answered with what.
    """

    gateways: Gateways
    image: str
    seed: int
    wrong: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    async def run(self, seconds: float, *, clients: int, monkeys: bool = True) -> None:
        """Let everybody loose for a while, then tidy up and look at what is left."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._client(random.Random(self.seed * 1000 + number), end))
            if monkeys:
                group.create_task(self._monkey(random.Random(self.seed), end))
        await self._end()

    # -- clients -----------------------------------------------------------------------

    async def _client(self, rng: random.Random, end: float) -> None:
        mine: list[Mine] = []
        limits = httpx.Limits(max_keepalive_connections=4)
        async with httpx.AsyncClient(headers=self.gateways.headers, timeout=60, limits=limits) as http:
            while time.monotonic() < end:
                if not mine or (len(mine) < 4 and rng.random() < 0.4):
                    await self._create(http, rng, mine)
                else:
                    act = rng.choice(self._acts())
                    await act(http, rng, mine, rng.choice(mine))
            for one in tuple(mine):
                await self._look(http, rng, mine, one)

    def _acts(self) -> tuple[Act, ...]:
        steady: tuple[Act, ...] = (self._look, self._use, self._freeze, self._renew, self._patch)
        return (*steady, self._delete, self._delete, self._expire, self._hurt)

    async def _ask(
        self, http: httpx.AsyncClient, rng: random.Random, verb: str, method: str, path: str, **more: Any
    ) -> httpx.Response | None:
        """Ask any of the gateways; None when the answer never came."""
        url = self.gateways.url(rng.randrange(self.gateways.count))
        try:
            answer = await http.request(method, f"{url}{path}", **more)
        except httpx.TransportError:
            self.done[f"{verb} cut off"] += 1
            await asyncio.sleep(0.05)
            return None
        self.done[f"{verb} {answer.status_code}"] += 1
        # On a busy machine the instant that was meant to be soon is past when the request arrives.
        late = verb == "shorten" and answer.status_code == 400
        if answer.status_code not in FINE and not late:
            self.wrong.append(f"{verb} {path}: {answer.status_code} {answer.text[:300]}")
        return answer

    async def _create(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine]) -> None:
        key = f"{rng.getrandbits(64):x}"
        volume = f"soak-{rng.getrandbits(48):x}" if rng.random() < 0.4 else None
        body: dict[str, Any] = {
            "image": {"uri": self.image},
            "entrypoint": IDLE if rng.random() < 0.9 else ["sh", "-c", "echo over; exit 3"],
            "resourceLimits": {"memory": "64Mi"},
            "timeout": 3600,
            "metadata": {"soak": key},
        }
        if volume is not None:
            body["volumes"] = [
                {
                    "name": "v",
                    "mountPath": "/v",
                    "pvc": {"claimName": volume, "deleteOnSandboxTermination": True},
                }
            ]
        for _ in range(40):  # the same key until somebody answers
            headers = {"Idempotency-Key": key}
            answer = await self._ask(http, rng, "create", "POST", "/sandboxes", json=body, headers=headers)
            if answer is not None and answer.status_code == 202:
                shown = answer.json()
                made = Mine(shown["id"], _instant(shown.get("expiresAt")), {"soak": key}, volume)
                made.hurt = body["entrypoint"] is not IDLE
                mine.append(made)
                return
            await asyncio.sleep(0.1)
        self.wrong.append(f"create {key} was never answered")

    async def _look(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        answer = await self._ask(http, rng, "get", "GET", f"/sandboxes/{one.sandbox_id}")
        if answer is None or answer.status_code != 200:
            if answer is not None and answer.status_code == 404:
                self.wrong.append(f"{one.sandbox_id} vanished")
                mine.remove(one)
            return
        shown = answer.json()
        state = shown["status"]["state"]
        if state == "Failed" and shown["status"]["reason"] == "PROVISIONING_INTERRUPTED":
            one.hurt = True  # the gateway was killed while it was made, and says so
        if state in {"Failed", "Terminated"} and not one.hurt:
            self.wrong.append(f"{one.sandbox_id} ended by itself: {shown['status']}")
            one.hurt = True
        if one.sure:
            if shown.get("metadata") != one.metadata:
                self.wrong.append(f"{one.sandbox_id}: metadata {shown.get('metadata')} not {one.metadata}")
            if _instant(shown.get("expiresAt")) != one.until:
                self.wrong.append(f"{one.sandbox_id}: expires {shown.get('expiresAt')} not {one.until}")

    async def _use(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        del mine
        path = f"/sandboxes/{one.sandbox_id}/endpoints/44772?use_server_proxy=true"
        try:
            found = await http.get(f"{self.gateways.url(rng.randrange(self.gateways.count))}{path}")
            if found.status_code != 200:
                self.done[f"endpoint {found.status_code}"] += 1
                return
            shown = found.json()
            answer = await http.post(
                f"http://{shown['endpoint']}/command",
                json={"command": "echo hi"},
                headers=shown.get("headers"),
            )
        except httpx.TransportError:
            self.done["command cut off"] += 1
            return
        self.done[f"command {answer.status_code}"] += 1

    async def _freeze(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        del mine
        for verb in ("pause", "resume"):
            await self._ask(http, rng, verb, "POST", f"/sandboxes/{one.sandbox_id}/{verb}")

    async def _renew(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        del mine
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=rng.randrange(1800, 7200))
        body = {"expiresAt": until.isoformat()}
        path = f"/sandboxes/{one.sandbox_id}/renew-expiration"
        answer = await self._ask(http, rng, "renew", "POST", path, json=body)
        if answer is None:
            one.sure = False
        elif answer.status_code == 200:
            one.until = until

    async def _patch(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        del mine
        value = f"{rng.getrandbits(32):x}"
        path = f"/sandboxes/{one.sandbox_id}/metadata"
        answer = await self._ask(http, rng, "patch", "PATCH", path, json={"turn": value})
        if answer is None:
            one.sure = False
        elif answer.status_code == 200:
            one.metadata = {**one.metadata, "turn": value}

    async def _delete(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        path = f"/sandboxes/{one.sandbox_id}"
        answer = await self._ask(http, rng, "delete", "DELETE", path)
        if answer is None or answer.status_code not in {204, 404}:
            return
        mine.remove(one)
        after = await self._ask(http, rng, "get deleted", "GET", path)
        if after is not None and after.status_code not in {404, 503}:
            self.wrong.append(f"{one.sandbox_id} was deleted and is {after.text[:200]}")

    async def _expire(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        """Let its time be over soon, and race it with a renewal half of the time."""
        path = f"/sandboxes/{one.sandbox_id}"
        soon = datetime.now(UTC) + timedelta(seconds=1)
        told = await self._ask(
            http, rng, "shorten", "POST", f"{path}/renew-expiration", json={"expiresAt": soon.isoformat()}
        )
        if told is None or told.status_code != 200:
            one.sure = one.sure and told is not None
            return
        saved: httpx.Response | None = None
        if rng.random() < 0.5:
            await asyncio.sleep(
                max(0.0, (soon - datetime.now(UTC)).total_seconds() + rng.uniform(-0.02, 0.02))
            )
            until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
            saved = await self._ask(
                http, rng, "rescue", "POST", f"{path}/renew-expiration", json={"expiresAt": until.isoformat()}
            )
            if saved is None:
                mine.remove(one)  # nobody knows; the end of the run tidies up
                return
            if saved.status_code == 200:
                one.until = until
        end = time.monotonic() + 30
        while True:
            seen = await self._ask(http, rng, "get expiring", "GET", path)
            if seen is not None and seen.status_code in {200, 404}:
                lives = seen.status_code == 200
                if saved is not None and saved.status_code == 200:
                    if not lives:
                        self.wrong.append(f"{one.sandbox_id} was renewed and is gone")
                        mine.remove(one)
                    return
                if not lives:
                    mine.remove(one)
                    return
            if time.monotonic() > end:
                self.wrong.append(f"{one.sandbox_id} outlived its time")
                mine.remove(one)
                return
            await asyncio.sleep(0.1)

    async def _hurt(self, http: httpx.AsyncClient, rng: random.Random, mine: list[Mine], one: Mine) -> None:
        """Kill the sandbox's first process, or take its container away."""
        del http, mine
        one.hurt = True
        await asyncio.to_thread(_kill_inside if rng.random() < 0.5 else _take_away, one.sandbox_id)
        self.done["hurt"] += 1

    # -- the monkey --------------------------------------------------------------------

    async def _monkey(self, rng: random.Random, end: float) -> None:
        while time.monotonic() < end - 4:
            await asyncio.sleep(rng.uniform(2, 6))
            number = rng.randrange(self.gateways.count)
            kill = self.gateways.kill if rng.random() < 0.8 else self.gateways.stop
            await asyncio.to_thread(kill, number)
            self.done["gateway killed"] += 1
            await asyncio.sleep(rng.uniform(0, 1))
            await asyncio.to_thread(self.gateways.start, number)

    # -- the end -----------------------------------------------------------------------

    async def _end(self) -> None:
        """Delete everything that is left, and wait for an empty engine and a store with nothing under way."""
        async with httpx.AsyncClient(headers=self.gateways.headers, timeout=60) as http:
            while True:
                page = await http.get(f"{self.gateways.url()}/sandboxes", params={"pageSize": 200})
                items = page.json()["items"]
                if not items:
                    break
                for item in items:
                    await http.delete(f"{self.gateways.url()}/sandboxes/{item['id']}")
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            left = await asyncio.to_thread(self.gateways.leftovers)
            open_rows = await asyncio.to_thread(self.gateways.rows, "step <> '' OR deleted_at IS NULL")
            if left == ({}, {}) and not open_rows:
                break
            if time.monotonic() > end:
                self.wrong.append(f"left in the engine: {left}; in the store: {open_rows}")
                break
            await asyncio.sleep(0.2)
        if list((self.gateways.home / "hold").glob("*")):
            self.wrong.append("folders are still held")


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _kill_inside(sandbox_id: str) -> None:
    with closing(Engine()) as engine, contextlib.suppress(RuntimeError, ProcessLookupError):
        pid = engine.pid(sandbox_id)
        if pid:
            os.kill(pid, signal.SIGKILL)


def _take_away(sandbox_id: str) -> None:
    with closing(Engine()) as engine, contextlib.suppress(RuntimeError):
        engine.call("DELETE", f"/containers/sandbox-{sandbox_id}?force=true&v=true")
