"""Say when a long walk over the file system has held the loop long enough."""

from __future__ import annotations

from execd.loop import now

_HOLD = 0.004  # seconds: an answer to somebody else waits no longer than this behind a walk


class Pace:
    """Measures how long the present task has run without letting others run."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = now()

    def due(self) -> bool:
        """Return whether it is time for `await checkpoint()`; starts to measure anew when it is."""
        moment = now()
        if moment - self._since < _HOLD:
            return False
        self._since = moment
        return True
