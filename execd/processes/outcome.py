"""What the end of a process means on the wire.

Source: execd contract §4.4, wait(2).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Why a command is stopped
TIMEOUT: Final = "timeout"
INTERRUPT: Final = "interrupt"
DISCONNECT: Final = "disconnect"
SHUTDOWN: Final = "shutdown"

SIGNALED = -1  # exit code of every death by signal
OUT_OF_MEMORY = 137

_NAMES = {
    1: "hangup",
    2: "interrupt",
    3: "quit",
    4: "illegal instruction",
    5: "trace/breakpoint trap",
    6: "aborted",
    7: "bus error",
    8: "floating point exception",
    9: "killed",
    10: "user defined signal 1",
    11: "segmentation fault",
    12: "user defined signal 2",
    13: "broken pipe",
    14: "alarm clock",
    15: "terminated",
}


class Outcome:
    """How a command ended, in the words of the wire."""

    __slots__ = ("evalue", "exit_code", "traceback")

    def __init__(self, exit_code: int, evalue: str = "", traceback: tuple[str, ...] = ()) -> None:
        self.exit_code = exit_code
        self.evalue = evalue  # empty on success
        self.traceback = traceback

    @property
    def succeeded(self) -> bool:
        """Say whether the stream ends with completion, not with an error."""
        return not self.evalue

    @property
    def error(self) -> str | None:
        """The status object's `error`."""
        return "; ".join(self.traceback) or None


def outcome(status: int, *, reason: str | None, timeout_ms: int | None, out_of_memory: bool) -> Outcome:
    """
    Translate a wait status.

    Args:
        status: as waitpid(2) gives it.
        reason: why we stopped the command, if we did.
        timeout_ms: the time it had.
        out_of_memory: the kernel killed something for lack of memory while the command ran.
    """
    number = status & 0x7F
    code = (status >> 8) & 0xFF
    if number == 0 and code == 0:
        return Outcome(0)
    if out_of_memory and reason is None and (number == 9 or (number == 0 and code == OUT_OF_MEMORY)):
        return Outcome(
            OUT_OF_MEMORY,
            str(OUT_OF_MEMORY),
            ("out of memory: killed by the kernel", "the sandbox's memory limit was reached"),
        )
    if number == 0:
        return Outcome(code, str(code), (f"exit status {code}",))
    trace = [f"signal: {_NAMES.get(number, f'signal {number}')}"]
    if reason == TIMEOUT:
        trace.append(f"timed out after {timeout_ms} ms")
    elif reason == INTERRUPT:
        trace.append("interrupted")
    elif reason == SHUTDOWN:
        trace.append("the sandbox is shutting down")
    return Outcome(SIGNALED, str(SIGNALED), tuple(trace))
