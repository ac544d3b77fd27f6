"""`boxwright backup` and `boxwright restore`: the state folder in one file.

A backup is a tar archive of the store (a consistent copy, also while a gateway writes), the installation's
secret and the kept first key, and a manifest with their digests. It is as secret as the state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from boxwright import __version__
from boxwright.access import FIRST_KEY_FILE
from boxwright.running import StillRunning, nobody_running
from boxwright.terminal import ConfigFile, Format, Output, confirm, fail, print_json, say, settings_from
from gateway.config import Settings
from gateway.stores.database import Database, StoreTooNew, migrations
from gateway.stores.installation import FILE as SECRET_FILE
from gateway.stores.installation import SECRET_BYTES

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
STORE: Final = "store.db"
MOST_BYTES: Final = 64 * 2**30  # no store of ours is larger; a damaged header may claim anything
SMALL_BYTES: Final = 65_536
CHUNK: Final = 2**20
DRAFTS: Final = ".restore-"
SIDE_FILES: Final = ("-wal", "-shm", "-journal")


class BackupRefused(Exception):
    """No backup can be made or used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says of itself.

    Attributes:
        schema: the store's schema; a release restores its own and every older one.
        digests: of each other member, `sha256` in hexadecimal.
    """

    format: int
    version: str
    schema: int
    instance: str
    sandboxes: int
    created: str
    digests: Mapping[str, str]


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write it, such as boxwright-2025-01-31.tar.")],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Write store, secret and first key into one file, also while a gateway runs.

    Keep it as safe as the state folder: who has it can reach the sandboxes of this installation.
    """
    settings = settings_from(config)
    if file.exists() and not force:
        fail(f"{file} exists; choose another name, or say --force")
    try:
        manifest = write_backup(settings, file, datetime.now(UTC))
    except BackupRefused as error:
        fail(str(error))
    except (OSError, sqlite3.Error) as error:
        fail(f"no backup was made: {error}")
    if output is Format.JSON:
        print_json({**asdict(manifest), "file": str(file), "bytes": file.stat().st_size})
    say(
        f"{file}: {manifest.sandboxes} sandboxes on record, schema {manifest.schema}, release {manifest.version}"
    )


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `boxwright backup` wrote.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Put the state folder back to a backup; what is there now is kept aside. No gateway may run.

    An older release's backup is brought to this release's schema. At the next `boxwright up` sandboxes that
    the backup does not know are removed from the engine, and those that are gone meanwhile are ended on record.
    """
    settings = settings_from(config)
    try:
        with opened(file) as (manifest, members):
            if not yes:
                confirm(
                    f"Replace the state in {settings.home} by that of {manifest.created} "
                    f"({manifest.sandboxes} sandboxes on record, release {manifest.version})?"
                )
            aside = put_back(settings, manifest, members, datetime.now(UTC))
    except (BackupRefused, StillRunning, StoreTooNew) as error:
        fail(str(error))
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        fail(f"{file} was not restored: {error}")
    if output is Format.JSON:
        print_json({**asdict(manifest), "home": str(settings.home), "aside": str(aside) if aside else None})
    if aside is not None:
        say(f"what was there is in {aside}; delete it when it is not needed any more")
    say(f"{settings.home} is as it was at {manifest.created}; `boxwright up` serves from it")


# -- writing -------------------------------------------------------------------------


def write_backup(settings: Settings, file: Path, now: datetime) -> Manifest:
    """
    Raises:
        BackupRefused: there is nothing to back up, or the store is damaged.
    """
    secret = settings.home / SECRET_FILE
    if not (settings.database.exists() and secret.exists()):
        raise BackupRefused(f"{settings.home} holds no state yet: `boxwright up` makes it at its first start")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".boxwright-backup-", dir=file.parent) as folder:
        copy = Path(folder) / STORE
        schema, instance, sandboxes = copy_store(settings.database, copy)
        parts = {STORE: copy, SECRET_FILE: secret}
        if (settings.home / FIRST_KEY_FILE).exists():
            parts[FIRST_KEY_FILE] = settings.home / FIRST_KEY_FILE
        digests = {name: digest(path) for name, path in parts.items()}
        manifest = Manifest(
            FORMAT, __version__, schema, instance, sandboxes, now.isoformat(timespec="seconds"), digests
        )
        draft = Path(folder) / "draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w") as archive:
            # The manifest comes first: what follows can be judged before it is unpacked.
            text = json.dumps(asdict(manifest), indent=2).encode()
            archive.addfile(member(MANIFEST, len(text), now), io.BytesIO(text))
            for name, path in parts.items():
                with path.open("rb") as content:
                    archive.addfile(member(name, path.stat().st_size, now), content)
            archive.close()
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    return manifest


def member(name: str, size: int, now: datetime) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o600, int(now.timestamp())
    return info


def copy_store(source: Path, target: Path) -> tuple[int, str, int]:
    """
    Copy a store as it is at one moment; return its schema, whose it is, and how many sandboxes live.

    Raises:
        BackupRefused: the copy is not whole.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with (
        contextlib.closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=rw", uri=True)) as live,
        contextlib.closing(sqlite3.connect(target)) as copy,
    ):
        # One step: with several, each write in between would start the copy again.
        live.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
        check_whole(copy, source)
        schema = int(copy.execute("PRAGMA user_version").fetchone()[0])
        row = copy.execute("SELECT value FROM meta WHERE name = 'instance'").fetchone()
        live_count = copy.execute("SELECT COUNT(*) FROM sandboxes WHERE deleted_at IS NULL").fetchone()
        return schema, "" if row is None else str(row[0]), int(live_count[0])


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if verdict != "ok":
        raise BackupRefused(f"{path} is damaged ({verdict}); use an earlier backup: `boxwright restore FILE`")


def digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


# -- reading -------------------------------------------------------------------------


@contextmanager
def opened(file: Path) -> Iterator[tuple[Manifest, tarfile.TarFile]]:
    """
    Open a backup and judge it by its manifest.

    Raises:
        BackupRefused: it is no backup, or one that this release cannot use.
    """
    try:
        archive = tarfile.open(file, mode="r:")  # noqa: SIM115 - closed by the `with` below
    except FileNotFoundError:
        raise BackupRefused(f"there is no {file}") from None
    except tarfile.TarError:
        raise BackupRefused(f"{file} is not a file that `boxwright backup` wrote") from None
    with archive:
        try:
            manifest = Manifest(**json.loads(content(archive, MANIFEST, SMALL_BYTES)))
        except (ValueError, TypeError):
            raise BackupRefused(f"{file} is not a file that `boxwright backup` wrote") from None
        known = len(migrations())
        if manifest.format != FORMAT or manifest.schema > known:
            raise BackupRefused(
                f"{file} was written by release {manifest.version} (schema {manifest.schema}); this is {__version__} "
                f"and knows schema {known}. Restore it with that release or a newer one."
            )
        if not {STORE, SECRET_FILE} <= set(manifest.digests) <= {STORE, SECRET_FILE, FIRST_KEY_FILE}:
            raise BackupRefused(f"{file} does not hold what a backup holds; use another one")
        yield manifest, archive


def content(archive: tarfile.TarFile, name: str, most: int) -> bytes:
    """
    Read a small member.

    Raises:
        BackupRefused
    """
    with stream(archive, name, most) as file:
        return bytes(file.read())


@contextmanager
def stream(archive: tarfile.TarFile, name: str, most: int) -> Iterator[Any]:
    try:
        info = archive.getmember(name)
        file = archive.extractfile(info) if info.isreg() and info.size <= most else None
    except (KeyError, tarfile.TarError):
        file = None
    if file is None:
        raise BackupRefused(f"{archive.name!s} is damaged: it has no usable {name}; use another backup")
    with file:
        yield file


