"""The error table: complete, unique, and the same on the page as in the code."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from boxwright.errors import Unexplained, classes, explained, markdown, meanings
from specs.errors import BadRequest, BoxwrightError

ROOT = Path(__file__).resolve().parents[3]
CODES = {one.code for one in meanings()}
UNSAID = {"CALLER_GONE"}  # whoever it is about has left
CODE = re.compile(r"[A-Z][A-Z_]*(::[A-Z_]+)?", re.ASCII)


def test_the_page_is_what_the_code_says() -> None:
    """`specs/errors.md` is what `boxwright errors -o markdown` prints."""
    assert (ROOT / "specs/errors.md").read_text() == markdown(meanings())


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_class_says_when_and_what_to_do(kind: type[BoxwrightError]) -> None:
    """Each class of the tree has one sentence for when and at least one for what to do."""
    first, *_ = explained(kind)
    assert not re.search(r"\.\s+[A-Z]", first.when)
    assert first.when != first.remedy


def test_a_code_with_a_status_means_one_thing() -> None:
    """No two classes answer with the same code and status, except a base and what is derived from it."""
    rows = [
        (row.code, row.status)
        for kind in classes()
        for row in explained(kind)
        if not any((below.code, below.status) == (row.code, row.status) for below in kind.__subclasses__())
    ]
    assert [key for key, count in Counter(rows).items() if count > 1] == []


@pytest.mark.parametrize("name", ["lifecycle", "execd", "egress", "diagnostics"])
def test_the_documents_name_no_other_code(name: str) -> None:
    """Every error code that an API document names is in the table."""
    document = yaml.safe_load((ROOT / "specs/openapi" / f"{name}.yaml").read_text())
    named = {
        code
        for family in document["info"].get("x-boxwright-error-codes", {}).values()
        for code in (family if isinstance(family, list) else [family])
    }
    assert named <= CODES


def sources() -> Iterator[Path]:
    for folder in ("gateway", "execd", "images", "policies", "boxwright"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_no_code_is_used_that_the_table_lacks() -> None:
    """A code that is set where a failure is raised, or by a class outside of the tree, is in the table too."""
    used = {(code, source.name) for source in sources() for code in codes_in(ast.parse(source.read_text()))}
    assert len(used) > 10
    assert {(code, where) for code, where in used if code not in CODES | UNSAID} == set()


def codes_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "code":
                    yield from constants(keyword.value)
            if isinstance(node.func, ast.Name) and node.func.id == "_refusal":  # of volumes
                yield from (f"VOLUME::{code}" for one in node.args for code in constants(one))
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                if isinstance(statement, ast.Assign) and any(
                    "code" in names_of(target) for target in targets
                ):
                    yield from constants(statement.value)


def names_of(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def constants(value: ast.expr) -> Iterator[str]:
    nodes = value.elts if isinstance(value, ast.Tuple) else [value]
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
            yield node.value


@pytest.mark.parametrize(
    "docstring",
    [
        None,
        "Only when.",
        "When.\n\nWhat to do, unfinished",
        "When.\n\nDo.\n\nCodes:\n    BAD_CODE without a colon.",
        "When.\n\nDo.\n\nCodes:\n    BAD_CODE: only when.",
    ],
)
def test_a_class_that_explains_itself_badly_is_refused(docstring: str | None) -> None:
    """A docstring without both parts is an error that names the class, never an empty cell."""
    kind = type("Poor", (BadRequest,), {"__doc__": docstring})
    with pytest.raises(Unexplained, match="Poor"):
        list(explained(kind))


def test_further_codes_are_read_over_several_lines() -> None:
    """An entry of `Codes:` goes on where its lines are indented further."""
    text = "When.\n\nDo.\n\nCodes:\n    A::B: it is\n        so. Do that.\n    C_D: else. Do this."
    kind = type("Rich", (BadRequest,), {"__doc__": text})
    assert [(row.code, row.when, row.remedy) for row in explained(kind)][1:] == [
        ("A::B", "It is so.", "Do that."),
        ("C_D", "Else.", "Do this."),
    ]
