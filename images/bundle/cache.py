"""The build cache: finished things by key, made aside and moved in whole.

    interpreters/KEY   the static interpreter library and its standard library
    runtimes/KEY       the distribution's interpreter, unpacked
    bundles/KIND-KEY   finished bundles
    tools/KEY          compilers
    locks/ logs/ tmp/

A directory under its final name is complete; whoever finds it may use it
without asking. Builders of the same thing wait for each other on a lock file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from images.bundle.errors import LockTimeout

LOCK_SECONDS = 1800.0

Report = Callable[[str], None]


def default_cache(environ: Mapping[str, str]) -> Path:
    """Return where the cache lies unless a setting says otherwise (XDG Base Directory)."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The specification asks to ignore relative paths.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME", "/root")) / ".cache"
    return root / "boxwright"


def log_path(cache: Path, name: str) -> Path:
    """Return the log of one kind of step, and make room for it."""
    logs = cache / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return logs / f"{name}.log"


def made(cache: Path, room: str, key: str, make: Callable[[Path], None], report: Report) -> Path:
    """
    Return `room/key`, making it first if it is not there.

    Args:
        cache: the root of the cache.
        room: the kind of thing.
        key: its content-addressed name.
        make: fills an empty directory; what it leaves is moved in whole.
        report: told when another builder is waited for.
    """
    target = cache / room / key
    if target.is_dir():
        return target
    with locked(cache, f"{room}-{key}", report):
        if target.is_dir():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = cache / "tmp" / f"{room}-{key}"
        # The lock is ours, so whatever lies here was left by a builder that died.
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            make(aside)
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return target


@contextmanager
def locked(cache: Path, name: str, report: Report, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """
    Hold the lock of that name; the kernel lets go of it if we die.

    Raises:
        LockTimeout: another builder held it until the deadline.
    """
    path = cache / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report(f"waiting for another build of {name}")
        try:
            held = _wait(descriptor, seconds)
        except BaseException:
            os.close(descriptor)
            raise
        if not held:
            raise LockTimeout(path, seconds) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _wait(descriptor: int, seconds: float) -> bool:
    """
    Wait for a lock with a deadline, which flock(2) does not have.

    A thread waits in the kernel. When the deadline has passed the descriptor
    belongs to that thread, which closes it as soon as it gets the lock.
    """
    decided = threading.Lock()
    done = threading.Event()
    state = {"gave_up": False}

    def take() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with decided:
            if state["gave_up"]:
                os.close(descriptor)
            else:
                done.set()

    threading.Thread(target=take, name="bundle-lock", daemon=True).start()
    done.wait(seconds)
    with decided:
        state["gave_up"] = not done.is_set()
        return done.is_set()
