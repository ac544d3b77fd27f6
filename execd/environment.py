"""What a user's process gets as its environment, and paths expanded with it.

From lowest to highest: the container's environment without our names, the file named
by EXECD_ENVS (looked at again for every process, read again when it changed), a
request's own variables.

Source: execd contract §4.2, §7.1.
"""

from __future__ import annotations

import os

from execd import envfile
from specs.errors import InvalidBody
from specs.names import ENV_COMMAND_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_FILE = 4 << 20
MAX_COMPLAINTS = 20  # of one reading


class Environment:
    """The environment of user processes.

    Args:
        base: the container's environment, our names removed.
        file: path of the EXECD_ENVS file; it need not exist.
        complain: told of entries that are skipped; never of a value.
    """

    __slots__ = ("_base", "_complain", "_file", "_seen", "_strayed", "_together", "_where")

    def __init__(
        self, base: Mapping[str, str], file: str | None, complain: Callable[[str], None] | None = None
    ) -> None:
        self._base = dict(base)
        self._file = file
        self._complain = complain
        self._seen: tuple[int, int, int] | None = None  # mtime, size, inode of what was read
        self._together: dict[str, str] = self._base
        self._where: str | None = None  # the working directory we were started in
        self._strayed = False  # it is gone, and we are elsewhere

    def compose(self, envs: Mapping[str, str] | None = None, command_id: str | None = None) -> dict[str, str]:
        """
        Return the environment of one process.

        Args:
            envs: the request's variables, taken literally.
            command_id: marks the process and all that come from it.
        """
        self._refresh()
        out = dict(self._together)
        if envs:
            out.update(envs)
        if command_id is not None:
            out[ENV_COMMAND_ID] = command_id
        return out

    def home(self) -> str:
        """Return what `~` stands for."""
        return self._base.get("HOME") or "/"

    def where(self) -> str:
        """
        Return the working directory, which is the one that programs are started in.

        When somebody has deleted it we move to the one that was made in its place, or to `/` until
        there is one.
        """
        try:
            here: str | None = os.getcwd()
        except FileNotFoundError:
            here = None
        if self._where is None:
            self._where = here or "/"
        if here is not None and not self._strayed:
            return here
        try:
            os.chdir(self._where)
        except OSError:
            os.chdir("/")
            self._strayed = True
            return "/"
        self._strayed = False
        return self._where

    def _refresh(self) -> None:
        if self._file is None:
            return
        try:
            found = os.stat(self._file)
        except OSError:
            self._seen = None
            self._together = self._base
            return
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen == self._seen:
            return
        self._seen = seen
        self._together = self._base
        try:
            text = _read(self._file)
        except (OSError, ValueError) as failure:
            self._report(f"{self._file}: not read: {failure}")
            return
        parsed, broken = envfile.parse(text, self._base)
        entries, too_long = envfile.fit(parsed)
        self._together = {**self._base, **entries}
        complaints = broken + too_long
        for complaint in complaints[:MAX_COMPLAINTS]:
            self._report(f"{self._file}: {complaint}; the entry is skipped")
        if len(complaints) > MAX_COMPLAINTS:
            self._report(f"{self._file}: {len(complaints) - MAX_COMPLAINTS} more entries are skipped")

    def _report(self, text: str) -> None:
        if self._complain is not None:
            self._complain(text)


def _read(path: str) -> str:
    # The file belongs to the user, who may have put a FIFO in its place.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if found.st_mode & 0o170000 != 0o100000:
            raise ValueError("not a regular file")
        if found.st_size > MAX_FILE:
            raise ValueError(f"longer than {MAX_FILE} bytes")
        return os.read(fd, MAX_FILE).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def directory(text: str, variables: Mapping[str, str], *, home: str, base: str, field: str = "cwd") -> str:
    """
    Expand a working directory: `$NAME`, `${NAME}`, a leading `~`; relative to `base`.

    Raises:
        InvalidBody: a variable is not set.
    """
    path, unknown = envfile.expand(text, variables)
    if unknown:
        raise InvalidBody(f"{field}: {text!r} names ${unknown[0]}, which is not set")
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(os.path.join(base, path))


def check_directory(path: str, field: str = "cwd") -> str:
    """
    Return `path` if it is a directory.

    Raises:
        InvalidBody: it is not.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as failure:
        raise InvalidBody(f"{field}: {path!r} cannot be entered: {failure.strerror}") from failure
    if mode & 0o170000 != 0o040000:
        raise InvalidBody(f"{field}: {path!r} is not a directory")
    return path
