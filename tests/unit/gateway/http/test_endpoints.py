"""Where a port is, in every state and mode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.gateway import FakeGateway, Running, gateway


async def test_direct_and_through_the_server(gw: Running) -> None:
    """Direct addresses carry execd's token; those through the server do not."""
    place = f"/sandboxes/{await gw.create()}"
    execd = (await gw.http.get(f"{place}/endpoints/44772")).json()
    other = (await gw.http.get(f"{place}/endpoints/8000")).json()
    assert execd["endpoint"] == "127.0.0.1:40001"
    assert other["endpoint"] == "127.0.0.1:40001/proxy/8000"
    assert set(execd["headers"]) == {"X-EXECD-ACCESS-TOKEN"}
    assert execd["headers"] == other["headers"]
    egress = await gw.http.get(f"{place}/endpoints/18080")
    assert egress.status_code == 200
    proxied = (await gw.http.get(f"{place}/endpoints/8000", params={"use_server_proxy": "true"})).json()
    assert proxied == {"endpoint": f"gw:8080/v1{place}/proxy/8000"}
    root = (await gw.http.get(f"http://gw:8080{place}/endpoints/8000?use_server_proxy=true")).json()
    assert root == {"endpoint": f"gw:8080{place}/proxy/8000"}


@pytest.mark.parametrize(
    ("port", "params", "status", "code"),
    [
        ("0", {}, 400, "DOCKER::INVALID_PORT"),
        ("65536", {}, 400, "DOCKER::INVALID_PORT"),
        ("http", {}, 422, "SANDBOX::INVALID_PARAMETER"),
        ("80", {"expires": "99"}, 400, "SANDBOX::API_NOT_SUPPORTED"),
        ("80", {"expires": "99", "use_server_proxy": "true"}, 400, "SANDBOX::INVALID_PARAMETER"),
    ],
)
async def test_refusals(gw: Running, port: str, params: dict[str, Any], status: int, code: str) -> None:
    """Bad ports and signed addresses are refused (R101)."""
    answer = await gw.http.get(f"/sandboxes/{await gw.create()}/endpoints/{port}", params=params)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_pending_sandbox_is_waited_for(site: FakeGateway) -> None:
    """The lookup answers as soon as there is an address; past its wait it says so with the retried code."""
    quick = gateway(site.settings.home, create_wait_seconds=0.01, endpoint_wait_seconds=0.2)
    quick.runtime.holds["create"] = asyncio.Event()
    async with quick.running() as gw:
        made = await gw.http.post(
            "/sandboxes", json={"image": {"uri": "i"}, "entrypoint": ["x"], "resourceLimits": {}}
        )
        assert (made.status_code, made.json()["status"]["state"]) == (202, "Pending")
        place = f"/sandboxes/{made.json()['id']}/endpoints/44772"
        late = await gw.http.get(place)
        assert (late.status_code, late.json()["code"]) == (404, "KUBERNETES::POD_IP_NOT_AVAILABLE")
        waiting = asyncio.get_running_loop().create_task(gw.http.get(place))
        await asyncio.sleep(0.02)
        quick.runtime.holds["create"].set()
        assert (await waiting).status_code == 200


async def test_an_ended_sandbox_has_no_endpoint(gw: Running, site: FakeGateway) -> None:
    """The lookup says at once what became of it, or that a paused one must be resumed first."""
    sandbox_id = await gw.create()
    await gw.http.post(f"/sandboxes/{sandbox_id}/pause")
    paused = await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/44772")
    assert (paused.status_code, paused.json()["code"]) == (400, "DOCKER::SANDBOX_NOT_RUNNING")
    assert "resume it first" in paused.json()["message"]
    assert (await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/18080")).status_code == 200
    await gw.http.post(f"/sandboxes/{sandbox_id}/resume")
    assert (await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/44772")).status_code == 200
    site.runtime.end(sandbox_id, 137, oom_killed=True)
    await gw.until(sandbox_id, "Failed")
    answer = await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/44772")
    assert (answer.status_code, answer.json()["code"]) == (400, "DOCKER::SANDBOX_NOT_RUNNING")
    assert answer.json()["details"] == {"state": "Failed", "reason": "OOMKilled", "exitCode": 137}
    assert (await gw.http.get(f"/sandboxes/{sandbox_id}/endpoints/18080")).status_code == 200
