"""What this version does not do, and what nobody may do, is refused with a code and a reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.sandboxes import (
    CredentialProxyConfig,
    Host,
    LifecycleHook,
    NetworkPolicy,
    NetworkRule,
    PlatformSpec,
    SandboxFilter,
    SandboxLifecycle,
    SnapshotFilter,
    Volume,
)
from opensandbox.models.templates import TemplateFilter

from tests.e2e.site import BUSYBOX, MARKS, OTHER_MACHINE, Client, Site, unique

pytestmark = MARKS

POOL = {
    "name": "warm",
    "template": {"spec": {}},
    "capacitySpec": {"bufferMax": 1, "bufferMin": 0, "poolMax": 1, "poolMin": 0},
}
DENY = NetworkPolicy(defaultAction="deny", egress=[NetworkRule(action="allow", target="example.com")])


@pytest.mark.parametrize(
    ("options", "statuses", "code", "word"),
    [
        pytest.param({"network_policy": DENY}, {400}, "SANDBOX::", "networkPolicy", id="network-policy"),
        pytest.param(
            {"network_policy": NetworkPolicy(defaultAction=None)},
            {400},
            "SANDBOX::",
            "networkPolicy",
            id="empty-policy",
        ),
        pytest.param(
            {"network_policy": DENY, "credential_proxy": CredentialProxyConfig(enabled=True)},
            {400},
            "SANDBOX::",
            "",
            id="credential-proxy",
        ),
        pytest.param({"secure_access": True}, {400}, "SANDBOX::", "secureAccess", id="secure-access"),
        pytest.param(
            {"lifecycle": SandboxLifecycle(preStart=LifecycleHook(command=["true"]))},
            {400},
            "SANDBOX::",
            "lifecycle",
            id="lifecycle-hooks",
        ),
        pytest.param(
            {"extensions": {"poolRef": "warm"}},
            {400},
            "SANDBOX::UNSUPPORTED_POOL_REF",
            "poolRef",
            id="pool-reference",
        ),
        pytest.param(
            {"metadata": {"bad key!": "x"}},
            {400},
            "SANDBOX::INVALID_METADATA_LABEL",
            "bad key!",
            id="metadata",
        ),
        pytest.param(
            {"metadata": {"opensandbox.io/id": "x"}},
            {400},
            "SANDBOX::INVALID_METADATA_LABEL",
            "opensandbox.io/",
            id="reserved-metadata",
        ),
        pytest.param({"resource": {"cpu": "many"}}, {400}, "SANDBOX::INVALID_PARAMETER", "cpu", id="cpu"),
        pytest.param(
            {"resource": {"memory": "1.5Gi"}}, {400}, "SANDBOX::INVALID_PARAMETER", "memory", id="memory"
        ),
        pytest.param(
            {"env": {"OPENSANDBOX_LIFECYCLE": "x"}}, {422}, "", "OPENSANDBOX_LIFECYCLE", id="reserved-env"
        ),
        pytest.param({"timeout": timedelta(seconds=5)}, {422}, "", "timeout", id="short-timeout"),
    ],
)
async def test_create_is_refused_with_a_reason(
    client: Client, options: dict[str, Any], statuses: set[int], code: str, word: str
) -> None:
    """Each request that this version cannot honour fails at once and says what is wrong."""
    mark = unique("refused")
    options = {**options, "metadata": {**options.get("metadata", {}), "mark": mark}}
    with pytest.raises(SandboxApiException) as refused:
        await client.create(BUSYBOX, **options)
    assert refused.value.status_code in statuses
    assert (refused.value.error.code or "").startswith(code) or code in str(refused.value)
    assert word.lower() in str(refused.value).lower()
    manager = await client.manager()
    left = await manager.list_sandbox_infos(SandboxFilter(metadata={"mark": mark}))
    assert left.sandbox_infos == []


async def test_snapshots_are_refused(client: Client) -> None:
    """Every snapshot call says that this version has none."""
    sandbox = await client.create(BUSYBOX)
    manager = await client.manager()
    for call in (
        lambda: sandbox.create_snapshot("s"),
        lambda: manager.list_snapshots(SnapshotFilter()),
        lambda: manager.get_snapshot("none"),
        lambda: manager.delete_snapshot("none"),
        lambda: client.create(None, snapshot_id="none"),
    ):
        with pytest.raises(SandboxApiException) as refused:
            await call()
        assert refused.value.status_code in {400, 501}
        assert "SNAPSHOT::NOT_IMPLEMENTED" in str(refused.value)
        assert "snapshot" in str(refused.value).lower()


async def test_templates_are_refused(client: Client) -> None:
    """Every template call says that this version has none."""
    manager = await client.manager()
    for call in (
        lambda: manager.list_templates(TemplateFilter()),
        lambda: manager.get_template("none"),
        lambda: manager.delete_template("none"),
    ):
        with pytest.raises(SandboxApiException) as refused:
            await call()
        assert refused.value.status_code == 501
        assert "FSB::API_NOT_SUPPORTED" in str(refused.value)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/pools"), ("GET", "/pools/x"), ("DELETE", "/pools/x"), ("POST", "/pools")]
)
async def test_pools_are_refused(site: Site, method: str, path: str) -> None:
    """Every pool route says that this backend has none."""
    async with site.api() as http:
        answer = await http.request(method, path, json=POOL if method == "POST" else None)
    assert answer.status_code == 501
    assert answer.json()["code"] == "KUBERNETES::POOL_NOT_SUPPORTED"
    assert "pool" in answer.json()["message"].lower()


async def test_unknown_image_says_why(client: Client) -> None:
    """An image that is nowhere fails with its name and the reason, and leaves nothing that runs."""
    name = f"boxwright/{unique('nowhere')}:none"
    with pytest.raises(SandboxException) as refused:
        await client.create(name, ready_timeout=timedelta(seconds=45))
    assert name in str(refused.value)
    assert "pull" in str(refused.value).lower() or "image" in str(refused.value).lower()
    assert "READY_TIMEOUT" not in str(refused.value)


async def test_failed_pull_stays_readable(site: Site) -> None:
    """When the pull fails after the answer was Pending, get and diagnostics show the reason (R04)."""
    name = f"127.0.0.1:9/{unique('nowhere')}:none"
    body = {"image": {"uri": name}, "entrypoint": ["true"], "resourceLimits": {}, "timeout": 120}
    async with site.api() as http:
        made = await http.post("/sandboxes", json=body)
        if made.status_code != 202:
            assert name in made.json()["message"]
            return
        place = f"/sandboxes/{made.json()['id']}"
        async with asyncio.timeout(60):
            while (seen := (await http.get(place)).json())["status"]["state"] == "Pending":
                await asyncio.sleep(0.2)
        assert seen["status"]["state"] == "Failed"
        assert seen["status"]["reason"]
        assert name in seen["status"]["message"]
        events = (await http.get(f"{place}/diagnostics/events", params={"scope": "runtime"})).json()
        assert name in events["content"]
        endpoint = await http.get(f"{place}/endpoints/44772")
        assert endpoint.status_code == 400
        assert name in endpoint.json()["message"]
        assert (await http.delete(place)).status_code == 204


async def test_wrong_platform_is_named(client: Client) -> None:
    """An image of another architecture is refused with the wanted and the found platform (R26)."""
    with pytest.raises(SandboxException) as refused:
        await client.create(
            BUSYBOX, platform=PlatformSpec.model_validate({"os": "linux", "arch": OTHER_MACHINE})
        )
    assert f"linux/{OTHER_MACHINE}" in str(refused.value)
    assert "READY_TIMEOUT" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("/", "VOLUME::HOST_PATH_NOT_ALLOWED"),
        ("/var/run/docker.sock", "VOLUME::HOST_PATH_NOT_ALLOWED"),
        ("/proc", "VOLUME::HOST_PATH_NOT_ALLOWED"),
        ("{allowed}/../../etc", "VOLUME::"),
        ("{allowed}/escape", "VOLUME::HOST_PATH_NOT_ALLOWED"),
        ("{allowed}-not", "VOLUME::HOST_PATH_NOT_ALLOWED"),
    ],
    ids=["root", "engine-socket", "proc", "dots", "symlink", "sibling"],
)
async def test_host_path_outside_is_refused(async_client: Client, source: str, code: str) -> None:
    """Only what truly lies below an allowed folder may be mounted (R29)."""
    allowed = async_client.site.host_folder
    escape = allowed / "escape"
    if not escape.is_symlink():
        escape.symlink_to("/etc")
    path = source.format(allowed=allowed)
    with pytest.raises(SandboxApiException) as refused:
        await async_client.create(
            BUSYBOX, volumes=[Volume(name="v", host=Host(path=path), mountPath="/mnt/v")]
        )
    assert refused.value.status_code == 400
    assert (refused.value.error.code or "").startswith(code)


async def test_sub_path_cannot_climb_out(async_client: Client) -> None:
    """A sub path with dots, or one that is a link to elsewhere, is refused (R29)."""
    folder: Path = async_client.site.host_folder / unique("climb")
    folder.mkdir()
    (folder / "away").symlink_to("/etc")
    for sub_path in ("../../etc", "away", "/etc"):
        with pytest.raises(SandboxApiException) as refused:
            await async_client.create(
                BUSYBOX,
                volumes=[Volume(name="v", host=Host(path=str(folder)), mountPath="/mnt/v", subPath=sub_path)],
            )
        assert refused.value.status_code in {400, 422}


async def test_wrong_key_opens_nothing(client: Client) -> None:
    """A wrong key is 401 on the lifecycle API, with its code and without its value."""
    with pytest.raises(SandboxApiException) as refused:
        await client.create(BUSYBOX, connection_config=client.config(api_key="not-the-key"))
    assert (refused.value.status_code, refused.value.error.code) == (401, "INVALID_API_KEY")
    assert "not-the-key" not in str(refused.value)


async def test_missing_key_opens_nothing(site: Site) -> None:
    """Without a key only health and version answer."""
    async with httpx.AsyncClient(base_url=f"http://{site.live.domain}", timeout=10) as http:
        for path in ("/v1/sandboxes", "/sandboxes", "/v1/sandboxes/x/proxy/8000/", "/v1/pools"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "MISSING_API_KEY")
        for path in ("/health", "/version"):
            assert (await http.get(path)).status_code == 200


async def test_unknown_sandbox_is_404_everywhere(client: Client) -> None:
    """An id that never was is refused by every call, with its name."""
    name = unique("no-such")
    manager = await client.manager()
    for call in (
        lambda: manager.get_sandbox_info(name),
        lambda: manager.kill_sandbox(name),
        lambda: manager.pause_sandbox(name),
        lambda: manager.resume_sandbox(name),
        lambda: manager.renew_sandbox(name, timedelta(hours=1)),
        lambda: manager.patch_sandbox_metadata(name, {"a": "b"}),
        lambda: manager.get_diagnostic_logs(name, "all"),
        lambda: client.connect(name),
    ):
        with pytest.raises(SandboxApiException) as refused:
            await call()
        assert (refused.value.status_code, refused.value.error.code) == (404, "DOCKER::SANDBOX_NOT_FOUND")
        assert name in str(refused.value)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"metadata": "owner=nobody"}, 200),
        ({"metadata": "broken"}, 400),
        ({"page": "0"}, 422),
        ({"pageSize": "201"}, 422),
        ({"pageSize": "many"}, 422),
    ],
)
async def test_bad_filters_never_widen(site: Site, debian: str, query: dict[str, str], status: int) -> None:
    """No match is an empty page, a malformed filter an error; neither shows other sandboxes (R22)."""
    async with site.api() as http:
        answer = await http.get("/sandboxes", params=query)
    assert answer.status_code == status
    if status == 200:
        assert answer.json()["items"] == []
    else:
        assert set(answer.json()) >= {"code", "message"}
    assert debian not in answer.text
