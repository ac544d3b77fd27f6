"""The part that runs in the interpreter being bundled, run in this one."""

import marshal
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from images.bundle.sources import STANDINS, own_source_root
from images.bundle.target import STARTUP_MODULES, collect, freeze, lay_out

NEEDS = {"array": ["collections", "collections.abc"]}


def plan(root: Path, **house: str) -> dict[str, Any]:
    (root / "execd").mkdir(parents=True)
    (root / "execd/__init__.py").write_text("")
    for name, text in house.items():
        (root / "execd" / f"{name}.py").write_text(text)
    return {
        "house": {"execd": str(root), "specs": str(root)},
        "roots": ["execd", *(f"execd.{name}" for name in house)],
        "standins": str(own_source_root() / STANDINS),
        "stdlib": sysconfig.get_paths()["stdlib"],
        "dynload": sysconfig.get_config_var("DESTSHARED"),
    }


def test_start_up_modules_are_always_collected(tmp_path: Path) -> None:
    """
    An interpreter without search path finds what it imports before any program.
    """
    found = collect(plan(tmp_path, one="x = 1"), NEEDS)

    assert set(STARTUP_MODULES) <= found.modules.keys()
    assert found.unmet == ()


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("from _json import make_scanner", "standin"),
        ("import json.decoder", "standin"),
        ("from json.decoder import JSONDecodeError", "standin"),
        ("def f():\n    import json", "stdlib"),
        ("from json import loads", "stdlib"),
    ],
)
def test_the_stand_in_gives_way_to_the_real_json(tmp_path: Path, text: str, origin: str) -> None:
    """
    Only a program that asks for `json` itself pays for it.
    """
    found = collect(plan(tmp_path, one=text), NEEDS)

    assert {found.modules[name].origin for name in ("json", "json.decoder")} == {origin}
    assert ("re" in found.modules) == (origin == "stdlib")


def test_what_compiled_modules_import_is_collected(tmp_path: Path) -> None:
    """
    A compiled module brings what it imports from C, where no syntax tree shows it.
    """
    assert "collections" not in collect(plan(tmp_path / "without", one="import array"), {}).modules
    assert "collections" in collect(plan(tmp_path / "with", one="import array"), NEEDS).modules


def test_what_is_not_there_is_reported(tmp_path: Path) -> None:
    """
    An import that no part of the interpreter meets is named with its importer.
    """
    assert collect(plan(tmp_path, one="import _no_such_module"), NEEDS).unmet == (
        "execd.one imports _no_such_module",
    )


def test_frozen_code_lies_where_the_table_says(tmp_path: Path) -> None:
    """
    Each module's code can be loaded from its offset and knows its frozen name.
    """
    found = collect(plan(tmp_path / "root", one="'''doc'''\nassert False\nvalue = 41 + 1"), NEEDS)
    blob = tmp_path / "blob"

    table = {row["name"]: row for row in freeze(found, str(blob))}

    row = table["execd.one"]
    code = marshal.loads(blob.read_bytes()[row["offset"] : row["offset"] + row["size"]])
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    assert (namespace["value"], namespace.get("__doc__"), code.co_filename) == (
        42,
        None,
        "<frozen execd.one>",
    )
    assert (row["package"], table["execd"]["package"]) == (False, True)
    assert all(entry["offset"] % 16 == 0 for entry in table.values())


def test_the_laid_out_tree_has_bytecode_that_is_never_checked(tmp_path: Path) -> None:
    """
    Bytecode is flagged as hash-based and unchecked, and names the file where it is mounted.
    """
    asked = {
        **plan(tmp_path / "root", one="x = 1"),
        "tree": str(tmp_path / "tree"),
        "app": "app",
        "lib": "lib/py",
        "mount": "/m",
    }

    listing = lay_out(collect(asked, NEEDS), asked)

    assert (tmp_path / "tree/app/execd/one.py").read_text() == "x = 1"
    assert (tmp_path / "tree/lib/py/encodings/__init__.py").is_file()
    (compiled,) = (tmp_path / "tree/app/execd/__pycache__").glob("one.*.pyc")
    data = compiled.read_bytes()
    assert data[4:8] == (1).to_bytes(4, "little")
    assert marshal.loads(data[16:]).co_filename == "/m/app/execd/one.py"
    assert {"name": "execd.one", "origin": "house", "path": str(tmp_path / "root/execd/one.py")} in listing
