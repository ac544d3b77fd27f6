"""Judge the conditional headers of a download.

Source: RFC 9110 §8.8, §13; protocol: execd §7.6.
"""

from __future__ import annotations

from execd.files.dates import parse_http_date

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os


def entity_tag(st: os.stat_result) -> str:
    """Return a strong validator: another content has another time, size or inode."""
    return f'"{st.st_mtime_ns:x}-{st.st_size:x}-{st.st_ino:x}"'


def not_modified(if_none_match: str | None, if_modified_since: str | None, tag: str, modified: int) -> bool:
    """Say whether the client's copy is good.

    Args:
        if_none_match: the header; when present the date is not looked at.
        if_modified_since: the header; a date that cannot be read is ignored.
        tag: the file's entity tag.
        modified: the second of its last change.
    """
    if if_none_match is not None:
        known = [item.strip(" \t").removeprefix("W/") for item in if_none_match.split(",")]
        return "*" in known or tag in known
    if if_modified_since is not None:
        since = parse_http_date(if_modified_since)
        return since is not None and modified <= since
    return False


def range_applies(if_range: str | None, tag: str, modified: int) -> bool:
    """Say whether a Range may be answered in part: only for the very version the client has."""
    if if_range is None:
        return True
    wanted = if_range.strip(" \t")
    if wanted.startswith('"'):
        return wanted == tag
    return parse_http_date(wanted) == modified  # a weak tag is no date, so it never applies
