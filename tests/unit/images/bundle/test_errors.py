"""What a reader of a failed build is told."""

from pathlib import Path

from images.bundle.errors import StepFailed


def test_the_brief_form_leaves_the_output_out() -> None:
    """
    A progress line has room for one line: the step, its outcome and the log.
    """
    error = StepFailed("make", "exit status 2", Path("/log"), "cc: error\nmake: stop")

    assert error.brief == "make: exit status 2; the whole output is in /log"
    assert str(error).endswith("make: stop")
