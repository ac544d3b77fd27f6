"""Pulling from a registry of our own on the loopback address, with and without credentials."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.runtimes.docker.engine import Engine, EngineRefused, registry_auth
from gateway.runtimes.docker.runtime import DockerRuntime
from gateway.sandboxes.model import Platform, RegistryAuth, Secret
from images.local import reference
from specs.errors import BoxwrightError, ImageRefused
from tests.integration.docker.conftest import Maker

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(shutil.which("docker-registry") is None, reason="needs the package docker-registry"),
]

AUTH = RegistryAuth("alice", Secret("open sesame"))
# bcrypt, cost 5, of the password above; it protects an empty registry for seconds.
HTPASSWD = "alice:$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n"
CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}
"""


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=1)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return True


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    (tmp_path / "config.yml").write_text(CONFIG.format(folder=tmp_path, port=port))
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        ["docker-registry", "serve", str(tmp_path / "config.yml")], stdout=log, stderr=log
    )
    try:
        async with asyncio.timeout(15):
            while not await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/v2/"):
                await asyncio.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
        log.close()


def arm_image(name: str) -> bytes:
    """Write an image archive (`docker save` format) of one empty layer for another processor."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": "arm64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, content in (
            ("layer.tar", layer.getvalue()),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


async def push(engine: Engine, source: str, target: str) -> None:
    """Put an image into the registry and forget it locally."""
    repository, _, tag = target.rpartition(":")
    await engine.tag_image(source, repository, tag)
    headers = {"X-Registry-Auth": registry_auth(target, AUTH)}
    async with engine._stream(
        "POST", f"images/{repository}/push", params={"tag": tag}, headers=headers
    ) as answer:
        async for line in engine._lines(answer, 20.0):
            assert "error" not in line, line
    await engine.remove_image(target)


async def test_a_private_image_needs_the_right_credentials(
    maker: Maker, runtime: DockerRuntime, registry: str
) -> None:
    """
    None and wrong ones are refused, right ones pull once for all who wait, and later nothing is pulled.
    """
    image = f"{registry}/team/box:1"
    await push(runtime.engine, reference("busybox"), image)
    plan = maker.plan(image=image)

    for auth in (None, RegistryAuth("alice", Secret("wrong"))):
        with pytest.raises(ImageRefused) as caught:
            await runtime.ensure_image(image, plan, auth, lambda _: None)
        assert "wrong" not in str(caught.value)

    said: list[list[str]] = [[], [], []]
    try:
        await asyncio.gather(*(runtime.ensure_image(image, plan, AUTH, heard.append) for heard in said))
        assert all(heard and heard[0].startswith(f"pulling {image}") for heard in said)
        assert runtime._pulls == {}

        heard: list[str] = []
        await runtime.ensure_image(image, plan, None, heard.append)
        assert heard == []
        await runtime.create(plan)
        await runtime.start(plan.sandbox_id)
        assert "open sesame" not in str(await runtime.engine.inspect_container(f"sandbox-{plan.sandbox_id}"))
        await runtime.remove(plan.sandbox_id, volumes=(), grace_seconds=0)
    finally:
        await runtime.engine.remove_image(image)


async def test_unknown_names_and_tags_are_refused_for_all_who_wait(
    maker: Maker, runtime: DockerRuntime, registry: str
) -> None:
    """
    One failed pull answers everyone who waited for it with the same credentials.
    """
    image = f"{registry}/team/none:9"
    plan = maker.plan(image=image)

    results = await asyncio.gather(
        *(runtime.ensure_image(image, plan, AUTH, lambda _: None) for _ in range(4)), return_exceptions=True
    )
    assert {type(result) for result in results} == {ImageRefused}
    assert len({result.message for result in results if isinstance(result, BoxwrightError)}) == 1


async def test_an_image_for_another_processor_is_refused_with_both_names(
    maker: Maker, runtime: DockerRuntime, registry: str
) -> None:
    """
    Whether it lies here or in the registry, wanted and found are named and nothing is started.
    """
    engine, image = runtime.engine, f"{registry}/team/arm:1"
    headers = {"Content-Type": "application/x-tar"}
    async with engine._stream("POST", "images/load", headers=headers, data=arm_image(image)) as answer:
        await answer.read()
    plan = maker.plan(image=image)
    wanted, found = "linux/amd64 is wanted", "built for linux/arm64"

    try:
        for platform in (None, Platform("linux", "amd64")):
            with pytest.raises(ImageRefused) as caught:
                await runtime.ensure_image(image, replace(plan, platform=platform), AUTH, lambda _: None)
            assert wanted in str(caught.value)
            assert found in str(caught.value)
        await push(engine, image, image)
        with pytest.raises(ImageRefused) as caught:
            await runtime.ensure_image(image, plan, AUTH, lambda _: None)
        assert "linux/amd64" in str(caught.value)
    finally:
        try:
            await engine.remove_image(image)
        except EngineRefused as error:
            assert error.status == 404
