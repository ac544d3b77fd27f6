"""Processor, memory and graphics quantities in an engine's units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sandboxes.quantities import gpus, memory_bytes, nano_cpus
from specs.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 10**9),
        ("1.5", 1_500_000_000),
        ("500m", 500_000_000),
        ("0.1", 10**8),
        ("1e-3", 10**6),
        ("1m", 10**6),
    ],
)
def test_cpu(text: str, value: int) -> None:
    """Cores and thousandths are exact."""
    assert nano_cpus(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *["", "0", "-1", "nan", "inf", "1c", "m", "many", "1e400", "1,5", ".", "1e99999999999", "1e999999"],
        "٣",
        "9" * 200_000,
    ],
    ids=lambda text: text[:16],
)
def test_cpu_refused(text: str) -> None:
    """Everything else is refused."""
    with pytest.raises(BadRequest, match="cpu"):
        nano_cpus(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024),
        ("1b", 1),
        ("1k", 1000),
        ("1KB", 1000),
        ("1Ki", 1024),
        ("512Mi", 512 << 20),
        ("2Gi", 2 << 30),
        ("2G", 2 * 10**9),
        ("1 gi", 1 << 30),
        ("1ti", 1 << 40),
    ],
)
def test_memory(text: str, value: int) -> None:
    """Decimal and binary units, whatever their case."""
    assert memory_bytes(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5Gi", "1Pi", "Gi", "1GiB", "one", "9" * 30, "\u0661Gi"])
def test_memory_refused(text: str) -> None:
    """Everything else is refused."""
    with pytest.raises(BadRequest, match="memory"):
        memory_bytes(text)


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("all", -1), ("ALL", -1), (" 2 ", 2)])
def test_gpu(text: str, value: int) -> None:
    """A count, or all."""
    assert gpus(text) == value


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "some"])
def test_gpu_refused(text: str) -> None:
    """Everything else is refused."""
    with pytest.raises(BadRequest, match="gpu"):
        gpus(text)


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_a_refusal(text: str) -> None:
    """No text makes the parsers fail otherwise, and a value fits an engine's field."""
    for parse in (nano_cpus, memory_bytes, gpus):
        try:
            value = parse(text)
        except BadRequest:
            continue
        assert value == -1 or 0 < value < 1 << 63
