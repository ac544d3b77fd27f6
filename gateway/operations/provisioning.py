"""The two long sequences of a sandbox's life, owned by the server: making it and removing it.

Each step is recorded before it is taken, so that a crash at any point leaves enough to finish or
undo it (`recover`). Deletion wins: a create that finds its record deleted stops and leaves the
rest to the removal, which waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

import structlog

from gateway.config import GatewaySettings
from gateway.operations.ports import ExecdPeer, Runtime
from gateway.operations.register import Change, Register, with_status
from gateway.operations.tasks import Tasks
from gateway.sandboxes import states
from gateway.sandboxes.model import Address, Observed, SandboxPlan, SandboxRecord, State, Status
from specs.errors import (
    BoxwrightError,
    EngineTimeout,
    EntrypointFailed,
    ImagePullFailed,
    Internal,
    SandboxNotFound,
    StartFailed,
    TooMany,
)

T = TypeVar("T")

# Steps: what was about to be done when the record was written.
ACCEPTED: Final = "accepted"
CREATING: Final = "creating"
STARTED: Final = "started"
UNDOING: Final = "undoing"
REMOVING: Final = "removing"
PAUSING: Final = "pausing"
RESUMING: Final = "resuming"

CANNOT_START: Final = frozenset({125, 126, 127})  # the exit codes of "not found" and "not executable"
PROGRESS_SECONDS: Final = 0.5
FIRST_RETRY: Final = 0.5
LONGEST_RETRY: Final = 60.0
CONCURRENT_REMOVALS: Final = 32
ADDRESS_WORDS: Final = "started; waiting for execd to answer"

_log = structlog.get_logger(__name__)


class Superseded(Exception):
    """The sandbox was deleted while it was being made."""


class Ended(Exception):
    """The entrypoint ended before execd answered."""

    def __init__(self, status: Status, observed: Observed) -> None:
        super().__init__(status.message)
        self.status, self.observed = status, observed


@dataclass(slots=True)
class Attempt:
    """One create under way.

    Attributes:
        awaited: the create call still waits, and would rather have the error than a record of it.
        failing: it failed and is being undone.
        outcome: the record once the sequence is over, or why it failed.
    """

    awaited: bool = True
    failing: bool = False
    stopped: bool = False
    exited: Observed | None = None
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: asyncio.Future[SandboxRecord] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    task: asyncio.Task[None] | None = None
    progress: str = ""
    progressed: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self.stopped = True
        self.interrupted.set()

    def note_exit(self, observed: Observed) -> None:
        self.exited = observed
        self.interrupted.set()

    def note_gone(self) -> None:
        """The engine lost the workload; what is true is asked again."""
        self.interrupted.set()

    def note_progress(self, text: str) -> None:
        self.progress = text
        self.progressed.set()

    def settle(self, record: SandboxRecord) -> None:
        if not self.outcome.done():
            self.outcome.set_result(record)

    def fail(self, error: BoxwrightError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # it may have no listener, and that is fine


class Provisioner:
    """Makes and removes sandboxes in tasks of its own, a bounded number at a time."""

    def __init__(
        self, register: Register, runtime: Runtime, peer: ExecdPeer, tasks: Tasks, settings: GatewaySettings
    ) -> None:
        self._register = register
        self._runtime = runtime
        self._peer = peer
        self._tasks = tasks
        self._settings = settings
        self._starts = asyncio.Semaphore(settings.starts)
        self._removals = asyncio.Semaphore(CONCURRENT_REMOVALS)
        self._attempts: dict[str, Attempt] = {}
        self._removing: set[str] = set()
        self._reserved = 0

    # -- making ------------------------------------------------------------------------

    def reserve(self) -> None:
        """
        Take a place among the creates under way, before anything is recorded; `start` or `release` follows.

        Raises:
            TooMany: all places are taken.
        """
        if self._reserved >= self._settings.start_queue:
            raise TooMany(
                f"{self._reserved} sandboxes are being created, which is as many as this gateway takes at "
                "once; "
                "try again in a moment"
            )
        self._reserved += 1

    def release(self) -> None:
        """Give a place back."""
        self._reserved -= 1

    def start(self, plan: SandboxPlan) -> Attempt:
        """
        Begin making a sandbox whose record exists, on the place that was reserved.
        """
        attempt = Attempt()
        self._attempts[plan.sandbox_id] = attempt
        attempt.task = self._tasks.spawn(self._provision(plan, attempt), f"create {plan.sandbox_id}")
        return attempt

    def active(self, sandbox_id: str) -> Attempt | None:
        """Return the create of a sandbox while it is under way."""
        return self._attempts.get(sandbox_id)

    async def _provision(self, plan: SandboxPlan, attempt: Attempt) -> None:
        sandbox_id = plan.sandbox_id
        try:
            attempt.settle(await self._make(plan, attempt))
        except Superseded:
            attempt.fail(SandboxNotFound(sandbox_id))
        except Ended as ended:
            await self._conclude(plan, attempt, ended)
        except BoxwrightError as error:
            await self._undo(sandbox_id, attempt, error)
        except Exception:  # the border of a server-owned task: whatever it was, nothing is left half made
            _log.exception("create_broke", sandbox_id=sandbox_id)
            await self._undo(sandbox_id, attempt, Internal("the gateway failed; its log has the story"))
        finally:
            self._leave(sandbox_id, attempt)
        await self._note_late_end(sandbox_id, attempt)

    def _leave(self, sandbox_id: str, attempt: Attempt) -> None:
        self._attempts.pop(sandbox_id, None)
        self.release()
        if not attempt.outcome.done():
            attempt.outcome.cancel()

    async def _note_late_end(self, sandbox_id: str, attempt: Attempt) -> None:
        """Take an end into the record that was told while the sequence was closing."""
        observed = attempt.exited
        if observed is None:
            return
        try:
            await self._register.change(
                sandbox_id, lambda record: states.observe(record, observed, self._register.now())
            )
        except SandboxNotFound:
            return

    async def _make(self, plan: SandboxPlan, attempt: Attempt) -> SandboxRecord:
        sandbox_id = plan.sandbox_id
        await self._have_image(plan, attempt)
        async with self._starts:
            made = await self._runtime.missing_volumes(plan) if _has_volumes(plan) else ()
            await self._step(
                sandbox_id, CREATING, _pending(states.STARTING, "creating the sandbox"), made=made
            )
            await self._within_deadline(self._runtime.create(plan), "create")
            _go_on(attempt)
            address = await self._start(sandbox_id)
        await self._step(sandbox_id, STARTED, _pending(states.STARTING, ADDRESS_WORDS), address=address)
        await self._have_execd(sandbox_id, address, attempt)
        return await self._settle_running(sandbox_id, address, _own_volumes(plan, made))

    async def _have_image(self, plan: SandboxPlan, attempt: Attempt) -> None:
        telling = self._tasks.spawn(
            self._tell_progress(plan.sandbox_id, attempt), f"progress {plan.sandbox_id}"
        )
        try:
            pull = self._runtime.ensure_image(plan.image, plan, plan.auth, attempt.note_progress)
            deadline = self._settings.pull_deadline_seconds
            try:
                async with asyncio.timeout(deadline):
                    await _unless_stopped(pull, attempt)
            except TimeoutError as error:
                raise ImagePullFailed(
                    f"image {plan.image} was not there after {deadline:g} seconds; pull it on the host "
                    "beforehand, or "
                    "raise gateway.pull_deadline_seconds"
                ) from error
        finally:
            telling.cancel()
            await asyncio.wait({telling})

    async def _tell_progress(self, sandbox_id: str, attempt: Attempt) -> None:
        """Put the latest word about the pull into the status, not more often than a reader could follow."""
        while True:
            await attempt.progressed.wait()
            attempt.progressed.clear()
            status = _pending(states.PULLING, attempt.progress)
            try:
                await self._step(sandbox_id, ACCEPTED, status)
            except Superseded:
                return
            await asyncio.sleep(PROGRESS_SECONDS)

    async def _have_execd(self, sandbox_id: str, address: Address, attempt: Attempt) -> None:
        deadline = self._settings.ready_deadline_seconds
        done, ready = await _until_interrupted(self._peer.wait_ready(address, deadline=deadline), attempt)
        if done and ready:
            return
        if attempt.stopped:
            raise Superseded
        observed = attempt.exited or await self._runtime.observe(sandbox_id)
        if observed is None:
            raise StartFailed("the workload was removed outside of this gateway while it was starting")
        status = states.meaning(observed, self._register.now())
        if status.state in states.ENDED:
            raise Ended(status, observed)
        raise StartFailed(
            f"execd did not answer within {deadline:g} seconds after the start; see the sandbox's logs, or "
            "raise "
            "gateway.ready_deadline_seconds"
        )

    async def _settle_running(
        self, sandbox_id: str, address: Address, volumes: tuple[str, ...]
    ) -> SandboxRecord:
        status = Status(State.RUNNING, states.RUNNING, "the sandbox is running", self._register.now())
        return await self._change(
            sandbox_id,
            lambda record: replace(
                with_status(record, status, step=""), address=address, managed_volumes=volumes
            ),
        )

    async def _conclude(self, plan: SandboxPlan, attempt: Attempt, ended: Ended) -> None:
        """The entrypoint ran and ended: that is a sandbox that lived, unless it could not even start."""
        code = ended.observed.exit_code
        if code in CANNOT_START and not ended.observed.oom_killed:
            words = await self._last_words(plan.sandbox_id)
            error = EntrypointFailed(f"the entrypoint could not be started (exit code {code}){words}")
            await self._undo(plan.sandbox_id, attempt, error)
            return
        try:
            record = await self._change(
                plan.sandbox_id,
                lambda record: replace(
                    with_status(record, ended.status, step=""),
                    exit_code=code,
                    managed_volumes=_own_volumes(plan, record.managed_volumes),
                ),
            )
        except Superseded:
            attempt.fail(SandboxNotFound(plan.sandbox_id))
            return
        attempt.settle(record)

    async def _last_words(self, sandbox_id: str) -> str:
        try:
            text = await self._runtime.logs(sandbox_id, tail=5, since=None, timestamps=False)
        except BoxwrightError:
            return ""
        return f": {text.strip()[-400:]}" if text.strip() else ""

    async def _undo(self, sandbox_id: str, attempt: Attempt, error: BoxwrightError) -> None:
        """Record the failure, remove what was made, and tell the create call if it still waits."""
        told = attempt.failing = attempt.awaited
        _log.warning("create_failed", sandbox_id=sandbox_id, code=error.code, message=error.message)
        status = Status(State.FAILED, error.code.rpartition("::")[2], error.message, self._register.now())

        def failed(record: SandboxRecord) -> SandboxRecord:
            deleted = self._register.now() if told else None
            return replace(with_status(record, status, step=UNDOING), deleted_at=deleted)

        try:
            await self._change(sandbox_id, failed)
        except Superseded:
            attempt.fail(SandboxNotFound(sandbox_id))
            return
        await self._remove_once_or_later(sandbox_id)
        attempt.fail(error)

    async def _remove_once_or_later(self, sandbox_id: str) -> None:
        record = await self._register.store.get(sandbox_id)
        if record is None or record.step != UNDOING:
            return
        try:
            await self._runtime.remove(sandbox_id, volumes=record.managed_volumes, grace_seconds=0)
        except BoxwrightError as error:
            _log.warning("undo_failed", sandbox_id=sandbox_id, code=error.code, message=error.message)
            self.remove(sandbox_id)
            return
        await self._forget_step(record)

    # -- removing ----------------------------------------------------------------------

    def remove(self, sandbox_id: str) -> None:
        """
        Begin removing a sandbox whose record says so, and go on until nothing of it is left.
        """
        if sandbox_id not in self._removing:
            self._removing.add(sandbox_id)
            self._tasks.spawn(self._removal(sandbox_id), f"remove {sandbox_id}", promised=True)

    async def _removal(self, sandbox_id: str) -> None:
        try:
            attempt = self._attempts.get(sandbox_id)
            if (
                attempt is not None
                and attempt.task is not None
                and attempt.task is not asyncio.current_task()
            ):
                attempt.stop()
                await asyncio.wait({attempt.task})
            delay = FIRST_RETRY
            while not await self._try_removal(sandbox_id):
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_RETRY)
        finally:
            self._removing.discard(sandbox_id)

    async def _try_removal(self, sandbox_id: str) -> bool:
        record = await self._register.store.get(sandbox_id)
        if record is None or record.step not in {REMOVING, UNDOING}:
            return True
        grace = int(record.spec.get("stopGraceSeconds", 0)) if record.step == REMOVING else 0
        try:
            async with self._removals:
                await self._runtime.remove(sandbox_id, volumes=record.managed_volumes, grace_seconds=grace)
        except BoxwrightError as error:
            _log.warning("remove_failed", sandbox_id=sandbox_id, code=error.code, message=error.message)
            return False
        return await self._forget_step(record)

    async def _forget_step(self, record: SandboxRecord) -> bool:
        """Close a sequence that removed everything."""
        status = record.status
        if record.step == REMOVING:
            words = f"{status.message}; nothing of it is left"
            status = Status(State.TERMINATED, status.reason, words, self._register.now())
        done = replace(record, status=status, step="", managed_volumes=(), address=None)
        return await self._register.save(record, done) is not None

    # -- after a restart ----------------------------------------------------------------

    async def recover(self, record: SandboxRecord, observed: Observed | None) -> None:
        """
        Finish or undo the sequence that a record was in when the gateway stopped.

        Args:
            record: as it was found.
            observed: what the engine has of it now; None when it positively has nothing.
        """
        if self.active(record.sandbox_id) is not None:
            return
        if record.deleted_at is not None or record.step in {REMOVING, UNDOING}:
            self.remove(record.sandbox_id)
        elif record.step in {PAUSING, RESUMING}:
            await self._take_engines_word(record, observed)
        else:
            self.reserve()
            attempt = Attempt(awaited=False)
            self._attempts[record.sandbox_id] = attempt
            work = self._finish(record, observed, attempt)
            attempt.task = self._tasks.spawn(work, f"finish {record.sandbox_id}")

    async def _take_engines_word(self, record: SandboxRecord, observed: Observed | None) -> None:
        now = self._register.now()
        status = states.missing(now) if observed is None else states.meaning(observed, now)
        await self._register.save(record, with_status(record, status, step=""))

    async def _finish(self, record: SandboxRecord, observed: Observed | None, attempt: Attempt) -> None:
        sandbox_id = record.sandbox_id
        try:
            attempt.settle(await self._continue(record, observed, attempt))
        except Superseded:
            attempt.fail(SandboxNotFound(sandbox_id))
        except Ended as ended:
            await self._register.save(
                record,
                replace(
                    with_status(record, ended.status, step=""),
                    exit_code=ended.observed.exit_code,
                    managed_volumes=_recorded_volumes(record),
                ),
            )
        except BoxwrightError as error:
            await self._undo(sandbox_id, attempt, error)
        finally:
            self._leave(sandbox_id, attempt)
        await self._note_late_end(sandbox_id, attempt)

    async def _continue(
        self, record: SandboxRecord, observed: Observed | None, attempt: Attempt
    ) -> SandboxRecord:
        if observed is None:
            raise StartFailed("the gateway was restarted before the sandbox was made; create it again")
        now = self._register.now()
        status = states.meaning(observed, now)
        if status.state in states.ENDED:
            raise Ended(status, observed)
        async with self._starts:
            address = await self._start(record.sandbox_id)
        await self._have_execd(record.sandbox_id, address, attempt)
        return await self._settle_running(record.sandbox_id, address, _recorded_volumes(record))

    async def _start(self, sandbox_id: str) -> Address:
        """Start the workload; one that ran and is over already is a sandbox that was short."""
        try:
            return await self._within_deadline(self._runtime.start(sandbox_id), "start")
        except EntrypointFailed:
            observed = await self._runtime.observe(sandbox_id)
            if (
                observed is None
                or observed.phase not in {"exited", "dead"}
                or observed.exit_code in CANNOT_START
            ):
                raise
            raise Ended(states.meaning(observed, self._register.now()), observed) from None

    # -- small things --------------------------------------------------------------------

    async def _within_deadline(self, work: Coroutine[Any, Any, T], verb: str) -> T:
        deadline = self._settings.engine_deadline_seconds
        try:
            async with asyncio.timeout(deadline):
                return await work
        except TimeoutError as error:
            raise EngineTimeout(
                f"the engine did not {verb} the sandbox within {deadline:g} seconds"
            ) from error

    async def _step(
        self,
        sandbox_id: str,
        step: str,
        words: tuple[str, str],
        *,
        made: tuple[str, ...] | None = None,
        address: Address | None = None,
    ) -> None:
        def decide(record: SandboxRecord) -> SandboxRecord | None:
            if record.step not in {ACCEPTED, CREATING, STARTED}:
                raise Superseded
            status = replace(record.status, reason=words[0], message=words[1])
            return replace(
                with_status(record, status, step=step),
                managed_volumes=record.managed_volumes if made is None else made,
                address=address or record.address,
            )

        await self._change(sandbox_id, decide)

    async def _change(self, sandbox_id: str, decide: Change) -> SandboxRecord:
        try:
            return await self._register.change(sandbox_id, decide)
        except SandboxNotFound as error:
            raise Superseded from error


def _pending(reason: str, message: str) -> tuple[str, str]:
    return reason, message


def _has_volumes(plan: SandboxPlan) -> bool:
    return any(mount.kind == "volume" for mount in plan.mounts)


def _own_volumes(plan: SandboxPlan, made: tuple[str, ...]) -> tuple[str, ...]:
    """Of the volumes this sandbox made, the ones it takes with it."""
    leaving = {mount.source for mount in plan.mounts if mount.kind == "volume" and mount.delete_with_sandbox}
    return tuple(name for name in made if name in leaving)


def _recorded_volumes(record: SandboxRecord) -> tuple[str, ...]:
    leaving = record.spec.get("deleteVolumes", ())
    return tuple(name for name in record.managed_volumes if name in leaving)


def _go_on(attempt: Attempt) -> None:
    if attempt.stopped:
        raise Superseded


async def _unless_stopped(work: Coroutine[Any, Any, T], attempt: Attempt) -> T:
    """Run work that is given up at once when the sandbox is deleted."""
    _go_on(attempt)
    done, result = await _until_interrupted(work, attempt)
    if not done:
        raise Superseded
    return cast("T", result)


async def _until_interrupted(work: Coroutine[Any, Any, T], attempt: Attempt) -> tuple[bool, T | None]:
    """Run work until it is done or the attempt is interrupted; say which, and never leave it running."""
    loop = asyncio.get_running_loop()
    working = loop.create_task(work)
    interrupted = loop.create_task(attempt.interrupted.wait())
    try:
        await asyncio.wait({working, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        return (True, working.result()) if working.done() else (False, None)
    finally:
        working.cancel()
        interrupted.cancel()
        await asyncio.gather(working, interrupted, return_exceptions=True)
