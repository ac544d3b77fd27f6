"""The life of a command, as a table."""

import pytest

from execd.commands.model import (
    ANNOUNCE,
    ENDED,
    EXITED,
    KILL,
    MOVES,
    REFUSED,
    RUNNING,
    STARTED,
    STARTING,
    STOP_ASKED,
    STOPPING,
    TERMINATE,
    IllegalMove,
    Life,
    step,
)
from execd.processes.outcome import INTERRUPT, TIMEOUT, Outcome


def life(state: str) -> Life:
    made = Life()
    made.state = state
    return made


@pytest.mark.parametrize(
    ("state", "event", "reason", "target", "effects"),
    [
        (STARTING, STARTED, None, RUNNING, ()),
        (STARTING, REFUSED, None, ENDED, (ANNOUNCE,)),
        (RUNNING, STOP_ASKED, TIMEOUT, STOPPING, (KILL,)),
        (RUNNING, STOP_ASKED, INTERRUPT, STOPPING, (TERMINATE,)),
        (STOPPING, STOP_ASKED, INTERRUPT, STOPPING, ()),
        (STOPPING, STOP_ASKED, TIMEOUT, STOPPING, (KILL,)),
        (RUNNING, EXITED, None, ENDED, (ANNOUNCE,)),
        (STOPPING, EXITED, None, ENDED, (ANNOUNCE,)),
    ],
)
def test_moves(state: str, event: str, reason: str | None, target: str, effects: tuple[str, ...]) -> None:
    """Every move gives its state and what is owed for it."""
    made = life(state)
    assert step(made, event, reason=reason, outcome=Outcome(0)) == effects
    assert made.state == target


@pytest.mark.parametrize("state", [STARTING, RUNNING, STOPPING, ENDED])
@pytest.mark.parametrize("event", [STARTED, REFUSED, STOP_ASKED, EXITED])
def test_what_the_table_does_not_know_is_a_fault(state: str, event: str) -> None:
    """A command that ended never moves again."""
    if (state, event) not in MOVES:
        with pytest.raises(IllegalMove):
            step(life(state), event)


def test_the_first_reason_counts() -> None:
    """A command that is interrupted and then runs out of time was interrupted."""
    made = life(RUNNING)
    step(made, STOP_ASKED, reason=INTERRUPT)
    step(made, STOP_ASKED, reason=TIMEOUT)
    assert made.reason == INTERRUPT
