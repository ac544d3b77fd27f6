"""Around every request: an id, a bound, and one answer for what nobody expected."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.errors import render
from specs.errors import BoxwrightError, Internal, TooMany
from specs.names import HEADER_REQUEST_ID

_ID: Final = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
_HEADER: Final = HEADER_REQUEST_ID.lower().encode()

_log = structlog.get_logger(__name__)


class RequestContext:
    """The outermost layer (plain ASGI, so that a stream through it costs nothing).

    Gives every answer `X-Request-ID` and `Date`, binds the id to the log, refuses above `limit` requests at
    once, and turns what no one caught into a 500 whose story is in the log.
    """

    def __init__(self, app: ASGIApp, limit: int = 0) -> None:
        self._app = app
        self._limit = limit
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _complete(message, request_id)
            await send(message)

        structlog.contextvars.bind_contextvars(request_id=request_id)
        self._under_way += 1
        try:
            if self._limit and self._under_way > self._limit:
                busy = TooMany(
                    f"{self._limit} requests are under way, which is the limit; try again in a moment"
                )
                await render(busy)(scope, receive, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except Exception as error:  # the border to the server: nobody else answers this request
            if started:
                _log.warning("answer_broken", path=scope["path"], error=type(error).__name__)
                raise
            await render(_unexpected(scope, error))(scope, receive, send_with_id)
        finally:
            self._under_way -= 1
            structlog.contextvars.unbind_contextvars("request_id")


def _unexpected(scope: Scope, error: Exception) -> BoxwrightError:
    if isinstance(error, BoxwrightError):
        return error
    _log.exception("request_failed", method=scope["method"], path=scope["path"])
    return Internal(
        "the gateway failed; its log has the story under the request id", code="GENERAL::UNKNOWN_ERROR"
    )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == _HEADER:
            given = value.decode("latin-1").strip()
            if _ID.fullmatch(given):
                return str(given)
    return uuid.uuid4().hex


def _complete(message: Message, request_id: str) -> None:
    headers = list(message.get("headers", ()))
    names = {name.lower() for name, _ in headers}
    # An id that the answer of a sandbox's own service carries is not this request's.
    headers = [(name, value) for name, value in headers if name.lower() != _HEADER]
    headers.append((_HEADER, request_id.encode("ascii")))
    if b"date" not in names:
        headers.append((b"date", format_datetime(datetime.now(UTC), usegmt=True).encode("ascii")))
    message["headers"] = headers
