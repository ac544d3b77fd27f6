"""The table of routes and what execd costs at start: each promise as one sentence."""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from execd.app import ROUTES, Table
from execd.http.exchange import Request
from execd.wire.target import percent_text, split_target
from specs.errors import MethodNotAllowed, RouteNotFound

ROOT = Path(__file__).parents[3]

FORBIDDEN = {
    "asyncio", "re", "typing", "dataclasses", "enum", "json", "logging", "subprocess", "pathlib", "ssl", "socket",
    "collections", "urllib", "http", "email", "tempfile", "shutil", "contextlib", "functools", "threading",
    "traceback", "warnings", "inspect", "datetime", "signal", "hashlib",
}  # fmt: skip

# Beyond what a bare `python -I -S` has loaded; `os` brings seven of them.
BUDGET = 31

AT_LISTEN = """
import sys
sys.path.insert(0, sys.argv[1])
bare = set(sys.modules)
from execd import app, config, loop

async def main():
    served = app.App(config.load({"BOXWRIGHT_STATE_DIR": sys.argv[2], "EXECD_ACCESS_TOKEN": "t"}, port=0, host="127.0.0.1"))
    await served.listen()
    modules = sorted(set(sys.modules) - bare)
    await served.close()
    return modules

modules = loop.run(main())
import json
print(json.dumps(modules))
"""


def request(method: str, target: bytes) -> Request:
    out = Request()
    out.method = method
    out.target = target
    out.path = percent_text(split_target(target)[0])
    out.params = {}
    return out


@pytest.mark.parametrize(("method", "path", "module", "function"), ROUTES)
def test_every_route_exists(method: str, path: str, module: str, function: str) -> None:
    """Every row of the table names a coroutine function that takes request, reply and services."""
    route = getattr(importlib.import_module(module), function)
    assert inspect.iscoroutinefunction(route)
    assert len(inspect.signature(route).parameters) == 3
    target = path.replace("{id}", "x%2Fy").encode()
    found = request(method, target)
    assert Table().find(found) is route
    assert found.params == ({"id": "x/y"} if "{" in path else {})


def test_an_unknown_path_is_not_found() -> None:
    """What is not in the table is not found, encoded slashes or empty words included."""
    for target in (b"/", b"/nope", b"/command/", b"/command//logs", b"/command%2Fstatus%2Fx", b"*"):
        with pytest.raises(RouteNotFound):
            Table().find(request("GET", target))


def test_another_method_is_told_which_there_are() -> None:
    """A known path with another method says what it takes."""
    with pytest.raises(MethodNotAllowed) as caught:
        Table().find(request("PUT", b"/command"))
    assert caught.value.details == ["DELETE", "POST"]


def test_start_is_cheap(tmp_path: Path) -> None:
    """What is imported when execd listens stays within its budget and free of heavy modules."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", AT_LISTEN, str(ROOT), str(tmp_path)],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    modules = json.loads(done.stdout)
    assert not FORBIDDEN & {name.partition(".")[0] for name in modules}
    assert len(modules) <= BUDGET, modules
