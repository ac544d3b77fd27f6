"""What is told of an entry."""

import os
import re
import socket
from pathlib import Path

import pytest

from execd.files.info import describe
from specs.wire import encode


def test_every_field_is_there(tmp_path: Path) -> None:
    """A file has exactly the fields of the protocol (§7.2)."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"hello world\n")
    path.chmod(0o644)
    os.utime(path, ns=(0, 1_500_000_000_500_000_000))
    out = describe(str(path), os.lstat(path)).to_json()
    assert list(out) == ["path", "type", "size", "modified_at", "created_at", "owner", "group", "mode"]
    assert (out["path"], out["type"], out["size"], out["mode"]) == (str(path), "file", 12, 644)
    assert out["modified_at"] == "2017-07-14T02:40:00.500000000Z"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", str(out["created_at"]))


def test_types(tmp_path: Path) -> None:
    """Links, directories and everything else are told apart."""
    (tmp_path / "d").mkdir()
    (tmp_path / "l").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "p")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        types = {name: describe(name, os.lstat(tmp_path / name)).type for name in "dlps"}
    assert types == {"d": "directory", "l": "symlink", "p": "other", "s": "other"}


def test_mode_zero_is_zero(tmp_path: Path) -> None:
    """Mode 0 is 0, and bits beyond the nine are not told."""
    path = tmp_path / "a"
    path.touch(0o600)
    path.chmod(0)
    assert describe("a", os.lstat(path)).to_json()["mode"] == 0
    path.chmod(0o4755)
    assert describe("a", os.lstat(path)).to_json()["mode"] == 755


@pytest.mark.parametrize("seconds", [-(2**40), 2**40])
def test_impossible_times_stay_dates(seconds: int, tmp_path: Path) -> None:
    """A time that RFC 3339 cannot say is clamped to one that it can."""
    path = tmp_path / "a"
    path.touch()
    try:
        os.utime(path, (seconds, seconds))
    except OverflowError:
        pytest.fail("this platform cannot set the time under test")
    text = describe("a", os.lstat(path)).modified_at
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", text)


def test_a_name_that_is_not_utf8_can_be_told(tmp_path: Path) -> None:
    """Undecodable bytes become lone surrogates in ASCII JSON, which name the file again."""
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(path, "wb"):
        pass
    name = os.fsdecode(path)
    out = encode(describe(name, os.lstat(name)).to_json())
    assert b"\\udcff\\udcfe" in out
    assert out.isascii()
