"""Hold one OpenAPI document against another and say, place by place, where they part.

`theirs` is what somebody relies on, `ours` is what claims to honour it. The two need not be equal. A
request that theirs allows must be allowed by ours, and an answer that ours allows must be allowed by
theirs; ours may know more routes, parameters and members. Everything here is pure: documents in,
differences out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

Json = Mapping[str, Any]

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
BOUNDS: Final = (
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
)
HINTS: Final = ("format", "default")  # adding one where theirs has none narrows nothing
ABSENT: Final = "absent"


class Direction(Enum):
    """Who sends the value: it decides which side may be wider."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """One place where two documents part."""

    where: str
    theirs: str
    ours: str


@dataclass(frozen=True, slots=True)
class Named:
    """A difference somebody decided on. `*` in any of the first three stands for any text."""

    where: str
    theirs: str
    ours: str
    why: str

    def covers(self, found: Difference) -> bool:
        pairs = ((self.where, found.where), (self.theirs, found.theirs), (self.ours, found.ours))
        return all(_matches(pattern, text) for pattern, text in pairs)


@dataclass(frozen=True, slots=True)
class Rules:
    """How much of an operation is compared."""

    nullability: bool = True
    headers: bool = True  # header parameters and response headers
    every_status: bool = True  # otherwise only 2xx must be there; others are compared where both have them
    security: bool = True


CONTRACT: Final = Rules()
# A served document is generated from code: middleware reads headers, and the generator cannot say that an
# absent member is left out of an answer instead of being null.
SERVED: Final = Rules(nullability=False, headers=False, every_status=False, security=False)


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a document together with the document that its references point into."""

    document: Json
    value: Json

    def step(self, value: Json) -> Node:
        return Node(self.document, value)

    def resolved(self) -> Node:
        """Follow references; members beside a reference win over the referenced ones."""
        value = self.value
        seen: set[str] = set()
        while "$ref" in value:
            reference = value["$ref"]
            if reference in seen:
                raise ValueError(f"{reference} refers to itself")
            seen.add(reference)
            beside = {key: part for key, part in value.items() if key != "$ref"}
            value = {**_lookup(self.document, reference), **beside}
        return Node(self.document, value)

    def child(self, key: str) -> Node | None:
        value = self.value.get(key)
        return None if value is None else self.step(value).resolved()

    def children(self, key: str) -> dict[str, Node]:
        return {name: self.step(value).resolved() for name, value in self.value.get(key, {}).items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """A schema with the many spellings of "or null" and "one of these" made one."""

    types: frozenset[str]
    nullable: bool
    keywords: Json
    required: frozenset[str]
    properties: Mapping[str, Node]
    items: Node | None
    extra: Node | bool | None  # additionalProperties: a schema, a verdict, or nothing said
    variants: tuple[Node, ...]

    @property
    def anything(self) -> bool:
        said = (self.types, self.keywords, self.properties, self.variants, self.required)
        return not any(said) and self.extra is None and self.items is None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, with the path's own parameters folded in."""

    method: str
    path: str  # with the server's prefix, spelled as in its document
    node: Node
    parameters: Mapping[tuple[str, str], Node]

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"


Route = tuple[str, str]  # method and path with every parameter written {}


def operations(document: Json) -> dict[Route, Operation]:
    """
    List the operations of a document under keys that two documents can share.
    """
    prefix = _server_prefix(document)
    found: dict[Route, Operation] = {}
    for written, raw in document.get("paths", {}).items():
        item = Node(document, raw).resolved()
        path = prefix + written
        for method in METHODS:
            if (node := item.child(method)) is None:
                continue
            shared = item.value.get("parameters", [])
            own = node.value.get("parameters", [])
            parameters = _parameters(path, [item.step(part).resolved() for part in (*shared, *own)])
            found[method.upper(), _anonymous(path)] = Operation(method.upper(), path, node, parameters)
    return found


def merge(*documents: Json) -> dict[str, Any]:
    """
    Put documents of one server together as if they were one.

    Raises:
        ValueError: two documents have a path in common, or say different things under one name.
    """
    paths: dict[str, Any] = {}
    components: dict[str, dict[str, Any]] = {}
    for number, document in enumerate(documents):
        renamed = _with_own_names(document, f"d{number}")
        for path, item in renamed["paths"].items():
            if path in paths:
                raise ValueError(f"{path} is documented twice")
            paths[path] = item
        for kind, entries in renamed.get("components", {}).items():
            components.setdefault(kind, {}).update(entries)
    return {
        "openapi": documents[0]["openapi"],
        "info": documents[0]["info"],
        "servers": documents[0].get("servers", []),
        "paths": paths,
        "components": components,
    }


def compare(theirs: Json, ours: Json, pair: str, rules: Rules = CONTRACT) -> list[Difference]:
    """
    Report where `ours` does not honour `theirs`.

    Args:
        theirs: the document somebody relies on.
        ours: the document that must honour it.
        pair: a word that every `where` starts with.
        rules: how much of an operation is compared.
    """
    mine = operations(ours)
    found: list[Difference] = []
    for route, operation in operations(theirs).items():
        where = f"{pair} {operation.label}"
        if (match := mine.get(route)) is None:
            found.append(Difference(where, "operation", ABSENT))
        else:
            found.extend(_operation(operation, match, where, rules))
    if rules.security:
        found.extend(_security(theirs, ours, pair))
    found.extend(_loose_schemas(theirs, ours, pair, rules))
    return sorted(set(found))


def undocumented(served: Json, documented: Json, pair: str) -> list[Difference]:
    """
    Report the routes a server has that no document mentions.

    A route without the prefix `/v1` is the other spelling of the one with it.
    """
    known = operations(documented)
    return [
        Difference(f"{pair} {operation.label}", ABSENT, "operation")
        for (method, path), operation in sorted(operations(served).items())
        if (method, path) not in known and (method, f"/v1{path}") not in known
    ]


def reconcile(found: Iterable[Difference], named: Iterable[Named]) -> tuple[list[Difference], list[Named]]:
    """
    Split off what needs attention: differences without a name, and names without a difference.
    """
    differences, names = list(found), list(named)
    unnamed = [one for one in differences if not any(name.covers(one) for name in names)]
    stale = [name for name in names if not any(name.covers(one) for one in differences)]
    return unnamed, stale


def shape(node: Node) -> Shape:
    """
    Bring a schema into the one form that is compared.
    """
    value: Json = node.resolved().value
    nullable = value.get("nullable") is True
    variants: list[Node] = []
    for key in ("anyOf", "oneOf"):
        for raw in value.get(key, []):
            branch = node.step(raw).resolved()
            if branch.value.get("type") == "null":
                nullable = True
            elif set(branch.value) != {"required"}:  # "one of these members" is a rule, not a shape
                variants.append(branch)
    if len(variants) == 1:
        rest = {key: part for key, part in value.items() if key not in {"anyOf", "oneOf"}}
        inner = shape(node.step({**variants[0].value, **rest}))
        return _with_nullable(inner, nullable=nullable or inner.nullable)
    kinds = value.get("type", [])
    types = frozenset([kinds] if isinstance(kinds, str) else kinds)
    keywords = {key: value[key] for key in (*BOUNDS, *HINTS) if key in value}
    if "const" in value:
        keywords["enum"] = [value["const"]]
    items = value.get("items")
    return Shape(
        types=types - {"null"},
        nullable=nullable or "null" in types,
        keywords=keywords,
        required=frozenset(value.get("required", [])),
        properties={name: node.step(part) for name, part in value.get("properties", {}).items()},
        items=None if items is None else node.step(items),
        extra=_extra(node, value),
        variants=tuple(variants),
    )


def compare_schemas(
    theirs: Node, ours: Node, direction: Direction, where: str, rules: Rules = CONTRACT
) -> Iterator[Difference]:
    """
    Report where a schema of ours takes less, or gives more, than theirs.
    """
    their, our = shape(theirs), shape(ours)
    if their.anything:
        return
    if their.types != our.types:
        yield Difference(where, _kind(their), _kind(our))
        return
    if rules.nullability:
        yield from _nullability(their, our, direction, where)
    yield from _keywords(their, our, direction, where)
    yield from _required(their, our, direction, where)
    yield from _members(their, our, direction, where, rules)
    yield from _open_or_closed(their, our, direction, where, rules)
    if their.items is not None:
        if our.items is None:
            yield Difference(f"{where}[]", "items", ABSENT)
        else:
            yield from compare_schemas(their.items, our.items, direction, f"{where}[]", rules)
    for variant in their.variants:
        yield from _closest(variant, our.variants, direction, where, rules)


# -- operations ----------------------------------------------------------------------


def _operation(theirs: Operation, ours: Operation, where: str, rules: Rules) -> Iterator[Difference]:
    for key, parameter in theirs.parameters.items():
        if key[0] == "header" and not rules.headers:
            continue
        spot = f"{where} {key[0]} {parameter.value['name']}"
        if (match := ours.parameters.get(key)) is None:
            yield Difference(spot, "parameter", ABSENT)
        else:
            yield from _parameter(parameter, match, spot, rules)
    for key, parameter in ours.parameters.items():
        if key not in theirs.parameters and parameter.value.get("required"):
            yield Difference(f"{where} {key[0]} {parameter.value['name']}", ABSENT, "required")
    yield from _body(theirs.node.child("requestBody"), ours.node.child("requestBody"), where, rules)
    yield from _responses(theirs.node, ours.node, where, rules)


def _parameter(theirs: Node, ours: Node, where: str, rules: Rules) -> Iterator[Difference]:
    if bool(theirs.value.get("required")) != bool(ours.value.get("required")):
        yield Difference(where, _needed(theirs), _needed(ours))
    if _spelling(theirs) != _spelling(ours):
        yield Difference(f"{where} spelling", _spelling(theirs), _spelling(ours))
    schemas = theirs.child("schema"), ours.child("schema")
    if schemas[0] is not None and schemas[1] is not None:
        # There is no null in a query string, a path or a header.
        unnullable = Rules(nullability=False, headers=rules.headers, every_status=rules.every_status)
        yield from compare_schemas(schemas[0], schemas[1], Direction.REQUEST, where, unnullable)


def _body(theirs: Node | None, ours: Node | None, where: str, rules: Rules) -> Iterator[Difference]:
    spot = f"{where} body"
    if theirs is None:
        if ours is not None and ours.value.get("required"):
            yield Difference(spot, ABSENT, "required")
        return
    if ours is None:
        yield Difference(spot, "body", ABSENT)
        return
    if bool(theirs.value.get("required")) != bool(ours.value.get("required")):
        yield Difference(spot, _needed(theirs), _needed(ours))
    yield from _content(theirs, ours, Direction.REQUEST, spot, rules)


def _responses(theirs: Node, ours: Node, where: str, rules: Rules) -> Iterator[Difference]:
    mine = ours.children("responses")
    for status, answer in theirs.children("responses").items():
        spot = f"{where} {status}"
        if (match := mine.get(status)) is None:
            if rules.every_status or status.startswith("2"):
                yield Difference(spot, "status", ABSENT)
            continue
        yield from _content(answer, match, Direction.ANSWER, spot, rules)
        if not rules.headers:
            continue
        headers = {name.lower(): header for name, header in match.children("headers").items()}
        for name, header in answer.children("headers").items():
            if name.lower() not in headers:
                yield Difference(f"{spot} header {name}", "header", ABSENT)
                continue
            their_schema, our_schema = header.child("schema"), headers[name.lower()].child("schema")
            if their_schema is not None and our_schema is not None:
                label = f"{spot} header {name}"
                yield from compare_schemas(their_schema, our_schema, Direction.ANSWER, label, rules)


def _content(
    theirs: Node, ours: Node, direction: Direction, where: str, rules: Rules
) -> Iterator[Difference]:
    mine = ours.children("content")
    for media, content in theirs.children("content").items():
        spot = f"{where} {media}"
        schema = content.child("schema")
        if (match := mine.get(media)) is None:
            if rules.every_status or (schema is not None and schema.value):
                yield Difference(spot, "media type", ABSENT)
            continue
        if schema is not None and (own := match.child("schema")) is not None:
            yield from compare_schemas(schema, own, direction, spot, rules)
        for part, encoding in content.value.get("encoding", {}).items():
            own_encoding = match.value.get("encoding", {}).get(part, {})
            if encoding.get("contentType") != own_encoding.get("contentType"):
                yield Difference(
                    f"{spot} part {part}",
                    str(encoding.get("contentType")),
                    str(own_encoding.get("contentType")),
                )


def _security(theirs: Json, ours: Json, pair: str) -> Iterator[Difference]:
    mine = {_carrier(scheme) for scheme in ours.get("components", {}).get("securitySchemes", {}).values()}
    for scheme in theirs.get("components", {}).get("securitySchemes", {}).values():
        if _carrier(scheme) not in mine:
            yield Difference(f"{pair} security", _carrier(scheme), ABSENT)


def _loose_schemas(theirs: Json, ours: Json, pair: str, rules: Rules) -> Iterator[Difference]:
    """Compare schemas by name that no operation refers to, since no operation leads to them."""
    referred = set(_references(theirs))
    mine = ours.get("components", {}).get("schemas", {})
    for name, schema in theirs.get("components", {}).get("schemas", {}).items():
        if f"#/components/schemas/{name}" in referred:
            continue
        where = f"{pair} schema {name}"
        if name not in mine:
            yield Difference(where, "schema", ABSENT)
        else:
            pairing = Node(theirs, schema), Node(ours, mine[name])
            yield from compare_schemas(*pairing, Direction.REQUEST, where, rules)


# -- schemas -------------------------------------------------------------------------


def _nullability(their: Shape, our: Shape, direction: Direction, where: str) -> Iterator[Difference]:
    taken_less = direction is Direction.REQUEST and their.nullable and not our.nullable
    given_more = direction is Direction.ANSWER and our.nullable and not their.nullable
    if taken_less or given_more:
        yield Difference(where, _null(their), _null(our))


def _keywords(their: Shape, our: Shape, direction: Direction, where: str) -> Iterator[Difference]:
    for key in (*BOUNDS, *HINTS):
        theirs, ours = their.keywords.get(key), our.keywords.get(key)
        if _value(theirs) == _value(ours):
            continue
        if theirs is None and (key in HINTS or direction is Direction.ANSWER):
            continue
        yield Difference(f"{where} {key}", _text(theirs), _text(ours))


def _required(their: Shape, our: Shape, direction: Direction, where: str) -> Iterator[Difference]:
    for name in sorted(their.required - our.required):
        if name in our.properties:
            yield Difference(f"{where}.{name}", "required", "optional")
    if direction is Direction.REQUEST:
        for name in sorted(our.required - their.required):
            yield Difference(f"{where}.{name}", "optional", "required")


def _members(
    their: Shape, our: Shape, direction: Direction, where: str, rules: Rules
) -> Iterator[Difference]:
    for name, member in their.properties.items():
        if name not in our.properties:
            yield Difference(f"{where}.{name}", "property", ABSENT)
        else:
            yield from compare_schemas(member, our.properties[name], direction, f"{where}.{name}", rules)
    if their.extra is False and direction is Direction.ANSWER:
        for name in sorted(our.properties.keys() - their.properties.keys()):
            yield Difference(f"{where}.{name}", ABSENT, "property")


def _open_or_closed(
    their: Shape, our: Shape, direction: Direction, where: str, rules: Rules
) -> Iterator[Difference]:
    if isinstance(their.extra, Node):
        if isinstance(our.extra, Node):
            yield from compare_schemas(their.extra, our.extra, direction, f"{where}{{}}", rules)
        else:
            yield Difference(f"{where}{{}}", "typed members", _openness(our))
        return
    ours_narrower = our.extra is False and their.extra is not False and direction is Direction.REQUEST
    ours_wider = their.extra is False and our.extra is not False
    if ours_narrower or ours_wider:
        yield Difference(f"{where}{{}}", _openness(their), _openness(our))


def _closest(
    theirs: Node, ours: tuple[Node, ...], direction: Direction, where: str, rules: Rules
) -> list[Difference]:
    """Compare a variant with the one of ours that it differs least from."""
    attempts = [list(compare_schemas(theirs, one, direction, where, rules)) for one in ours]
    if not attempts:
        return [Difference(where, "several variants", "one")]
    return min(attempts, key=len)


# -- small words ---------------------------------------------------------------------


def _lookup(document: Json, reference: str) -> Json:
    if not reference.startswith("#/"):
        raise ValueError(f"{reference} points outside its document")
    target: Any = document
    for part in reference[2:].split("/"):
        target = target[part.replace("~1", "/").replace("~0", "~")]
    found: Json = target
    return found


def _references(part: object) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _with_own_names(document: Json, owner: str) -> dict[str, Any]:
    """Give every component a name that no other document uses, and every reference with it."""

    def renamed(part: Any) -> Any:
        if isinstance(part, Mapping):
            if isinstance(part.get("$ref"), str):
                head, _, name = part["$ref"].rpartition("/")
                return {**part, "$ref": f"{head}/{owner}.{name}"}
            return {key: renamed(value) for key, value in part.items()}
        if isinstance(part, list):
            return [renamed(value) for value in part]
        return part

    out: dict[str, Any] = renamed(document)
    out["components"] = {
        kind: {f"{owner}.{name}": entry for name, entry in entries.items()}
        for kind, entries in out.get("components", {}).items()
    }
    return out


def _server_prefix(document: Json) -> str:
    servers = document.get("servers") or [{"url": "/"}]
    return urlsplit(str(servers[0]["url"])).path.rstrip("/")


def _anonymous(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def _parameters(path: str, nodes: list[Node]) -> dict[tuple[str, str], Node]:
    """Key parameters by place and name; those of the path by position, because their names are free."""
    order = re.findall(r"\{([^}]*)\}", path)
    keyed: dict[tuple[str, str], Node] = {}
    for node in nodes:
        place, name = node.value["in"], node.value["name"]
        if place == "path":
            name = str(order.index(name))
        keyed[place, name.lower() if place == "header" else name] = node
    return keyed


def _with_nullable(inner: Shape, *, nullable: bool) -> Shape:
    return Shape(
        inner.types,
        nullable,
        inner.keywords,
        inner.required,
        inner.properties,
        inner.items,
        inner.extra,
        inner.variants,
    )


def _extra(node: Node, value: Json) -> Node | bool | None:
    said = value.get("additionalProperties")
    if isinstance(said, Mapping):
        return node.step(said)
    return None if said is None or said is True else False


def _value(keyword: object) -> object:
    """Bring a keyword's value into a form in which order and number type do not matter."""
    if isinstance(keyword, list):
        return sorted(str(one) for one in keyword)
    return keyword


def _text(keyword: object) -> str:
    return ABSENT if keyword is None else str(keyword)


def _kind(one: Shape) -> str:
    return "|".join(sorted(one.types)) or ("variants" if one.variants else "anything")


def _null(one: Shape) -> str:
    return "or null" if one.nullable else "never null"


def _openness(one: Shape) -> str:
    return "closed" if one.extra is False else "open"


def _needed(one: Node) -> str:
    return "required" if one.value.get("required") else "optional"


def _spelling(parameter: Node) -> str:
    usual = "form" if parameter.value["in"] in {"query", "cookie"} else "simple"
    style = parameter.value.get("style", usual)
    explode = parameter.value.get("explode", style == "form")
    return f"{style}{' exploded' if explode else ''}"


def _carrier(scheme: Json) -> str:
    return f"{scheme['type']} {scheme.get('in', '')} {scheme.get('name', '')}"


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), text) is not None
