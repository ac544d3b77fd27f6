"""Dialling a port of the sandbox: each promise as one sentence."""

import socket

import pytest

from execd import loop
from execd.upstream import dial, hang_up
from specs.errors import BackendTimeout, UpstreamUnreachable


def test_a_port_that_does_not_accept_is_a_timeout() -> None:
    """Dialling has a deadline, and says which."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
            waiting.append(sock)

        async def main() -> None:
            hang_up(await dial(full.getsockname()[1], seconds=0.2))

        with pytest.raises(BackendTimeout, match=r"within 0\.2 s"):
            loop.run(main())
        for sock in waiting:
            sock.close()


def test_a_free_port_is_unreachable() -> None:
    """A port nobody listens on is refused at once, and is never our own connection's other end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def main() -> None:
        for _ in range(200):
            with pytest.raises(UpstreamUnreachable):
                await dial(port)

    loop.run(main())
