"""Who is calling. Each route declares that it needs to know; HTTP and WebSocket ask the same way."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Final

from fastapi import Request
from fastapi.security import APIKeyHeader

from gateway.operations.ports import Keys
from gateway.operations.services import Caller
from gateway.operations.tasks import Tasks
from specs.errors import MissingApiKey, Unauthorized
from specs.names import HEADER_API_KEY

REMEMBER_SECONDS: Final = 1.0  # a revoked key works at most this much longer
TOUCH_SECONDS: Final = 60.0
MOST_REMEMBERED: Final = 1024

scheme = APIKeyHeader(
    name=HEADER_API_KEY,
    scheme_name="ApiKey",
    auto_error=False,
    description="A key made with `boxwright keys`.",
)


class KeyAuthenticator:
    """Looks keys up in the store, and remembers a good one for a second."""

    def __init__(self, keys: Keys, tasks: Tasks, now: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._tasks = tasks
        self._now = now
        self._known: dict[bytes, tuple[Caller, float]] = {}
        self._touched: dict[str, float] = {}

    async def __call__(self, key: str | None) -> Caller:
        if key is None or not key.strip():
            raise MissingApiKey(
                f"the header {HEADER_API_KEY} is missing; send a key made with `boxwright keys create`"
            )
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        remembered = self._known.get(digest)
        if remembered is not None and self._now() - remembered[1] < REMEMBER_SECONDS:
            return remembered[0]
        found = await self._keys.find(key)
        if found is None:
            self._known.pop(digest, None)
            raise Unauthorized(
                "the API key is not known, or was revoked; use one that `boxwright keys list` shows"
            )
        caller = Caller(found.key_id, found.name)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[digest] = (caller, self._now())
        self._touch(found.key_id)
        return caller

    def _touch(self, key_id: str) -> None:
        last = self._touched.get(key_id)
        if last is None or self._now() - last > TOUCH_SECONDS:
            self._touched[key_id] = self._now()
            self._tasks.spawn(self._keys.touch(key_id), f"touch {key_id}")


def caller_of(request: Request) -> Caller:
    """
    Return who is calling, as the route found out before it read anything else.
    """
    caller: Caller = request.state.caller
    return caller
