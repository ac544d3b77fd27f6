"""Finding the compiler in the cache."""

from pathlib import Path

from images.bundle.cache import made
from images.bundle.zig import _key, cached, target


def test_an_installed_compiler_is_found_without_pip(tmp_path: Path) -> None:
    """
    The version is read from the cache, and its object cache lies beside it.
    """
    assert cached(tmp_path) is None

    def install(aside: Path) -> None:
        (aside / "version").write_text("0.17.1\n")

    made(tmp_path, "tools", _key(), install, lambda _: None)
    found = cached(tmp_path)

    assert found is not None
    assert (found.version, found.target) == ("0.17.1", target())
    assert set(found.env) == {"ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"}
    assert found.objects == tmp_path / "tools/objects-0.17.1"
