"""Programs are started as asked, or the reason is told."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from execd import loop
from execd.output.pump import pipe
from execd.processes.identity import Identity
from execd.processes.spawn import (
    CannotStart,
    Program,
    Spawner,
    children,
    high,
    make_expendable,
)

Run = Callable[[Any], Any]
ROOT = os.geteuid() == 0


@pytest.fixture(params=["spawn program", "interpreter"])
def spawner(request: pytest.FixtureRequest, spawn_program: str) -> Spawner:
    return Spawner(spawn_program if request.param == "spawn program" else None)


async def result(spawner: Spawner, argv: list[str], **more: Any) -> tuple[int, str]:
    """Start a program; return its wait status and output."""
    ours, theirs = pipe()
    environ = more.pop("environ", {"PATH": os.environ["PATH"]})
    try:
        pid = await spawner.start(Program(argv, environ, stdout=theirs, stderr=theirs, **more))
    finally:
        os.close(theirs)
    out = b""
    while piece := await loop.read_some(ours, 65536):
        out += piece
    loop.close_fd(ours)
    return int(await loop.child_exit(pid)), out.decode()


def test_a_program_gets_arguments_environment_and_an_empty_input(spawner: Spawner, run: Run) -> None:
    """R49: arguments are literal, the environment is exactly what was given, input is at its end."""
    argv = ["sh", "-c", 'cat; echo "$1|$X"; env | wc -l', "name", "a  $b"]
    status, out = run(result(spawner, argv, environ={"PATH": os.environ["PATH"], "X": "y"}))
    assert status == 0
    assert out.splitlines()[0] == "a  $b|y"


def test_a_program_leads_its_own_session(spawner: Spawner, run: Run) -> None:
    """Pid, group and session are one number, without and with a directory."""
    for more in ({}, {"cwd": "/"}):
        _, out = run(result(spawner, ["sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat; echo $$"], **more))
        numbers, pid = out.splitlines()
        assert numbers.split() == [pid, pid, pid]


def test_signals_are_as_new(spawner: Spawner, run: Run) -> None:
    """Nothing that we ignore or block is ignored or blocked in the program."""
    for more in ({}, {"cwd": "/"}):
        _, out = run(result(spawner, ["grep", "^Sig[BI]", "/proc/self/status"], **more))
        masks = dict(line.split(":\t") for line in out.splitlines())
        assert int(masks["SigBlk"], 16) == 0
        assert int(masks["SigIgn"], 16) & ((1 << 31) - 1) == 0


def test_a_program_inherits_no_descriptor_but_what_it_is_given(spawner: Spawner, run: Run) -> None:
    """Only standard descriptors and those kept on purpose are open."""
    kept = high(os.open("/dev/null", os.O_RDONLY))
    os.set_inheritable(kept, False)
    for more in ({}, {"cwd": "/"}):
        _, out = run(result(spawner, ["ls", "-l", "/proc/self/fd"], keep=[kept], **more))
        named = {line.split()[-3] for line in out.splitlines() if "->" in line}
        assert named - {"3"} == {"0", "1", "2", str(kept)}
    os.close(kept)


def test_a_directory_is_entered(spawner: Spawner, run: Run, tmp_path: Path) -> None:
    """A name with a slash is relative to that directory; a space in it does not matter."""
    where = tmp_path / "a b"
    where.mkdir()
    (where / "prog").write_text("#!/bin/sh\npwd\n")
    (where / "prog").chmod(0o755)
    assert run(result(spawner, ["./prog"], cwd=str(where))) == (0, f"{where}\n")


@pytest.mark.skipif(not ROOT, reason="only root can switch users")
def test_a_user_is_switched_to_exactly(spawner: Spawner, run: Run) -> None:
    """User, group and supplementary groups are what was asked, nothing of ours is left."""
    more = {"identity": Identity(65534, 65533, (65531, 65532)), "cwd": "/"}
    _, out = run(result(spawner, ["grep", "-E", "^(Uid|Gid|Groups)", "/proc/self/status"], **more))
    fields = {line.split(":")[0]: line.split()[1:] for line in out.splitlines()}
    assert fields == {"Uid": ["65534"] * 4, "Gid": ["65533"] * 4, "Groups": ["65531", "65532"]}


@pytest.mark.parametrize("cwd", [None, "/"])
@pytest.mark.parametrize(
    ("name", "number", "code"),
    [("no-such-program", errno.ENOENT, 127), ("/no/such", errno.ENOENT, 127), ("/etc", errno.EACCES, 126)],
)
def test_a_failed_exec_is_told(
    spawner: Spawner, run: Run, name: str, number: int, code: int, cwd: str | None
) -> None:
    """Whether a program ran or could not is never in doubt."""
    with pytest.raises(CannotStart) as caught:
        run(result(spawner, [name], cwd=cwd))
    assert (caught.value.errno, caught.value.exit_code, caught.value.step) == (number, code, "execute")
    assert name in caught.value.message


@pytest.mark.parametrize("cwd", [None, "/"])
def test_something_that_is_no_program_is_told(
    spawner: Spawner, run: Run, tmp_path: Path, cwd: str | None
) -> None:
    """A file with the execute bit and no known format is an exec format error, not shell text."""
    file = tmp_path / "text"
    file.write_text("echo hi\n")
    file.chmod(0o755)
    with pytest.raises(CannotStart, match="exec format"):
        run(result(spawner, [str(file)], cwd=cwd))


def test_a_bare_name_is_never_looked_up_in_the_directory(spawner: Spawner, run: Run, tmp_path: Path) -> None:
    """Relative and empty entries of PATH are skipped, so the directory cannot supply a program."""
    (tmp_path / "evil").write_text("#!/bin/sh\necho evil\n")
    (tmp_path / "evil").chmod(0o755)
    for cwd in (None, str(tmp_path)):
        with pytest.raises(CannotStart):
            run(result(spawner, ["evil"], cwd=cwd, environ={"PATH": f".::{os.path.relpath(tmp_path)}"}))


def test_a_missing_directory_is_told_as_such(spawner: Spawner, run: Run) -> None:
    """The step that failed is named."""
    with pytest.raises(CannotStart) as caught:
        run(result(spawner, ["true"], cwd="/no/such/dir"))
    assert caught.value.errno == errno.ENOENT


def test_too_long_arguments_are_told(spawner: Spawner, run: Run) -> None:
    """R58: what the kernel cannot take is refused in words; five thousand arguments it can."""
    with pytest.raises(CannotStart, match="longer than the kernel allows"):
        run(result(spawner, ["true", "x" * 200_000]))
    status, out = run(result(spawner, ["sh", "-c", "echo $#", "sh", *[str(n) for n in range(5000)]]))
    assert (status, out) == (0, "5000\n")


def test_failed_starts_leave_nothing(spawner: Spawner, run: Run) -> None:
    """No descriptor and no child stays behind."""

    async def many() -> tuple[int, int]:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            for cwd in (None, "/"):
                with pytest.raises(CannotStart):
                    await result_without_pipe(spawner, cwd)
        return before, len(os.listdir("/proc/self/fd"))

    before, after = run(many())
    assert before == after


async def result_without_pipe(spawner: Spawner, cwd: str | None) -> None:
    await spawner.start(Program(["/no/such"], {}, stdout=1, stderr=2, cwd=cwd))


@pytest.mark.skipif(not os.path.exists(f"/proc/self/task/{os.getpid()}/children"), reason="not listed here")
def test_what_a_program_has_started_already_is_expendable_too() -> None:
    """A child that is older than its parent's score gets one of its own, and so does a grandchild."""
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 987; :' & wait"], start_new_session=True) as program:
        try:
            until = time.monotonic() + 5
            below: list[int] = []
            while len(below) < 2 and time.monotonic() < until:
                below = [pid for child in children(program.pid) for pid in [child, *children(child)]]
            make_expendable(program.pid)
            scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in [program.pid, *below]]
        finally:
            os.killpg(program.pid, signal.SIGKILL)
    assert scores == ["500\n"] * 3


def test_a_program_that_has_ended_needs_no_score() -> None:
    """The program may be gone before it is looked at."""
    make_expendable(2**22 + 1)
    assert children(2**22 + 1) == []
