"""The verbs of a sandbox: gather facts, decide in the pure rooms, record, act."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import structlog

from gateway.config import Settings
from gateway.operations.ports import Runtime
from gateway.operations.provisioning import Attempt, Provisioner
from gateway.operations.register import Register, with_status
from gateway.operations.services import Caller, ProxyTarget
from gateway.operations.steps import MAKING, Step, stands
from gateway.operations.tasks import Tasks
from gateway.sandboxes import endpoints, expiry, metadata, query, states, volumes
from gateway.sandboxes.endpoints import Hosts, Route
from gateway.sandboxes.model import BundleMount, Observed, SandboxPlan, SandboxRecord, Secret, State, Status
from gateway.sandboxes.plan import Facts, ceilings, kept_extensions, make_plan
from policies.limits import Demand, judge_metadata
from specs.errors import (
    BadRequest,
    BoxwrightError,
    Conflict,
    EngineTimeout,
    EngineUnavailable,
    InvalidMetadataLabel,
    NoAddressYet,
    PauseFailed,
    ResumeFailed,
    SandboxNotFound,
    SandboxNotPaused,
    SandboxNotRunning,
)
from specs.lifecycle import CreateSandboxRequest
from specs.names import PORT_EGRESS

UNDO_SECONDS: Final = 10.0
FIRST_RETRY: Final = 0.5
LONGEST_RETRY: Final = 5.0
SALT_BYTES: Final = 16

_log = structlog.get_logger(__name__)


class Sandboxes:
    """What callers can do with sandboxes.

    Args:
        secret: the installation's secret; execd's tokens are derived from it.
        bundle: the execd bundle that is mounted into every new sandbox.
    """

    def __init__(
        self,
        register: Register,
        provisioner: Provisioner,
        runtime: Runtime,
        tasks: Tasks,
        settings: Settings,
        *,
        secret: bytes,
        bundle: BundleMount,
    ) -> None:
        self._register = register
        self._provisioner = provisioner
        self._runtime = runtime
        self._tasks = tasks
        self._settings = settings
        self._secret = secret
        self._bundle = bundle
        self._instance: str | None = None
        self.undo_seconds = UNDO_SECONDS  # how long a create that failed waits for its traces to be gone

    # -- create ------------------------------------------------------------------------

    async def create(
        self, request: CreateSandboxRequest, caller: Caller, *, idempotency_key: str | None = None
    ) -> SandboxRecord:
        """
        Record a sandbox, begin making it, and wait a bounded time for it to run.

        Returns:
            The record, `Running` or still `Pending`; with a key used before, the sandbox made then.

        Raises:
            BadRequest: the request asks for what cannot be.
            Conflict: the key was used for another request, or for a sandbox that was deleted.
            TooMany: too many creates are under way.
            BoxwrightError: making it failed while the caller was waiting; then nothing of it is left.
        """
        plan, record = await self._planned(request, caller)
        begun = await self._tasks.finish(self._begun(plan, record, idempotency_key), "begin a create")
        if not isinstance(begun, Attempt):
            return _repeated(record, begun)
        _audit("create", record.sandbox_id, caller, image=record.image)
        return await self._awaited(record, begun)

    async def _begun(
        self, plan: SandboxPlan, record: SandboxRecord, idempotency_key: str | None
    ) -> Attempt | SandboxRecord:
        """Record and begin in one piece: a caller that hangs up in between changes nothing."""
        self._provisioner.reserve(record.sandbox_id)
        try:
            earlier = await self._register.add(record, idempotency_key)
        except BaseException:  # the place is given back whatever happened
            self._provisioner.release(record.sandbox_id)
            raise
        if earlier is not None:
            self._provisioner.release(record.sandbox_id)
            return earlier
        return self._provisioner.start(plan)

    async def _planned(
        self, request: CreateSandboxRequest, caller: Caller
    ) -> tuple[SandboxPlan, SandboxRecord]:
        now = self._register.now()
        sandbox_id, salt = str(uuid.uuid4()), secrets.token_urlsafe(SALT_BYTES)
        token = endpoints.derive_token(self._secret, sandbox_id, salt)
        facts = Facts(
            sandbox_id=sandbox_id,
            instance=await self._installation(),
            accepted_at=now,
            token_hash=endpoints.token_hash(token),
            bundle=self._bundle,
            resolved_paths=await _resolved(request),
        )
        plan = make_plan(request, self._settings, facts)
        record = SandboxRecord(
            sandbox_id=sandbox_id,
            status=Status(State.PENDING, states.ACCEPTED, "accepted; looking for the image", now),
            created_at=now,
            expires_at=expiry.expires_at(now, request.timeout),
            image=plan.image,
            entrypoint=plan.entrypoint,
            metadata=dict(request.metadata or {}),
            extensions=kept_extensions(request),
            platform=plan.platform,
            token_salt=salt,
            address=None,
            managed_volumes=(),
            step=Step.ACCEPTED,
            owner=caller.key_id,
            spec=_spec(request, plan, self._secret),
        )
        return plan, record

    async def _installation(self) -> str:
        if self._instance is None:
            self._instance = await self._register.store.instance()
        return self._instance

    async def _awaited(self, record: SandboxRecord, attempt: Attempt) -> SandboxRecord:
        try:
            await asyncio.wait({attempt.outcome}, timeout=self._settings.gateway.create_wait_seconds)
            if attempt.failing:
                await asyncio.wait({attempt.outcome}, timeout=self.undo_seconds)
        finally:
            attempt.awaited = False
        if attempt.outcome.done() and not attempt.outcome.cancelled():
            return attempt.outcome.result()
        if attempt.error is not None:
            raise attempt.error  # what is left of it is being removed
        return await self._register.store.get(record.sandbox_id) or record

    # -- read --------------------------------------------------------------------------

    async def get(self, sandbox_id: str) -> SandboxRecord:
        """
        Raises:
            SandboxNotFound: it never existed, or was deleted.
        """
        return await self._register.live(sandbox_id)

    async def list(self, wanted: query.Filter, page: query.Page) -> tuple[list[SandboxRecord], int]:
        """Return one page, newest first, and how many match in all."""
        if wanted.states == ():
            return [], 0
        return await self._register.store.page(
            states=wanted.states, metadata=wanted.metadata, offset=page.offset, limit=page.size
        )

    # -- change ------------------------------------------------------------------------

    async def patch_metadata(
        self, sandbox_id: str, patch: Mapping[str, str | None], caller: Caller
    ) -> SandboxRecord:
        """
        Apply a merge patch to the metadata.

        Raises:
            SandboxNotFound
            BadRequest: a key or value breaks a rule, or there would be too many.
        """
        most = ceilings(self._settings)

        def decide(record: SandboxRecord) -> SandboxRecord | None:
            merged = metadata.patched(record.metadata, patch)
            decision = judge_metadata(Demand(metadata=len(merged)), most)
            if not decision.allowed and len(merged) > len(record.metadata):
                raise InvalidMetadataLabel(decision.reason)
            return None if merged == record.metadata else replace(record, metadata=merged)

        record = await self._register.change(
            sandbox_id, decide, why=("METADATA_CHANGED", f"metadata was changed by {caller.name}")
        )
        _audit("patch_metadata", sandbox_id, caller, keys=sorted(patch))
        return record

    async def renew(self, sandbox_id: str, until: datetime, caller: Caller) -> datetime:
        """
        Move the end of a sandbox. It wins or loses against the expiry sweep, never both.

        Raises:
            SandboxNotFound, NoExpirationToRenew, InvalidExpiration
        """
        record = await self._register.change(
            sandbox_id,
            lambda record: expiry.renewed(record, until, self._register.now()),
            why=("RENEWED", f"expiry was set to {until.isoformat()} by {caller.name}"),
        )
        _audit("renew", sandbox_id, caller, until=until.isoformat())
        return record.expires_at or until

    async def delete(self, sandbox_id: str, caller: Caller) -> None:
        """
        End a sandbox. From here on it is not found; what the engine has of it is removed by the server.

        Raises:
            SandboxNotFound
        """
        ending = self._end(sandbox_id, states.DELETED, f"deleted by {caller.name}", lambda _: True)
        await self._tasks.finish(ending, f"delete {sandbox_id}")
        _audit("delete", sandbox_id, caller)

    async def expire(self, sandbox_id: str) -> bool:
        """
        End a sandbox if it is due, after reading it once more; False when it was renewed or deleted.
        """
        try:
            ended = await self._end(
                sandbox_id,
                states.EXPIRED,
                "its time was over",
                lambda record: expiry.is_due(record, self._register.now()),
            )
        except SandboxNotFound:
            return False
        if ended:
            _log.info("sandbox_expired", sandbox_id=sandbox_id)
        return ended

    async def _end(
        self, sandbox_id: str, reason: str, words: str, condition: Callable[[SandboxRecord], bool]
    ) -> bool:
        """Record the end, then have it done: by the process that is still making the sandbox, else by this."""
        me = self._register.worker
        found = await self._register.live(sandbox_id)
        living = await self._register.store.enlisted() if found.worker not in {"", me} else frozenset[str]()

        def decide(record: SandboxRecord) -> SandboxRecord | None:
            if not condition(record):
                return None
            now = self._register.now()
            status = Status(State.STOPPING, reason, words, now)
            theirs = record.step in MAKING and record.worker in living
            return replace(
                with_status(record, status, step=Step.REMOVING),
                deleted_at=now,
                worker=record.worker if theirs else me,
            )

        record = await self._register.change(sandbox_id, decide)
        if record.step != Step.REMOVING:
            return False
        if record.worker == me:
            self._provisioner.remove(sandbox_id)
        return True

    # -- pause and resume ----------------------------------------------------------------

    async def pause(self, sandbox_id: str, caller: Caller) -> None:
        """
        Freeze a running sandbox. Goes on to its end even if the caller goes away.

        Raises:
            SandboxNotFound
            SandboxNotRunning: with the state it is in.
            PauseFailed: the engine refused; the state is as it was.
        """
        await self._tasks.finish(self._pause(sandbox_id), f"pause {sandbox_id}")
        _audit("pause", sandbox_id, caller)

    async def _pause(self, sandbox_id: str) -> None:
        with self._provisioner.freezing(sandbox_id):
            await self._begin(sandbox_id, State.RUNNING, State.PAUSING, Step.PAUSING, _not_running)
            try:
                await self._runtime.pause(sandbox_id)
            except BoxwrightError as error:
                raise await self._failed(
                    sandbox_id, Step.PAUSING, State.RUNNING, _not_running, PauseFailed, error
                ) from error
            await self._settle(sandbox_id, Step.PAUSING, State.PAUSED, states.PAUSED)

    async def resume(self, sandbox_id: str, caller: Caller) -> None:
        """
        Thaw a paused sandbox. Goes on to its end even if the caller goes away.

        Raises:
            SandboxNotFound
            SandboxNotPaused: with the state it is in.
            ResumeFailed: the engine refused; the state is as it was.
        """
        await self._tasks.finish(self._resume(sandbox_id), f"resume {sandbox_id}")
        _audit("resume", sandbox_id, caller)

    async def _resume(self, sandbox_id: str) -> None:
        with self._provisioner.freezing(sandbox_id):
            await self._begin(sandbox_id, State.PAUSED, State.RESUMING, Step.RESUMING, _not_paused)
            try:
                await self._runtime.resume(sandbox_id)
            except BoxwrightError as error:
                raise await self._failed(
                    sandbox_id, Step.RESUMING, State.PAUSED, _not_paused, ResumeFailed, error
                ) from error
            await self._settle(sandbox_id, Step.RESUMING, State.RUNNING, states.RUNNING)

    async def _begin(
        self,
        sandbox_id: str,
        source: State,
        target: State,
        step: Step,
        refusal: Callable[[SandboxRecord], BoxwrightError],
    ) -> None:
        """Record what is about to be done, if the state allows it."""

        def decide(record: SandboxRecord) -> SandboxRecord:
            if record.status.state is not source or record.step:
                raise refusal(record)
            words = f"the sandbox is {target.value.lower()}"
            status = Status(target, f"CONTAINER_{target.value.upper()}", words, self._register.now())
            return with_status(record, status, step=step)

        await self._register.change(sandbox_id, decide)

    async def _settle(self, sandbox_id: str, step: Step, state: State, reason: str) -> None:
        """Close a pause or resume that the engine did, then look once for what happened meanwhile."""
        status = Status(state, reason, f"the sandbox is {state.value.lower()}", self._register.now())
        await self._close_step(sandbox_id, step, status)
        try:
            observed = await self._runtime.observe(sandbox_id)
        except BoxwrightError as error:  # the engine's events tell it as well
            _log.warning("observe_failed", sandbox_id=sandbox_id, code=error.code)
            return
        if observed is not None:
            await self.note_observed(observed)

    async def _failed(
        self,
        sandbox_id: str,
        step: Step,
        expected: State,
        conflict: Callable[[SandboxRecord], BoxwrightError],
        failure: type[PauseFailed | ResumeFailed],
        error: BoxwrightError,
    ) -> BoxwrightError:
        """Close a pause or resume that the engine did not do: what it says now is the state; return the answer.

        An engine that does not even say that may have done it all the same: that is asked until it answers.
        """
        refusal = failure(f"the engine refused: {error.message}")
        try:
            observed = await self._runtime.observe(sandbox_id)
        except BoxwrightError as silence:
            words = f"whether the engine did it is not known yet: {silence.message}"
            status = Status(State.UNKNOWN, states.NOT_KNOWN, words, self._register.now())
            await self._close_step(sandbox_id, step, status, still=step)
            self._tasks.spawn(self._settle_later(sandbox_id, step), f"settle {sandbox_id}")
            return error if isinstance(error, EngineUnavailable | EngineTimeout) else refusal
        await self._close_step(sandbox_id, step, self._meaning(observed))
        record = await self._register.live(sandbox_id)
        return refusal if record.status.state is expected else conflict(record)

    async def _settle_later(self, sandbox_id: str, step: Step) -> None:
        """Ask the engine until it says what became of a pause or resume."""
        delay = FIRST_RETRY
        with self._provisioner.freezing(sandbox_id):
            while True:
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_RETRY)
                try:
                    status = self._meaning(await self._runtime.observe(sandbox_id))
                    await self._close_step(sandbox_id, step, status)
                except BoxwrightError as error:
                    _log.warning("not_settled", sandbox_id=sandbox_id, code=error.code)
                else:
                    return

    async def _close_step(
        self, sandbox_id: str, step: Step, status: Status, *, still: Step | None = None
    ) -> None:
        """Put a sandbox at `step` into a state; `still` is the step that it is left at."""
        try:
            await self._register.change(
                sandbox_id,
                lambda record: with_status(record, status, step=still or "") if record.step == step else None,
            )
        except SandboxNotFound:
            return  # deleted meanwhile: the removal has it

    def _meaning(self, observed: Observed | None) -> Status:
        now = self._register.now()
        return states.missing(now) if observed is None else states.meaning(observed, now)

    async def note_observed(self, observed: Observed) -> None:
        """
        Take what the engine told of its own accord into the record.
        """
        sandbox_id = observed.sandbox_id
        attempt = self._provisioner.active(sandbox_id)
        if attempt is not None:
            if observed.phase in {"exited", "dead"}:
                attempt.note_exit(observed)
            elif observed.phase == states.GONE_PHASE:
                attempt.note_gone()
            return
        if observed.phase == states.GONE_PHASE:
            await self.note_missing(sandbox_id)
            return
        record = await self._register.store.get(sandbox_id)
        if not stands(record):
            self._provisioner.remove_orphan(sandbox_id, record)
            return
        await self._provisioner.note_end(observed)

    async def note_missing(self, sandbox_id: str) -> None:
        """
        The engine seems to have lost a workload: believe it only after asking once more.
        """
        try:
            record = await self._register.live(sandbox_id)
            if record.step or record.status.state in states.ENDED:
                return
            if await self._runtime.observe(sandbox_id) is not None:
                return
            now = self._register.now()
            await self._register.change(
                sandbox_id, lambda one: None if one.step else with_status(one, states.missing(now))
            )
        except SandboxNotFound:
            return

    # -- reach ---------------------------------------------------------------------------

    async def endpoint(
        self, sandbox_id: str, port: int, hosts: Hosts, *, use_server_proxy: bool, expires: int | None
    ) -> Route:
        """
        Say where a port of a sandbox is; wait a bounded time while the sandbox is being made.

        Raises:
            InvalidPort, SandboxNotFound
            BadRequest: `expires` was given, or the sandbox has ended.
            NoAddressYet: it still has no address; ask again.
        """
        endpoints.check_port(port)
        if expires is not None:
            if use_server_proxy:
                raise BadRequest("expires cannot be combined with use_server_proxy; leave one of them out")
            raise BadRequest(
                "expires: the Docker backend has no signed endpoints; leave it out",
                code="SANDBOX::API_NOT_SUPPORTED",
            )
        if use_server_proxy:
            await self._reachable(sandbox_id, port)
            return endpoints.through_server(sandbox_id, port, hosts)
        record = await self._reachable(sandbox_id, port)
        return endpoints.direct(record.address, port, hosts, self._token(record))

    async def _reachable(self, sandbox_id: str, port: int) -> SandboxRecord:
        async def read() -> SandboxRecord | None:
            record = await self._register.live(sandbox_id)
            if record.status.state in states.ENDED and port != PORT_EGRESS:
                raise BadRequest(
                    f"{states.describe(record)}, so it has no endpoints; create a new one",
                    code="DOCKER::SANDBOX_NOT_RUNNING",
                    details=_status_details(record),
                )
            if record.status.state in {State.PAUSING, State.PAUSED} and port != PORT_EGRESS:
                # Nothing answers at the address of a frozen sandbox: a client would wait until it gives up.
                raise BadRequest(
                    f"{states.describe(record)}; resume it first",
                    code="DOCKER::SANDBOX_NOT_RUNNING",
                    details=_status_details(record),
                )
            return record if record.address is not None else None

        wait = self._settings.gateway.endpoint_wait_seconds
        record = await self._register.changes.until(sandbox_id, read, wait)
        if record is None:
            now = await self._register.live(sandbox_id)
            raise NoAddressYet(f"{states.describe(now)}, so it has no address yet; ask again")
        return record

    async def target(self, sandbox_id: str) -> ProxyTarget:
        """
        Say where the proxy sends what is meant for a sandbox; wait a bounded time while it is being made.

        Raises:
            SandboxNotFound
            SandboxNotRunning: it is paused or has ended, with the reason; said at once.
            NoAddressYet: it is still being made.
        """

        async def read() -> SandboxRecord | None:
            record = await self._register.live(sandbox_id)
            if record.status.state in {State.RUNNING, State.UNKNOWN}:
                return record
            if record.status.state in {State.PENDING, State.RESUMING}:
                return None
            raise _not_running(record)

        wait = self._settings.gateway.endpoint_wait_seconds
        record = await self._register.changes.until(sandbox_id, read, wait)
        if record is None or record.address is None:
            now = await self._register.live(sandbox_id)
            raise NoAddressYet(f"{states.describe(now)}, so it has no address yet; ask again")
        return ProxyTarget(record.address, self._token(record), sandbox_id)

    def _token(self, record: SandboxRecord) -> Secret:
        return endpoints.derive_token(self._secret, record.sandbox_id, record.token_salt)


def _not_running(record: SandboxRecord) -> BoxwrightError:
    return SandboxNotRunning(states.describe(record), details=_status_details(record))


def _not_paused(record: SandboxRecord) -> BoxwrightError:
    return SandboxNotPaused(states.describe(record), details=_status_details(record))


def _status_details(record: SandboxRecord) -> dict[str, Any]:
    details: dict[str, Any] = {"state": record.status.state.value, "reason": record.status.reason}
    if record.exit_code is not None:
        details["exitCode"] = record.exit_code
    return details


def _repeated(asked: SandboxRecord, earlier: SandboxRecord) -> SandboxRecord:
    """Answer a create whose key was used before: the same sandbox, if it is the same request."""
    was, now = earlier.spec.get("fingerprints", {}), asked.spec["fingerprints"]
    differing = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
    if differing:
        raise Conflict(
            f"the Idempotency-Key was used for sandbox {earlier.sandbox_id} with another "
            f"{', '.join(differing)}; use "
            "a new key for a new request",
            details={"sandboxId": earlier.sandbox_id, "fields": differing},
        )
    if earlier.deleted_at is not None:
        raise Conflict(
            f"the Idempotency-Key made sandbox {earlier.sandbox_id}, which was deleted since; use a new key",
            details={"sandboxId": earlier.sandbox_id},
        )
    return earlier


def _spec(request: CreateSandboxRequest, plan: SandboxPlan, secret: bytes) -> dict[str, Any]:
    """What is kept of a request: nothing secret, but enough to tell whether another one is the same."""
    body = request.model_dump(by_alias=True, exclude_none=True, mode="json")
    fingerprints = {
        name: hmac.new(
            secret, json.dumps([name, value], sort_keys=True).encode(), hashlib.sha256
        ).hexdigest()[:24]
        for name, value in body.items()
    }
    return {
        "fingerprints": fingerprints,
        "timeout": request.timeout,
        "resourceLimits": request.resource_limits or {},
        "resourceRequests": request.resource_requests or {},
        "envNames": sorted(request.env or {}),
        "volumes": [
            {"name": mount.name, "kind": mount.kind, "source": mount.source, "mountPath": mount.target}
            for mount in plan.mounts
        ],
        "deleteVolumes": [mount.source for mount in plan.mounts if mount.delete_with_sandbox],
        "stopGraceSeconds": plan.stop_grace_seconds,
    }


async def _resolved(request: CreateSandboxRequest) -> dict[str, str]:
    """Follow the links of every host path, off the event loop."""
    paths: Sequence[str] = volumes.host_paths(request.volumes or ())
    if not paths:
        return {}
    return await asyncio.to_thread(lambda: {path: os.path.realpath(path) for path in paths})


def _audit(verb: str, sandbox_id: str, caller: Caller, **facts: Any) -> None:
    _log.info("audit", verb=verb, sandbox_id=sandbox_id, key_id=caller.key_id, key_name=caller.name, **facts)
