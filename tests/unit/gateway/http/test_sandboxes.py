"""The sandbox routes as a client sees them."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from opensandbox.api.lifecycle.models import CreateSandboxResponse, ListSandboxesResponse, Sandbox

from specs.errors import StartFailed
from tests.fakes.gateway import HEADERS, FakeGateway, Running, body, settled

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def no_null(value: Any) -> bool:
    if isinstance(value, dict):
        return all(one is not None and no_null(one) for one in value.values())
    return not isinstance(value, list) or all(no_null(one) for one in value)


async def test_create_then_get_as_the_client_reads_it(gw: Running) -> None:
    """The official client's models parse what create, get and list answer; nothing is null."""
    made = await gw.http.post(
        "/sandboxes",
        json=body(
            metadata={"team": "a"},
            platform={"os": "Linux", "arch": "amd64"},
            extensions={"opensandbox.extensions.x": "1", "other": "2"},
        ),
    )
    assert made.status_code == 202
    created = CreateSandboxResponse.from_dict(made.json())
    assert made.headers["location"] == f"/v1/sandboxes/{created.id}"
    assert made.json()["status"]["state"] == "Running"
    assert "image" not in made.json()
    shown = await gw.http.get(f"/sandboxes/{created.id}")
    sandbox = Sandbox.from_dict(shown.json())
    assert sandbox.entrypoint == ["tail", "-f", "/dev/null"]
    assert shown.json()["image"] == {"uri": "img:1"}
    assert shown.json()["platform"] == {"os": "linux", "arch": "amd64"}
    assert shown.json()["extensions"] == {"opensandbox.extensions.x": "1"}
    listed = await gw.http.get("/sandboxes")
    ListSandboxesResponse.from_dict(listed.json())
    assert set(listed.json()["pagination"]) == {"page", "pageSize", "totalItems", "totalPages", "hasNextPage"}
    for answer in (made, shown, listed):
        assert no_null(answer.json())
    assert INSTANT.fullmatch(shown.json()["createdAt"])
    assert INSTANT.fullmatch(shown.json()["status"]["lastTransitionAt"])


async def test_manual_cleanup_has_no_expiry(gw: Running) -> None:
    """Without a timeout there is no `expiresAt`, and renewing is a conflict; null counts as absent."""
    made = await gw.http.post("/sandboxes", json={**body(), "timeout": None, "env": None, "metadata": None})
    assert "expiresAt" not in made.json()
    renew = await gw.http.post(
        f"/sandboxes/{made.json()['id']}/renew-expiration", json={"expiresAt": "2030-01-01"}
    )
    assert (renew.status_code, renew.json()["code"]) == (409, "DOCKER::INVALID_EXPIRATION")


async def test_root_paths_serve_the_same(gw: Running) -> None:
    """Every API route is at the root too, except client metrics; service routes are at the root only."""
    sandbox_id = await gw.create()
    root = httpx.AsyncClient(transport=httpx.ASGITransport(gw.app), base_url="http://gw", headers=HEADERS)
    async with root as http:
        assert (await http.get(f"/sandboxes/{sandbox_id}")).status_code == 200
        assert (await http.get("/v1/health")).status_code == 404
        assert (await http.get("/health")).json() == {"status": "healthy"}
        assert (await http.get("/version")).json() == {"version": "0.1.0"}
        event = {"eventType": "sandbox.create", "createDurationMs": 3, "success": True}
        assert (await http.post("/v1/metrics/events", json=event)).status_code == 204
        assert (await http.post("/metrics/events", json=event)).status_code == 404
        assert (await http.get("/v1/sandboxes/")).status_code == 307
        assert (await http.get("/docs")).status_code == 200


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"timeout": 59}, "timeout"),
        ({"image": None}, "image"),
        ({"image": {"uri": " "}}, "image"),
        ({"image": {"uri": "x", "auth": {"username": "u"}}}, "password"),
        ({"entrypoint": None}, "entrypoint"),
        ({"entrypoint": []}, "entrypoint"),
        ({"resourceLimits": None}, "resourceLimits"),
        ({"snapshotId": "s"}, "snapshotId"),
        ({"env": {"OPENSANDBOX_LIFECYCLE": "x"}}, "OPENSANDBOX_LIFECYCLE"),
        ({"credentialProxy": {"enabled": True}}, "networkPolicy"),
        ({"networkPolicy": {"egress": [{"action": "permit", "target": "x"}]}}, "networkPolicy"),
        ({"volumes": [{"name": "v", "mountPath": "/d"}]}, "exactly one"),
        ({"volumes": [{"name": "V", "mountPath": "/d", "pvc": {"claimName": "c"}}]}, "name"),
        ({"lifecycle": {"unknown": 1}}, "unknown"),
    ],
)
async def test_a_malformed_create_is_422(gw: Running, changes: dict[str, Any], word: str) -> None:
    """What needs no knowledge to refuse is 422 in the common shape, naming the member."""
    answer = await gw.http.post("/sandboxes", json=body(**changes))
    assert answer.status_code == 422
    assert set(answer.json()) == {"code", "message", "details"}
    assert word in answer.json()["message"]
    assert all(set(fault) == {"loc", "msg", "type"} for fault in answer.json()["details"])


