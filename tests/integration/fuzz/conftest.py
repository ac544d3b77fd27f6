"""One whole Boxwright for the attacks, with few ports to give away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live import Live, boxwright

PORTS = {"BOXWRIGHT_DOCKER_PORT_RANGE_MIN": "29200", "BOXWRIGHT_DOCKER_PORT_RANGE_MAX": "29299"}


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    with boxwright(PORTS) as made:
        yield made
