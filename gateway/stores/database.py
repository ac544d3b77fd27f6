"""One SQLite file: one thread that writes, a few that read, one executor call for each transaction."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

from gateway.stores.presence import Presence
from specs.errors import Unavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

READERS: Final = 2
BUSY_SECONDS: Final = 5.0

_MIGRATION: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class StoreUnavailable(Unavailable):
    """The database cannot be read or written now."""

    code = "SANDBOX::STORE_UNAVAILABLE"


class StoreTooNew(Exception):
    """The file was written by a newer release; this one does not touch it."""


class Database:
    """An open database file.

    Committed is what survives the end of the process; what must also survive a power cut is written with
    `durable=True`, which waits for the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._presence = Presence(path.with_suffix(".workers"))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._writer.submit(self._prepare).result()

    def _prepare(self) -> None:
        if not self._path.exists():
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = self._connection()
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection)

    async def write(self, work: Work[T], *, durable: bool = False) -> T:
        """
        Run one transaction on the writer's thread; an exception undoes it.

        Raises:
            StoreUnavailable: the file is locked for too long, full, or damaged.
        """
        return await self._run(self._writer, lambda: self.write_now(work, durable=durable))

    async def read(self, work: Work[T]) -> T:
        """
        Run one reading transaction; it sees everything committed before.

        Raises:
            StoreUnavailable
        """
        return await self._run(self._readers, lambda: self._transaction(work, "BEGIN"))

    async def enlist(self) -> str:
        """
        Put this process among those at work on the file, until it ends or closes it; return its id.

        Raises:
            StoreUnavailable: the folder cannot be written.
        """
        return await self._run(self._readers, self._presence.enlist)

    async def enlisted(self) -> frozenset[str]:
        """
        Return the ids of all processes that are at work on the file now.

        Raises:
            StoreUnavailable
        """
        return await self._run(self._readers, self._presence.enlisted)

    async def foreign_writes(self) -> int:
        """
        Return a number that is another one after any other process wrote.

        Raises:
            StoreUnavailable
        """

        def ask() -> int:
            # Asked on the one connection that writes here, so that our own writes do not count.
            return int(self._connection().execute("PRAGMA data_version").fetchone()[0])

        return await self._run(self._writer, ask)

    def write_now(self, work: Work[T], *, durable: bool = False) -> T:
        """Run one writing transaction on this thread."""
        self._connection().execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        return self._transaction(work, "BEGIN IMMEDIATE")

    def close(self) -> None:
        """Finish what was begun and close the file."""
        self._readers.shutdown(wait=True)
        self._writer.shutdown(wait=True)
        for connection in self._open:
            connection.close()
        self._presence.leave()

    async def _run(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, work)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"the store cannot be used now ({error}); try again") from error
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.IntegrityError):
                raise
            raise StoreUnavailable(f"the store is damaged ({error}); restore it from a backup") from error
        except OSError as error:
            raise StoreUnavailable(f"the store's folder cannot be used now ({error}); try again") from error

    def _transaction(self, work: Work[T], begin: str) -> T:
        connection = self._connection()
        connection.execute(begin)
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            # A full disk has undone it already; a commit that failed has not, and would block all that follow.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            self._local.connection = connection
            with self._lock:
                self._open.append(connection)
        return connection


def migrate(connection: sqlite3.Connection) -> None:
    """
    Bring the schema to this release's version, each step in a transaction of its own.

    Raises:
        StoreTooNew: the file is of a newer release.
    """
    steps = migrations()
    connection.execute("BEGIN IMMEDIATE")  # two processes may start at once
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(steps):
            raise StoreTooNew(
                f"the store has schema {version} and this release knows {len(steps)}; start the newer "
                "release, or "
                "restore the backup made before it"
            )
        for number, script in enumerate(steps[version:], start=version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrations() -> tuple[str, ...]:
    """
    Return the scripts in their order; their numbers have no gap.
    """
    folder = resources.files("gateway.stores").joinpath("migrations")
    found = sorted(one.name for one in folder.iterdir() if _MIGRATION.fullmatch(one.name))
    numbers = [int(name[:4]) for name in found]
    if numbers != list(range(1, len(found) + 1)):
        raise StoreTooNew(f"the migrations of this release are incomplete: {', '.join(found)}")
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in found)


def _statements(script: str) -> list[str]:
    """Split a script; executescript would commit the transaction under way."""
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements
