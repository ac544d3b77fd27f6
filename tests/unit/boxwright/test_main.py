"""The command line as a whole: it teaches, it completes, it never throws a traceback at people."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from boxwright.__main__ import app

ROOT_COMMAND: Any = typer.main.get_command(app)
WITHOUT_EXAMPLES = {"version"}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    subcommands = getattr(command, "commands", {})
    if path:
        yield path
    for name, below in subcommands.items():
        yield from commands(below, (*path, name))


@pytest.mark.parametrize("path", list(commands(ROOT_COMMAND)), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    """--help works everywhere, says what the command does, and documents each option."""
    result = CliRunner().invoke(app, [*path, "--help"], terminal_width=200)
    assert result.exit_code == 0
    command = ROOT_COMMAND
    for name in path:
        command = command.commands[name]
    assert (command.help or "").strip()
    assert not [one.name for one in command.params if not one.help]


@pytest.mark.parametrize("name", sorted(set(ROOT_COMMAND.commands) - WITHOUT_EXAMPLES))
def test_commands_come_with_examples(name: str) -> None:
    """A command's help, or that of each of its subcommands, ends with lines to copy."""
    command = ROOT_COMMAND.commands[name]
    below = getattr(command, "commands", {"": command}).values()
    assert all("boxwright " in (one.epilog or "") for one in below)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_words_for_the_shell(shell: str) -> None:
    """The completion that --install-completion writes asks this program, which answers with its commands."""
    request = {
        "bash": {"COMP_WORDS": "boxwright st", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "boxwright st"},
        "fish": {"_TYPER_COMPLETE_ARGS": "boxwright st", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    result = CliRunner().invoke(
        app, [], prog_name="boxwright", env={"_BOXWRIGHT_COMPLETE": f"complete_{shell}", **request}
    )
    assert "status" in result.stdout


def test_what_nobody_expected_is_a_sentence_and_a_file() -> None:
    """An unforeseen failure ends with 1, one message and a file with the story; no traceback is printed."""
    code = (
        "import boxwright.__main__ as m\n"
        "def broken(): raise RuntimeError('planted')\n"
        "m.app = broken\n"
        "m.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "planted" in done.stderr
    story = done.stderr.split(" is in ")[1].split(":")[0]
    path = Path(story)
    assert "Traceback" in path.read_text()
    path.unlink()


def test_the_command_line_starts_without_what_it_does_not_need() -> None:
    """Neither the public SDK, the web framework nor the engine's client is imported to show help."""
    code = (
        "import sys, boxwright.__main__\n"
        "print(*sorted({'opensandbox', 'fastapi', 'aiodocker', 'pydantic', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == ""
