"""Every kind of image, each through its whole life; and a root file system that is read-only."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiodocker
import httpx
import pytest
import pytest_asyncio
from opensandbox import Sandbox
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.sandboxes import SandboxState

from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.runtime import DockerRuntime
from gateway.sandboxes.model import BundleMount, Hardening, Limits, SandboxPlan
from images import bundle
from images.local import reference
from tests.e2e.site import (
    BUSYBOX,
    MARKS,
    STATIC,
    TOKEN_HEADER,
    Client,
    Site,
    endpoint_headers,
    frames,
    removed,
    texts,
    unique,
    until,
)
from tests.prepare import debian_image

pytestmark = MARKS

PORT: Final = 8080
ROOT: Final = Path(__file__).resolve().parents[2]
CONTENT: Final = bytes(range(256)) * 400

PERL: Final = (
    "use IO::Socket::INET; my $door = IO::Socket::INET->new(LocalPort => 8080, Listen => 9, ReuseAddr => 1);"
    'while (my $one = $door->accept) { while (<$one>) { last if /^\\r?$/ } print $one "HTTP/1.0 200 OK\\r\\n\\r\\nperl\\n" }'
)
NODE: Final = (
    "require('http').createServer((_, answer) => answer.end('node ' + process.version + '\\n')).listen(8080)"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One image: what a command says in it, and the service that it can run.

    Attributes:
        asked: a command line, or an argument list where there is no shell.
        said: its lines; None = what is asked cannot tell.
        serve: starts a service on port 8080.
        served: what its answer has in it.
        home: where commands start.
        user: whose the workload's files are.
    """

    image: str
    asked: str
    said: tuple[str, ...]
    serve: str | list[str]
    served: str
    shell: bool = True
    home: str = "/"
    user: int = 0


KINDS: Final = {
    **{
        f"debian{number}": Kind(
            debian_image(number) or "",
            ". /etc/os-release; echo $ID $VERSION_ID; bash -c 'echo ${BASH_VERSION%%.*}'",
            (f"debian {number}", "5"),
            ["perl", "-e", PERL],
            "perl",
        )
        for number in (12, 13)
    },
    "busybox": Kind(
        BUSYBOX,
        "readlink /bin/sh; id -un",
        ("busybox", "root"),
        "echo box > /tmp/index.html; httpd -f -p 8080 -h /tmp",
        "box",
    ),
    "musl": Kind(
        reference("musl"),
        "ls /lib; head -c 4096 /app | grep -ao '/lib/ld-musl[^.]*'",
        (f"ld-musl-{os.uname().machine}.so.1", f"/lib/ld-musl-{os.uname().machine}"),
        ["/app", "8080"],
        "hello from static",
    ),
    "static": Kind(STATIC, "", (), ["/app", "8080"], "hello from static", shell=False),
    "python": Kind(
        reference("python"),
        "echo $PYTHONHOME $PYTHONPATH; python -c 'import sys, ssl, json; print(sys.prefix, sys.path[1])'",
        ("/usr /srv/app", "/usr /srv/app"),
        ["python3", "-m", "http.server", "8080"],
        "Directory listing",
        home="/srv/app",
    ),
    "node": Kind(
        reference("node"),
        "node -p 'process.env.NODE_ENV'; echo $NODE_OPTIONS",
        ("production", "--max-old-space-size=128"),
        ["node", "-e", NODE],
        "node v",
    ),
    "dressed": Kind(
        reference("dressed"),
        "id -un; id -gn; echo $HOME; touch /data/x && stat -c %U /data/x; touch /etc/x 2>/dev/null || echo denied",
        ("agent", "agent", "/home/agent", "agent", "denied"),
        "cd /tmp && echo dressed > index.html && httpd -f -p 8080",
        "dressed",
        home="/home/agent/work",
        user=1000,
    ),
}


