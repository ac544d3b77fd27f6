"""A small HTTP service for the inside of a sandbox: echo, server-sent events, cookies, redirects, WebSocket.

`python3 service.py PORT [LOG]`. It needs nothing but sockets and threads, so that the smallest Python will do.
Every answer of the echo, and every line of LOG, shows the request as it arrived.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import sys
import threading
import time
from typing import BinaryIO

ACCEPT_SALT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
REASONS = {101: "Switching Protocols", 200: "OK", 302: "Found", 418: "Teapot"}

Headers = list[tuple[str, str]]


class Request:
    """One request, with its headers in the order in which they came."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        first = stream.readline().decode("latin-1").split()
        self.method, self.target = (first[0], first[1]) if len(first) == 3 else ("", "")
        self.headers: Headers = []
        while line := stream.readline().decode("latin-1").rstrip("\r\n"):
            name, _, value = line.partition(":")
            self.headers.append((name.lower(), value.strip()))

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    def body(self) -> bytes:
        if self.header("transfer-encoding").lower() != "chunked":
            return self.stream.read(int(self.header("content-length") or 0))
        parts = []
        while size := int(self.stream.readline().split(b";")[0], 16):
            parts.append(self.stream.read(size))
            self.stream.readline()
        while self.stream.readline().strip():
            pass
        return b"".join(parts)


def head(status: int, headers: Headers) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def answer(client: socket.socket, request: Request, status: int, body: bytes, headers: Headers) -> None:
    sized = [*headers, ("Content-Length", str(len(body))), ("X-Method", request.method)]
    client.sendall(head(status, sized) + (b"" if request.method == "HEAD" else body))


def shown(request: Request) -> str:
    lines = [f"method {request.method}", f"target {request.target}"]
    return "\n".join([*lines, *(f"header {name}: {value}" for name, value in request.headers)]) + "\n"


def serve(client: socket.socket) -> None:
    with client, client.makefile("rb") as stream:
        while (request := Request(stream)).method:
            if len(sys.argv) > 2:
                with open(sys.argv[2], "a") as log:
                    log.write(shown(request))
            path = request.target.partition("?")[0]
            if path == "/ws":
                websocket(client, request)
                return
            if path == "/sse":
                events(client)
                return
            body = request.body()
            if path == "/cookies":
                answer(client, request, 200, b"", [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
            elif path == "/redirect":
                answer(client, request, 302, b"", [("Location", "/echo?moved=1")])
            elif path == "/teapot":
                answer(client, request, 418, b"short and stout", [("X-Kind", "teapot")])
            else:
                seen = shown(request) + f"size {len(body)}\nsha256 {hashlib.sha256(body).hexdigest()}\n"
                answer(client, request, 200, seen.encode("latin-1"), [("Content-Type", "text/plain")])


def events(client: socket.socket) -> None:
    client.sendall(head(200, [("Content-Type", "text/event-stream"), ("Connection", "close")]))
    for number in range(4):
        client.sendall(f"id: {number}\ndata: tick {number}\n\n".encode())
        time.sleep(0.3)


def websocket(client: socket.socket, request: Request) -> None:
    key = request.header("sec-websocket-key").encode()
    accept = base64.b64encode(hashlib.sha1(key + ACCEPT_SALT).digest()).decode()
    headers = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
    if offered := request.header("sec-websocket-protocol"):
        headers.append(("Sec-WebSocket-Protocol", offered.split(",")[0].strip()))
    client.sendall(head(101, headers))
    while echo_frame(client, request.stream):
        pass


def echo_frame(client: socket.socket, stream: BinaryIO) -> bool:
    """Send one frame back as it came; False after a close frame."""
    start = stream.read(2)
    if len(start) < 2:
        return False
    first, size = start[0], start[1] & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", stream.read(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", stream.read(8))
    mask = stream.read(4)
    masked = stream.read(size)
    key = (mask * (size // 4 + 1))[:size]
    data = (int.from_bytes(masked, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
    if size < 126:
        front = struct.pack("!BB", first, size)
    elif size < 65536:
        front = struct.pack("!BBH", first, 126, size)
    else:
        front = struct.pack("!BBQ", first, 127, size)
    client.sendall(front + data)
    return first & 0x0F != 0x8


def main() -> None:
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("0.0.0.0", int(sys.argv[1])))
    door.listen(64)
    while True:
        client, _ = door.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main()
