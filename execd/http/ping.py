"""Say that execd is there, and what it does not do."""

from __future__ import annotations

from specs.errors import ExecdNotSupported
from specs.names import ENV_SANDBOX_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.app import Services
    from execd.http.exchange import Reply, Request


async def ping(request: Request, reply: Reply, services: Services) -> None:  # noqa: ARG001 - a route's signature
    """Answer 200: execd accepts calls."""
    await reply.empty()


async def ready(request: Request, reply: Reply, services: Services) -> None:  # noqa: ARG001 - a route's signature
    """Say that nothing is left to be initialised, and for which sandbox (execd contract §2.1)."""
    out: dict[str, object] = {"initialized": True}
    sandbox = services.config.base_environ.get(ENV_SANDBOX_ID)
    if sandbox:
        out["sandboxId"] = sandbox
    await reply.json(out)


async def isolation(request: Request, reply: Reply, services: Services) -> None:  # noqa: ARG001 - a route's signature
    """Say that no isolated session can be made here: a question, so never refused (execd contract §12.6)."""
    await reply.json({"available": False, "message": "this version does not have isolated sessions"})


async def unsupported(request: Request, reply: Reply, services: Services) -> None:  # noqa: ARG001 - a route's signature
    """
    Refuse a part of the protocol that this version lacks.

    Raises:
        ExecdNotSupported: always.
    """
    first = request.path.split("/")[1]
    what = {"pty": "terminals", "code": "the code interpreter"}.get(first)
    if what is None:
        what = "isolated sessions" if "/isolated" in request.path else "files with another identity"
    raise ExecdNotSupported(f"this version does not have {what}")
