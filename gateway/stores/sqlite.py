"""The store in one SQLite file (`operations.ports.Store`)."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from gateway.sandboxes.model import LifeEvent, SandboxRecord, State
from gateway.stores.database import Database
from gateway.stores.rows import COLUMNS, event_of, instant, micros, record_of, row_of

_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM sandboxes"  # noqa: S608 - our own column names
_INSERT: Final = f"INSERT INTO sandboxes ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - our own column names
_UPDATE: Final = (
    f"UPDATE sandboxes SET {', '.join(f'{column} = ?' for column in COLUMNS)} "  # noqa: S608 - our own column names
    "WHERE sandbox_id = ? AND version = ?"
)
_EVENT: Final = "INSERT INTO events (sandbox_id, at, reason, message) VALUES (?, ?, ?, ?)"


class SqliteStore:
    """Keeps records, history and idempotency keys."""

    def __init__(self, database: Database, *, events_per_sandbox: int = 200) -> None:
        self._database = database
        self._events_kept = events_per_sandbox

    async def insert(
        self, record: SandboxRecord, event: LifeEvent, *, idempotency_key: str | None = None
    ) -> SandboxRecord | None:
        def work(connection: sqlite3.Connection) -> SandboxRecord | None:
            if idempotency_key is not None:
                earlier = _bound(connection, record.owner, idempotency_key)
                if earlier is not None:
                    return earlier
            connection.execute(_INSERT, row_of(record, record.version))
            _write_pairs(connection, record)
            connection.execute(_EVENT, _event_row(event))
            if idempotency_key is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO idempotency (owner, key, sandbox_id) VALUES (?, ?, ?)",
                    (record.owner, idempotency_key, record.sandbox_id),
                )
            return None

        return await self._database.write(work, durable=True)

    async def get(self, sandbox_id: str) -> SandboxRecord | None:
        return await self._database.read(lambda connection: _get(connection, sandbox_id))

    async def update(self, record: SandboxRecord, *events: LifeEvent) -> SandboxRecord | None:
        def work(connection: sqlite3.Connection) -> SandboxRecord | None:
            changed = connection.execute(
                _UPDATE, (*row_of(record, record.version + 1), record.sandbox_id, record.version)
            )
            if changed.rowcount != 1:
                return None
            _write_pairs(connection, record)
            for event in events:
                connection.execute(_EVENT, _event_row(event))
            if events:
                self._trim(connection, record.sandbox_id)
            return replace(record, version=record.version + 1)

        return await self._database.write(work, durable=record.deleted_at is not None)

    async def page(
        self,
        *,
        states: tuple[str, ...] | None,
        metadata: tuple[tuple[str, str], ...],
        offset: int,
        limit: int,
    ) -> tuple[list[SandboxRecord], int]:
        if states == ():
            return [], 0
        condition, values = _condition(states, metadata)

        def work(connection: sqlite3.Connection) -> tuple[list[SandboxRecord], int]:
            count = connection.execute(f"SELECT COUNT(*) FROM sandboxes WHERE {condition}", values)  # noqa: S608 - placeholders only
            total = int(count.fetchone()[0])
            if offset >= total:
                return [], total
            rows = connection.execute(
                f"{_SELECT} WHERE {condition} ORDER BY created_at DESC, sandbox_id DESC LIMIT ? OFFSET ?",
                (*values, limit, offset),
            )
            return [record_of(row) for row in rows], total

        return await self._database.read(work)

    async def due(self, moment: datetime, limit: int) -> list[SandboxRecord]:
        return await self._many(
            "WHERE deleted_at IS NULL AND expires_at IS NOT NULL AND expires_at <= ? ORDER BY expires_at "
            "LIMIT ?",
            (micros(moment), limit),
        )

    async def next_expiry(self) -> datetime | None:
        def work(connection: sqlite3.Connection) -> datetime | None:
            row = connection.execute(
                "SELECT MIN(expires_at) FROM sandboxes WHERE deleted_at IS NULL AND expires_at IS NOT NULL"
            ).fetchone()
            return None if row[0] is None else instant(row[0])

        return await self._database.read(work)

    async def unfinished(self) -> list[SandboxRecord]:
        return await self._many("WHERE step <> '' ORDER BY created_at", ())

    async def all_live(self) -> list[SandboxRecord]:
        return await self._many("WHERE deleted_at IS NULL ORDER BY created_at", ())

    async def events(self, sandbox_id: str, limit: int) -> list[LifeEvent]:
        def work(connection: sqlite3.Connection) -> list[LifeEvent]:
            rows = connection.execute(
                "SELECT sandbox_id, at, reason, message FROM events WHERE sandbox_id = ? "
                "ORDER BY number DESC LIMIT ?",
                (sandbox_id, limit),
            )
            return [event_of(row) for row in rows][::-1]

        return await self._database.read(work)

    async def add_event(self, event: LifeEvent) -> None:
        def work(connection: sqlite3.Connection) -> None:
            known = connection.execute("SELECT 1 FROM sandboxes WHERE sandbox_id = ?", (event.sandbox_id,))
            if known.fetchone() is not None:
                connection.execute(_EVENT, _event_row(event))
                self._trim(connection, event.sandbox_id)

        await self._database.write(work)

    async def purge(self, before: datetime) -> int:
        def work(connection: sqlite3.Connection) -> int:
            gone = connection.execute(
                "DELETE FROM sandboxes WHERE deleted_at IS NOT NULL AND deleted_at < ? AND step = ''",
                (micros(before),),
            )
            return gone.rowcount

        return await self._database.write(work)

    async def instance(self) -> str:
        def work(connection: sqlite3.Connection) -> str:
            connection.execute(
                "INSERT OR IGNORE INTO meta (name, value) VALUES ('instance', ?)", (str(uuid.uuid4()),)
            )
            row = connection.execute("SELECT value FROM meta WHERE name = 'instance'").fetchone()
            return str(row[0])

        return await self._database.write(work, durable=True)

    async def enlist(self) -> str:
        return await self._database.enlist()

    async def enlisted(self) -> frozenset[str]:
        return await self._database.enlisted()

    async def foreign_writes(self) -> int:
        return await self._database.foreign_writes()

    async def ping(self) -> None:
        await self._database.read(lambda connection: connection.execute("SELECT 1").fetchone())

    async def _many(self, tail: str, values: Iterable[Any]) -> list[SandboxRecord]:
        def work(connection: sqlite3.Connection) -> list[SandboxRecord]:
            return [record_of(row) for row in connection.execute(f"{_SELECT} {tail}", tuple(values))]

        return await self._database.read(work)

    def _trim(self, connection: sqlite3.Connection, sandbox_id: str) -> None:
        connection.execute(
            "DELETE FROM events WHERE sandbox_id = ? AND number <= ("
            "SELECT number FROM events WHERE sandbox_id = ? ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (sandbox_id, sandbox_id, self._events_kept),
        )


def _get(connection: sqlite3.Connection, sandbox_id: str) -> SandboxRecord | None:
    row = connection.execute(f"{_SELECT} WHERE sandbox_id = ?", (sandbox_id,)).fetchone()
    return None if row is None else record_of(row)


def _bound(connection: sqlite3.Connection, owner: str, key: str) -> SandboxRecord | None:
    row = connection.execute(
        "SELECT sandbox_id FROM idempotency WHERE owner = ? AND key = ?", (owner, key)
    ).fetchone()
    earlier = None if row is None else _get(connection, row["sandbox_id"])
    if earlier is None or (earlier.deleted_at is not None and earlier.status.state is State.FAILED):
        return None  # a create that failed made nothing, so its repetition may try again
    return earlier


def _write_pairs(connection: sqlite3.Connection, record: SandboxRecord) -> None:
    wanted = {} if record.deleted_at is not None else record.metadata
    rows = connection.execute(
        "SELECT key, value FROM sandbox_metadata WHERE sandbox_id = ?", (record.sandbox_id,)
    )
    if {row["key"]: row["value"] for row in rows} == wanted:
        return
    connection.execute("DELETE FROM sandbox_metadata WHERE sandbox_id = ?", (record.sandbox_id,))
    created = micros(record.created_at)
    connection.executemany(
        "INSERT INTO sandbox_metadata (sandbox_id, key, value, created_at) VALUES (?, ?, ?, ?)",
        [(record.sandbox_id, key, value, created) for key, value in wanted.items()],
    )


def _condition(
    states: tuple[str, ...] | None, metadata: tuple[tuple[str, str], ...]
) -> tuple[str, tuple[Any, ...]]:
    parts, values = ["deleted_at IS NULL"], list[Any]()
    if states is not None:
        parts.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    for key, value in metadata:
        parts.append("sandbox_id IN (SELECT sandbox_id FROM sandbox_metadata WHERE key = ? AND value = ?)")
        values += [key, value]
    return " AND ".join(parts), tuple(values)


def _event_row(event: LifeEvent) -> tuple[Any, ...]:
    return event.sandbox_id, micros(event.at), event.reason, event.message
