"""The `osb` command line, as a person types it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opensandbox import SandboxManagerSync, SandboxSync
from opensandbox.exceptions import SandboxApiException

from tests.e2e.site import BUSYBOX, DEBIAN, MACHINE, MARKS, Route, Site, unique, until

pytestmark = MARKS

OSB = Path(sys.executable).with_name("osb")


@dataclass(frozen=True, slots=True)
class Said:
    """What one call of `osb` printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(slots=True)
class Osb:
    """`osb` with its environment set for one route."""

    environment: dict[str, str]
    flags: tuple[str, ...] = ()
    made: list[str] = field(default_factory=list)

    async def __call__(self, *arguments: str, stdin: bytes | None = None) -> Said:
        process = await asyncio.create_subprocess_exec(
            OSB,
            "--no-color",
            *self.flags,
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        return Said(process.returncode or 0, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: bytes | None = None) -> Said:
        said = await self(*arguments, stdin=stdin)
        assert said.status == 0, (arguments, said)
        return said

    async def create(self, *arguments: str) -> str:
        made = (await self.ok("sandbox", "create", *arguments, "-o", "json")).json
        sandbox_id = str(made["id"] if "id" in made else made["sandbox_id"])
        self.made.append(sandbox_id)
        return sandbox_id


@pytest_asyncio.fixture(loop_scope="session")
async def osb(site: Site, route: Route, tmp_path: Path) -> AsyncIterator[Osb]:
    """Set up `osb` by environment for direct access, and by its flag for the way through the server."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "OPEN_SANDBOX_DOMAIN": site.live.domain,
        "OPEN_SANDBOX_API_KEY": site.live.key,
    }
    osb = Osb(environment, ("--use-server-proxy",) if route == "server-proxy" else ())
    try:
        yield osb
    finally:
        with SandboxManagerSync.create(site.synchronous("direct")) as manager:
            for sandbox_id in osb.made:
                try:
                    manager.kill_sandbox(sandbox_id)
                except SandboxApiException as gone:
                    if gone.status_code != 404:
                        raise


@pytest.fixture(scope="module")
def box(site: Site) -> Iterator[str]:
    """Share one Debian sandbox among the commands that need just one."""
    made = SandboxSync.create(
        DEBIAN, timeout=timedelta(minutes=30), connection_config=site.synchronous("direct")
    )
    try:
        yield made.id
    finally:
        made.destroy()


@pytest.fixture
def place() -> str:
    return f"/tmp/{unique('osb')}"


async def test_life_of_a_sandbox(osb: Osb, route: Route, tmp_path: Path) -> None:
    """create, get, list, health, endpoint, metrics, renew, pause, resume and kill do what they say."""
    mark = unique("osb")
    volumes = tmp_path / "volumes.json"
    volumes.write_text(
        json.dumps(
            [
                {
                    "name": "v",
                    "pvc": {"claimName": mark, "deleteOnSandboxTermination": True},
                    "mountPath": "/data",
                }
            ]
        )
    )
    one = await osb.create(
        *(
            "--image",
            BUSYBOX,
            "--timeout",
            "10m",
            "-e",
            "WHO=agent",
            "-m",
            f"mark={mark}",
            "--resource",
            "cpu=1",
        ),
        *(
            "--resource",
            "memory=256Mi",
            "--extension",
            "opensandbox.extensions.k=v",
            "--volumes-file",
            str(volumes),
        ),
    )
    request = tmp_path / "request.json"
    request.write_text(
        json.dumps(
            {
                "image": {"uri": BUSYBOX},
                "timeout": 600,
                "metadata": {"mark": mark},
                "env": {"A": "b"},
                "platform": {"os": "linux", "arch": MACHINE},
                "entrypoint": ["tail", "-f", "/dev/null"],
                "resourceLimits": {"cpu": "1", "memory": "128Mi"},
            }
        )
    )
    two = await osb.create("-f", str(request))

    got, listed, ran = await asyncio.gather(
        osb.ok("sandbox", "get", one, "-o", "json"),
        osb.ok("sandbox", "list", "-m", f"mark={mark}", "-s", "running", "-o", "json"),
        osb.ok("command", "run", one, "--", "sh", "-c", "echo $WHO"),
    )
    assert got.json["status"]["state"] == "Running"
    assert got.json["metadata"] == {"mark": mark}
    assert got.json["extensions"] == {"opensandbox.extensions.k": "v"}
    assert [item["id"] for item in listed.json["items"]] == [two, one]
    assert ran.out == "agent\n"

    health, endpoint, metrics, paged = await asyncio.gather(
        osb.ok("sandbox", "health", one, "-o", "json"),
        osb.ok("sandbox", "endpoint", one, "--port", "8000", "-o", "json"),
        osb.ok("sandbox", "metrics", one, "-o", "json"),
        osb.ok("sandbox", "list", "-m", f"mark={mark}", "--page", "2", "--page-size", "1", "-o", "json"),
    )
    assert health.json == {"sandbox_id": one, "healthy": True}
    assert ("/v1/sandboxes/" in endpoint.json["endpoint"]) is (route == "server-proxy")
    assert metrics.json["memory_total_in_mib"] == pytest.approx(256)
    assert [item["id"] for item in paged.json["items"]] == [one]

    renewed = await osb.ok("sandbox", "renew", one, "--timeout", "2h", "-o", "json")
    assert renewed.json["sandbox_id"] == one
    assert (await osb.ok("sandbox", "pause", one, "-o", "json")).json["status"] == "ok"
    again = await osb("sandbox", "pause", one)
    assert again.status == 1
    assert "DOCKER::SANDBOX_NOT_RUNNING" in again.err
    assert (await osb.ok("sandbox", "get", one, "-o", "json")).json["status"]["state"] == "Paused"
    await osb.ok("sandbox", "resume", one)
    assert (await osb.ok("sandbox", "health", one, "-o", "json")).json["healthy"] is True

    killed = await osb.ok("sandbox", "kill", one, two, "-o", "json")
    assert [row["sandbox_id"] for row in killed.json] == [one, two]
    gone, empty = await asyncio.gather(
        osb("sandbox", "get", one), osb.ok("sandbox", "list", "-m", f"mark={mark}", "-o", "json")
    )
    assert gone.status == 1
    assert "DOCKER::SANDBOX_NOT_FOUND" in gone.err
    assert (empty.json["items"], empty.json["pagination"]["total_items"]) == ([], 0)


async def test_metrics_are_watched(osb: Osb, box: str) -> None:
    """`metrics --watch` prints one sample after another as they come."""
    process = await asyncio.create_subprocess_exec(
        OSB,
        *("--no-color", *osb.flags, "sandbox", "metrics", box, "--watch", "-o", "json"),
        env={**osb.environment, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            samples = [json.loads(await process.stdout.readline()) for _ in range(2)]
    finally:
        process.terminate()
        await process.communicate()
    assert samples[0]["timestamp"] < samples[1]["timestamp"]
    assert samples[0]["memory_total_in_mib"] == pytest.approx(2048)


async def test_command_run_streams_and_tells_failure(osb: Osb, box: str, place: str) -> None:
    """Success is 0 and failure is 1 with the exit code named; the shell, argv, -w and -t do what they say."""
    fine, failed, argv, where, late = await asyncio.gather(
        osb("command", "run", box, "--", "sh", "-c", "echo out; echo err >&2"),
        osb("command", "run", box, "--", "sh", "-c", "exit 7"),
        osb("command", "run", box, "--argv", "--", "printf", "%s|", "$HOME", "it's", ""),
        osb("command", "run", box, "-w", "/var", "--", "pwd"),
        osb("command", "run", box, "-t", "1s", "--", "sleep", "30"),
    )
    assert (fine.status, fine.out, fine.err) == (0, "out\n", "err")
    assert failed.status == 1
    assert "CommandExecError: 7" in failed.err
    assert (argv.status, argv.out) == (0, "$HOME|it's||\n")
    assert (where.status, where.out) == (0, "/var\n")
    assert late.status == 1
    missing = await osb("command", "run", box, "-w", place, "--", "pwd")
    assert missing.status == 1
    assert place in missing.err


async def test_background_commands_are_followed(osb: Osb, box: str) -> None:
    """-d gives an id; status, logs with a cursor and interrupt take it."""
    started = (
        await osb.ok("command", "run", box, "-d", "-o", "json", "--", "sh", "-c", "echo one; sleep 60")
    ).json
    assert (started["sandbox_id"], started["mode"]) == (box, "background")
    execution = started["execution_id"]

    async def logged() -> Any:
        logs = (await osb.ok("command", "logs", box, execution, "-o", "json")).json
        return logs if logs["content"] else None

    status, logs = await asyncio.gather(
        osb.ok("command", "status", box, execution, "-o", "json"), until(logged)
    )
    assert (status.json["id"], status.json["running"]) == (execution, True)
    assert logs["content"] == "one\n"
    rest = await osb.ok("command", "logs", box, execution, "--cursor", str(logs["cursor"]), "-o", "raw")
    assert rest.out.strip() == ""
    await osb.ok("command", "interrupt", box, execution)
    ended = (await osb.ok("command", "status", box, execution, "-o", "json")).json
    assert ended["running"] is False
    assert ended["exit_code"] != 0


async def test_sessions_are_kept(osb: Osb, box: str, place: str) -> None:
    """A session keeps its directory and what it exports between calls of `osb`."""
    made = (await osb.ok("command", "session", "create", box, "-w", place, "-o", "json")).json
    session = made["session_id"]
    await osb.ok("command", "session", "run", box, session, "--", "export", "X=kept")
    seen = await osb.ok("command", "session", "run", box, session, "--", "eval", 'echo "$X $PWD"')
    assert seen.out == f"kept {place}\n"
    failed, there = await asyncio.gather(
        osb("command", "session", "run", box, session, "--", "sh", "-c", "exit 4"),
        osb.ok("command", "session", "run", box, session, "-w", "/var", "--", "pwd"),
    )
    assert (failed.status, "CommandExecError: 4" in failed.err) == (1, True)
    assert there.out == "/var\n"
    assert session in (await osb.ok("command", "session", "delete", box, session)).out
    assert (await osb("command", "session", "delete", box, session)).status == 1


async def test_files_come_and_go(osb: Osb, box: str, place: str, tmp_path: Path) -> None:
    """Every file command does what it says."""
    local, back = tmp_path / "local.bin", tmp_path / "back.bin"
    local.write_bytes(bytes(range(256)) * 500)
    await osb.ok("file", "mkdir", box, f"{place}/d", "--mode", "750", "-o", "json")
    await asyncio.gather(
        osb.ok("file", "write", box, f"{place}/a.txt", "-c", "red and red", "--mode", "640"),
        osb.ok("file", "write", box, f"{place}/in.txt", stdin="von stdin é\n".encode()),
        osb.ok("file", "upload", box, str(local), f"{place}/d/local.bin"),
    )
    cat, info, found, _ = await asyncio.gather(
        osb.ok("file", "cat", box, f"{place}/in.txt"),
        osb.ok("file", "info", box, f"{place}/a.txt", f"{place}/d", "-o", "json"),
        osb.ok("file", "search", box, place, "-p", "*.txt", "-o", "json"),
        osb.ok("file", "download", box, f"{place}/d/local.bin", str(back)),
    )
    assert cat.out == "von stdin é\n"
    assert [(row["path"], row["mode"]) for row in info.json] == [(f"{place}/a.txt", 640), (f"{place}/d", 750)]
    assert sorted(row["path"] for row in found.json) == [f"{place}/a.txt", f"{place}/in.txt"]
    assert back.read_bytes() == local.read_bytes()

    await asyncio.gather(
        osb.ok("file", "replace", box, f"{place}/a.txt", "--old", "red", "--new", "blue"),
        osb.ok(
            "file", "chmod", box, f"{place}/in.txt", "--mode", "600", "--owner", "daemon", "--group", "daemon"
        ),
    )
    await osb.ok("file", "mv", box, f"{place}/a.txt", f"{place}/b/c.txt")
    changed, owned, _ = await asyncio.gather(
        osb.ok("file", "cat", box, f"{place}/b/c.txt"),
        osb.ok("file", "info", box, f"{place}/in.txt", "-o", "json"),
        osb.ok("file", "rmdir", box, f"{place}/d"),
    )
    assert changed.out == "blue and blue"
    assert (owned.json[0]["mode"], owned.json[0]["owner"]) == (600, "daemon")
    await osb.ok("file", "rm", box, f"{place}/in.txt", f"{place}/never")
    gone, left = await asyncio.gather(
        osb("file", "cat", box, f"{place}/in.txt"),
        osb.ok("file", "search", box, place, "-p", "*", "-o", "json"),
    )
    assert (gone.status, "FILE_NOT_FOUND" in gone.err) == (1, True)
    assert [row["path"] for row in left.json] == [f"{place}/b/c.txt"]


@pytest.mark.parametrize("route", ["direct"], indirect=True)  # the lifecycle API has one route only
async def test_diagnostics_are_shown(osb: Osb) -> None:
    """diagnostics (stable) and devops (plain text) show logs, events, inspection and summary."""
    box = await osb.create(
        "-i", BUSYBOX, "-t", "10m", "--entrypoint", "sh -c 'echo first words; exec tail -f /dev/null'"
    )
    said = await asyncio.gather(
        osb.ok("diagnostics", "logs", box, "--scope", "container"),
        osb.ok("diagnostics", "events", box, "--scope", "runtime", "-o", "json"),
        osb.ok("devops", "logs", box, "--tail", "10"),
        osb.ok("devops", "events", box),
        osb.ok("devops", "inspect", box),
        osb.ok("devops", "summary", box),
        osb("diagnostics", "logs", box, "--scope", "nonsense"),
        osb("devops", "logs", "no-such-sandbox"),
    )
    logs, events, plain, plain_events, inspected, summary, bad, unknown = said
    assert "first words" in logs.out
    assert (events.json["kind"], events.json["delivery"]) == ("events", "inline")
    assert "first words" in plain.out
    assert plain_events.out.strip()
    assert box in inspected.out
    assert "first words" in summary.out
    assert (bad.status, "DIAGNOSTICS_SCOPE_UNSUPPORTED" in bad.err) == (1, True)
    assert unknown.status == 1


@pytest.mark.parametrize("route", ["direct"], indirect=True)  # the lifecycle API has one route only
async def test_refusals_exit_with_one(osb: Osb, tmp_path: Path) -> None:
    """What this version lacks, and a wrong key, end with status 1 and the reason on standard error."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"defaultAction": "deny", "egress": []}))
    stranger = Osb({**osb.environment, "OPEN_SANDBOX_API_KEY": "not-the-key"}, osb.flags)
    said = await asyncio.gather(
        osb("sandbox", "create", "-i", BUSYBOX, "--network-policy-file", str(policy)),
        osb("snapshot", "list"),
        osb("template", "list"),
        osb("sandbox", "create", "-i", f"boxwright/{unique('nowhere')}:none"),
        stranger("sandbox", "list"),
    )
    for one, word in zip(
        said,
        (
            "networkPolicy",
            "SNAPSHOT::NOT_IMPLEMENTED",
            "FSB::API_NOT_SUPPORTED",
            "nowhere",
            "INVALID_API_KEY",
        ),
        strict=True,
    ):
        assert one.status == 1
        assert word in one.err.replace("\n", "")
