"""Commands over HTTP: run, interrupt, status, logs. Source: execd contract §2.3, §3, §4."""

from __future__ import annotations

from execd.http.exchange import ClientGone
from execd.http.streaming import EventStream
from execd.output.pump import Turn
from specs.errors import InvalidBody, MissingQuery
from specs.execd import RunCommandRequest
from specs.names import HEADER_TAIL_CURSOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.app import Services
    from execd.http.exchange import Reply, Request

SMALL = 256 * 1024  # bytes of logs that are sent as one piece
MAX_DIGITS = 18  # of a cursor that is read as a number
FAR = 10**MAX_DIGITS


class StreamListener:
    """Passes a command's events to the client; when the client has gone they go nowhere."""

    __slots__ = ("_stream", "_turn", "gone")

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._turn = Turn()
        self.gone = False

    async def open(self, execution_id: str) -> None:
        """Say the id; first."""
        try:
            await self._stream.open(execution_id)
        except ClientGone:
            self._leave()

    async def write(self, events: bytes) -> None:
        """Pass events on; both channels of a command write, one at a time."""
        if self.gone:
            return
        await self._turn.take()
        try:
            if not self.gone:
                await self._stream.write(events)
        except ClientGone:
            self._leave()
        finally:
            self._turn.give()

    async def end(self, events: bytes) -> None:
        """Pass the last events on and end the stream."""
        if self.gone:
            return
        try:
            await self._stream.end(events)
        except ClientGone:
            self._leave()

    def _leave(self) -> None:
        self.gone = True
        self._stream.stop()


async def run(request: Request, reply: Reply, services: Services) -> None:
    """`POST /command`."""
    wanted = RunCommandRequest.from_json(await request.json())
    events = EventStream(reply, services.config.heartbeat_seconds)
    try:
        await services.commands.run(wanted, StreamListener(events))
    finally:
        events.stop()


async def interrupt(request: Request, reply: Reply, services: Services) -> None:
    """`DELETE /command?id=`: a command's id, or a session's, whose present run is stopped then."""
    wanted = request.first("id")
    if not wanted:
        raise MissingQuery("id: the query parameter is required")
    if services.sessions.knows(wanted):
        await services.sessions.interrupt(wanted)
    else:
        await services.commands.interrupt(wanted)
    await reply.empty()


async def status(request: Request, reply: Reply, services: Services) -> None:
    """`GET /command/status/{id}`."""
    await reply.json(services.commands.status(request.params["id"]).to_json())


async def logs(request: Request, reply: Reply, services: Services) -> None:
    """`GET /command/{id}/logs`: raw output from a byte cursor; the next cursor is in a header."""
    cursor = _cursor(request.first("cursor"))
    spool, complete = services.commands.logs(request.params["id"])
    held = spool.snapshot(cursor, finished=complete)
    try:
        headers = [("Content-Type", "text/plain; charset=utf-8"), (HEADER_TAIL_CURSOR, str(held.after))]
        if held.length <= SMALL:
            await reply.send(200, headers, b"".join(held.pieces()))
            return
        body = await reply.start(200, headers, held.length)
        for piece in held.pieces():
            await body.write(piece)
        await body.finish()
    finally:
        held.close()


def _cursor(text: str | None) -> int:
    """Read a cursor; what is not a number means the beginning, as the protocol has it."""
    digits = (text or "").strip()
    if not digits.removeprefix("-").isdecimal():
        return 0
    if digits.startswith("-") and digits.strip("-0"):
        raise InvalidBody("cursor: must not be negative")
    # Longer than any output can be, and more than the interpreter cares to convert: the end.
    return int(digits) if len(digits) <= MAX_DIGITS else FAR
