"""Which modules a program can come to import (pure).

The walk reads syntax trees and runs nothing. A house module is followed
everywhere, also inside functions, because execd imports late on purpose. A
standard-library module is followed only where importing it executes: its
functions name half the library (pdb, tkinter, doctest) for cases that a daemon
never meets, and the whole closure would be ten times as large.

This file is also executed by the interpreter that is being bundled, whose
grammar may be newer than the host's; it imports `ast` and nothing of the house.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Origin = Literal["house", "standin", "stdlib", "builtin", "extension"]


@dataclass(frozen=True)
class Module:
    """A module as the lookup found it: source modules have text, compiled ones say what they need."""

    name: str
    origin: Origin
    package: bool = False
    path: str = ""
    text: bytes = b""
    needs: tuple[str, ...] = ()
    """What a compiled module imports while it is imported."""


@dataclass(frozen=True)
class Reference:
    """One import statement's demand."""

    name: str
    guarded: bool
    """The statement stands in a `try` that catches ImportError."""
    certain: bool
    """The name is a module for sure; `b` of `from a import b` may be a plain attribute."""


@dataclass(frozen=True)
class Graph:
    """The modules reached, by what statements, and which house statements nothing meets."""

    modules: dict[str, Module]
    asked: frozenset[str]
    """Names that some import statement gives for a module; parents come without being asked for."""
    unmet: tuple[str, ...]


Lookup = Callable[[str], "Module | None"]

_CATCHES_IMPORT_ERROR = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def references(module: Module, *, lazily: bool) -> Iterator[Reference]:
    """
    Yield what a module's source asks for, in the order of its text.

    Args:
        module: a source module.
        lazily: follow imports inside functions, and constant arguments of
            `import_module` and `__import__`, too.
    """
    yield from _visit(ast.parse(module.text), module, lazily=lazily, guarded=False)


def walk(roots: Iterable[str], lookup: Lookup) -> Graph:
    """
    Follow imports from the roots until nothing new is reached.

    A root that the lookup does not know is unmet, like a house import.
    """
    modules: dict[str, Module] = {}
    asked: set[str] = set()
    unmet: dict[str, None] = {}
    waiting: list[tuple[str, str, bool]] = [(root, "", True) for root in sorted(roots, reverse=True)]
    while waiting:
        name, importer, required = waiting.pop()
        if name in modules:
            continue
        module = lookup(name)
        if module is None:
            if required:
                unmet[f"{importer} imports {name}" if importer else f"no module {name}"] = None
            continue
        modules[name] = module
        parent = name.rpartition(".")[0]
        if parent:
            waiting.append((parent, name, True))
        if module.origin in {"builtin", "extension"}:
            # They were seen loaded; one that is no file is an alias made by another (`collections.abc`).
            waiting.extend((need, name, False) for need in reversed(module.needs))
            continue
        house = module.origin == "house"
        found = list(references(module, lazily=house))
        asked.update(ref.name for ref in found if ref.certain)
        waiting.extend((ref.name, name, house and ref.certain and not ref.guarded) for ref in reversed(found))
    return Graph(dict(sorted(modules.items())), frozenset(asked), tuple(unmet))


def _visit(node: ast.AST, module: Module, *, lazily: bool, guarded: bool) -> Iterator[Reference]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not lazily:
            return
        case ast.If() if _never_runs(node.test):
            for otherwise in node.orelse:
                yield from _visit(otherwise, module, lazily=lazily, guarded=guarded)
            return
        case ast.Try():
            covered = guarded or any(_catches(handler) for handler in node.handlers)
            for tried in node.body:
                yield from _visit(tried, module, lazily=lazily, guarded=covered)
            for handler in node.handlers:
                # What stands in for a missing module is asked for only where the first is missing.
                spare = guarded or _catches(handler)
                yield from _visit(handler, module, lazily=lazily, guarded=spare)
            for rest in (*node.orelse, *node.finalbody):
                yield from _visit(rest, module, lazily=lazily, guarded=guarded)
            return
        case ast.Import():
            for alias in node.names:
                yield Reference(alias.name, guarded, certain=True)
        case ast.ImportFrom():
            base = _base(node, module)
            yield Reference(base, guarded, certain=True)
            for alias in node.names:
                if alias.name != "*":
                    yield Reference(f"{base}.{alias.name}", guarded, certain=False)
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if lazily and _imports(node.func):
            yield Reference(name, guarded, certain=True)
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _visit(child, module, lazily=lazily, guarded=guarded)


def _base(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    drop = node.level - 1 if module.package else node.level
    kept = parts[: len(parts) - drop]
    return ".".join([*kept, node.module] if node.module else kept)


def _never_runs(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]):
            return True
    return False


def _catches(handler: ast.ExceptHandler) -> bool:
    match handler.type:
        case None:
            return True
        case ast.Name(id=name):
            return name in _CATCHES_IMPORT_ERROR
        case ast.Tuple(elts=kinds):
            return any(isinstance(k, ast.Name) and k.id in _CATCHES_IMPORT_ERROR for k in kinds)
    return False


def _imports(function: ast.expr) -> bool:
    match function:
        case ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"):
            return True
    return False
