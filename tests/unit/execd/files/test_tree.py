"""Walking and removing trees, with links and rearrangements in the way."""

import os
import shutil
from pathlib import Path

import pytest

from execd.files import tree


def listed(root: Path, depth: int | None = None) -> list[str]:
    return [entry.relative for entry in tree.walk(str(root), depth) if entry is not None]


def remove(path: Path) -> None:
    for _ in tree.remove(str(path)):
        pass


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def forest(tmp_path: Path) -> Path:
    for name in ["b/x", "a/y/z", "a-", "c"]:
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "t" / "link").symlink_to("/")
    return tmp_path / "t"


def test_order_is_lexical_and_parents_come_first(forest: Path) -> None:
    """Each directory is told directly before what it holds."""
    assert listed(forest) == ["a", "a/y", "a/y/z", "a-", "b", "b/x", "c", "link"]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(0, []), (1, ["a", "a-", "b", "c", "link"]), (2, ["a", "a/y", "a-", "b", "b/x", "c", "link"])],
)
def test_depth(forest: Path, depth: int, expected: list[str]) -> None:
    """Depth 0 is nothing, depth 1 the children."""
    assert listed(forest, depth) == expected


def test_links_are_not_followed(forest: Path) -> None:
    """A link to / is one entry, however deep the walk (R80)."""
    assert [name for name in listed(forest) if name.startswith("link")] == ["link"]
    with pytest.raises(OSError, match="link"):
        listed(forest / "link")


def test_strange_names(tmp_path: Path) -> None:
    """Newlines, dashes, dollars, percents and bytes that are not UTF-8 are names like others."""
    names = ["-rf", "a\nb", "$HOME", "100%20", "é漢🙂", "\udcff", " "]
    for name in names:
        (tmp_path / name).touch()
    assert listed(tmp_path) == sorted(names)
    for name in names:
        remove(tmp_path / name)
    assert listed(tmp_path) == []


def test_vanished_entries_are_skipped(forest: Path) -> None:
    """What vanishes while the walk is on is left out."""
    seen = []
    for entry in tree.walk(str(forest)):
        assert entry is not None
        seen.append(entry.relative)
        if entry.relative == "a":
            (forest / "a/y/z").unlink()
            (forest / "a/y").rmdir()
            (forest / "a").rmdir()
            (forest / "c").unlink()
    assert seen == ["a", "a-", "b", "b/x", "link"]


def test_a_directory_swapped_for_a_link_is_not_entered(forest: Path) -> None:
    """A directory that becomes a link between being told and being entered is not followed (R80)."""
    (forest.parent / "secret").mkdir()
    (forest.parent / "secret/s").touch()
    seen = []
    for entry in tree.walk(str(forest)):
        assert entry is not None
        seen.append(entry.relative)
        if entry.relative == "b":
            (forest / "b/x").unlink()
            (forest / "b").rmdir()
            (forest / "b").symlink_to(forest.parent / "secret")
    assert "b/s" not in seen


def test_a_tree_moved_away_does_not_lead_outside(forest: Path) -> None:
    """A directory moved elsewhere while it is walked is left by the known way, not by its new parent."""
    (forest.parent / "other").mkdir()
    (forest.parent / "other/secret").touch()
    seen = []
    for entry in tree.walk(str(forest)):
        assert entry is not None
        seen.append(entry.relative)
        if entry.relative == "a/y":
            (forest / "a/y").rename(forest.parent / "other/y")
    assert not any("secret" in name for name in seen)
    assert seen[-1] == "link"


def test_a_lost_way_back_is_an_error(forest: Path) -> None:
    """When the directory to go back to is another one by now, the walk ends with an error."""
    walk = tree.walk(str(forest))
    with pytest.raises(OSError, match="rearranged"):
        for entry in walk:
            if entry is not None and entry.relative == "a/y/z":
                (forest / "a/y").rename(forest.parent / "y")
                (forest / "a").rename(forest.parent / "a")
                (forest / "a").mkdir()


