"""The part of a build that runs inside the interpreter being bundled.

Only that interpreter can parse its own standard library and only its bytecode
is valid for it. It is started as `python3 -I -S -B -c BOOTSTRAP` with a plan as
JSON on standard input, and answers with JSON. It imports nothing of the house
but `graph`, which is pure.
"""

from __future__ import annotations

import json
import marshal
import os
import sys
from typing import Any

from images.bundle import graph
from images.bundle.graph import Module

# What the interpreter itself imports while it starts, and the codecs of UTF-8 text;
# `os` is also the file by which the relocatable interpreter knows its library.
STARTUP_MODULES = (
    "abc",
    "codecs",
    "encodings",
    "encodings.aliases",
    "encodings.ascii",
    "encodings.latin_1",
    "encodings.utf_8",
    "io",
    "os",
    "zipimport",
)

# Compiled into every interpreter; a module of the same name in the table would only get in the way.
_BUILT_INTO_IMPORT = frozenset({"importlib._bootstrap", "importlib._bootstrap_external", "zipimport"})

_JSON_STANDINS = frozenset({"json", "json.decoder"})

# Started with the house's images folder and the extension folder as arguments. Compiled modules
# import others from C, where no syntax tree shows it, so each is imported here to see what it
# brings, before anything else is loaded that would hide it.
BOOTSTRAP = """
import sys, types, posix
names = list(sys.builtin_module_names)
if sys.argv[2]:
    names += [entry.partition(".")[0] for entry in posix.listdir(sys.argv[2]) if entry.endswith(".so")]
needs = {}
for name in sorted(names):
    before = set(sys.modules)
    try:
        __import__(name)
    except ImportError:
        pass
    brought = set(sys.modules) - before
    needs[name] = sorted(brought - {name})
    for module in brought:
        del sys.modules[module]
for name, path in (("images", sys.argv[1]), ("images.bundle", sys.argv[1] + "/bundle")):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from images.bundle.target import main
main(needs)
"""


class Finder:
    """Find a module by name: house, stand-in, built in, standard library, extension."""

    def __init__(
        self, house: dict[str, str], standins: str, stdlib: str, dynload: str, needs: dict[str, list[str]]
    ) -> None:
        self._needs = needs
        self.shadowed = _JSON_STANDINS
        self._house = house
        self._standins = standins
        self._stdlib = stdlib
        self._extensions: dict[str, str] = {}
        if dynload and os.path.isdir(dynload):
            for entry in os.listdir(dynload):
                name, _, suffix = entry.partition(".")
                if suffix.endswith("so"):
                    self._extensions[name] = os.path.join(dynload, entry)

    def __call__(self, name: str) -> Module | None:
        if name in _BUILT_INTO_IMPORT:
            return Module(name, "builtin")
        top = name.partition(".")[0]
        if top in self._house:
            return _source(name, self._house[top], "house")
        if name in sys.builtin_module_names:
            return Module(name, "builtin", needs=tuple(self._needs.get(name, ())))
        if name in self.shadowed:
            return _source(name, self._standins, "standin")
        found = _source(name, self._stdlib, "stdlib")
        if found is None and name in self._extensions:
            needs = tuple(self._needs.get(name, ()))
            return Module(name, "extension", path=self._extensions[name], needs=needs)
        return found


def collect(plan: dict[str, Any], needs: dict[str, list[str]]) -> graph.Graph:
    """
    Return every module the bundle must hold.

    The C scanner `_json` wants `json.decoder` for its exception alone, so a
    stand-in takes its place, unless something asks for the real `json`.

    Args:
        plan: where the house, the stand-ins and the library are.
        needs: what each compiled module brought when it was imported.
    """
    finder = Finder(plan["house"], plan["standins"], plan["stdlib"], plan["dynload"], needs)
    wanted = [*STARTUP_MODULES, *_JSON_STANDINS, *plan["roots"]]
    found = graph.walk(wanted, finder)
    if any(name.partition(".")[0] == "json" and name != "json.decoder" for name in found.asked):
        finder.shadowed = frozenset()
        found = graph.walk(wanted, finder)
    return found


def freeze(found: graph.Graph, blob: str) -> list[dict[str, Any]]:
    """Write all code objects into one file; return where each lies."""
    table = []
    offset = 0
    with open(blob, "wb") as out:
        for module in found.modules.values():
            if module.origin in {"builtin", "extension"}:
                continue
            code = compile(module.text, f"<frozen {module.name}>", "exec", dont_inherit=True, optimize=2)
            data = marshal.dumps(code)
            table.append(
                {"name": module.name, "offset": offset, "size": len(data), "package": module.package}
            )
            # Sixteen bytes apart: marshal reads words, and the linker keeps the order.
            padded = data + bytes(-len(data) % 16)
            out.write(padded)
            offset += len(padded)
    return table


def lay_out(found: graph.Graph, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Write sources with bytecode that is never checked against them; return all modules."""
    import importlib._bootstrap_external
    from importlib.util import cache_from_source, source_hash

    # The standard library has no public name for "bytecode of this code object, never checked".
    to_pyc = importlib._bootstrap_external._code_to_hash_pyc  # type: ignore[attr-defined]

    listing: list[dict[str, Any]] = []
    for module in found.modules.values():
        entry = {"name": module.name, "origin": module.origin, "path": module.path}
        listing.append(entry)
        if module.origin in {"builtin", "extension"}:
            continue
        inside = plan["app"] if module.origin == "house" else plan["lib"]
        relative = module.name.replace(".", "/") + ("/__init__.py" if module.package else ".py")
        path = os.path.join(plan["tree"], inside, relative)
        mounted = f"{plan['mount']}/{inside}/{relative}"
        code = compile(module.text, mounted, "exec", dont_inherit=True, optimize=0)
        compiled = cache_from_source(path)
        os.makedirs(os.path.dirname(compiled), exist_ok=True)
        with open(path, "wb") as out:
            out.write(module.text)
        with open(compiled, "wb") as out:
            out.write(to_pyc(code, source_hash(module.text), checked=False))
    return listing


def main(needs: dict[str, list[str]]) -> None:
    plan = json.loads(sys.stdin.read())
    found = collect(plan, needs)
    answer: dict[str, Any] = {"python": sys.version.split()[0], "unmet": list(found.unmet), "modules": []}
    if not found.unmet:
        answer["modules"] = freeze(found, plan["blob"]) if plan["blob"] else lay_out(found, plan)
    sys.stdout.write(json.dumps(answer))


def _source(name: str, folder: str, origin: graph.Origin) -> Module | None:
    base = os.path.join(folder, *name.split("."))
    for path, package in ((os.path.join(base, "__init__.py"), True), (base + ".py", False)):
        if os.path.isfile(path):
            with open(path, "rb") as source:
                return Module(name, origin, package, path, source.read())
    return None
