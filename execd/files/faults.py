"""Tell a failed system call in the protocol's terms: by cause, with the path and the deed.

Source: protocol, execd §1.2, §7.7. The original answers 500 for everything but a missing
file; here the caller's mistakes are 400, 403 and 404.
"""

from __future__ import annotations

import errno
import os

from specs.errors import BoxwrightError, ExecutionFailed, InvalidBody, PathForbidden, PathNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_DENIED = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))
_CALLER = frozenset(
    (
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENODEV,
        errno.ENOTDIR,
        errno.ENXIO,
    )
)


def refusal(failure: OSError, deed: str, path: str) -> BoxwrightError:
    """Return the error to raise for a failed system call.

    Args:
        failure: what the system call raised.
        deed: what was attempted, as an infinitive without "to".
        path: the path as the caller should see it.
    """
    number = failure.errno or 0
    reason = os.strerror(number) if number else str(failure)
    message = f"cannot {deed} {path}: {reason}"
    if number == errno.ENOENT:
        return PathNotFound(message)
    if number in _DENIED:
        return PathForbidden(message)
    if number in _CALLER:
        return InvalidBody(message)
    return ExecutionFailed(message)


class telling:  # noqa: N801 - reads as a statement: `with telling("read", path):`
    """Turn an OSError of the body into the refusal that names the deed and the path."""

    __slots__ = ("_deed", "_path")

    def __init__(self, deed: str, path: str) -> None:
        self._deed = deed
        self._path = path

    def __enter__(self) -> None:
        """Nothing is prepared."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise refusal(error, self._deed, self._path) from error
