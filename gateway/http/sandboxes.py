"""Routes of the life of a sandbox: parse, one operation, render."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Header, Query, Request, Response

from gateway.http import render
from gateway.http.guarded import CallerHere, ServicesHere, answer, errors, guarded_router
from gateway.sandboxes import query
from specs.lifecycle import (
    CreateSandboxRequest,
    CreateSandboxResponse,
    ListSandboxesResponse,
    RenewSandboxExpirationRequest,
    RenewSandboxExpirationResponse,
    Sandbox,
)
from specs.names import HEADER_IDEMPOTENCY_KEY

router = guarded_router("sandboxes")

PageNumber = Annotated[int, Query(ge=1, description="Which page, counted from 1.")]
PageSize = Annotated[int, Query(alias="pageSize", ge=1, le=200, description="How many items a page holds.")]
MetadataFilter = Annotated[
    str | None, Query(description="Pairs that must all be present: `key=value&key=value`.")
]


@router.post(
    "/sandboxes",
    status_code=202,
    response_model=CreateSandboxResponse,
    responses=errors(400, 401, 403, 409, 422, 429, 500, 503),
    operation_id="createSandbox",
)
async def create_sandbox(
    body: CreateSandboxRequest,
    caller: CallerHere,
    services: ServicesHere,
    idempotency_key: Annotated[
        str | None, Header(alias=HEADER_IDEMPOTENCY_KEY, min_length=1, max_length=255)
    ] = None,
) -> Response:
    """Record a sandbox and start it."""
    record = await services.operations.create(body, caller, idempotency_key=idempotency_key)
    headers = {"Location": f"/v1/sandboxes/{record.sandbox_id}"}
    return answer(render.created(record), 202, headers)


@router.get(
    "/sandboxes",
    response_model=ListSandboxesResponse,
    responses=errors(400, 401, 422, 500),
    operation_id="listSandboxes",
)
async def list_sandboxes(
    request: Request,
    services: ServicesHere,
    state: Annotated[list[str] | None, Query(description="Keep sandboxes in one of these states.")] = None,
    metadata: MetadataFilter = None,
    page: PageNumber = 1,
    page_size: PageSize = 20,
) -> Response:
    """List sandboxes, newest first."""
    query.refuse_unknown(request.query_params.keys())
    wanted = query.Page(page, page_size)
    records, total = await services.operations.list(query.parse_filter(state, metadata), wanted)
    return answer(render.page(records, total, wanted))


@router.get(
    "/sandboxes/{sandbox_id}",
    response_model=Sandbox,
    responses=errors(401, 403, 404, 422, 500),
    operation_id="getSandbox",
)
async def get_sandbox(sandbox_id: str, services: ServicesHere) -> Response:
    """Read a sandbox."""
    return answer(render.sandbox(await services.operations.get(sandbox_id)))


@router.delete(
    "/sandboxes/{sandbox_id}",
    status_code=204,
    responses=errors(401, 403, 404, 409, 422, 500),
    operation_id="deleteSandbox",
)
async def delete_sandbox(sandbox_id: str, caller: CallerHere, services: ServicesHere) -> Response:
    """End a sandbox; the rest is removed in the background."""
    await services.operations.delete(sandbox_id, caller)
    return Response(status_code=204)


@router.patch(
    "/sandboxes/{sandbox_id}/metadata",
    response_model=Sandbox,
    responses=errors(400, 401, 403, 404, 409, 422, 500),
    operation_id="patchSandboxMetadata",
)
async def patch_metadata(
    sandbox_id: str,
    body: Annotated[dict[str, str | None], Body()],
    caller: CallerHere,
    services: ServicesHere,
) -> Response:
    """Apply a merge patch (RFC 7396) to the metadata."""
    return answer(render.sandbox(await services.operations.patch_metadata(sandbox_id, body, caller)))


@router.post(
    "/sandboxes/{sandbox_id}/pause",
    status_code=202,
    responses=errors(401, 403, 404, 409, 422, 500),
    operation_id="pauseSandbox",
)
async def pause_sandbox(sandbox_id: str, caller: CallerHere, services: ServicesHere) -> Response:
    """Freeze a running sandbox; its memory is kept."""
    await services.operations.pause(sandbox_id, caller)
    return Response(status_code=202)


@router.post(
    "/sandboxes/{sandbox_id}/resume",
    status_code=202,
    responses=errors(401, 403, 404, 409, 422, 500),
    operation_id="resumeSandbox",
)
async def resume_sandbox(sandbox_id: str, caller: CallerHere, services: ServicesHere) -> Response:
    """Let a paused sandbox go on."""
    await services.operations.resume(sandbox_id, caller)
    return Response(status_code=202)


@router.post(
    "/sandboxes/{sandbox_id}/renew-expiration",
    response_model=RenewSandboxExpirationResponse,
    responses=errors(400, 401, 403, 404, 409, 422, 500),
    operation_id="renewSandboxExpiration",
)
async def renew_expiration(
    sandbox_id: str, body: RenewSandboxExpirationRequest, caller: CallerHere, services: ServicesHere
) -> Response:
    """Move the end of a sandbox."""
    until = await services.operations.renew(sandbox_id, body.expires_at, caller)
    return answer(RenewSandboxExpirationResponse(expires_at=until))
