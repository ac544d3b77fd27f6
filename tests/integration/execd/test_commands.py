"""Commands and sessions over HTTP, against a real execd process."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specs.names import ENV_STATE_DIR, HEADER_TAIL_CURSOR

ROOT = Path(__file__).parents[3]


class Daemon:
    """A running execd and a client of it."""

    def __init__(self, state: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self.errors = state / "stderr"
        with self.errors.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-m", "execd", "--port", str(self.port), "--host", "127.0.0.1"],
                cwd=ROOT,
                env={"PATH": os.environ["PATH"], "HOME": str(state), ENV_STATE_DIR: str(state)},
                stderr=log,
            )
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", transport=transport, timeout=30, trust_env=False
        )
        until = time.monotonic() + 10
        while True:
            try:
                self.client.get("/ping")
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
            else:
                return

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return parse(answer.text)

    def running(self, command_id: str) -> bool:
        return bool(self.client.get(f"/command/status/{command_id}").json()["running"])

    def close(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=20)


def parse(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n\n")
    return [json.loads(frame) for frame in text.split("\n\n")[:-1]]


def lines(events: list[dict[str, Any]], kind: str = "stdout") -> list[str]:
    return [event["text"] for event in events if event["type"] == kind]


@pytest.fixture
def execd(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.close()
    assert "failed" not in daemon.errors.read_text()


def test_a_stream_has_its_frame(execd: Daemon) -> None:
    """Contract §3: headers, init with the id, a ping, output, one terminal event, times in milliseconds."""
    answer = execd.client.post("/command", json={"command": "echo hello; echo; exit 7"})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    events = parse(answer.text)
    assert [event["type"] for event in events] == ["init", "ping", "stdout", "stdout", "error"]
    assert lines(events) == ["hello", "\n"]
    assert events[-1]["error"]["evalue"] == "7"
    assert all(abs(event["timestamp"] - time.time() * 1000) < 60_000 for event in events)
    status = execd.client.get(f"/command/status/{events[0]['text']}").json()
    assert (status["running"], status["exit_code"], status["content"]) == (
        False,
        7,
        "echo hello; echo; exit 7",
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"command": ""},
        {"command": "true", "argv": ["true"]},
        {"command": "true", "cwd": "/no/such"},
        {"command": "true", "timeout": -1},
        {"command": "true", "gid": 5},
        {"command": "true", "uid": 3_999_999_999},
        {"command": 5},
    ],
)
def test_a_refusal_is_json_with_a_status(execd: Daemon, body: dict[str, Any]) -> None:
    """R88: what is wrong with a request is an ordinary 400, never an empty stream."""
    answer = execd.client.post("/command", json=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["code"] == "INVALID_REQUEST_BODY"
    assert answer.json()["message"]


def test_an_interrupt_over_http(execd: Daemon) -> None:
    """R41: the first event's id is interruptible at once; an ended or unknown one is 404."""
    with execd.client.stream("POST", "/command", json={"command": "sleep 30"}) as answer:
        told = answer.iter_lines()
        command_id = json.loads(next(told))["text"]
        assert execd.client.delete("/command", params={"id": command_id}).status_code == 200
        last = [json.loads(line) for line in told if line][-1]
    assert last["error"]["traceback"][0] == "signal: terminated"
    for unknown in (command_id, "nope"):
        answer = execd.client.delete("/command", params={"id": unknown})
        assert (answer.status_code, answer.json()["code"]) == (404, "COMMAND_NOT_FOUND")
    assert execd.client.delete("/command").json()["code"] == "MISSING_QUERY"


def test_logs_by_cursor(execd: Daemon) -> None:
    """The header carries the next byte cursor; an empty body means nothing new."""
    events = execd.events("/command", command="echo a; echo 'é'", background=True)
    assert [event["type"] for event in events] == ["init", "ping", "execution_complete"]
    command_id = events[0]["text"]
    until = time.monotonic() + 10
    while execd.running(command_id):
        assert time.monotonic() < until
    first = execd.client.get(f"/command/{command_id}/logs")
    assert (first.text, first.headers[HEADER_TAIL_CURSOR]) == ("a\né\n", "5")
    assert first.headers["content-type"] == "text/plain; charset=utf-8"
    again = execd.client.get(f"/command/{command_id}/logs", params={"cursor": 5})
    assert (again.text, again.headers[HEADER_TAIL_CURSOR]) == ("", "5")
    assert execd.client.get(f"/command/{command_id}/logs?cursor=x").text == "a\né\n"
    assert execd.client.get(f"/command/{command_id}/logs?cursor=-1").status_code == 400
    assert execd.client.get("/command/nope/logs").status_code == 404


