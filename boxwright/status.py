"""`boxwright status`: does it run, can it work, what does it hold?"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sqlite3
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from boxwright import __version__, spans
from boxwright.access import Domain, NoKey, base_url, find_key
from boxwright.api import Api, ApiFailure, send_http
from boxwright.running import local_domain, running
from boxwright.terminal import ConfigFile, Format, Output, out, print_json, say, settings_from


def status(domain: Domain = None, config: ConfigFile = None, output: Output = Format.TABLE) -> None:
    """Show whether a gateway runs and can work, which release, how many sandboxes, and where its state is.

    Ends with 0 when it is ready to work, with 1 when it is not or does not run.
    """
    settings = settings_from(config)
    found = running(settings.home)
    if domain is None:
        configured = local_domain(settings.server.host, settings.server.port)
        domain = found[0].domain if len(found) == 1 else configured
    base = base_url(domain)
    facts = gateway_facts(base)
    process = next((one for one in found if base_url(one.domain) == base), None)
    if process is not None:
        facts |= {"pid": process.pid, "since": process.started}
    if facts["ready"] is not None:
        facts |= sandbox_facts(base, settings.home)
    facts |= {"home": str(settings.home), "store": store_facts(settings.database), "cli": __version__}
    if output is Format.JSON:
        print_json(facts)
    else:
        show(facts)
        for hint in hints(facts):
            say(hint)
    if not facts["ready"]:
        raise typer.Exit(1)


def gateway_facts(base: str) -> dict[str, Any]:
    """Ask what needs no key. `ready` is None when nothing answers."""
    try:
        readiness = json.loads(send_http("GET", f"{base}/readyz", {}, 10.0).body)
        version = json.loads(send_http("GET", f"{base}/version", {}, 10.0).body)
        return {
            "url": f"{base}/v1",
            "ready": readiness["status"] == "ready",
            "checks": readiness["checks"],
            "version": version["version"],
        }
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return {"url": f"{base}/v1", "ready": None, "checks": {}, "version": None}


def sandbox_facts(base: str, home: Path) -> dict[str, Any]:
    """Count sandboxes by state."""
    try:
        api = Api(base, find_key(base, home, os.environ), send_http)
        return {"sandboxes": dict(Counter(one["status"]["state"] for one in api.sandboxes()))}
    except (ApiFailure, NoKey) as error:
        return {"sandboxes": None, "problem": str(error).partition("\n")[0]}


def store_facts(path: Path) -> dict[str, Any]:
    """Look at the store's file without changing it."""
    facts: dict[str, Any] = {"path": str(path), "bytes": None, "schema": None}
    if not path.exists():
        return facts
    try:
        facts["bytes"] = path.stat().st_size
        with contextlib.closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        ) as connection:
            facts["schema"] = connection.execute("PRAGMA user_version").fetchone()[0]
    except (OSError, sqlite3.Error) as error:
        facts["problem"] = str(error)
    return facts


def show(facts: dict[str, Any]) -> None:
    store, counts = facts["store"], facts.get("sandboxes")
    size = (
        "not made yet"
        if store["bytes"] is None
        else f"{store['bytes'] / 1e6:.1f} MB, schema {store['schema']}"
    )
    rows = {
        "gateway": {True: "[green]ready[/]", False: "[red]not ready[/]", None: "[yellow]does not answer[/]"}[
            facts["ready"]
        ],
        "checks": escape(", ".join(f"{name}: {verdict}" for name, verdict in facts["checks"].items())),
        "url": escape(facts["url"]),
        "version": escape(facts["version"] or ""),
        "process": f"{facts['pid']}, up for {age(facts['since'])}" if "pid" in facts else "",
        "sandboxes": ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"
        if counts is not None
        else escape(facts.get("problem", "")),
        "state folder": escape(facts["home"]),
        "store": escape(f"{store['path']} ({store.get('problem') or size})"),
    }
    table = Table(show_header=False, box=None)
    for name, text in rows.items():
        if text:
            table.add_row(name, text)
    out.print(table)


def hints(facts: dict[str, Any]) -> list[str]:
    """Return what to do next, where something is not as it should be."""
    if facts["ready"] is None:
        if "pid" in facts:
            return [
                f"process {facts['pid']} is there and does not answer; is it still starting? Its log: up.log"
            ]
        return ["`boxwright up --detach` starts it"]
    found = []
    if not facts["ready"]:
        found.append("`boxwright doctor` says what is wrong and how to mend it")
    if facts["version"] != facts["cli"]:
        found.append(
            f"this command is release {facts['cli']}; `boxwright down` and `boxwright up` bring the gateway to it"
        )
    return found


def age(since: str) -> str:
    return spans.short(datetime.now(UTC) - spans.instant(since))
