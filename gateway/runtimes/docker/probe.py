"""Questions to the engine and its host before they matter: is this able to run sandboxes?

Every answer is a `Check` with a text for people and, where it helps, the fix. A runtime
that the settings name is not believed by its name: a container is run with it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import shutil
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from gateway.runtimes.docker import read
from gateway.runtimes.docker.engine import Engine, EngineRefused
from images.local import ensure
from specs import names
from specs.errors import BoxwrightError

Level = Literal["ok", "warn", "fail"]

PROBE_SECONDS: Final = 20.0
OLDEST_API: Final = (1, 40)
LEAST_FREE_BYTES: Final = 5 * 10**9
MOST_SKEW_SECONDS: Final = 2.0
WEAK_STORAGE: Final = {"vfs": "it copies every image for every sandbox", "devicemapper": "it is deprecated"}
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")

NETLINK_NETFILTER: Final = 12
NFT_GETGEN: Final = (10 << 8) | 16
NLM_F_REQUEST: Final = 1
NLMSG_ERROR: Final = 2


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    level: Level
    text: str
    fix: str = ""


async def check_runtime(
    engine: Engine, runtime: str | None, *, report: Callable[[str], None], seconds: float = PROBE_SECONDS
) -> Check:
    """
    Run a container with an engine runtime and say whether that works.

    Args:
        engine: whose runtime it is.
        runtime: its name in the engine; None for the engine's default.
        report: told what is being done when the probe's tiny image must be made first.
        seconds: limit of the run itself; some runtimes hang rather than fail.
    """
    title = f"runtime {runtime or '(default)'}"
    fix = (
        f"install it and name it under `runtimes` in the engine's daemon.json (`{runtime}`)"
        if runtime
        else ""
    )
    try:
        image = (await ensure(["busybox"], engine, report, deadline=300.0))["busybox"]
        code = await _run_probe(engine, runtime, image, seconds)
    except TimeoutError:
        return Check(title, "fail", f"a container with it did not end within {seconds:g} s", fix)
    except EngineRefused as error:
        return Check(
            title, "fail", f"a container with it does not start: {read.short(error.words, 300)}", fix
        )
    except BoxwrightError as error:
        return Check(title, "fail", read.short(error.message, 300), fix)
    if code != 0:
        return Check(title, "fail", f"`true` in a container with it ended with exit code {code}", fix)
    return Check(title, "ok", "a container was run with it")


async def _run_probe(engine: Engine, runtime: str | None, image: str, seconds: float) -> int:
    name = f"boxwright-probe-{secrets.token_hex(4)}"
    host: dict[str, Any] = {"NetworkMode": "none", "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"]}
    if runtime is not None:
        host["Runtime"] = runtime
    body = {
        "Image": image,
        "Entrypoint": ["/bin/true"],
        "Labels": {names.LABEL_MANAGED_BY: "boxwright"},
        "HostConfig": host,
    }
    try:
        async with asyncio.timeout(seconds):
            await engine.create_container(name, body)
            await engine.start_container(name)
            return await engine.wait_container(name, "not-running", seconds)
    finally:
        await _try_remove(engine, name)


async def _try_remove(engine: Engine, name: str) -> None:
    """Remove the probe's container; the answer that is on its way matters more than what is left."""
    try:
        await engine.remove_container(name)
    except (EngineRefused, BoxwrightError):
        return


async def engine_facts(engine: Engine) -> tuple[Check, ...]:
    """
    Look at the engine and, when it is on this machine, at the kernel and the disk.

    Raises:
        EngineUnavailable, EngineTimeout: the engine does not answer.
    """
    version = await engine.version()
    before = datetime.now(UTC)
    info = await engine.info()
    after = datetime.now(UTC)
    checks = [
        engine_version(version.engine, version.api),
        *from_info(info),
        clock(info, before, after),
    ]
    if engine.is_local:
        checks += await asyncio.to_thread(lambda: [disk(info), userland_proxy(), *kernel()])
    return tuple(checks)


def engine_version(engine: str, api: tuple[int, int]) -> Check:
    text = f"Docker {engine}, API {api[0]}.{api[1]}"
    if api < OLDEST_API:
        return Check(
            "engine", "fail", text, f"update the engine: API {OLDEST_API[0]}.{OLDEST_API[1]} is needed"
        )
    return Check("engine", "ok", text)


