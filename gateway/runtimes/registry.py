"""Which container backends there are, and what each can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.operations.ports import Capabilities, Runtime
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.runtime import CAPABILITIES, DockerRuntime


@dataclass(frozen=True, slots=True)
class OpenArguments:
    """What an opener is told.

    Attributes:
        instance: id of this installation; only workloads that carry it are ours.
        parallel_starts: starts given to the engine at once.
        hold_dir: private folder of this gateway for folders held during a start; a root-owned
            place below /run is right.
        engine: where the engine is and how long it may take.
    """

    instance: str
    parallel_starts: int
    hold_dir: Path
    engine: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True)
class RuntimeEntry:
    open: Callable[[OpenArguments], Runtime]
    capabilities: Capabilities


def open_docker(arguments: OpenArguments) -> DockerRuntime:
    """Make the Docker runtime; the engine is first asked when something is asked of it."""
    return DockerRuntime(
        Engine(arguments.engine),
        instance=arguments.instance,
        parallel_starts=arguments.parallel_starts,
        hold_dir=arguments.hold_dir,
    )


RUNTIMES: Final[Mapping[str, RuntimeEntry]] = {
    "docker": RuntimeEntry(open_docker, CAPABILITIES),
}
