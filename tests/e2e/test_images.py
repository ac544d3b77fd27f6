"""Images without much in them: busybox, and a single static program without a shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiodocker
import httpx
import pytest
import pytest_asyncio
from opensandbox import Sandbox
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import DirectoryListEntry, SearchEntry
from opensandbox.models.sandboxes import Host, SandboxState, Volume

from tests.e2e.site import (
    BUSYBOX,
    DEBIAN,
    MARKS,
    STATIC,
    Client,
    Flavour,
    Route,
    Site,
    removed,
    texts,
    unique,
)

pytestmark = MARKS


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(site: Site, kind: tuple[Flavour, Route], busybox: str) -> AsyncIterator[Sandbox]:
    made = Client(site, *kind)
    try:
        yield await made.connect(busybox, skip_health_check=True)
    finally:
        await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bare(site: Site, kind: tuple[Flavour, Route], static: str) -> AsyncIterator[Sandbox]:
    made = Client(site, *kind)
    try:
        yield await made.connect(static, skip_health_check=True)
    finally:
        await made.close()


async def test_busybox_shell_is_enough(small: Sandbox, place: str) -> None:
    """Commands, exit codes, environment, sessions and files work with busybox's sh."""
    done = await small.commands.run("for i in 1 2; do echo $i; done; echo bad >&2; exit 6")
    assert (texts(done.logs.stdout), texts(done.logs.stderr), done.exit_code) == (["1", "2"], ["bad"], 6)
    await small.commands.set_env("COLOUR", "it's $blue")
    session = await small.commands.create_session(working_directory=place)
    await small.commands.run_in_session(session, "export X=1; cd /etc")
    seen = await small.commands.run_in_session(session, 'echo "$X $PWD"')
    assert texts(seen.logs.stdout) == ["1 /etc"]
    await small.commands.delete_session(session)
    await small.files.write_file(f"{place}/file", "content\n")
    assert texts((await small.commands.run(f"cat {place}/file")).logs.stdout) == ["content"]
    found = await small.files.search(SearchEntry(path=place, pattern="f*"))
    assert [one.path for one in found] == [f"{place}/file"]


async def test_busybox_identity_by_number(small: Sandbox) -> None:
    """A user that no file of the image names runs under its number."""
    done = await small.commands.run("id -u; id -g", opts=RunCommandOpts(uid=54321, gid=54322))
    assert texts(done.logs.stdout) == ["54321", "54322"]


async def test_shell_less_image_lives_with_the_default_entrypoint(bare: Sandbox) -> None:
    """`tail -f /dev/null`, which SDKs send by default, keeps a sandbox alive whose image has no tail."""
    info = await bare.get_info()
    assert info.status.state == SandboxState.RUNNING
    assert info.entrypoint == ["tail", "-f", "/dev/null"]
    assert await bare.is_healthy()


async def test_shell_less_image_runs_argv(bare: Sandbox, client: Client) -> None:
    """The image's own program runs as an argument list; its service is reached and its failure is told."""
    port = str(
        9000 + ["async", "sync"].index(client.flavour) * 2 + ["direct", "server-proxy"].index(client.route)
    )
    started = await bare.commands.run(["/app", port], opts=RunCommandOpts(background=True))
    assert started.id is not None
    endpoint = await bare.get_endpoint(int(port))
    headers = endpoint.build_request_headers(client.config())
    async with httpx.AsyncClient(headers=headers, timeout=10) as http, asyncio.timeout(20):
        while (answer := await http.get(f"http://{endpoint.endpoint}/")).status_code == 502:
            await asyncio.sleep(0.05)
    assert answer.text == "hello from static\n"
    second = await bare.commands.run(["/app", port])
    assert second.exit_code == 1
    assert texts(second.logs.stderr)[0].startswith("app:")
    await bare.commands.interrupt(started.id)
    assert "app: listening" in (await bare.commands.get_background_command_logs(started.id)).content


async def test_shell_less_image_names_what_is_missing(bare: Sandbox) -> None:
    """A shell command, a session or a missing program fails clearly where there is no shell."""
    for command in ("echo hello", ["/no/such/program"]):
        said = ""
        try:
            done = await bare.commands.run(command)
        except SandboxException as refused:
            said = str(refused)
        else:
            assert done.exit_code != 0
            assert done.error is not None
            said = " ".join(
                [done.error.name, done.error.value, *done.error.traceback, *texts(done.logs.stderr)]
            )
        assert ("shell" in said.lower()) if isinstance(command, str) else ("/no/such/program" in said)
    with pytest.raises(SandboxException) as refused_session:
        await bare.commands.create_session()
    assert "shell" in str(refused_session.value).lower()


@pytest.mark.parametrize("size", [0, 1, 70_000])
async def test_shell_less_image_has_files(bare: Sandbox, place: str, size: int) -> None:
    """Files need nothing of the image."""
    data = b"\x00" * size
    await bare.files.write_file(f"{place}/file", data)
    assert await bare.files.read_bytes(f"{place}/file") == data
    listed = await bare.files.list_directory(DirectoryListEntry(path=place))
    assert [(one.path, one.size) for one in listed] == [(f"{place}/file", size)]
    await bare.files.delete_directories([place])


async def test_shell_less_image_has_metrics(bare: Sandbox) -> None:
    """Metrics need nothing of the image either."""
    assert (await bare.get_metrics()).memory_total_in_mib == pytest.approx(2048)


@pytest.mark.parametrize("image", [DEBIAN, BUSYBOX])
async def test_delete_asks_the_entrypoint_to_end(
    async_client: Client, image: str, engine: aiodocker.Docker
) -> None:
    """TERM reaches the user's own process, which gets time to write its last words (R62)."""
    folder: Path = async_client.site.host_folder / unique("term")
    folder.mkdir()
    script = "trap 'sleep 1; echo bye > /mnt/words; exit 0' TERM; while :; do sleep 0.1; done"
    sandbox = await async_client.create(
        image,
        entrypoint=["sh", "-c", script],
        volumes=[Volume(name="words", host=Host(path=str(folder)), mountPath="/mnt")],
    )
    await sandbox.kill()
    await removed(engine, sandbox.id)
    assert (folder / "words").read_text() == "bye\n"


async def test_entrypoint_that_ignores_the_end_is_ended(site: Site, engine: aiodocker.Docker) -> None:
    """A process that ignores TERM is killed when its grace is over, and the delete call does not wait for it."""
    client = Client(site, "async", "direct")
    try:
        sandbox = await client.create(
            BUSYBOX, entrypoint=["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]
        )
        async with asyncio.timeout(5):
            await sandbox.kill()
        await removed(engine, sandbox.id)
    finally:
        await client.close()


@pytest.mark.parametrize("image", [DEBIAN, STATIC])
async def test_missing_entrypoint_program_is_named(async_client: Client, image: str) -> None:
    """An entrypoint that the image does not have fails with its name and not with a timeout."""
    with pytest.raises(SandboxException) as refused:
        await async_client.create(image, entrypoint=["/opt/no-such-program", "x"])
    assert "/opt/no-such-program" in str(refused.value)
