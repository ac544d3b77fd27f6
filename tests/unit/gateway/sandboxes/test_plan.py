"""From a request to a plan, or to the first refusal in the contract's order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gateway.sandboxes.model import Limits, Platform
from gateway.sandboxes.plan import make_plan, split_entrypoint
from specs.errors import BoxwrightError, InvalidEntrypoint
from tests.unit.gateway.sandboxes.requests import facts, request, settings

POLICY = {"defaultAction": "deny"}

# Each row breaks one rule; the rows stand in the contract's order.
REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"extensions": {"access.renew.extend.seconds": "299"}}, "SANDBOX::INVALID_PARAMETER", "300..86400"),
    ({"lifecycle": {}}, "SANDBOX::API_NOT_SUPPORTED", "lifecycle"),
    ({"extensions": {"poolRef": "p"}}, "SANDBOX::UNSUPPORTED_POOL_REF", "poolRef"),
    ({"entrypoint": ["'open"]}, "", ""),
    ({"entrypoint": ["sh -c 'open"]}, "DOCKER::INVALID_ENTRYPOINT", "quote"),
    ({"metadata": {"opensandbox.io/x": "1"}}, "SANDBOX::INVALID_METADATA_LABEL", "opensandbox.io/"),
    ({"platform": {"os": "plan9", "arch": "amd64"}}, "SANDBOX::INVALID_PARAMETER", "platform.os"),
    ({"timeout": 7200}, "SANDBOX::INVALID_PARAMETER", "3600"),
    ({"secureAccess": True}, "SANDBOX::API_NOT_SUPPORTED", "secureAccess"),
    ({"networkPolicy": {}}, "SANDBOX::API_NOT_SUPPORTED", "networkPolicy"),
    ({"resourceLimits": {"cpu": "0"}}, "SANDBOX::INVALID_PARAMETER", "cpu"),
    ({"env": {"OPENSANDBOX_EGRESS_TOKEN": "x"}}, "SANDBOX::INVALID_PARAMETER", "OPENSANDBOX_EGRESS_TOKEN"),
    (
        {"volumes": [{"name": "v", "mountPath": "/", "pvc": {"claimName": "c"}}]},
        "VOLUME::INVALID_MOUNT_PATH",
        "v",
    ),
]


def refusal(changes: dict[str, Any]) -> BoxwrightError | None:
    try:
        make_plan(request(**changes), settings(server_max_sandbox_timeout_seconds="3600"), facts())
    except BoxwrightError as error:
        return error
    return None


@pytest.mark.parametrize(("changes", "code", "word"), REFUSALS)
def test_a_broken_rule_is_refused(changes: dict[str, Any], code: str, word: str) -> None:
    """The refusal has the rule's code and names the member."""
    found = refusal(changes)
    if not code:
        assert found is None
        return
    assert found is not None
    assert (found.status, found.code) == (400, code)
    assert word in found.message


