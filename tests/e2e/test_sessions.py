"""Shell sessions with the Python SDK."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from opensandbox import Sandbox
from opensandbox.exceptions import SandboxApiException

from tests.e2e.site import MARKS, Client, texts

pytestmark = MARKS


async def test_session_keeps_place_and_exports(sandbox: Sandbox, place: str) -> None:
    """A session starts where it is told, a run may go elsewhere, and exports persist."""
    session = await sandbox.commands.create_session(working_directory=place)
    assert texts((await sandbox.commands.run_in_session(session, "pwd")).logs.stdout) == [place]
    for _ in range(2):
        there = await sandbox.commands.run_in_session(session, "pwd", working_directory="/var")
        assert texts(there.logs.stdout) == ["/var"]
    await sandbox.commands.run_in_session(session, f"cd {place}; export WHO='an agent'")
    seen = await sandbox.commands.run_in_session(session, 'echo "$WHO in $PWD"')
    assert texts(seen.logs.stdout) == [f"an agent in {place}"]
    await sandbox.commands.delete_session(session)


async def test_session_reports_exit_codes(sandbox: Sandbox) -> None:
    """A failing run has its code and no completion, and the session goes on."""
    session = await sandbox.commands.create_session()
    failed = await sandbox.commands.run_in_session(session, "sh -c 'echo before; exit 7'")
    assert failed.error is not None
    assert (failed.error.name, failed.error.value, failed.exit_code) == ("CommandExecError", "7", 7)
    assert failed.complete is None
    assert texts(failed.logs.stdout) == ["before"]
    fine = await sandbox.commands.run_in_session(session, "echo after")
    assert (texts(fine.logs.stdout), fine.exit_code) == (["after"], 0)
    await sandbox.commands.delete_session(session)


async def test_exit_in_a_run_ends_only_that_run(sandbox: Sandbox) -> None:
    """`exit 3` is that run's code; the session stays usable."""
    session = await sandbox.commands.create_session()
    assert (await sandbox.commands.run_in_session(session, "exit 3")).exit_code == 3
    assert texts((await sandbox.commands.run_in_session(session, "echo alive")).logs.stdout) == ["alive"]
    await sandbox.commands.delete_session(session)


async def test_sessions_are_strangers(sandbox: Sandbox) -> None:
    """Several sessions live at once and share no variables."""
    sessions = [await sandbox.commands.create_session() for _ in range(3)]
    for number, session in enumerate(sessions):
        await sandbox.commands.run_in_session(session, f"export N={number}")
    for number, session in enumerate(sessions):
        seen = await sandbox.commands.run_in_session(session, "echo $N")
        assert texts(seen.logs.stdout) == [str(number)]
    for session in sessions:
        await sandbox.commands.delete_session(session)


async def test_session_run_has_a_deadline(sandbox: Sandbox) -> None:
    """A run past its time ends with an error that says so, children included (R35)."""
    session = await sandbox.commands.create_session()
    async with asyncio.timeout(10):
        done = await sandbox.commands.run_in_session(
            session, "(sleep 30; echo late)", timeout=timedelta(seconds=1)
        )
    assert done.error is not None
    assert "tim" in " ".join([done.error.name, done.error.value, *done.error.traceback]).lower()
    assert texts(done.logs.stdout) == []
    await sandbox.commands.delete_session(session)


async def test_deleted_session_is_unknown(sandbox: Sandbox) -> None:
    """After its deletion a session is 404 for a run and for a second deletion."""
    session = await sandbox.commands.create_session()
    await sandbox.commands.delete_session(session)
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.commands.run_in_session(session, "true")
    assert refused.value.status_code == 404
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.commands.delete_session(session)
    assert (refused.value.status_code, refused.value.error.code) == (404, "CONTEXT_NOT_FOUND")


async def test_several_sessions_run_at_the_same_time(async_client: Client, debian: str) -> None:
    """Runs in different sessions do not wait for one another."""
    sandbox = await async_client.connect(debian)
    sessions = await asyncio.gather(*(sandbox.commands.create_session() for _ in range(4)))
    async with asyncio.timeout(15):
        ran = await asyncio.gather(
            *(sandbox.commands.run_in_session(one, f"sleep 0.5; echo {n}") for n, one in enumerate(sessions))
        )
    assert [texts(one.logs.stdout) for one in ran] == [[str(n)] for n in range(4)]
    await asyncio.gather(*(sandbox.commands.delete_session(one) for one in sessions))
