"""Can this gateway do its work right now, part by part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from gateway.operations.ports import Runtime, Store
from specs.errors import BoxwrightError

CHECK_SECONDS: Final = 3.0
GOOD: Final = "ok"


class Readiness:
    """Asks the store and the engine, each within a short deadline."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    async def check(self) -> dict[str, str]:
        """Return each part with `ok` or a short reason that reveals nothing else."""
        store, engine = await asyncio.gather(_verdict(self._store.ping()), _verdict(self._runtime.ping()))
        return {"store": store, "engine": engine}


async def _verdict(asking: Awaitable[None]) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await asking
    except TimeoutError:
        return "does not answer in time"
    except BoxwrightError as error:
        return error.code
    return GOOD
