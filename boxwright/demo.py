"""Run one sandbox through the public Python SDK and show each step."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.exceptions import SandboxException
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Column

from boxwright.access import NoKey, base_url, find_key

NOTE = "/tmp/note.txt"  # noqa: S108 - inside the sandbox
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the demo did, how long it took, and what came of it."""

    name: str
    milliseconds: float
    outcome: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class DemoFailed(Exception):
    """A step failed; the message says which, why, and what to try."""


def connection(domain: str, home: Path) -> ConnectionConfig:
    """
    Return how the SDK reaches a gateway.

    Raises:
        DemoFailed: there is no key to call it with.
    """
    base = base_url(domain)
    try:
        key = find_key(base, home, os.environ)
    except NoKey as error:
        raise DemoFailed(str(error)) from error
    protocol, _, place = base.partition("://")
    return ConnectionConfig(
        domain=place, protocol=protocol, api_key=key.value, request_timeout=timedelta(seconds=30)
    )


class Steps:
    """A list of steps on the screen, each with its spinner, its time and its outcome."""

    def __init__(self, console: Console) -> None:
        self.done: list[Step] = []
        self.progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", table_column=Column(min_width=22, no_wrap=True)),
            TextColumn("{task.fields[outcome]}", markup=False, table_column=Column(overflow="fold")),
            console=console,
        )

    async def step(self, name: str, work: Callable[[], Awaitable[T]], tell: Callable[[T], str]) -> T:
        """Do one thing, show it, and remember how it went.

        Raises:
            DemoFailed: the SDK said no; its reason is in the message.
        """
        line = self.progress.add_task(name, total=1, outcome="")
        began = time.perf_counter()
        try:
            result = await work()
        except SandboxException as failure:
            self.progress.update(line, outcome="failed")
            raise DemoFailed(f"{name}: {failure}") from failure
        spent = (time.perf_counter() - began) * 1000
        outcome = tell(result)
        self.done.append(Step(name, round(spent, 1), outcome))
        self.progress.update(line, completed=1, outcome=f"{spent:8.1f} ms  {outcome}")
        return result


async def run(image: str, config: ConnectionConfig, console: Console) -> list[Step]:
    """Create, use and destroy one sandbox of `image`, showing each step as it happens."""
    steps = Steps(console)
    with steps.progress:
        sandbox = await steps.step(
            "create a sandbox",
            lambda: Sandbox.create(
                image, connection_config=config, timeout=timedelta(minutes=5), metadata={"made-by": "demo"}
            ),
            lambda made: f"{made.id} from {image}",
        )
        try:
            await _use(steps, sandbox)
        finally:
            await steps.step("destroy it", sandbox.kill, lambda _: "gone")
            await sandbox.close()
    return steps.done


async def _use(steps: Steps, sandbox: Sandbox) -> None:
    await steps.step(
        "run a command",
        lambda: sandbox.commands.run("echo hello from $(uname -s) $(uname -m)"),
        lambda run: run.text.strip(),
    )
    await steps.step(
        "write a file",
        lambda: sandbox.files.write_file(NOTE, "kept\n"),
        lambda _: NOTE,
    )
    await steps.step(
        "read it back",
        lambda: sandbox.files.read_file(NOTE),
        repr,
    )
    session = await steps.step("open a shell session", sandbox.commands.create_session, lambda made: made)
    await steps.step(
        "set a variable in it",
        lambda: sandbox.commands.run_in_session(session, "export WHO=agent"),
        lambda _: "WHO=agent",
    )
    await steps.step(
        "use it in the next run",
        lambda: sandbox.commands.run_in_session(session, "echo $WHO"),
        lambda run: run.text.strip(),
    )
    await steps.step(
        "look at its resources",
        sandbox.get_metrics,
        lambda seen: (
            f"{seen.memory_used_in_mib:.0f} of {seen.memory_total_in_mib:.0f} MiB, {seen.cpu_count:g} cpu"
        ),
    )
