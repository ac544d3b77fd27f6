"""The two long sequences of a sandbox's life, owned by the server: making it and removing it.

Each step is recorded before it is taken, so that a crash at any point leaves enough to finish or
undo it (`recover`). Deletion wins: a create that finds its record deleted stops and leaves the
rest to the removal, which waits for it. Of several processes on one store, the one whose id is in
the record does the work; another one takes it over only when that process is no more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar, cast

import structlog

from gateway.config import GatewaySettings
from gateway.operations.ports import ExecdPeer, Runtime
from gateway.operations.register import Change, Register, with_status
from gateway.operations.steps import FREEZING, MAKING, TAKING_AWAY, UNDONE, Step, stands, taken_along
from gateway.operations.tasks import Tasks
from gateway.sandboxes import states
from gateway.sandboxes.model import Address, Observed, SandboxPlan, SandboxRecord, State, Status
from specs.errors import (
    BoxwrightError,
    EngineTimeout,
    EngineUnavailable,
    EntrypointFailed,
    ImagePullFailed,
    Internal,
    SandboxNotFound,
    StartFailed,
    TooMany,
    Unavailable,
)

T = TypeVar("T")

CANNOT_START: Final = frozenset({125, 126, 127})  # the exit codes of "not found" and "not executable"
PROGRESS_SECONDS: Final = 0.5
FIRST_RETRY: Final = 0.5
LONGEST_RETRY: Final = 15.0
CONCURRENT_REMOVALS: Final = 32
LAST_WORDS_SECONDS: Final = 3.0
LAST_WORDS_LINES: Final = 5
LAST_WORDS_LENGTH: Final = 400
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
        error: why, if that is the answer of the create call.
        superseded: the sandbox was deleted meanwhile, perhaps by another process.
        outcome: the record once the sequence is over, or why it failed.
    """

    awaited: bool = True
    failing: bool = False
    error: BoxwrightError | None = None
    stopped: bool = False
    superseded: bool = False
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

    def supersede(self, error: BoxwrightError) -> None:
        self.superseded = True
        self.fail(error)

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
        self._freezing: Counter[str] = Counter()
        self._orphans: set[str] = set()
        self._reserved: set[str] = set()

    # -- making ------------------------------------------------------------------------

    def reserve(self, sandbox_id: str) -> None:
        """
        Take a place among the creates under way, before anything is recorded; `start` or `release` follows.

        From here on the sandbox is this process's business, and no recovery looks at its record.

        Raises:
            TooMany: all places are taken.
        """
        if len(self._reserved) >= self._settings.start_queue:
            raise TooMany(
                f"{len(self._reserved)} sandboxes are being created, which is as many as this gateway takes at "
                "once; "
                "try again in a moment"
            )
        self._reserved.add(sandbox_id)

    def release(self, sandbox_id: str) -> None:
        """Give a place back."""
        self._reserved.discard(sandbox_id)

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

    @contextmanager
    def freezing(self, sandbox_id: str) -> Iterator[None]:
        """Mark a pause or resume that this process is doing, so that no recovery settles it meanwhile."""
        self._freezing[sandbox_id] += 1
        try:
            yield
        finally:
            self._freezing[sandbox_id] -= 1
            self._freezing += Counter()  # forgets who is at nothing

    async def _provision(self, plan: SandboxPlan, attempt: Attempt) -> None:
        sandbox_id = plan.sandbox_id
        try:
            attempt.settle(await self._make(plan, attempt))
        except Superseded:
            attempt.supersede(SandboxNotFound(sandbox_id))
        except Ended as ended:
            await self._conclude(plan, attempt, ended)
        except BoxwrightError as error:
            await self._undo(sandbox_id, attempt, error)
        except Exception:  # the border of a server-owned task: whatever it was, nothing is left half made
            _log.exception("create_broke", sandbox_id=sandbox_id)
            await self._undo(sandbox_id, attempt, Internal("the gateway failed; its log has the story"))
        finally:
            self._leave(sandbox_id, attempt)
        await self._close(sandbox_id, attempt)

    def _leave(self, sandbox_id: str, attempt: Attempt) -> None:
        self._attempts.pop(sandbox_id, None)
        self.release(sandbox_id)
        if not attempt.outcome.done():
            attempt.outcome.cancel()

    async def _close(self, sandbox_id: str, attempt: Attempt) -> None:
        """Look at what happened to the record while the sequence was under way."""
        try:
            if attempt.exited is not None:
                await self.note_end(attempt.exited)
            if not attempt.superseded:
                return
            record = await self._register.store.get(sandbox_id)
            if record is not None and record.step in TAKING_AWAY and record.worker == self._register.worker:
                self.remove(sandbox_id)
            elif not stands(record) or (record is not None and record.step in TAKING_AWAY):
                # Someone else removed it, perhaps before our last call to the engine had its effect.
                await self._runtime.remove(sandbox_id, volumes=taken_along(record), grace_seconds=0)
        except BoxwrightError as error:
            _log.warning("create_not_closed", sandbox_id=sandbox_id, code=error.code)

    async def note_end(self, observed: Observed) -> None:
        """
        Take an observation into the record; an end comes with the last lines that were printed.
        """
        sandbox_id = observed.sandbox_id
        record = await self._register.store.get(sandbox_id)
        if record is None or states.observe(record, observed, self._register.now()) is None:
            return
        words = ""
        if observed.phase in {"exited", "dead"}:
            words = await self._last_words(sandbox_id)

        def decide(record: SandboxRecord) -> SandboxRecord | None:
            changed = states.observe(record, observed, self._register.now())
            if changed is None or changed.status == record.status or not words:
                return changed
            status = replace(changed.status, message=changed.status.message + words)
            return replace(changed, status=status)

        try:
            await self._register.change(sandbox_id, decide)
        except SandboxNotFound:
            return

    async def _make(self, plan: SandboxPlan, attempt: Attempt) -> SandboxRecord:
        sandbox_id = plan.sandbox_id
        await self._have_image(plan, attempt)
        async with self._starts:
            made = await self._runtime.missing_volumes(plan) if _has_volumes(plan) else ()
            await self._step(
                sandbox_id, Step.CREATING, _pending(states.STARTING, "creating the sandbox"), made=made
            )
            await self._within_deadline(self._runtime.create(plan), "create")
            _go_on(attempt)
            address = await self._start(sandbox_id)
        await self._step(sandbox_id, Step.STARTED, _pending(states.STARTING, ADDRESS_WORDS), address=address)
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
                await self._step(sandbox_id, Step.ACCEPTED, status)
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

        def decide(record: SandboxRecord) -> SandboxRecord:
            if record.step not in MAKING:
                raise Superseded
            return replace(with_status(record, status, step=""), address=address, managed_volumes=volumes)

        return await self._change(sandbox_id, decide)

    async def _conclude(self, plan: SandboxPlan, attempt: Attempt, ended: Ended) -> None:
        """The entrypoint ran and ended: that is a sandbox that lived, unless it could not even start."""
        code = ended.observed.exit_code
        words = await self._last_words(plan.sandbox_id)
        if code in CANNOT_START and not ended.observed.oom_killed:
            error = EntrypointFailed(f"the entrypoint could not be started (exit code {code}){words}")
            await self._undo(plan.sandbox_id, attempt, error)
            return
        await self._settle_ended(plan.sandbox_id, attempt, ended, words)

    async def _settle_ended(self, sandbox_id: str, attempt: Attempt, ended: Ended, words: str) -> None:
        status = replace(ended.status, message=ended.status.message + words)

        def decide(record: SandboxRecord) -> SandboxRecord:
            if record.step not in MAKING:
                raise Superseded
            return replace(
                with_status(record, status, step=""),
                exit_code=ended.observed.exit_code,
                managed_volumes=_recorded_volumes(record),
            )

        try:
            attempt.settle(await self._change(sandbox_id, decide))
        except Superseded:
            attempt.supersede(SandboxNotFound(sandbox_id))

    async def _last_words(self, sandbox_id: str) -> str:
        """Return what the workload printed last, as the end of a sentence; nothing if that cannot be had."""
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                text = await self._runtime.logs(
                    sandbox_id, tail=LAST_WORDS_LINES, since=None, timestamps=False
                )
        except (BoxwrightError, TimeoutError):
            return ""
        return last_words(text)

    async def _undo(
        self, sandbox_id: str, attempt: Attempt, error: BoxwrightError, *, reason: str | None = None
    ) -> None:
        """Record the failure, remove what was made, and tell the create call if it still waits."""
        told = attempt.failing = attempt.awaited
        attempt.error = error if told else None
        _log.warning("create_failed", sandbox_id=sandbox_id, code=error.code, message=error.message)
        why = reason or error.code.rpartition("::")[2]
        status = Status(State.FAILED, why, error.message, self._register.now())

        def failed(record: SandboxRecord) -> SandboxRecord:
            if record.step not in MAKING:
                raise Superseded
            return replace(
                with_status(record, status, step=Step.UNDOING),
                deleted_at=self._register.now() if told else None,
                spec={**record.spec, UNDONE: True},
            )

        try:
            await self._change_in_the_end(sandbox_id, failed, attempt, error)
        except Superseded:
            attempt.supersede(SandboxNotFound(sandbox_id))
            return
        await self._remove_once_or_later(sandbox_id)
        attempt.fail(error)

    async def _change_in_the_end(
        self, sandbox_id: str, decide: Change, attempt: Attempt, error: BoxwrightError
    ) -> None:
        """Record what must not be forgotten; a store that is full or locked is asked again and again."""
        delay = FIRST_RETRY
        while True:
            try:
                await self._change(sandbox_id, decide)
                return
            except Unavailable as refusal:
                _log.warning("undo_not_recorded", sandbox_id=sandbox_id, code=refusal.code)
                attempt.fail(error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, LONGEST_RETRY)

    async def _remove_once_or_later(self, sandbox_id: str) -> None:
        record = await self._register.store.get(sandbox_id)
        if record is None or record.step != Step.UNDOING:
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

    def remove_orphan(self, sandbox_id: str, record: SandboxRecord | None) -> None:
        """
        Begin removing what the engine has of a sandbox that is over or never was.

        Args:
            sandbox_id: whose workload.
            record: its tombstone, if there is one.
        """
        if sandbox_id not in self._removing and sandbox_id not in self._orphans:
            self._orphans.add(sandbox_id)
            self._tasks.spawn(self._orphan(sandbox_id, record), f"orphan {sandbox_id}")

    async def _orphan(self, sandbox_id: str, record: SandboxRecord | None) -> None:
        try:
            if await self._runtime.observe(sandbox_id) is None:
                return
            await self._runtime.remove(sandbox_id, volumes=taken_along(record), grace_seconds=0)
        except BoxwrightError as error:  # the next reconciliation finds it again
            _log.warning("orphan_not_removed", sandbox_id=sandbox_id, code=error.code)
        else:
            _log.warning("orphan_removed", sandbox_id=sandbox_id)
        finally:
            self._orphans.discard(sandbox_id)

    def look(self, record: SandboxRecord) -> None:
        """
        Notice what another process asked of a sequence that is this one's: to end it.
        """
        if record.worker != self._register.worker or record.step not in TAKING_AWAY:
            return
        attempt = self._attempts.get(record.sandbox_id)
        if attempt is not None:
            attempt.stop()
        elif not self._is_at(record.sandbox_id):
            self.remove(record.sandbox_id)

    def _is_at(self, sandbox_id: str) -> bool:
        """Tell whether this process is doing something with a sandbox."""
        return any(
            sandbox_id in at for at in (self._reserved, self._attempts, self._removing, self._freezing)
        )

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
        try:
            record = await self._register.store.get(sandbox_id)
            if record is None or record.step not in TAKING_AWAY:
                return True
            grace = int(record.spec.get("stopGraceSeconds", 0)) if record.step == Step.REMOVING else 0
            async with self._removals:
                await self._runtime.remove(sandbox_id, volumes=record.managed_volumes, grace_seconds=grace)
            return await self._forget_step(record)
        except BoxwrightError as error:
            _log.warning("remove_failed", sandbox_id=sandbox_id, code=error.code, message=error.message)
        except Exception:  # the border of a server-owned task: a delete that was answered is not given up
            _log.exception("remove_broke", sandbox_id=sandbox_id)
        return False

    async def _forget_step(self, record: SandboxRecord) -> bool:
        """Close a sequence that removed everything."""
        status = record.status
        if record.step == Step.REMOVING:
            words = f"{status.message}; nothing of it is left"
            status = Status(State.TERMINATED, status.reason, words, self._register.now())
        done = replace(record, status=status, step="", managed_volumes=(), address=None)
        return await self._register.save(record, done) is not None

    # -- after a restart ----------------------------------------------------------------

    async def recover(self, record: SandboxRecord, living: frozenset[str]) -> bool:
        """
        Finish or undo the sequence that a record was in when its process stopped.

        Args:
            record: as it was found.
            living: the processes that are at work on the store now; what they do is left to them.

        Returns:
            True when this process took it over.
        """
        sandbox_id, me = record.sandbox_id, self._register.worker
        if self._is_at(sandbox_id) or (record.worker != me and record.worker in living):
            return False
        if record.worker != me:
            taken = await self._register.save(record, replace(record, worker=me))
            if taken is None:
                return False  # someone was faster
            record = taken
        if record.step in TAKING_AWAY or record.deleted_at is not None:
            self.remove(sandbox_id)
        elif record.step in FREEZING:
            with self.freezing(sandbox_id):
                await self._take_engines_word(record)
        else:
            self._reserved.add(sandbox_id)  # beyond the bound if need be: this one was let in before
            attempt = Attempt(awaited=False)
            self._attempts[sandbox_id] = attempt
            attempt.task = self._tasks.spawn(self._finish(record, attempt), f"finish {sandbox_id}")
        return True

    async def _take_engines_word(self, record: SandboxRecord) -> None:
        observed = await self._runtime.observe(record.sandbox_id)
        now = self._register.now()
        status = states.missing(now) if observed is None else states.meaning(observed, now)
        try:
            await self._register.change(
                record.sandbox_id,
                lambda one: with_status(one, status, step="") if one.step == record.step else None,
            )
        except SandboxNotFound:
            return  # deleted meanwhile

    async def _finish(self, record: SandboxRecord, attempt: Attempt) -> None:
        sandbox_id = record.sandbox_id
        try:
            attempt.settle(await self._continue(record, attempt))
        except Superseded:
            attempt.supersede(SandboxNotFound(sandbox_id))
        except Ended as ended:
            await self._settle_ended(sandbox_id, attempt, ended, await self._last_words(sandbox_id))
        except BoxwrightError as error:
            await self._undo(sandbox_id, attempt, error, reason=states.INTERRUPTED)
        except Exception:  # the border of a server-owned task: whatever it was, nothing is left half made
            _log.exception("finish_broke", sandbox_id=sandbox_id)
            broke = Internal("the gateway failed; its log has the story")
            await self._undo(sandbox_id, attempt, broke, reason=states.INTERRUPTED)
        finally:
            self._leave(sandbox_id, attempt)
        await self._close(sandbox_id, attempt)

    async def _continue(self, record: SandboxRecord, attempt: Attempt) -> SandboxRecord:
        observed = await self._patiently_observed(record.sandbox_id, attempt)
        if observed is None:
            raise StartFailed("the gateway was restarted before the sandbox was made; create it again")
        now = self._register.now()
        status = states.meaning(observed, now)
        if status.state in states.ENDED:
            raise Ended(status, observed)
        async with self._starts:
            _go_on(attempt)
            address = await self._start(record.sandbox_id)
        await self._step(
            record.sandbox_id, Step.STARTED, _pending(states.STARTING, ADDRESS_WORDS), address=address
        )
        await self._have_execd(record.sandbox_id, address, attempt)
        return await self._settle_running(record.sandbox_id, address, _recorded_volumes(record))

    async def _patiently_observed(self, sandbox_id: str, attempt: Attempt) -> Observed | None:
        """Ask the engine until it answers: a silent engine is no reason to undo anything."""
        delay = FIRST_RETRY
        while True:
            _go_on(attempt)
            try:
                return await self._runtime.observe(sandbox_id)
            except (EngineUnavailable, EngineTimeout) as error:
                _log.warning("observe_failed", sandbox_id=sandbox_id, code=error.code)
            await _until_interrupted(asyncio.sleep(delay), attempt)
            delay = min(delay * 2, LONGEST_RETRY)

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
            if record.step not in MAKING:
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


def last_words(text: str) -> str:
    """
    Put the last lines of an output into one clause: short, on one line, without control characters.
    """
    lines = ["".join(one for one in line if one.isprintable()).strip() for line in text.splitlines()]
    said = " | ".join(line for line in lines if line)
    if len(said) > LAST_WORDS_LENGTH:
        said = "…" + said[-LAST_WORDS_LENGTH:]
    return f"; its last output: {said}" if said else ""


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