@pytest.mark.parametrize("name", KINDS)
async def test_image_lives_its_whole_life(site: Site, engine: aiodocker.Docker, name: str) -> None:
    """Create, command, session, files, port, pause, resume and kill work in any image, and nothing stays."""
    kind = KINDS[name]
    if not kind.image:
        pytest.skip(
            "this machine's packages are not Debian's, so no other Debian release can be made of them"
        )
    client = Client(site, "async", "direct")
    try:
        sandbox = await client.create(kind.image, env={"GREETING": "hello  $world"})
        assert (await sandbox.get_info()).status.state == SandboxState.RUNNING
        volumes = await _volumes(engine, sandbox.id)
        if kind.shell:
            await _commands(sandbox, kind)
        await _files(sandbox, kind)
        await _service(client, sandbox, kind)
        await sandbox.kill()
        await removed(engine, sandbox.id)
        assert not volumes & set(await _all_volumes(engine))
    finally:
        await client.close()


async def _all_volumes(engine: aiodocker.Docker) -> list[str]:
    found = await engine._query_json("volumes")
    return [one["Name"] for one in found["Volumes"] or ()]


async def _volumes(engine: aiodocker.Docker, sandbox_id: str) -> set[str]:
    """Name the volumes that the engine made for the image's sake."""
    container: dict[str, Any] = await (await engine.containers.get(f"sandbox-{sandbox_id}")).show()
    return {mount["Name"] for mount in container["Mounts"] if mount["Type"] == "volume"}


async def _commands(sandbox: Sandbox, kind: Kind) -> None:
    done = await sandbox.commands.run(kind.asked)
    assert (tuple(texts(done.logs.stdout)), done.exit_code) == (kind.said, 0), done
    done = await sandbox.commands.run('echo "$GREETING"; pwd; echo bad >&2; exit 3')
    assert texts(done.logs.stdout) == ["hello  $world", kind.home]
    assert (texts(done.logs.stderr), done.exit_code) == (["bad"], 3)
    session = await sandbox.commands.create_session()
    await sandbox.commands.run_in_session(session, "cd /usr; export KEPT=yes")
    kept = await sandbox.commands.run_in_session(session, 'echo "$KEPT $PWD"')
    assert texts(kept.logs.stdout) == ["yes /usr"]
    await sandbox.commands.delete_session(session)


async def _files(sandbox: Sandbox, kind: Kind) -> None:
    path = f"/tmp/{unique('matrix')}/ü file"
    await sandbox.files.write_file(path, CONTENT, mode=640)
    assert await sandbox.files.read_bytes(path) == CONTENT
    entry = (await sandbox.files.get_file_info([path]))[path]
    assert (entry.size, entry.mode) == (len(CONTENT), 640)
    if kind.shell:
        seen = await sandbox.commands.run(f"wc -c < '{path}'; ls -ln '{path}'")
        count, listed = texts(seen.logs.stdout)
        assert (int(count), listed.split()[2]) == (len(CONTENT), str(kind.user))
    await sandbox.files.delete_files([path])


async def _service(client: Client, sandbox: Sandbox, kind: Kind) -> None:
    """Reach a service on both routes, and once more when a pause has come and gone."""
    started = await sandbox.commands.run(kind.serve, opts=RunCommandOpts(background=True))
    assert started.id is not None
    behind = Client(client.site, "async", "server-proxy")
    try:
        far = await behind.connect(sandbox.id, skip_health_check=True)
        near_door, far_door = await asyncio.gather(sandbox.get_endpoint(PORT), far.get_endpoint(PORT))
        near_headers = endpoint_headers(near_door, client.config())
        far_headers = endpoint_headers(far_door, behind.config())
    finally:
        await behind.close()
    async with httpx.AsyncClient(timeout=10) as http:

        async def served(url: str, headers: dict[str, str]) -> str | None:
            answer = await http.get(f"http://{url}/", headers=headers)
            return None if answer.status_code == 502 else answer.text

        for door, headers in ((near_door, near_headers), (far_door, far_headers)):
            assert kind.served in await until(partial(served, door.endpoint, headers), pause=0.05)
        await sandbox.pause()
        assert (await sandbox.get_info()).status.state == SandboxState.PAUSED
        resumed = await client.resume(sandbox.id)
        assert (await resumed.commands.get_command_status(started.id)).running is True
        door = await resumed.get_endpoint(PORT)
        headers = endpoint_headers(door, client.config())
        assert kind.served in str(await served(door.endpoint, headers))
        await resumed.commands.interrupt(started.id)


