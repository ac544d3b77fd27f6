"""An OpenAPI document as a list of operations, and what each of them lets a server answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.wire.documents import ours

METHODS: Final = ("get", "post", "put", "patch", "delete", "head", "options")


@dataclass(frozen=True)
class Operation:
    """One operation with every reference to parameters, bodies and responses followed."""

    document: dict[str, Any]
    method: str
    path: str
    name: str
    planned: bool
    guarded: bool
    parameters: tuple[dict[str, Any], ...]
    body: dict[str, Any] | None
    responses: dict[str, Any]

    def resolve(self, node: Any) -> Any:
        return resolve(self.document, node)

    def __repr__(self) -> str:
        return self.name


def operations(name: str) -> Iterator[Operation]:
    """Return the operations of one of our documents, in order."""
    document = ours(name)
    for path, item in document["paths"].items():
        shared = item.get("parameters", [])
        for method in METHODS:
            if (found := item.get(method)) is None:
                continue
            yield Operation(
                document=document,
                method=method.upper(),
                path=path,
                name=found["operationId"],
                planned=found.get("x-boxwright-status") == "planned",
                guarded=found.get("security", document["security"]) != [],
                parameters=tuple(resolve(document, one) for one in [*shared, *found.get("parameters", [])]),
                body=resolve(document, found.get("requestBody")),
                responses={status: resolve(document, one) for status, one in found["responses"].items()},
            )


def resolve(document: dict[str, Any], node: Any) -> Any:
    """Follow a reference inside the document."""
    while isinstance(node, dict) and "$ref" in node:
        place: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            place = place[part.replace("~1", "/").replace("~0", "~")]
        node = place
    return node
