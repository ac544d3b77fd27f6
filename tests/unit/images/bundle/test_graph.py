"""The import walk: what a program can come to import."""

import pytest

from images.bundle.graph import Lookup, Module, Origin, Reference, references, walk


def module(text: str, name: str = "execd.here", *, package: bool = False) -> Module:
    return Module(name, "house", package, text=text.encode())


def world(house: dict[str, str], stdlib: dict[str, str] | None = None) -> Lookup:
    """A lookup over texts; a name that another name lies under is a package."""
    texts = {**house, **(stdlib or {})}

    def lookup(name: str) -> Module | None:
        if name in {"sys", "_socket"}:
            return Module(name, "builtin")
        if name not in texts:
            return None
        package = any(other.startswith(f"{name}.") for other in texts)
        origin: Origin = "house" if name in house else "stdlib"
        return Module(name, origin, package, text=texts[name].encode())

    return lookup


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os", ["os"]),
        ("import os.path as p, sys", ["os.path", "sys"]),
        ("from a.b import c", ["a.b", "a.b.c"]),
        ("from a import *", ["a"]),
        ("from . import near", ["execd", "execd.near"]),
        ("from .near import x", ["execd.near", "execd.near.x"]),
        ("def f():\n    import late", ["late"]),
        ("async def f():\n    from late import x", ["late", "late.x"]),
        ("class C:\n    import inside", ["inside"]),
        ("import_module('named')", ["named"]),
        ("importlib.import_module('named')", ["named"]),
        ("__import__('named')", ["named"]),
        ("import_module(name)", []),
        ("if TYPE_CHECKING:\n    import never\nelse:\n    import always", ["always"]),
        ("if typing.TYPE_CHECKING:\n    import never", []),
        ("if __name__ == '__main__':\n    import never", []),
        ("match x:\n    case 1:\n        import one", ["one"]),
    ],
)
def test_a_statement_asks_for_these_modules(text: str, expected: list[str]) -> None:
    """
    Every form of import that the language has is read, and code that never runs is not.
    """
    assert [ref.name for ref in references(module(text), lazily=True)] == expected


def test_a_relative_import_in_a_package_starts_at_the_package() -> None:
    """
    `.` in `execd/loop/__init__.py` is `execd.loop`, in `execd/loop/timers.py` it is `execd.loop` too.
    """
    in_package = references(module("from .x import y", "execd.loop", package=True), lazily=True)
    in_module = references(module("from ..wire import y", "execd.loop.timers"), lazily=True)

    assert next(in_package).name == "execd.loop.x"
    assert next(in_module).name == "execd.wire"


def test_functions_are_passed_over_when_only_importing_matters() -> None:
    """
    A standard-library function's own imports do not count as the module's.
    """
    text = "import top\ndef f():\n    import late\nf = lambda: __import__('later')\nclass C:\n    import body"

    assert [ref.name for ref in references(module(text), lazily=False)] == ["top", "body"]


@pytest.mark.parametrize(
    ("handler", "guarded"),
    [
        ("except ImportError:", True),
        ("except ModuleNotFoundError:", True),
        ("except (OSError, ImportError):", True),
        ("except:", True),
        ("except OSError:", False),
    ],
)
def test_a_try_that_catches_import_errors_guards_its_body(handler: str, guarded: bool) -> None:
    """
    The body of such a `try` may lack its module, and so may what stands in for it.
    """
    text = f"try:\n    import first\n{handler}\n    import second"

    assert list(references(module(text), lazily=True)) == [
        Reference("first", guarded=guarded, certain=True),
        Reference("second", guarded=guarded, certain=True),
    ]


def test_the_walk_takes_parents_and_late_imports_of_the_house() -> None:
    """
    A house module reached from a function brings its packages and what it imports.
    """
    lookup = world(
        {"execd": "", "execd.a": "def f():\n    import execd.b.c", "execd.b": "", "execd.b.c": "import sys"}
    )

    found = walk(["execd.a"], lookup)

    assert list(found.modules) == ["execd", "execd.a", "execd.b", "execd.b.c", "sys"]
    assert found.unmet == ()


def test_the_walk_follows_the_library_only_where_importing_executes_it() -> None:
    """
    The library's late imports stay out of the bundle, its early ones come in.
    """
    lookup = world(
        {"execd": "import lib"}, {"lib": "import early\ndef f():\n    import pdb", "early": "", "pdb": ""}
    )

    assert list(walk(["execd"], lookup).modules) == ["early", "execd", "lib"]


def test_an_attribute_is_not_taken_for_a_missing_module() -> None:
    """
    `from a import b` needs `a`; whether `b` is a module is found out.
    """
    found = walk(["execd"], world({"execd": "from lib import value, part"}, {"lib": "", "lib.part": ""}))

    assert list(found.modules) == ["execd", "lib", "lib.part"]
    assert found.unmet == ()


@pytest.mark.parametrize(
    ("text", "unmet"),
    [
        ("import nowhere", ("execd imports nowhere",)),
        ("def f():\n    from nowhere.at import all", ("execd imports nowhere.at",)),
        ("try:\n    import nowhere\nexcept ImportError:\n    pass", ()),
    ],
)
def test_an_unguarded_house_import_must_be_met(text: str, unmet: tuple[str, ...]) -> None:
    """
    What would fail at run time inside a sandbox fails at build time instead.
    """
    assert walk(["execd"], world({"execd": text})).unmet == unmet


def test_the_library_may_ask_for_what_is_not_there() -> None:
    """
    The standard library guards its platform modules in its own ways.
    """
    assert walk(["execd"], world({"execd": "import lib"}, {"lib": "import winreg"})).unmet == ()


def test_a_root_that_is_nowhere_is_unmet() -> None:
    """
    A root nobody has is reported by its own name.
    """
    assert walk(["gone"], world({})).unmet == ("no module gone",)
