"""The Docker runtime keeps what every runtime promises."""

from __future__ import annotations

import pytest

from tests.contracts.runtime import MakePlan, RuntimeContract
from tests.integration.docker.conftest import Maker


@pytest.mark.engine
class TestDockerRuntime(RuntimeContract):
    @pytest.fixture
    def make_plan(self, maker: Maker) -> MakePlan:
        return maker.plan
