"""`boxwright errors`: what each error code means and what to do, printed from the one error tree."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from boxwright.terminal import fail, out, print_json
from specs import errors as tree

HEAD: Final = """# Errors

Every failure of every component is `{code, message}`, sometimes with `details`. The code is for programs; the
message names what is wrong with this one request. Codes are opaque to the released clients, except
`KUBERNETES::POD_IP_NOT_AVAILABLE`, for which they ask again. `Retry` is the answer's `Retry-After` in seconds.

This page is printed from `specs/errors.py` by `boxwright errors -o markdown`; a test compares the two.

| Code | Status | Retry | When | What to do |
|---|---|---|---|---|
"""
_CODE: Final = re.compile(r"([A-Z][A-Z_:]+[A-Z]): (.+)", re.ASCII)
_SECTION: Final = "Codes:"


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One code with one status: when it is answered and what to do then."""

    code: str
    status: int
    retry: int | None
    when: str
    remedy: str


class Unexplained(Exception):
    """A class of the tree does not say when it happens or what to do; the message names it."""


def errors(
    code: Annotated[
        str | None, typer.Argument(help="Show this code only; a part of it is enough, in any case.")
    ] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="How to print the result.")] = Form.TABLE,
) -> None:
    """Explain error codes: the HTTP status, when each is answered, and what to do about it."""
    try:
        found = [one for one in meanings() if code is None or code.upper() in one.code]
    except Unexplained as error:
        fail(str(error))
    if not found:
        fail(f"no error code contains {code!r}; `boxwright errors` shows them all")
    match output:
        case Form.JSON:
            print_json([asdict(one) for one in found])
        case Form.MARKDOWN:
            typer.echo(markdown(found), nl=False)
        case Form.TABLE:
            table = Table("code", "status", "when", "what to do", box=None, padding=(0, 2, 1, 0))
            for one in found:
                table.add_row(one.code, str(one.status), escape(one.when), escape(one.remedy))
            out.print(table)


def meanings() -> list[Meaning]:
    """
    Return the whole tree as rows, in the order of their codes.

    A base that only gathers a family is left out where a class below it answers with the same code and status.

    Raises:
        Unexplained: a docstring lacks one of its two parts.
    """
    rows: dict[tuple[str, int], Meaning] = {}
    for kind in classes():
        below = {(one.code, one.status) for one in kind.__subclasses__() if one.__module__ == tree.__name__}
        for row in explained(kind):
            if (kind.code, kind.status) != (row.code, row.status) or (row.code, row.status) not in below:
                rows[row.code, row.status] = row
    return [rows[key] for key in sorted(rows)]


def classes() -> list[type[tree.BoxwrightError]]:
    """Return the classes of the tree, bases before what is derived from them; the root has no meaning of its own."""
    return [
        one
        for one in vars(tree).values()
        if inspect.isclass(one) and issubclass(one, tree.BoxwrightError) and one is not tree.BoxwrightError
    ]


def explained(kind: type[tree.BoxwrightError]) -> Iterator[Meaning]:
    """
    Read a class's docstring: when, what to do, and its further codes.

    Raises:
        Unexplained
    """
    text = inspect.cleandoc(vars(kind).get("__doc__") or "")
    head, _, section = text.partition(f"\n\n{_SECTION}\n")
    parts = [" ".join(part.split()) for part in head.split("\n\n")]
    if len(parts) != 2 or not all(part.endswith(".") for part in parts):
        raise Unexplained(
            f"specs/errors.py: the docstring of {kind.__name__} must say in two paragraphs when it happens and "
            "what to do (Python's -OO removes docstrings: run without it)"
        )
    yield Meaning(kind.code, kind.status, kind.retry_after, *parts)
    for line in _entries(section):
        match = _CODE.fullmatch(line)
        when, dot, remedy = (match[2] if match else "").partition(". ")
        if match is None or not dot or not remedy.endswith("."):
            raise Unexplained(f"specs/errors.py: {kind.__name__}: {line!r} is not `CODE: when. What to do.`")
        yield Meaning(match[1], kind.status, kind.retry_after, f"{when[0].upper()}{when[1:]}.", remedy)


def markdown(rows: list[Meaning]) -> str:
    """Return the page `specs/errors.md`."""
    lines = (
        f"| `{one.code}` | {one.status} | {one.retry or ''} | {_cell(one.when)} | {_cell(one.remedy)} |"
        for one in rows
    )
    return HEAD + "\n".join(lines) + "\n"


def _entries(section: str) -> list[str]:
    """Join what is indented further to the entry above it."""
    entries: list[str] = []
    for line in section.splitlines():
        if line.startswith("        ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    return entries


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
