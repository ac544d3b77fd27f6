"""The one place that turns failures into answers.

What the caller may know is a `BoxwrightError`; anything else is a 500 with the
request's id, and a traceback on standard error. No user output, header value or
token is ever logged.
"""

from __future__ import annotations

from execd.http.exchange import ClientGone
from execd.loop.scheduler import complain, print_crash
from specs.errors import BoxwrightError, ExecutionFailed, InvalidBody, MethodNotAllowed
from specs.wire import BadField, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from execd.http.exchange import Reply, Request


async def refuse(reply: Reply, error: BoxwrightError) -> None:
    """
    Answer with an error.

    Raises:
        ClientGone: the client hung up.
    """
    headers = [("Content-Type", "application/json")]
    if error.retry_after is not None:
        headers.append(("Retry-After", str(error.retry_after)))
    if isinstance(error, MethodNotAllowed) and isinstance(error.details, list):
        headers.append(("Allow", ", ".join(error.details)))  # RFC 9110 §15.5.6
    await reply.send(error.status, headers, encode(error.body()))


async def guarded(route: Callable[[Request, Reply], Awaitable[None]], request: Request, reply: Reply) -> None:
    """
    Run a route and render what it raises; after `Reply.start` the connection is cut instead.

    Raises:
        ClientGone: the client hung up.
    """
    try:
        await route(request, reply)
    except ClientGone:
        raise
    except BoxwrightError as error:
        if not reply.started:
            await refuse(reply, error)
    except BadField as error:
        if not reply.started:
            await refuse(reply, InvalidBody(str(error)))
    except Exception as error:  # the border of every route: the client gets an answer, the log the trace
        complain(f"request {request.id} ({request.method}) failed")
        print_crash("request", error)
        if not reply.started:
            await refuse(reply, ExecutionFailed(f"internal error; request id {request.id}"))
