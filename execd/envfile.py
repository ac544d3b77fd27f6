r"""The grammar of the file named by EXECD_ENVS, without the file.

One entry per line, `KEY=value`; a value in double quotes knows the escapes
`\\n \\r \\t \\\\ \\"` and may span lines, one in single quotes is literal and may span
lines. `$NAME` and `${NAME}` are expanded except in single quotes. The last entry
of a name wins; an entry that is not understood is skipped and reported.

Source: execd contract §4.2.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_FIRST = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
_REST = _FIRST | frozenset("0123456789")


MAX_ENTRY = 128 * 1024 - 1
"""Bytes of one `NAME=value`: the kernel takes no longer string (execve(2), MAX_ARG_STRLEN)."""

MAX_TOTAL = 1 << 20
"""Bytes of all entries: half of what the kernel takes with the usual stack, so that the rest has room."""

_POINTER = 9  # what an entry costs besides its bytes: their NUL and a pointer


def is_name(text: str) -> bool:
    """Say whether `text` can name a variable: a letter or underscore, then letters, digits, underscores."""
    return bool(text) and text[0] in _FIRST and _REST.issuperset(text)


def expand(text: str, variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """
    Replace `$NAME` and `${NAME}`; a `$` that starts neither stays.

    Returns:
        The text, unknown names replaced by nothing, and those unknown names.
    """
    if "$" not in text:
        return text, []
    out: list[str] = []
    unknown: list[str] = []
    at = 0
    while True:
        dollar = text.find("$", at)
        if dollar < 0:
            out.append(text[at:])
            return "".join(out), unknown
        out.append(text[at:dollar])
        at = dollar + 1
        if text[at : at + 1] == "{":
            end = text.find("}", at)
            name = text[at + 1 : end] if end > 0 else ""
            after = end + 1
        else:
            after = at
            while after < len(text) and text[after] in (_FIRST if after == at else _REST):
                after += 1
            name = text[at:after]
        if not is_name(name):
            out.append("$")
            continue
        if name not in variables:
            unknown.append(name)
        out.append(variables.get(name, ""))
        at = after


def parse(text: str, variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """
    Read the whole file.

    Args:
        text: its content.
        variables: what `$NAME` refers to.

    Returns:
        The entries in order, and one complaint for each skipped entry, which names the line and
        never a value.
    """
    entries: dict[str, str] = {}
    complaints: list[str] = []
    at = 0
    line = 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        here, first = text[at:end], line
        stripped = here.strip()
        after = end
        if stripped and not stripped.startswith("#"):
            name, equals, value = here.partition("=")
            name = name.strip()
            opening = value.lstrip(" \t")[:1]
            if not equals:
                complaints.append(f"line {first}: no `=`")
            elif not is_name(name):
                complaints.append(f"line {first}: not a variable name before `=`")
            elif opening in {'"', "'"} and opening:
                start = text.index(opening, at + here.index("=")) + 1
                close = _closing(text, start, opening)
                if close < 0:
                    complaints.append(f"line {first}: the quote is never closed")
                else:
                    after = text.find("\n", close)
                    after = len(text) if after < 0 else after
                    if text[close + 1 : after].strip():
                        complaints.append(f"line {first}: text after the closing quote")
                    elif opening == "'":
                        _set(entries, name, text[start:close], first, complaints)
                    else:
                        _set(entries, name, _unescape(text[start:close], variables), first, complaints)
            else:
                _set(entries, name, expand(value.strip(), variables)[0], first, complaints)
        line += text.count("\n", at, after) + 1
        at = after + 1
    return entries, complaints


def fit(entries: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """
    Leave out what would keep every process from being started.

    Returns:
        The entries that fit, in order, and complaints that name the variable and never its value.
    """
    out: dict[str, str] = {}
    complaints: list[str] = []
    left = MAX_TOTAL
    for name, value in entries.items():
        size = len(name) + 1 + len(value.encode("utf-8", "surrogateescape"))
        if size > MAX_ENTRY:
            complaints.append(f"{name}: longer than {MAX_ENTRY} bytes")
        elif size + _POINTER > left:
            complaints.append(f"{name}: all entries together are longer than {MAX_TOTAL} bytes")
        else:
            left -= size + _POINTER
            out[name] = value
    return out, complaints


def _set(entries: dict[str, str], name: str, value: str, line: int, complaints: list[str]) -> None:
    if "\0" in value:
        complaints.append(f"line {line}: a NUL character")
    else:
        entries[name] = value


def _closing(text: str, start: int, opening: str) -> int:
    """Return the place of the closing quote, or -1."""
    if opening == "'":
        return text.find("'", start)
    at = start
    while True:
        quote = text.find('"', at)
        slash = text.find("\\", at)
        if quote < 0 or slash < 0 or quote < slash:
            return quote
        at = slash + 2


def _unescape(text: str, variables: Mapping[str, str]) -> str:
    """Carry out escapes and expansions from left to right, so neither sees what the other made."""
    out: list[str] = []
    at = 0
    while True:
        slash = text.find("\\", at)
        if slash < 0:
            out.append(expand(text[at:], variables)[0])
            return "".join(out)
        out.append(expand(text[at:slash], variables)[0])
        escape = text[slash + 1 : slash + 2]
        out.append(_ESCAPES.get(escape, "\\" + escape))
        at = slash + 2
