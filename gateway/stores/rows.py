"""Rows of the database and the values they stand for (pure)."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gateway.operations.ports import ApiKey
from gateway.sandboxes.model import Address, LifeEvent, Platform, SandboxRecord, State, Status

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

COLUMNS: Final = (
    "sandbox_id",
    "state",
    "reason",
    "message",
    "since",
    "created_at",
    "expires_at",
    "image",
    "entrypoint",
    "metadata",
    "extensions",
    "platform",
    "token_salt",
    "address",
    "managed_volumes",
    "exit_code",
    "step",
    "deleted_at",
    "owner",
    "version",
    "spec",
    "worker",
)


def micros(moment: datetime) -> int:
    """
    Return an instant as whole microseconds, exactly.
    """
    return (moment - EPOCH) // MICROSECOND


def instant(value: int) -> datetime:
    """
    Return the instant that a number of microseconds stands for.
    """
    return EPOCH + timedelta(microseconds=value)


def row_of(record: SandboxRecord, version: int) -> tuple[Any, ...]:
    """
    Return the values of `COLUMNS` for a record, under another version.
    """
    return (
        record.sandbox_id,
        record.status.state.value,
        record.status.reason,
        record.status.message,
        micros(record.status.since),
        micros(record.created_at),
        _optional_micros(record.expires_at),
        record.image,
        _json(record.entrypoint),
        _json(record.metadata),
        _json(record.extensions),
        None if record.platform is None else str(record.platform),
        record.token_salt,
        None if record.address is None else _json(asdict(record.address)),
        _json(record.managed_volumes),
        record.exit_code,
        record.step,
        _optional_micros(record.deleted_at),
        record.owner,
        version,
        _json(record.spec),
        record.worker,
    )


def record_of(row: sqlite3.Row) -> SandboxRecord:
    """
    Return the record that a row of `COLUMNS` stands for.
    """
    return SandboxRecord(
        sandbox_id=row["sandbox_id"],
        status=Status(State(row["state"]), row["reason"], row["message"], instant(row["since"])),
        created_at=instant(row["created_at"]),
        expires_at=_optional_instant(row["expires_at"]),
        image=row["image"],
        entrypoint=tuple(json.loads(row["entrypoint"])),
        metadata=json.loads(row["metadata"]),
        extensions=json.loads(row["extensions"]),
        platform=None if row["platform"] is None else Platform(*row["platform"].split("/", 1)),
        token_salt=row["token_salt"],
        address=None if row["address"] is None else Address(**json.loads(row["address"])),
        managed_volumes=tuple(json.loads(row["managed_volumes"])),
        exit_code=row["exit_code"],
        step=row["step"],
        deleted_at=_optional_instant(row["deleted_at"]),
        owner=row["owner"],
        version=row["version"],
        spec=json.loads(row["spec"]),
        worker=row["worker"],
    )


def event_of(row: sqlite3.Row) -> LifeEvent:
    """
    Return the event that a row stands for.
    """
    return LifeEvent(row["sandbox_id"], instant(row["at"]), row["reason"], row["message"])


def key_of(row: sqlite3.Row) -> ApiKey:
    """
    Return the API key that a row stands for, without its hash.
    """
    return ApiKey(
        row["id"],
        row["name"],
        instant(row["created_at"]),
        _optional_instant(row["last_used_at"]),
        _optional_instant(row["revoked_at"]),
    )


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _optional_micros(moment: datetime | None) -> int | None:
    return None if moment is None else micros(moment)


def _optional_instant(value: int | None) -> datetime | None:
    return None if value is None else instant(value)
