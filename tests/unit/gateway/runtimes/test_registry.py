"""gateway/runtimes/registry.py: a name selects a backend."""

from __future__ import annotations

from pathlib import Path

from gateway.runtimes.registry import RUNTIMES, OpenArguments


async def test_docker_opens_without_an_engine(tmp_path: Path) -> None:
    """
    Opening asks nothing of the engine, and the declared capabilities are the runtime's own.
    """
    entry = RUNTIMES["docker"]
    runtime = entry.open(OpenArguments(instance="i", parallel_starts=1, hold_dir=tmp_path))

    assert runtime.capabilities is entry.capabilities
    assert entry.capabilities.pause
    await runtime.close()
