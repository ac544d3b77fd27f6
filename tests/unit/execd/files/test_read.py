"""Opening what is to be read."""

import os
import socket
from pathlib import Path

import pytest

from execd import loop
from execd.files import read
from specs.errors import InvalidBody


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/tty", "/tmp", "/"])
def test_devices_and_directories_are_refused(path: str) -> None:
    """What never ends, or is no file, is refused at once (R86)."""
    with pytest.raises(InvalidBody):
        read.open_to_read(path)


def test_sockets_are_refused(tmp_path: Path) -> None:
    """A socket cannot be read as a file."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        with pytest.raises(InvalidBody):
            read.open_to_read(str(tmp_path / "s"))


def test_a_pipe_opens_without_a_writer(tmp_path: Path) -> None:
    """Opening a pipe does not wait for a writer."""
    os.mkfifo(tmp_path / "p")
    fd, _ = read.open_to_read(str(tmp_path / "p"))
    os.close(fd)


def test_made_up_files_are_read_to_their_end() -> None:
    """A file of /proc says 0 bytes and has more (R86)."""
    fd, st = read.open_to_read("/proc/self/status")
    try:
        assert st.st_size == 0
        assert not read.states_true_length(st)
        data, whole = loop.run(read.read_small(fd))
    finally:
        os.close(fd)
    assert whole
    assert data.startswith(b"Name:")


def test_large_files_are_believed(tmp_path: Path) -> None:
    """Files with blocks, and large holes, have the length that they state."""
    (tmp_path / "a").write_bytes(bytes(range(256)))
    os.sync()
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 30)
    assert read.states_true_length(os.stat(tmp_path / "a"))
    assert read.states_true_length(os.stat(tmp_path / "hole"))


def test_reading_a_little_stops(tmp_path: Path) -> None:
    """A large file is not read whole to learn its length."""
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 30)
    fd = os.open(tmp_path / "hole", os.O_RDONLY)
    data, whole = loop.run(read.read_small(fd))
    os.close(fd)
    assert not whole
    assert len(data) < 2 << 20


def test_an_unnamed_pipe_is_left_to_its_reader() -> None:
    """/proc/<pid>/fd leads to pipes that somebody lives on, the daemon too: their bytes are not taken."""
    ends = os.pipe()
    try:
        os.write(ends[1], b"mine")
        with pytest.raises(InvalidBody, match="unnamed pipe"):
            read.open_to_read(f"/proc/self/fd/{ends[0]}")
        assert os.read(ends[0], 10) == b"mine"
    finally:
        for fd in ends:
            os.close(fd)
