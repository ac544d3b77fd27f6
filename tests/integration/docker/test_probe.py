"""gateway/runtimes/docker/probe.py against a real engine."""

from __future__ import annotations

import pytest

from gateway.runtimes.docker.engine import Engine
from gateway.runtimes.docker.probe import check_runtime, engine_facts

pytestmark = pytest.mark.engine


async def test_the_default_runtime_runs_a_container(engine: Engine, images: dict[str, str]) -> None:
    """
    The check believes a container that ran, and leaves none behind.
    """
    check = await check_runtime(engine, None, report=print)

    assert (check.level, check.text) == ("ok", "a container was run with it")
    left = await engine.list_containers("boxwright.io/managed-by=boxwright")
    assert not [one for one in left if any(name.startswith("/boxwright-probe-") for name in one["Names"])]


async def test_an_unknown_runtime_fails_with_a_fix(engine: Engine, images: dict[str, str]) -> None:
    """
    A name in the settings that the engine does not know is found before the first sandbox.
    """
    check = await check_runtime(engine, "no-such-runtime", report=print)

    assert check.level == "fail"
    assert "no-such-runtime" in check.text
    assert check.fix


async def test_the_engines_facts_are_complete(engine: Engine) -> None:
    """
    Every part of the picture is there.
    """
    checks = {check.name: check for check in await engine_facts(engine)}

    wanted = {
        "engine",
        "storage driver",
        "cgroups",
        "limits",
        "seccomp",
        "IPv4 forwarding",
        "runtimes",
        "clock",
    }
    local = {"disk", "userland proxy", "overlay", "namespaces", "nftables"}
    assert checks.keys() == wanted | local
    assert checks["engine"].level == "ok"
