"""`boxwright ps`, `logs`, `events`, `rm`: the sandboxes of a running gateway, through its API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer
from rich.markup import escape
from rich.table import Table

from boxwright import spans
from boxwright.access import Domain
from boxwright.api import Api, ApiFailure, Query, open_api
from boxwright.terminal import ConfigFile, Format, Output, confirm, fail, out, print_json, say
from gateway.sandboxes.model import State
from gateway.sandboxes.states import ENDED

FIRST_PAGE: Final = 50
MOST_LINES: Final = 10_000  # of one logs call (lifecycle §1.5)
POLL_SECONDS: Final = 1.0
OVERLAP_SECONDS: Final = 5  # asked for again, so that a line that was late is not lost
STATE_STYLES: Final = {"Running": "green", "Failed": "red", "Paused": "yellow", "Pending": "cyan"}
NOTHING: Final = frozenset({"(no logs)", "(no events)"})


def complete_id(incomplete: str) -> list[str]:
    """Complete ids for the shell; without a gateway there are none."""
    try:
        return [one["id"] for one in open_api(None, None).sandboxes() if one["id"].startswith(incomplete)]
    except (ApiFailure, typer.Exit):
        return []


SandboxId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The sandbox's id, or as much of it as is unique.", autocompletion=complete_id
    ),
]
States = Annotated[
    list[State] | None,
    typer.Option("--state", "-s", case_sensitive=False, help="Only these states; may be repeated."),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", "-m", metavar="KEY=VALUE", help="Only with this pair; may be repeated."),
]


def ps(
    state: States = None,
    metadata: Metadata = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help=f"Every page, not only the newest {FIRST_PAGE}.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only.")] = False,
    domain: Domain = None,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """List sandboxes, newest first: state and reason, image, age, time left, metadata."""
    api = open_api(config, domain)
    wanted = list_query(state, metadata)
    try:
        items, total = every_page(api, wanted) if every else first_page(api, wanted)
    except ApiFailure as error:
        fail(str(error))
    if output is Format.JSON:
        print_json(items)
    elif quiet:
        for item in items:
            typer.echo(item["id"])
    else:
        show_sandboxes(items, datetime.now(UTC))
    if len(items) < total:
        say(f"{total - len(items)} more; --all shows every page")


def logs(
    sandbox_id: SandboxId,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, max=MOST_LINES, help="How many lines.")] = 100,
    since: Annotated[
        str | None, typer.Option("--since", metavar="SPAN", help="How far back: 30s, 10m, 2h, 1d.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the sandbox ends or Ctrl-C.")
    ] = False,
    times: Annotated[bool, typer.Option("--timestamps", "-t", help="Begin each line with its time.")] = False,
    domain: Domain = None,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Print what a sandbox's entrypoint wrote. What commands wrote goes to whoever ran them."""
    if since is not None and spans.parse(since) is None:
        fail(f"--since {since!r} is not a time span; write for example 30s, 10m, 2h or 1d")
    if follow and output is Format.JSON:
        fail("-o json prints a whole document, which --follow never has; leave one of them out")
    api = open_api(config, domain)
    try:
        whole = api.whole_id(sandbox_id)
        if follow:
            for line in followed(api, whole, tail, since, clock=time.monotonic, wait=time.sleep):
                typer.echo(line if times else split_time(line)[1])
            say(f"sandbox {whole} has ended")
            return
        lines = log_lines(api, whole, tail, since)
    except ApiFailure as error:
        fail(str(error))
    if output is Format.JSON:
        print_json([dict(zip(("time", "text"), split_time(line), strict=True)) for line in lines])
        return
    for line in lines:
        typer.echo(line if times else split_time(line)[1])


