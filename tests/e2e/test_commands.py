"""Running commands with the Python SDK: results, streams, identities, limits, background work, environment."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from opensandbox import Sandbox, SandboxSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import Execution, ExecutionHandlers, RunCommandOpts
from opensandbox.models.execd_sync import ExecutionHandlersSync

from tests.e2e.site import MARKS, Client, Route, Site, texts, unique, until

pytestmark = MARKS


@pytest.mark.parametrize(
    ("command", "stdout", "stderr", "exit_code"),
    [
        pytest.param("echo hello", ["hello"], [], 0, id="stdout"),
        pytest.param("echo oops >&2", [], ["oops"], 0, id="stderr"),
        pytest.param("printf 'a\\n\\nb'", ["a", "\n", "b"], [], 0, id="blank-line-and-no-last-newline"),
        pytest.param("exit 7", [], [], 7, id="exit-7"),
        pytest.param("echo out; echo err >&2; exit 3", ["out"], ["err"], 3, id="both-and-exit-3"),
        pytest.param("true", [], [], 0, id="silent"),
        pytest.param("no-such-program-anywhere 2>/dev/null", [], [], 127, id="not-found"),
        pytest.param("echo 'é漢🙂\u2028x'", ["é漢🙂\u2028x"], [], 0, id="unicode"),
        pytest.param("cat", [], [], 0, id="stdin-is-empty"),
        pytest.param(
            ["printf", "%s|", "$HOME", "it's", "", "a  b"], ["$HOME|it's||a  b|"], [], 0, id="argv-literal"
        ),
        pytest.param(["sh", "-c", "exit 9"], [], [], 9, id="argv-exit-9"),
    ],
)
async def test_result(
    sandbox: Sandbox, command: str | list[str], stdout: list[str], stderr: list[str], exit_code: int
) -> None:
    """Output, exit code and the terminal event of a command are exact."""
    done = await sandbox.commands.run(command)
    assert texts(done.logs.stdout) == stdout
    assert texts(done.logs.stderr) == stderr
    assert done.exit_code == exit_code
    assert done.id
    if exit_code == 0:
        assert done.error is None
        assert done.complete is not None
    else:
        assert done.complete is None
        assert done.error is not None
        assert (done.error.name, done.error.value) == ("CommandExecError", str(exit_code))


async def test_long_output_is_whole(sandbox: Sandbox) -> None:
    """Ten thousand lines and one line of half a megabyte arrive complete and in order (R40)."""
    many = await sandbox.commands.run("seq 1 10000")
    assert texts(many.logs.stdout) == [str(n) for n in range(1, 10001)]
    wide = await sandbox.commands.run("head -c 500000 /dev/zero | tr '\\0' x; echo; echo after")
    assert "".join(texts(wide.logs.stdout)).replace("after", "") == "x" * 500000
    assert texts(wide.logs.stdout)[-1] == "after"


async def test_characters_are_never_cut(sandbox: Sandbox) -> None:
    """Multi-byte characters survive any chunking of the pipe (R39)."""
    done = await sandbox.commands.run(
        ["python3", "-c", "import sys; sys.stdout.write('a' + 'é漢🙂' * 20000)"]
    )
    assert "".join(texts(done.logs.stdout)) == "a" + "é漢🙂" * 20000


async def test_working_directory(sandbox: Sandbox, place: str) -> None:
    """A command runs where it is told to, and a missing place is refused before it starts."""
    await sandbox.commands.run(f"mkdir -p {place}")
    done = await sandbox.commands.run("pwd", opts=RunCommandOpts(working_directory=place))
    assert texts(done.logs.stdout) == [place]
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.commands.run("pwd", opts=RunCommandOpts(working_directory=f"{place}/missing"))
    assert refused.value.status_code == 400
    assert "missing" in str(refused.value)


async def test_request_environment_is_literal(sandbox: Sandbox) -> None:
    """Values of `envs` reach the command untouched and leave nothing behind."""
    value = '$HOME `id` "quoted" \\ it\'s'
    done = await sandbox.commands.run('printf "%s" "$ODD"', opts=RunCommandOpts(envs={"ODD": value}))
    assert texts(done.logs.stdout) == [value]
    assert texts((await sandbox.commands.run('printf "%s" "${ODD-unset}"')).logs.stdout) == ["unset"]


async def test_daemon_secrets_are_not_in_the_environment(sandbox: Sandbox) -> None:
    """A command sees its own environment and nothing of the daemon's."""
    names = {line.partition("=")[0] for line in texts((await sandbox.commands.run("env")).logs.stdout)}
    assert {"PATH", "EXECD_ENVS", "OPENSANDBOX_ID"} <= names
    own = {name for name in names if name.startswith("BOXWRIGHT_") or "TOKEN" in name}
    assert own <= {"BOXWRIGHT_COMMAND_ID"}


