"""gateway/runtimes/docker/runtime.py against a real engine."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.request
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.runtimes.docker.runtime import DockerRuntime
from gateway.sandboxes.model import Limits, Mount, Observed, Platform
from images.local import reference
from specs.errors import (
    BoxwrightError,
    DeleteFailed,
    EntrypointFailed,
    ImagePullFailed,
    ImageRefused,
    SandboxNotFound,
    SandboxNotRunning,
    StartFailed,
    VolumeError,
)
from tests.integration.docker.conftest import Maker

pytestmark = pytest.mark.engine


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("image", ["debian", "busybox", "static"])
async def test_a_sandbox_lives_from_create_to_remove(
    maker: Maker, runtime: DockerRuntime, image: str
) -> None:
    """
    Every verb of a life works, and works twice, in an image with and without a shell.
    """
    plan = maker.plan(image=reference(image))
    address = await maker.run(plan)
    sandbox = plan.sandbox_id

    assert address.published_host == "127.0.0.1"
    assert address.published_port is not None
    assert 21000 <= address.published_port <= 31000
    for url in (
        f"http://127.0.0.1:{address.published_port}/ping",
        f"http://{address.ip}:{address.port}/ping",
    ):
        assert await asyncio.to_thread(fetch, url) == "pong"

    await runtime.create(plan)
    assert await runtime.start(sandbox) == address
    seen = await runtime.observe(sandbox)
    assert seen is not None
    assert (seen.phase, seen.address, seen.exit_code) == ("running", address, None)
    assert seen.started_at is not None
    assert [one.sandbox_id for one in await runtime.observe_all()] == [sandbox]

    for _ in range(2):
        await runtime.pause(sandbox)
        seen = await runtime.observe(sandbox)
        assert seen is not None
        assert (seen.phase, seen.address) == ("paused", address)
    assert await runtime.start(sandbox) == address
    for _ in range(2):
        await runtime.resume(sandbox)
    assert await asyncio.to_thread(fetch, f"http://127.0.0.1:{address.published_port}/ping") == "pong"

    for _ in range(2):
        await runtime.remove(sandbox, volumes=(), grace_seconds=1)
    assert await runtime.observe(sandbox) is None


async def test_verbs_on_what_does_not_exist(runtime: DockerRuntime) -> None:
    """
    Absence is said as such by every verb but remove, which wants it.
    """
    assert await runtime.observe("nope") is None
    await runtime.remove("nope", volumes=("boxwright-nope",), grace_seconds=1)
    for verb in (runtime.start, runtime.pause, runtime.resume, runtime.inspect_text):
        with pytest.raises(SandboxNotFound):
            await verb("nope")
    with pytest.raises(SandboxNotFound):
        await runtime.logs("nope", tail=10, since=None, timestamps=False)


async def test_an_ended_sandbox_cannot_be_paused(maker: Maker, runtime: DockerRuntime) -> None:
    """
    The conflict names the state.
    """
    plan = maker.plan("exit 3")
    await maker.output(plan)

    for verb in (runtime.pause, runtime.resume):
        with pytest.raises(SandboxNotRunning, match="exited"):
            await verb(plan.sandbox_id)
    seen = await runtime.observe(plan.sandbox_id)
    assert seen is not None
    assert (seen.phase, seen.exit_code, seen.address) == ("exited", 3, None)


async def test_an_entrypoint_that_ends_at_once_is_told_with_its_last_words(maker: Maker) -> None:
    """
    The reader sees the exit code and what the program said.
    """
    plan = maker.plan(bundle=replace(maker.bundle, entrypoint=("/opt/boxwright/busybox", "ls", "/absent")))

    with pytest.raises((EntrypointFailed, StartFailed)) as caught:
        await maker.run(plan)
        # A process may live a moment longer than the start call; then the end is observed.
        await maker.runtime.engine.wait_container(f"sandbox-{plan.sandbox_id}", "not-running", 10.0)
        await maker.runtime.start(plan.sandbox_id)
        raise EntrypointFailed("/absent was listed")
    assert "/absent" in str(caught.value)


async def test_a_missing_program_is_an_entrypoint_failure(maker: Maker) -> None:
    """
    Not an internal error: the caller can mend it.
    """
    plan = maker.plan(bundle=replace(maker.bundle, entrypoint=("/opt/boxwright/none",)))

    with pytest.raises(EntrypointFailed, match="/opt/boxwright/none"):
        await maker.run(plan)


async def test_the_workload_is_confined(maker: Maker) -> None:
    """
    Seen from inside: capabilities dropped, no new privileges, seccomp on, bundle read-only.
    """
    command = """
        b=/opt/boxwright/busybox
        $b grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status
        $b touch /opt/boxwright/x 2>&1
        $b mount -t tmpfs x /mnt 2>&1
        $b ls -ld /run/boxwright
        $b grep ' /run/boxwright ' /proc/mounts
        echo id=$OPENSANDBOX_ID envs=$EXECD_ENVS
    """
    plan = maker.plan(command)
    said = await maker.output(plan)

    bounding = int(re.search(r"CapBnd:\s+([0-9a-f]+)", said)[1], 16)  # type: ignore[index]
    for number in (21, 12, 13, 19, 27, 29):  # SYS_ADMIN, NET_ADMIN, NET_RAW, SYS_PTRACE, MKNOD, AUDIT_WRITE
        assert not bounding >> number & 1
    assert re.search(r"NoNewPrivs:\s+1", said)
    assert re.search(r"Seccomp:\s+2", said)
    assert "Read-only file system" in said
    assert "mount: " in said
    assert "drwxrwxrwt" in said
    assert re.search(r"tmpfs /run/boxwright .*nosuid,nodev.*size=65536k", said)
    assert f"id={plan.sandbox_id} envs=/run/boxwright/env/vars" in said


async def test_limits_are_the_kernels(maker: Maker, runtime: DockerRuntime) -> None:
    """
    Memory and processes are bounded by the kernel, without extra swap.
    """
    command = (
        "c=/sys/fs/cgroup; cd $c; for f in pids/pids.max pids.max memory/memory.limit_in_bytes memory.max; "
        "do [ -e $f ] && /opt/boxwright/busybox cat $f; done; :"
    )
    plan = maker.plan(command, limits=Limits(nano_cpus=500_000_000, memory_bytes=32 << 20, pids=50))
    assert (await maker.output(plan)).split() == ["50", str(32 << 20)]

    inspect = await runtime.engine.inspect_container(f"sandbox-{plan.sandbox_id}")
    assert inspect["HostConfig"]["MemorySwap"] == 32 << 20
    assert inspect["HostConfig"]["NanoCpus"] == 500_000_000


async def test_running_out_of_memory_is_observed(maker: Maker, runtime: DockerRuntime) -> None:
    """
    The kill is not mistaken for an ordinary exit.
    """
    plan = maker.plan("exec /opt/boxwright/busybox tail /dev/zero", limits=Limits(memory_bytes=16 << 20))
    await maker.output(plan)

    seen = await runtime.observe(plan.sandbox_id)
    assert seen is not None
    assert (seen.oom_killed, seen.exit_code) == (True, 137)


async def test_logs_have_tail_since_and_timestamps(maker: Maker, runtime: DockerRuntime) -> None:
    """
    Both streams come, the newest lines only, with the engine's time when asked.
    """
    plan = maker.plan("for i in 1 2 3; do echo out$i; done; echo err >&2")
    assert sorted((await maker.output(plan)).split()) == ["err", "out1", "out2", "out3"]

    sandbox = plan.sandbox_id
    assert len((await runtime.logs(sandbox, tail=2, since=None, timestamps=False)).splitlines()) == 2
    stamped = await runtime.logs(sandbox, tail=1, since=None, timestamps=True)
    assert re.match(r"\d{4}-\d\d-\d\dT\S+Z ", stamped)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert await runtime.logs(sandbox, tail=10, since=later, timestamps=False) == ""


async def test_the_description_hides_secrets(maker: Maker, runtime: DockerRuntime) -> None:
    """
    No value of the user's environment is in the text, whatever its name; its name is.
    """
    plan = maker.plan(env=(("DB_PASSWORD", "planted"), ("COLOUR", "planted-too")))
    await maker.run(plan)
    text = await runtime.inspect_text(plan.sandbox_id)

    assert "planted" not in text
    assert "COLOUR=" in text
    assert "State:       running" in text


async def test_removal_gives_the_grace_and_no_more(maker: Maker, runtime: DockerRuntime) -> None:
    """
    TERM is delivered; who ignores it is killed after the grace; grace 0 kills at once; paused is no obstacle.
    """
    loop = asyncio.get_running_loop()
    deaf = maker.plan("trap '' TERM; while :; do /opt/boxwright/busybox sleep 1; done")
    polite = maker.plan("trap 'exit 0' TERM; while :; do /opt/boxwright/busybox sleep 0.1; done")

    for plan, grace, paused, least, most in (
        (polite, 20, False, 0.0, 8.0),
        (deaf, 1, False, 1.0, 8.0),
        (deaf, 0, False, 0.0, 5.0),
        (deaf, 1, True, 0.0, 8.0),
    ):
        await maker.run(plan)
        if paused:
            await runtime.pause(plan.sandbox_id)
        began = loop.time()
        await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=grace)
        assert least <= loop.time() - began < most
        assert await runtime.observe(plan.sandbox_id) is None


async def test_concurrent_removals_agree(maker: Maker, runtime: DockerRuntime) -> None:
    """
    Two callers remove the same sandbox and both are told that it is gone.
    """
    plan = maker.plan()
    await maker.run(plan)

    await asyncio.gather(*(runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0) for _ in range(3)))
    assert await runtime.observe(plan.sandbox_id) is None


async def test_a_foreign_container_of_the_same_name_is_not_taken(
    maker: Maker, runtime: DockerRuntime
) -> None:
    """
    The name alone proves nothing.
    """
    plan = maker.plan(instance="someone-else")
    await runtime.create(plan)

    with pytest.raises(StartFailed, match="another installation"):
        await runtime.create(replace(plan, instance=runtime._instance))
    await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0)


async def test_the_engine_chooses_free_ports_until_none_is_left(maker: Maker) -> None:
    """
    A port taken outside the engine is passed over; an exhausted range is a clear failure.
    """
    with socket.socket() as taken:
        low = 61010
        taken.bind(("127.0.0.1", low))
        taken.listen()
        plans = [maker.plan(publish_ports=(low, low + 2)) for _ in range(3)]
        found = await asyncio.gather(*(maker.run(plan) for plan in plans[:2]))
        assert {address.published_port for address in found} == {low + 1, low + 2}
        with pytest.raises(StartFailed):
            await maker.run(plans[2])


async def test_changes_follow_the_engine(maker: Maker, runtime: DockerRuntime) -> None:
    """
    What exists is told first, then each change as it happens, the end included.
    """
    before = maker.plan("exec sleep 60")
    await maker.run(before)
    seen: asyncio.Queue[Observed] = asyncio.Queue()

    async def follow() -> None:
        async with aclosing(runtime.changes()) as changes:  # type: ignore[type-var]
            async for one in changes:
                seen.put_nowait(one)

    async def wait_for(sandbox: str, phase: str) -> Observed:
        async with asyncio.timeout(10):
            while True:
                one = await seen.get()
                if (one.sandbox_id, one.phase) == (sandbox, phase):
                    return one

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        await wait_for(before.sandbox_id, "running")
        await runtime.pause(before.sandbox_id)
        await wait_for(before.sandbox_id, "paused")
        await runtime.resume(before.sandbox_id)
        await wait_for(before.sandbox_id, "running")
        ends = maker.plan("exit 4")
        await runtime.create(ends)
        await runtime._start(f"sandbox-{ends.sandbox_id}")
        assert (await wait_for(ends.sandbox_id, "exited")).exit_code == 4
        await runtime.remove(ends.sandbox_id, volumes=(), grace_seconds=0)
        assert (await wait_for(ends.sandbox_id, "gone")).instance == runtime._instance
        task.cancel()


# -- images ------------------------------------------------------------------------


async def test_a_local_image_is_not_pulled(maker: Maker, runtime: DockerRuntime) -> None:
    """
    No registry is asked for what is here and fits.
    """
    plan = maker.plan(platform=Platform("linux", "amd64"))
    said: list[str] = []
    await runtime.ensure_image(plan.image, plan, None, said.append)

    assert said == []


@pytest.mark.parametrize(
    ("platform", "words"),
    [(Platform("linux", "arm64"), "linux/arm64"), (Platform("windows", "amd64"), "windows/amd64")],
)
async def test_a_platform_the_engine_lacks_is_refused(
    maker: Maker, runtime: DockerRuntime, platform: Platform, words: str
) -> None:
    """
    Wanted and found are both named.
    """
    plan = maker.plan(platform=platform)
    with pytest.raises(ImageRefused, match=words):
        await runtime.ensure_image(plan.image, plan, None, lambda _: None)


async def test_an_unreachable_registry_is_a_failure_and_a_bad_name_a_refusal(
    maker: Maker, runtime: DockerRuntime
) -> None:
    """
    Only the second is the caller's to mend.
    """
    for image, kind in (("127.0.0.1:1/a/b:1", ImagePullFailed), ("UPPER/Case", ImageRefused)):
        plan = maker.plan(image=image)
        with pytest.raises(BoxwrightError) as caught:
            await runtime.ensure_image(image, plan, None, lambda _: None)
        assert type(caught.value) is kind, caught.value


# -- volumes -----------------------------------------------------------------------


async def test_named_volumes_are_made_and_taken_away(maker: Maker, runtime: DockerRuntime) -> None:
    """
    What the request created goes with it; what was there before stays.
    """
    mine, theirs = maker.volume(), maker.volume()
    await runtime.engine.create_volume({"Name": theirs})
    mounts = (Mount("a", "volume", mine, "/a"), Mount("b", "volume", theirs, "/b", read_only=True))
    plan = maker.plan("echo hi > /a/f; echo hi > /b/f; cat /a/f", mounts=mounts)
    assert await runtime.missing_volumes(plan) == (mine,)

    said = await maker.output(plan)
    assert "Read-only file system" in said
    assert "hi\n" in said
    assert await runtime.missing_volumes(plan) == ()

    await runtime.remove(plan.sandbox_id, volumes=(mine, theirs), grace_seconds=0)
    assert await runtime._volume(mine) is None
    assert await runtime._volume(theirs) is not None


async def test_a_volume_in_use_is_not_lost_from_sight(maker: Maker, runtime: DockerRuntime) -> None:
    """
    Removal says what is still there, and succeeds once nothing holds it.
    """
    name = maker.volume()
    mounts = (Mount("a", "volume", name, "/a"),)
    first, second = maker.plan(mounts=mounts), maker.plan(mounts=mounts)
    await maker.run(first)
    await maker.run(second)

    with pytest.raises(DeleteFailed, match=name):
        await runtime.remove(first.sandbox_id, volumes=(name,), grace_seconds=0)
    await runtime.remove(second.sandbox_id, volumes=(name,), grace_seconds=0)
    assert await runtime._volume(name) is not None  # the second did not make it
    await runtime.remove(first.sandbox_id, volumes=(name,), grace_seconds=0)
    assert await runtime._volume(name) is None


async def test_missing_things_are_refused_with_their_code(maker: Maker, runtime: DockerRuntime) -> None:
    """
    Nothing is made of what shall not be made.
    """
    name = maker.volume()
    for mount, code in (
        (Mount("a", "volume", name, "/a", create=False), "VOLUME::PVC_NOT_FOUND"),
        (Mount("a", "bind", "/nonexistent/x", "/a", create=False), "VOLUME::HOST_PATH_NOT_FOUND"),
    ):
        plan = maker.plan(mounts=(mount,))
        for verb in (runtime.missing_volumes, runtime.create):
            with pytest.raises(VolumeError) as caught:
                await verb(plan)
            assert caught.value.code == code
    assert await runtime._volume(name) is None
    assert await runtime.observe_all() == []


async def test_host_paths_are_mounted_and_made(maker: Maker, tmp_path: Path) -> None:
    """
    A missing folder is made when asked for; read-only is read-only.
    """
    made, fixed = tmp_path / "x" / "y", tmp_path / "ro"
    fixed.mkdir()
    (fixed / "f").write_text("fixed\n")
    mounts = (Mount("a", "bind", str(made), "/a"), Mount("b", "bind", str(fixed), "/b", read_only=True))
    said = await maker.output(maker.plan("cat /b/f; echo no > /b/f; echo hi > /a/f", mounts=mounts))

    assert "fixed" in said
    assert "Read-only file system" in said
    assert (made / "f").read_text() == "hi\n"


async def test_a_subpath_shows_only_that_folder(maker: Maker, runtime: DockerRuntime, tmp_path: Path) -> None:
    """
    The folder is made inside the volume, and nothing above it is in reach.
    """
    name = maker.volume()
    whole = maker.plan(
        "echo top > /v/top; mkdir -p /v/a; echo deep > /v/a/f", mounts=(Mount("v", "volume", name, "/v"),)
    )
    await maker.output(whole)

    mounts = (
        Mount("s", "volume", name, "/s", subpath="a"),
        Mount("n", "volume", name, "/n", subpath="new/er"),
    )
    part = maker.plan("cd /s; ls; cat f; echo new > /n/f; exec sleep 60", mounts=mounts)
    await maker.run(part)
    said = await runtime.logs(part.sandbox_id, tail=100, since=None, timestamps=False)
    assert said.split() == ["f", "deep"]
    assert not list((tmp_path / "held").glob("*"))

    again = maker.plan("cat /v/new/er/f", mounts=(Mount("v", "volume", name, "/v", read_only=True),))
    assert await maker.output(again) == "new\n"
    await runtime.remove(part.sandbox_id, volumes=(), grace_seconds=0)


async def test_a_subpath_never_leaves_the_volume(maker: Maker, runtime: DockerRuntime) -> None:
    """
    A link is refused at create; one that is slipped in before the start is refused then.
    """
    name = maker.volume()
    whole = maker.plan("ln -s / /v/link; mkdir /v/later", mounts=(Mount("v", "volume", name, "/v"),))
    await maker.output(whole)

    for subpath in ("link", "link/etc", "../..", "absent"):
        plan = maker.plan(mounts=(Mount("s", "volume", name, "/s", subpath=subpath, create=False),))
        with pytest.raises(VolumeError, match="subPath"):
            await runtime.create(plan)

    plan = maker.plan(mounts=(Mount("s", "volume", name, "/s", subpath="later", create=False),))
    await runtime.create(plan)
    await maker.output(
        maker.plan("rmdir /v/later; ln -s / /v/later", mounts=(Mount("v", "volume", name, "/v"),))
    )
    with pytest.raises(VolumeError, match="link"):
        await runtime.start(plan.sandbox_id)


async def test_an_interrupted_start_leaves_nothing_after_removal(
    maker: Maker, runtime: DockerRuntime
) -> None:
    """
    A start that is given up at any moment is undone by the caller's remove.
    """
    name = maker.volume()
    for delay in (0.0, 0.01, 0.05, 0.15):
        mounts = (Mount("s", "volume", name, "/s", subpath="a"),)
        plan = maker.plan(mounts=mounts)
        await runtime.create(plan)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(delay):
                await runtime.start(plan.sandbox_id)
                await asyncio.sleep(10)
        await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0)
        assert await runtime.observe(plan.sandbox_id) is None
