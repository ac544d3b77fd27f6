"""The steps of a sandbox's sequences, as they stand in its record.

A step says what was about to be done when the record was written. Whoever finds it there after
a crash knows what may exist and either finishes or undoes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from gateway.sandboxes.model import SandboxRecord

UNDONE: Final = "undone"
"""Member of a record's `spec`: its create failed and was taken back, so it stands for no workload."""


class Step(StrEnum):
    """What a process is doing with a sandbox; an empty step means nothing."""

    ACCEPTED = "accepted"  # looking for the image; the engine has nothing of it
    CREATING = "creating"  # its volumes and its workload may exist
    STARTED = "started"  # the workload was started; waiting for execd
    UNDOING = "undoing"  # a failed create is being taken back
    REMOVING = "removing"  # deleted or expired; the engine may still have parts
    PAUSING = "pausing"
    RESUMING = "resuming"


MAKING: Final = frozenset({Step.ACCEPTED, Step.CREATING, Step.STARTED})
TAKING_AWAY: Final = frozenset({Step.UNDOING, Step.REMOVING})
FREEZING: Final = frozenset({Step.PAUSING, Step.RESUMING})


def stands(record: SandboxRecord | None) -> bool:
    """
    Tell whether a record stands for a workload; what the engine has of one that does not is an orphan.
    """
    if record is None:
        return False
    return bool(record.step) or (record.deleted_at is None and not record.spec.get(UNDONE))


def taken_along(record: SandboxRecord | None) -> tuple[str, ...]:
    """
    Name the volumes that may not outlive a sandbox that is over, as far as it made them.

    A create that was taken back leaves nothing; a sandbox that lived leaves what the request said.
    """
    if record is None:
        return ()
    if record.spec.get(UNDONE):
        return tuple(one["source"] for one in record.spec.get("volumes", ()) if one["kind"] == "volume")
    return tuple(record.spec.get("deleteVolumes", ()))