async def test_no_error_repeats_a_secret(gw: Running) -> None:
    """Credentials in a refused request are in no answer."""
    for changes in (
        {"timeout": "planted-secret"},
        {"image": {"uri": "x", "auth": {"username": 3, "password": "planted-secret"}}},
        {"env": {"A": {"planted-secret": 1}, "B=": "planted-secret"}},
        {"env": {"B=": "planted-secret"}},
        {"metadata": {"a": "planted secret planted-secret"}},
    ):
        answer = await gw.http.post("/sandboxes", json=body(**changes))
        assert answer.status_code in {400, 422}
        if "A" not in changes.get("env", {}):
            assert "planted-secret" not in answer.text
    broken = await gw.http.post(
        "/sandboxes", content=b'{"env": {"A": "planted-secret"', headers={"content-type": "application/json"}
    )
    assert broken.status_code == 422
    assert "planted-secret" not in broken.text


async def test_failure_while_waiting_is_the_answer(gw: Running, site: FakeGateway) -> None:
    """A create that fails in time answers the failure, and nothing of it is left."""
    site.runtime.missing_images.add("img:1")
    answer = await gw.http.post(
        "/sandboxes", json=body(volumes=[{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c"}}])
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "DOCKER::SANDBOX_IMAGE_PULL_FAILED")
    assert "img:1" in answer.json()["message"]
    assert (await gw.http.get("/sandboxes")).json()["items"] == []
    assert site.runtime.volumes == {}


async def test_a_failed_create_leaves_no_volume(gw: Running, site: FakeGateway) -> None:
    """The volumes that a failed create made are gone with it (R25)."""
    volumes = [{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c"}}]
    for number in range(5):
        site.runtime.failures["start" if number % 2 else "create_late"] = [StartFailed("no")]
        answer = await gw.http.post("/sandboxes", json=body(volumes=volumes))
        assert (answer.status_code, answer.json()["code"]) == (500, "DOCKER::SANDBOX_START_FAILED")
        assert site.runtime.volumes == {}
        assert site.runtime.workloads == {}
    missing = [{"name": "v", "mountPath": "/d", "pvc": {"claimName": "c", "createIfNotExists": False}}]
    answer = await gw.http.post("/sandboxes", json=body(volumes=missing))
    assert (answer.status_code, answer.json()["code"]) == (400, "VOLUME::PVC_NOT_FOUND")
    assert "v" in answer.json()["message"]


async def test_pause_and_resume_conflicts(gw: Running, site: FakeGateway) -> None:
    """Each wrong pause or resume is a 409 that names the state, and changes nothing (R14)."""
    sandbox_id = await gw.create()

    async def call(verb: str) -> tuple[int, str]:
        answer = await gw.http.post(f"/sandboxes/{sandbox_id}/{verb}")
        return answer.status_code, answer.json()["message"] if answer.content else ""

    assert (await call("resume"))[0] == 409
    assert await call("pause") == (202, "")
    assert await gw.state(sandbox_id) == "Paused"
    status, message = await call("pause")
    assert (status, "Paused" in message) == (409, True)
    assert await call("resume") == (202, "")
    status, message = await call("resume")
    assert (status, "Running" in message) == (409, True)
    site.runtime.end(sandbox_id, 0)
    await gw.until(sandbox_id, "Terminated")
    for verb in ("pause", "resume"):
        status, message = await call(verb)
        assert (status, "Terminated" in message) == (409, True)


async def test_delete_is_believed(gw: Running, site: FakeGateway) -> None:
    """After a 204 the sandbox is not found, is not listed, cannot be deleted again, and is gone (R11)."""
    names = [await gw.create() for _ in range(20)]
    for sandbox_id in names:
        assert (await gw.http.delete(f"/sandboxes/{sandbox_id}")).status_code == 204
        again = await gw.http.delete(f"/sandboxes/{sandbox_id}")
        assert (again.status_code, again.json()["code"]) == (404, "DOCKER::SANDBOX_NOT_FOUND")
        assert await gw.state(sandbox_id) == "404"
    assert (await gw.http.get("/sandboxes")).json()["items"] == []
    await settled(lambda: not site.runtime.workloads)


async def test_patch_removes_for_good(gw: Running) -> None:
    """A key removed by null never returns, and the filter agrees with what get shows (R19)."""
    sandbox_id = await gw.create(metadata={"a": "1", "b": "2"})
    place = f"/sandboxes/{sandbox_id}"

    async def patched(patch: dict[str, str | None]) -> dict[str, str]:
        answer = await gw.http.patch(f"{place}/metadata", json=patch)
        assert answer.status_code == 200
        found: dict[str, str] = answer.json()["metadata"]
        assert (await gw.http.get(place)).json()["metadata"] == found
        return found

    assert await patched({"a": None, "absent": None}) == {"b": "2"}
    assert await patched({"c": "3"}) == {"b": "2", "c": "3"}
    assert await patched({}) == {"b": "2", "c": "3"}
    assert (await gw.http.get("/sandboxes", params={"metadata": "a=1"})).json()["items"] == []
    assert len((await gw.http.get("/sandboxes", params={"metadata": "b=2&c=3"})).json()["items"]) == 1
    await patched({"b": None}), await gw.http.patch(f"{place}/metadata", json={"c": None})
    assert "metadata" not in (await gw.http.get(place)).json()


@pytest.mark.parametrize(
    ("patch", "status", "code"),
    [
        ({"opensandbox.io/x": "1"}, 400, "INVALID_METADATA_LABEL"),
        ({"opensandbox.io/x": None}, 400, "INVALID_METADATA_LABEL"),
        ({"bad key": "1"}, 400, "SANDBOX::INVALID_METADATA_LABEL"),
        ({"a": 1}, 422, "SANDBOX::INVALID_PARAMETER"),
        (["a"], 422, "SANDBOX::INVALID_PARAMETER"),
        ({f"k{number}": "v" for number in range(65)}, 400, "SANDBOX::INVALID_METADATA_LABEL"),
    ],
)
async def test_a_bad_patch_changes_nothing(gw: Running, patch: Any, status: int, code: str) -> None:
    """A refused patch has the contract's code and leaves the metadata as it was."""
    sandbox_id = await gw.create(metadata={"a": "1"})
    answer = await gw.http.patch(f"/sandboxes/{sandbox_id}/metadata", json=patch)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await gw.http.get(f"/sandboxes/{sandbox_id}")).json()["metadata"] == {"a": "1"}


async def test_own_writes_are_listed(gw: Running) -> None:
    """A sandbox is in the list as soon as its create answered (R20)."""
    for number in range(25):
        sandbox_id = await gw.create(metadata={"n": str(number)})
        page = (await gw.http.get("/sandboxes", params={"pageSize": 200})).json()
        assert sandbox_id in {item["id"] for item in page["items"]}
        assert page["pagination"]["totalItems"] == number + 1
    second = (await gw.http.get("/sandboxes", params={"page": 2, "pageSize": 10})).json()["pagination"]
    assert second == {"page": 2, "pageSize": 10, "totalItems": 25, "totalPages": 3, "hasNextPage": True}


@pytest.mark.parametrize(
    ("query", "status", "found"),
    [
        ("metadata=owner%3Dnobody", 200, 0),
        ("metadata=team%3Da", 200, 1),
        ("metadata=te%2561m%3Da", 200, 1),
        ("metadata=broken", 400, None),
        ("metadata=", 400, None),
        ("metadata=team%3Da%26x", 400, None),
        ("state=Nope", 200, 0),
        ("state=", 200, 0),
        ("state=running&state=nope", 200, 1),
        ("state=RUNNING", 200, 1),
        ("state=Paused", 200, 0),
        ("stat=Running", 400, None),
        ("page=0", 422, None),
        ("pageSize=201", 422, None),
        ("page=9", 200, 0),
    ],
)
async def test_filters_never_widen(gw: Running, query: str, status: int, found: int | None) -> None:
    """An unmatched filter is an empty page, a malformed or unknown one a refusal (R22)."""
    await gw.create(metadata={"team": "a"})
    answer = await gw.http.get(f"/sandboxes?{query}")
    assert answer.status_code == status
    if found is not None:
        assert len(answer.json()["items"]) == found


@pytest.mark.parametrize(
    ("until", "status"),
    [
        ("2026-10-01T09:00:00Z", 200),
        ("2026-10-01T08:00:05", 200),
        (1790845200, 200),
        ("2026-10-01T08:00:00Z", 400),
        ("soon", 422),
        (None, 422),
    ],
)
async def test_renew_takes_any_future(gw: Running, until: Any, status: int) -> None:
    """Later or sooner, with or without zone; only the past is refused."""
    sandbox_id = await gw.create()
    answer = await gw.http.post(f"/sandboxes/{sandbox_id}/renew-expiration", json={"expiresAt": until})
    assert answer.status_code == status
    if status == 200:
        assert INSTANT.fullmatch(answer.json()["expiresAt"])
        assert (await gw.http.get(f"/sandboxes/{sandbox_id}")).json()["expiresAt"] == answer.json()[
            "expiresAt"
        ]
    elif status == 400:
        assert answer.json()["code"] == "DOCKER::INVALID_EXPIRATION"


async def test_the_same_key_makes_one_sandbox(gw: Running, site: FakeGateway) -> None:
    """The same key and body give the first sandbox; another body is a 409 that names what differs (R07)."""
    key = {"Idempotency-Key": "k1"}
    first = await gw.http.post("/sandboxes", json=body(env={"A": "1"}), headers=key)
    again = await gw.http.post("/sandboxes", json=body(env={"A": "1"}), headers=key)
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert len(site.runtime.workloads) == 1
    other = await gw.http.post("/sandboxes", json=body(env={"A": "2"}, metadata={"x": "y"}), headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "CONFLICT")
    assert other.json()["details"]["fields"] == ["env", "metadata"]
    await gw.http.delete(f"/sandboxes/{first.json()['id']}")
    deleted = await gw.http.post("/sandboxes", json=body(env={"A": "1"}), headers=key)
    assert deleted.status_code == 409
    assert (await gw.http.post("/sandboxes", json=body(), headers={"Idempotency-Key": ""})).status_code == 422


async def test_what_this_backend_lacks_is_refused(gw: Running) -> None:
    """Planned routes are authenticated and answer 501 with the feature's code."""
    sandbox_id = await gw.create()
    capacity = {"bufferMax": 1, "bufferMin": 0, "poolMax": 1, "poolMin": 0}
    table: list[tuple[str, str, Any, str]] = [
        ("POST", f"/sandboxes/{sandbox_id}/snapshots", None, "SNAPSHOT::NOT_IMPLEMENTED"),
        ("GET", "/snapshots", None, "SNAPSHOT::NOT_IMPLEMENTED"),
        ("DELETE", "/snapshots/x", None, "SNAPSHOT::NOT_IMPLEMENTED"),
        ("GET", "/pools", None, "KUBERNETES::POOL_NOT_SUPPORTED"),
        (
            "POST",
            "/pools",
            {"name": "p", "template": {}, "capacitySpec": capacity},
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        ("PUT", "/pools/p", {"capacitySpec": capacity}, "KUBERNETES::POOL_NOT_SUPPORTED"),
        ("POST", "/templates", {"image": "i", "publish": "s3://x"}, "FSB::API_NOT_SUPPORTED"),
        ("GET", "/templates", None, "FSB::API_NOT_SUPPORTED"),
        ("GET", f"/sandboxes/{sandbox_id}/networkpolicy", None, "SANDBOX::API_NOT_SUPPORTED"),
        ("DELETE", f"/sandboxes/{sandbox_id}/networkpolicy", ["x"], "SANDBOX::API_NOT_SUPPORTED"),
    ]
    for method, path, content, code in table:
        answer = await gw.http.request(method, path, json=content)
        assert (answer.status_code, answer.json()["code"]) == (501, code), path
        assert answer.json()["message"]
        nobody = await gw.http.request(method, path, json=content, headers={"OPEN-SANDBOX-API-KEY": ""})
        assert nobody.status_code == 401
    matrix = (await gw.http.get("/capabilities")).json()
    assert matrix["features"]["pause"] == {"supported": True, "runtimes": ["docker"]}
    assert matrix["features"]["networkPolicy"]["reason"]
