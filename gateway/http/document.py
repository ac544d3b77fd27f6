"""The served OpenAPI document: what the routes say, plus the proxy, which is no ordinary route (pure)."""

from __future__ import annotations

from typing import Any, Final

PROXY_METHODS: Final = ("get", "post", "put", "patch", "delete", "head", "options")
WITH_BODY: Final = frozenset({"post", "put", "patch", "delete"})
ROOT: Final = "/v1/sandboxes/{sandbox_id}/proxy/{port}"
PATH: Final = ROOT + "/{full_path}"
ANYTHING: Final[dict[str, Any]] = {"*/*": {}}


def with_proxy(document: dict[str, Any]) -> dict[str, Any]:
    """
    Add the proxy's operations to a generated document.
    """
    for path, suffix in ((ROOT, "Root"), (PATH, "Path")):
        document["paths"][path] = {
            "parameters": _parameters(path),
            **{method: _operation(method, suffix) for method in PROXY_METHODS},
        }
    return document


def _parameters(path: str) -> list[dict[str, Any]]:
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    found = [
        {"name": "sandbox_id", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "port", "in": "path", "required": True, "schema": port},
    ]
    if path == PATH:
        found.append({"name": "full_path", "in": "path", "required": True, "schema": {"type": "string"}})
    return found


def _operation(method: str, suffix: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"proxy{method.capitalize()}{suffix}",
        "tags": ["access"],
        "summary": "Reach a port of a sandbox through this server",
        "description": "The request goes on as it came, minus the API key; the answer comes back as it is.",
        "security": [{"ApiKey": []}],
        "responses": {
            "200": {"description": "Whatever the service inside the sandbox answered.", "content": ANYTHING},
            "default": {"description": "Any other status of the service, or an error.", "content": ANYTHING},
        },
    }
    if method in WITH_BODY:
        operation["requestBody"] = {"required": False, "content": ANYTHING}
    return operation
