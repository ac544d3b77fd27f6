"""Delete, permissions, directories."""

import os
import stat
from pathlib import Path

import pytest

from execd import loop
from execd.files import change
from specs.errors import BoxwrightError, InvalidBody, PathForbidden, PathNotFound
from specs.execd import Permission

ROOT = os.geteuid() == 0


def test_delete_removes_links_themselves(tmp_path: Path) -> None:
    """A link goes, dangling or not; what it points to stays (R80)."""
    (tmp_path / "a").touch()
    (tmp_path / "l").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "d").mkdir()
    (tmp_path / "to-dir").symlink_to("d")
    for name in ("l", "dangling", "to-dir", "missing", "missing/deeper"):
        change.delete(str(tmp_path / name))
    assert sorted(os.listdir(tmp_path)) == ["a", "d"]


def test_delete_refuses_directories(tmp_path: Path) -> None:
    """A directory is a caller's mistake that says what to call instead."""
    with pytest.raises(InvalidBody, match="DELETE /directories"):
        change.delete(str(tmp_path))
    assert tmp_path.exists()


@pytest.mark.parametrize(
    ("name", "status"), [("loop/x", 400), ("a/x", 400), ("x" * 300, 400), ("/proc/self/stat", 403)]
)
def test_delete_tells_the_cause(tmp_path: Path, name: str, status: int) -> None:
    """Loops, files used as directories, long names and denials have their own status (R79)."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a").touch()
    with pytest.raises(BoxwrightError) as caught:
        change.delete(str(tmp_path / name))
    assert caught.value.status == status


def test_permissions_follow_links_and_set_every_bit(tmp_path: Path) -> None:
    """Mode, set-user-id and sticky included, reaches what the link points to."""
    (tmp_path / "a").touch()
    (tmp_path / "l").symlink_to("a")
    change.permit(str(tmp_path / "l"), Permission(mode=0o5711))
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o5711


def test_permissions_by_id_and_by_name(tmp_path: Path) -> None:
    """Owners are names or numbers; the mode survives the change of owner."""
    if not ROOT:
        pytest.skip("only root may give files away")
    path = tmp_path / "a"
    path.touch()
    change.permit(str(path), Permission("4321", "root", 0o4755))
    st = path.stat()
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (4321, 0, 0o4755)
    change.permit(str(path), Permission(owner="root"))
    assert path.stat().st_uid == 0


def test_permissions_of_missing_paths_and_people(tmp_path: Path) -> None:
    """A missing path is 404 even when nothing is asked, an unknown owner 400."""
    for permission in (Permission(mode=0o644), Permission()):
        with pytest.raises(PathNotFound):
            change.permit(str(tmp_path / "x"), permission)
    with pytest.raises(InvalidBody, match="no user"):
        change.permit(str(tmp_path), Permission(owner="nobody-here"))


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    """Owner and group go to all that are made, the mode to the last one."""
    owner = "4321" if ROOT else None
    change.make_directory(str(tmp_path / "a/b/c"), Permission(owner, None, 0o700))
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")]
    mask = os.umask(0)
    os.umask(mask)
    assert modes == [0o777 & ~mask, 0o777 & ~mask, 0o700]
    if ROOT:
        assert [(tmp_path / name).stat().st_uid for name in ("a", "a/b", "a/b/c")] == [4321] * 3
        assert tmp_path.stat().st_uid == 0


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    """Mode and owner are not touched when the directory was there."""
    tmp_path.chmod(0o750)
    change.make_directory(str(tmp_path), Permission(mode=0o777))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750
    (tmp_path / "l").symlink_to(tmp_path)
    change.make_directory(str(tmp_path / "l"), Permission(mode=0o777))


@pytest.mark.parametrize("name", ["file", "file/x", "dangling"])
def test_something_else_in_the_way(tmp_path: Path, name: str) -> None:
    """A file where a directory should be is a caller's mistake."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(InvalidBody):
        change.make_directory(str(tmp_path / name), Permission())


def test_trees_are_deleted_while_others_run(tmp_path: Path) -> None:
    """A tree goes, and other tasks get their turns meanwhile."""
    for at in range(60):
        directory = tmp_path / "t" / f"{at}"
        directory.mkdir(parents=True)
        for file in range(50):
            (directory / f"{file}").touch()
    turns = 0

    async def main() -> None:
        nonlocal turns
        task = loop.start(change.delete_tree(str(tmp_path / "t")), "delete")
        while not task.done:
            turns += 1
            await loop.checkpoint()
        await task.join()

    loop.run(main())
    assert not (tmp_path / "t").exists()
    assert turns > 2


def test_a_failure_names_what_could_not_be_deleted(tmp_path: Path) -> None:
    """The message names the entry, not only the tree."""
    if not ROOT:
        pytest.skip("needs to change identity")
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        directory.chmod(0o777)
    (tmp_path / "t/d").mkdir(parents=True)
    (tmp_path / "t/d/f").touch()
    os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(PathForbidden, match="t/d/f"):
            loop.run(change.delete_tree(str(tmp_path / "t")))
    finally:
        os.setresuid(0, 0, 0)
