"""Which gateways of a state folder run: a record for each, and a lock that all of them share.

A record names a process by its id and its start time, so that a process that got the id later is
never taken for it. The lock is the kernel's, so that it ends with its holders however they end.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "running.lock"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_RECORD: Final = re.compile(r"running-(\d{1,5})\.json")


class StillRunning(Exception):
    """A gateway uses the state folder; the message says which and how to stop it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One process that serves from a state folder.

    Attributes:
        ticks: when it started, in the kernel's clock ticks since boot (proc(5), field 22 of stat).
        boot: which boot of the machine that counts from.
        domain: host:port where clients of this machine find it.
    """

    pid: int
    ticks: int
    boot: str
    domain: str
    port: int
    version: str
    started: str

    @property
    def alive(self) -> bool:
        return self.boot == boot_id() and start_ticks(self.pid) == self.ticks


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return when a process started; None when it is gone or only its exit status is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def local_domain(host: str, port: int) -> str:
    """Return where clients of this machine reach what listens on `host`."""
    shown = "localhost" if host in {"0.0.0.0", "127.0.0.1", "::", "::1"} else host
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def myself(host: str, port: int, version: str, started: str) -> Record:
    """Return the record of this process."""
    pid = os.getpid()
    ticks = start_ticks(pid)
    assert ticks is not None
    return Record(pid, ticks, boot_id(), local_domain(host, port), port, version, started)


def running(home: Path) -> list[Record]:
    """Return the gateways that run from a state folder; records of dead ones are removed."""
    found = []
    for path in sorted(home.glob("running-*.json")):
        if not _RECORD.fullmatch(path.name):
            continue
        record = _read(path)
        if record is not None and record.alive:
            found.append(record)
        else:
            path.unlink(missing_ok=True)
    return found


@contextmanager
def recorded(home: Path, record: Record) -> Iterator[None]:
    """
    Be on record, and hold the lock with the others, for the length of a `with`.

    Raises:
        StillRunning: the state folder is being restored at this moment.
    """
    with _locked(home, fcntl.LOCK_SH, "the state folder is being restored; start again when that is done"):
        path = home / f"running-{record.port}.json"
        draft = path.with_suffix(f".{record.pid}")
        draft.write_text(json.dumps(asdict(record)))
        draft.replace(path)
        try:
            yield
        finally:
            if _read(path) == record:
                path.unlink(missing_ok=True)


@contextmanager
def nobody_running(home: Path) -> Iterator[None]:
    """
    Keep gateways out of a state folder for the length of a `with`.

    Raises:
        StillRunning
    """
    alive = running(home)
    names = ", ".join(f"process {one.pid} on port {one.port}" for one in alive) or "another process"
    with _locked(home, fcntl.LOCK_EX, f"a gateway uses {home} ({names}); stop it first: `boxwright down`"):
        yield


@contextmanager
def _locked(home: Path, kind: int, refusal: str) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StillRunning(refusal) from None
        yield
    finally:
        os.close(descriptor)


def end(record: Record, *, force: bool, seconds: float) -> bool:
    """
    Ask a recorded process to end (or kill it) and wait; False when it is still there after `seconds`.

    The process is held by a descriptor before its start time is compared, so the signal cannot reach another.
    """
    try:
        descriptor = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return True
    try:
        if not record.alive:
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGKILL if force else signal.SIGTERM)
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


def _read(path: Path) -> Record | None:
    try:
        return Record(**json.loads(path.read_text()))
    except (
        OSError,
        ValueError,
        TypeError,
    ):  # half written by a crash, or of another release: it proves nothing
        return None