def from_info(info: Mapping[str, Any]) -> Iterator[Check]:
    """Judge what the engine says of itself (`GET /info`)."""
    driver = str(info.get("Driver") or "unknown")
    weak = WEAK_STORAGE.get(driver)
    fix = "use overlay2, or overlayfs on newer engines" if weak else ""
    yield Check("storage driver", "warn" if weak else "ok", driver + (f": {weak}" if weak else ""), fix)
    cgroup = f"version {info.get('CgroupVersion') or '1'}, driver {info.get('CgroupDriver') or 'unknown'}"
    yield Check("cgroups", "ok", cgroup)
    lacking = [
        title
        for title, key in (("memory", "MemoryLimit"), ("cpu", "CpuCfsQuota"), ("processes", "PidsLimit"))
        if info.get(key) is False
    ]
    yield Check(
        "limits",
        "fail" if lacking else "ok",
        f"cannot be enforced for {', '.join(lacking)}"
        if lacking
        else "memory, cpu and processes can be limited",
        "enable these cgroup controllers in the kernel" if lacking else "",
    )
    options = [str(option) for option in info.get("SecurityOptions") or []]
    seccomp = any(option.startswith("name=seccomp") for option in options)
    yield Check(
        "seccomp",
        "ok" if seccomp else "fail",
        "on by default" if seccomp else "the engine filters no system calls",
        "" if seccomp else "use a kernel and an engine with seccomp",
    )
    forwarding = info.get("IPv4Forwarding") is not False
    yield Check(
        "IPv4 forwarding",
        "ok" if forwarding else "fail",
        "on" if forwarding else "off: sandboxes have no network",
        "" if forwarding else "sysctl net.ipv4.ip_forward=1",
    )
    runtimes = ", ".join(sorted(info.get("Runtimes") or {}))
    yield Check("runtimes", "ok", f"{runtimes}; default {info.get('DefaultRuntime', 'unknown')}")


def clock(info: Mapping[str, Any], before: datetime, after: datetime) -> Check:
    """Compare the engine's clock with ours, taken around the call."""
    theirs = read.instant(info.get("SystemTime"))
    if theirs is None:
        return Check("clock", "warn", "the engine does not tell its time")
    skew = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    if skew > MOST_SKEW_SECONDS:
        return Check(
            "clock", "warn", f"differs from the engine's by {skew:.1f} s", "synchronise both with NTP"
        )
    return Check("clock", "ok", "agrees with the engine's")


def disk(info: Mapping[str, Any]) -> Check:
    root = str(info.get("DockerRootDir") or "")
    try:
        free = shutil.disk_usage(root).free
    except OSError as error:
        return Check("disk", "warn", f"the engine's folder {root} cannot be looked at: {error.strerror}")
    text = f"{free / 1e9:.1f} GB free in {root}"
    if free < LEAST_FREE_BYTES:
        return Check("disk", "warn", text, "remove unused images (`docker image prune`) or add space")
    return Check("disk", "ok", text)


def userland_proxy(config: Path = Path("/etc/docker/daemon.json")) -> Check:
    """Tell how published ports are carried; the engine itself does not say."""
    try:
        on = json.loads(config.read_text(encoding="utf-8")).get("userland-proxy", True)
    except FileNotFoundError:
        on = True
    except (OSError, ValueError) as error:
        return Check("userland proxy", "warn", f"{config} cannot be read: {error}")
    return Check("userland proxy", "ok", "on (one small process for each sandbox)" if on else "off")


def kernel(proc: Path = Path("/proc")) -> Iterator[Check]:
    """Look for what sandboxes are made of."""
    lines = (proc / "filesystems").read_text(encoding="ascii").splitlines()
    overlay = any(line.split()[-1:] == ["overlay"] for line in lines)
    yield Check(
        "overlay",
        "ok" if overlay else "warn",
        "the kernel has overlayfs" if overlay else "the kernel shows no overlayfs",
        "" if overlay else "modprobe overlay",
    )
    missing = [name for name in NAMESPACES if not (proc / "self/ns" / name).exists()]
    yield Check(
        "namespaces",
        "fail" if missing else "ok",
        f"the kernel lacks {', '.join(missing)}" if missing else "all kinds are there",
        "use a kernel with them" if missing else "",
    )
    yield nftables(_ask_nftables())


def nftables(error: int | None) -> Check:
    """Judge the kernel's answer to a question about its nftables generation."""
    if error is None:
        return Check("nftables", "ok", "the kernel has nf_tables")
    if error in {errno.EPERM, errno.EACCES}:
        return Check(
            "nftables", "warn", "not known: asking needs CAP_NET_ADMIN", "run `boxwright doctor` as root"
        )
    return Check(
        "nftables", "warn", f"the kernel has no nf_tables ({os.strerror(error)})", "modprobe nf_tables"
    )


def _ask_nftables() -> int | None:
    """Send NFT_MSG_GETGEN over netlink; return the kernel's error number, None for an answer."""
    request = struct.pack("=IHHIIBBH", 20, NFT_GETGEN, NLM_F_REQUEST, 1, 0, 0, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as link:
            link.settimeout(1.0)
            link.send(request)
            answer = link.recv(4096)
    except OSError as error:
        return error.errno or errno.EIO
    _, kind = struct.unpack_from("=IH", answer)
    if kind != NLMSG_ERROR:
        return None
    (code,) = struct.unpack_from("=i", answer, 16)
    return -int(code) or None
