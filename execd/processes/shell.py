"""Which shell the image has: bash, else sh, looked up once and again when it vanished."""

from __future__ import annotations

import os

from execd.processes.spawn import candidates
from specs.errors import InvalidBody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Shell:
    """A shell: the name it is told and the file it is."""

    __slots__ = ("name", "path")

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path


class Shells:
    """The image's shell.

    Args:
        environ: the container's environment; its PATH is searched.
    """

    __slots__ = ("_environ", "_found")

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._found: Shell | None = None

    def get(self) -> Shell:
        """
        Return the shell.

        Raises:
            InvalidBody: the image has none.
        """
        if self._found is None or not os.access(self._found.path, os.X_OK):
            self._found = self._look()
        if self._found is None:
            raise InvalidBody(
                "command: the image has no shell (neither bash nor sh on its PATH); use argv instead"
            )
        return self._found

    def _look(self) -> Shell | None:
        for name in ("bash", "sh"):
            for path in candidates(name, self._environ):
                if os.access(path, os.X_OK):
                    return Shell(name, path)
        return None
