"""The life of a sandbox as a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.sandboxes.model import Address, Observed, State
from gateway.sandboxes.states import MOVES, describe, may_move, meaning, missing, observe
from tests.contracts.store import record
from tests.fakes.clock import START

LATER = START + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("observed", "state", "reason"),
    [
        (Observed("s", "created"), State.PENDING, "CONTAINER_STARTING"),
        (Observed("s", "running"), State.RUNNING, "CONTAINER_RUNNING"),
        (Observed("s", "restarting"), State.RUNNING, "CONTAINER_RESTARTING"),
        (Observed("s", "paused"), State.PAUSED, "CONTAINER_PAUSED"),
        (Observed("s", "exited", exit_code=0), State.TERMINATED, "CONTAINER_EXITED"),
        (Observed("s", "exited", exit_code=1), State.FAILED, "CONTAINER_EXITED_ERROR"),
        (Observed("s", "dead", exit_code=137), State.FAILED, "CONTAINER_EXITED_ERROR"),
        (Observed("s", "exited", exit_code=137, oom_killed=True), State.FAILED, "OOMKilled"),
        # The engine's mark is older than the end: a command ran out of memory and the sandbox lived on.
        (Observed("s", "exited", exit_code=0, oom_killed=True), State.TERMINATED, "CONTAINER_EXITED"),
        (Observed("s", "exited", exit_code=3, oom_killed=True), State.FAILED, "CONTAINER_EXITED_ERROR"),
        (Observed("s", "exited", exit_code=None), State.FAILED, "CONTAINER_EXITED_ERROR"),
        (Observed("s", "removing"), State.STOPPING, "CONTAINER_REMOVING"),
        (Observed("s", "strange"), State.UNKNOWN, "CONTAINER_STATE_UNKNOWN"),
    ],
)
def test_what_an_observation_means(observed: Observed, state: State, reason: str) -> None:
    """Every phase of an engine has one meaning; out of memory is told apart (R10)."""
    found = meaning(observed, LATER)
    assert (found.state, found.reason) == (state, reason)
    assert found.message


def test_every_state_has_its_row() -> None:
    """The table is complete, nothing stays by moving, and Stopping leads to the end only (R16)."""
    assert set(MOVES) == set(State)
    assert not [state for state in State if may_move(state, state)]
    assert MOVES[State.STOPPING] == {State.TERMINATED}
    assert [
        state for state in State if state is not State.STOPPING and not may_move(state, State.STOPPING)
    ] == []


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize(
    "phase", ["created", "running", "paused", "exited", "dead", "removing", "gone", "strange"]
)
def test_observations_follow_the_table(state: State, phase: str) -> None:
    """An observation moves a record along the table or not at all."""
    before = record(state=state)
    after = observe(before, Observed(before.sandbox_id, phase, exit_code=0), LATER)
    if after is not None:
        assert may_move(before.status.state, after.status.state)
        assert after.version == before.version


@pytest.mark.parametrize("changes", [{"deleted_at": START}, {"step": "pausing"}, {"step": "creating"}])
def test_sequences_and_ends_are_left_alone(changes: dict[str, object]) -> None:
    """What is deleted or under way is not changed by an observation."""
    before = replace(record(), **changes)  # type: ignore[arg-type]
    assert observe(before, Observed(before.sandbox_id, "exited", exit_code=1), LATER) is None


def test_a_new_address_is_taken() -> None:
    """A workload that was started again by hand has its new address on record."""
    address = Address("10.0.0.3", 44772, "127.0.0.1", 40002)
    after = observe(record(), Observed("s1", "running", address=address), LATER)
    assert after is not None
    assert after.address == address
    assert observe(after, Observed("s1", "running", address=address), LATER) is None


def test_words_for_refusals() -> None:
    """A refusal names the id, the state and why."""
    assert describe(replace(record(), status=missing(START))).startswith(
        "sandbox s1 is Failed (CONTAINER_GONE:"
    )
