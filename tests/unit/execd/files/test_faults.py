"""Failed system calls in the protocol's terms."""

import errno

import pytest

from execd.files.faults import refusal, telling
from specs.errors import PathNotFound


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.ENOENT, 404, "FILE_NOT_FOUND"),
        (errno.EACCES, 403, "PERMISSION_DENIED"),
        (errno.EPERM, 403, "PERMISSION_DENIED"),
        (errno.EROFS, 403, "PERMISSION_DENIED"),
        (errno.ELOOP, 400, "INVALID_REQUEST_BODY"),
        (errno.ENAMETOOLONG, 400, "INVALID_REQUEST_BODY"),
        (errno.ENOTDIR, 400, "INVALID_REQUEST_BODY"),
        (errno.EISDIR, 400, "INVALID_REQUEST_BODY"),
        (errno.ENOSPC, 500, "RUNTIME_ERROR"),
        (errno.EDQUOT, 500, "RUNTIME_ERROR"),
        (errno.EIO, 500, "RUNTIME_ERROR"),
    ],
)
def test_the_cause_decides(number: int, status: int, code: str) -> None:
    """Status and code follow the cause, and the message names deed and path (R79)."""
    error = refusal(OSError(number, "x"), "read", "/a/b")
    assert (error.status, error.code) == (status, code)
    assert error.message.startswith("cannot read /a/b: ")


def test_denials_say_permission() -> None:
    """A denied access holds the word that clients look for (§7.8)."""
    assert "ermission" in refusal(OSError(errno.EACCES, ""), "read", "/a").message


def test_other_errors_pass() -> None:
    """Only failed system calls are translated."""
    with pytest.raises(ValueError, match="x"), telling("read", "/a"):
        raise ValueError("x")
    with pytest.raises(PathNotFound), telling("read", "/a"):
        raise FileNotFoundError(errno.ENOENT, "")
