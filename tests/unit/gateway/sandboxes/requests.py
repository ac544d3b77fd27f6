"""Requests and facts for the tables."""

from __future__ import annotations

from typing import Any

from gateway.config import Settings, load
from gateway.sandboxes.model import BundleMount
from gateway.sandboxes.plan import Facts
from specs.lifecycle import CreateSandboxRequest
from tests.fakes.clock import START


def request(**changes: Any) -> CreateSandboxRequest:
    whole = {"image": {"uri": "img:1"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}}
    return CreateSandboxRequest.model_validate({**whole, **changes})


def facts(**resolved: str) -> Facts:
    return Facts("id-1", "inst", START, "sha256:x", BundleMount("/b", ("/e",)), resolved)


def settings(**environ: str) -> Settings:
    return load(None, {f"BOXWRIGHT_{name.upper()}": value for name, value in environ.items()})
