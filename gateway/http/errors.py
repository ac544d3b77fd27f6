"""The one place where a failure becomes an answer (lifecycle §4.1).

Every failure has the body `{code, message[, details]}`: refusals, requests that do not validate, unknown
routes, and what nobody expected. What the caller sent is never repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from specs.errors import BadRequest, BoxwrightError, MethodNotAllowed, RouteNotFound, Unprocessable

MOST_FAULTS: Final = 20


class BodyTooLarge(BoxwrightError):
    """The body of a lifecycle call is larger than any sensible one."""

    code, status = "SANDBOX::BODY_TOO_LARGE", 413


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(BoxwrightError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _framework)


def render(error: BoxwrightError, headers: Mapping[str, str] | None = None) -> Response:
    """
    Turn a failure into its answer.
    """
    extra = dict(headers or {})
    if error.retry_after is not None:
        extra["Retry-After"] = str(error.retry_after)
    return JSONResponse(error.body(), error.status, headers=extra)


async def _refused(_: Request, error: Exception) -> Response:
    if not isinstance(error, BoxwrightError):
        raise error
    return render(error)


async def _invalid(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    faults = [_fault(one) for one in error.errors()[:MOST_FAULTS]]
    return render(Unprocessable(_sentence(faults), details=faults))


async def _framework(_: Request, error: Exception) -> Response:
    """Errors of the router: unknown path, wrong method, a body that is not JSON."""
    if not isinstance(error, HTTPException):
        raise error
    if isinstance(error.__cause__, BoxwrightError):
        return render(error.__cause__)  # FastAPI wraps what happens while it reads a body
    match error.status_code:
        case 404:
            refusal: BoxwrightError = RouteNotFound(
                "there is no such route; see /openapi.json for those there are"
            )
        case 405:
            refusal = MethodNotAllowed(
                "this route does not take that method; the Allow header has those it takes"
            )
        case _:
            refusal = BadRequest("the request could not be read; send well-formed JSON")
    return render(refusal, error.headers)


def _fault(error: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "loc": list(error["loc"]),
        "msg": str(error["msg"]).removeprefix("Value error, "),
        "type": error["type"],
    }


def _sentence(faults: Sequence[Mapping[str, Any]]) -> str:
    first = faults[0]
    # `body` and the like say where a member is and not which one.
    place = ".".join(str(part) for part in first["loc"][1:])
    text = f"{place}: {first['msg']}" if place else str(first["msg"])
    return text if len(faults) == 1 else f"{text} (and {len(faults) - 1} more, see details)"
