"""Real processes for the rooms that run them: a spawn program, settings, a listener that remembers."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from execd import loop
from execd.config import Settings

SOURCE = Path(__file__).parents[3] / "images/build/execd/spawn.c"
LIMIT = 60.0


class Heard:
    """A listener that keeps what it is told."""

    gone = False

    def __init__(self) -> None:
        self.data = b""
        self.id = ""
        self.opened = loop.Event()
        self.wrote = loop.Event()
        self.ended = False

    async def open(self, execution_id: str) -> None:
        self.id = execution_id
        self.opened.set()

    async def write(self, events: bytes) -> None:
        self.data += events
        self.wrote.set()

    async def end(self, events: bytes) -> None:
        assert not self.ended
        self.ended = True
        self.data += events

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.decode("ascii").split("\n\n") if line]

    def lines(self, kind: str = "stdout") -> list[str]:
        return [event["text"] for event in self.events if event["type"] == kind]

    @property
    def code(self) -> str:
        last = self.events[-1]
        return "0" if last["type"] == "execution_complete" else str(last["error"]["evalue"])

    @property
    def traceback(self) -> list[str]:
        return list(self.events[-1]["error"]["traceback"])


@pytest.fixture
def heard() -> type[Heard]:
    return Heard


@pytest.fixture(scope="session")
def spawn_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spawn program, compiled as a bundle's is."""
    compiler = shutil.which("musl-gcc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    out = tmp_path_factory.mktemp("spawn") / "spawn"
    out.parent.chmod(0o755)
    flags = ["-std=c11", "-Os", "-static", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(out), str(SOURCE)], check=True, timeout=60)
    return str(out)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    state = tmp_path / "state"
    state.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    return Settings(state_dir=str(state), base_environ=environ)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine on a fresh loop, never for longer than a minute."""

    def in_loop(main: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            with loop.deadline(LIMIT):
                return await main

        return loop.run(bounded())

    return in_loop
