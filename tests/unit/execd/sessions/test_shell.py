"""Living shells: what persists, what is kept apart, what survives."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from execd import loop
from execd.config import Settings
from execd.environment import Environment
from execd.processes.outcome import DISCONNECT
from execd.processes.spawn import Spawner
from execd.sessions.shell import Sessions
from specs.errors import CommandNotFound, ContextNotFound, InvalidBody
from specs.execd import CreateSessionRequest, RunInSessionRequest

Run = Callable[[Any], Any]
SHELLS = [name for name in ("bash", "dash", "busybox") if shutil.which(name)]


class Talk:
    """One session to talk to."""

    def __init__(self, sessions: Sessions, heard: type[Any]) -> None:
        self.sessions = sessions
        self.heard = heard
        self.id = ""

    async def begin(self, cwd: str | None = None) -> "Talk":
        self.id = await self.sessions.create(CreateSessionRequest(cwd))
        return self

    async def say(self, text: str, **more: Any) -> Any:
        told = self.heard()
        plan = self.sessions.plan(self.id, RunInSessionRequest(text, **more))
        await self.sessions.run(plan, told)
        assert told.ended
        assert told.id == self.id
        return told

    async def lines(self, text: str, **more: Any) -> list[str]:
        told = await self.say(text, **more)
        return list(told.lines())


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path, settings: Settings) -> str:
    """Make the image have this shell only."""
    folder = tmp_path / "bin"
    folder.mkdir()
    name = request.param
    os.symlink(str(shutil.which(name)), folder / ("bash" if name == "bash" else "sh"))
    for tool in ("sleep", "cat", "pwd", "env", "setsid", "sh", "ls", "seq", "true", "rm", "head", "tr"):
        if not (folder / tool).exists():
            os.symlink(str(shutil.which(tool)), folder / tool)
    if name == "bash":
        settings.base_environ["PATH"] = str(folder)
    else:
        settings.base_environ["PATH"] = str(folder)
        (folder / "bash").unlink(missing_ok=True)
    return str(name)


@pytest.fixture
def talk(settings: Settings, heard: type[Any]) -> Callable[[], Talk]:
    def make() -> Talk:
        environment = Environment(settings.base_environ, settings.envs_file)
        return Talk(Sessions(settings, environment, Spawner(None)), heard)

    return make


def test_state_persists_between_runs(shell: str, talk: Callable[[], Talk], run: Run) -> None:
    """Directory, variables (exported or not) and functions live on from run to run."""

    async def main() -> None:
        one = await talk().begin("/tmp")
        assert await one.lines("pwd") == ["/tmp"]
        await one.say("export A='x y'; B=2; f() { echo fun $1; }; cd /usr")
        assert await one.lines('echo "$A" $B; f 1; pwd; env | while read l; do case $l in A=*) echo $l;; esac; done') == [
            "x y 2", "fun 1", "/usr", "A=x y",
        ]  # fmt: skip
        assert await one.lines("pwd", cwd="/") == ["/"]
        assert await one.lines("pwd") == ["/"]
        await one.sessions.close()

    run(main())


def test_exit_codes(shell: str, talk: Callable[[], Talk], run: Run) -> None:
    """The last command's status is the run's; exit ends the run and the session goes on as before it."""

    async def main() -> None:
        one = await talk().begin()
        assert (await one.say("sh -c 'exit 7'")).code == "7"
        assert (await one.say("true")).code == "0"
        await one.say("export A=1; cd /usr")
        assert (await one.say("export A=2; cd /; exit 3")).code == "3"
        assert await one.lines("echo $A; pwd") == ["1", "/usr"]
        assert (await one.say("echo 'unmatched")).code != "0"
        assert await one.lines("echo $A") == ["1"]
        assert (await one.say("kill -9 $$")).traceback == ["signal: killed"]
        assert await one.lines("echo $A") == ["1"]
        await one.sessions.close()

    run(main())


def test_runs_are_kept_apart(shell: str, talk: Callable[[], Talk], run: Run) -> None:
    """R52: late output goes nowhere; redirections, traces and a printed number end nothing."""

    async def main() -> None:
        one = await talk().begin()
        told = await one.say("(sleep 0.2; echo late) & echo first")
        assert told.lines() == ["first"]
        assert await one.lines("echo next; sleep 0.4") == ["next"]
        assert await one.lines("exec >/dev/null; echo lost") == []
        assert await one.lines("echo back") == ["back"]
        await one.say("set -x")
        assert (await one.lines("echo traced"))[-1] == "traced"
        await one.say("set +x")
        assert (await one.lines("break; echo on"))[-1] == "on"
        told = await one.say("for n in $(seq 200); do echo $n 0; echo $n; done; echo end >&1; false")
        assert told.lines()[-1] == "end"
        assert told.code == "1"
        await one.sessions.close()

    run(main())


def test_input_is_at_its_end(shell: str, talk: Callable[[], Talk], run: Run) -> None:
    """R49: a program that reads gets nothing, and cannot eat what we tell the shell."""

    async def main() -> None:
        one = await talk().begin()
        assert await one.lines("cat; read x; echo done", timeout=5000) == ["done"]
        assert await one.lines("cat & wait; echo again", timeout=5000) == ["again"]
        await one.sessions.close()

    run(main())


def test_a_run_out_of_time_ends_and_the_session_stays(
    shell: str, talk: Callable[[], Talk], run: Run, tmp_path: Path
) -> None:
    """R35: everything of the run is gone in time; state is as before; earlier jobs go on."""

    async def main() -> None:
        one = await talk().begin()
        await one.say(f"export A=1; cd {tmp_path}; sleep 986 & echo $! >pid")
        told = await one.say("(sleep 30; echo late); echo later", timeout=300)
        assert told.code == "-1"
        assert told.traceback == ["signal: killed", "timed out after 300 ms"]
        assert told.lines() == []
        assert await one.lines("echo $A; kill -0 $(cat pid) && echo alive") == ["1", "alive"]
        told = await one.say("while :; do :; done", timeout=200)
        assert told.code == "-1"
        await one.sessions.close()

    run(main())


def test_deleting_ends_everything(shell: str, talk: Callable[[], Talk], run: Run) -> None:
    """A deleted session leaves no process and is not found again."""

    async def main() -> None:
        one = await talk().begin()
        await one.say("sleep 985 & setsid sleep 985 &")
        waiting = loop.start(one.say("sleep 985"), "run")
        await loop.sleep(0.1)
        await one.sessions.delete(one.id)
        assert (await waiting.join()).code == "-1"
        out = subprocess.run(["pgrep", "-f", "sleep 985"], capture_output=True, check=False, timeout=10)
        assert out.stdout == b""
        with pytest.raises(ContextNotFound):
            await one.sessions.delete(one.id)
        with pytest.raises(ContextNotFound):
            await one.say("true")

    run(main())


def test_an_interrupt_ends_the_run_only(talk: Callable[[], Talk], run: Run) -> None:
    """The session of an interrupted run goes on."""

    async def main() -> None:
        one = await talk().begin()
        await one.say("export A=1")
        waiting = loop.start(one.say("sleep 984"), "run")
        await loop.sleep(0.1)
        await one.sessions.interrupt(one.id)
        assert (await waiting.join()).traceback[0] == "signal: terminated"
        assert await one.lines("echo $A") == ["1"]
        with pytest.raises(CommandNotFound):
            await one.sessions.interrupt(one.id)
        await one.sessions.close()

    run(main())


def test_a_lost_client_ends_its_run_and_no_other(
    talk: Callable[[], Talk], run: Run, heard: type[Any]
) -> None:
    """A run whose client has gone is stopped, also while it waits for its turn."""

    async def main() -> None:
        one = await talk().begin()
        first = loop.start(one.say("sleep 0.3; echo first"), "first")
        plan = one.sessions.plan(one.id, RunInSessionRequest("echo second > /dev/full"))
        told = heard()
        second = loop.start(one.sessions.run(plan, told), "second")
        await loop.sleep(0.05)
        await one.sessions.stop(plan, DISCONNECT)
        assert (await first.join()).lines() == ["first"]
        await second.join()
        assert told.code == "-1"
        await one.sessions.close()

    run(main())


def test_parallel_runs_queue(talk: Callable[[], Talk], run: Run) -> None:
    """Runs of one session never overlap; two sessions do."""

    async def main() -> None:
        one, two = await talk().begin(), await talk().begin()
        tasks = [loop.start(one.say(f"echo {n}a; sleep 0.02; echo {n}b"), f"{n}") for n in range(5)]
        other = loop.start(two.say("echo other"), "other")
        assert (await other.join()).lines() == ["other"]
        for at, task in enumerate(tasks):
            assert (await task.join()).lines() == [f"{at}a", f"{at}b"]
        await one.sessions.close()
        await two.sessions.close()

    run(main())


def test_nothing_secret_is_written_or_shown(
    talk: Callable[[], Talk], run: Run, settings: Settings, tmp_path: Path
) -> None:
    """R53: a run's text and variables are on no disk and in no argument list."""

    async def main() -> None:
        one = await talk().begin()
        secret = "s3" + "cret-" + os.urandom(4).hex()
        await one.say(f"export TOKEN={secret}")
        waiting = loop.start(one.say(f": {secret}; sleep 0.3"), "run")
        await loop.sleep(0.1)
        seen = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True, timeout=10).stdout
        assert secret.encode() not in seen
        found = subprocess.run(
            ["grep", "-rsl", "-D", "skip", secret, str(tmp_path), "/dev/shm"],
            capture_output=True, check=False, timeout=20,
        )  # fmt: skip
        assert found.stdout == b""
        await waiting.join()
        await one.sessions.close()
        assert os.listdir(settings.state_dir) == []

    run(main())


