"""Run the programs a build calls: each with a deadline, a log and a clear failure."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from images.bundle.errors import StepFailed, ToolMissing

TAIL_LINES = 15
TAIL_BYTES = 16_384


def need(tool: str, package: str) -> str:
    """
    Return the path of a program.

    Raises:
        ToolMissing: it is not on PATH; the message names the package that has it.
    """
    found = shutil.which(tool)
    if found is None:
        raise ToolMissing(tool, package)
    return found


def run(
    step: str,
    argv: Sequence[str | Path],
    *,
    log: Path,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    gently: bool = False,
) -> bytes:
    """
    Run one program to its end and return its standard output.

    Both streams go to the log. The machine's own environment is kept (package
    clients find proxies and certificates there), less what would change how
    compilers and interpreters behave; `env` is added.

    Args:
        step: what the reader of a failure is told was being done.
        argv: the program and its arguments.
        log: a file that is appended to.
        seconds: the deadline; the whole process group is killed after it.
        cwd: where to run.
        env: variables to set.
        stdin: bytes for standard input; closed otherwise.
        gently: lower the priority, for builds of minutes.

    Raises:
        StepFailed: not started, not zero, or not in time.
    """
    words = ["env", *(f"--unset={name}" for name in _UNWANTED)]
    words += [f"{name}={value}" for name, value in sorted((env or {}).items())]
    if gently:
        words += ["nice", "-n", "5"]
    words += [str(word) for word in argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        out.write(f"\n$ {' '.join(words)}\n".encode())
        out.flush()
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(step, f"could not be started ({error})", log, "") from error
        with process:
            try:
                output, _ = process.communicate(stdin, timeout=seconds)
            except BaseException as error:
                # Also on an interrupt: nothing of ours goes on compiling alone.
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    outcome = f"not finished after {seconds:.0f} s"
                    raise StepFailed(step, outcome, log, _tail(log)) from error
                raise
        out.write(output)
    if process.returncode != 0:
        raise StepFailed(step, f"exit status {process.returncode}", log, _tail(log))
    return output


_UNWANTED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CC",
    "CFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "LIBS",
    "MAKEFLAGS",
    "MAKELEVEL",
    "CDPATH",
)


def _tail(log: Path) -> str:
    with log.open("rb") as source:
        source.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = source.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-TAIL_LINES:])
