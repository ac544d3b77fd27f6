"""The proxy's routes, as raw ASGI: no body is parsed, no path decoded, every method passes.

Mount them last: they catch everything below `/sandboxes/{id}/proxy/{port}`.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from gateway.proxy import closing
from gateway.proxy.headers import api_key, asks_for_websocket
from gateway.proxy.http import Exchange
from gateway.proxy.services import ProxyServices
from gateway.proxy.target import ProxyPath, parse_path
from gateway.proxy.upstream import Pool
from gateway.proxy.websocket import Relay, refusal_code, refuse
from specs.errors import BadRequest, BoxwrightError, Unauthorized

logger = logging.getLogger(__name__)


class ProxyRoute(BaseRoute):
    """`/sandboxes/{id}/proxy/{port}[/{path}]`, with and without `/v1`, HTTP and WebSocket.

    Errors of HTTP calls are raised for the gateway's one renderer; a WebSocket is accepted and closed, since
    clients cannot read anything else.
    """

    def __init__(self, services: ProxyServices) -> None:
        self._services = services
        self._pool = Pool(services.settings.proxy)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] not in {"http", "websocket"}:
            return Match.NONE, {}
        path = _path_of(scope)
        return (Match.NONE, {}) if path is None else (Match.FULL, {"proxy_path": path})

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: ProxyPath = scope["proxy_path"]
        if scope["type"] == "http":
            await self._http(scope, receive, send, path)
        else:
            await self._websocket(scope, receive, send, path)

    async def close(self) -> None:
        """Drop the idle connections; what is under way ends with its caller's connection."""
        await self._pool.close()

    async def _http(self, scope: Scope, receive: Receive, send: Send, path: ProxyPath) -> None:
        await self._services.auth(api_key(scope["headers"]))
        if asks_for_websocket(scope["headers"]):
            raise BadRequest("this request asks for a WebSocket but is not a valid handshake")
        path.port_number()
        target = await self._services.operations.target(path.sandbox_id)
        await Exchange(scope, receive, send, path, target, self._services.settings.proxy).run(self._pool)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send, path: ProxyPath) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        try:
            await self._services.auth(api_key(scope["headers"]))
            path.port_number()
            target = await self._services.operations.target(path.sandbox_id)
            await Relay(scope, receive, send, path, target, self._services.settings.proxy).run(self._pool)
        except Unauthorized as error:
            await refuse(send, closing.POLICY, error.message)
        except BoxwrightError as error:
            await refuse(send, refusal_code(error), error.message)


def mount(app: FastAPI, services: ProxyServices) -> ProxyRoute:
    """Add the proxy's routes behind all others; close the returned route when the gateway stops."""
    route = ProxyRoute(services)
    app.router.routes.append(route)
    return route


def _path_of(scope: Scope) -> ProxyPath | None:
    raw = scope.get("raw_path")
    if raw is None:
        raw = quote(scope["path"], safe="/%:@!$&'()*+,;=-._~").encode("ascii")
    return parse_path(raw, scope.get("root_path", "").encode("ascii"))
