"""What an end means on the wire, as a table."""

import pytest

from execd.processes.outcome import INTERRUPT, SHUTDOWN, TIMEOUT, outcome


@pytest.mark.parametrize(
    ("status", "reason", "oom", "code", "evalue", "first"),
    [
        pytest.param(0, None, False, 0, "", None, id="success"),
        pytest.param(7 << 8, None, False, 7, "7", "exit status 7", id="exit 7"),
        pytest.param(255 << 8, None, False, 255, "255", "exit status 255", id="exit 255"),
        pytest.param(9, None, False, -1, "-1", "signal: killed", id="killed"),
        pytest.param(15, INTERRUPT, False, -1, "-1", "signal: terminated", id="interrupted"),
        pytest.param(9, TIMEOUT, False, -1, "-1", "signal: killed", id="out of time"),
        pytest.param(15, SHUTDOWN, False, -1, "-1", "signal: terminated", id="shutdown"),
        pytest.param(3 << 8, INTERRUPT, False, 3, "3", "exit status 3", id="traps TERM"),
        pytest.param(11 | 0x80, None, False, -1, "-1", "signal: segmentation fault", id="core dumped"),
        pytest.param(40, None, False, -1, "-1", "signal: signal 40", id="real-time signal"),
        pytest.param(9, None, True, 137, "137", "out of memory: killed by the kernel", id="R10 itself"),
        pytest.param(
            137 << 8, None, True, 137, "137", "out of memory: killed by the kernel", id="R10 a child"
        ),
        pytest.param(137 << 8, None, False, 137, "137", "exit status 137", id="137 by choice"),
        pytest.param(9, TIMEOUT, True, -1, "-1", "signal: killed", id="our own kill is not the kernel's"),
        pytest.param(1 << 8, None, True, 1, "1", "exit status 1", id="another failure"),
    ],
)
def test_outcome(
    status: int, reason: str | None, oom: bool, code: int, evalue: str, first: str | None
) -> None:
    """Exit codes as they are, -1 for signals, 137 and the words for lack of memory (R10)."""
    ended = outcome(status, reason=reason, timeout_ms=1000, out_of_memory=oom)
    assert (ended.exit_code, ended.evalue) == (code, evalue)
    assert ended.succeeded is (code == 0)
    assert (ended.traceback[0] if ended.traceback else None) == first


def test_a_timeout_can_be_told_from_a_kill() -> None:
    """The second line says how long the command had."""
    ended = outcome(9, reason=TIMEOUT, timeout_ms=1500, out_of_memory=False)
    assert ended.traceback == ("signal: killed", "timed out after 1500 ms")
    assert ended.error == "signal: killed; timed out after 1500 ms"
