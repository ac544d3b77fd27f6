"""The build cache: whole things under final names, one builder at a time."""

import threading
from pathlib import Path

import pytest

from images.bundle.cache import default_cache, locked, made
from images.bundle.errors import LockTimeout


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/boxwright"),
        ({"HOME": "/h"}, "/h/.cache/boxwright"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/boxwright"),
        ({}, "/root/.cache/boxwright"),
    ],
)
def test_the_default_cache_follows_the_desktop_rules(environ: dict[str, str], expected: str) -> None:
    """
    XDG_CACHE_HOME counts when it is absolute, else HOME does.
    """
    assert default_cache(environ) == Path(expected)


def test_a_thing_is_made_once(tmp_path: Path) -> None:
    """
    What is in the cache is not made again.
    """
    calls: list[Path] = []

    def make(aside: Path) -> None:
        calls.append(aside)
        (aside / "file").write_text("x")

    first = made(tmp_path, "room", "key", make, lambda _: None)
    second = made(tmp_path, "room", "key", make, lambda _: None)

    assert first == second == tmp_path / "room/key"
    assert len(calls) == 1
    assert (first / "file").read_text() == "x"


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    """
    A half-made thing has no final name and no temporary one.
    """

    def make(aside: Path) -> None:
        (aside / "half").touch()
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        made(tmp_path, "room", "key", make, lambda _: None)

    assert not (tmp_path / "room/key").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_dead_builder_left_is_cleared(tmp_path: Path) -> None:
    """
    A builder starts from an empty directory even after a crash of the one before.
    """
    left = tmp_path / "tmp/room-key"
    left.mkdir(parents=True)
    (left / "old").touch()

    path = made(tmp_path, "room", "key", lambda aside: (aside / "new").touch(), lambda _: None)

    assert [file.name for file in path.iterdir()] == ["new"]


def test_two_builders_of_one_thing_make_it_once(tmp_path: Path) -> None:
    """
    The second builder waits for the first and takes what it made.
    """
    inside, go_on = threading.Event(), threading.Event()
    calls: list[str] = []
    told: list[str] = []
    waiting = threading.Event()

    def make(aside: Path) -> None:
        calls.append(aside.name)
        inside.set()
        assert go_on.wait(10)

    def report(line: str) -> None:
        told.append(line)
        waiting.set()

    first = threading.Thread(target=made, args=(tmp_path, "room", "key", make, lambda _: None))
    first.start()
    assert inside.wait(10)
    second = threading.Thread(target=made, args=(tmp_path, "room", "key", make, report))
    second.start()
    assert waiting.wait(10)
    go_on.set()
    first.join(10)
    second.join(10)

    assert calls == ["room-key"]
    assert told == ["waiting for another build of room-key"]


def test_waiting_for_a_lock_ends(tmp_path: Path) -> None:
    """
    A builder that never ends is an error for the next one, and the lock is free after it does end.
    """
    with (
        locked(tmp_path, "name", lambda _: None),
        pytest.raises(LockTimeout, match="name"),
        locked(tmp_path, "name", lambda _: None, seconds=0.01),
    ):
        pytest.fail("two holders")

    with locked(tmp_path, "name", lambda _: None, seconds=10):
        pass
