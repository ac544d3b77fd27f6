"""One proxied HTTP exchange: bytes both ways at once, bounded and cancellable.

Two things run side by side: the request's body goes up (and, when it is through, the caller is watched for
leaving), while the answer comes down. Memory per exchange is what the two transports buffer, whatever
the sizes of the bodies.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from starlette.types import Receive, Scope, Send

from gateway.config import ProxySettings
from gateway.operations.services import ProxyTarget
from gateway.proxy.headers import (
    Forwarding,
    Header,
    render_request,
    request_headers,
    response_headers,
    transfer_codings,
    value_of,
)
from gateway.proxy.target import ProxyPath, authority, own_authorities, rewrite_location, upstream_target
from gateway.proxy.upstream import Connection, Pool, StaleConnection
from specs.errors import BackendTimeout, BoxwrightError, Internal
from specs.names import PORT_EXECD

_CONTINUE_SECONDS: Final = 1.0  # how long a body waits for the sandbox's "100 Continue" (RFC 9110 §10.1.1)
_REPEATABLE: Final = frozenset(
    {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PROPFIND", "REPORT", "SEARCH"}
)

logger = logging.getLogger(__name__)


class CallerGone(Internal):
    """The caller left before the answer's end; nobody is there to be told."""

    code, status = "CALLER_GONE", 499


def forwarding(scope: Scope, path: ProxyPath, port: int, target: ProxyTarget, upstream: bytes) -> Forwarding:
    """Say what the proxy adds to a request (HTTP or WebSocket)."""
    client = scope.get("client")
    return Forwarding(
        authority=upstream,
        port=port,
        token=target.token.reveal().encode("ascii"),
        prefix=path.prefix,
        scheme=b"https" if scope.get("scheme") in {"https", "wss"} else b"http",
        host=value_of(scope["headers"], b"host") or b"",
        peer=client[0].encode("ascii", "ignore") if client else b"",
    )


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        path: ProxyPath,
        target: ProxyTarget,
        settings: ProxySettings,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._path = path
        self._port = path.port_number()
        self._target = target
        self._settings = settings
        self._inbound: list[Header] = scope["headers"]
        self._coding = transfer_codings(self._inbound)
        length = value_of(self._inbound, b"content-length")
        self._has_body = self._coding is not None or (length is not None and length != b"0")
        self._expects_continue = self._has_body and value_of(self._inbound, b"expect") is not None
        self._connection: Connection | None = None
        self._started = False

    async def run(self, pool: Pool) -> None:
        """
        Carry the exchange out.

        A failure before the answer's head is raised; one after it ends the caller's connection without the
        body's terminator, so that a truncated answer cannot be taken for a whole one.

        Raises:
            BackendConnectionFailed, BackendTimeout, BackendResponseFailed, TooMany
        """
        connection = await pool.acquire(self._target)
        self._begin(connection)
        upload = asyncio.get_running_loop().create_task(self._upload(connection))
        upload.add_done_callback(self._upload_ended)
        try:
            try:
                await self._answer(connection, pool)
            except StaleConnection:
                if self._has_body or self._scope["method"] not in _REPEATABLE:
                    raise
                pool.release(self._target, connection)
                connection = await pool.acquire(self._target, fresh=True)
                self._begin(connection)
                self._request_sent(connection)
                await self._answer(connection, pool)
        except CallerGone:
            logger.debug("caller left: sandbox %s port %d", self._target.sandbox_id, self._port)
        except BoxwrightError as error:
            if not self._started:
                raise
            logger.warning(
                "answer cut: sandbox %s port %d: %s", self._target.sandbox_id, self._port, error.message
            )
        finally:
            if self._connection is not None:
                self._connection = None
                pool.release(self._target, connection)
            upload.cancel()
            await asyncio.wait((upload,))

    def _begin(self, connection: Connection) -> None:
        self._connection = connection
        call = forwarding(self._scope, self._path, self._port, self._target, connection.authority)
        headers = request_headers(self._inbound, call)
        if self._coding is not None:
            headers.append((b"Transfer-Encoding", self._coding))
        target = upstream_target(self._port, self._path.rest, self._scope["query_string"])
        method: str = self._scope["method"]
        connection.begin(render_request(method, target, headers), bodyless=method == "HEAD")

    def _request_sent(self, connection: Connection) -> None:
        connection.request_sent()
        connection.expect_head_within(self._settings.answer_timeout_seconds)

    async def _upload(self, connection: Connection) -> None:
        """Send the caller's body, then watch the caller."""
        if not self._has_body:
            self._request_sent(connection)
        elif not self._expects_continue or await connection.wait_continue(_CONTINUE_SECONDS):
            if not await self._send_body(connection):
                self._caller_left()
                return
            self._request_sent(connection)
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._caller_left()

    async def _send_body(self, connection: Connection) -> bool:
        """Return False when the caller left before its body's end."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return False
            body: bytes = message.get("body", b"")
            more: bool = message.get("more_body", False)
            if self._coding is not None:
                framed = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                body = framed if more else framed + b"0\r\n\r\n"
            try:
                async with asyncio.timeout(self._settings.answer_timeout_seconds):
                    await connection.write(body)
            except TimeoutError:
                connection.fail(BackendTimeout("the service stopped reading the request"))
                return True
            if not more:
                return True

    def _caller_left(self) -> None:
        # Not the connection that the upload began with: a repeated request runs on another, and
        # a finished one has given its connection back.
        if self._connection is not None:
            self._connection.fail(CallerGone("the caller left"))

    def _upload_ended(self, upload: asyncio.Task[None]) -> None:
        if not upload.cancelled() and (failure := upload.exception()) is not None:
            logger.error("reading the request failed: sandbox %s", self._target.sandbox_id, exc_info=failure)
            if self._connection is not None:
                self._connection.fail(Internal("the request could not be read"))

    async def _answer(self, connection: Connection, pool: Pool) -> None:
        head = await connection.head()
        self._started = True
        headers = response_headers(head.headers, head.status)
        self._rewrite(headers, connection)
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})
        more = True
        while more:
            data = await connection.read()
            more = not connection.exhausted
            if not more:
                # The sandbox has nothing to wait for while a slow caller takes the last piece.
                self._connection = None
                pool.release(self._target, connection)
            await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _rewrite(self, headers: list[Header], connection: Connection) -> None:
        for index, (name, value) in enumerate(headers):
            if name == b"location":
                known = [value_of(self._inbound, b"host") or b""]
                if self._target.address.ip is not None:
                    known.append(authority(self._target.address.ip, self._port))
                if self._port == PORT_EXECD:
                    known.append(connection.authority)
                own = own_authorities(self._port, known)
                headers[index] = (name, rewrite_location(value, self._path.prefix, own))
