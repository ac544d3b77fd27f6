"""A short soak; the long one is `python -m tests.soak --minutes 20`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.gateways import gateways, image
from tests.soak.run import Soak

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def busybox() -> str:
    return image()


async def test_a_short_soak_ends_with_nothing_left(tmp_path: Path, busybox: str) -> None:
    """Clients at random and kills at random: every answer holds, and at the end there is nothing left."""
    with gateways(tmp_path, 2) as made:
        soak = Soak(made, busybox, seed=1)
        await soak.run(20, clients=3)
        assert not soak.wrong, f"{soak.wrong}\n{soak.done}\n{made.log.read_text()[-10_000:]}"
        assert soak.done["gateway killed"]