def test_deep_trees_need_few_descriptors(tmp_path: Path) -> None:
    """Depth is bounded neither by PATH_MAX nor by the descriptor limit (R85)."""
    levels = 1500
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deeper", dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    before = descriptors()
    most = 0
    count = 0
    for entry in tree.walk(str(tmp_path)):
        if entry is not None:
            count += 1
            if count % 100 == 0:
                most = max(most, descriptors())
    assert count == levels
    assert most <= before + 4
    remove(tmp_path / "deeper")
    assert listed(tmp_path) == []
    assert descriptors() == before


def test_an_abandoned_walk_leaves_no_descriptor(forest: Path) -> None:
    """Closing the generator closes what it holds."""
    before = descriptors()
    walk = tree.walk(str(forest))
    next(walk)
    walk.close()  # type: ignore[attr-defined]  # a generator
    assert descriptors() == before


def test_large_directories_pause(tmp_path: Path) -> None:
    """A large directory is read in pieces, with pauses between."""
    for at in range(1200):
        (tmp_path / f"{at:05}").touch()
    pauses = sum(entry is None for entry in tree.walk(str(tmp_path)))
    assert pauses == 2


def test_removal_takes_the_link_and_not_its_target(forest: Path) -> None:
    """Removing a link, or a tree with a link in it, leaves what the link points to (R80)."""
    kept = forest.parent / "kept"
    kept.mkdir()
    (kept / "f").touch()
    (forest / "a" / "out").symlink_to(kept)
    top = forest.parent / "top"
    top.symlink_to(forest)
    remove(top)
    assert not top.is_symlink()
    assert (forest / "a").is_dir()
    remove(forest)
    assert not forest.exists()
    assert (kept / "f").exists()


def test_missing_things_are_fine(tmp_path: Path) -> None:
    """Removing what is not there succeeds, also below what is not there."""
    remove(tmp_path / "x")
    remove(tmp_path / "x/y/z")


def test_the_root_is_refused() -> None:
    """The root directory is not removed."""
    with pytest.raises(OSError, match="busy"):
        remove(Path("/"))


def test_removal_goes_on_when_filled_meanwhile(tmp_path: Path) -> None:
    """A directory that gains an entry while it is removed is emptied again."""
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    for at in range(600):
        (top / f"{at}").touch()
    added = False
    for _ in tree.remove(str(top)):
        if not added:
            (top / "d" / "late").touch()
            (top / "later").touch()
            added = True
    assert added
    assert not top.exists()


def test_removal_does_not_follow_a_swap(tmp_path: Path) -> None:
    """A subdirectory swapped for a link while its siblings go is unlinked, not entered."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "f").touch()
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    for at in range(600):
        (top / f"{at}").touch()
    swapped = False
    for _ in tree.remove(str(top)):
        if not swapped:
            (top / "d").rmdir()
            (top / "d").symlink_to(kept)
            swapped = True
    assert swapped
    assert (kept / "f").exists()
    assert not top.exists()


def test_many_names_are_ordered_across_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that were put in order run by run are in order as a whole."""
    monkeypatch.setattr(tree, "_PAUSE", 10)
    monkeypatch.setattr(tree, "_RUN", 50)
    for at in range(333):
        (tmp_path / f"{at * 7919 % 333}").touch()
    assert listed(tmp_path) == sorted(str(at) for at in range(333))


@pytest.mark.parametrize("gone", ["a", "a/y"])
def test_a_branch_may_vanish_while_it_is_walked(forest: Path, gone: str) -> None:
    """As processes do in /proc: what is left is listed, from the nearest parent that is still there."""
    seen = []
    for entry in tree.walk(str(forest)):
        if entry is not None:
            seen.append(entry.relative)
            if entry.relative == "a/y/z":
                shutil.rmtree(forest / gone)
    assert seen == ["a", "a/y", "a/y/z", "a-", "b", "b/x", "c", "link"]


def test_a_tree_that_vanishes_whole_ends_the_walk(forest: Path) -> None:
    """The root is held open, so its end is no error either."""
    seen = []
    for entry in tree.walk(str(forest)):
        if entry is not None:
            seen.append(entry.relative)
            if entry.relative == "a/y":
                shutil.rmtree(forest)
    assert seen == ["a", "a/y"]
