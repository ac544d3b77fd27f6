"""Sessions over HTTP: create, run, delete. Source: execd contract §2.4, §5."""

from __future__ import annotations

from execd.http.commands import StreamListener
from execd.http.streaming import EventStream
from execd.loop import start
from execd.processes.outcome import DISCONNECT
from specs.errors import InvalidBody
from specs.execd import CreateSessionRequest, RunInSessionRequest
from specs.wire import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.app import Services
    from execd.http.exchange import Reply, Request
    from execd.sessions.shell import Run


async def create(request: Request, reply: Reply, services: Services) -> None:
    """`POST /session`; the body may be empty."""
    body = (await request.body()).strip()
    try:
        wanted = CreateSessionRequest.from_json(decode(body) if body else None)
    except ValueError as failure:
        raise InvalidBody(str(failure)) from failure
    await reply.json({"session_id": await services.sessions.create(wanted)})


async def run(request: Request, reply: Reply, services: Services) -> None:
    """`POST /session/{id}/run`: when the client goes, the run ends; the session stays."""
    wanted = RunInSessionRequest.from_json(await request.json())
    planned = services.sessions.plan(request.params["id"], wanted)
    events = EventStream(reply, services.config.heartbeat_seconds)
    watch = start(_leave_with_client(events, services, planned), "client of a session")
    try:
        await services.sessions.run(planned, StreamListener(events))
    finally:
        watch.cancel()
        events.stop()


async def _leave_with_client(events: EventStream, services: Services, planned: Run) -> None:
    await events.gone()
    await services.sessions.stop(planned, DISCONNECT)


async def delete(request: Request, reply: Reply, services: Services) -> None:
    """`DELETE /session/{id}`."""
    await services.sessions.delete(request.params["id"])
    await reply.empty()
