"""Bodies that are no JSON, or no text, or too much."""

from __future__ import annotations

import pytest

from tests.fakes.gateway import Running, body

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"env": {"\\ud800": "1"}}', 400),
        (b'{"entrypoint": ["a\\uDFFF"]}', 400),
        (b'{"timeout": NaN}', 400),
        (b'{"timeout": -Infinity}', 400),
        (b'{"timeout": "\xff"}', 400),
        ('{"timeout": 60}'.encode("utf-16"), 400),
        (b"[" * 100_000, 400),
        (b'{"timeout": ' + b"9" * 100_000 + b"}", 400),
        (b'{"timeout": 60', 422),
        (b"", 422),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', 413),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_what_is_no_json_is_refused(gw: Running, content: bytes, status: int) -> None:
    """A body that cannot be kept as it was sent is the caller's mistake, in the common shape."""
    answer = await gw.http.post("/sandboxes", content=content, headers=JSON)
    assert answer.status_code == status
    assert answer.json()["code"]
    assert answer.json()["message"]


async def test_whole_characters_pass(gw: Running) -> None:
    """A pair of escapes is one character, and a byte order mark is no reason to refuse."""
    content = b'\xef\xbb\xbf{"image": {"uri": "i"}, "entrypoint": ["\\ud83d\\ude42"], "resourceLimits": {}}'
    answer = await gw.http.post("/sandboxes", content=content, headers=JSON)
    assert answer.status_code == 202
    assert answer.json()["entrypoint"] == ["🙂"]


@pytest.mark.parametrize("changes", [{"timeout": 10**12}, {"resourceLimits": {"cpu": "1e999999"}}])
async def test_numbers_beyond_everything_are_refused(gw: Running, changes: dict[str, object]) -> None:
    """A number that no field can hold is a 400, never a failure."""
    answer = await gw.http.post("/sandboxes", json=body(**changes))
    assert answer.status_code == 400


async def test_instants_beyond_the_calendar_are_no_failure(gw: Running) -> None:
    """An end that UTC cannot express is refused, and logs since ever are all logs."""
    sandbox_id = await gw.create()
    for moment in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"):
        answer = await gw.http.post(f"/sandboxes/{sandbox_id}/renew-expiration", json={"expiresAt": moment})
        assert answer.status_code == 422
    answer = await gw.http.get(f"/sandboxes/{sandbox_id}/diagnostics/logs", params={"since": "999999d"})
    assert answer.status_code == 200
