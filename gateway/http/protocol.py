"""HTTP/1.1 as the server reads it, with bounds that the library does not have.

Nobody has shown a key yet while a head is being read, so what a head may cost is bounded here: its size, and
the time it may take. Bodies have bounds where they are read, behind the key.

Source: RFC 9112 §3.2 (one Host), RFC 6585 §5 (431).
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from specs.errors import BadRequest, BoxwrightError, HeadTooLarge
from specs.names import HEADER_REQUEST_ID

MOST_HEAD_BYTES: Final = 1 << 16
HEAD_SECONDS: Final = 20.0


class _Refused(Exception):  # the parser turns it into its own error, and that into a refusal
    pass


class BoundedProtocol(HttpToolsProtocol):
    """The library's protocol, which ends connections whose head is too large, too slow or ambiguous."""

    head_seconds = HEAD_SECONDS

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._began = True  # within the piece of data that is being read
        self._parsed = 0  # bytes of the head that came as whole fields
        self._unparsed = 0  # bytes of pieces that ended inside a head
        self._hosts = 0
        self._refusal: BoxwrightError = BadRequest(
            "the request is not well-formed HTTP/1.1; the connection ends"
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._began = False
        super().data_received(data)
        if self._in_head and not self._began:
            self._unparsed += len(data)
            if self._unparsed > MOST_HEAD_BYTES and not self.transport.is_closing():
                self._refusal = _too_large()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._began = True
        self._parsed = self._unparsed = self._hosts = 0
        if self._head_timer is None:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        self._hosts += name.lower() == b"host"
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_came()
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() == "1.1"):
            self._refusal = BadRequest("the request needs exactly one Host header")
            raise _Refused
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours say more
        """Refuse what is no request, in the shape of every other refusal, and hang up."""
        self._head_came()
        under_way: RequestResponseCycle | None = self.cycle  # None before the first request
        if under_way is None or under_way.response_complete or not under_way.response_started:
            self.transport.write(_render(self._refusal, dict(self.server_state.default_headers)))
        self.transport.close()  # in the middle of an answer there is nothing to say

    def _count(self, more: int) -> None:
        self._parsed += more
        if self._parsed > MOST_HEAD_BYTES:
            self._refusal = _too_large()
            raise _Refused

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.timeout_keep_alive_handler)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"the request's address and headers are larger than {MOST_HEAD_BYTES} bytes; send fewer"
    )


def _render(error: BoxwrightError, headers: Mapping[bytes, bytes]) -> bytes:
    body = json.dumps(error.body(), separators=(",", ":")).encode()
    extra = b"".join(name + b": " + value + b"\r\n" for name, value in headers.items())
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"{HEADER_REQUEST_ID.lower()}: {uuid.uuid4().hex}\r\nconnection: close\r\n"
    )
    return head.encode("ascii") + extra + b"\r\n" + body
