"""The route that says where a port of a sandbox is."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request, Response

from gateway.http import render
from gateway.http.guarded import ServicesHere, answer, errors, guarded_router
from gateway.sandboxes.endpoints import Hosts
from specs.lifecycle import Endpoint

router = guarded_router("access")


@router.get(
    "/sandboxes/{sandbox_id}/endpoints/{port}",
    response_model=Endpoint,
    responses=errors(400, 401, 403, 404, 422, 500),
    operation_id="getSandboxEndpoint",
)
async def get_endpoint(
    request: Request,
    sandbox_id: str,
    port: Annotated[
        int,
        Path(
            description="A TCP port inside the sandbox.", json_schema_extra={"minimum": 1, "maximum": 65535}
        ),
    ],
    services: ServicesHere,
    use_server_proxy: Annotated[
        bool, Query(description="An address that leads through this server.")
    ] = False,
    expires: Annotated[int | None, Query(description="Unix time at which a signed address ends.")] = None,
) -> Response:
    """Say where a port of a sandbox is, and which headers open it."""
    route = await services.operations.endpoint(
        sandbox_id, port, _hosts(request, services), use_server_proxy=use_server_proxy, expires=expires
    )
    return answer(render.endpoint(route))


def _hosts(request: Request, services: ServicesHere) -> Hosts:
    settings = services.settings
    return Hosts(
        public=settings.server.eip,
        host_ip=settings.docker.host_ip,
        asked=request.url.netloc,
        prefix="/v1" if request.url.path.startswith("/v1/") else "",
    )
