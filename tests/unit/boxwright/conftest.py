"""A gateway's double, and an environment that points at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.lifecycle import KEY, Double, serving


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as found:
        yield found


@pytest.fixture
def at_double(double: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    monkeypatch.setenv("BOXWRIGHT_HOME", str(tmp_path))
    monkeypatch.setenv("OPEN_SANDBOX_DOMAIN", double.domain)
    monkeypatch.setenv("OPEN_SANDBOX_API_KEY", KEY)
    return double
