"""When a walk lets others run."""

from execd import loop
from execd.files.pace import Pace


def test_a_pause_is_due_after_some_milliseconds() -> None:
    """A pause is not due at once, is due after a while, and then not at once again."""
    pace = Pace()
    early = pace.due()
    until = loop.now() + 0.01
    while loop.now() < until:
        pass
    assert [early, pace.due(), pace.due()] == [False, True, False]
