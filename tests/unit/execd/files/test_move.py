"""Moving, on one file system and across two."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from execd import loop
from execd.files.move import move
from specs.errors import BoxwrightError, InvalidBody, PathNotFound

ROOT = os.geteuid() == 0


def run(source: Path, dest: Path) -> None:
    loop.run(move(str(source), str(dest)))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system."""
    if os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "dir", "pipe"])
def test_every_kind_moves(tmp_path: Path, kind: str) -> None:
    """Files, links themselves, directories and pipes get the new name; parents are made."""
    source, dest = tmp_path / "s", tmp_path / "x/y/d"
    if kind == "file":
        source.write_text("x")
    elif kind == "dir":
        (source / "sub").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(source)
    else:
        source.symlink_to("/etc" if kind == "link" else "/nowhere")
    before = os.lstat(source)
    run(source, dest)
    after = os.lstat(dest)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert not os.path.lexists(source)


@pytest.mark.parametrize("kind", ["file", "dir", "dangling"])
@pytest.mark.parametrize("source_kind", ["file", "dir"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str, source_kind: str) -> None:
    """An existing destination refuses the move and both stay (§7.3)."""
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir() if source_kind == "dir" else source.write_text("s")
    if kind == "file":
        dest.write_text("d")
    elif kind == "dir":
        dest.mkdir()
    else:
        dest.symlink_to("nowhere")
    inode = os.lstat(dest).st_ino
    with pytest.raises(InvalidBody, match="exists"):
        run(source, dest)
    assert os.lstat(dest).st_ino == inode
    assert source.exists()


def test_a_missing_source_is_404(tmp_path: Path) -> None:
    """Nothing is made when there is nothing to move."""
    with pytest.raises(PathNotFound):
        run(tmp_path / "s", tmp_path / "x/d")
    assert os.listdir(tmp_path) == []


def test_a_directory_does_not_move_into_itself(tmp_path: Path) -> None:
    """The destination may not lie inside of the source, and nothing is made there."""
    (tmp_path / "s").mkdir()
    with pytest.raises(InvalidBody, match="inside"):
        run(tmp_path / "s", tmp_path / "s/x/d")
    assert os.listdir(tmp_path / "s") == []
    run(tmp_path / "s", tmp_path / "sx")


def test_a_tree_crosses_file_systems_whole(tmp_path: Path, elsewhere: Path) -> None:
    """Owners, modes, times, links, hard links, pipes and holes arrive; the source is gone."""
    source = tmp_path / "s"
    (source / "d").mkdir(parents=True)
    (source / "d/a").write_bytes(os.urandom(3_000_000))
    (source / "d/a").chmod(0o4750)
    os.link(source / "d/a", source / "hard")
    (source / "l").symlink_to("../../etc")
    os.mkfifo(source / "p", 0o640)
    with open(source / "sparse", "wb") as file:
        file.truncate(1 << 30)
    os.setxattr(source / "d/a", "user.note", b"kept") if _has_xattr(source / "d/a") else None
    if ROOT:
        os.chown(source / "d/a", 12, 34)
        (source / "d/a").chmod(0o4750)
        os.chown(source / "l", 12, 34, follow_symlinks=False)
    os.utime(source / "d/a", ns=(1_000_000_001, 2_000_000_002))
    os.utime(source / "l", ns=(1_000_000_001, 2_000_000_002), follow_symlinks=False)
    (source / "d").chmod(0o500)
    os.utime(source / "d", ns=(3_000_000_003, 4_000_000_004))
    content = (source / "d/a").read_bytes()
    names = ["", "d", "d/a", "hard", "l", "p", "sparse"]
    before = {name: os.lstat(source / name) for name in names}

    dest = elsewhere / "x/d"
    run(source, dest)

    assert not source.exists()
    assert os.listdir(elsewhere / "x") == ["d"]
    for name in names:
        old, new = before[name], os.lstat(dest / name)
        assert (old.st_mode, old.st_uid, old.st_gid) == (new.st_mode, new.st_uid, new.st_gid), name
        assert old.st_mtime_ns == new.st_mtime_ns, name
    assert (dest / "d/a").read_bytes() == content
    assert os.lstat(dest / "hard").st_ino == os.lstat(dest / "d/a").st_ino
    assert os.readlink(dest / "l") == "../../etc"
    assert stat.S_ISFIFO(os.lstat(dest / "p").st_mode)
    assert os.stat(dest / "sparse").st_blocks == 0


def _has_xattr(path: Path) -> bool:
    try:
        os.setxattr(path, "user.probe", b"1")
        os.removexattr(path, "user.probe")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["file", "link"])
def test_single_entries_cross_too(tmp_path: Path, elsewhere: Path, kind: str) -> None:
    """A file or a link crosses as itself."""
    source = tmp_path / "s"
    source.symlink_to("/nowhere") if kind == "link" else source.write_text("x")
    run(source, elsewhere / "d")
    assert not os.path.lexists(source)
    assert os.path.lexists(elsewhere / "d")
    assert (elsewhere / "d").is_symlink() == (kind == "link")
    assert os.listdir(elsewhere) == ["d"]


def test_a_copy_that_breaks_off_leaves_the_source(tmp_path: Path, elsewhere: Path) -> None:
    """When the move is cancelled half-way, the source is whole and no half copy is left."""
    (tmp_path / "s").write_bytes(bytes(8 << 20))

    async def main() -> None:
        task = loop.start(move(str(tmp_path / "s"), str(elsewhere / "d")), "move")
        for _ in range(4):
            await loop.checkpoint()
        assert not task.done
        task.cancel()
        with pytest.raises(loop.Cancelled):
            await task.join()

    loop.run(main())
    assert (tmp_path / "s").stat().st_size == 8 << 20
    assert os.listdir(elsewhere) == []


def test_denial_keeps_the_source(tmp_path: Path) -> None:
    """A source that may not be unlinked stays, and the destination does not appear."""
    if not ROOT:
        pytest.skip("needs to change identity")
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o755)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/s").write_text("x")
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(BoxwrightError) as caught:
            run(tmp_path / "in/s", tmp_path / "out/d")
    finally:
        os.setresuid(0, 0, 0)
    assert caught.value.status == 403
    assert (tmp_path / "in/s").exists()
    assert os.listdir(tmp_path / "out") == []
    assert caught.value.__cause__ is not None
    assert getattr(caught.value.__cause__, "errno", None) in {errno.EACCES, errno.EPERM}
