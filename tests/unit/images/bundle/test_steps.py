"""Running a build's programs."""

import sys
from pathlib import Path

import pytest

from images.bundle.errors import StepFailed, ToolMissing
from images.bundle.steps import need, run


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_is_returned_and_logged(tmp_path: Path) -> None:
    """
    The caller gets standard output; the log gets both streams and the command.
    """
    log = tmp_path / "logs/log"
    code = "import os, sys; print(os.environ['WORD'], sys.stdin.read()); print('aside', file=sys.stderr)"

    out = run("say", python(code), log=log, seconds=30, env={"WORD": "hello"}, stdin=b"in")

    assert out == b"hello in\n"
    assert {"hello in", "aside"} <= set(log.read_text().splitlines())


def test_a_failure_names_the_log_and_shows_its_end(tmp_path: Path) -> None:
    """
    A reader sees what was being done, how it ended, the last lines and where the rest is.
    """
    log = tmp_path / "log"

    with pytest.raises(StepFailed) as caught:
        run("count", python("print(*range(40), sep='\\n'); raise SystemExit(3)"), log=log, seconds=30)

    text = str(caught.value)
    assert text.startswith(f"count: exit status 3; the whole output is in {log}\n")
    assert text.splitlines()[-1] == "39"
    assert "\n24\n" not in text


def test_a_step_ends_at_its_deadline(tmp_path: Path) -> None:
    """
    The whole process group is ended, also a grandchild that holds the pipe.
    """
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"

    with pytest.raises(StepFailed, match=r"not finished after 1 s"):
        run("hang", python(code), log=tmp_path / "log", seconds=1)


def test_a_program_that_is_not_there_is_a_failed_step(tmp_path: Path) -> None:
    """
    A missing program is reported like any other failure of a step.
    """
    with pytest.raises(StepFailed, match="nothing-of-that-name"):
        run("start", ["nothing-of-that-name"], log=tmp_path / "log", seconds=30)


def test_a_needed_tool_names_its_package() -> None:
    """
    The reader is told what to install.
    """
    assert need("sh", "dash").endswith("/sh")
    with pytest.raises(ToolMissing, match="install the package some-package"):
        need("nothing-of-that-name", "some-package")
