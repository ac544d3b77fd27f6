"""A spool's cursors count for ever and its size is bounded."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execd.output.spool import SCANT, Spool


def read(spool: Spool, cursor: int, *, finished: bool = True) -> tuple[int, bytes, int]:
    held = spool.snapshot(cursor, finished=finished)
    try:
        return held.cursor, b"".join(held.pieces()), held.after
    finally:
        held.close()


def test_reading_on_from_the_returned_cursor_gives_everything_once(tmp_path: Path) -> None:
    """Polling with the returned cursor repeats nothing and leaves nothing out."""
    spool = Spool(str(tmp_path), 1000)
    got, cursor = b"", 0
    for piece in (b"one\n", b"two\n", b"", b"three"):
        spool.write(piece)
        _, data, cursor = read(spool, cursor)
        got += data
    assert got == b"one\ntwo\nthree"
    assert read(spool, cursor) == (cursor, b"", cursor)
    spool.close()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 60), st.integers(-5, 2000))
def test_the_newest_bytes_are_kept_within_the_limit(parts: list[bytes], limit: int, cursor: int) -> None:
    """R44: at least half of the limit is kept, never more than the limit, always the newest."""
    spool = Spool("/nonexistent", limit)
    for part in parts:
        spool.write(part)
    everything = b"".join(parts)
    start, data, after = read(spool, cursor)
    assert len(spool) <= limit
    assert len(spool) >= min(len(everything), limit // 2)
    assert after == len(everything)
    assert start == min(max(cursor, spool.start), after)
    assert data == everything[start:]
    spool.close()


def test_a_cursor_before_the_start_is_moved_up(tmp_path: Path) -> None:
    """A cursor that points at dropped output reads what is left."""
    spool = Spool(str(tmp_path), 8)
    spool.write(b"0123456789")
    assert spool.truncated
    assert read(spool, 0) == (4, b"456789", 10)
    spool.close()


def test_a_character_is_not_cut_by_a_poll(tmp_path: Path) -> None:
    """R39: half of a character waits for its other half, unless the output is complete."""
    spool = Spool(str(tmp_path), 100)
    spool.write("a🙂".encode()[:3])
    assert read(spool, 0, finished=False) == (0, b"a", 1)
    assert read(spool, 0) == (0, "a🙂".encode()[:3], 3)
    spool.write("a🙂".encode()[3:])
    assert read(spool, 1, finished=False) == (1, "🙂".encode(), 5)
    spool.close()


def test_a_snapshot_does_not_change(tmp_path: Path) -> None:
    """What is being sent to a client stays, whatever is written or dropped meanwhile."""
    spool = Spool(str(tmp_path), 8)
    spool.write(b"abcdef")
    held = spool.snapshot(0)
    spool.write(b"x" * 100)
    spool.close()
    assert b"".join(held.pieces()) == b"abcdef"
    held.close()


def test_a_spool_has_no_name(tmp_path: Path) -> None:
    """R46, R53: nothing appears in the directory, and without a directory memory is used."""
    spool = Spool(str(tmp_path), 100)
    spool.write(b"secret")
    assert os.listdir(tmp_path) == []
    spool.close()
    homeless = Spool(str(tmp_path / "gone"), 100)
    homeless.write(b"kept")
    assert read(homeless, 0)[1] == b"kept"
    homeless.close()


def test_closing_gives_descriptors_back(tmp_path: Path) -> None:
    """A closed spool holds no descriptor and reads as empty."""
    before = len(os.listdir("/proc/self/fd"))
    spool = Spool(str(tmp_path), 4)
    spool.write(b"0123456")
    spool.close()
    spool.close()
    spool.write(b"late")
    assert read(spool, 0)[1] == b""
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_drops_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room the oldest output goes, the newest is counted, and nothing raises."""
    spool = Spool(str(tmp_path), 100)
    spool.write(b"old")
    full = os.open("/dev/full", os.O_RDWR)
    monkeypatch.setattr("execd.output.spool.open_unnamed", lambda _: os.dup(full))
    os.dup2(full, spool._current)
    spool.write(b"new")
    assert spool.end == 6
    assert spool.start == 6
    assert spool.truncated
    spool.close()
    os.close(full)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_disk_full_of_other_things_leaves_a_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not even the first byte fits on disk the newest output is kept in memory, within a bound."""

    def open_unnamed(directory: str) -> int:
        return os.open("/dev/full", os.O_RDWR) if directory else os.memfd_create("spool")

    monkeypatch.setattr("execd.output.spool.open_unnamed", open_unnamed)
    spool = Spool(str(tmp_path), 64 << 20)
    spool.write(b"kept")
    assert read(spool, 0) == (0, b"kept", 4)
    for _ in range(40):
        spool.write(bytes(64 << 10))
    assert len(spool) <= 2 * SCANT
    assert spool.truncated
    spool.close()
