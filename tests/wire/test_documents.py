"""Our four documents: valid, complete, taught in words, and true to the contract."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.wire.compare import Direction, Node, compare_schemas, operations, reconcile
from tests.wire.documents import (
    NAMES,
    OURS,
    PAIRS,
    ROOT,
    compare_contract,
    compare_served,
    gateway_document,
    named_differences,
    ours,
    theirs,
)

PLANNED = "x-boxwright-status"


@pytest.mark.parametrize("name", NAMES)
def test_document_is_valid(name: str) -> None:
    """The document is valid OpenAPI 3.1."""
    document = ours(name)
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


@pytest.mark.parametrize("name", NAMES)
def test_version_is_the_package_version(name: str) -> None:
    """The document carries the one version that all components share."""
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert ours(name)["info"]["version"] == package["project"]["version"]


@pytest.mark.parametrize("name", PAIRS)
def test_every_difference_from_the_contract_is_named(name: str) -> None:
    """Whatever parts from the contract is listed with its reason."""
    unnamed, _ = reconcile(compare_contract(name), named_differences())
    assert unnamed == []


def test_every_named_difference_occurs() -> None:
    """The list of differences holds nothing that is no longer true."""
    found = [one for name in PAIRS for one in compare_contract(name)]
    contract_names = [name for name in named_differences() if not name.where.startswith("served ")]
    _, stale = reconcile(found, contract_names)
    assert stale == []


def test_every_named_difference_has_a_reason() -> None:
    """Each entry of the list says why, in a sentence."""
    assert [name.where for name in named_differences() if not name.why.strip().endswith(".")] == []


@pytest.mark.parametrize("name", PAIRS)
def test_contract_copy_is_bare(name: str) -> None:
    """The copies of the contract hold shapes and no prose."""
    assert [path for path, _ in _texts(theirs(name), "description", "summary", "example")] == []


@pytest.mark.parametrize("name", NAMES)
def test_operations_teach(name: str) -> None:
    """Every operation says what it is for, in a short line and in sentences."""
    document = ours(name)
    tags = {tag["name"] for tag in document["tags"]}
    for operation in operations(document).values():
        value = operation.node.value
        assert value.get("operationId"), operation.label
        assert value.get("summary") and not value["summary"].endswith("."), operation.label
        assert value.get("description", "").strip().endswith("."), operation.label
        assert set(value.get("tags", [])) <= tags and value.get("tags"), operation.label


@pytest.mark.parametrize("name", NAMES)
def test_parts_teach(name: str) -> None:
    """Every parameter, body, answer, header, schema and member says what it means."""
    document = ours(name)
    silent: list[str] = []
    for operation in operations(document).values():
        parts: list[tuple[str, Node | None]] = [
            (str(key), parameter) for key, parameter in operation.parameters.items()
        ]
        parts.append(("body", operation.node.child("requestBody")))
        for status, answer in operation.node.children("responses").items():
            parts.append((status, answer))
            parts.extend((f"{status} {key}", header) for key, header in answer.children("headers").items())
        silent.extend(
            f"{operation.label} {label}" for label, part in parts if part and "description" not in part.value
        )
    for title, schema in document["components"]["schemas"].items():
        if "description" not in schema:
            silent.append(title)
        for member, value in schema.get("properties", {}).items():
            referred = Node(document, value).resolved().value
            refers = [one for one in referred.get("anyOf", []) if "$ref" in one]
            if "description" not in referred and not refers:
                silent.append(f"{title}.{member}")
    assert silent == []


@pytest.mark.parametrize("name", NAMES)
def test_every_component_is_used(name: str) -> None:
    """No schema, answer, parameter or header is left over."""
    document = ours(name)
    text = (OURS / f"{name}.yaml").read_text()
    unused = [
        f"{kind}/{title}"
        for kind, entries in document["components"].items()
        if kind != "securitySchemes"
        for title in entries
        if f"#/components/{kind}/{title}'" not in text
    ]
    assert unused == []


@pytest.mark.parametrize("name", ["lifecycle", "diagnostics", "execd"])
def test_errors_have_one_body(name: str) -> None:
    """Every failure that is described as JSON has the body {code, message}."""
    document = ours(name)
    shared = Node(ours("lifecycle"), {"$ref": "#/components/schemas/ErrorResponse"})
    for operation in operations(document).values():
        for status, answer in operation.node.children("responses").items():
            schema = answer.value.get("content", {}).get("application/json", {}).get("schema")
            if not status.startswith(("4", "5")) or schema == {"$ref": "#/components/schemas/Readiness"}:
                continue
            assert schema == {"$ref": "#/components/schemas/ErrorResponse"}, f"{operation.label} {status}"
    own = Node(document, document["components"]["schemas"]["ErrorResponse"])
    for part in ("code", "message"):
        assert part in own.value["required"]
        pair = shared.resolved().children("properties")[part], own.children("properties")[part]
        assert list(compare_schemas(*pair, Direction.ANSWER, part)) == []


@pytest.mark.parametrize("name", ["lifecycle", "execd"])
def test_planned_operations_refuse(name: str) -> None:
    """What this version does not do yet is marked, and says so with 501."""
    for operation in operations(ours(name)).values():
        planned = operation.node.value.get(PLANNED) == "planned"
        assert planned == ("501" in operation.node.children("responses")), operation.label


@pytest.mark.parametrize("name", NAMES)
def test_only_open_doors_are_open(name: str) -> None:
    """Without a key one can ask for health, readiness and version, and nothing else."""
    open_doors = {
        operation.path
        for operation in operations(ours(name)).values()
        if operation.node.value.get("security", ours(name)["security"]) == []
    }
    allowed = {
        "lifecycle": {"/health", "/readyz", "/version"},
        "execd": {"/ping", "/ready"},
        "egress": {"/healthz"},
        "diagnostics": set(),
    }
    assert open_doors == allowed[name]


@pytest.mark.parametrize("name", NAMES)
def test_document_knows_no_machine(name: str) -> None:
    """The document names no path or host of the machine it was written on."""
    text = (OURS / f"{name}.yaml").read_text()
    assert re.findall(r"/root/|/home/|\b10\.\d+\.\d+\.\d+\b", text) == []


@pytest.mark.parametrize("prefix", ["/v1/filesystem/{}/{}", "/v1/isolated/session/{}"])
def test_scoped_file_routes_mirror_the_plain_ones(prefix: str) -> None:
    """Files are asked for in one way, whoever they belong to."""
    known = operations(ours("execd"))
    plain = {route for route in known if route[1].startswith(("/files", "/directories"))}
    assert {(method, prefix + path) for method, path in plain} <= known.keys()
    for method, path in plain:
        scoped, original = known[method, prefix + path], known[method, path]
        assert {key for key in scoped.parameters if key[0] != "path"} == original.parameters.keys()
        assert scoped.node.value.get("requestBody") == original.node.value.get("requestBody")


def test_published_document_serves_itself() -> None:
    """A gateway that served exactly the published document would part from it nowhere."""
    assert compare_served(gateway_document()) == []


def _texts(part: Any, *keys: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Find members of the given names that hold text."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key in keys and isinstance(value, str):
                yield f"{path}/{key}", value
            yield from _texts(value, *keys, path=f"{path}/{key}")
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from _texts(value, *keys, path=f"{path}/{number}")
