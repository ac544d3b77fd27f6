"""Turn a path as the caller wrote it into an absolute, clean one.

`$NAME` and `${NAME}` come from the environment of user processes, `~` and `~/x` from its HOME,
relative paths start in the daemon's working directory, then `.`, `..` and double slashes are
removed by text.

A name that really holds a `$` can be addressed all the same, which the original cannot: when
the unexpanded path exists it is meant as it stands; and when a variable is not set, the path is
taken as it stands if its parent directory exists (so `/tmp/a$b` can be created) and it does
not begin with the variable.

Source: protocol, execd §7.1.
"""

from __future__ import annotations

import os

from execd.processes.accounts import Accounts
from specs.errors import InvalidBody
from specs.wire import BadField, check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NAME = _NAME_START | frozenset("0123456789")


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Replace variables; return the text and the name of the first one that is not set.

    A `$` that begins no name stands for itself.
    """
    out: list[str] = []
    missing: str | None = None
    at = 0
    while True:
        dollar = text.find("$", at)
        if dollar < 0:
            out.append(text[at:])
            return "".join(out), missing
        out.append(text[at:dollar])
        end = dollar + 1
        if text[end : end + 1] == "{" and (close := text.find("}", end)) > end + 1:
            name, end = text[end + 1 : close], close + 1
        else:
            if text[end : end + 1] in _NAME_START:
                while end < len(text) and text[end] in _NAME:
                    end += 1
            name = text[dollar + 1 : end]
        if not name:
            out.append("$")
        elif name in environ:
            out.append(environ[name])
        elif missing is None:
            missing = name
        at = end


def clean(path: str) -> str:
    """Remove `.`, `..`, double and trailing slashes from an absolute path."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path  # POSIX keeps two leading slashes apart; we do not


class Paths:
    """Resolves the paths of one request."""

    __slots__ = ("_environ", "_exists", "_home", "_where")

    def __init__(
        self,
        environ: Mapping[str, str],
        where: str,
        exists: Callable[[str], bool] = os.path.lexists,
        home: Callable[[], str] | None = None,
    ) -> None:
        """Take the facts.

        Args:
            environ: the environment of user processes.
            where: the working directory, absolute.
            exists: says whether a path exists (a dangling link does).
            home: finds the home directory when the environment has no HOME.
        """
        self._environ = environ
        self._where = where
        self._exists = exists
        self._home = home or _home_of_user

    def resolve(self, text: str, field: str = "path") -> str:
        """Return the absolute path.

        Raises:
            InvalidBody: it is empty, holds NUL, or names a variable that is not set.
        """
        try:
            check_text(text, field)
        except BadField as bad:
            raise InvalidBody(str(bad)) from None
        if not text:
            raise InvalidBody(f"{field}: must not be empty")
        if "$" not in text:
            return self._absolute(text)
        literal = self._absolute(text)
        if self._exists(literal):
            return literal
        expanded, missing = expand(text, self._environ)
        if missing is None:
            return self._absolute(expanded)
        if not text.startswith("$") and self._exists(os.path.dirname(literal)):
            return literal
        raise InvalidBody(
            f"{field} {text}: the variable {missing} is not set; a name with a literal $ is accepted "
            "when it exists, or when its directory does"
        )

    def _absolute(self, text: str) -> str:
        if text == "~" or text.startswith("~/"):
            text = (self._environ.get("HOME") or self._home()) + text[1:]
        if not text.startswith("/"):
            text = f"{self._where}/{text}"
        return clean(text)


def _home_of_user() -> str:
    user = Accounts().user(os.getuid())
    return (user.home if user is not None else "") or "/"
