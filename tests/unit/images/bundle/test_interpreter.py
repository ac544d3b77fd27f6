"""Finding a built interpreter."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from images.bundle.interpreter import Interpreter, Record, cached, recipe

RECORD = Record(recipe(), "3.13", "3.13.5-2", "0.17.1", "x86_64-linux-musl")


def put(cache: Path, key: str, record: Record, moment: int) -> None:
    home = cache / "interpreters" / key
    home.mkdir(parents=True)
    path = home / "interpreter.json"
    path.write_text(json.dumps(asdict(record)))
    os.utime(path, (moment, moment))


def test_the_newest_interpreter_that_fits_is_taken(tmp_path: Path) -> None:
    """
    Another recipe or another architecture does not fit; among the rest the last built wins.
    """
    put(tmp_path, "first", RECORD, 1)
    put(tmp_path, "second", replace(RECORD, source="3.13.5-3"), 2)
    put(tmp_path, "flags", replace(RECORD, recipe="another"), 3)
    put(tmp_path, "arch", replace(RECORD, target="aarch64-linux-musl"), 4)

    found = cached(tmp_path, "x86_64-linux-musl")

    assert found is not None
    assert found.key == "second"
    assert cached(tmp_path / "nowhere", "x86_64-linux-musl") is None


def test_archives_are_in_the_linker_s_order(tmp_path: Path) -> None:
    """
    The interpreter's library comes before those it calls.
    """
    (tmp_path / "lib").mkdir()
    for name in ("libHacl_B.a", "libHacl_A.a", "libpython3.13.a"):
        (tmp_path / "lib" / name).touch()

    archives = Interpreter(tmp_path, "k", RECORD).archives

    assert [path.name for path in archives] == ["libpython3.13.a", "libHacl_A.a", "libHacl_B.a"]
