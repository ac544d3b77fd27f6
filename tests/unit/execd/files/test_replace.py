"""Replacing text in files."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd import loop
from execd.files.replace import Substitution, replace
from specs.errors import InvalidBody


def through(data: bytes, old: bytes, new: bytes, size: int) -> tuple[bytes, int]:
    work = Substitution(old, new)
    out = [piece for at in range(0, len(data), size) for piece in work.feed(data[at : at + size])]
    return b"".join((*out, work.finish())), work.count


@given(
    st.text("ab", max_size=20).map(str.encode),
    st.text("ab", min_size=1, max_size=4).map(str.encode),
    st.text("abc", max_size=3).map(str.encode),
    st.integers(1, 7),
)
def test_any_chunking_replaces_what_the_whole_would(data: bytes, old: bytes, new: bytes, size: int) -> None:
    """Occurrences across piece borders are found, from the left, without overlap."""
    assert through(data, old, new, size) == (data.replace(old, new), data.count(old))


def test_a_growing_text_comes_in_bounded_pieces() -> None:
    """A long replacement of many short occurrences never stands in memory whole."""
    work = Substitution(b"a", bytes(1 << 20))
    sizes = [len(piece) for piece in work.feed(b"a" * 100)]
    assert max(sizes) <= 2 << 20
    assert sum(sizes) == 100 << 20


def test_a_file_is_replaced_in_place_of_itself(tmp_path: Path) -> None:
    """Content changes; mode stays; nothing else is left."""
    path = tmp_path / "a"
    path.write_bytes(b"one two one\xff")
    path.chmod(0o640)
    assert loop.run(replace(str(path), b"one", b"1")) == 2
    assert path.read_bytes() == b"1 two 1\xff"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a"]


def test_no_occurrence_touches_nothing(tmp_path: Path) -> None:
    """A file without a match keeps its inode and time (R74: also an empty one)."""
    for data in (b"", b"abc"):
        path = tmp_path / "a"
        path.write_bytes(data)
        before = path.stat()
        assert loop.run(replace(str(path), b"zz", b"1")) == 0
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        assert path.stat().st_ino == before.st_ino


def test_a_link_is_followed_to_its_file(tmp_path: Path) -> None:
    """Through a link, and through a linked directory, the file itself changes (R80)."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("x")
    (tmp_path / "l").symlink_to("d")
    (tmp_path / "f").symlink_to("d/a")
    assert loop.run(replace(str(tmp_path / "l/a"), b"x", b"y")) == 1
    assert loop.run(replace(str(tmp_path / "f"), b"y", b"z")) == 1
    assert (tmp_path / "d/a").read_text() == "z"
    assert (tmp_path / "f").is_symlink()


def test_large_files_pass_in_pieces(tmp_path: Path) -> None:
    """A file larger than any piece, with matches on the borders, is replaced exactly."""
    data = (b"x" * 262_142 + b"needle") * 9
    (tmp_path / "a").write_bytes(data)
    assert loop.run(replace(str(tmp_path / "a"), b"needle", b"pin")) == 9
    assert (tmp_path / "a").read_bytes() == data.replace(b"needle", b"pin")


@pytest.mark.parametrize("kind", ["dir", "pipe", "device"])
def test_only_regular_files(tmp_path: Path, kind: str) -> None:
    """Directories, pipes and devices are refused without waiting for anything."""
    path = tmp_path / "p"
    if kind == "dir":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InvalidBody):
        loop.run(replace(str(path), b"a", b"b"))
