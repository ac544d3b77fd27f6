"""Execd as the sandbox's init, in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
DRIVER = """
import sys
sys.path.insert(0, {root!r})
from execd.loop import run
from execd.processes.entrypoint import supervise
from execd.processes.spawn import Spawner
import os

class Settings:
    base_environ = dict(os.environ)

class Services:
    async def close(self):
        print("closed", flush=True)

sys.exit(run(supervise(sys.argv[1:], Settings(), Services(), Spawner(None))))
"""


def start(*argv: str, path: str | None = None) -> subprocess.Popen[str]:
    environ = {"PATH": os.environ["PATH"] if path is None else path}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", DRIVER.format(root=str(ROOT)), *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [("echo hi; exit 7", 7), ("echo hi", 0), ("echo hi; kill -9 $$", 137), ("echo hi; kill $$", 143)],
)
def test_the_status_is_the_entrypoints(text: str, code: int) -> None:
    """Output goes where ours goes; the status is passed on, 128+n for signals; the rest is ended."""
    child = start("sh", "-c", text)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (code, "hi\nclosed\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH])
def test_signals_reach_the_entrypoint(number: signal.Signals) -> None:
    """R62: the entrypoint's own handler runs and has its time."""
    name = number.name.removeprefix("SIG")
    child = start(
        "sh", "-c", f"trap 'sleep 0.2; echo got; exit 3' {name}; echo ready; while :; do sleep 0.02; done"
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    out, _ = child.communicate(timeout=20)
    assert (child.returncode, out) == (3, "got\nclosed\n")


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [(["no-such-program"], 127, "not found in the image"), (["/etc"], 126, "ermission")],
)
def test_a_wrong_entrypoint_is_one_clear_line(argv: list[str], code: int, word: str) -> None:
    """127 when it is not there, 126 when it cannot be executed, and why."""
    child = start(*argv)
    _, err = child.communicate(timeout=20)
    assert child.returncode == code
    assert err.count("\n") == 1
    assert word in err
    assert argv[0] in err


@pytest.mark.parametrize("argv", [["tail", "-f", "/dev/null"], ["sleep", "infinity"]])
def test_an_image_without_programs_stays_up(argv: list[str], tmp_path: Path) -> None:
    """R47: the client's default entrypoint keeps even an empty image alive until it is stopped."""
    child = start(*argv, path=str(tmp_path))
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (0, "closed\n", "")
