"""`boxwright keys`: make, list and revoke API keys of this installation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.table import Table

from boxwright.demo import FIRST_KEY_FILE
from boxwright.terminal import ConfigFile, Format, Output, fail, out, print_json, say, settings_from
from gateway.operations.ports import ApiKey
from gateway.stores.database import Database, StoreTooNew, StoreUnavailable
from gateway.stores.keys import FIRST, SqliteKeys

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
    settings = settings_from(config)

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


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, such as a team's or a job's name.")],
    config: ConfigFile = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a key and print it, once: it cannot be shown again."""
    key, secret = with_keys(config, lambda keys: keys.create(name))
    if output is Format.JSON:
        print_json({**shown(key), "key": secret.reveal()})
        return
    say(f"key {key.key_id} ({key.name}); clients send it as OPEN-SANDBOX-API-KEY. It is not shown again:")
    typer.echo(secret.reveal())


@app.command("list")
def list_(config: ConfigFile = None, output: Output = Format.TABLE) -> None:
    """List the keys, without the keys themselves."""
    keys = with_keys(config, lambda found: found.list())
    if output is Format.JSON:
        print_json([shown(key) for key in keys])
        return
    table = Table("id", "name", "created", "last used", "revoked", box=None)
    for key in keys:
        row = shown(key)
        table.add_row(*(row[name] or "-" for name in ("id", "name", "createdAt", "lastUsedAt", "revokedAt")))
    out.print(table)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `boxwright keys list` shows it.")],
    config: ConfigFile = None,
) -> None:
    """End a key: the next call with it is refused, by a running gateway too."""
    if not with_keys(config, lambda keys: keys.revoke(key_id)):
        fail(f"no key {key_id} is in force; `boxwright keys list` shows what there is")
    if key_id == FIRST:
        (settings_from(config).home / FIRST_KEY_FILE).unlink(missing_ok=True)
        say(
            "the first key is gone from the home too; a BOXWRIGHT_API_KEY that is still set would bring it back"
        )
    say(f"key {key_id} is revoked")
