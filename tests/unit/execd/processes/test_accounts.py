"""The two account files."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from execd.processes.accounts import MAX_FILE, Accounts

PASSWD = "root:x:0:0:root:/root:/bin/sh\nbroken\n::\na:x:abc:1:::\nweb:x:33:34:The web:/srv:/bin/false\nroot2:x:0:7::/:\n"
GROUP = "root:x:0:\nadm:x:4:syslog,web\nweb:x:34:\nbad:x:-1:web\nshort:x:99\nlog:x:5:web\n"


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    (tmp_path / "passwd").write_text(PASSWD)
    (tmp_path / "group").write_text(GROUP)
    return Accounts(str(tmp_path / "passwd"), str(tmp_path / "group"))


def test_users_are_found_by_id_and_name(accounts: Accounts) -> None:
    """The first entry that fits counts, and lines that are no entry are passed over."""
    for wanted in (33, "web"):
        found = accounts.user(wanted)
        assert found is not None
        assert (found.name, found.uid, found.gid, found.home) == ("web", 33, 34, "/srv")
    root = accounts.user(0)
    assert root is not None
    assert root.name == "root"
    assert [accounts.user(wanted) for wanted in (1, "33", "a", "broken", "")] == [None] * 5


def test_groups_are_found_by_id_and_name(accounts: Accounts) -> None:
    """A group without a list of members is a group too."""
    found = [accounts.group(wanted) for wanted in (4, "adm", "short", -1, "bad")]
    assert [None if one is None else one.gid for one in found] == [4, 4, 99, None, None]


def test_a_users_groups_are_those_that_list_it(accounts: Accounts) -> None:
    """The given group comes with them."""
    assert accounts.groups_of("web", 34) == {34, 4, 5}
    assert accounts.groups_of("nobody", 1) == {1}


def test_the_c_library_agrees() -> None:
    """On this machine every user and group is what getpwuid and getgrgid say."""
    for user in pwd.getpwall():
        found = Accounts().user(user.pw_name)
        assert found is not None
        assert (found.uid, found.gid, found.home) == (user.pw_uid, user.pw_gid, user.pw_dir)
    for group in grp.getgrall():
        known = Accounts().group(group.gr_name)
        assert known is not None
        assert known.gid == group.gr_gid


@pytest.mark.parametrize("kind", ["fifo", "zero", "directory", "huge", "missing"])
def test_a_file_that_is_no_database_has_no_entries(tmp_path: Path, kind: str) -> None:
    """Whatever the user puts in the file's place, the answer comes at once."""
    path = tmp_path / "passwd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as out:
            out.truncate(MAX_FILE + 1)
    accounts = Accounts(str(path), str(path))
    assert accounts.user(0) is None
    assert accounts.group("root") is None
    assert accounts.groups_of("root", 3) == {3}