@pytest.mark.parametrize(
    ("identity", "told"),
    [({"uid": 1234, "gid": 2345}, "1234:2345"), ({"uid": 1, "gid": 0}, "1:0"), ({"uid": 0}, "0:0")],
)
async def test_identity(sandbox: Sandbox, identity: dict[str, Any], told: str) -> None:
    """A command runs as the user and group it is given."""
    done = await sandbox.commands.run("echo $(id -u):$(id -g)", opts=RunCommandOpts(**identity))
    assert texts(done.logs.stdout) == [told]


async def test_timeout_ends_the_whole_tree(sandbox: Sandbox, place: str) -> None:
    """When the time is up nothing of the command goes on, and the error says why (R34)."""
    began = asyncio.get_running_loop().time()
    done = await sandbox.commands.run(
        f"mkdir {place}; (while :; do echo x >> {place}/grows; sleep 0.1; done) & wait",
        opts=RunCommandOpts(timeout=timedelta(seconds=1)),
    )
    assert asyncio.get_running_loop().time() - began < 8
    assert done.complete is None
    assert done.error is not None
    assert done.exit_code not in {0, None}
    assert "tim" in " ".join([done.error.name, done.error.value, *done.error.traceback]).lower()
    sizes = []
    for _ in range(2):
        sizes.append((await sandbox.files.get_file_info([f"{place}/grows"]))[f"{place}/grows"].size)
        await asyncio.sleep(0.5)
    assert sizes[0] == sizes[1]


async def test_child_that_holds_stdout_does_not_hold_the_command(sandbox: Sandbox) -> None:
    """A command ends when it ends, though a background child keeps its stdout (R37)."""
    async with asyncio.timeout(10):
        done = await sandbox.commands.run("sleep 60 & echo done")
    assert (texts(done.logs.stdout), done.exit_code) == (["done"], 0)


async def test_background_command_is_followed_by_id(sandbox: Sandbox, place: str) -> None:
    """A background command answers at once; status and logs with a cursor follow it to its end."""
    command = f"echo one; echo two >&2; while [ ! -e {place} ]; do sleep 0.05; done; echo three; exit 4"
    started = await sandbox.commands.run(command, opts=RunCommandOpts(background=True))
    assert started.id is not None
    status = await sandbox.commands.get_command_status(started.id)
    assert (status.id, status.running, status.exit_code) == (started.id, True, None)
    assert status.content == command
    assert status.started_at is not None

    async def first() -> Any:
        logs = await sandbox.commands.get_background_command_logs(started.id or "")
        return logs if logs.content.count("\n") == 2 else None

    logs = await until(first)
    assert sorted(logs.content.split()) == ["one", "two"]
    assert (await sandbox.commands.get_background_command_logs(started.id, cursor=logs.cursor)).content == ""
    await sandbox.files.write_file(place, "")

    async def ended() -> Any:
        status = await sandbox.commands.get_command_status(started.id or "")
        return None if status.running else status

    status = await until(ended)
    assert status.exit_code == 4
    assert status.finished_at is not None and status.finished_at >= status.started_at
    rest = await sandbox.commands.get_background_command_logs(started.id, cursor=logs.cursor)
    assert rest.content == "three\n"
    assert (rest.cursor or 0) > (logs.cursor or 0)


async def test_background_command_is_interrupted(sandbox: Sandbox) -> None:
    """An interrupt ends a background command and its children."""
    started = await sandbox.commands.run("sleep 300 & sleep 301; wait", opts=RunCommandOpts(background=True))
    assert started.id is not None
    await sandbox.commands.interrupt(started.id)

    async def ended() -> Any:
        status = await sandbox.commands.get_command_status(started.id or "")
        return None if status.running else status

    assert (await until(ended)).exit_code not in {0, None}
    left = await sandbox.commands.run(["pgrep", "-f", "^sleep 30[01]$"])
    assert texts(left.logs.stdout) == []


async def test_foreground_command_is_interrupted_from_its_first_event(
    async_client: Client, debian: str
) -> None:
    """An interrupt right after the announcement of the id finds the command (R41)."""
    sandbox = await async_client.connect(debian)
    for _ in range(10):
        stopping: list[asyncio.Task[None]] = []

        async def announced(init: Any, stopping: list[asyncio.Task[None]] = stopping) -> None:
            stopping.append(asyncio.create_task(sandbox.commands.interrupt(init.id)))

        async with asyncio.timeout(15):
            done = await sandbox.commands.run("sleep 30", handlers=ExecutionHandlers(on_init=announced))
            await asyncio.gather(*stopping)
        assert done.error is not None
        assert done.exit_code not in {0, None}


