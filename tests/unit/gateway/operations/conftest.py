"""A running gateway around fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.gateway import FakeGateway, Running, gateway


@pytest.fixture
def site(tmp_path: Path) -> FakeGateway:
    return gateway(tmp_path)


@pytest.fixture
async def gw(site: FakeGateway) -> AsyncIterator[Running]:
    async with site.running() as running:
        yield running
