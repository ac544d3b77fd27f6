"""What a record stands for, and what leaves with it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.operations.steps import FREEZING, MAKING, TAKING_AWAY, UNDONE, Step, stands, taken_along
from tests.contracts.store import record
from tests.fakes.clock import START

VOLUMES = [
    {"kind": "volume", "source": "a"},
    {"kind": "volume", "source": "b"},
    {"kind": "bind", "source": "/h"},
]
SPEC = {"volumes": VOLUMES, "deleteVolumes": ["a"]}


def test_each_step_is_of_one_kind() -> None:
    """Every step belongs to making, taking away or freezing, and to one of them only."""
    assert set(Step) == MAKING | TAKING_AWAY | FREEZING
    assert len(Step) == len(MAKING) + len(TAKING_AWAY) + len(FREEZING)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"step": Step.ACCEPTED}, True),
        ({"step": Step.REMOVING, "deleted_at": START}, True),
        ({"deleted_at": START}, False),
        ({"spec": {UNDONE: True}}, False),
        ({"spec": {UNDONE: True}, "step": Step.UNDOING}, True),
    ],
)
def test_what_a_record_stands_for(changes: dict[str, Any], expected: bool) -> None:
    """A tombstone and a create that was taken back stand for no workload, unless work on them goes on."""
    assert stands(record(**changes)) is expected


def test_what_leaves_with_a_sandbox() -> None:
    """A sandbox that lived leaves what it was told to take along; one that was taken back leaves nothing."""
    assert not stands(None)
    assert taken_along(None) == ()
    assert taken_along(record(spec=SPEC)) == ("a",)
    assert taken_along(record(spec={**SPEC, UNDONE: True})) == ("a", "b")
