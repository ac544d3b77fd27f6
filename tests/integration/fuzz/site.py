"""Speak to a live gateway without a client library, and without anything that tidies a request."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from typing import Any

from specs.names import HEADER_API_KEY
from tests.live import Live

IMAGE = "boxwright/debian:local"


def ask(live: Live, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Call the API; return the status and the decoded answer."""
    request = urllib.request.Request(
        live.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={HEADER_API_KEY: live.key, "Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            status, kind, raw = answer.status, answer.headers.get_content_type(), answer.read()
    except urllib.error.HTTPError as error:
        status, kind, raw = error.code, error.headers.get_content_type(), error.read()
    return status, json.loads(raw) if raw and kind == "application/json" else raw.decode()


def wish(**changes: Any) -> dict[str, Any]:
    """Return a good create request."""
    whole = {
        "image": {"uri": IMAGE},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "resourceLimits": {},
        "timeout": 600,
    }
    return {**whole, **changes}


def create(live: Live, **changes: Any) -> str:
    """Create a sandbox and return its id when it runs."""
    status, made = ask(live, "POST", "/sandboxes", wish(**changes))
    assert status == 202, made
    end = time.monotonic() + 30
    while ask(live, "GET", f"/sandboxes/{made['id']}")[1]["status"]["state"] != "Running":
        assert time.monotonic() < end
        time.sleep(0.05)
    return str(made["id"])


def raw(live: Live, sent: bytes, *, quiet: float = 2.0) -> bytes:
    """Send bytes as they are; return what comes until the end, or until nothing came for a while."""
    host, port = live.domain.split(":")
    with socket.create_connection((host, int(port)), timeout=quiet) as connection:
        connection.sendall(sent)
        found = b""
        try:
            while piece := connection.recv(1 << 16):
                found += piece
        except (TimeoutError, ConnectionResetError):
            pass
    return found


def call(live: Live, method: str, target: str, *headers: str, key: bool = False) -> bytes:
    """Send one request line and headers verbatim."""
    lines = [f"{method} {target} HTTP/1.1", "Host: gw", "Connection: close", *headers]
    if key:
        lines.append(f"{HEADER_API_KEY}: {live.key}")
    return raw(live, "\r\n".join([*lines, "", ""]).encode("latin-1"))


def status(answer: bytes) -> int:
    return int(answer[9:12])
