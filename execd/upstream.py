"""Dial a port of the sandbox itself."""

from __future__ import annotations

import _socket
import errno
import os

from execd.loop import TimedOut, current_loop, deadline, writable
from specs.errors import BackendTimeout, UpstreamUnreachable

DIAL_SECONDS = 10.0

_LOOPBACKS = ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1"))


async def dial(port: int, seconds: float = DIAL_SECONDS) -> _socket.socket:
    """
    Connect to a port on the loopback, IPv4 first.

    Raises:
        UpstreamUnreachable: nobody listens there.
        BackendTimeout: nobody answers.
    """
    reason = "connection refused"
    for family, address in _LOOPBACKS:
        try:
            sock = _socket.socket(family, _socket.SOCK_STREAM, 0)
        except OSError:
            continue  # no IPv6 here
        connected = False
        try:
            sock.setblocking(False)
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            await _connect(sock, address, port, seconds)
            connected = True
            return sock
        except TimedOut:
            raise BackendTimeout(f"port {port} did not accept within {seconds:g} s") from None
        except OSError as failure:
            if family == _socket.AF_INET:
                reason = failure.strerror or reason
        finally:
            if not connected:
                hang_up(sock)
    raise UpstreamUnreachable(f"port {port} cannot be reached: {reason.lower()}")


async def _connect(sock: _socket.socket, address: str, port: int, seconds: float) -> None:
    code = sock.connect_ex((address, port))
    if code == errno.EINPROGRESS:
        with deadline(seconds):
            await writable(sock.fileno())
        code = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
    if sock.getsockname() == sock.getpeername():
        # A free port of the ephemeral range can be connected to itself; that is nobody.
        raise OSError(errno.ECONNREFUSED, "connection refused")


def hang_up(sock: _socket.socket) -> None:
    """Forget a socket in the loop and close it."""
    fd = sock.fileno()
    if fd >= 0:
        current_loop().forget(fd)
        sock.close()
