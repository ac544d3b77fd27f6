"""This release on the store of the first one."""

import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from boxwright.backup import opened, put_back, write_backup
from gateway.config import Settings
from gateway.stores.database import Database, StoreTooNew, migrations
from gateway.stores.installation import read_secret
from tests.fakes.clock import START, FakeClock
from tests.fakes.gateway import FakeGateway, body, settings

FIRST_STORE = Path(__file__).with_name("store-v1.sql")
RUNNING = "29e13b15-d66b-447f-b5a8-59ad9e682a5f"
ENDLESS = "e70263b6-8d78-416e-93e8-f7070abcc9a7"
PAUSED = "d24d8993-60b9-4985-bebb-2a22f319473b"
DELETED = "15c0a09e-1652-4474-8b53-ec816f15d2b6"
OTHER_KEY = "bxk_u71pcyk4k7_krNdRZIMB4LbNvzv95wQCg-IPbbHCHwGRrTMTAXMI4k"


def old_store(home: Path) -> Settings:
    """Write the first release's store, with its records, into a state folder."""
    found = settings(home)
    home.mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(found.database)) as connection:
        connection.executescript(FIRST_STORE.read_text())
    read_secret(home)
    return found


def schema(path: Path) -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: " ".join(sql.replace('"', "").split()) for name, sql in rows}


def test_the_landed_migration_never_changes(tmp_path: Path) -> None:
    """The first migration still makes exactly the schema that stores out there have."""
    old_store(tmp_path)
    fresh = tmp_path / "fresh.db"
    with contextlib.closing(sqlite3.connect(fresh)) as connection:
        connection.executescript(migrations()[0])
    assert schema(fresh) == schema(settings(tmp_path).database)


def test_an_old_store_is_brought_to_the_schema_of_a_new_one(tmp_path: Path) -> None:
    """After all migrations an old store and a fresh one have the same tables and indexes."""
    found = old_store(tmp_path)
    Database(found.database).close()
    Database(tmp_path / "fresh.db").close()
    assert schema(found.database) == schema(tmp_path / "fresh.db")


async def test_this_release_serves_what_the_first_one_wrote(tmp_path: Path) -> None:
    """Records, filters, history, renewals, idempotency keys and API keys are what they were."""
    gateway = FakeGateway(old_store(tmp_path), clock=FakeClock(START + timedelta(seconds=121)))
    gateway.runtime.unreachable = True  # an engine that does not answer proves nothing about the records
    async with gateway.running() as served:
        listed = (await served.http.get("/sandboxes")).json()["items"]
        assert [(one["id"], one["status"]["state"]) for one in listed] == [
            (PAUSED, "Paused"),
            (ENDLESS, "Running"),
            (RUNNING, "Running"),
        ]
        whole = (await served.http.get(f"/sandboxes/{RUNNING}")).json()
        assert whole["metadata"] == {"team": "search", "tier": "2"}
        assert whole["image"] == {"uri": "python:3.12-slim"}
        assert whole["expiresAt"].startswith("2026-10-01T08:10:00")
        filtered = (await served.http.get("/sandboxes", params={"metadata": "team=index"})).json()["items"]
        assert [one["id"] for one in filtered] == [ENDLESS]
        assert (await served.http.get(f"/sandboxes/{DELETED}")).status_code == 404
        history = (await served.http.get(f"/sandboxes/{PAUSED}/diagnostics/events")).text
        assert [line.split()[1] for line in history.splitlines()][-1] == "CONTAINER_PAUSED"
        renewed = await served.http.post(
            f"/sandboxes/{RUNNING}/renew-expiration", json={"expiresAt": "2026-10-01T09:00:00Z"}
        )
        assert renewed.status_code == 200
        again = await served.http.post(
            "/sandboxes",
            json=body(
                metadata={"team": "search", "tier": "2"},
                image={"uri": "python:3.12-slim"},
                resourceLimits={"memory": "512Mi"},
                env={"LANG": "C"},
            ),
            headers={"Idempotency-Key": "job-7"},
        )
        assert (again.status_code, again.json()["id"]) == (202, RUNNING)
        other = await served.http.get("/sandboxes", headers={"OPEN-SANDBOX-API-KEY": OTHER_KEY})
        assert other.status_code == 200


async def test_an_old_backup_is_brought_up_to_date_by_its_restore(tmp_path: Path) -> None:
    """A backup of the first release's store restores into this release."""
    old = old_store(tmp_path / "old")
    manifest = write_backup(old, tmp_path / "b.tar", START)
    assert (manifest.schema, manifest.sandboxes) == (1, 3)
    new = settings(tmp_path / "new")
    with opened(tmp_path / "b.tar") as (found, archive):
        put_back(new, found, archive, START)
    with contextlib.closing(sqlite3.connect(new.database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(migrations())
        assert connection.execute("SELECT COUNT(*) FROM sandboxes").fetchone()[0] == 4


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    """A release refuses a store of a later one, and the message says the two ways out."""
    found = old_store(tmp_path)
    with contextlib.closing(sqlite3.connect(found.database)) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = found.database.read_bytes()
    with pytest.raises(StoreTooNew, match=r"newer release.*backup"):
        Database(found.database)
    assert found.database.read_bytes()[100:] == before[100:]
