"""Which processes are at work on a store: each holds a lock that the kernel gives back when it ends.

A lock needs no clock and no heartbeat: kill -9 ends it at once, and a process that is only slow is
never taken for dead. SQLite's own WAL mode needs all its processes on one machine, so a file lock
reaches as far as the store does.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from pathlib import Path


class Presence:
    """This process among those that share a store; not on the list before `enlist`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._worker = uuid.uuid4().hex
        self._held: int | None = None
        self._lock = threading.Lock()

    def enlist(self) -> str:
        """
        Put this process on the list until it ends, however it ends; return its id.

        Raises:
            OSError: the folder cannot be written.
        """
        with self._lock:
            if self._held is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._held = _locked(self._folder / self._worker)
        return self._worker

    def enlisted(self) -> frozenset[str]:
        """
        Return the ids of the processes that live; what dead ones left is removed.

        Raises:
            OSError: the folder cannot be read.
        """
        try:
            found = os.listdir(self._folder)
        except FileNotFoundError:
            return frozenset()
        return (
            frozenset(name for name in found if name == self._worker or _is_held(self._folder / name))
            - self._absent()
        )

    def leave(self) -> None:
        """Take this process off the list."""
        with self._lock:
            if self._held is not None:
                (self._folder / self._worker).unlink(missing_ok=True)
                os.close(self._held)
                self._held = None

    def _absent(self) -> frozenset[str]:
        return frozenset() if self._held is not None else frozenset({self._worker})


def _locked(path: Path) -> int:
    while True:
        held = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(held).st_ino:
                return held
        except OSError:
            os.close(held)
            raise
        os.close(held)  # someone found the file before it was locked and took it for a dead one's


def _is_held(path: Path) -> bool:
    """Tell whether a living process holds this lock; a file that nobody holds is removed."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    finally:
        os.close(found)
    return False
