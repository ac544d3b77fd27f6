"""Where a command finds the gateway it talks to, and the key it shows there."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

FIRST_KEY_FILE: Final = "api-key"
KEY_VARIABLES: Final = ("OPEN_SANDBOX_API_KEY", "BOXWRIGHT_API_KEY")

Domain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        "-d",
        envvar="OPEN_SANDBOX_DOMAIN",
        help="The gateway as host:port or https://host (default: the one that runs on this machine).",
    ),
]


class NoKey(Exception):
    """There is no key to show; the message says where one is looked for."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and where it came from."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"Key(from {self.source})"


def base_url(domain: str) -> str:
    """Return `scheme://host:port` without a path; the scheme is http unless it is named."""
    whole = domain if "://" in domain else f"http://{domain}"
    return whole.rstrip("/").removesuffix("/v1")


def find_key(base: str, home: Path, environ: Mapping[str, str]) -> Key:
    """
    Find the key: `OPEN_SANDBOX_API_KEY`, `BOXWRIGHT_API_KEY`, or the one `boxwright up` keeps in its home.

    The kept key belongs to this machine's gateway, so no other machine gets to see it.

    Raises:
        NoKey
    """
    for name in KEY_VARIABLES:
        if environ.get(name):
            return Key(environ[name], name)
    kept = home / FIRST_KEY_FILE
    if not is_local(base):
        raise NoKey(
            f"no API key for {base}: set OPEN_SANDBOX_API_KEY (the key kept in {home} is for this machine only)"
        )
    try:
        return Key(kept.read_text().strip(), str(kept))
    except FileNotFoundError:
        raise NoKey(
            f"no API key: set OPEN_SANDBOX_API_KEY, or run `boxwright up` first (it keeps one in {kept})"
        ) from None
    except PermissionError:
        raise NoKey(
            f"{kept} may not be read by this user: set OPEN_SANDBOX_API_KEY, or run as the gateway's user"
        ) from None


def is_local(base: str) -> bool:
    """Say whether an address can only be this machine."""
    host = base.partition("://")[2].partition("/")[0]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
