"""Who a process runs as."""

import grp
import os
import pwd

import pytest

from execd.processes.identity import Identity, resolve
from specs.errors import InvalidBody

UNKNOWN = 3_999_999_999


def test_nothing_asked_is_nothing_switched() -> None:
    """Our own identity needs no switch, so it needs no capability."""
    assert resolve(None, None) is None
    assert resolve(os.geteuid(), None) is None
    assert resolve(os.geteuid(), os.getegid()) is None


def test_a_known_user_brings_its_groups() -> None:
    """Group and supplementary groups come from the user database."""
    entry = next(entry for entry in pwd.getpwall() if entry.pw_uid != os.geteuid())
    found = resolve(entry.pw_uid, None)
    assert found is not None
    assert (found.uid, found.gid) == (entry.pw_uid, entry.pw_gid)
    named = {group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem}
    assert set(found.groups) == named | {entry.pw_gid}


def test_a_group_given_overrides() -> None:
    """An explicit gid replaces the user's own."""
    assert resolve(UNKNOWN, 77) == Identity(UNKNOWN, 77, ())


@pytest.mark.parametrize(("uid", "gid", "word"), [(UNKNOWN, None, "uid"), (None, 5, "gid")])
def test_an_unknown_user_never_gets_a_group_by_accident(uid: int | None, gid: int | None, word: str) -> None:
    """An unknown user without a group, or a group without a user, is refused."""
    with pytest.raises(InvalidBody, match=word):
        resolve(uid, gid)
