"""gateway/runtimes/docker/subpaths.py: opening a folder without following links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.runtimes.docker import subpaths
from gateway.runtimes.docker.subpaths import SubpathRefused


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "_data"
    (root / "a" / "b").mkdir(parents=True)
    (root / "file").touch()
    (root / "out").symlink_to("/")
    (root / "in").symlink_to("a")
    root.chmod(0o2775)
    return root


@pytest.mark.parametrize("subpath", ["a", "a/b", "a//b/", "./a"])
def test_a_folder_inside_is_opened(volume: Path, subpath: str) -> None:
    """
    What was opened is the folder that the path names.
    """
    descriptor = subpaths.open_inside(str(volume), subpath, create=False)
    try:
        assert os.path.samestat(os.fstat(descriptor), (volume / subpath).stat())
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "subpath", ["..", "a/../..", "out", "out/etc", "in", "in/b", "file", "file/x", "absent"]
)
@pytest.mark.parametrize("create", [False, True])
def test_links_files_and_ways_out_are_refused(volume: Path, subpath: str, create: bool) -> None:
    """
    Not even a link that stays inside is followed, whether or not folders may be made.
    """
    if create and subpath == "absent":
        return
    with pytest.raises(SubpathRefused):
        subpaths.check(str(volume), subpath, create=create)
    assert not (volume / "in" / "b").is_symlink()


def test_made_folders_are_like_their_parent(volume: Path) -> None:
    """
    The sandbox's user can write where it could write to the volume.
    """
    subpaths.check(str(volume), "new/er", create=True)

    assert (volume / "new" / "er").is_dir()
    assert (volume / "new").stat().st_mode & 0o777 == 0o775


def test_no_descriptor_is_left_open(volume: Path) -> None:
    """
    Neither success nor refusal leaks.
    """
    before = os.listdir("/proc/self/fd")
    subpaths.check(str(volume), "a/b", create=False)
    with pytest.raises(SubpathRefused):
        subpaths.check(str(volume), "a/none", create=False)

    assert os.listdir("/proc/self/fd") == before


def test_a_place_comes_and_goes(tmp_path: Path) -> None:
    """
    A place is private, made twice without harm, and removed twice without harm.
    """
    place = tmp_path / "held" / "abc-0"
    for _ in range(2):
        subpaths.make_place(str(place))
    assert place.stat().st_mode & 0o777 == 0o700
    assert place.parent.stat().st_mode & 0o777 == 0o700
    for _ in range(2):
        subpaths.release(str(place))
    assert not place.exists()