@pytest.mark.parametrize("call", ["get_command_status", "get_background_command_logs", "interrupt"])
async def test_unknown_command_id_is_refused(sandbox: Sandbox, call: str) -> None:
    """An id that never was gets an error that names it."""
    with pytest.raises(SandboxApiException) as refused:
        await getattr(sandbox.commands, call)("0" * 32)
    assert refused.value.status_code in {400, 404}
    assert "0" * 32 in str(refused.value)


async def test_asynchronous_handlers_see_everything_in_order(async_client: Client, debian: str) -> None:
    """Handlers get init first, then output as it comes, then the end."""
    seen: list[tuple[str, Any]] = []

    def note(kind: str) -> Any:
        async def handle(message: Any) -> None:
            seen.append((kind, getattr(message, "text", None)))

        return handle

    sandbox = await async_client.connect(debian)
    done = await sandbox.commands.run(
        "echo 1; sleep 0.1; echo 2 >&2; sleep 0.1; echo 3",
        handlers=ExecutionHandlers(
            on_init=note("init"),
            on_stdout=note("out"),
            on_stderr=note("err"),
            on_execution_complete=note("complete"),
            on_error=note("error"),
            skip_accumulation=True,
        ),
    )
    assert seen == [("init", None), ("out", "1"), ("err", "2"), ("out", "3"), ("complete", None)]
    assert done.logs.stdout == []


async def test_synchronous_handlers_see_everything_in_order(site: Site, route: Route, debian: str) -> None:
    """The synchronous client streams the same events, the failure included."""
    seen: list[tuple[str, Any]] = []

    def note(kind: str) -> Any:
        return lambda message: seen.append((kind, getattr(message, "text", getattr(message, "value", None))))

    handlers = ExecutionHandlersSync(
        on_init=note("init"),
        on_stdout=note("out"),
        on_stderr=note("err"),
        on_execution_complete=note("complete"),
        on_error=note("error"),
    )

    def run() -> Execution:
        with SandboxSync.connect(debian, connection_config=site.synchronous(route)) as sandbox:
            return sandbox.commands.run("echo 1; sleep 0.1; echo 2 >&2; exit 5", handlers=handlers)

    done = await asyncio.to_thread(run)
    assert seen == [("init", None), ("out", "1"), ("err", "2"), ("error", "5")]
    assert done.exit_code == 5


@pytest.mark.parametrize(
    "value",
    [
        "cost $5 ${HOME} tail",
        "two\nlines",
        "a=b=c",
        "it's fine",
        "",
        " spaced ",
        'say "hi"',
        "back\\slash\\n",
        "é漢🙂",
    ],
    ids=["dollar", "lines", "equals", "quote", "empty", "spaces", "double-quotes", "backslash", "unicode"],
)
async def test_set_env_keeps_the_value(sandbox: Sandbox, value: str) -> None:
    """A variable set once is in every later command and new session, byte for byte."""
    name = unique("VAR").replace("-", "_")
    await sandbox.commands.set_env(name, value)
    show = f'printf "[%s]" "${name}"'
    done = await sandbox.commands.run(show)
    assert "\n".join(texts(done.logs.stdout)) == f"[{value}]"
    session = await sandbox.commands.create_session()
    ran = await sandbox.commands.run_in_session(session, show)
    assert "\n".join(texts(ran.logs.stdout)) == f"[{value}]"
    await sandbox.commands.delete_session(session)


async def test_set_env_last_value_wins(sandbox: Sandbox) -> None:
    """Setting a variable again replaces it; the request's own value wins over it."""
    name = unique("VAR").replace("-", "_")
    for value in ("first", "second"):
        await sandbox.commands.set_env(name, value)
    assert texts((await sandbox.commands.run(f"echo ${name}")).logs.stdout) == ["second"]
    own = await sandbox.commands.run(f"echo ${name}", opts=RunCommandOpts(envs={name: "third"}))
    assert texts(own.logs.stdout) == ["third"]


async def test_many_commands_at_once(async_client: Client, debian: str) -> None:
    """Forty commands at the same time do not mix their output."""
    sandbox = await async_client.connect(debian)
    done = await asyncio.gather(
        *(sandbox.commands.run(f"echo {n}; echo e{n} >&2; exit {n % 3}") for n in range(40))
    )
    for n, one in enumerate(done):
        assert (texts(one.logs.stdout), texts(one.logs.stderr), one.exit_code) == ([str(n)], [f"e{n}"], n % 3)
