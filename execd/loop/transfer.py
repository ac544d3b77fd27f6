"""Move bytes over non-blocking descriptors: try first, wait only when the kernel says so."""

from __future__ import annotations

import os

from execd.loop.scheduler import current_loop, readable, writable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket


async def recv_some(sock: socket, size: int) -> bytes:
    """Receive up to `size` bytes; empty at the peer's end of stream."""
    while True:
        try:
            return sock.recv(size)
        except BlockingIOError:
            await readable(sock.fileno())
        except InterruptedError:
            continue


async def send_all(sock: socket, data: bytes | bytearray | memoryview) -> None:
    """Send everything, waiting while the peer is slow."""
    sent = sock_send(sock, data)
    if sent == len(data):
        return
    view = memoryview(data)[sent:]
    while view:
        await writable(sock.fileno())
        view = view[sock_send(sock, view) :]


def sock_send(sock: socket, data: bytes | bytearray | memoryview) -> int:
    """Send what fits now; 0 when nothing does."""
    try:
        return sock.send(data)
    except (BlockingIOError, InterruptedError):
        return 0


async def read_some(fd: int, size: int) -> bytes:
    """Read up to `size` bytes from a non-blocking descriptor; empty at the end."""
    while True:
        try:
            return os.read(fd, size)
        except BlockingIOError:
            await readable(fd)


async def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write everything to a non-blocking descriptor."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await writable(fd)


def close_fd(fd: int) -> None:
    """Forget a descriptor in the loop, then close it."""
    current_loop().forget(fd)
    os.close(fd)
