"""The life of one command as a table.

No processes, no clock: events in, a new state and effects out.

Source: execd contract §4.4, §4.6.
"""

from __future__ import annotations

from execd.processes.outcome import DISCONNECT, TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from execd.processes.outcome import Outcome

STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPING: Final = "stopping"
ENDED: Final = "ended"

# What the shell must do
KILL: Final = "kill"  # the whole family at once
TERMINATE: Final = "terminate"  # TERM, grace, KILL
ANNOUNCE: Final = "announce"  # tell whoever waits that it has ended

STARTED: Final = "started"
REFUSED: Final = "refused"
STOP_ASKED: Final = "stop asked"
EXITED: Final = "exited"

MOVES: Final = {
    (STARTING, STARTED): RUNNING,
    (STARTING, REFUSED): ENDED,
    (RUNNING, STOP_ASKED): STOPPING,
    (RUNNING, EXITED): ENDED,
    (STOPPING, STOP_ASKED): STOPPING,
    (STOPPING, EXITED): ENDED,
}

START_REFUSED = 255  # in the status of a background command that was not started


class IllegalMove(Exception):
    """An event that the table does not know in this state: a fault of ours."""


class Life:
    """The state of one command. Changed only by `step`."""

    __slots__ = ("outcome", "reason", "state")

    def __init__(self) -> None:
        self.state: str = STARTING
        self.reason: str | None = None  # why it was asked to stop, the first time
        self.outcome: Outcome | None = None


def step(
    life: Life, event: str, *, reason: str | None = None, outcome: Outcome | None = None
) -> tuple[str, ...]:
    """
    Advance by one event.

    Args:
        life: changed in place.
        event: `STARTED`, `REFUSED`, `STOP_ASKED`, `EXITED`.
        reason: with `STOP_ASKED`: why.
        outcome: with `REFUSED` and `EXITED`: how it ended.

    Returns:
        The effects that the caller owes, in order.

    Raises:
        IllegalMove: the table has no such move.
    """
    target = MOVES.get((life.state, event))
    if target is None:
        raise IllegalMove(f"{event} while {life.state}")
    already = life.state == STOPPING
    life.state = target
    if event == STOP_ASKED:
        if life.reason is None:
            life.reason = reason
        if reason in {TIMEOUT, DISCONNECT}:
            return (KILL,)
        return () if already else (TERMINATE,)
    if target == ENDED:
        life.outcome = outcome
        return (ANNOUNCE,)
    return ()
