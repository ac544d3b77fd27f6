"""The daemon inside a sandbox, as far as the gateway asks it anything.

There is no event that crosses from a fresh container to the gateway without giving the container something
to hold, so readiness is asked for: a `GET /ping` repeated with delays of 1, 2, 4, 8, 16, then 20 ms. On the
sandbox's own address a daemon that is not up yet refuses at once, so the answer comes within one delay of the
daemon's listening; the first delays are the ones that matter, since execd is up about ten milliseconds after
the start. The asking happens from outside the sandbox: from inside, a probe of a port in the ephemeral range
can connect to itself.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gateway.sandboxes.model import Address

_FIRST_DELAY: Final = 0.001
_LONGEST_DELAY: Final = 0.020
_CONNECT_SECONDS: Final = 0.5  # a place that swallows packets must not eat the whole deadline
_STATUS_LINE_BYTES: Final = 1024


class HttpExecdPeer:
    """Speaks HTTP to execd; implements `gateway.operations.ports.ExecdPeer`."""

    async def wait_ready(self, address: Address, *, deadline: float) -> bool:
        """
        Ask until execd answers its `/ping`.

        Args:
            address: where it may answer; the sandbox's own address first, then the published port.
            deadline: seconds to try.

        Returns:
            True as soon as it answered 200, False when the deadline passed first.
        """
        places = _places(address)
        if not places:
            return False
        delay = _FIRST_DELAY
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                while True:
                    for place in tuple(places):
                        outcome = await _ping(*place)
                        if outcome is True:
                            return True
                        if outcome is None and len(places) > 1:
                            # Unreachable from here (not merely refusing): the other place is asked first.
                            places.remove(place)
                            places.append(place)
                        elif place == places[0]:
                            break
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, _LONGEST_DELAY)
        return False


def _places(address: Address) -> list[tuple[str, int]]:
    places: list[tuple[str, int]] = []
    if address.ip is not None:
        places.append((address.ip, address.port))
    if address.published_host and address.published_port:
        places.append((address.published_host, address.published_port))
    return places


async def _ping(host: str, port: int) -> bool | None:
    """Return True for a 200, False when execd is not there yet, None when the place cannot be reached."""
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=_STATUS_LINE_BYTES)
    except ConnectionError:
        return False
    except OSError:  # no route, or the connect's own deadline
        return None
    try:
        writer.write(b"GET /ping HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n")
        line = await reader.readuntil(b"\r\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        # The engine's port forwarder accepts before anybody listens behind it, then hangs up.
        return False
    finally:
        writer.transport.abort()
    return line.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200"))
