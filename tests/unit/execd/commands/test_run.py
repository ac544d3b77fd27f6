"""Commands: started, streamed, ended, remembered."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from execd import loop
from execd.commands.run import Commands, spool_limit
from execd.config import Settings
from execd.environment import Environment
from execd.processes.spawn import Spawner
from specs.errors import CommandNotFound, InvalidBody
from specs.execd import RunCommandRequest

Run = Callable[[Any], Any]
ROOT = os.geteuid() == 0


class Shop:
    """Commands, and a short way to run one."""

    def __init__(self, commands: Commands, heard: type[Any]) -> None:
        self.commands = commands
        self._heard = heard

    async def run(self, command: str | None = None, **more: Any) -> Any:
        told = self._heard()
        await self.commands.run(RunCommandRequest(command, **more), told)
        assert told.ended
        return told

    def begin(self, command: str, **more: Any) -> tuple[Any, Any]:
        told = self._heard()
        task = loop.start(self.commands.run(RunCommandRequest(command, **more), told), "command")
        return told, task

    def logs(self, command_id: str, cursor: int = 0) -> bytes:
        spool, complete = self.commands.logs(command_id)
        held = spool.snapshot(cursor, finished=complete)
        try:
            return b"".join(held.pieces())
        finally:
            held.close()

    async def ended(self, command_id: str) -> None:
        await self.commands.get(command_id).ended.wait()


@pytest.fixture
def shop(settings: Settings, heard: type[Any], spawn_program: str) -> Callable[[], Shop]:
    def make() -> Shop:
        environment = Environment(settings.base_environ, settings.envs_file)
        return Shop(Commands(settings, environment, Spawner(spawn_program)), heard)

    return make


def test_output_and_exit_code(shop: Callable[[], Shop], run: Run) -> None:
    """Lines by channel, blank ones kept, the last one told; a failure is one error event."""

    async def main() -> None:
        told = await shop().run("echo a; echo; printf 'b\\r\\nc'; echo e >&2; exit 7")
        assert told.lines() == ["a", "\n", "b", "c"]
        assert told.lines("stderr") == ["e"]
        assert told.code == "7"
        assert told.events[-1]["error"] == {
            "ename": "CommandExecError",
            "evalue": "7",
            "traceback": ["exit status 7"],
        }
        assert re.fullmatch("[0-9a-f]{32}", told.id)

    run(main())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("printf 'a\\r\\nb\\r\\n\\r\\nc'", ["a", "b", "\n", "c"]),
        ("printf '10%%\\r'; sleep 0.05; printf '20%%\\r'", ["10%", "20%"]),
        ("printf x; sleep 0.1; printf y", ["xy"]),
        ("printf 'a\\r'; sleep 0.05; printf '\\nb\\n'", ["a", "b"]),
        ("printf '\\303'; sleep 0.05; printf '\\251\\n'; printf '\\377\\n'", ["é", "\ufffd"]),
    ],
)
def test_lines_across_writes(shop: Callable[[], Shop], run: Run, text: str, want: list[str]) -> None:
    """R39, R40: what a program writes in pieces is told in lines."""
    assert run(shop().run(text)).lines() == want


def test_a_long_line_is_whole(shop: Callable[[], Shop], run: Run) -> None:
    """R40, R91: three megabytes without a newline arrive in pieces, each event below four."""
    told = run(shop().run("head -c 3000000 /dev/zero | tr '\\0' x"))
    assert "".join(told.lines()) == "x" * 3_000_000
    assert max(len(event) for event in told.data.split(b"\n\n")) < 4 << 20


def test_split_characters(shop: Callable[[], Shop], run: Run) -> None:
    """R39: characters on the border of two reads stay whole."""
    text = "é漢🙂" * 20_000
    told = run(shop().run(f"i=0; while [ $i -lt 10 ]; do printf '{text[:3000]}'; i=$((i+1)); done"))
    assert "".join(told.lines()) == text[:3000] * 10


def test_input_is_at_its_end(shop: Callable[[], Shop], run: Run) -> None:
    """R49: whatever reads sees the end at once, in the background too."""

    async def main() -> None:
        one = shop()
        assert (await one.run("cat; read x; echo done", timeout=5000)).lines() == ["done"]
        told = await one.run("cat; echo done", timeout=5000, background=True)
        await one.ended(told.id)
        assert one.logs(told.id) == b"done\n"

    run(main())


@pytest.mark.parametrize("text", ["sleep 60 & echo done", "(sleep 60 >/dev/stdout &) ; echo done; exit 0"])
def test_a_command_ends_with_its_process(shop: Callable[[], Shop], run: Run, text: str) -> None:
    """R37: a child that holds the output does not keep the command from ending."""

    async def main() -> None:
        one = shop()
        before = loop.now()
        told = await one.run(text)
        assert loop.now() - before < 1
        assert (told.lines(), told.code) == (["done"], "0")
        await one.commands._live.get(told.id).family.kill()  # type: ignore[union-attr]
        await one.commands.close()

    run(main())


def test_a_timeout_ends_all_of_it(shop: Callable[[], Shop], run: Run, tmp_path: Path) -> None:
    """R34, R38: nothing of the command is left, wherever it went, and the status says so."""

    async def main() -> None:
        one = shop()
        file = tmp_path / "t"
        told = await one.run(
            f"(while :; do echo x >> {file}; sleep .02; done) & setsid sleep 983 & setsid -f sleep 983; wait",
            timeout=300,
        )
        assert told.code == "-1"
        assert told.traceback == ["signal: killed", "timed out after 300 ms"]
        size = file.stat().st_size
        await loop.sleep(0.2)
        assert file.stat().st_size == size
        out = subprocess.run(["pgrep", "-f", "sleep 983"], capture_output=True, check=False, timeout=10)
        assert out.stdout == b""
        status = one.commands.status(told.id)
        assert (status.running, status.exit_code) == (False, -1)
        assert status.error == "signal: killed; timed out after 300 ms"

    run(main())


def test_an_interrupt_right_after_init_is_found(shop: Callable[[], Shop], run: Run) -> None:
    """R41: an id that was told can be interrupted, at once, every time."""

    async def main() -> None:
        one = shop()
        for _ in range(50):
            told, task = one.begin("sleep 30")
            await told.opened.wait()
            await one.commands.interrupt(told.id)
            await task.join()
            assert told.traceback == ["signal: terminated", "interrupted"]
            with pytest.raises(CommandNotFound):
                await one.commands.interrupt(told.id)

    run(main())


def test_exit_codes_are_never_lost(shop: Callable[[], Shop], run: Run) -> None:
    """R50: hundreds of failures at once are all failures, orphans or not."""

    async def main() -> None:
        one = shop()
        tasks = [one.begin("(true &) ; exit 7") for _ in range(200)]
        for told, task in tasks:
            await task.join()
            assert told.code == "7"

    run(main())


def test_what_has_ended_is_kept_within_bounds(shop: Callable[[], Shop], run: Run, settings: Settings) -> None:
    """R44: count and bytes of what is remembered are bounded; no descriptor and no file stays."""
    settings.retain_count = 5
    settings.spool_limit = 1000

    async def main() -> None:
        one = shop()
        first = await one.run("true")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            await one.run("true")
        assert len(os.listdir("/proc/self/fd")) == before
        assert os.listdir(settings.state_dir) == []
        assert len(one.commands._live) == 5
        with pytest.raises(CommandNotFound):
            one.commands.status(first.id)
        for _ in range(8):
            told = await one.run("head -c 900 /dev/zero", background=True)
            await one.ended(told.id)
        kept = [len(command.spool) for command in one.commands._live if command.spool is not None]
        assert sum(kept) <= 4 * settings.spool_limit
        await one.commands.close()

    run(main())


def test_a_background_command_is_followed_by_its_cursor(shop: Callable[[], Shop], run: Run) -> None:
    """Init and completion come at once; output is read on from where it was left."""

    async def main() -> None:
        one = shop()
        told = await one.run("echo a; echo b >&2; sleep 0.2; echo c; exit 3", background=True)
        assert [event["type"] for event in told.events] == ["execution_complete"]
        assert one.commands.status(told.id).running
        await one.ended(told.id)
        assert one.logs(told.id) == b"a\nb\nc\n"
        assert one.logs(told.id, 2) == b"b\nc\n"
        assert one.logs(told.id, 99) == b""
        assert one.commands.status(told.id).exit_code == 3

    run(main())


def test_without_state_directory_all_works(shop: Callable[[], Shop], run: Run, settings: Settings) -> None:
    """R46: deleting everything under the state directory breaks nothing."""

    async def main() -> None:
        one = shop()
        shutil.rmtree(settings.state_dir)
        assert (await one.run("echo a")).lines() == ["a"]
        told = await one.run("echo b", background=True)
        await one.ended(told.id)
        assert one.logs(told.id) == b"b\n"
        assert (await one.run(f"# {'x' * 200_000}\necho c")).lines() == ["c"]

    run(main())


@pytest.mark.parametrize(
    "more", [{}, {"cwd": "/"}, pytest.param({"uid": 65534, "gid": 65534}, id="another user")]
)
def test_a_megabyte_of_shell_text_runs(shop: Callable[[], Shop], run: Run, more: dict[str, Any]) -> None:
    """R58: text that is too long for an argument is delivered, with any directory or user."""
    if "uid" in more and not ROOT:
        pytest.skip("only root can switch users")
    told = run(shop().run("x='" + "y" * (1 << 20) + "'; echo ${#x}; exit 5", **more))
    assert (told.lines(), told.code) == (["1048576"], "5")


def test_arguments_are_literal(shop: Callable[[], Shop], run: Run) -> None:
    """R58: without a shell nothing is expanded, and a name that begins with a dash is no option of ours."""

    async def main() -> None:
        one = shop()
        told = await one.run(argv=["printf", "%s|", "$HOME", "a  b", "-rf", "*"])
        assert told.lines() == ["$HOME|a  b|-rf|*|"]
        assert one.commands.status(told.id).content == '["printf","%s|","$HOME","a  b","-rf","*"]'
        told = await one.run(argv=["no-such-program"])
        assert told.code == "no-such-program: executable file not found in PATH"
        assert one.commands.status(told.id).exit_code == 127
        told = await one.run(argv=["no-such-program"], background=True)
        assert one.commands.status(told.id).exit_code == 255

    run(main())


def test_environment_directory_and_mark(shop: Callable[[], Shop], run: Run, settings: Settings) -> None:
    """R59: the environment file, then the request; the directory is entered and named."""

    async def main() -> None:
        one = shop()
        name = settings.envs_file
        os.makedirs(os.path.dirname(name))
        Path(name).write_text("X='cost $5 ${HOME} tail'\nY=\"it's\"\nZ=file\n")
        told = await one.run('echo "$X|$Y|$Z|$PWD"; pwd; echo $EXECD_ENVS', envs={"Z": "$req"}, cwd="/usr")
        assert told.lines() == ["cost $5 ${HOME} tail|it's|$req|/usr", "/usr", name]
        told = await one.run("echo $BOXWRIGHT_COMMAND_ID")
        assert told.lines() == [told.id]

    run(main())


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"command": "true", "cwd": "/no/such"}, id="no directory"),
        pytest.param({"command": "true", "cwd": "/etc/passwd"}, id="a file"),
        pytest.param({"command": "true", "cwd": "$NO_SUCH/x"}, id="unset variable"),
        pytest.param({"command": "true", "uid": 3_999_999_999}, id="unknown user"),
        pytest.param({"command": ""}, id="nothing"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_told(
    shop: Callable[[], Shop], run: Run, request_: dict[str, Any], heard: type[Any]
) -> None:
    """R88: the refusal is raised, nobody was told anything and nothing is remembered."""

    async def main() -> None:
        one = shop()
        told = heard()
        with pytest.raises(InvalidBody):
            await one.commands.run(RunCommandRequest(**request_), told)
        assert (told.id, told.data, len(one.commands._live)) == ("", b"", 0)

    run(main())


def test_no_shell(shop: Callable[[], Shop], run: Run, settings: Settings, tmp_path: Path) -> None:
    """R47: an image without a shell refuses shell text in words and runs arguments."""
    settings.base_environ["PATH"] = str(tmp_path)

    async def main() -> None:
        one = shop()
        with pytest.raises(InvalidBody, match="argv"):
            await one.run("true")
        assert (await one.run(argv=[str(shutil.which("true"))])).code == "0"

    run(main())


def test_foreground_output_is_not_kept(shop: Callable[[], Shop], run: Run) -> None:
    """Logs are for background commands; an unknown id is not found."""

    async def main() -> None:
        one = shop()
        told = await one.run("echo a")
        with pytest.raises(InvalidBody, match="background"):
            one.commands.logs(told.id)
        with pytest.raises(CommandNotFound):
            one.commands.logs("nope")

    run(main())


def test_closing_ends_what_runs(shop: Callable[[], Shop], run: Run) -> None:
    """At the end of the sandbox running commands are ended and say so."""

    async def main() -> None:
        one = shop()
        told, task = one.begin("sleep 982")
        back = await one.run("sleep 982", background=True)
        await told.opened.wait()
        await one.commands.close()
        await task.join()
        assert told.traceback == ["signal: terminated", "the sandbox is shutting down"]
        assert not one.commands.status(back.id).running

    run(main())


def test_a_slow_listener_holds_the_command_back(shop: Callable[[], Shop], run: Run, heard: type[Any]) -> None:
    """Output that nobody takes is not read, so memory does not grow and nothing is lost."""

    async def main() -> None:
        one = shop()
        told = heard()
        go = loop.Event()
        plain = told.write

        async def slow(events: bytes) -> None:
            await go.wait()
            await plain(events)

        told.write = slow
        task = loop.start(one.commands.run(RunCommandRequest("seq 200000"), told), "command")
        await loop.sleep(0.2)
        assert one.commands.status(told.id).running
        go.set()
        await task.join()
        assert told.lines() == [str(n) for n in range(1, 200001)]

    run(main())


@pytest.mark.parametrize(
    ("memory", "want"), [(None, 64 << 20), (64 << 20, 4 << 20), (1 << 20, 1 << 20), (8 << 30, 64 << 20)]
)
def test_spools_are_small_where_memory_is(memory: int | None, want: int) -> None:
    """Output that is kept counts as the sandbox's memory, so it takes a share of it and no more."""
    assert spool_limit(64 << 20, memory) == want
    assert spool_limit(100, memory) == 100


def test_output_that_nobody_hears_is_not_taken_apart(
    shop: Callable[[], Shop], run: Run, heard: type[Any]
) -> None:
    """R89: a listener that has left is told nothing more, and the command still ends."""

    async def main() -> None:
        told = heard()
        told.gone = True
        here = shop()
        await here.commands.run(RunCommandRequest("seq 100000"), told)
        assert told.lines() == []
        assert told.code == "0"

    run(main())
