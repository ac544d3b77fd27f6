"""Making, finding, changing, pausing and ending sandboxes with the Python SDK."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiodocker
import pytest
from opensandbox import Sandbox
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import PVC, Host, PlatformSpec, SandboxFilter, SandboxState, Volume

from tests.e2e.site import (
    BUSYBOX,
    DEBIAN,
    KEY_HEADER,
    MACHINE,
    MARKS,
    TOKEN_HEADER,
    Client,
    Site,
    removed,
    texts,
    unique,
    until,
)

pytestmark = MARKS


@pytest.fixture
def folder(site: Site) -> Path:
    """Make a folder of this test's own below the allowed one."""
    made = site.host_folder / unique("vol")
    (made / "sub").mkdir(parents=True)
    (made / "greeting").write_text("from the host")
    return made


async def volume_names(engine: aiodocker.Docker) -> set[str]:
    volumes: Any = engine.volumes
    listed = await volumes.list()
    return {one["Name"] for one in listed["Volumes"] or ()}


async def test_create_honours_every_option(client: Client, folder: Path, engine: aiodocker.Docker) -> None:
    """All options of a create that this version has are obeyed and echoed."""
    claim = unique("claim")
    sandbox = await client.create(
        DEBIAN,
        timeout=None,
        env={"GREETING": "good day", "TRICKY": 'a=b "$HOME" \\ c'},
        metadata={"team": "blue", "example.com/stage": "e2e"},
        resource={"cpu": "500m", "memory": "256Mi"},
        resource_requests={"cpu": "100m", "memory": "64Mi"},
        entrypoint=["sh", "-c", "echo said by the entrypoint; exec tail -f /dev/null"],
        platform=PlatformSpec.model_validate({"os": "linux", "arch": MACHINE}),
        extensions={"opensandbox.extensions.ticket": "T-1"},
        volumes=[
            Volume(name="whole", host=Host(path=str(folder)), mountPath="/mnt/whole", readOnly=True),
            Volume(name="part", host=Host(path=str(folder)), mountPath="/mnt/part", subPath="sub"),
            Volume(
                name="named",
                pvc=PVC(claimName=claim, createIfNotExists=True, deleteOnSandboxTermination=True),
                mountPath="/mnt/named",
            ),
        ],
    )
    info = await sandbox.get_info()
    assert info.status.state == SandboxState.RUNNING
    assert info.image is not None and info.image.image == DEBIAN
    assert info.entrypoint == ["sh", "-c", "echo said by the entrypoint; exec tail -f /dev/null"]
    assert info.expires_at is None
    assert info.metadata == {"team": "blue", "example.com/stage": "e2e"}
    assert info.extensions == {"opensandbox.extensions.ticket": "T-1"}
    assert info.platform is not None and (info.platform.os, info.platform.arch) == ("linux", MACHINE)

    seen = await sandbox.commands.run(
        'printf "%s\\n" "$GREETING" "$TRICKY" "$OPENSANDBOX_ID"; cat /mnt/whole/greeting'
    )
    assert texts(seen.logs.stdout) == ["good day", 'a=b "$HOME" \\ c', sandbox.id, "from the host"]
    refused = await sandbox.commands.run("echo x > /mnt/whole/new")
    assert refused.exit_code not in {0, None}
    assert not (folder / "new").exists()
    assert (
        await sandbox.commands.run("echo made inside > /mnt/part/new && echo kept > /mnt/named/new")
    ).exit_code == 0
    assert (folder / "sub" / "new").read_text() == "made inside\n"
    assert claim in await volume_names(engine)

    metrics = await sandbox.get_metrics()
    assert metrics.cpu_count == pytest.approx(0.5)
    assert metrics.memory_total_in_mib == pytest.approx(256)
    logs = await sandbox.diagnostics.get_logs(sandbox.id, "container")
    assert "said by the entrypoint" in (logs.content or "")

    await sandbox.kill()
    await removed(engine, sandbox.id)

    async def volume_gone() -> bool:
        return claim not in await volume_names(engine)

    await until(volume_gone)
    assert (folder / "sub" / "new").exists()


