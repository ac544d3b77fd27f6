from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.closing import fit_reason, legal, to_backend, to_client


@pytest.mark.parametrize(
    ("code", "backend", "client"),
    [
        (1000, 1000, 1000),
        (1001, 1001, 1001),
        (1003, 1003, 1003),
        (1004, 1001, 1011),
        (1005, 1000, 1000),
        (1006, 1001, 1011),
        (1008, 1008, 1008),
        (1011, 1011, 1011),
        (1014, 1014, 1014),
        (1015, 1001, 1011),
        (2999, 1001, 1011),
        (3000, 3000, 3000),
        (4000, 4000, 4000),
        (4999, 4999, 4999),
        (5000, 1001, 1011),
        (0, 1001, 1011),
    ],
)
def test_close_codes_are_relayed_or_mapped(code: int, backend: int, client: int) -> None:
    """A legal code passes; what may not stand on the wire becomes one that may."""
    assert (to_backend(code), to_client(code)) == (backend, client)
    assert legal(to_backend(code))
    assert legal(to_client(code))


@given(st.text(max_size=200))
def test_a_reason_fits_a_control_frame(reason: str) -> None:
    """A reason is at most 123 bytes of UTF-8 and a beginning of what was said."""
    fitted = fit_reason(reason)

    assert len(fitted.encode("utf-8")) <= 123
    assert reason.startswith(fitted)
