"""The list, get, delete and diagnostics calls of a gateway, over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "a key for tests only"


class Double:
    """What it holds, what it was asked, and how it fails."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.logs: list[str] = []
        self.events = ""
        self.asked: list[tuple[str, str]] = []
        self.refuse: dict[str, tuple[int, Any]] = {}  # by id
        self.keys: list[str | None] = []
        self.domain = ""

    def answer(self, method: str, target: str) -> tuple[int, Any]:
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True)
        path = [unquote(part) for part in parts.path.removeprefix("/v1/sandboxes").strip("/").split("/")]
        if path == [""]:
            return 200, self.page(query)
        if path[0] in self.refuse:
            return self.refuse[path[0]]
        found = next((item for item in self.items if item["id"] == path[0]), None)
        if found is None:
            return 404, {"code": "DOCKER::SANDBOX_NOT_FOUND", "message": f"no sandbox {path[0]}"}
        if path[-1] == "logs":
            return 200, "\n".join(self.logs[-int(query["tail"][0]) :]) or "(no logs)"
        if path[-1] == "events":
            return 200, self.events
        if method == "DELETE":
            self.items.remove(found)
            return 204, ""
        return 200, found

    def page(self, query: dict[str, list[str]]) -> dict[str, Any]:
        wanted = [
            item for item in self.items if "state" not in query or item["status"]["state"] in query["state"]
        ]
        number, size = int(query.get("page", ["1"])[0]), int(query["pageSize"][0])
        return {
            "items": wanted[(number - 1) * size : number * size],
            "pagination": {"totalItems": len(wanted), "hasNextPage": number * size < len(wanted)},
        }


def item(number: int, state: str = "Running", **more: Any) -> dict[str, Any]:
    return {
        "id": f"{number:08x}-0000-4000-8000-000000000000",
        "image": {"uri": "img:1"},
        "status": {"state": state, "reason": "CONTAINER_RUNNING"},
        "createdAt": "2026-01-01T00:00:00.000000Z",
        **more,
    }


@contextmanager
def serving() -> Iterator[Double]:
    double = Double()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            double.asked.append((self.command, self.path))
            double.keys.append(self.headers.get("OPEN-SANDBOX-API-KEY"))
            status, body = double.answer(self.command, self.path)
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            if status // 100 == 3:
                self.send_header("Location", "/v1/sandboxes/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_DELETE = respond

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double.domain = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
