"""Replacing files all at once."""

import os
import stat
from pathlib import Path

import pytest

from execd import loop
from execd.files import staging
from specs.errors import InvalidBody

ROOT = os.geteuid() == 0


def write(path: Path, data: bytes, mode: int | None = None, uid: int = -1, gid: int = -1) -> None:
    async def main() -> None:
        staged = staging.Staged(staging.look(str(path)))
        try:
            staged.write(data)
            await staged.publish(mode, uid, gid)
        finally:
            staged.close()

    loop.run(main())


@pytest.fixture(params=["nameless", "named"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "named":
        # What a kernel without O_TMPFILE does: overlayfs before Linux 6.3, for one.
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_WRONLY)
    return str(request.param)


@pytest.mark.usefixtures("kind")
class TestBothKinds:
    def test_a_new_file_gets_the_umask(self, tmp_path: Path) -> None:
        """Nobody asked for a mode, so a new file has what open(2) would give it."""
        path = tmp_path / "a"
        before = os.umask(0o027)
        try:
            write(path, b"x")
        finally:
            os.umask(before)
        assert path.read_bytes() == b"x"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_an_old_file_keeps_owner_and_mode(self, tmp_path: Path) -> None:
        """A replaced file looks like before but for its content."""
        path = tmp_path / "a"
        path.write_text("old")
        path.chmod(0o600)
        if ROOT:
            os.chown(path, 12, 34)
        before = path.stat()
        write(path, b"new")
        after = path.stat()
        assert path.read_text() == "new"
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
        assert after.st_ino != before.st_ino

    def test_owner_and_mode_as_asked(self, tmp_path: Path) -> None:
        """What was asked for is there when the name is, set-user-id included."""
        if not ROOT:
            pytest.skip("only root may give files away")
        path = tmp_path / "a"
        write(path, b"x", 0o4751, 12, 34)
        st = path.stat()
        assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (0o4751, 12, 34)

    def test_unpublished_content_leaves_nothing(self, tmp_path: Path) -> None:
        """A broken write leaves the old file and no other (R72)."""
        path = tmp_path / "a"
        path.write_text("old")
        staged = staging.Staged(staging.look(str(path)))
        staged.write(b"half")
        staged.close()
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["a"]

    def test_nothing_but_the_target_is_left(self, tmp_path: Path) -> None:
        """After publishing there is the target and nothing else."""
        for data in (b"", b"1", b"2"):
            write(tmp_path / "a", data)
            assert (tmp_path / "a").read_bytes() == data
        assert os.listdir(tmp_path) == ["a"]

    def test_a_link_is_written_through(self, tmp_path: Path) -> None:
        """A link at the end of the path stays a link; its target gets the content."""
        (tmp_path / "d").mkdir()
        (tmp_path / "d/real").write_text("old")
        (tmp_path / "l").symlink_to("m")
        (tmp_path / "m").symlink_to("d/real")
        write(tmp_path / "l", b"new")
        assert (tmp_path / "l").is_symlink()
        assert (tmp_path / "d/real").read_text() == "new"

    def test_a_dangling_link_makes_its_target(self, tmp_path: Path) -> None:
        """Like open(2) with O_CREAT."""
        (tmp_path / "l").symlink_to("real")
        write(tmp_path / "l", b"new")
        assert (tmp_path / "l").is_symlink()
        assert (tmp_path / "real").read_text() == "new"

    def test_somebody_quicker_is_replaced(self, tmp_path: Path) -> None:
        """A file that appears between looking and publishing is replaced, not an error."""

        async def main() -> None:
            staged = staging.Staged(staging.look(str(tmp_path / "a")))
            staged.write(b"late")
            (tmp_path / "a").write_text("early")
            await staged.publish()
            staged.close()

        loop.run(main())
        assert (tmp_path / "a").read_text() == "late"
        assert os.listdir(tmp_path) == ["a"]


def test_a_target_that_may_only_be_written_is_written_in_place(tmp_path: Path) -> None:
    """A writable file in a directory that is not writable gets the content, and keeps its inode."""
    if not ROOT:
        pytest.skip("needs to change identity")
    tmp_path.parent.chmod(0o755)
    tmp_path.parent.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    path = tmp_path / "a"
    path.write_text("a much longer old content")
    os.chown(path, 65534, 65534)
    inode = path.stat().st_ino
    os.setresuid(65534, 65534, 0)
    try:
        write(path, b"new")
    finally:
        os.setresuid(0, 0, 0)
    assert path.read_text() == "new"
    assert path.stat().st_ino == inode
    assert os.listdir(tmp_path) == ["a"]


def test_a_foreign_file_keeps_its_owner(tmp_path: Path) -> None:
    """A file of somebody else that we may write is written in place, because its owner cannot be kept."""
    if not ROOT:
        pytest.skip("needs to change identity")
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o777)
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o666)
    os.setresuid(65534, 65534, 0)
    try:
        write(path, b"new")
    finally:
        os.setresuid(0, 0, 0)
    assert path.read_text() == "new"
    assert path.stat().st_uid == 0
    assert os.listdir(tmp_path) == ["a"]


def test_a_loop_of_links_is_told(tmp_path: Path) -> None:
    """Links that lead in a circle are an error, not a hang (R79)."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        staging.look(str(tmp_path / "a"))


def test_directories_and_sockets_are_refused(tmp_path: Path) -> None:
    """What cannot take content is refused at once."""
    with pytest.raises(InvalidBody, match="directory"):
        staging.look(str(tmp_path))


def test_a_pipe_without_a_reader_is_refused_at_once(tmp_path: Path) -> None:
    """Opening a pipe nobody reads does not block (R86)."""
    os.mkfifo(tmp_path / "p")
    assert staging.look(str(tmp_path / "p")).stream
    with pytest.raises(InvalidBody, match="no reader"):
        staging.open_stream(str(tmp_path / "p"))


def test_a_file_that_lost_its_name_is_written_through(tmp_path: Path) -> None:
    """/proc/self/fd/N of a deleted file leads to the open file, not to a new one called "(deleted)"."""
    with open(tmp_path / "a", "w+b") as file:
        (tmp_path / "a").unlink()
        target = staging.look(f"/proc/self/fd/{file.fileno()}")
    assert target.stream
    assert os.listdir(tmp_path) == []


def test_holes_stay_holes(tmp_path: Path) -> None:
    """Copying a sparse file copies its data and its length, not its emptiness."""
    with open(tmp_path / "a", "wb") as file:
        file.write(b"start")
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate(65 << 20)

    async def main() -> None:
        source = os.open(tmp_path / "a", os.O_RDONLY)
        out = os.open(tmp_path / "b", os.O_RDWR | os.O_CREAT)
        await staging.copy(source, out)
        os.close(source)
        os.close(out)

    loop.run(main())
    st = os.stat(tmp_path / "b")
    assert st.st_size == 65 << 20
    assert st.st_blocks * 512 < 1 << 20
    with open(tmp_path / "b", "rb") as made:
        assert made.read(5) == b"start"
        made.seek(64 << 20)
        assert made.read(4) == b"end\0"
