"""What a sandbox printed and what happened to it, as text (lifecycle §1.5)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from gateway.operations.ports import Runtime
from gateway.operations.register import Register
from gateway.sandboxes import states
from gateway.sandboxes.model import LifeEvent, SandboxRecord
from specs.errors import ScopeUnsupported
from specs.lifecycle import render_instant

LOG_SCOPES: Final = ("container", "all")
EVENT_SCOPES: Final = ("runtime", "all")
LOG_LINES: Final = 100
EVENT_LINES: Final = 50
NO_LOGS: Final = "(no logs)"
NO_EVENTS: Final = "(no events)"

_SINCE: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_OTHER_SINCE: Final = timedelta(minutes=10)
_LONGEST_SINCE: Final = timedelta(days=36_500)  # all there is, and still an instant of the calendar


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of diagnostic text.

    Attributes:
        truncated: older lines were left out.
        warnings: what else is missing, and why.
    """

    text: str
    truncated: bool
    warnings: tuple[str, ...] = ()


class Diagnostics:
    """Reads logs and history; changes nothing."""

    def __init__(self, register: Register, runtime: Runtime) -> None:
        self._register = register
        self._runtime = runtime

    async def logs(self, sandbox_id: str, *, tail: int, since: str | None) -> str:
        """
        Return the newest lines of the entrypoint's output, with times.

        Raises:
            SandboxNotFound
        """
        await self._register.live(sandbox_id)
        start = None if since is None else self._register.now() - parse_since(since)
        return await self._text(sandbox_id, tail, start)

    async def scoped_logs(self, sandbox_id: str, scope: str) -> Piece:
        """
        Raises:
            SandboxNotFound, ScopeUnsupported
        """
        await self._register.live(sandbox_id)
        check_scope(scope, LOG_SCOPES)
        text = await self._text(sandbox_id, LOG_LINES + 1, None)
        lines = text.splitlines()
        missing = ("scope all: this backend has container logs only",) if scope == "all" else ()
        return Piece("\n".join(lines[-LOG_LINES:]) or NO_LOGS, len(lines) > LOG_LINES, missing)

    async def events(self, sandbox_id: str, *, limit: int) -> str:
        """
        Return the newest lines of a sandbox's history, oldest first.

        Raises:
            SandboxNotFound
        """
        await self._register.live(sandbox_id)
        return render_events(await self._register.store.events(sandbox_id, limit))

    async def scoped_events(self, sandbox_id: str, scope: str) -> Piece:
        """
        Raises:
            SandboxNotFound, ScopeUnsupported
        """
        await self._register.live(sandbox_id)
        check_scope(scope, EVENT_SCOPES)
        found = await self._register.store.events(sandbox_id, EVENT_LINES + 1)
        missing = ("scope all: this backend has runtime events only",) if scope == "all" else ()
        return Piece(render_events(found[-EVENT_LINES:]), len(found) > EVENT_LINES, missing)

    async def inspect(self, sandbox_id: str) -> str:
        """
        Describe how a sandbox is set up.

        Raises:
            SandboxNotFound
        """
        record = await self._register.live(sandbox_id)
        return f"{render_record(record)}\n\n{await self._setup(record)}"

    async def summary(self, sandbox_id: str, *, tail: int, event_limit: int) -> str:
        """
        Put set-up, history and output into one text.

        Raises:
            SandboxNotFound
        """
        record = await self._register.live(sandbox_id)
        events = render_events(await self._register.store.events(sandbox_id, event_limit))
        logs = await self._text(sandbox_id, tail, None)
        parts = (render_record(record), await self._setup(record), f"Events\n{events}", f"Logs\n{logs}")
        return "\n\n".join(parts)

    async def _setup(self, record: SandboxRecord) -> str:
        if await self._runtime.observe(record.sandbox_id) is None:
            return "(the engine has no workload for this sandbox)"
        return await self._runtime.inspect_text(record.sandbox_id)

    async def _text(self, sandbox_id: str, tail: int, since: datetime | None) -> str:
        if await self._runtime.observe(sandbox_id) is None:
            return NO_LOGS  # not made yet, or already gone
        text = await self._runtime.logs(sandbox_id, tail=tail, since=since, timestamps=True)
        return text.rstrip("\n") or NO_LOGS


def check_scope(scope: str, known: Sequence[str]) -> None:
    """
    Raises:
        ScopeUnsupported: with the scopes there are.
    """
    if scope not in known:
        raise ScopeUnsupported(f"scope is not one of {', '.join(known)}")


def parse_since(text: str) -> timedelta:
    """
    Read a time span such as `30s` or `2h`; anything else means ten minutes.
    """
    match = _SINCE.fullmatch(text)
    if match is None:
        return _OTHER_SINCE
    return min(timedelta(seconds=int(match[1]) * _UNITS[match[2]]), _LONGEST_SINCE)


def render_events(events: Sequence[LifeEvent]) -> str:
    """
    Write a history, one line for each event.
    """
    lines = [
        f"{render_instant(event.at)} {event.reason} {' '.join(event.message.split())}" for event in events
    ]
    return "\n".join(lines) or NO_EVENTS


def render_record(record: SandboxRecord) -> str:
    """
    Write what is on record of a sandbox; there is no secret in a record but the salt, which is left out.
    """
    rows = {
        "Sandbox": record.sandbox_id,
        "Image": record.image,
        "Entrypoint": " ".join(record.entrypoint),
        "State": f"{record.status.state} ({record.status.reason})",
        "Since": render_instant(record.status.since),
        "Message": record.status.message,
        "Exit code": "" if record.exit_code is None else str(record.exit_code),
        "Created": render_instant(record.created_at),
        "Expires": render_instant(record.expires_at) if record.expires_at else "never",
        "Metadata": ", ".join(f"{key}={value}" for key, value in sorted(record.metadata.items())),
        "Limits": ", ".join(f"{key}={value}" for key, value in record.spec.get("resourceLimits", {}).items()),
        "Volumes": ", ".join(
            f"{volume['source']} at {volume['mountPath']}" for volume in record.spec.get("volumes", ())
        ),
        "Environment names": ", ".join(record.spec.get("envNames", ())),
    }
    shown = [f"{name + ':':<19}{value}" for name, value in rows.items() if value]
    if record.status.state in states.ENDED:
        shown.append("This sandbox has ended; delete it when its output is no longer needed.")
    return "\n".join(shown)