def events(
    sandbox_id: SandboxId,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many events.")] = 50,
    domain: Domain = None,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what happened to a sandbox, oldest first: each change of state with its reason and message."""
    api = open_api(config, domain)
    try:
        text = api.text(
            f"/v1/sandboxes/{quote(api.whole_id(sandbox_id), safe='')}/diagnostics/events",
            [("limit", str(limit))],
        )
    except ApiFailure as error:
        fail(str(error))
    found = [parse_event(line) for line in text.splitlines() if line not in NOTHING]
    if output is Format.JSON:
        print_json(found)
        return
    table = Table("at", "reason", "message", box=None, padding=(0, 2, 0, 0))
    for event in found:
        table.add_row(event["at"], event["reason"], escape(event["message"]))
    out.print(table)


def rm(
    sandbox_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Ids, or as much of each as is unique.", autocompletion=complete_id
        ),
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Every sandbox there is, or every one that --state and --metadata leave."),
    ] = False,
    state: States = None,
    metadata: Metadata = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    domain: Domain = None,
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """End sandboxes and remove what they wrote. Asks first; without a terminal it wants --yes."""
    given = sandbox_ids or []
    if bool(given) == every:
        fail("name the sandboxes to remove, or say --all (one of the two)")
    if given and (state or metadata):
        fail("--state and --metadata choose among --all; they do not go with ids")
    api = open_api(config, domain)
    try:
        if every:
            chosen = every_page(api, list_query(state, metadata))[0]
        else:
            wanted = dict.fromkeys(api.whole_id(text) for text in given)
            chosen = [found(api, sandbox_id) for sandbox_id in wanted]
        if not chosen:
            say("there is no such sandbox")
            if output is Format.JSON:
                print_json([])
            return
        if not yes:
            show_sandboxes(chosen, datetime.now(UTC))
            confirm(f"Remove {len(chosen)} sandbox{'' if len(chosen) == 1 else 'es'} and what they wrote?")
        gone = list(removed(api, [str(one["id"]) for one in chosen], say if output is Format.TABLE else None))
    except ApiFailure as error:
        fail(str(error))
    if output is Format.JSON:
        print_json([one.as_dict() for one in gone])
    if any(one.problem for one in gone):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Removal:
    """What came of one delete; an empty problem means it is gone."""

    sandbox_id: str
    problem: str = ""

    def as_dict(self) -> dict[str, object]:
        return {"id": self.sandbox_id, "removed": not self.problem, "problem": self.problem or None}


def removed(api: Api, ids: Sequence[str], report: Callable[[str], None] | None) -> Iterator[Removal]:
    """Delete one after the other; one that fails does not keep the others from their end."""
    for sandbox_id in ids:
        try:
            api.delete(f"/v1/sandboxes/{quote(sandbox_id, safe='')}")
        except ApiFailure as error:
            if error.status == 0:
                raise
            result = Removal(sandbox_id, "" if error.status == 404 else str(error))
        else:
            result = Removal(sandbox_id)
        if report is not None:
            report(f"{sandbox_id}: {result.problem or 'removed'}")
        yield result


def found(api: Api, sandbox_id: str) -> dict[str, Any]:
    """
    Read one sandbox.

    Raises:
        ApiFailure
    """
    item: dict[str, Any] = api.json(f"/v1/sandboxes/{quote(sandbox_id, safe='')}")
    return item


def list_query(states: Iterable[State] | None, metadata: Iterable[str] | None) -> Query:
    """Return the list call's filters, or end with what is wrong with them."""
    query = [("state", state.value) for state in states or ()]
    pairs = []
    for text in metadata or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            fail(f"--metadata {text!r} is not KEY=VALUE")
        pairs.append((key, value))
    return [*query, ("metadata", urlencode(pairs, quote_via=quote))] if pairs else query


def every_page(api: Api, query: Query) -> tuple[list[dict[str, Any]], int]:
    # A sandbox that is made meanwhile moves the pages by one, so that one item may come twice.
    items = list({item["id"]: item for item in api.sandboxes(query)}.values())
    return items, len(items)


def first_page(api: Api, query: Query) -> tuple[list[dict[str, Any]], int]:
    page = api.json("/v1/sandboxes", [*query, ("pageSize", str(FIRST_PAGE))])
    return page["items"], page["pagination"]["totalItems"]


def show_sandboxes(items: Iterable[dict[str, Any]], now: datetime) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("id", no_wrap=True)
    for name in ("state", "reason", "image", "age", "expires in", "metadata"):
        table.add_column(name, overflow="fold")
    for item in items:
        sandbox_id, state, *rest = row(item, now)
        style = STATE_STYLES.get(state)
        table.add_row(sandbox_id, f"[{style}]{state}[/]" if style else state, *map(escape, rest))
    out.print(table)


def row(item: dict[str, Any], now: datetime) -> tuple[str, ...]:
    """Return a sandbox as the cells of a line."""
    expires = item.get("expiresAt")
    left = spans.instant(expires) - now if expires else None
    return (
        item["id"],
        item["status"]["state"],
        item["status"].get("reason") or "",
        (item.get("image") or {}).get("uri", ""),
        spans.short(now - spans.instant(item["createdAt"])),
        "never" if left is None else spans.short(left) if left.total_seconds() > 0 else "now",
        ", ".join(f"{key}={value}" for key, value in sorted((item.get("metadata") or {}).items())),
    )


def log_lines(api: Api, sandbox_id: str, tail: int, since: str | None) -> list[str]:
    query = [("tail", str(tail)), *([("since", since)] if since else [])]
    text = api.text(f"/v1/sandboxes/{quote(sandbox_id, safe='')}/diagnostics/logs", query)
    return [] if text in NOTHING else text.split("\n")


def followed(
    api: Api,
    sandbox_id: str,
    tail: int,
    since: str | None,
    *,
    clock: Callable[[], float],
    wait: Callable[[float], None],
) -> Iterator[str]:
    """
    Yield log lines until the sandbox has ended.

    The API has no stream of logs, so this asks again each second, a little further back than it would need to,
    and knows by its time and text which line it has had.

    Raises:
        ApiFailure
    """
    asked = clock()
    lines = log_lines(api, sandbox_id, MOST_LINES, since)
    yield from lines[-tail:]
    seen = set(lines)
    while True:
        ended = has_ended(api, sandbox_id)  # before the lines are read, so that the last ones are among them
        if not ended:
            wait(POLL_SECONDS)
        span, asked = clock() - asked, clock()
        try:
            lines = log_lines(api, sandbox_id, MOST_LINES, f"{int(span) + OVERLAP_SECONDS}s")
        except ApiFailure as error:
            if error.status != 404:
                raise
            return  # removed meanwhile
        fresh = [line for line in lines if line not in seen]
        if len(fresh) == MOST_LINES:
            say("warning: lines come faster than they can be read; some are missing")
        yield from fresh
        if ended:
            return
        seen = set(lines)


def has_ended(api: Api, sandbox_id: str) -> bool:
    try:
        return found(api, sandbox_id)["status"]["state"] in ENDED
    except ApiFailure as error:
        if error.status != 404:
            raise
        return True


def split_time(line: str) -> tuple[str, str]:
    """Return a log line's time and text; a line without a time is all text."""
    moment, space, text = line.partition(" ")
    return (moment, text) if moment[:1].isdigit() and (space or moment.endswith("Z")) else ("", line)


def parse_event(line: str) -> dict[str, str]:
    """Read a line of the history: instant, reason, message."""
    at, _, rest = line.partition(" ")
    reason, _, message = rest.partition(" ")
    return {"at": at, "reason": reason, "message": message}