def test_a_lost_client_does_not_end_a_command(execd: Daemon, tmp_path: Path) -> None:
    """R55, R89: the command goes on, and its status by id tells the true end."""
    text = f"yes | head -c 3000000; sleep 0.3; echo x > {tmp_path}/done; exit 9"
    with execd.client.stream("POST", "/command", json={"command": text}) as answer:
        command_id = json.loads(next(answer.iter_lines()))["text"]
    until = time.monotonic() + 10
    while execd.running(command_id):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert execd.client.get(f"/command/status/{command_id}").json()["exit_code"] == 9
    assert (tmp_path / "done").exists()


def test_a_lost_client_ends_its_session_run(execd: Daemon) -> None:
    """Contract §3.6: a session's run ends with its client; the session stays."""
    session = execd.client.post("/session").json()["session_id"]
    execd.events(f"/session/{session}/run", command="export A=1")
    with execd.client.stream("POST", f"/session/{session}/run", json={"command": "sleep 981"}) as answer:
        assert json.loads(next(answer.iter_lines()))["text"] == session
    assert lines(execd.events(f"/session/{session}/run", command="echo $A")) == ["1"]
    found = subprocess.run(["pgrep", "-f", "sleep 981"], capture_output=True, check=False, timeout=10)
    assert found.stdout == b""
    assert execd.client.delete(f"/session/{session}").status_code == 200


def test_sessions_over_http(execd: Daemon, tmp_path: Path) -> None:
    """Contract §2.4, §5: create with and without a body, run, interrupt, delete, 404 afterwards."""
    made = execd.client.post("/session", json={"cwd": str(tmp_path / "new")})
    session = made.json()["session_id"]
    assert lines(execd.events(f"/session/{session}/run", command="pwd")) == [str(tmp_path / "new")]
    failed = execd.events(f"/session/{session}/run", command="sh -c 'exit 7'")
    assert failed[-1]["error"]["evalue"] == "7"
    wrong = execd.client.post(f"/session/{session}/run", json={"command": "true", "cwd": "/no/such"})
    assert wrong.status_code == 400
    with execd.client.stream("POST", f"/session/{session}/run", json={"command": "sleep 30"}) as answer:
        told = answer.iter_lines()
        next(told)
        until = time.monotonic() + 10
        while execd.client.delete("/command", params={"id": session}).status_code != 200:
            assert time.monotonic() < until
        last = [json.loads(line) for line in told if line][-1]
    assert last["error"]["traceback"][0] == "signal: terminated"
    assert lines(execd.events(f"/session/{session}/run", command="pwd")) == [str(tmp_path / "new")]
    assert execd.client.delete(f"/session/{session}").status_code == 200
    assert execd.client.delete(f"/session/{session}").json()["code"] == "CONTEXT_NOT_FOUND"
    gone = execd.client.post(f"/session/{session}/run", json={"command": "true"})
    assert (gone.status_code, gone.json()["code"]) == (404, "CONTEXT_NOT_FOUND")
    assert execd.client.post("/session", content=b"[").json()["code"] == "INVALID_REQUEST_BODY"


def test_the_client_set_env_snippet_works(execd: Daemon) -> None:
    """R59: what one command appends to the environment file the next one has."""
    snippet = (
        'set -e; test -n "$EXECD_ENVS"; mkdir -p "$(dirname "$EXECD_ENVS")"; '
        "printf '%s\\n' \"A='cost \\$5 \\${HOME} tail'\" >> \"$EXECD_ENVS\""
    )
    assert execd.events("/command", command=snippet)[-1]["type"] == "execution_complete"
    assert lines(execd.events("/command", command='echo "$A"')) == ["cost $5 ${HOME} tail"]


def test_a_quiet_command_is_kept_alive(execd: Daemon) -> None:
    """R92: pings come while nothing is said."""
    events = execd.events("/command", command="sleep 3.3; echo ok")
    assert [event["type"] for event in events] == ["init", "ping", "ping", "stdout", "execution_complete"]


def test_output_is_not_logged(execd: Daemon) -> None:
    """R61: nothing a command prints or is given reaches the daemon's own log."""
    execd.events(
        "/command", command="echo canary-4711; echo canary-4711 >&2; exit 3", envs={"X": "canary-4711"}
    )
    execd.client.post("/command", json={"command": "canary-4711", "cwd": 5})
    assert "canary" not in execd.errors.read_text()


def test_many_at_once(execd: Daemon) -> None:
    """R43, R50: fifty streams at once all begin, and all end with their own code."""
    with httpx.Client(base_url=execd.client.base_url, timeout=30, trust_env=False) as client:
        import concurrent.futures

        def one(number: int) -> str:
            text = client.post("/command", json={"command": f"exit {number % 7 + 1}"}).text
            return str(parse(text)[-1]["error"]["evalue"])

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            codes = list(pool.map(one, range(100)))
    assert codes == [str(number % 7 + 1) for number in range(100)]