async def test_named_volume_outlives_its_sandbox(async_client: Client, engine: aiodocker.Docker) -> None:
    """A named volume stays by default, serves the next sandbox read-only and by sub path, and is never removed by a later one."""
    claim = unique("claim")
    try:
        first = await async_client.create(
            BUSYBOX, volumes=[Volume(name="data", pvc=PVC(claimName=claim), mountPath="/data")]
        )
        assert (await first.commands.run("mkdir /data/deep && echo here > /data/deep/file")).exit_code == 0
        await first.kill()
        await removed(engine, first.id)
        second = await async_client.create(
            BUSYBOX,
            volumes=[
                Volume(
                    name="data",
                    pvc=PVC(claimName=claim, createIfNotExists=False, deleteOnSandboxTermination=True),
                    mountPath="/data",
                    readOnly=True,
                ),
                Volume(name="deep", pvc=PVC(claimName=claim), mountPath="/deep", subPath="deep"),
            ],
        )
        seen = await second.commands.run("cat /data/deep/file /deep/file; touch /data/no")
        assert texts(seen.logs.stdout) == ["here", "here"]
        assert seen.exit_code != 0
        await second.kill()
        await removed(engine, second.id)
        assert claim in await volume_names(engine)
    finally:
        volumes: Any = engine.volumes
        await (await volumes.get(claim)).delete()


async def test_missing_volume_is_named_and_not_made(async_client: Client, engine: aiodocker.Docker) -> None:
    """A named volume that may not be made is missed by name (R25)."""
    claim = unique("claim")
    with pytest.raises(SandboxApiException) as refused:
        await async_client.create(
            BUSYBOX,
            volumes=[
                Volume(name="data", pvc=PVC(claimName=claim, createIfNotExists=False), mountPath="/data")
            ],
        )
    assert (refused.value.status_code, refused.value.error.code) == (400, "VOLUME::PVC_NOT_FOUND")
    assert claim in str(refused.value)
    assert claim not in await volume_names(engine)


async def test_renew_moves_the_end_both_ways(client: Client) -> None:
    """A renewal answers with the new end, get shows it, and it may be earlier than before."""
    sandbox = await client.create(BUSYBOX, timeout=timedelta(minutes=10))
    for wanted in (timedelta(hours=1), timedelta(minutes=2)):
        before = datetime.now(UTC)
        renewed = await sandbox.renew(wanted)
        assert abs(renewed.expires_at - (before + wanted)) < timedelta(seconds=5)
        assert (await sandbox.get_info()).expires_at == renewed.expires_at


async def test_sandbox_without_end_cannot_be_renewed(async_client: Client) -> None:
    """Manual clean-up has no end to move: 409."""
    sandbox = await async_client.create(BUSYBOX, timeout=None)
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.renew(timedelta(hours=1))
    assert (refused.value.status_code, refused.value.error.code) == (409, "DOCKER::INVALID_EXPIRATION")


async def test_metadata_patch_merges_and_deletes(client: Client) -> None:
    """Null deletes, other keys stay, and reads and filters agree at once (R19)."""
    mark = unique("patch")
    sandbox = await client.create(BUSYBOX, metadata={"mark": mark, "a": "1", "b": "2"})
    patched = await sandbox.patch_metadata({"a": None, "c": "3", "never-there": None})
    wanted = {"mark": mark, "b": "2", "c": "3"}
    assert patched.metadata == wanted
    assert (await sandbox.patch_metadata({})).metadata == wanted
    assert (await sandbox.get_info()).metadata == wanted
    manager = await client.manager()
    for metadata, count in (({"mark": mark, "c": "3"}, 1), ({"mark": mark, "a": "1"}, 0)):
        found = await manager.list_sandbox_infos(SandboxFilter(metadata=metadata))
        assert len(found.sandbox_infos) == count
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.patch_metadata({"opensandbox.io/x": "1"})
    assert (refused.value.status_code, refused.value.error.code) == (400, "INVALID_METADATA_LABEL")


async def test_list_filters_and_pages(client: Client) -> None:
    """Pages are stable, newest first, and a filter never widens (R20, R22)."""
    mark = unique("list")
    made = [(await client.create(BUSYBOX, metadata={"mark": mark})).id for _ in range(3)]
    manager = await client.manager()
    wanted = list(reversed(made))
    seen: list[str] = []
    for page, more in ((1, True), (2, False)):
        answer = await manager.list_sandbox_infos(
            SandboxFilter(metadata={"mark": mark}, page=page, page_size=2)
        )
        seen += [info.id for info in answer.sandbox_infos]
        assert answer.pagination.has_next_page is more
        assert (answer.pagination.page, answer.pagination.page_size) == (page, 2)
        assert (answer.pagination.total_items, answer.pagination.total_pages) == (3, 2)
    assert seen == wanted
    past = await manager.list_sandbox_infos(SandboxFilter(metadata={"mark": mark}, page=9, page_size=2))
    assert past.sandbox_infos == []
    await manager.pause_sandbox(made[0])
    for states, found in (
        (["Paused"], [made[0]]),
        (["Running"], wanted[:2]),
        (["Running", "Paused"], wanted),
    ):
        answer = await manager.list_sandbox_infos(SandboxFilter(states=states, metadata={"mark": mark}))
        assert [info.id for info in answer.sandbox_infos] == found
    nobody = await manager.list_sandbox_infos(SandboxFilter(metadata={"mark": "nobody"}))
    assert (nobody.sandbox_infos, nobody.pagination.total_items, nobody.pagination.total_pages) == ([], 0, 0)


