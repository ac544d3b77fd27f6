"""gateway/runtimes/docker/engine.py: what needs no engine (the rest: tests/integration/docker)."""

from __future__ import annotations

import base64
import json

import pytest

from gateway.runtimes.docker.engine import EngineRefused, NoSuchObject, _refusal, registry_auth
from gateway.sandboxes.model import RegistryAuth, Secret
from specs.errors import EngineUnavailable


@pytest.mark.parametrize(
    ("image", "server"),
    [
        ("python:3.12", "https://index.docker.io/v1/"),
        ("docker.io/a/b", "https://index.docker.io/v1/"),
        ("ghcr.io/a/b:1", "ghcr.io"),
        ("127.0.0.1:5000/a", "127.0.0.1:5000"),
    ],
)
def test_credentials_are_encoded_for_the_images_registry(image: str, server: str) -> None:
    """
    The header names the registry that the credentials are for.
    """
    header = registry_auth(image, RegistryAuth("u", Secret("p?>ü")))

    assert json.loads(base64.urlsafe_b64decode(header)) == {
        "username": "u",
        "password": "p?>ü",
        "serveraddress": server,
    }


@pytest.mark.parametrize(
    ("status", "raw", "kind"),
    [
        (404, b'{"message":"No such container: x"}', NoSuchObject),
        (404, b'{"message":"get v: no such volume"}', NoSuchObject),
        (404, b'{"message":"manifest for a:b not found: manifest unknown"}', NoSuchObject),
        (404, b'{"message":"page missing"}', EngineRefused),
        (404, b"404 page not found", EngineRefused),
        (404, b"", EngineRefused),
        (500, b'{"message":"no such network"}', EngineRefused),
        (409, b"[]", EngineRefused),
        (503, b"", EngineUnavailable),
    ],
)
def test_only_the_engines_own_words_mean_absence(status: int, raw: bytes, kind: type[Exception]) -> None:
    """
    A 404 of a proxy or of an old API is not "there is no such thing".
    """
    assert type(_refusal(status, raw)) is kind
