"""Routes of logs and events, in the stable and in the deprecated form (lifecycle §1.5)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Query, Response
from fastapi.responses import PlainTextResponse

from gateway.http.guarded import ServicesHere, answer, errors, guarded_router
from gateway.operations.diagnostics import Piece
from specs.diagnostics import DiagnosticContentResponse

router = guarded_router("diagnostics")

DEPRECATED: Final = {"Deprecation": "true"}
PLAIN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The report.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
BOTH: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The JSON form with `scope`, the text form without.",
        "model": DiagnosticContentResponse,
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}

Scope = Annotated[str | None, Query(description="Asks for the JSON form.")]
Lines = Annotated[int, Query(ge=1, le=10_000, description="How many lines of output.")]
Events = Annotated[int, Query(ge=1, le=500, description="How many events.")]


@router.get(
    "/sandboxes/{sandbox_id}/diagnostics/logs",
    responses={**BOTH, **errors(400, 401, 403, 404, 422, 500, 501)},
    response_class=Response,
    operation_id="getSandboxLogs",
)
async def get_logs(
    sandbox_id: str,
    services: ServicesHere,
    scope: Scope = None,
    tail: Lines = 100,
    since: Annotated[str | None, Query(description="Text form: how far back, like `30s` or `2h`.")] = None,
    container: Annotated[str | None, Query(description="Text form: which container.")] = None,
) -> Response:
    """Read what the entrypoint printed."""
    del container  # there is one
    if scope is None:
        text = await services.diagnostics.logs(sandbox_id, tail=tail, since=since)
        return PlainTextResponse(text, headers=DEPRECATED)
    scope = scope.strip().lower()
    return _stable(sandbox_id, "logs", scope, await services.diagnostics.scoped_logs(sandbox_id, scope))


@router.get(
    "/sandboxes/{sandbox_id}/diagnostics/events",
    responses={**BOTH, **errors(400, 401, 403, 404, 422, 500, 501)},
    response_class=Response,
    operation_id="getSandboxEvents",
)
async def get_events(
    sandbox_id: str, services: ServicesHere, scope: Scope = None, limit: Events = 50
) -> Response:
    """Read what happened to the sandbox."""
    if scope is None:
        return PlainTextResponse(
            await services.diagnostics.events(sandbox_id, limit=limit), headers=DEPRECATED
        )
    scope = scope.strip().lower()
    return _stable(sandbox_id, "events", scope, await services.diagnostics.scoped_events(sandbox_id, scope))


@router.get(
    "/sandboxes/{sandbox_id}/diagnostics/inspect",
    responses={**PLAIN, **errors(401, 404, 422, 500)},
    response_class=Response,
    operation_id="inspectSandbox",
    deprecated=True,
)
async def inspect(sandbox_id: str, services: ServicesHere) -> Response:
    """Print how the sandbox is set up."""
    return PlainTextResponse(await services.diagnostics.inspect(sandbox_id), headers=DEPRECATED)


@router.get(
    "/sandboxes/{sandbox_id}/diagnostics/summary",
    responses={**PLAIN, **errors(401, 404, 422, 500)},
    response_class=Response,
    operation_id="summarizeSandbox",
    deprecated=True,
)
async def summary(
    sandbox_id: str, services: ServicesHere, tail: Lines = 50, event_limit: Events = 20
) -> Response:
    """Print everything worth a look."""
    text = await services.diagnostics.summary(sandbox_id, tail=tail, event_limit=event_limit)
    return PlainTextResponse(text, headers=DEPRECATED)


def _stable(sandbox_id: str, kind: Literal["logs", "events"], scope: str, piece: Piece) -> Response:
    return answer(
        DiagnosticContentResponse(
            sandbox_id=sandbox_id,
            kind=kind,
            delivery="inline",
            content_type="text/plain; charset=utf-8",
            scope=scope,
            content=piece.text,
            content_length=len(piece.text.encode("utf-8", "replace")),
            truncated=piece.truncated,
            warnings=list(piece.warnings) or None,
        )
    )
