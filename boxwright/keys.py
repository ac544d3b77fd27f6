"""`boxwright keys`: make, list and revoke API keys of this installation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.table import Column, Table

from boxwright.access import FIRST_KEY_FILE
from boxwright.terminal import ConfigFile, Format, Output, examples, fail, out, print_json, say, settings_from

if TYPE_CHECKING:  # imported where it is used: `--help` shall be quick
    from gateway.operations.ports import ApiKey
    from gateway.stores.keys import SqliteKeys

app = typer.Typer(
    help="API keys: only their hashes are kept, several work at once, a revoked one stops at once.",
    no_args_is_help=True,
)
T = TypeVar("T")


class SystemClock:
    """The real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def with_keys(config: Path | None, work: Callable[[SqliteKeys], Awaitable[T]]) -> T:
    """Open this installation's store, do one thing with its keys, close it."""
    from gateway.stores.database import Database, StoreTooNew, StoreUnavailable
    from gateway.stores.keys import SqliteKeys

    settings = settings_from(config)
    if not settings.database.exists():
        fail(
            f"there is no Boxwright in {settings.home} yet: set BOXWRIGHT_HOME as for `boxwright up`, or start it once"
        )

    async def run() -> T:
        database = Database(settings.database)
        try:
            return await work(SqliteKeys(database, SystemClock()))
        finally:
            database.close()

    try:
        return asyncio.run(run())
    except (StoreTooNew, StoreUnavailable, OSError) as error:
        fail(f"{settings.database}: {error}")


def shown(key: ApiKey) -> dict[str, str | None]:
    def text(moment: datetime | None) -> str | None:
        return None if moment is None else moment.isoformat(timespec="seconds")

    return {
        "id": key.key_id,
        "name": key.name,
        "createdAt": text(key.created_at),
        "lastUsedAt": text(key.last_used_at),
        "revokedAt": text(key.revoked_at),
    }


@app.command(
    epilog=examples("boxwright keys create ci", "export OPEN_SANDBOX_API_KEY=$(boxwright keys create me)")
)
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, such as a team's or a job's name.")],
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a key and print it, once: it cannot be shown again."""
    if not name.strip():
        fail("a key needs a name, such as a team's or a job's: it is all that tells keys apart later")
    key, secret = with_keys(config, lambda keys: keys.create(name))
    if output is Format.JSON:
        print_json({**shown(key), "key": secret.reveal()})
        return
    say(f"key {key.key_id} ({key.name}); clients send it as OPEN-SANDBOX-API-KEY. It is not shown again:")
    typer.echo(secret.reveal())


@app.command("list", epilog=examples("boxwright keys list", "boxwright keys list -o json | jq -r '.[].id'"))
def list_(config: ConfigFile = None, output: Output = Format.TABLE) -> None:
    """List the keys, without the keys themselves."""
    keys = with_keys(config, lambda found: found.list())
    if output is Format.JSON:
        print_json([shown(key) for key in keys])
        return
    table = Table(
        *(Column(name, overflow="fold") for name in ("id", "name", "created", "last used", "revoked")),
        box=None,
    )
    for key in keys:
        row = shown(key)
        table.add_row(*(row[name] or "-" for name in ("id", "name", "createdAt", "lastUsedAt", "revokedAt")))
    out.print(table)


@app.command(epilog=examples("boxwright keys revoke first", "boxwright keys revoke u71pcyk4k7"))
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `boxwright keys list` shows it.")],
    config: ConfigFile = None,
) -> None:
    """End a key: the next call with it is refused, by a running gateway too."""
    from gateway.stores.keys import FIRST

    if not with_keys(config, lambda keys: keys.revoke(key_id)):
        fail(f"no key {key_id} is in force; `boxwright keys list` shows what there is")
    if key_id == FIRST:
        (settings_from(config).home / FIRST_KEY_FILE).unlink(missing_ok=True)
        say(
            "the first key is gone from the home too; a BOXWRIGHT_API_KEY that is still set would bring it back"
        )
    say(f"key {key_id} is revoked")
