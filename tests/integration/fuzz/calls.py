"""Calls of an operation: right ones, nearly right ones, and nonsense.

Every free text that is made here begins with `PLANTED` where a secret may stand, so that a test can look for it
in the answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, quote_from_bytes

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.integration.fuzz.document import Operation

PLANTED: Final = "planted5ecret"
BOUNDARY: Final = "b0undary"
SECRETS: Final = frozenset({"password", "accessKeySecret", "env"})

Known = Mapping[str, SearchStrategy[Any]]
"""Values for members and parameters of a name, where a schema alone would never meet anything real."""


@dataclass(frozen=True)
class Call:
    method: str
    target: str
    headers: dict[str, str]
    content: bytes | None
    authorised: bool
    fields: dict[str, Any] = field(default_factory=dict)


# Surrogates too: a JSON escape can name them, and no encoder takes them.
texts = st.text(st.characters(), max_size=12)
lone_surrogates = st.sampled_from(["\ud800", "a\udfff"])
integers = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400]),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(width=64),
    texts,
    texts.map(lambda text: PLANTED + text),
    lone_surrogates,
    st.sampled_from(["", " ", "\0", "a" * 5000, "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]),
)
junk = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(texts, lone_surrogates), inner, max_size=3)
    ),
    max_leaves=6,
)
broken_bodies = st.one_of(
    st.sampled_from(
        [
            b"",
            b"null",
            b"{",
            b'"',
            b"[]",
            b"{}",
            b"\xff\xfe{}",
            b'{"a":1,"a":2}',
            b"[" * 3000,
            b'{"a":' * 3000 + b"1" + b"}" * 3000,
            b'{"a": NaN}',
            b'{"a": 1e999}',
            b'{"a": ' + b"9" * 5000 + b"}",
            b'{"a": "\\ud800"}',
            b"\xef\xbb\xbf{}",
        ]
    ),
    st.binary(max_size=40),
)
odd_headers = st.text(
    st.characters(min_codepoint=32, max_codepoint=255, blacklist_characters="\x7f"), max_size=20
)


def values(operation: Operation, schema: Any, known: Known, name: str = "") -> SearchStrategy[Any]:
    """Return a strategy for what a schema describes."""
    if name in known:
        return known[name]
    schema = operation.resolve(schema)
    for word in ("oneOf", "anyOf"):
        if word in schema and "properties" not in schema:
            return st.one_of([values(operation, one, known, name) for one in schema[word]])
    if "allOf" in schema and "properties" not in schema:
        return values(operation, schema["allOf"][0], known, name)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type", "object")
    if isinstance(kinds, list):
        return st.one_of([values(operation, {**schema, "type": kind}, known, name) for kind in kinds])
    match kinds:
        case "string":
            return _text(schema, name)
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum")
            near = st.integers(low, min(low + 500, high) if high is not None else low + 500)
            return near if high is None else near | st.just(high)
        case "number":
            return st.floats(schema.get("minimum", 0), schema.get("maximum", 1e6))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            least = schema.get("minItems", 0)
            items = values(operation, schema.get("items", {"type": "string"}), known, name)
            return st.lists(items, min_size=least, max_size=least + 2)
    return _object(operation, schema, known, name)


def _text(schema: dict[str, Any], name: str) -> SearchStrategy[str]:
    if "pattern" in schema:
        found = st.from_regex(schema["pattern"], fullmatch="$" in schema["pattern"])
        return found.filter(
            lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 99)
        )
    if schema.get("format") == "date-time":
        return st.sampled_from(
            ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00.5+02:00", "2027-02-28T23:59:60Z"]
        )
    if name in SECRETS:
        return texts.map(lambda text: PLANTED + text)
    return st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 12), 12))


@st.composite
def _object(draw: DrawFn, operation: Operation, schema: Any, known: Known, name: str) -> dict[str, Any]:
    needed = set(schema.get("required", ()))
    if "oneOf" in schema:
        needed |= set(draw(st.sampled_from(schema["oneOf"])).get("required", ()))
    found = {}
    alternatives = {member for one in schema.get("oneOf", ()) for member in one.get("required", ())}
    for member, inner in schema.get("properties", {}).items():
        if member in needed or (member not in alternatives and draw(st.integers(0, 3)) == 0):
            found[member] = draw(values(operation, inner, known, member))
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        keys = known.get(f"key of {name}", st.text("abcxyz", min_size=1, max_size=6))
        for key in draw(st.lists(keys, max_size=2, unique=True)):
            found[key] = draw(values(operation, extra, known, name))
    return found


@st.composite
def damaged(draw: DrawFn, value: Any) -> Any:
    """Return the value with one thing wrong with it, at any depth."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: inner for name, inner in value.items() if name != key}
        match draw(st.integers(0, 4)):
            case 0:
                return rest
            case 1:
                return {**value, draw(st.one_of(texts, lone_surrogates)): draw(junk)}
        return {**rest, key: draw(damaged(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(damaged(value[index])), *value[index + 1 :]]
    return draw(junk)


@st.composite
def calls(draw: DrawFn, operation: Operation, known: Known, credentials: Mapping[str, str]) -> Call:
    """Return one call: half of them as the document says, the others damaged in one place."""
    wrong = draw(st.sampled_from(["", "", "", "body", "body", "parameter", "credentials", "headers"]))
    path, query, headers = operation.path, [], {}
    fields: dict[str, Any] = {}
    for parameter in operation.parameters:
        name, place = parameter["name"], parameter["in"]
        if name in credentials:
            continue
        if place != "path" and not parameter.get("required") and draw(st.booleans()):
            continue
        value = draw(values(operation, parameter["schema"], known, name))
        if wrong == "parameter" and draw(st.booleans()):
            value = draw(junk)
        fields[name] = value
        match place:
            case "path":
                path = path.replace("{" + name + "}", _segment(value))
            case "query":
                query += [(name, one) for one in (value if isinstance(value, list) else [value])]
            case "header":
                headers[name] = _header(value)
    if wrong == "parameter" and draw(st.booleans()):
        query.append((draw(texts), draw(texts)))
    content = None
    if operation.body is not None:
        content, headers["Content-Type"] = draw(_body(operation, known, broken=wrong == "body"))
        if not operation.body.get("required") and draw(st.booleans()):
            content = None
            del headers["Content-Type"]
    if wrong == "headers":
        headers.update(draw(st.dictionaries(st.sampled_from(["Range", "Accept", "Expect-Nothing", "Content-Type",
            "X-Request-ID", "If-Range", "Cookie", "Idempotency-Key"]), odd_headers, max_size=3)))  # fmt: skip
    authorised = wrong != "credentials"
    if authorised:
        headers.update(credentials)
    elif draw(st.booleans()):
        headers.update(dict.fromkeys(credentials, PLANTED + draw(odd_headers)))
    target = path + (
        "?" + "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in query) if query else ""
    )
    return Call(operation.method, target, headers, content, authorised, fields)


@st.composite
def _body(draw: DrawFn, operation: Operation, known: Known, *, broken: bool) -> tuple[bytes, str]:
    assert operation.body is not None
    kind, media = next(iter(operation.body["content"].items()))
    if broken and draw(st.integers(0, 3)) == 0:
        return draw(broken_bodies), kind if kind != "*/*" else "application/octet-stream"
    if kind == "*/*":
        return draw(st.binary(max_size=64)), "application/octet-stream"
    if kind == "multipart/form-data":
        return draw(_multipart(operation, media, known, broken=broken)), f"{kind}; boundary={BOUNDARY}"
    value = draw(values(operation, media["schema"], known, "body"))
    if broken:
        value = draw(damaged(value))
    content = json.dumps(value).encode()
    if broken and draw(st.integers(0, 7)) == 0:
        return content[: draw(st.integers(0, len(content)))], kind
    return content, draw(st.sampled_from([kind, f"{kind}; charset=utf-8"]))


@st.composite
def _multipart(draw: DrawFn, operation: Operation, media: Any, known: Known, *, broken: bool) -> bytes:
    schema = media["schema"]["properties"]["metadata"]["contentSchema"]
    lines = bytearray()
    for _ in range(draw(st.integers(1, 2))):
        told = draw(values(operation, schema, known))
        told = json.dumps(draw(damaged(told)) if broken and draw(st.booleans()) else told).encode()
        for name, kind, data in (
            ("metadata", "application/json", told),
            ("file", "text/plain", draw(st.binary(max_size=40))),
        ):
            if broken and draw(st.integers(0, 5)) == 0:
                continue
            lines += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'.encode()
            lines += f"Content-Type: {kind}\r\n\r\n".encode() + data + b"\r\n"
    lines += f"--{BOUNDARY}--\r\n".encode()
    return bytes(
        lines[: draw(st.integers(0, len(lines)))] if broken and draw(st.integers(0, 3)) == 0 else lines
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def _quoted(value: Any) -> str:
    """One part of a query. A path may be named in an answer, so no secret stands in one."""
    return quote_from_bytes(_plain(value).replace(PLANTED, "id").encode("utf-8", "surrogatepass"), safe="")


def _segment(value: Any) -> str:
    """One path segment: a slash would make it another operation's path, dots a client's business."""
    text = _plain(value).replace("/", "|").replace(PLANTED, "id")[:2000]
    return quote(text, safe="", errors="replace") if text not in {"", ".", ".."} else "%7E"


def _header(value: Any) -> str:
    text = _plain(value).encode("utf-8", "replace").decode("latin-1")
    return "".join(mark for mark in text if mark.isprintable())[:400].strip()