async def test_pause_keeps_memory_and_resume_goes_on(client: Client) -> None:
    """A paused sandbox says so, refuses a second pause, and its processes go on after resume (R14)."""
    sandbox = await client.create(BUSYBOX)
    started = await sandbox.commands.run(
        "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done", opts=RunCommandOpts(background=True)
    )
    assert started.id is not None
    await sandbox.pause()
    assert (await sandbox.get_info()).status.state == SandboxState.PAUSED
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.pause()
    assert (refused.value.status_code, refused.value.error.code) == (409, "DOCKER::SANDBOX_NOT_RUNNING")
    assert "Paused" in str(refused.value)

    resumed = await client.resume(sandbox.id)
    assert (await resumed.get_info()).status.state == SandboxState.RUNNING
    logs = await resumed.commands.get_background_command_logs(started.id)
    await until(lambda: _more(resumed, started.id or "", logs.cursor or 0))
    manager = await client.manager()
    with pytest.raises(SandboxApiException) as refused:
        await manager.resume_sandbox(sandbox.id)
    assert (refused.value.status_code, refused.value.error.code) == (409, "DOCKER::SANDBOX_NOT_PAUSED")


async def _more(sandbox: Sandbox, command: str, cursor: int) -> str:
    return (await sandbox.commands.get_background_command_logs(command, cursor=cursor)).content


async def test_paused_sandbox_is_refused_fast_through_the_server(site: Site) -> None:
    """A call to a paused sandbox gets 409 at once instead of hanging."""
    client = Client(site, "async", "server-proxy")
    try:
        sandbox = await client.create(BUSYBOX)
        await sandbox.pause()
        async with asyncio.timeout(10):
            with pytest.raises(SandboxApiException) as refused:
                await sandbox.commands.run("true")
        assert refused.value.status_code == 409
        assert "aused" in str(refused.value)
    finally:
        await client.close()


@pytest.mark.parametrize("port", [44772, 8000, 18080])
async def test_endpoints_say_how_to_reach_a_port(client: Client, debian: str, port: int) -> None:
    """Direct endpoints carry execd's token and the server's do not; the API key is in neither (R106)."""
    sandbox = await client.connect(debian, skip_health_check=True)
    endpoint = await sandbox.get_endpoint(port)
    assert "://" not in endpoint.endpoint
    names = {name.lower() for name in endpoint.headers}
    assert KEY_HEADER.lower() not in names
    if client.route == "direct":
        assert endpoint.endpoint.startswith("127.0.0.1:")
        if port == 8000:
            assert endpoint.endpoint.endswith("/proxy/8000")
        assert (
            len({name: value for name, value in endpoint.headers.items() if name.upper() == TOKEN_HEADER})
            == 1
        )
    else:
        assert endpoint.endpoint == f"{client.site.live.domain}/v1/sandboxes/{sandbox.id}/proxy/{port}"
        assert TOKEN_HEADER.lower() not in names


async def test_tokens_differ_between_sandboxes(site: Site, debian: str, busybox: str) -> None:
    """One sandbox's token opens no other sandbox."""
    client = Client(site, "async", "direct")
    try:
        one = await (await client.connect(debian)).get_endpoint(44772)
        other = await (await client.connect(busybox)).get_endpoint(44772)
        assert one.headers != other.headers
        async with site.api() as http:
            mixed = await http.get(f"http://{one.endpoint}/metrics", headers=other.headers)
            right = await http.get(f"http://{one.endpoint}/metrics", headers=one.headers)
        assert (mixed.status_code, right.status_code) == (401, 200)
    finally:
        await client.close()


