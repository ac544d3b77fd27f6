"""The one door to the Docker engine.

Every call has a deadline. Whatever the client library or the engine says leaves this
file as one of four things: `EngineUnavailable`, `EngineTimeout`, `NoSuchObject` (the
engine positively said so) or `EngineRefused` with the engine's own words. Which
failure of the protocol that is depends on the verb and is decided in `runtime.py`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import aiodocker
import aiohttp

from gateway.sandboxes.model import RegistryAuth
from images.reference import DEFAULT_DOMAIN, BadReference, parse
from specs.errors import EngineTimeout, EngineUnavailable

HUB_SERVER: Final = "https://index.docker.io/v1/"
MAX_LINE: Final = 1 << 20
LOG_CHUNK: Final = 1 << 16


class EngineRefused(Exception):
    """The engine answered no; `words` are its own."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status, self.words = status, words


class NoSuchObject(EngineRefused):
    """The engine positively said that the thing does not exist."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Where the engine is and how long it may take.

    Attributes:
        host: like DOCKER_HOST; None leaves the choice to the client library, which
            looks at DOCKER_HOST, the docker context and the usual sockets.
        call_seconds: ceiling of a quick call (inspect, pause, list).
        start_seconds: ceiling of a create or a start.
        pull_seconds: ceiling of a whole pull.
        pull_idle_seconds: a pull that says nothing this long has failed.
        event_idle_seconds: an event stream that says nothing this long is opened anew.
    """

    host: str | None = None
    call_seconds: float = 30.0
    start_seconds: float = 60.0
    pull_seconds: float = 900.0
    pull_idle_seconds: float = 120.0
    event_idle_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Version:
    api: tuple[int, int]
    engine: str
    os: str
    arch: str


