"""Write an event stream: `init` and a ping at once, pings while quiet, an end that is the end.

The heartbeat is a timer, not a task: it fires outside of any write, so a ping can
never fall inside an event.
"""

from __future__ import annotations

import time

from execd.http.exchange import ClientGone
from execd.loop import current_loop, now
from specs import stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.http.exchange import Body, Reply
    from execd.loop import Timer


def now_ms() -> int:
    """Return the Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class EventStream:
    """The reply of one execution. Call `open`, `write` any number of times, `end`; `stop` if it breaks."""

    __slots__ = ("_body", "_heartbeat", "_last", "_reply", "_timer")

    def __init__(self, reply: Reply, heartbeat_seconds: float) -> None:
        self._reply = reply
        self._heartbeat = heartbeat_seconds
        self._body: Body | None = None
        self._last = 0.0
        self._timer: Timer | None = None

    async def open(self, execution_id: str) -> None:
        """
        Answer 200 and write `init` and the first ping, in one send.

        Raises:
            ClientGone: the client hung up.
        """
        moment = now_ms()
        await self.begin(stream.init(execution_id, moment) + stream.ping(moment))

    async def begin(self, first: bytes) -> None:
        """
        Answer 200 and write the first events.

        Raises:
            ClientGone: the client hung up.
        """
        self._body = await self._reply.start(200, list(stream.HEADERS))
        await self.write(first)
        self._arm(self._heartbeat)

    async def write(self, events: bytes) -> None:
        """
        Write whole events.

        Raises:
            ClientGone: the client hung up.
        """
        if self._body is None:
            raise RuntimeError("the stream is not open")
        await self._body.write(events)
        self._last = now()

    async def end(self, events: bytes = b"") -> None:
        """
        Write the terminal event and end the reply.

        Raises:
            ClientGone: the client hung up.
        """
        self.stop()
        if self._body is None:
            raise RuntimeError("the stream is not open")
        await self._body.finish(events)

    def stop(self) -> None:
        """Stop the heartbeat; for a stream that will not be ended properly."""
        if self._timer is not None:
            self._timer.live = False
            self._timer = None

    async def gone(self) -> None:
        """Return when the client has hung up; for a task of its own."""
        await self._reply.gone()

    def _arm(self, seconds: float) -> None:
        self._timer = current_loop().at(now() + seconds, self._beat)

    def _beat(self) -> None:
        quiet = now() - self._last
        if quiet + 0.001 < self._heartbeat:
            self._arm(self._heartbeat - quiet)
            return
        if self._body is not None:
            try:
                self._body.offer(stream.ping(now_ms()))
            except ClientGone:
                return  # whoever writes next is told
        self._last = now()
        self._arm(self._heartbeat)
