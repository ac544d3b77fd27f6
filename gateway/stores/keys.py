"""API keys: only hashes are kept, and a key is looked up by the id it carries (`operations.ports.Keys`)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
from typing import Final

from gateway.operations.ports import ApiKey, Clock
from gateway.sandboxes.model import Secret
from gateway.stores.database import Database
from gateway.stores.rows import key_of, micros

FIRST: Final = "first"
SECRET_BYTES: Final = 32  # 43 characters
TOUCH_MICROS: Final = 60_000_000

_FORM: Final = re.compile(r"bxk_([a-z0-9]{10})_[A-Za-z0-9_-]{43}", re.ASCII)
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_SELECT: Final = "SELECT id, name, hash, created_at, last_used_at, revoked_at FROM api_keys"


class SqliteKeys:
    """Keeps API keys in the store's file."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, name: str) -> tuple[ApiKey, Secret]:
        key_id = "".join(secrets.choice(_ALPHABET) for _ in range(10))
        text = Secret(f"bxk_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}")
        return await self._put(key_id, name, text), text

    async def ensure_first(self, text: Secret) -> ApiKey:
        digest = hash_key(text.reveal())
        found = await self._row(FIRST)
        if found is not None and found["revoked_at"] is None and hmac.compare_digest(found["hash"], digest):
            return key_of(found)
        return await self._put(FIRST, FIRST, text)

    async def find(self, text: str) -> ApiKey | None:
        digest = hash_key(text)
        match = _FORM.fullmatch(text)
        for key_id in ((match[1],) if match else ()) + (FIRST,):
            row = await self._row(key_id)
            # The comparison takes the same time whether or not the key exists.
            same = hmac.compare_digest(digest, "0" * 64 if row is None else row["hash"])
            if row is not None and same and row["revoked_at"] is None:
                return key_of(row)
        return None

    async def touch(self, key_id: str) -> None:
        now = micros(self._clock.now())
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE api_keys SET last_used_at = ? WHERE id = ? AND (last_used_at IS NULL OR "
                "last_used_at < ?)",
                (now, key_id, now - TOUCH_MICROS),
            )
        )

    async def list(self) -> tuple[ApiKey, ...]:
        return await self._database.read(
            lambda connection: tuple(
                key_of(row) for row in connection.execute(f"{_SELECT} ORDER BY created_at, id")
            )
        )

    async def revoke(self, key_id: str) -> bool:
        now = micros(self._clock.now())

        def work(connection: sqlite3.Connection) -> bool:
            done = connection.execute(
                "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, key_id)
            )
            return done.rowcount == 1

        return await self._database.write(work, durable=True)

    async def _row(self, key_id: str) -> sqlite3.Row | None:
        def work(connection: sqlite3.Connection) -> sqlite3.Row | None:
            row: sqlite3.Row | None = connection.execute(f"{_SELECT} WHERE id = ?", (key_id,)).fetchone()
            return row

        return await self._database.read(work)

    async def _put(self, key_id: str, name: str, text: Secret) -> ApiKey:
        now = self._clock.now()
        digest = hash_key(text.reveal())

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO api_keys (id, name, hash, prefix, created_at) VALUES (?, ?, ?, ?, ?)",
                (key_id, name, digest, "bxk_" + key_id if key_id != FIRST else "", micros(now)),
            )

        await self._database.write(work, durable=True)
        return ApiKey(key_id, name, now)


def hash_key(text: str) -> str:
    """
    Return what is kept of a key. Keys are random and long, so one round of SHA-256 is enough.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
