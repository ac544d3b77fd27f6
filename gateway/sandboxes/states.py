"""The life of a sandbox as a table, and what an engine's observation means in it (lifecycle §3).

Deletion wins over everything: nothing leads out of Stopping but the end, and a record that was
deleted is never changed by an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from gateway.sandboxes.model import Observed, SandboxRecord, State, Status

P, R, PG, PD, RG, S, T, F, U = (
    State.PENDING,
    State.RUNNING,
    State.PAUSING,
    State.PAUSED,
    State.RESUMING,
    State.STOPPING,
    State.TERMINATED,
    State.FAILED,
    State.UNKNOWN,
)

MOVES: Final[Mapping[State, frozenset[State]]] = {
    P: frozenset({R, PD, S, T, F}),
    R: frozenset({PG, PD, S, T, F, U}),
    PG: frozenset({R, PD, S, T, F, U}),
    PD: frozenset({R, RG, S, T, F, U}),
    RG: frozenset({R, PD, S, T, F, U}),
    S: frozenset({T}),
    T: frozenset({R, PD, S, F}),  # someone started the workload again by hand: the engine's word counts
    F: frozenset({R, PD, S, T}),
    U: frozenset({P, R, PD, S, T, F}),
}

GONE_PHASE: Final = "gone"  # what a runtime's stream calls a workload that was removed
ENDED: Final = frozenset({T, F})

# Why a sandbox is in its state; the words of the protocol where it has one.
ACCEPTED: Final = "ACCEPTED"
PULLING: Final = "IMAGE_PULLING"
STARTING: Final = "CONTAINER_STARTING"
RUNNING: Final = "CONTAINER_RUNNING"
PAUSED: Final = "CONTAINER_PAUSED"
EXITED: Final = "CONTAINER_EXITED"
EXITED_ERROR: Final = "CONTAINER_EXITED_ERROR"
OUT_OF_MEMORY: Final = "OOMKilled"
KILLED: Final = 137  # 128 + SIGKILL
GONE: Final = "CONTAINER_GONE"
DELETED: Final = "DELETED"
EXPIRED: Final = "EXPIRED"
NOT_KNOWN: Final = "ENGINE_SILENT"
INTERRUPTED: Final = "PROVISIONING_INTERRUPTED"
NOT_READY: Final = "EXECD_NOT_READY"


def may_move(source: State, target: State) -> bool:
    """
    Tell whether the table has this move; staying is no move.
    """
    return target in MOVES[source]


def meaning(observed: Observed, now: datetime) -> Status:
    """
    Translate an engine's observation to the protocol (lifecycle §3.2).
    """
    match observed.phase:
        case "running":
            return Status(R, RUNNING, "the sandbox is running", observed.started_at or now)
        case "restarting":
            return Status(R, "CONTAINER_RESTARTING", "the engine is restarting the sandbox", now)
        case "paused":
            return Status(PD, PAUSED, "the sandbox is paused; resume it to use it", now)
        case "created" | "starting":
            return Status(P, STARTING, "the sandbox is starting", observed.created_at or now)
        case "exited" | "dead":
            return _ended(observed, now)
        case "removing":
            return Status(S, "CONTAINER_REMOVING", "the engine is removing the sandbox", now)
    return Status(U, "CONTAINER_STATE_UNKNOWN", "the engine reports a state that is not known here", now)


def missing(now: datetime) -> Status:
    """
    Say what it means that the engine positively has no such workload.
    """
    return Status(F, GONE, "the workload was removed outside of this gateway", now)


def observe(record: SandboxRecord, observed: Observed, now: datetime) -> SandboxRecord | None:
    """
    Fold an observation into a record; None when it changes nothing.

    A record with a sequence under way belongs to that sequence, and a deleted one to its end.
    """
    if record.deleted_at is not None or record.step or observed.phase in {"removing", GONE_PHASE}:
        return None
    status = meaning(observed, now)
    address = observed.address or record.address
    exit_code = observed.exit_code if status.state in ENDED else None
    if status.state is record.status.state:
        if address == record.address:
            return None
        return replace(record, address=address)
    if not may_move(record.status.state, status.state):
        return None
    return replace(record, status=status, address=address, exit_code=exit_code)


def describe(record: SandboxRecord) -> str:
    """
    Say in one clause where a sandbox stands, for refusals.
    """
    status = record.status
    return f"sandbox {record.sandbox_id} is {status.state} ({status.reason}: {status.message})"


def _ended(observed: Observed, now: datetime) -> Status:
    at = observed.finished_at or now
    # The engine's mark stays after a command ran out of memory and the sandbox lived on.
    if observed.oom_killed and observed.exit_code in {KILLED, None}:
        return Status(
            F, OUT_OF_MEMORY, "the sandbox was killed because it ran out of memory (exit code 137)", at
        )
    if observed.exit_code == 0:
        return Status(T, EXITED, "the entrypoint ended with exit code 0", at)
    words = f"the entrypoint ended with exit code {observed.exit_code}"
    return Status(F, EXITED_ERROR, f"{words}: {observed.error}" if observed.error else words, at)