def test_the_first_broken_rule_is_told() -> None:
    """Of two broken rules the earlier one in the contract's order is the answer."""
    rows = [row for row in REFUSALS if row[1]]
    for (first, code, word), (second, _, _) in pairwise(rows):
        merged = {**second, **first}
        if set(first) & set(second) or {"lifecycle", "extensions"} <= set(merged):
            continue
        found = refusal(merged)
        assert found is not None
        assert (found.code, word in found.message) == (code, True), merged


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"snapshotId": "s", "image": None, "entrypoint": None}, "SNAPSHOT::NOT_IMPLEMENTED"),
        (
            {"templateId": "t", "image": None, "entrypoint": None, "resourceLimits": None, "timeout": 60},
            "FSB::API_NOT_SUPPORTED",
        ),
        ({"platform": {"os": "linux", "arch": "riscv"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"platform": {"os": "windows", "arch": "amd64"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"networkPolicy": POLICY, "credentialProxy": {"enabled": True}}, "SANDBOX::API_NOT_SUPPORTED"),
        ({"env": {"": "x"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"A=B": "x"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"A": "x\0"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"OPENSANDBOX_ID": "x"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"EXECD_ACCESS_TOKEN": "x"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"BOXWRIGHT_STATE_DIR": None}}, "SANDBOX::INVALID_PARAMETER"),
        ({"env": {"A": "x" * 131_072}}, "SANDBOX::INVALID_PARAMETER"),
        ({"image": {"uri": "a b"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"image": {"uri": "../containers/x"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"image": {"uri": "http://169.254.169.254/latest"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"image": {"uri": "a/b?fromSrc=x"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"image": {"uri": "--privileged"}}, "SANDBOX::INVALID_PARAMETER"),
        ({"metadata": {f"k{number}": "v" for number in range(65)}}, "SANDBOX::INVALID_METADATA_LABEL"),
        ({"resourceLimits": {"memory": "1Mi"}}, "SANDBOX::INVALID_PARAMETER"),
        (
            {
                "volumes": [
                    {"name": f"v{number}", "mountPath": f"/d{number}", "pvc": {"claimName": "c"}}
                    for number in range(33)
                ]
            },
            "SANDBOX::INVALID_PARAMETER",
        ),
    ],
)
def test_more_refusals(changes: dict[str, Any], code: str) -> None:
    """Each is a 400 with its code."""
    found = refusal(changes)
    assert found is not None
    assert (found.status, found.code) == (400, code)


def test_what_is_harmless_is_accepted() -> None:
    """Switched-off features, unknown extensions and egress variables change nothing."""
    plan = make_plan(
        request(
            secureAccess=False,
            credentialProxy={"enabled": False},
            extensions={"other": "x", "access.renew.extend.seconds": "300", "poolRef": " "},
            env={"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "A": None, "B": "1"},
            resourceRequests={"cpu": "1"},
            resourceLimits={"disk": "odd"},
        ),
        settings(),
        facts(),
    )
    assert plan.env == (("B", "1"),)
    assert plan.limits == Limits(10**9, 2**31, 2**31, pids=4096)


def test_everything_reaches_the_plan() -> None:
    """Request, settings and facts meet in one value; nothing secret is printed with it."""
    plan = make_plan(
        request(
            image={"uri": " img:2 ", "auth": {"username": "u", "password": "planted-secret"}},
            env={"A": "request", "C": "3"},
            metadata={"team": "a", "com.docker.x": "y", "boxwright.io/instance": "z"},
            platform={"os": "Linux", "arch": "ARM64"},
            resourceLimits={"cpu": "1.5", "memory": "512Mi", "gpu": "all"},
            extensions={"bootstrap.execd.isolation": "enable"},
        ),
        settings(
            docker_sandbox_env="A=default,B=2",
            docker_port_range_min="40000",
            docker_port_range_max="60000",
            docker_publish_host="10.0.0.1",
            secure_runtime_type="gvisor",
        ),
        facts(),
    )
    assert plan.image == "img:2"
    assert plan.env == (("A", "request"), ("B", "2"), ("C", "3"))
    assert plan.platform == Platform("linux", "arm64")
    assert plan.limits == Limits(1_500_000_000, 512 << 20, 512 << 20, 4096, -1)
    assert plan.hardening.isolation
    assert plan.hardening.no_new_privileges
    assert plan.runtime == "runsc"
    assert (plan.publish_host, plan.publish_ports, plan.network) == ("10.0.0.1", (40000, 60000), "bridge")
    labels = dict(plan.labels)
    assert labels["boxwright.io/instance"] == "inst"
    assert labels["team"] == "a"
    assert "com.docker.x" not in labels
    assert "planted-secret" not in repr(plan)
    assert plan.auth is not None
    assert plan.auth.password.reveal() == "planted-secret"


@pytest.mark.parametrize(
    ("asked", "settled", "allowed"),
    [
        ({}, {"limits_max_cpus": "2", "limits_default_cpus": ""}, False),
        ({}, {"limits_max_cpus": "0.5"}, True),
        ({}, {"limits_max_cpus": "2", "limits_default_cpus": "1"}, True),
        ({"cpu": "2"}, {"limits_max_cpus": "2"}, True),
        ({"cpu": "2001m"}, {"limits_max_cpus": "2"}, False),
        ({"memory": "65Mi"}, {"limits_max_memory_mib": "64"}, False),
        ({"memory": "64Mi"}, {"limits_max_memory_mib": "64"}, True),
        ({}, {"limits_max_memory_mib": "64", "limits_default_memory_mib": ""}, False),
        ({}, {"limits_max_memory_mib": "64"}, True),
        ({}, {"limits_max_memory_mib": "64", "limits_default_memory_mib": "32"}, True),
    ],
)
def test_ceilings_hold(asked: dict[str, str], settled: dict[str, str], allowed: bool) -> None:
    """A ceiling is not passed by asking for more, nor by asking for nothing."""
    try:
        make_plan(request(resourceLimits=asked), settings(**settled), facts())
        passed = True
    except BoxwrightError as error:
        assert "resourceLimits" in error.message
        passed = False
    assert passed is allowed


@pytest.mark.parametrize(
    ("given", "argv"),
    [
        (["tail", "-f", "/dev/null"], ("tail", "-f", "/dev/null")),
        (["python -m http.server"], ("python", "-m", "http.server")),
        (["sh -c 'echo  two  blanks'"], ("sh", "-c", "echo  two  blanks")),
        (["/opt/my program", "x"], ("/opt/my program", "x")),
        (["plain"], ("plain",)),
        (["a\tb\nc"], ("a", "b", "c")),
        (["$HOME;ls"], ("$HOME;ls",)),
    ],
)
def test_entrypoint_words(given: list[str], argv: tuple[str, ...]) -> None:
    """Only a single element with blanks is split, and no shell reads it."""
    assert split_entrypoint(given) == argv


@pytest.mark.parametrize("given", [[], [""], ["  "], ["a 'b"], ["a", "b\0"]])
def test_entrypoint_that_names_nothing(given: list[str]) -> None:
    """Nothing to run is refused."""
    with pytest.raises(InvalidEntrypoint):
        split_entrypoint(given)
