"""Which files go into a bundle."""

from pathlib import Path

import pytest

from images.bundle.errors import SourceMissing
from images.bundle.sources import own_source_root, roots, source_digest

FILES = {
    "execd/__init__.py": "",
    "execd/__main__.py": "def main(argv):\n    from execd.room import late\n    return 0\n",
    "execd/room/__init__.py": "",
    "execd/room/late.py": "from specs.names import X\n",
    "specs/__init__.py": "",
    "specs/names.py": "X = 1\n",
    "specs/unused.py": "Y = 1\n",
    "images/build/execd/main.c": "int main;",
    "images/build/execd/spawn.c": "int main;",
    "images/build/execd/entry.py": "",
    "images/build/execd/standins/json/decoder.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_module_of_execd_is_a_root(tree: Path) -> None:
    """
    Also what no other module imports is in the bundle.
    """
    assert roots(tree) == ["execd", "execd.__main__", "execd.room", "execd.room.late"]


@pytest.mark.parametrize("name", [name for name in FILES if name != "specs/unused.py"])
def test_the_digest_covers_what_is_built_in(tree: Path, name: str) -> None:
    """
    A change of any file a bundle is made of is a change of the digest.
    """
    before = source_digest(tree)
    (tree / name).write_text(FILES[name] + "\n")

    assert source_digest(tree) != before


def test_the_digest_passes_over_what_stays_out(tree: Path) -> None:
    """
    A shape that execd does not reach may change without a new bundle.
    """
    before = source_digest(tree)
    (tree / "specs/unused.py").write_text("Z = 1\n")

    assert source_digest(tree) == before


@pytest.mark.parametrize(
    "name",
    [
        "execd/__main__.py",
        "images/build/execd/main.c",
        "images/build/execd/spawn.c",
        "images/build/execd/entry.py",
    ],
)
def test_a_missing_source_is_an_error(tree: Path, name: str) -> None:
    """
    A bundle is never built without one of its parts.
    """
    (tree / name).unlink()

    with pytest.raises(SourceMissing, match=name):
        source_digest(tree)


def test_the_own_root_holds_the_build_folder() -> None:
    """
    The code finds the sources it was shipped with.
    """
    assert (own_source_root() / "images/build/execd/main.c").is_file()
