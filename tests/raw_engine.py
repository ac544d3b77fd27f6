"""The engine's own API with nothing in between: the bench's floor, and the broom of the e2e tests."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any
from urllib.parse import quote

SOCKET = "/var/run/docker.sock"


class Engine(http.client.HTTPConnection):
    """The engine's own API, raw: the floor that everything is compared with."""

    def __init__(self) -> None:
        super().__init__("localhost", timeout=120)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)

    def call(self, method: str, path: str, body: object = None) -> bytes:
        self.request(
            method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"}
        )
        answer = self.getresponse()
        data = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
        return data

    def cycle(self, image: str) -> float:
        """Create, start and wait for one `true` on the default bridge; seconds."""
        began = time.perf_counter()
        made = json.loads(self.call("POST", "/containers/create", {"Image": image, "Cmd": ["true"]}))["Id"]
        self.call("POST", f"/containers/{made}/start")
        self.call("POST", f"/containers/{made}/wait")
        spent = time.perf_counter() - began
        self.call("DELETE", f"/containers/{made}?force=true")
        return spent

    def pid(self, sandbox_id: str) -> int:
        return int(json.loads(self.call("GET", f"/containers/sandbox-{sandbox_id}/json"))["State"]["Pid"])

    def address(self, sandbox_id: str) -> str:
        found = json.loads(self.call("GET", f"/containers/sandbox-{sandbox_id}/json"))
        return str(next(iter(found["NetworkSettings"]["Networks"].values()))["IPAddress"])

    def labelled(self, label: str) -> list[dict[str, Any]]:
        """Return every container that carries a label."""
        filters = quote(json.dumps({"label": [label]}))
        found: list[dict[str, Any]] = json.loads(
            self.call("GET", f"/containers/json?all=true&filters={filters}")
        )
        return found

    def remove_labelled(self, label: str) -> int:
        """Remove every container that carries a label; return how many there were."""
        found = self.labelled(label)
        for one in found:
            self.call("DELETE", f"/containers/{one['Id']}?force=true&v=true")
        return len(found)