async def test_what_the_image_would_run_by_itself_does_not_run(site: Site, engine: aiodocker.Docker) -> None:
    """The image's ENTRYPOINT and HEALTHCHECK stay silent: the request says what runs."""
    client = Client(site, "async", "direct")
    try:
        sandbox = await client.create(
            reference("dressed"), entrypoint=["sh", "-c", "echo mine; exec tail -f /dev/null"]
        )
        container = await (await engine.containers.get(f"sandbox-{sandbox.id}")).show()
        assert "Health" not in container["State"]
        async with client.site.api(headers={"Accept": "text/plain"}) as api:

            async def logged() -> str:
                answer = await api.get(f"/sandboxes/{sandbox.id}/diagnostics/logs")
                return answer.text if "mine" in answer.text else ""

            assert "entry of the image" not in await until(logged)
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class Sealed:
    """execd inside a container whose root file system nobody can write to."""

    http: httpx.AsyncClient

    async def run(self, command: str) -> tuple[list[str], int | None]:
        answer = await self.http.post("/command", json={"command": command})
        assert answer.status_code == 200, answer.text
        seen = frames(answer.text)
        lines = [one["text"] for one in seen if one["type"] == "stdout"]
        failed = [one["error"]["evalue"] for one in seen if one["type"] == "error"]
        return lines, int(failed[0]) if failed else 0


@pytest_asyncio.fixture(loop_scope="session", params=["debian", "busybox"])
async def sealed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sealed]:
    """Start one through the gateway's own runtime; no request can ask for it yet."""
    made = bundle.build("frozen", source_root=ROOT, cache=bundle.default_cache(os.environ), report=print)
    token, engine = uuid.uuid4().hex, Engine(EngineSettings())
    plan = SandboxPlan(
        sandbox_id=unique("sealed"),
        instance=unique("test"),
        image=reference(str(request.param)),
        platform=None,
        auth=None,
        entrypoint=("tail", "-f", "/dev/null"),
        env=(),
        token_hash="sha256:" + hashlib.sha256(token.encode()).hexdigest(),
        labels=(),
        limits=Limits(memory_bytes=128 << 20, pids=64),
        mounts=(),
        extra_binds=(),
        hardening=Hardening(drop_capabilities=("ALL",), read_only_root=True),
        bundle=BundleMount(str(made.path), made.entrypoint),
        network="bridge",
        publish_host="127.0.0.1",
        publish_ports=(21000, 31000),
        runtime=None,
        stop_grace_seconds=1,
    )
    runtime = DockerRuntime(engine, instance=plan.instance, parallel_starts=1, hold_dir=tmp_path)
    try:
        await runtime.ensure_image(plan.image, plan, None, lambda _: None)
        await runtime.create(plan)
        where = await runtime.start(plan.sandbox_id)
        url = f"http://{where.published_host}:{where.published_port}"
        async with httpx.AsyncClient(base_url=url, headers={TOKEN_HEADER: token}, timeout=15) as http:
            yield Sealed(http)
    finally:
        await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0)
        await engine.close()


async def test_read_only_root_is_enough(sealed: Sealed) -> None:
    """Commands, sessions and files work where only /tmp can be written, and the root refuses by name."""
    assert await sealed.run("echo one; touch /tmp/a && echo two; touch /a 2>/dev/null || exit 5") == (
        ["one", "two"],
        5,
    )
    session = (await sealed.http.post("/session", json={})).json()["session_id"]
    kept = []
    for command in ("cd /tmp; export KEPT=yes", 'echo "$KEPT $PWD"'):
        answer = await sealed.http.post(f"/session/{session}/run", json={"command": command})
        kept = [one["text"] for one in frames(answer.text) if one["type"] == "stdout"]
    assert kept == ["yes /tmp"]
    assert (await sealed.http.delete(f"/session/{session}")).status_code == 200

    async def upload(path: str) -> httpx.Response:
        parts: dict[str, tuple[str, str | bytes, str]] = {
            "metadata": ("metadata", f'{{"path": "{path}", "mode": 640}}', "application/json"),
            "file": ("file", CONTENT, "application/octet-stream"),
        }
        return await sealed.http.post("/files/upload", files=parts)

    assert (await upload("/tmp/in/file")).status_code == 200
    assert (await sealed.http.get("/files/download", params={"path": "/tmp/in/file"})).content == CONTENT
    refused = await upload("/root/file")
    assert refused.status_code in range(400, 600)
    assert "read-only" in refused.json()["message"].lower(), refused.text
