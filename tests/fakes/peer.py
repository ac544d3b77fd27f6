"""An execd that is ready when told to be."""

from __future__ import annotations

import asyncio

from gateway.sandboxes.model import Address


class FakePeer:
    def __init__(self, *, ready: bool = True) -> None:
        self.ready = asyncio.Event()
        if ready:
            self.ready.set()
        self.asked: list[Address] = []

    async def wait_ready(self, address: Address, *, deadline: float) -> bool:
        self.asked.append(address)
        try:
            async with asyncio.timeout(deadline):
                await self.ready.wait()
        except TimeoutError:
            return False
        return True
