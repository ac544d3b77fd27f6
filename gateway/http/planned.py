"""Routes of features that this backend does not have: known, authenticated, and refused by name.

Their bodies are read as the document says, so that a client learns about its own mistakes as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Body, Query

from gateway.http.guarded import ServicesHere, errors, guarded_router
from gateway.http.sandboxes import MetadataFilter, PageNumber, PageSize
from specs.errors import NotSupported, PoolsNotSupported, SnapshotsNotSupported, TemplatesNotSupported
from specs.lifecycle import (
    CreatePoolRequest,
    CreateSnapshotRequest,
    CreateTemplateRequest,
    ListPoolsResponse,
    ListSnapshotsResponse,
    ListTemplatesResponse,
    NetworkPolicy,
    NetworkPolicyStatus,
    NetworkRule,
    PoolResponse,
    Snapshot,
    Template,
    UpdatePoolRequest,
)

snapshots = guarded_router("snapshots")
pools = guarded_router("pools")
templates = guarded_router("templates")
network = guarded_router("network")

ROUTERS: tuple[APIRouter, ...] = (snapshots, pools, templates, network)

Query_Text = Annotated[str | None, Query()]


def _no_snapshots() -> NoReturn:
    raise SnapshotsNotSupported("this gateway has no snapshots yet; start sandboxes from images")


def _no_pools() -> NoReturn:
    raise PoolsNotSupported("the Docker backend has no pools; create sandboxes from images")


def _no_templates() -> NoReturn:
    raise TemplatesNotSupported("the Docker backend has no templates; create sandboxes from images")


def _no_policy() -> NoReturn:
    raise NotSupported(
        "this gateway has no egress control yet; no sandbox has a network policy to read or change"
    )


def _no_content(router: APIRouter, method: str, path: str, name: str, refuse: Callable[[], NoReturn]) -> None:
    """Add a route without body whose success would have no content."""

    async def route() -> None:
        refuse()

    router.add_api_route(
        path,
        route,
        methods=[method],
        status_code=204,
        operation_id=name,
        responses=errors(401, 404, 409, 422, 501),
        openapi_extra={"x-boxwright-status": "planned", "parameters": _path_parameters(path)},
    )


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in path.split("/")
        if part.startswith("{")
    ]


PLANNED = {"x-boxwright-status": "planned"}

# -- snapshots -------------------------------------------------------------------------


@snapshots.post(
    "/sandboxes/{sandbox_id}/snapshots",
    status_code=202,
    response_model=Snapshot,
    responses=errors(400, 401, 403, 404, 409, 422, 500, 501),
    operation_id="createSnapshot",
    openapi_extra=PLANNED,
)
async def create_snapshot(
    sandbox_id: str, services: ServicesHere, body: Annotated[CreateSnapshotRequest | None, Body()] = None
) -> None:
    """Save the file system of a sandbox."""
    del body
    await services.operations.get(sandbox_id)
    _no_snapshots()


@snapshots.get(
    "/snapshots",
    response_model=ListSnapshotsResponse,
    responses=errors(400, 401, 422, 500, 501),
    operation_id="listSnapshots",
    openapi_extra=PLANNED,
)
async def list_snapshots(
    sandbox_id: Annotated[str | None, Query(alias="sandboxId")] = None,
    name: Query_Text = None,
    state: Annotated[list[str] | None, Query()] = None,
    page: PageNumber = 1,
    page_size: PageSize = 20,
) -> None:
    """List snapshots."""
    del sandbox_id, name, state, page, page_size
    _no_snapshots()


@snapshots.get(
    "/snapshots/{snapshot_id}",
    response_model=Snapshot,
    responses=errors(401, 403, 404, 422, 500, 501),
    operation_id="getSnapshot",
    openapi_extra=PLANNED,
)
async def get_snapshot(snapshot_id: str) -> None:
    """Read a snapshot."""
    del snapshot_id
    _no_snapshots()


_no_content(snapshots, "DELETE", "/snapshots/{snapshot_id}", "deleteSnapshot", _no_snapshots)

# -- pools -----------------------------------------------------------------------------


@pools.post(
    "/pools",
    status_code=201,
    response_model=PoolResponse,
    responses=errors(400, 401, 409, 422, 500, 501),
    operation_id="createPool",
    openapi_extra=PLANNED,
)
async def create_pool(body: CreatePoolRequest) -> None:
    """Declare a pool of warm sandboxes."""
    del body
    _no_pools()


@pools.get(
    "/pools",
    response_model=ListPoolsResponse,
    responses=errors(401, 500, 501),
    operation_id="listPools",
    openapi_extra=PLANNED,
)
async def list_pools() -> None:
    """List pools."""
    _no_pools()


@pools.get(
    "/pools/{pool_name}",
    response_model=PoolResponse,
    responses=errors(401, 404, 422, 500, 501),
    operation_id="getPool",
    openapi_extra=PLANNED,
)
async def get_pool(pool_name: str) -> None:
    """Read a pool."""
    del pool_name
    _no_pools()


@pools.put(
    "/pools/{pool_name}",
    response_model=PoolResponse,
    responses=errors(400, 401, 404, 422, 500, 501),
    operation_id="updatePool",
    openapi_extra=PLANNED,
)
async def update_pool(pool_name: str, body: UpdatePoolRequest) -> None:
    """Change the size of a pool."""
    del pool_name, body
    _no_pools()


_no_content(pools, "DELETE", "/pools/{pool_name}", "deletePool", _no_pools)

# -- templates -------------------------------------------------------------------------


@templates.post(
    "/templates",
    status_code=201,
    response_model=Template,
    responses=errors(400, 401, 409, 422, 501, 503),
    operation_id="createTemplate",
    openapi_extra=PLANNED,
)
async def create_template(body: CreateTemplateRequest) -> None:
    """Build a template."""
    del body
    _no_templates()


@templates.get(
    "/templates",
    response_model=ListTemplatesResponse,
    responses=errors(400, 401, 422, 501),
    operation_id="listTemplates",
    openapi_extra=PLANNED,
)
async def list_templates(
    page: PageNumber = 1, page_size: PageSize = 20, metadata: MetadataFilter = None
) -> None:
    """List templates."""
    del page, page_size, metadata
    _no_templates()


@templates.get(
    "/templates/{template_id}",
    response_model=Template,
    responses=errors(401, 404, 422, 501),
    operation_id="getTemplate",
    openapi_extra=PLANNED,
)
async def get_template(template_id: str) -> None:
    """Read a template."""
    del template_id
    _no_templates()


_no_content(templates, "DELETE", "/templates/{template_id}", "deleteTemplate", _no_templates)

# -- network policy ----------------------------------------------------------------------

POLICY_ERRORS = errors(400, 401, 404, 409, 422, 500, 501)


@network.get(
    "/sandboxes/{sandbox_id}/networkpolicy",
    response_model=NetworkPolicyStatus,
    responses=POLICY_ERRORS,
    operation_id="getNetworkPolicy",
    openapi_extra=PLANNED,
)
async def get_policy(sandbox_id: str, services: ServicesHere) -> None:
    """Read the policy in force."""
    await services.operations.get(sandbox_id)
    _no_policy()


@network.put(
    "/sandboxes/{sandbox_id}/networkpolicy",
    response_model=NetworkPolicyStatus,
    responses=POLICY_ERRORS,
    operation_id="replaceNetworkPolicy",
    openapi_extra=PLANNED,
)
async def put_policy(sandbox_id: str, body: NetworkPolicy, services: ServicesHere) -> None:
    """Replace the policy."""
    del body
    await services.operations.get(sandbox_id)
    _no_policy()


@network.patch(
    "/sandboxes/{sandbox_id}/networkpolicy",
    response_model=NetworkPolicyStatus,
    responses=POLICY_ERRORS,
    operation_id="mergeNetworkRules",
    openapi_extra=PLANNED,
)
async def patch_policy(sandbox_id: str, body: list[NetworkRule], services: ServicesHere) -> None:
    """Add or replace rules."""
    del body
    await services.operations.get(sandbox_id)
    _no_policy()


@network.delete(
    "/sandboxes/{sandbox_id}/networkpolicy",
    response_model=NetworkPolicyStatus,
    responses=POLICY_ERRORS,
    operation_id="deleteNetworkRules",
    openapi_extra=PLANNED,
)
async def delete_policy(sandbox_id: str, body: Annotated[list[str], Body()], services: ServicesHere) -> None:
    """Remove rules by their targets."""
    del body
    await services.operations.get(sandbox_id)
    _no_policy()
