"""The installation's secret: 32 random bytes in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

FILE: Final = "secret.key"
SECRET_BYTES: Final = 32


class SecretDamaged(Exception):
    """The file is there and is not what it should be; tokens made with another one would not fit."""


def read_secret(home: Path) -> bytes:
    """
    Return the secret of an installation, making it the first time.

    Raises:
        SecretDamaged: the file has another length, or others may read it.
    """
    path = home / FILE
    try:
        found = _read(path)
    except FileNotFoundError:
        _create(path)
        found = _read(path)
    for draft in home.glob(f"{FILE}.*"):  # of a process that was killed while it made one
        draft.unlink(missing_ok=True)
    return found


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{FILE}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(SECRET_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(draft, path)  # fails when another process was faster, whose secret then is the one
    except (FileExistsError, FileNotFoundError):
        pass
    finally:
        draft.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        content = os.read(descriptor, SECRET_BYTES + 1)
    finally:
        os.close(descriptor)
    if mode & 0o077:
        raise SecretDamaged(f"{path} may be read by others; run: chmod 600 {path}")
    if len(content) != SECRET_BYTES:
        raise SecretDamaged(
            f"{path} does not hold {SECRET_BYTES} bytes; restore it from a backup. Without it, running "
            "sandboxes cannot "
            "be reached any more: delete them, then the file"
        )
    return content
