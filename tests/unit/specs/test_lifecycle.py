"""The shapes of the lifecycle API on their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from specs.lifecycle import (
    CreateSandboxRequest,
    RenewSandboxExpirationRequest,
    Sandbox,
    SandboxStatus,
    render_instant,
)

TEMPLATE = {"templateId": "t", "timeout": 60}


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ({"env": {"OPENSANDBOX_LIFECYCLE": None}, "templateId": "t"}, "env"),
        ({**TEMPLATE, "image": {"uri": "x"}}, "image"),
        ({**TEMPLATE, "entrypoint": ["x"]}, "entrypoint"),
        ({**TEMPLATE, "secureAccess": True}, "secureAccess"),
        ({"templateId": "t"}, "timeout"),
        ({"extensions": {"poolRef": "p"}, "lifecycle": {}}, "lifecycle"),
        ({"extensions": {"poolRef": "p"}, "snapshotId": "s"}, "snapshotId"),
        ({"credentialProxy": {"enabled": True}}, "credentialProxy"),
        ({}, "image, snapshotId"),
        ({"image": {"uri": "x"}, "snapshotId": "s"}, "image, snapshotId"),
        ({"image": {"uri": "x"}}, "entrypoint"),
        ({"image": {"uri": "x"}, "entrypoint": ["x"]}, "resourceLimits"),
        ({"snapshotId": "s"}, "resourceLimits"),
    ],
)
def test_checks_in_the_contracts_order(body: dict[str, Any], first: str) -> None:
    """The first broken rule is told, by the member's name."""
    with pytest.raises(ValidationError) as refused:
        CreateSandboxRequest.model_validate(body)
    assert refused.value.errors()[0]["msg"].startswith(f"Value error, {first}:")


@pytest.mark.parametrize(
    "body",
    [
        TEMPLATE,
        {**TEMPLATE, "secureAccess": False, "image": {"uri": ""}},
        {"extensions": {"poolRef": "p"}},
        {"snapshot_id": "s", "resource_limits": {}, "templateId": " "},
        {"image": {"uri": "x", "unknown": 1}, "entrypoint": ["x"], "resourceLimits": {}, "unknown": None},
        {
            "image": {"uri": "x"},
            "entrypoint": ["x"],
            "resourceLimits": {},
            "secureAccess": None,
            "volumes": None,
        },
        {"image": {"uri": "x"}, "entrypoint": ["x"], "resourceLimits": {}, "extensions": {"poolRef": " "}},
    ],
)
def test_what_the_contract_lets_through(body: dict[str, Any]) -> None:
    """Both spellings, nulls, blanks and unknown members are fine."""
    CreateSandboxRequest.model_validate(body)


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("2026-10-01T08:00:00Z", datetime(2026, 10, 1, 8, tzinfo=UTC)),
        ("2026-10-01T08:00:00", datetime(2026, 10, 1, 8, tzinfo=UTC)),
        ("2026-10-01T10:00:00+02:00", datetime(2026, 10, 1, 8, tzinfo=UTC)),
        (1790841600, datetime(2026, 10, 1, 8, tzinfo=UTC)),
    ],
)
def test_instants(given: Any, moment: datetime) -> None:
    """Any way of writing an instant is read as UTC."""
    assert RenewSandboxExpirationRequest.model_validate({"expiresAt": given}).expires_at == moment


def test_answers_have_no_null_and_one_way_of_time() -> None:
    """Absent members are absent; instants end with Z and have microseconds."""
    moment = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    shape = Sandbox(id="x", status=SandboxStatus(state="Running"), entrypoint=["a"], created_at=moment)
    assert shape.model_dump_json(by_alias=True, exclude_none=True) == (
        '{"id":"x","status":{"state":"Running"},"entrypoint":["a"],"createdAt":"2026-01-01T00:00:00.000000Z"}'
    )
    assert render_instant(moment).endswith("Z")
