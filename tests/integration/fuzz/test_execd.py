"""A real execd in a sandbox made for it, called in every way its document allows and some it does not.

It runs in a sandbox because the calls really run commands and really delete files.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.names import HEADER_ACCESS_TOKEN, PORT_EXECD
from tests.integration.fuzz.calls import Call, Known, calls, texts
from tests.integration.fuzz.document import Operation, operations
from tests.integration.fuzz.judge import judge
from tests.integration.fuzz.profile import examples
from tests.integration.fuzz.site import ask, create
from tests.live import Live

pytestmark = pytest.mark.engine

TOKEN: Final = "TOKEN"  # stands for the real one, which examples do not know
WATCH_SECONDS: Final = 1.5
CALL_SECONDS: Final = 20.0
# A dead port inside, and a body that a planned multipart operation never reads.
EXCUSED: Final = frozenset({"UPSTREAM_UNREACHABLE"})
ENDLESS: Final = frozenset({"watchMetrics"})
# The proxy passes anything to anything; its own tests cover it.
OPERATIONS: Final = [
    one for one in operations("execd") if "/proxy/" not in one.path and one.name != "attachPty"
]

FOLDER: Final = "/tmp/fuzz"
NAMES: Final = ["a", "b", "c/d", "e f", "é", "x" * 255, "y" * 256, "deep/" * 40 + "f", "nul\0", ".", "..", ""]
# What is destroyed, moved and written stays below one folder, or the sandbox would soon be empty.
OWN: Final = st.sampled_from(NAMES).map(lambda name: f"{FOLDER}/{name}") | st.text(
    st.characters(blacklist_characters="/."), min_size=1, max_size=8
).map(lambda name: f"{FOLDER}/{name}")
READ: Final = (
    OWN
    | st.sampled_from(
        [
            "/",
            "",
            "~",
            "$HOME",
            "${NOTHING}",
            "/proc/1/environ",
            "/dev/zero",
            "/dev/stdin",
            "/etc/shadow",
        ]
    )
    | texts
)
COMMANDS: Final = st.sampled_from(
    [
        "true",
        "echo a; echo b >&2",
        "exit 3",
        "kill -9 $$",
        "printf '\\xff\\n'",
        "sleep 0.05",
        "'",
        "",
        "nosuchprogram",
        "cat",
    ]
)
ARGV: Final = st.sampled_from(
    [["true"], ["echo", "a b"], ["/nowhere"], [""], ["sh", "-c", "exit 9"], ["a\0b"]]
)
MODES: Final = st.sampled_from([644, 0, 7777, 999, 8, 10**30, -1])

KNOWN: Final[Known] = {
    "command": COMMANDS,
    "argv": ARGV,
    "timeout": st.integers(1, 2000),
    "cwd": st.sampled_from(["/", "/tmp", "/nowhere", "/tmp/fuzz/new", "", "a\0b"]),
    "uid": st.sampled_from([0, 65534, 4294967294]),
    "gid": st.sampled_from([0, 65534]),
    "envs": st.dictionaries(st.sampled_from(["A", "PATH2", "é", "a=b", ""]), texts, max_size=2),
    "id": st.sampled_from(["COMMAND"] * 3) | texts,
    "sessionId": st.sampled_from(["SESSION"] * 3) | texts,
    "cursor": st.integers(0, 10) | st.sampled_from([2**63, 10**30]),
    "key of body": OWN,
    "src": OWN,
    "dest": OWN,
    "mode": MODES,
    "owner": st.sampled_from(["root", "nobody", "nosuchuser", ""]),
    "group": st.sampled_from(["root", "nogroup", "nosuchgroup", ""]),
    "old": st.sampled_from(["a", ""]) | texts,
    "depth": st.integers(0, 3),
    "pattern": st.sampled_from(["**", "*", "[", "{a,b", "{a,{b,c}}", "[!a]*", "\\"]) | texts,
    "Range": st.sampled_from(
        [
            "bytes=0-1",
            "bytes=-5",
            "bytes=5-2",
            "bytes=9999-",
            "bytes=0-0,2-3",
            "lines=1-2",
            "bytes=" + "9" * 400 + "-",
        ]
    ),
    "offset": st.integers(1, 9),
    "limit": st.integers(1, 9),
}


@dataclass
class World:
    host: str
    port: int
    prefix: str
    token: str

    def send(self, operation: Operation, call: Call) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=WATCH_SECONDS if operation.name in ENDLESS else CALL_SECONDS
        )
        try:
            headers = {name: self.token if value == TOKEN else value for name, value in call.headers.items()}
            if call.content is not None or call.method in {"POST", "PUT"}:
                headers["Content-Length"] = str(len(call.content or b""))
            connection.putrequest(call.method, self.prefix + call.target, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders(call.content or None)
            answer = connection.getresponse()
            kind = answer.headers.get("Content-Type", "")
            if operation.name in ENDLESS and answer.status == 200:
                return answer.status, kind, _first_event(answer)
            return answer.status, kind, answer.read()
        finally:
            connection.close()


def _first_event(answer: http.client.HTTPResponse) -> bytes:
    return answer.readline() + answer.readline()


@pytest.fixture(scope="module")
def world(live: Live) -> Iterator[World]:
    made = create(live, resourceLimits={"memory": "256Mi"})
    endpoint = ask(live, "GET", f"/sandboxes/{made}/endpoints/{PORT_EXECD}")[1]
    authority, _, prefix = endpoint["endpoint"].partition("/")
    host, _, port = authority.rpartition(":")
    yield World(host, int(port), f"/{prefix}" if prefix else "", endpoint["headers"][HEADER_ACCESS_TOKEN])
    ask(live, "DELETE", f"/sandboxes/{made}")


@pytest.fixture(scope="module")
def living(world: World) -> dict[str, str]:
    """A command and a session that exist, for the operations that take an id."""

    def made(path: str, body: dict[str, Any]) -> bytes:
        operation = next(one for one in OPERATIONS if one.path == path and one.method == "POST")
        call = Call("POST", path, {HEADER_ACCESS_TOKEN: TOKEN}, json.dumps(body).encode(), authorised=True)
        status, _, answer = world.send(operation, call)
        assert status == 200, answer
        return answer

    setup = f"mkdir -p {FOLDER}/c && echo aaa > {FOLDER}/a && echo b > {FOLDER}/c/d && echo -n 'line1\\nline2' > '{FOLDER}/e f'"
    made("/command", {"command": setup})
    background = made("/command", {"command": "echo out; sleep 600", "background": True})
    return {
        "COMMAND": json.loads(background.split(b"\n\n")[0])["text"],
        "SESSION": json.loads(made("/session", {"cwd": "/tmp"}))["session_id"],
    }


@pytest.mark.parametrize("operation", OPERATIONS, ids=repr)
def test_every_answer_is_documented(world: World, living: dict[str, str], operation: Operation) -> None:
    """No call makes the daemon fail, and every answer is one that its document describes."""
    paths = OWN if operation.method == "DELETE" else READ
    one = (
        paths
        if not any(p["name"] == "path" and p["schema"].get("type") == "array" for p in operation.parameters)
        else st.lists(paths, max_size=3)
    )
    known = {**KNOWN, "path": one}

    @examples(3 if operation.planned else 25)
    @given(call=calls(operation, known, {HEADER_ACCESS_TOKEN: TOKEN}))
    def check(call: Call) -> None:
        target = call.target
        for name, value in living.items():
            target = target.replace(name, value)
        status, kind, body = world.send(
            operation, Call(call.method, target, call.headers, call.content, call.authorised)
        )
        judge(operation, call, status, kind, body, excused=EXCUSED)

    check()
