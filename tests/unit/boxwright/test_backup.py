"""Backup and restore of a state folder."""

import contextlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from boxwright.access import FIRST_KEY_FILE
from boxwright.backup import MANIFEST, STORE, BackupRefused, opened, put_back, write_backup
from boxwright.running import StillRunning, myself, recorded
from gateway.config import Settings, load
from gateway.stores.database import Database, migrations
from gateway.stores.installation import read_secret
from gateway.stores.sqlite import SqliteStore

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def settings(home: Path) -> Settings:
    return load(None, {"BOXWRIGHT_HOME": str(home)})


def count(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM api_keys").fetchone()[0])


def add_key(database: Database, name: str) -> None:
    database.write_now(
        lambda connection: connection.execute(
            "INSERT INTO api_keys (id, name, hash, prefix, created_at) VALUES (?, ?, '', '', 0)", (name, name)
        )
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder with one key in its store."""
    folder = tmp_path / "home"
    database = Database(settings(folder).database)
    database._writer.submit(add_key, database, "one").result()
    database.close()
    read_secret(folder)
    (folder / FIRST_KEY_FILE).write_text("kept\n")
    return folder


def restored(home: Path, file: Path) -> Path | None:
    with opened(file) as (manifest, archive):
        return put_back(settings(home), manifest, archive, NOW)


async def test_what_was_there_comes_back_and_what_is_there_is_kept(home: Path, tmp_path: Path) -> None:
    """A round trip brings store, secret and key back; the state that was replaced lies aside, whole."""
    file = tmp_path / "b.tar"
    secret = read_secret(home)
    manifest = write_backup(settings(home), file, NOW)
    assert (manifest.schema, manifest.sandboxes) == (len(migrations()), 0)
    assert file.stat().st_mode & 0o777 == 0o600
    database = Database(settings(home).database)
    instance = await SqliteStore(database).instance()
    await database.write(lambda connection: connection.execute("DELETE FROM api_keys"))
    database.close()
    (home / "secret.key").write_bytes(b"x" * 32)
    (home / FIRST_KEY_FILE).unlink()

    aside = restored(home, file)

    assert count(settings(home).database) == 1
    assert read_secret(home) == secret
    assert (home / FIRST_KEY_FILE).read_text() == "kept\n"
    assert aside is not None
    assert count(aside / "boxwright.db") == 0
    assert (aside / "secret.key").read_bytes() == b"x" * 32
    assert instance
    assert not list(home.glob(".restore-*"))


def test_a_backup_is_consistent_while_the_store_is_written(home: Path, tmp_path: Path) -> None:
    """What is committed is in it, also when it is still in the write-ahead log of an open store."""
    database = Database(settings(home).database)
    database._writer.submit(add_key, database, "two").result()
    write_backup(settings(home), tmp_path / "b.tar", NOW)
    database.close()
    fresh = tmp_path / "fresh"
    assert restored(fresh, tmp_path / "b.tar") is None
    assert count(settings(fresh).database) == 2


def test_nothing_to_back_up_is_said(tmp_path: Path) -> None:
    """An empty folder makes no backup, and the message says what makes state."""
    with pytest.raises(BackupRefused, match="boxwright up"):
        write_backup(settings(tmp_path / "none"), tmp_path / "b.tar", NOW)
    assert not (tmp_path / "b.tar").exists()


def test_a_damaged_store_is_not_backed_up_silently(home: Path, tmp_path: Path) -> None:
    """A page that is overwritten is found before a backup claims to be one."""
    path = settings(home).database
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    with pytest.raises((BackupRefused, sqlite3.DatabaseError)):
        write_backup(settings(home), tmp_path / "b.tar", NOW)
    assert not (tmp_path / "b.tar").exists()


def test_a_running_gateway_keeps_its_state(home: Path, tmp_path: Path) -> None:
    """A restore is refused while a gateway is on record, and while any process has the store open."""
    write_backup(settings(home), tmp_path / "b.tar", NOW)
    record = myself("127.0.0.1", 8080, "0", "")
    with recorded(home, record), pytest.raises(StillRunning, match="boxwright down"):
        restored(home, tmp_path / "b.tar")
    database = Database(settings(home).database)
    try:
        with pytest.raises(StillRunning, match="in use"):
            restored(home, tmp_path / "b.tar")
    finally:
        database.close()
    assert not list(home.glob("before-restore-*"))


def rewritten(file: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """Write a backup again, with members changed."""
    with tarfile.open(file) as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    change(members)
    with tarfile.open(file, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file


def manifest_with(**values: Any) -> Callable[[dict[str, bytes]], Any]:
    def change(members: dict[str, bytes]) -> None:
        members[MANIFEST] = json.dumps({**json.loads(members[MANIFEST]), **values}).encode()

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda members: members.pop(MANIFEST), "damaged|not a file"),
        (lambda members: members.update({MANIFEST: b"[]"}), "not a file that"),
        (manifest_with(schema=999), "999.*newer one"),
        (manifest_with(format=2), "newer one"),
        (manifest_with(digests={}), "does not hold"),
        (manifest_with(digests={STORE: "", "secret.key": "", "../../etc/passwd": ""}), "does not hold"),
        (lambda members: members.update({"secret.key": b"y" * 32}), "secret.key is not what was written"),
        (lambda members: members.update({STORE: members[STORE] + b"z"}), "store.db is not what was written"),
        (lambda members: members.pop(STORE), "no usable store.db"),
    ],
)
def test_a_file_that_is_no_good_backup_changes_nothing(
    home: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], Any], words: str
) -> None:
    """Each way to be no usable backup is refused with a reason before any file of the state is touched."""
    file = tmp_path / "b.tar"
    write_backup(settings(home), file, NOW)
    before = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    with pytest.raises(BackupRefused, match=words):
        restored(home, rewritten(file, change))
    after = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    assert {**after, "running.lock": b""} == {**before, "running.lock": b""}


@pytest.mark.parametrize("content", [None, b"", b"not a tar", b"\0" * 10240])
def test_what_is_no_archive_is_said(tmp_path: Path, content: bytes | None) -> None:
    """A missing file, an empty one and any other file are told apart from a backup."""
    file = tmp_path / "b.tar"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BackupRefused), opened(file):
        pass


def test_a_kept_key_that_the_backup_lacks_does_not_stay(home: Path, tmp_path: Path) -> None:
    """A key of the replaced state would be taken for the first key of the restored one."""
    (home / FIRST_KEY_FILE).unlink()
    write_backup(settings(home), tmp_path / "b.tar", NOW)
    (home / FIRST_KEY_FILE).write_text("another\n")
    aside = restored(home, tmp_path / "b.tar")
    assert aside is not None
    assert (aside / FIRST_KEY_FILE).read_text() == "another\n"
    assert not (home / FIRST_KEY_FILE).exists()


def test_a_store_elsewhere_is_restored_there(home: Path, tmp_path: Path) -> None:
    """[store] path may lie outside of the state folder."""
    write_backup(settings(home), tmp_path / "b.tar", NOW)
    other = load(
        None,
        {"BOXWRIGHT_HOME": str(tmp_path / "other"), "BOXWRIGHT_STORE_PATH": str(tmp_path / "far" / "x.db")},
    )
    with opened(tmp_path / "b.tar") as (manifest, archive):
        put_back(other, manifest, archive, NOW)
    assert count(tmp_path / "far" / "x.db") == 1
