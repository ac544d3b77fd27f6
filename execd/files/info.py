"""Describe one entry of the file system.

A name that is not UTF-8 is told with each undecodable byte as a lone surrogate (U+DC80 plus
the byte's low bits, PEP 383), which JSON can carry as an escape; the same text in a body, or the
raw bytes percent-encoded in a query, address the entry again.

Source: protocol, execd §7.2; inode(7). `created_at` is the inode's change time, as in the
original: the birth time cannot be had without statx(2).
"""

from __future__ import annotations

from stat import S_ISDIR, S_ISLNK, S_ISREG

from execd.files.owners import groups, users
from specs.execd import FileInfo
from specs.wire import rfc3339

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

_FIRST = -62135596800 * 10**9  # 0001-01-01T00:00:00Z
_LAST = 253402300799 * 10**9  # 9999-12-31T23:59:59Z: a file may carry any time, RFC 3339 may not


def type_name(mode: int) -> str:
    """Return the protocol's word for a file type."""
    if S_ISREG(mode):
        return "file"
    if S_ISDIR(mode):
        return "directory"
    return "symlink" if S_ISLNK(mode) else "other"


def describe(path: str, st: os.stat_result) -> FileInfo:
    """Return what the protocol tells of an entry."""
    return FileInfo(
        path=path,
        type=type_name(st.st_mode),
        size=st.st_size,
        modified_at=rfc3339(min(max(st.st_mtime_ns, _FIRST), _LAST)),
        created_at=rfc3339(min(max(st.st_ctime_ns, _FIRST), _LAST)),
        owner=users.name(st.st_uid),
        group=groups.name(st.st_gid),
        mode=st.st_mode & 0o777,  # the permission bits only (§7.2)
    )