def put_back(settings: Settings, manifest: Manifest, archive: tarfile.TarFile, now: datetime) -> Path | None:
    """
    Replace the state by a backup's and return where the old state is, if there was any.

    Everything is unpacked, checked and brought to this release's schema beside the state before the first
    file of it is touched. Each file is then replaced in one step; a crash in between is mended by doing it again.

    Raises:
        BackupRefused, StillRunning, StoreTooNew
    """
    home = settings.home
    places = {
        STORE: settings.database,
        SECRET_FILE: home / SECRET_FILE,
        FIRST_KEY_FILE: home / FIRST_KEY_FILE,
    }
    with nobody_running(home), contextlib.ExitStack() as folders:
        for leftover in home.glob(f"{DRAFTS}*"):  # of a restore that was killed
            shutil.rmtree(leftover)
        beside = {}
        for parent in {path.parent for path in places.values()}:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside[parent] = Path(
                folders.enter_context(tempfile.TemporaryDirectory(prefix=DRAFTS, dir=parent))
            )
        drafts = unpack(manifest, archive, {name: beside[path.parent] for name, path in places.items()})
        bring_up_to_date(drafts[STORE])
        with undisturbed(settings.database):
            aside = keep_aside(home, places, now)
            for name in (STORE, SECRET_FILE, FIRST_KEY_FILE):
                if name in drafts:
                    os.replace(drafts[name], places[name])
                else:
                    places[name].unlink(missing_ok=True)  # the key that was kept is not of this state
            for suffix in SIDE_FILES:
                Path(f"{settings.database}{suffix}").unlink(missing_ok=True)
        sync_folder(home)
    return aside


def unpack(manifest: Manifest, archive: tarfile.TarFile, folders: Mapping[str, Path]) -> dict[str, Path]:
    """
    Write each member into its folder, checked against its digest.

    Raises:
        BackupRefused
    """
    drafts = {}
    for name, expected in manifest.digests.items():
        path = folders[name] / name
        seen = hashlib.sha256()
        with (
            stream(archive, name, MOST_BYTES if name == STORE else SMALL_BYTES) as file,
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out,
        ):
            while piece := file.read(CHUNK):
                seen.update(piece)
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        if seen.hexdigest() != expected:
            raise BackupRefused(
                f"{archive.name!s} is damaged: {name} is not what was written; use another backup"
            )
        drafts[name] = path
    if drafts[SECRET_FILE].stat().st_size != SECRET_BYTES:
        raise BackupRefused(
            f"{archive.name!s} is damaged: {SECRET_FILE} has a wrong length; use another backup"
        )
    return drafts


def bring_up_to_date(store: Path) -> None:
    """
    Open a store with this release, which migrates it, and leave it as one file.

    Raises:
        BackupRefused, StoreTooNew
    """
    Database(store).close()
    with contextlib.closing(sqlite3.connect(store)) as connection:
        check_whole(connection, store)
        connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def undisturbed(store: Path) -> Iterator[None]:
    """
    Make sure that no process has the store open, whichever way it was started.

    Leaving the write-ahead log takes the file for one connection alone, so it fails while there is another
    (SQLite, "Write-Ahead Logging", section 3); it also leaves everything in the one file.

    Raises:
        StillRunning
    """
    if store.exists():
        with contextlib.closing(sqlite3.connect(store, timeout=0.5)) as connection:
            try:
                connection.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.OperationalError as error:
                raise StillRunning(
                    f"{store} is in use ({error}); stop what uses it: `boxwright down`, or the service"
                ) from error
            except sqlite3.DatabaseError:
                say("warning: the store that is replaced is damaged; it is kept as it is")
    yield


def keep_aside(home: Path, places: Mapping[str, Path], now: datetime) -> Path | None:
    """Link what is there into a folder of its own, so that nothing is missing at any moment."""
    there = [path for path in places.values() if path.exists()]
    there += [side for suffix in SIDE_FILES if (side := Path(f"{places[STORE]}{suffix}")).exists()]
    if not there:
        return None
    aside = home / f"before-restore-{now:%Y%m%dT%H%M%S}"
    aside.mkdir(mode=0o700)
    for path in there:
        try:
            os.link(path, aside / path.name)
        except OSError:  # another file system ([store] path): a copy does as well
            (aside / path.name).write_bytes(path.read_bytes())
            (aside / path.name).chmod(0o600)
    return aside


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
