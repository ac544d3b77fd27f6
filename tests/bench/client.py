"""A load client that costs little: prebuilt requests, raw sockets, epoll, no parsing beyond the end mark."""

from __future__ import annotations

import http.client
import json
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

END = b"0\r\n\r\n"
IDLE = 5.0  # seconds after which a kept connection is made anew


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One sandbox as the bench reaches it."""

    id: str
    host: str
    port: int
    base: str  # path before the execd route
    headers: dict[str, str]

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        lines = [f"{method} {self.base}{path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body


class Api:
    """The lifecycle API over one keep-alive connection."""

    def __init__(self, domain: str, key: str) -> None:
        self._connection = http.client.HTTPConnection(domain, timeout=120)
        self._used = 0.0
        self._headers = {"OPEN-SANDBOX-API-KEY": key, "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        payload = None if body is None else json.dumps(body)
        if time.monotonic() - self._used > IDLE:  # the server may have closed it meanwhile
            self._connection.close()
        self._connection.request(method, f"/v1{path}", payload, self._headers)
        answer = self._connection.getresponse()
        data = answer.read()
        self._used = time.monotonic()
        return answer.status, json.loads(data) if data else None

    def must(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.call(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def create(self, image: str, **more: object) -> str:
        body = {
            "image": {"uri": image},
            "entrypoint": ["tail", "-f", "/dev/null"],
            "timeout": 3600,
            "resourceLimits": {},
            **more,
        }
        return str(self.must("POST", "/sandboxes", body)["id"])

    def endpoint(self, sandbox_id: str, port: int = 44772, *, proxy: bool = False) -> Sandbox:
        query = "?use_server_proxy=true" if proxy else ""
        answer = self.must("GET", f"/sandboxes/{sandbox_id}/endpoints/{port}{query}")
        where, _, base = answer["endpoint"].partition("/")
        host, _, number = where.rpartition(":")
        headers = dict(answer.get("headers") or {})
        if proxy:
            headers["OPEN-SANDBOX-API-KEY"] = self._headers["OPEN-SANDBOX-API-KEY"]
        return Sandbox(sandbox_id, host, int(number), f"/{base}" if base else "", headers)

    def delete(self, sandbox_id: str) -> None:
        self.call("DELETE", f"/sandboxes/{sandbox_id}")


def connect(sandbox: Sandbox) -> socket.socket:
    link = socket.create_connection((sandbox.host, sandbox.port), timeout=60)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def exchange(link: socket.socket, request: bytes) -> bytes:
    """Send one request, return everything up to the end of a chunked answer."""
    link.sendall(request)
    got = b""
    while not got.endswith(END):
        piece = link.recv(1 << 16)
        if not piece:
            raise RuntimeError(f"connection ended early: {got[-300:]!r}")
        got += piece
    return got


def command(sandbox: Sandbox, text: str) -> bytes:
    return sandbox.request("POST", "/command", json.dumps({"command": text}).encode())


def sequential(sandbox: Sandbox, request: bytes, count: int, mark: bytes) -> list[float]:
    """Time `count` exchanges one after the other on one connection; seconds each."""
    with connect(sandbox) as link:
        for _ in range(20):
            exchange(link, request)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            got = exchange(link, request)
            times.append(time.perf_counter() - began)
            if mark not in got:
                raise RuntimeError(f"wrong answer: {got[-300:]!r}")
    return times


def concurrent(sandbox: Sandbox, request: bytes, links: int, count: int, mark: bytes) -> tuple[float, int]:
    """Run `count` exchanges over `links` connections; return (seconds, failures)."""
    epoll = select.epoll()
    open_links: dict[int, socket.socket] = {}
    got: dict[int, bytes] = {}
    for _ in range(links):
        link = connect(sandbox)
        link.setblocking(False)
        epoll.register(link.fileno(), select.EPOLLIN)
        open_links[link.fileno()], got[link.fileno()] = link, b""
    began = time.perf_counter()
    started, finished, failures = 0, 0, 0
    for link in open_links.values():
        link.send(request)
        started += 1
    while finished < count and open_links:
        for number, _ in epoll.poll(60):
            link = open_links[number]
            piece = link.recv(1 << 16)
            got[number] += piece
            if piece and not got[number].endswith(END):
                continue
            finished += 1
            failures += mark not in got[number]
            got[number] = b""
            if not piece:
                epoll.unregister(number)
                del open_links[number]
                link.close()
            elif started < count:
                link.send(request)
                started += 1
    spent = time.perf_counter() - began
    for link in open_links.values():
        link.close()
    epoll.close()
    return spent, failures
