"""The engine in memory keeps the promises of a real one."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from gateway.sandboxes.model import SandboxPlan
from gateway.sandboxes.plan import make_plan
from tests.contracts.runtime import MakePlan, RuntimeContract
from tests.fakes.runtime import FakeRuntime
from tests.unit.gateway.sandboxes.requests import facts, request, settings


class TestFakeRuntime(RuntimeContract):
    @pytest.fixture
    def runtime(self) -> FakeRuntime:
        return FakeRuntime()

    @pytest.fixture
    def make_plan(self) -> MakePlan:
        def fresh(**changes: Any) -> SandboxPlan:
            whole = make_plan(request(), settings(), facts())
            return replace(whole, **{"sandbox_id": str(uuid.uuid4()), **changes})

        return fresh
