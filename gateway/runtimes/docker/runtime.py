"""The `Runtime` port on Docker: each verb is a few engine calls and idempotent by sandbox id.

The engine's floor is one create, one start and one inspect; nothing else is on that way.
What may take long (pulls, starts, stops) is bounded in number as well as in time.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from gateway.operations.ports import Capabilities, Progress
from gateway.runtimes.docker import read, render, subpaths
from gateway.runtimes.docker.engine import Engine, EngineRefused, NoSuchObject
from gateway.runtimes.docker.read import ImageFacts
from gateway.runtimes.docker.subpaths import Held, SubpathRefused
from gateway.sandboxes.model import Address, Hardening, Mount, Observed, Platform, RegistryAuth, SandboxPlan
from specs import names
from specs.errors import (
    BoxwrightError,
    DeleteFailed,
    EngineTimeout,
    EngineUnavailable,
    EntrypointFailed,
    ImagePullFailed,
    ImageRefused,
    PauseFailed,
    QueryFailed,
    ResumeFailed,
    SandboxNotFound,
    SandboxNotRunning,
    StartFailed,
    VolumeError,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

CAPABILITIES: Final = Capabilities(pause=True)
SUBPATH_API: Final = (1, 45)  # the first engine API with VolumeOptions.Subpath
PORT_ATTEMPTS: Final = 5
PROGRESS_SECONDS: Final = 0.25
LOG_BYTES: Final = 4 << 20
OBSERVERS: Final = 8
STOPS: Final = 32  # each holds a connection for its whole grace
REMEMBERED_IMAGES: Final = 512
VOLUME_RETRIES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
RECONNECT_FIRST, RECONNECT_MOST = 0.1, 5.0


@dataclass(slots=True)
class _Pull:
    """One image being pulled, for everyone who waits for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    listeners: list[Progress] = field(default_factory=list)
    failures: int = 0
    failure: tuple[str, BoxwrightError] | None = None  # whose credentials, and what came of it
    said: str = ""


