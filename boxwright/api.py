"""The gateway's API as commands use it: one call at a time, failures with their remedy."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from boxwright.access import Key, NoKey, base_url, find_key
from boxwright.running import local_domain, running
from boxwright.terminal import fail, settings_from
from specs.names import HEADER_API_KEY

SECONDS: Final = 30.0
PAGE_SIZE: Final = 200  # the most that a page may hold (lifecycle §1.3)
WHOLE_ID: Final = 36

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


Send = Callable[[str, str, Mapping[str, str]], Answer]


class ApiFailure(Exception):
    """The gateway said no, or nothing answers; the message says why and what to do.

    Attributes:
        status: the HTTP status, 0 when nothing answered.
        code: the error's code, where the answer has one.
    """

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Api:
    """A gateway at an address, called with a key."""

    def __init__(self, base: str, key: Key, send: Send) -> None:
        self.base = base
        self._key = key
        self._send = send

    def json(self, path: str, query: Query = ()) -> Any:
        """
        Read a JSON document.

        Raises:
            ApiFailure
        """
        body = self._call("GET", path, query)
        try:
            return json.loads(body)
        except ValueError:
            raise ApiFailure(
                f"what answers at {self.base} does not speak this API: is that address a Boxwright?"
            ) from None

    def text(self, path: str, query: Query = ()) -> str:
        """
        Read a text.

        Raises:
            ApiFailure
        """
        return self._call("GET", path, query).decode("utf-8", "replace")

    def delete(self, path: str) -> None:
        """
        Raises:
            ApiFailure
        """
        self._call("DELETE", path, ())

    def sandboxes(self, query: Query = ()) -> Iterator[dict[str, Any]]:
        """
        Walk through all pages of the list, newest first.

        Raises:
            ApiFailure
        """
        page = 1
        while True:
            found = self.json("/v1/sandboxes", [*query, ("page", str(page)), ("pageSize", str(PAGE_SIZE))])
            yield from found["items"]
            if not found["pagination"]["hasNextPage"]:
                return
            page += 1

    def whole_id(self, text: str) -> str:
        """
        Return the id that begins with `text`, where that is one only.

        Raises:
            ApiFailure: none or several begin so.
        """
        if len(text) >= WHOLE_ID:
            return text
        found = [one["id"] for one in self.sandboxes() if one["id"].startswith(text)] if text else []
        if len(found) == 1:
            return str(found[0])
        if found:
            raise ApiFailure(
                f"{len(found)} sandboxes have an id that begins with {text}; give more of it: {', '.join(found[:5])}"
            )
        raise ApiFailure(
            f"no sandbox has an id that begins with {text!r}; `boxwright ps` shows what there is"
        )

    def _call(self, method: str, path: str, query: Query) -> bytes:
        url = f"{self.base}{path}" + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        try:
            answer = self._send(method, url, {HEADER_API_KEY: self._key.value})
        except ssl.SSLError as error:
            raise ApiFailure(f"no TLS connection to {self.base}: {error.reason or error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ApiFailure(
                f"nothing answers at {self.base} ({_words(error)}). Is Boxwright up? `boxwright up --detach` starts "
                "it; OPEN_SANDBOX_DOMAIN or --domain names one that runs elsewhere."
            ) from error
        if 200 <= answer.status < 300:
            return answer.body
        raise self._refusal(answer)

    def _refusal(self, answer: Answer) -> ApiFailure:
        try:
            body = json.loads(answer.body)
            code, message = str(body["code"]), str(body["message"])
        except (ValueError, KeyError, TypeError):
            return ApiFailure(
                f"{self.base} answers with status {answer.status} and no error of this API: is that address a "
                "Boxwright?",
                answer.status,
            )
        text = f"{message} [{code}]"
        if answer.status == 401:
            text += f"\nThe key came from {self._key.source}."
        advice = remedy(code, answer.status)
        return ApiFailure(f"{text}\n{advice}" if advice else text, answer.status, code)


def remedy(code: str, status: int) -> str:
    """Return what the error table says to do, or nothing for a code it does not have."""
    from boxwright.errors import Unexplained, meanings

    try:
        return next((one.remedy for one in meanings() if (one.code, one.status) == (code, status)), "")
    except Unexplained:  # docstrings were optimised away; the message alone has to do
        return ""


def send_http(method: str, url: str, headers: Mapping[str, str], seconds: float = SECONDS) -> Answer:
    """
    Make one request. Redirects are not followed: the key is for this address only.

    Raises:
        OSError, http.client.HTTPException
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request(
            method, f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=headers
        )
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())
    finally:
        connection.close()


def open_api(config: Path | None, domain: str | None) -> Api:
    """
    Return the API that a command shall use, or end with what is missing.

    Without `domain` it is the gateway that runs from this state folder; the configured port when none or
    several do.
    """
    settings = settings_from(config)
    if domain is None:
        found = running(settings.home)
        configured = local_domain(settings.server.host, settings.server.port)
        domain = found[0].domain if len(found) == 1 else configured
    base = base_url(domain)
    try:
        return Api(base, find_key(base, settings.home, os.environ), send_http)
    except NoKey as error:
        fail(str(error))


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
