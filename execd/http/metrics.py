"""`GET /metrics` and `GET /metrics/watch`."""

from __future__ import annotations

from execd.loop import Event, TimedOut, deadline, now, start
from specs import stream
from specs.wire import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.app import Services
    from execd.http.exchange import Reply, Request

_TICK = 1.0


async def metrics(request: Request, reply: Reply, services: Services) -> None:  # noqa: ARG001 - a route's shape
    """Answer with the sandbox's limits and use (execd §8)."""
    await reply.json((await services.metrics.current()).to_json())


async def watch(request: Request, reply: Reply, services: Services) -> None:  # noqa: ARG001 - a route's shape
    """Send the numbers once a second until the client hangs up.

    Each is one line of bare JSON and an empty line: some clients read lines, others need the
    blank line to tell events apart.
    """
    left = Event()

    async def watch_client() -> None:
        await reply.gone()
        left.set()

    body = await reply.start(200, list(stream.HEADERS))
    watcher = start(watch_client(), "watch the client of metrics")
    try:
        due = now()
        while not left.is_set():
            await body.write(encode((await services.metrics.current()).to_json()) + b"\n\n")
            due = max(due + _TICK, now())  # after a stall the rhythm starts anew, without a burst
            try:
                with deadline(due - now()):
                    await left.wait()
            except TimedOut:
                continue
    finally:
        watcher.cancel()