class Engine:
    """Typed verbs of the engine's HTTP API; opened lazily, so an engine may appear later."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self._client: aiodocker.Docker | None = None
        self._version: Version | None = None

    @property
    def is_local(self) -> bool:
        """Tell whether paths of this machine are paths of the engine's."""
        return isinstance(self._docker().connector, aiohttp.UnixConnector)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    # -- the engine itself ----------------------------------------------------------

    async def ping(self) -> None:
        """
        Raises:
            EngineUnavailable: nobody answers, or what answers is no engine.
        """
        try:
            said = await self._call("GET", "_ping", versioned=False)
        except EngineRefused as error:
            raise EngineUnavailable(
                f"the Docker engine is not well: {' '.join(error.words.split())[:300]}"
            ) from error
        if said.strip() != b"OK":
            raise EngineUnavailable("what answers in the Docker engine's place is no Docker engine")

    async def version(self) -> Version:
        """
        Ask once what the engine is; asked again only by a new `Engine`.

        Raises:
            EngineUnavailable: it does not say, so nothing else can be asked of it.
        """
        if self._version is None:
            try:
                found = await self._json("GET", "version", versioned=False)
                major, _, minor = str(found["ApiVersion"]).partition(".")
                self._version = Version(
                    (int(major), int(minor)), str(found["Version"]), str(found["Os"]), str(found["Arch"])
                )
            except EngineRefused as error:
                raise EngineUnavailable(
                    f"the Docker engine is not well: {' '.join(error.words.split())[:300]}"
                ) from error
            except (KeyError, TypeError, ValueError) as error:
                raise EngineUnavailable("the Docker engine does not say its version") from error
        return self._version

    async def info(self) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._json("GET", "info"))

    # -- images ---------------------------------------------------------------------

    async def inspect_image(self, image: str) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._json("GET", f"images/{quote(image, safe='/:@')}/json"))

    async def image_labels(self, image: str) -> dict[str, str] | None:
        """Return an image's labels; None when the engine has no such image."""
        try:
            inspect = await self.inspect_image(image)
        except NoSuchObject:
            return None
        return dict((inspect.get("Config") or {}).get("Labels") or {})

    async def list_images(self, label: str) -> list[dict[str, Any]]:
        filters = json.dumps({"label": [label]})
        found = await self._json("GET", "images/json", params={"filters": filters})
        return cast("list[dict[str, Any]]", found)

    async def tag_image(self, image: str, repository: str, tag: str) -> None:
        await self._call("POST", f"images/{image}/tag", params={"repo": repository, "tag": tag})

    async def remove_image(self, image: str) -> None:
        await self._call("DELETE", f"images/{quote(image, safe='/:@')}")

    async def pull(
        self, image: str, *, platform: str | None, auth: RegistryAuth | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """
        Pull an image, yielding the engine's progress lines.

        The credentials travel in the header of this one request; the engine does not keep them.
        """
        params = {"fromImage": image}
        if platform is not None:
            params["platform"] = platform
        headers = {} if auth is None else {"X-Registry-Auth": registry_auth(image, auth)}
        idle, total = self.settings.pull_idle_seconds, self.settings.pull_seconds
        async with self._stream(
            "POST", "images/create", params=params, headers=headers, open_seconds=total
        ) as response:
            async for line in self._lines(response, idle, total):
                if "error" in line or "errorDetail" in line:
                    detail = line.get("errorDetail") or {}
                    raise EngineRefused(0, str(detail.get("message") or line.get("error") or "unknown error"))
                yield line

    async def import_image(self, tar: Path, *, repository: str, tag: str, changes: list[str]) -> None:
        """Make an image of one layer out of a root file system in a tar file."""
        params = [("fromSrc", "-"), ("repo", repository), ("tag", tag), *(("changes", c) for c in changes)]
        with tar.open("rb") as data:
            async with self._stream(
                "POST",
                "images/create",
                params=params,
                headers={"Content-Type": "application/x-tar"},
                data=data,
                open_seconds=self.settings.pull_seconds,
            ) as response:
                async for line in self._lines(response, self.settings.pull_idle_seconds):
                    if "error" in line:
                        raise EngineRefused(0, str(line["error"]))

    # -- containers -----------------------------------------------------------------

    async def create_container(self, name: str, body: Mapping[str, Any]) -> str:
        found = await self._json(
            "POST", "containers/create", params={"name": name}, body=body, seconds=self.settings.start_seconds
        )
        return str(found["Id"])

    async def start_container(self, name: str) -> None:
        await self._call("POST", f"containers/{name}/start", seconds=self.settings.start_seconds)

    async def inspect_container(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._json("GET", f"containers/{name}/json"))

    async def list_containers(self, label: str) -> list[dict[str, Any]]:
        params = {"all": "1", "filters": json.dumps({"label": [label]})}
        return cast("list[dict[str, Any]]", await self._json("GET", "containers/json", params=params))

    async def pause_container(self, name: str) -> None:
        await self._call("POST", f"containers/{name}/pause")

    async def unpause_container(self, name: str) -> None:
        await self._call("POST", f"containers/{name}/unpause")

    async def stop_container(self, name: str, grace_seconds: int) -> None:
        """TERM, wait, KILL; the deadline covers the grace."""
        await self._call(
            "POST",
            f"containers/{name}/stop",
            params={"t": str(grace_seconds)},
            seconds=grace_seconds + self.settings.call_seconds,
        )

    async def remove_container(self, name: str) -> None:
        """Kill if need be and remove, with the anonymous volumes."""
        params = {"v": "1", "force": "1"}
        await self._call("DELETE", f"containers/{name}", params=params, seconds=self.settings.start_seconds)

    async def wait_container(self, name: str, condition: str, seconds: float) -> int:
        """Wait until the container is `not-running` or `removed`; return its exit code."""
        found = await self._json(
            "POST", f"containers/{name}/wait", params={"condition": condition}, seconds=seconds
        )
        return int(found.get("StatusCode") or 0)

    async def logs(self, name: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield the raw log stream of a container as it stands."""
        query = {"stdout": "1", "stderr": "1", **params}
        loop = asyncio.get_running_loop()
        async with self._stream("GET", f"containers/{name}/logs", params=query) as response:
            end = loop.time() + self.settings.call_seconds
            while True:
                async with asyncio.timeout_at(end):
                    chunk = await response.content.read(LOG_CHUNK)
                if not chunk:
                    return
                yield chunk

    async def events(
        self, filters: Mapping[str, list[str]], since: str | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """
        Follow the engine's events until the stream breaks.

        The first item is an empty line, sent when the engine has answered: from then on
        nothing is missed.
        """
        params = {"filters": json.dumps(filters)} | ({"since": since} if since is not None else {})
        async with self._stream("GET", "events", params=params) as response:
            yield {}
            async for line in self._lines(response, self.settings.event_idle_seconds):
                yield line

    # -- volumes --------------------------------------------------------------------

    async def create_volume(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._json("POST", "volumes/create", body=body))

    async def inspect_volume(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._json("GET", f"volumes/{name}"))

    async def remove_volume(self, name: str) -> None:
        await self._call("DELETE", f"volumes/{name}")

    # -- the wire -------------------------------------------------------------------

    def _docker(self) -> aiodocker.Docker:
        if self._client is None:
            try:
                self._client = aiodocker.Docker(url=self.settings.host)
            except (AssertionError, ValueError) as error:
                raise EngineUnavailable(
                    "no Docker engine was found: start it, or point DOCKER_HOST at its socket"
                ) from error
        return self._client

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        versioned: bool = True,
    ) -> bytes:
        limit = self.settings.call_seconds if seconds is None else seconds
        data = None if body is None else json.dumps(body)
        async with self._stream(
            method, path, params=params, data=data, seconds=limit, versioned=versioned
        ) as response:
            return await response.read()

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        raw = await self._call(method, path, **options)
        try:
            return json.loads(raw)
        except ValueError as error:
            raise EngineUnavailable(f"the engine's answer to {method} {path} is not JSON") from error

    @asynccontextmanager
    async def _stream(
        self,
        method: str,
        path: str,
        *,
        params: Any = None,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        seconds: float | None = None,
        open_seconds: float | None = None,
        versioned: bool = True,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open one exchange; without `seconds` only its beginning is timed and the reader times the rest."""
        docker = self._docker()
        if versioned and docker.api_version == "auto":
            major, minor = (await self.version()).api
            docker.api_version = f"v{major}.{minor}"
        try:
            async with (
                asyncio.timeout(seconds or open_seconds or self.settings.call_seconds) as limit,
                docker.session.request(
                    method,
                    docker._canonicalize_url(path, versioned_api=versioned),
                    params=params,
                    headers={"Content-Type": "application/json", **(headers or {})},
                    data=data,
                    timeout=aiohttp.ClientTimeout(),
                ) as response,
            ):
                if response.status >= 400:
                    raise _refusal(response.status, await response.read())
                if seconds is None:
                    # A timer must not fire in a consumer's code between two lines.
                    limit.reschedule(None)
                yield response
        except aiohttp.ClientError as error:
            raise EngineUnavailable(f"the Docker engine does not answer: {_cause(error)}") from error
        except TimeoutError as error:
            raise EngineTimeout(f"the Docker engine did not finish {method} {path} in time") from error

    async def _lines(
        self, response: aiohttp.ClientResponse, idle: float, total: float | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Split a stream of JSON objects, one per line, bounded in size, in silence and in all."""
        loop = asyncio.get_running_loop()
        end = None if total is None else loop.time() + total
        buffer = bytearray()
        while True:
            now = loop.time()
            async with asyncio.timeout_at(now + idle if end is None else min(now + idle, end)):
                chunk = await response.content.readany()
            if not chunk:
                break
            buffer += chunk
            *whole, rest = bytes(buffer).split(b"\n")
            if len(rest) > MAX_LINE:
                raise EngineUnavailable("the engine sent a line without end")
            buffer = bytearray(rest)
            for line in whole:
                if line.strip():
                    yield json.loads(line)
        if buffer.strip():
            yield json.loads(bytes(buffer))


def registry_auth(image: str, auth: RegistryAuth) -> str:
    """Encode credentials for the header `X-Registry-Auth` (Engine API, "Authentication")."""
    try:
        domain = parse(image).domain
    except BadReference:
        domain = DEFAULT_DOMAIN
    server = HUB_SERVER if domain == DEFAULT_DOMAIN else domain
    document = {"username": auth.username, "password": auth.password.reveal(), "serveraddress": server}
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


def _cause(error: aiohttp.ClientError) -> str:
    """Say why there was no answer; where the socket is on this machine is not a caller's business."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "it cannot be reached"
    return " ".join(str(error).split())[:300]


def _refusal(status: int, raw: bytes) -> Exception:
    """Read an error answer; only the engine's own JSON "no such …" counts as absence."""
    text = raw[:MAX_LINE].decode("utf-8", "replace").strip()
    try:
        words, is_json = str(json.loads(text)["message"]), True
    except (ValueError, KeyError, TypeError):
        words, is_json = text or f"status {status}", False
    if status == 404 and is_json and ("no such" in words.lower() or "not found" in words.lower()):
        return NoSuchObject(status, words)
    if status == 503:
        return EngineUnavailable(f"the Docker engine refuses work: {words[:300]}")
    return EngineRefused(status, words)