async def test_metrics_are_of_the_sandbox(sandbox: Sandbox) -> None:
    """Metrics show the sandbox's own limits and use (SDK default: 1 cpu, 2 GiB)."""
    metrics = await sandbox.get_metrics()
    assert metrics.cpu_count == pytest.approx(1)
    assert metrics.memory_total_in_mib == pytest.approx(2048)
    assert 0 < metrics.memory_used_in_mib < 2048
    assert 0 <= metrics.cpu_used_percentage <= 100
    assert abs(metrics.timestamp / 1000 - datetime.now(UTC).timestamp()) < 60


async def test_health_is_reported(sandbox: Sandbox) -> None:
    """A running sandbox is healthy."""
    assert await sandbox.is_healthy()


@pytest.mark.parametrize(
    ("what", "scope"), [("logs", "container"), ("logs", "all"), ("events", "runtime"), ("events", "all")]
)
async def test_diagnostics_come_inline(sandbox: Sandbox, what: str, scope: str) -> None:
    """Each documented scope answers the stable form."""
    read = sandbox.diagnostics.get_logs if what == "logs" else sandbox.diagnostics.get_events
    got = await read(sandbox.id, scope)
    assert (got.sandbox_id, got.kind, got.scope, got.delivery) == (sandbox.id, what, scope, "inline")
    assert got.content
    assert got.content_length == len(got.content.encode())
    assert got.content_type.startswith("text/plain")
    assert bool(got.warnings) is (scope == "all")


async def test_unknown_diagnostics_scope_is_refused(sandbox: Sandbox) -> None:
    """A scope that is not served is refused by code."""
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.diagnostics.get_logs(sandbox.id, "lifecycle")
    assert (refused.value.status_code, refused.value.error.code) == (400, "DIAGNOSTICS_SCOPE_UNSUPPORTED")


async def test_kill_ends_once(client: Client, engine: aiodocker.Docker) -> None:
    """After a kill the sandbox is unknown, a second kill is 404, and no container is left (R11)."""
    sandbox = await client.create(BUSYBOX)
    await sandbox.kill()
    for again in (sandbox.get_info, sandbox.kill):
        with pytest.raises(SandboxApiException) as refused:
            await again()
        assert (refused.value.status_code, refused.value.error.code) == (404, "DOCKER::SANDBOX_NOT_FOUND")
    await removed(engine, sandbox.id)


async def test_manager_does_the_same(client: Client) -> None:
    """The manager reads, changes, pauses, resumes, renews and ends a sandbox by id."""
    sandbox = await client.create(BUSYBOX)
    manager = await client.manager()
    assert (await manager.get_sandbox_info(sandbox.id)).id == sandbox.id
    assert (await manager.patch_sandbox_metadata(sandbox.id, {"k": "v"})).metadata == {"k": "v"}
    await manager.pause_sandbox(sandbox.id)
    assert (await manager.get_sandbox_info(sandbox.id)).status.state == SandboxState.PAUSED
    await manager.resume_sandbox(sandbox.id)
    renewed = await manager.renew_sandbox(sandbox.id, timedelta(hours=2))
    assert renewed.expires_at > datetime.now(UTC) + timedelta(minutes=119)
    assert "running" in ((await manager.get_diagnostic_events(sandbox.id, "runtime")).content or "").lower()
    assert (await manager.get_diagnostic_logs(sandbox.id, "container")).kind == "logs"
    await manager.kill_sandbox(sandbox.id)
    with pytest.raises(SandboxApiException):
        await manager.get_sandbox_info(sandbox.id)


@pytest.mark.parametrize(("status", "state"), [(0, SandboxState.TERMINATED), (3, SandboxState.FAILED)])
async def test_sandbox_ends_with_its_entrypoint(async_client: Client, status: int, state: str) -> None:
    """Exit 0 is Terminated, any other exit is Failed and says its number."""
    sandbox = await async_client.create(
        BUSYBOX, entrypoint=["sh", "-c", f"while [ ! -e /tmp/go ]; do sleep 0.1; done; exit {status}"]
    )
    await sandbox.files.write_file("/tmp/go", "")

    async def ended() -> bool:
        return (await sandbox.get_info()).status.state == state

    await until(ended)
    info = await sandbox.get_info()
    assert info.status.reason
    assert str(status) in (info.status.message or "") or status == 0


async def test_many_are_made_at_once(async_client: Client) -> None:
    """Eight creates at the same time all succeed, each with its own sandbox."""
    made = await asyncio.gather(*(async_client.create(BUSYBOX, env={"N": str(n)}) for n in range(8)))
    ran = await asyncio.gather(*(one.commands.run("echo $N") for one in made))
    assert [texts(one.logs.stdout) for one in ran] == [[str(n)] for n in range(8)]
    assert len({one.id for one in made}) == 8