def test_a_lost_state_directory_does_not_matter(
    talk: Callable[[], Talk], run: Run, settings: Settings
) -> None:
    """R46: a session works on after everything under its state directory was deleted."""

    async def main() -> None:
        one = await talk().begin()
        shutil.rmtree(settings.state_dir)
        assert await one.lines("echo still") == ["still"]
        await one.sessions.close()

    run(main())


def test_output_is_whole(talk: Callable[[], Talk], run: Run) -> None:
    """Standard error is merged, blank lines are dropped, large output and a last line arrive whole."""

    async def main() -> None:
        one = await talk().begin()
        assert await one.lines("echo a; echo; echo b >&2; printf 'c\\r\\nd'") == ["a", "b", "c", "d"]
        assert await one.lines("seq 100000") == [str(n) for n in range(1, 100001)]
        await one.sessions.close()

    run(main())


def test_a_long_text_runs(talk: Callable[[], Talk], run: Run) -> None:
    """R58: a text of a quarter of a megabyte is delivered."""

    async def main() -> None:
        one = await talk().begin()
        assert await one.lines(f"x='{'y' * 250_000}'; echo ${{#x}}") == ["250000"]
        await one.sessions.close()

    run(main())


def test_directories(talk: Callable[[], Talk], run: Run, tmp_path: Path) -> None:
    """A session's directory is made; a run's must exist."""

    async def main() -> None:
        one = await talk().begin(str(tmp_path / "new" / "deep"))
        assert await one.lines("pwd") == [str(tmp_path / "new" / "deep")]
        with pytest.raises(InvalidBody, match="cwd"):
            await one.say("true", cwd="/no/such")
        await one.sessions.close()

    run(main())


