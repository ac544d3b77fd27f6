"""Who may call, and what the others learn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import Response

from gateway.http.auth import KeyAuthenticator
from gateway.operations.tasks import Tasks
from gateway.stores.keys import SqliteKeys
from specs.errors import MissingApiKey, Unauthorized
from tests.fakes.clock import FakeClock
from tests.fakes.gateway import Running


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"OPEN-SANDBOX-API-KEY": ""}, "MISSING_API_KEY"),
        ({"OPEN-SANDBOX-API-KEY": "  "}, "MISSING_API_KEY"),
        ({"OPEN-SANDBOX-API-KEY": "wrong"}, "INVALID_API_KEY"),
        ({"OPEN-SANDBOX-API-KEY": "", "Authorization": "Bearer a key for tests only"}, "MISSING_API_KEY"),
    ],
)
async def test_every_api_route_needs_a_key(gw: Running, headers: dict[str, str], code: str) -> None:
    """No documented route but the three service ones answers without a good key, whatever the body."""
    document = gw.app.openapi()
    for path, methods in document["paths"].items():
        for method in methods:
            if method == "parameters" or path in {"/health", "/readyz", "/version"}:
                continue
            target = path.replace("{port}", "80").replace("{", "").replace("}", "")
            answer = await gw.http.request(method, f"http://gw{target}", content=b"{", headers=headers)
            assert answer.status_code == 401, (method, path)
            if method != "head":
                assert answer.json()["code"] == code


async def test_errors_have_one_shape(gw: Running) -> None:
    """Unknown routes, wrong methods and unknown sandboxes answer with code, message and the request's id."""
    for method, path, status, code in (
        ("GET", "/nothing", 404, "ROUTE_NOT_FOUND"),
        ("PUT", "/sandboxes", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/sandboxes/none", 404, "DOCKER::SANDBOX_NOT_FOUND"),
    ):
        answer = await gw.http.request(method, path, headers={"X-Request-ID": " mine "})
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.json()["message"]
        assert answer.headers["x-request-id"] == "mine"
        assert answer.headers["date"]
    assert len((await gw.http.get("/sandboxes")).headers["x-request-id"]) == 32
    odd = await gw.http.get("/sandboxes", headers={"X-Request-ID": "x" * 500})
    assert len(odd.headers["x-request-id"]) == 32


async def test_a_large_body_is_refused_early(gw: Running) -> None:
    """A body above the bound is 413, with and without a length."""
    large = b'{"a": "' + b"x" * 1_100_000 + b'"}'
    json = {"content-type": "application/json"}
    assert (await gw.http.post("/sandboxes", content=large, headers=json)).status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    assert (await gw.http.post("/sandboxes", content=chunks(), headers=json)).status_code == 413


async def test_no_browser_origin_is_trusted(gw: Running) -> None:
    """Without configuration no cross-origin answer is readable with credentials."""
    answer = await gw.http.get("/sandboxes", headers={"Origin": "http://elsewhere"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_revoked_key_ends_within_a_second(gw: Running) -> None:
    """A good key is remembered for a second and no longer."""
    keys = SqliteKeys(gw.database, FakeClock())
    made, text = await keys.create("ci")
    time = [100.0]
    auth = KeyAuthenticator(keys, Tasks(), lambda: time[0])
    assert (await auth(text.reveal())).name == "ci"
    await keys.revoke(made.key_id)
    time[0] += 1.01
    with pytest.raises(Unauthorized):
        await auth(text.reveal())
    with pytest.raises(MissingApiKey):
        await auth(None)


async def test_an_unexpected_failure_is_a_500_with_an_id(gw: Running) -> None:
    """What nobody foresaw is told as such, without its words."""

    async def broken(_: Request) -> Response:
        raise RuntimeError("planted-secret")

    gw.app.router.add_route("/broken", broken)
    answer = await gw.http.get("http://gw/broken")
    assert (answer.status_code, answer.json()["code"]) == (500, "GENERAL::UNKNOWN_ERROR")
    assert "planted-secret" not in answer.text
    assert answer.headers["x-request-id"]


async def test_readiness_names_the_part(gw: Running, site: object) -> None:
    """A silent engine makes the gateway unready, not unhealthy."""
    assert (await gw.http.get("http://gw/readyz")).json() == {
        "status": "ready",
        "checks": {"store": "ok", "engine": "ok"},
    }
    site.runtime.unreachable = True  # type: ignore[attr-defined]
    answer = await gw.http.get("http://gw/readyz")
    assert (answer.status_code, answer.json()["checks"]["engine"]) == (503, "DOCKER::INITIALIZATION_ERROR")
    assert (await gw.http.get("http://gw/health")).status_code == 200
