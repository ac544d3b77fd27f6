"""Choosing a compiler for the spawn program."""

from pathlib import Path

import pytest

from images.bundle.errors import SourceMissing
from images.bundle.spawn_program import Compiler, any_compiler, compile_spawn
from images.bundle.zig import Zig

ZIG = Zig(Path("/z/zig"), "0.17.1", "x86_64-linux-musl", Path("/z/objects"))


def test_zig_is_taken_when_it_is_there() -> None:
    """
    The compiler of the frozen bundle comes first, with its own object cache.
    """
    chosen = any_compiler(ZIG)

    assert chosen is not None
    assert chosen.name == "zig 0.17.1"
    assert chosen.argv[:4] == ("/z/zig", "cc", "-target", "x86_64-linux-musl")
    assert dict(chosen.env)["ZIG_GLOBAL_CACHE_DIR"] == "/z/objects"


def test_a_missing_source_is_an_error(tmp_path: Path) -> None:
    """
    A bundle is not silently built without its spawn program.
    """
    with pytest.raises(SourceMissing, match=r"spawn\.c"):
        compile_spawn(tmp_path, tmp_path / "spawn", Compiler("none", ("false",)), tmp_path / "log")
