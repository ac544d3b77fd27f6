"""Routes that first ask who is calling, and only then read a bounded body."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, NoReturn

from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.types import Message, Receive

from gateway.http.auth import caller_of, scheme
from gateway.http.errors import BodyTooLarge
from gateway.operations.services import Caller, Services
from specs.errors import BadRequest
from specs.lifecycle import ErrorResponse
from specs.names import HEADER_API_KEY

CallerHere = Annotated[Caller, Depends(caller_of)]


def services_of(request: Request) -> Services:
    """
    Return what the composition root gave to the doors.
    """
    services: Services = request.app.state.services
    return services


ServicesHere = Annotated[Services, Depends(services_of)]


class StrictRequest(Request):
    """A request whose JSON is what RFC 8259 calls JSON: UTF-8, no NaN, and text that is text.

    An escape can name half of a surrogate pair. Neither the store nor the engine can keep such text, so it
    is refused here, once, and not at whichever encoder meets it first.
    """

    async def json(self) -> Any:
        """
        Raises:
            BadRequest: not UTF-8, not JSON's numbers, or not Unicode.
            json.JSONDecodeError: not JSON; the framework has the answer for that.
        """
        try:
            text = (await self.body()).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadRequest("the body is not UTF-8; send JSON in UTF-8") from error
        value = json.loads(text, parse_constant=_no_constant)
        if "\\ud" in text.lower():
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise BadRequest(
                    "the body has half of a surrogate pair, which is no character; send whole characters"
                ) from error
        return value


class GuardedRoute(APIRoute):
    """A route that needs an API key. Nobody's body is read before the key was found good."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            services = services_of(request)
            request.state.caller = await services.auth(request.headers.get(HEADER_API_KEY))
            most = services.settings.limits.max_body_bytes
            return await handle(StrictRequest(request.scope, _bounded(request, most)))

        return guarded


def guarded_router(tag: str) -> APIRouter:
    """
    Make a router whose every route needs an API key.
    """
    return APIRouter(route_class=GuardedRoute, tags=[tag], dependencies=[Security(scheme)])


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """
    Describe the failures of a route for the served document.
    """
    return {status: {"model": ErrorResponse, "description": _WORDS[status]} for status in statuses}


def answer(shape: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """
    Encode an answer: camelCase, and nothing that has no value.
    """
    content = shape.model_dump_json(by_alias=True, exclude_none=True)
    return Response(content, status, headers=headers, media_type="application/json")


def _no_constant(_: str) -> NoReturn:
    raise BadRequest("the body has NaN or Infinity, which JSON does not have; send a number")


_WORDS: Final = {
    400: "The request is well formed but asks for something that cannot be; the code says which rule.",
    401: "The API key is missing or not known.",
    403: "The key is good but may not do this.",
    404: "There is no such thing, or not any more.",
    409: "The present state does not allow this step.",
    422: "A member is missing, of the wrong type or out of range.",
    429: "More is under way than the gateway takes at once.",
    500: "The gateway or the engine failed.",
    501: "The backend of this gateway does not have the feature.",
    503: "The container engine does not answer at the moment.",
}


def _bounded(request: Request, most: int) -> Receive:
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise BodyTooLarge(f"the body is larger than {most} bytes; send a smaller one")
    seen = 0

    async def receive() -> Message:
        nonlocal seen
        message = await request.receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise BodyTooLarge(f"the body is larger than {most} bytes; send a smaller one")
        return message

    return receive
