"""The SQLite store keeps the store's promises, also across a kill and between processes."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.stores.database import Database, StoreTooNew, StoreUnavailable, migrations
from gateway.stores.keys import SqliteKeys
from gateway.stores.rows import COLUMNS, row_of
from gateway.stores.sqlite import _INSERT, SqliteStore, _write_pairs
from tests.contracts.store import KeysContract, StoreContract, event, kept, record
from tests.fakes.clock import START, FakeClock

ROOT = Path(__file__).parents[4]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "state" / "boxwright.db")
    yield opened
    opened.close()


@pytest.fixture
def store(database: Database) -> SqliteStore:
    return SqliteStore(database, events_per_sandbox=20)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keys(database: Database, clock: FakeClock) -> SqliteKeys:
    return SqliteKeys(database, clock)


class TestSqliteStore(StoreContract):
    pass


class TestSqliteKeys(KeysContract):
    pass


def test_the_file_is_private(database: Database, tmp_path: Path) -> None:
    """Only the owner may read the database and its folder."""
    assert (tmp_path / "state" / "boxwright.db").stat().st_mode & 0o077 == 0
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


async def test_no_key_text_reaches_the_file(database: Database, keys: SqliteKeys, tmp_path: Path) -> None:
    """A key's secret part is nowhere on disk."""
    _, text = await keys.create("ci")
    database.close()
    secret = text.reveal().split("_", 2)[2].encode()
    assert not any(secret in path.read_bytes() for path in (tmp_path / "state").iterdir())


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A file of a newer release is not touched."""
    path = tmp_path / "boxwright.db"
    Database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(migrations()) + 1}")
    connection.close()
    with pytest.raises(StoreTooNew, match="newer release"):
        Database(path)


async def test_the_first_release_is_brought_up(tmp_path: Path) -> None:
    """A file as the first release wrote it opens, and its records are whole."""
    path = tmp_path / "boxwright.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(migrations()[0])
        columns = [one for one in COLUMNS if one != "worker"]
        values = dict(zip(COLUMNS, row_of(record(metadata={"a": "1"}), 3), strict=True))
        connection.execute(
            f"INSERT INTO sandboxes ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            [values[one] for one in columns],
        )
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    database = Database(path)
    try:
        assert await SqliteStore(database).get("s1") == record(metadata={"a": "1"}, version=3)
    finally:
        database.close()


async def test_two_processes_may_share_the_file(
    database: Database, store: SqliteStore, tmp_path: Path
) -> None:
    """What another connection commits is seen at once."""
    other = Database(tmp_path / "state" / "boxwright.db")
    try:
        before = await store.foreign_writes()
        await kept(SqliteStore(other), record())
        assert await store.get("s1") == record()
        assert await store.foreign_writes() != before
    finally:
        other.close()


async def test_a_full_disk_refuses_and_harms_nothing(database: Database, store: SqliteStore) -> None:
    """When the file cannot grow a write is refused as such, what is there can be read, and room heals it."""
    await kept(store, record("before"))

    def room(pages: int) -> Callable[[sqlite3.Connection], None]:
        return lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").close()

    big = {"deep": "x" * 100_000}
    await database._run(database._writer, lambda: room(1)(database._connection()))
    with pytest.raises(StoreUnavailable, match="full"):
        await store.insert(record("s1", spec=big), event("s1"), idempotency_key="k")
    assert await store.get("s1") is None
    assert await store.get("before") == record("before")
    await database._run(database._writer, lambda: room(1_000_000)(database._connection()))
    assert await store.insert(record("s1", spec=big), event("s1"), idempotency_key="k") is None


WRITER = """
import asyncio, sys
from pathlib import Path
from gateway.stores.database import Database
from gateway.stores.rows import COLUMNS, row_of
from gateway.stores.sqlite import _INSERT, SqliteStore, _write_pairs
from tests.contracts.store import event, record

async def main():
    store = SqliteStore(Database(Path(sys.argv[1])))
    for number in range(100_000):
        name = f"s{number}"
        await store.insert(record(name, metadata={"n": str(number)}), event(name))
        print(name, flush=True)

asyncio.run(main())
"""


async def test_committed_survives_a_kill(tmp_path: Path) -> None:
    """After kill -9 in the middle of writing, everything that was reported written is there, whole."""
    path = tmp_path / "boxwright.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline().strip() for _ in range(50)]
        writer.send_signal(signal.SIGKILL)
        reported += [line.strip() for line in writer.stdout.readlines() if line.endswith("\n")]
    database = Database(path)
    try:
        store = SqliteStore(database)
        for name in reported:
            found = await store.get(name)
            assert found is not None
            assert found.metadata == {"n": name[1:]}
            assert len(await store.events(name, 10)) == 1
        page, total = await store.page(states=None, metadata=(), offset=0, limit=200)
        assert total >= len(reported)
        assert len(page) == min(total, 200)
        assert await store.page(states=None, metadata=(("n", "7"),), offset=0, limit=9) == (
            [record("s7", metadata={"n": "7"})],
            1,
        )
    finally:
        database.close()


async def test_a_page_of_many_is_quick(database: Database, store: SqliteStore) -> None:
    """A page of twenty out of five thousand takes milliseconds, filtered or not."""

    def fill(connection: sqlite3.Connection) -> None:
        for number in range(5000):
            one = record(
                f"s{number}", at=START + timedelta(seconds=number), metadata={"team": str(number % 50)}
            )
            connection.execute(_INSERT, row_of(one, 0))
            _write_pairs(connection, one)

    await database.write(fill)
    for filters in ((None, ()), (("Running",), ()), (None, (("team", "7"),))):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            records, _ = await store.page(states=filters[0], metadata=filters[1], offset=40, limit=20)
            times.append(time.perf_counter() - began)
            assert len(records) == 20
        assert min(times) < 0.010