def test_the_environment_file_is_seen(talk: Callable[[], Talk], run: Run, settings: Settings) -> None:
    """R59: variables set before the session was created are visible in it."""

    async def main() -> None:
        os.makedirs(os.path.dirname(settings.envs_file))
        Path(settings.envs_file).write_text("X='cost $5 ${HOME} tail'\n")
        one = await talk().begin()
        assert await one.lines('echo "$X"') == ["cost $5 ${HOME} tail"]
        await one.sessions.close()

    run(main())


def test_a_stop_that_comes_as_a_run_ends_spares_the_next_run(
    shell: str, talk: Callable[[], Talk], run: Run
) -> None:
    """The next run waits until whoever ends the one before is done, and so never gets a shell that is being killed."""

    async def main() -> None:
        one = await talk().begin()
        for late in range(24):
            plan = one.sessions.plan(one.id, RunInSessionRequest("sleep 0.01; :"))
            first = loop.start(one.sessions.run(plan, one.heard()), "first")
            second = loop.start(one.lines("echo next"), "second")
            await loop.sleep(0.01 + late * 0.0005)
            stop = loop.start(one.sessions.stop(plan, DISCONNECT), "stop")
            await first.join()
            assert await second.join() == ["next"], late
            await stop.join()
        await one.sessions.close()

    run(main())
