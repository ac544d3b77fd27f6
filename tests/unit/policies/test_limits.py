"""Ceilings decide, and say why."""

from __future__ import annotations

import pytest

from policies.decision import Decision
from policies.limits import (
    Ceilings,
    Demand,
    judge_environment,
    judge_metadata,
    judge_resources,
    judge_timeout,
    judge_volumes,
)

MOST = Ceilings(
    timeout_seconds=60, nano_cpus=10**9, memory_bytes=1 << 20, env_bytes=10, volumes=1, metadata=2
)
FULL = Demand(timeout_seconds=60, nano_cpus=10**9, memory_bytes=1 << 20, env_bytes=10, volumes=1, metadata=2)
JUDGES = (judge_timeout, judge_resources, judge_environment, judge_volumes, judge_metadata)


def test_up_to_the_ceiling_is_allowed() -> None:
    """A ceiling may be reached."""
    assert all(judge(FULL, MOST).allowed for judge in JUDGES)


def test_no_ceiling_allows_anything() -> None:
    """Without ceilings nothing is refused, not even asking for no limit."""
    assert all(judge(Demand(10**9, None, None, 10**9, 99, 99), Ceilings()).allowed for judge in JUDGES)


@pytest.mark.parametrize(
    ("decision", "word", "rule"),
    [
        (judge_timeout(Demand(timeout_seconds=61), MOST), "60 seconds", "max_sandbox_timeout_seconds"),
        (judge_resources(Demand(nano_cpus=10**9 + 1, memory_bytes=1), MOST), "1 cores", "max_cpus"),
        (judge_resources(Demand(memory_bytes=1), MOST), "missing", "max_cpus"),
        (judge_resources(Demand(nano_cpus=1, memory_bytes=(1 << 20) + 1), MOST), "1Mi", "max_memory_mib"),
        (judge_environment(Demand(env_bytes=11), MOST), "10 bytes", "max_env_bytes"),
        (judge_volumes(Demand(volumes=2), MOST), "at most 1", "max_volumes"),
        (judge_metadata(Demand(metadata=3), MOST), "at most 2", "max_metadata"),
    ],
)
def test_above_the_ceiling_is_denied(decision: Decision, word: str, rule: str) -> None:
    """A denial names the member, the ceiling and the setting."""
    assert not decision.allowed
    assert word in decision.reason
    assert decision.rule == rule


def test_no_timeout_is_manual_cleanup() -> None:
    """A sandbox without a timeout is not measured by the ceiling on timeouts."""
    assert judge_timeout(Demand(), MOST).allowed