class DockerRuntime:
    """Sandboxes as containers of one Docker engine."""

    capabilities: Capabilities = CAPABILITIES

    def __init__(self, engine: Engine, *, instance: str, parallel_starts: int, hold_dir: Path) -> None:
        self.engine = engine
        self._instance = instance
        self._starts = asyncio.Semaphore(parallel_starts)
        self._stops = asyncio.Semaphore(STOPS)
        self._hold_dir = hold_dir
        self._images: OrderedDict[str, ImageFacts] = OrderedDict()
        self._pulls: dict[tuple[str, str], _Pull] = {}
        self._held: dict[str, tuple[Held, ...]] = {}

    async def close(self) -> None:
        await self.engine.close()

    async def ping(self) -> None:
        try:
            await self.engine.ping()
        except EngineRefused as error:
            raise EngineUnavailable(f"the Docker engine refuses a ping: {read.short(error.words)}") from error

    # -- images ---------------------------------------------------------------------

    async def ensure_image(
        self, image: str, plan: SandboxPlan, auth: RegistryAuth | None, progress: Progress
    ) -> None:
        own = await self._own_platform()
        wanted = plan.platform or own
        if wanted != own:
            raise ImageRefused(f"platform {wanted} was asked for; this engine runs {own} only")
        facts = await self._local_image(image)
        if facts is None or facts.platform != wanted:
            facts = await self._pull(image, wanted, auth, progress, found=facts)
        self._remember(image, facts)

    async def _own_platform(self) -> Platform:
        version = await self.engine.version()
        return read.platform(version.os, version.arch)

    async def _local_image(self, image: str) -> ImageFacts | None:
        """Return what the engine has; None only when it positively has nothing of that name."""
        try:
            return read.image_facts(await self.engine.inspect_image(image))
        except NoSuchObject:
            return None
        except EngineRefused as error:
            if error.status == 400:
                raise ImageRefused(f"image {image}: {read.short(error.words)}") from error
            raise ImagePullFailed(f"looking for image {image} failed: {read.short(error.words)}") from error

    async def _pull(
        self,
        image: str,
        wanted: Platform,
        auth: RegistryAuth | None,
        progress: Progress,
        *,
        found: ImageFacts | None,
    ) -> ImageFacts:
        """Pull once for all who ask at the same time; each waiter hears the progress."""
        who = _fingerprint(auth)
        key = (image, str(wanted))
        pull = self._pulls.setdefault(key, _Pull())
        failures_before = pull.failures
        pull.listeners.append(progress)
        if pull.said:
            progress(pull.said)
        try:
            async with pull.lock:
                if pull.failures != failures_before and pull.failure is not None and pull.failure[0] == who:
                    first = pull.failure[1]
                    raise type(first)(first.message, code=first.code)
                facts = await self._local_image(image)
                if facts is not None and facts.platform == wanted:
                    return facts
                try:
                    return await self._pull_now(image, wanted, auth, pull, found=found)
                except BoxwrightError as error:
                    pull.failures += 1
                    pull.failure = (who, error)
                    raise
        finally:
            pull.listeners.remove(progress)
            if not pull.listeners:
                self._pulls.pop(key, None)

    async def _pull_now(
        self,
        image: str,
        wanted: Platform,
        auth: RegistryAuth | None,
        pull: _Pull,
        *,
        found: ImageFacts | None,
    ) -> ImageFacts:
        loop = asyncio.get_running_loop()
        told, tell_at = read.PullProgress(image), 0.0
        try:
            async with aclosing(self.engine.pull(image, platform=str(wanted), auth=auth)) as lines:
                async for line in lines:
                    told.feed(line)
                    if loop.time() >= tell_at and told.sentence() != pull.said:
                        tell_at = loop.time() + PROGRESS_SECONDS
                        pull.said = told.sentence()
                        for listener in tuple(pull.listeners):
                            listener(pull.said)
        except EngineRefused as error:
            failure = read.pull_failure(image, error.words)
            if found is not None:
                failure = _wrong_platform(image, wanted, found, "and none was had: " + failure.message)
            raise failure from error
        except EngineTimeout as error:
            raise ImagePullFailed(f"pulling {image} took too long; {told.sentence()}") from error
        facts = await self._local_image(image)
        if facts is None:
            raise ImagePullFailed(f"the engine pulled {image} and does not have it")
        if facts.platform != wanted:
            raise _wrong_platform(image, wanted, facts, "and the registry has no other")
        return facts

    def _remember(self, image: str, facts: ImageFacts) -> None:
        self._images[image] = facts
        self._images.move_to_end(image)
        while len(self._images) > REMEMBERED_IMAGES:
            self._images.popitem(last=False)

    # -- volumes --------------------------------------------------------------------

    async def missing_volumes(self, plan: SandboxPlan) -> tuple[str, ...]:
        missing: list[str] = []
        for mount in plan.mounts:
            if mount.kind == "bind":
                await self._check_bind(mount)
                continue
            found = await self._volume(mount.source)
            if found is not None and mount.subpath:
                _check_subpath_driver(mount, found)
            elif found is None and not mount.create:
                raise _no_volume(mount)
            if found is None and mount.source not in missing:
                missing.append(mount.source)
        return tuple(missing)

    async def _volume(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.engine.inspect_volume(name)
        except NoSuchObject:
            return None
        except EngineRefused as error:
            raise QueryFailed(
                f"looking for volume {name} failed: {read.short(error.words)}",
                code="VOLUME::PVC_INSPECT_FAILED",
            ) from error

    async def _check_bind(self, mount: Mount) -> None:
        """Refuse a host path that is not there and shall not be made; a far engine checks its own paths."""
        if not self.engine.is_local or mount.create:
            return
        if not await _in_thread(lambda: Path(mount.source).exists()):
            raise VolumeError(
                f"volume {mount.name!r}: host path {mount.source} does not exist",
                code="VOLUME::HOST_PATH_NOT_FOUND",
            )

    async def _prepare_mounts(self, plan: SandboxPlan) -> dict[str, str]:
        """Make what is missing; return the host paths that take the place of volume subpaths."""
        native = await self._native_subpaths()
        held: list[Held] = []
        sources: dict[str, str] = {}
        for number, mount in enumerate(plan.mounts):
            if mount.kind == "bind":
                await self._make_bind(mount)
                continue
            found = await self._make_volume(mount, plan)
            if not mount.subpath:
                continue
            _check_subpath_driver(mount, found)
            if native and not self.engine.is_local:
                continue
            place = str(self._hold_dir / f"{plan.sandbox_id}-{number}")
            one = Held(str(found["Mountpoint"]), mount.subpath, mount.create, place)
            await _in_thread(functools.partial(_check_held, one, mount, native=native))
            if not native:
                held.append(one)
                sources[mount.name] = place
        if held:
            self._held[plan.sandbox_id] = tuple(held)
        return sources

    async def _native_subpaths(self) -> bool:
        return (await self.engine.version()).api >= SUBPATH_API

    async def _make_bind(self, mount: Mount) -> None:
        await self._check_bind(mount)
        if not (mount.create and self.engine.is_local):
            return
        try:
            await _in_thread(lambda: Path(mount.source).mkdir(parents=True, exist_ok=True))
        except FileExistsError:
            return  # a file: files may be mounted too
        except OSError as error:
            raise StartFailed(
                f"volume {mount.name!r}: host path {mount.source} cannot be made: {error.strerror}",
                code="VOLUME::HOST_PATH_CREATE_FAILED",
            ) from error

    async def _make_volume(self, mount: Mount, plan: SandboxPlan) -> dict[str, Any]:
        found = await self._volume(mount.source)
        if found is not None:
            return found
        if not mount.create:
            raise _no_volume(mount)
        try:
            return await self.engine.create_volume(
                render.volume(mount.source, plan.sandbox_id, self._instance)
            )
        except EngineRefused as error:
            raise VolumeError(
                f"volume {mount.name!r}: {mount.source!r} cannot be made: {read.short(error.words)}",
                code="VOLUME::INVALID_PVC_NAME",
            ) from error

    # -- making ---------------------------------------------------------------------

    async def create(self, plan: SandboxPlan) -> None:
        facts = self._images.get(plan.image) or await self._local_image(plan.image)
        if facts is None:
            raise StartFailed(f"image {plan.image} is not on the engine any more")
        sources = await self._prepare_mounts(plan) if plan.mounts else {}
        body = render.container(
            replace(plan, hardening=await _with_profile(plan)),
            image=facts.image_id,
            image_env=facts.env,
            sources=sources,
            native_subpaths=not sources,
        )
        name = render.container_name(plan.sandbox_id)
        try:
            await self.engine.create_container(name, body)
        except EngineRefused as error:
            if error.status == 409 and "already in use" in error.words:
                await self._accept(plan.sandbox_id, name)
                return
            raise _create_failure(error.words) from error
        finally:
            # Without its place a start that holds nothing fails; it never mounts an empty folder.
            for place in sources.values():
                await _in_thread(functools.partial(subpaths.release, place))

    async def _accept(self, sandbox_id: str, name: str) -> None:
        """Take an existing container for ours only when its labels say so."""
        found = read.observed(await self._inspect(sandbox_id))
        if found.labels.get(names.LABEL_ID) != sandbox_id or found.instance != self._instance:
            raise StartFailed(f"a container named {name} exists and belongs to another installation")

    async def start(self, sandbox_id: str) -> Address:
        name = render.container_name(sandbox_id)
        async with self._starts:
            held = self._held.pop(sandbox_id, ())
            if held:
                await self._start_held(name, held)
            else:
                await self._start(name)
        inspect = await self._inspect(sandbox_id)
        seen = read.observed(inspect)
        if seen.phase not in {"running", "paused"}:
            raise EntrypointFailed(await self._why_ended(seen))
        if seen.address is None:
            raise StartFailed("the engine gave the sandbox no address: check the network in the settings")
        return seen.address

    async def _start_held(self, name: str, held: tuple[Held, ...]) -> None:
        holding = subpaths.holding(held)
        try:
            await _in_thread(holding.__enter__)
        except SubpathRefused as error:
            raise VolumeError(str(error), code="VOLUME::INVALID_SUB_PATH") from error
        try:
            await self._start(name)
        finally:
            await _in_thread(lambda: holding.__exit__(None, None, None))

    async def _start(self, name: str) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                await self.engine.start_container(name)
                return
            except NoSuchObject as error:
                if "no such container" in error.words.lower():
                    raise SandboxNotFound(name.removeprefix(names.CONTAINER_PREFIX)) from error
                raise read.start_failure(error.words) from error
            except EngineRefused as error:
                if "paused container" in error.words:
                    return
                # Someone outside the engine took the port: the engine chooses another one.
                if not read.is_port_conflict(error.words) or attempt == PORT_ATTEMPTS:
                    raise read.start_failure(error.words) from error
                log.info("host port taken, starting again", container=name, attempt=attempt)

    async def _why_ended(self, seen: Observed) -> str:
        lines = await self.logs(seen.sandbox_id, tail=5, since=None, timestamps=False)
        said = f"; its last words: {read.short(lines)}" if lines.strip() else ""
        why = (
            "was killed for lack of memory"
            if seen.oom_killed
            else f"ended at once with exit code {seen.exit_code}"
        )
        return f"the sandbox's first process {why}{said}"

    # -- looking --------------------------------------------------------------------

    async def _inspect(self, sandbox_id: str) -> dict[str, Any]:
        try:
            return await self.engine.inspect_container(render.container_name(sandbox_id))
        except NoSuchObject as error:
            raise SandboxNotFound(sandbox_id) from error
        except EngineRefused as error:
            raise QueryFailed(f"inspecting sandbox {sandbox_id} failed: {read.short(error.words)}") from error

    async def observe(self, sandbox_id: str) -> Observed | None:
        try:
            return read.observed(await self._inspect(sandbox_id))
        except SandboxNotFound:
            return None

    async def observe_all(self) -> list[Observed]:
        ids = await self._known_ids()
        gate = asyncio.Semaphore(OBSERVERS)

        async def look(sandbox_id: str) -> Observed | None:
            async with gate:
                return await self.observe(sandbox_id)

        return [seen for seen in await asyncio.gather(*map(look, ids)) if seen is not None]

    async def _known_ids(self) -> list[str]:
        label = f"{names.LABEL_INSTANCE}={self._instance}"
        try:
            found = await self.engine.list_containers(label)
        except EngineRefused as error:
            raise QueryFailed(f"listing sandboxes failed: {read.short(error.words)}") from error
        return [
            container["Labels"][names.LABEL_ID]
            for container in found
            if names.LABEL_ID in (container.get("Labels") or {})
        ]

    async def logs(self, sandbox_id: str, *, tail: int, since: datetime | None, timestamps: bool) -> str:
        params = {"tail": str(tail), "timestamps": "1" if timestamps else "0"}
        if since is not None:
            params["since"] = read.since(since)
        frames = read.LogFrames(LOG_BYTES)
        try:
            async with aclosing(self.engine.logs(render.container_name(sandbox_id), params)) as chunks:
                async for chunk in chunks:
                    frames.feed(chunk)
        except NoSuchObject as error:
            raise SandboxNotFound(sandbox_id) from error
        except EngineRefused as error:
            raise QueryFailed(f"reading logs of {sandbox_id} failed: {read.short(error.words)}") from error
        return frames.text()

    async def inspect_text(self, sandbox_id: str) -> str:
        return read.describe(await self._inspect(sandbox_id))

    async def changes(self) -> AsyncIterator[Observed]:
        """
        Yield every change, and the whole world each time the stream was (re)opened.

        The stream is opened before the world is read, so that nothing falls between the two.
        """
        filters = {
            "type": ["container"],
            "label": [f"{names.LABEL_INSTANCE}={self._instance}"],
            "event": list(read.EVENTS),
        }
        known: set[str] = set()
        last: str | None = None
        pause = RECONNECT_FIRST
        while True:
            try:
                async with aclosing(self.engine.events(filters, last)) as lines:
                    async for line in lines:
                        if not line:
                            pause = RECONNECT_FIRST
                            present = await self.observe_all()
                            missed = known - {seen.sandbox_id for seen in present}
                            known = {seen.sandbox_id for seen in present}
                            for seen in (*present, *(read.gone(one, self._instance) for one in missed)):
                                yield seen
                            continue
                        event = read.event(line)
                        if event is None:
                            continue
                        last = f"{event.at_ns // 10**9}.{event.at_ns % 10**9:09d}"
                        changed = await self._changed(event)
                        (known.discard if changed.phase == read.GONE else known.add)(changed.sandbox_id)
                        yield changed
            except (EngineUnavailable, EngineTimeout, EngineRefused, QueryFailed) as error:
                log.warning("the engine's event stream broke", error=str(error), again_in=pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RECONNECT_MOST)

    async def _changed(self, event: read.EngineEvent) -> Observed:
        seen = None if event.action == "destroy" else await self.observe(event.sandbox_id)
        return seen or read.gone(event.sandbox_id, event.instance)

    # -- changing -------------------------------------------------------------------

    async def pause(self, sandbox_id: str) -> None:
        await self._freeze(sandbox_id, self.engine.pause_container, "paused", PauseFailed)

    async def resume(self, sandbox_id: str) -> None:
        await self._freeze(sandbox_id, self.engine.unpause_container, "running", ResumeFailed)

    async def _freeze(
        self, sandbox_id: str, verb: Callable[[str], Any], goal: str, failure: type[BoxwrightError]
    ) -> None:
        try:
            await verb(render.container_name(sandbox_id))
        except NoSuchObject as error:
            raise SandboxNotFound(sandbox_id) from error
        except EngineRefused as error:
            seen = read.observed(await self._inspect(sandbox_id))
            if seen.phase == goal:
                return
            if seen.phase not in {"running", "paused"}:
                raise SandboxNotRunning(f"sandbox {sandbox_id} is {seen.phase}") from error
            raise failure(f"sandbox {sandbox_id}: {read.short(error.words)}") from error

    async def remove(self, sandbox_id: str, *, volumes: tuple[str, ...], grace_seconds: int) -> None:
        name = render.container_name(sandbox_id)
        try:
            await self._stop(name, grace_seconds)
            await self._remove(name)
        except NoSuchObject:
            pass  # what was asked for
        except EngineRefused as error:
            raise DeleteFailed(f"sandbox {sandbox_id} is still there: {read.short(error.words)}") from error
        self._held.pop(sandbox_id, None)
        await _in_thread(lambda: _release_places(self._hold_dir, sandbox_id))
        for volume in volumes:
            await self._remove_volume(volume, sandbox_id)

    async def _stop(self, name: str, grace_seconds: int) -> None:
        if grace_seconds <= 0:
            return
        async with self._stops:
            try:
                await self.engine.stop_container(name, grace_seconds)
            except NoSuchObject:
                raise
            except EngineRefused as error:
                # The forced removal that follows kills what would not stop.
                log.info("stop refused, killing", container=name, error=read.short(error.words))

    async def _remove(self, name: str) -> None:
        try:
            await self.engine.remove_container(name)
        except NoSuchObject:
            raise
        except EngineRefused as error:
            if "already in progress" not in error.words:
                raise
            await self.engine.wait_container(name, "removed", self.engine.settings.call_seconds)

    async def _remove_volume(self, volume: str, sandbox_id: str) -> None:
        found = await self._volume(volume)
        # A name can be taken anew by someone else: only the one this sandbox made goes.
        if found is None or (found.get("Labels") or {}).get(names.LABEL_ID) != sandbox_id:
            return
        for wait in (*VOLUME_RETRIES, None):
            try:
                await self.engine.remove_volume(volume)
                return
            except NoSuchObject:
                return
            except EngineRefused as error:
                if error.status != 409 or wait is None:
                    raise DeleteFailed(
                        f"volume {volume} of sandbox {sandbox_id} is still there: {read.short(error.words)}"
                    ) from error
                await asyncio.sleep(wait)


# -- small decisions -----------------------------------------------------------------


def _fingerprint(auth: RegistryAuth | None) -> str:
    if auth is None:
        return ""
    return hashlib.sha256(f"{auth.username}\0{auth.password.reveal()}".encode()).hexdigest()


def _wrong_platform(image: str, wanted: Platform, found: ImageFacts, tail: str) -> ImageRefused:
    return ImageRefused(f"image {image} is built for {found.platform}, {wanted} is wanted {tail}")


def _no_volume(mount: Mount) -> VolumeError:
    return VolumeError(
        f"volume {mount.name!r}: there is no volume {mount.source!r} and createIfNotExists is false",
        code="VOLUME::PVC_NOT_FOUND",
    )


def _check_subpath_driver(mount: Mount, found: Mapping[str, Any]) -> None:
    # A local volume with options is mounted only while a container uses it, so its folder is empty here.
    if found.get("Driver") != "local" or found.get("Options"):
        raise VolumeError(
            f"volume {mount.name!r}: subPath needs a plain volume of the local driver; "
            f"{mount.source!r} is of driver {found.get('Driver')!r}",
            code="VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER",
        )


def _check_held(one: Held, mount: Mount, *, native: bool) -> None:
    """Refuse a bad subpath at create, and make the place that the create call names."""
    try:
        subpaths.check(one.volume_root, one.subpath, create=one.create)
        if not native:
            subpaths.make_place(one.place)
    except SubpathRefused as error:
        raise VolumeError(f"volume {mount.name!r}: {error}", code="VOLUME::INVALID_SUB_PATH") from error
    except OSError as error:
        raise StartFailed(f"volume {mount.name!r}: {one.place} cannot be made: {error.strerror}") from error


def _release_places(hold_dir: Path, sandbox_id: str) -> None:
    for place in hold_dir.glob(f"{sandbox_id}-*"):
        subpaths.release(str(place))


def _create_failure(words: str) -> BoxwrightError:
    lowered = words.lower()
    text = read.short(words)
    if "bind source path does not exist" in lowered:
        return VolumeError(
            f"a host path to be mounted does not exist: {text}", code="VOLUME::HOST_PATH_NOT_FOUND"
        )
    if "duplicate mount point" in lowered or "invalid mount" in lowered:
        return VolumeError(f"a mount is not possible: {text}", code="VOLUME::INVALID_MOUNT_PATH")
    return StartFailed(f"the engine could not create the sandbox: {text}")


async def _with_profile(plan: SandboxPlan) -> Hardening:
    """Replace the name of a seccomp profile file by its content, which is what the API takes."""
    path = plan.hardening.seccomp_profile
    if path is None:
        return plan.hardening
    try:
        text = await _in_thread(lambda: Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise StartFailed(f"the seccomp profile {path} cannot be read: {error.strerror}") from error
    return replace(plan.hardening, seccomp_profile=text)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)
