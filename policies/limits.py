"""Ceilings: how much time, processor, memory and so on one sandbox may ask for (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policies.decision import Decision, Verdict

NANO: Final = 1_000_000_000
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that may be asked for; None means that there is no ceiling."""

    timeout_seconds: int | None = None
    nano_cpus: int | None = None
    memory_bytes: int | None = None
    env_bytes: int | None = None
    volumes: int | None = None
    metadata: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request asks for; None means that it names nothing, which is judged as without limit."""

    timeout_seconds: int | None = None
    nano_cpus: int | None = None
    memory_bytes: int | None = None
    env_bytes: int = 0
    volumes: int = 0
    metadata: int = 0


def judge_timeout(demand: Demand, ceilings: Ceilings) -> Decision:
    """
    Judge the wished life time. No timeout is manual cleanup and not measured by this ceiling.
    """
    most = ceilings.timeout_seconds
    if most is not None and demand.timeout_seconds is not None and demand.timeout_seconds > most:
        return _deny(
            "timeout", f"is above the ceiling; ask for at most {most} seconds", "max_sandbox_timeout_seconds"
        )
    return ALLOWED


def judge_metadata(demand: Demand, ceilings: Ceilings) -> Decision:
    """
    Judge the number of metadata pairs, at create and after each patch.
    """
    if ceilings.metadata is not None and demand.metadata > ceilings.metadata:
        return _deny("metadata", f"has too many pairs; use at most {ceilings.metadata}", "max_metadata")
    return ALLOWED


def judge_resources(demand: Demand, ceilings: Ceilings) -> Decision:
    """
    Judge processor and memory. Where there is a ceiling, asking for no limit is asking for too much.
    """
    for field, asked, most, words, rule in _resources(demand, ceilings):
        if asked is None:
            return _deny(field, f"is missing; name at most {words}", rule)
        if asked > most:
            return _deny(field, f"is above the ceiling; ask for at most {words}", rule)
    return ALLOWED


def judge_environment(demand: Demand, ceilings: Ceilings) -> Decision:
    """
    Judge the size of all names and values together.
    """
    if ceilings.env_bytes is not None and demand.env_bytes > ceilings.env_bytes:
        return _deny("env", f"is too large; keep it within {ceilings.env_bytes} bytes", "max_env_bytes")
    return ALLOWED


def judge_volumes(demand: Demand, ceilings: Ceilings) -> Decision:
    """
    Judge the number of volumes.
    """
    if ceilings.volumes is not None and demand.volumes > ceilings.volumes:
        return _deny("volumes", f"are too many; use at most {ceilings.volumes}", "max_volumes")
    return ALLOWED


ALLOWED: Final = Decision(Verdict.ALLOW, "within every ceiling")


def _resources(demand: Demand, ceilings: Ceilings) -> Iterator[tuple[str, int | None, int, str, str]]:
    if (cpus := ceilings.nano_cpus) is not None:
        yield "resourceLimits.cpu", demand.nano_cpus, cpus, f"{cpus / NANO:g} cores", "max_cpus"
    if (memory := ceilings.memory_bytes) is not None:
        yield "resourceLimits.memory", demand.memory_bytes, memory, f"{memory // MIB}Mi", "max_memory_mib"


def _deny(field: str, what: str, rule: str) -> Decision:
    return Decision(Verdict.DENY, f"{field} {what}", rule)
