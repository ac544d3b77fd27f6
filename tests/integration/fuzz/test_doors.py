"""Attacks on the doors of a live gateway: who gets in, where its proxy leads, what races leave behind."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from specs.names import HEADER_API_KEY, LABEL_ID, LABEL_INSTANCE
from tests.integration.fuzz.site import ask, call, create, raw, status, wish
from tests.live import Live
from tests.raw_engine import Engine

pytestmark = pytest.mark.engine

WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.fixture(scope="module")
def sandbox(live: Live) -> Iterator[str]:
    made = create(live, env={"HARMLESS_NAME": "planted5ecret"})
    yield made
    ask(live, "DELETE", f"/sandboxes/{made}")


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "TRACE", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/sandboxes",
        "//v1/sandboxes",
        "/v1/../v1/sandboxes",
        "/health/../v1/sandboxes",
        "/health/%2e%2e/v1/sandboxes",
        "/v1/%73andboxes",
        "/v1/sandboxes/ID/",
        "/v1/sandboxes%2fID",
        "/v1/sandboxes/..%2fID",
        "/v1/sandboxes/ID/diagnostics/inspect",
        "http://gw/v1/sandboxes",
        "/v1/sandboxes?OPEN-SANDBOX-API-KEY=KEY",
        "/v1/sandboxes/ID/proxy/44772/ping",
        "/sandboxes/ID/proxy/44772/ping",
        "//sandboxes/ID/proxy/44772/ping",
        "/v1/sandboxes/ID/proxy/8000@evil/",
        "/v1/capabilities",
    ],
)
def test_nobody_gets_in_without_a_key(live: Live, sandbox: str, method: str, path: str) -> None:
    """However a path is written, without the key in its header nothing of a sandbox is told."""
    answer = call(live, method, path.replace("ID", sandbox).replace("KEY", live.key))
    assert status(answer) in {307, 401, 404, 405}
    assert answer.partition(b"\r\n\r\n")[2] == b"" or b'"code":' in answer
    assert ask(live, "GET", f"/sandboxes/{sandbox}")[0] == 200


@pytest.mark.parametrize(
    "header",
    [
        "open_sandbox_api_key: KEY",
        "Authorization: Bearer KEY",
        "Cookie: OPEN-SANDBOX-API-KEY=KEY",
        f"{HEADER_API_KEY}: \t",
        f"{HEADER_API_KEY}: {'a' * 60_000}",
        f"{HEADER_API_KEY}: bxk_\xd9\xa3",
    ],
)
def test_a_key_elsewhere_is_no_key(live: Live, header: str) -> None:
    """Only the one header counts, and only with a known key."""
    assert status(call(live, "GET", "/v1/sandboxes", header.replace("KEY", live.key, 2))) == 401
    assert status(call(live, "GET", "/v1/sandboxes", f"{HEADER_API_KEY}: x", key=True)) == 401


def test_a_websocket_needs_the_key(live: Live, sandbox: str) -> None:
    """A handshake without a key is closed with the policy code and carries nothing; elsewhere there is none."""
    answer = call(live, "GET", f"/v1/sandboxes/{sandbox}/proxy/8000/", *WEBSOCKET)
    _, _, frame = answer.partition(b"\r\n\r\n")
    assert frame[:1] == b"\x88"
    assert int.from_bytes(frame[2:4], "big") == 1008
    assert status(call(live, "GET", "/v1/sandboxes", *WEBSOCKET)) == 403


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("0", 400),
        ("65536", 400),
        ("-1", 400),
        ("8000@evil", 400),
        ("8000:80", 400),
        ("8000%0d%0aX:y", 400),
        ("%38000", 400),
        ("8000%2f..%2f", 400),
        ("9" * 400, 400),
        ("44772/proxy/127.0.0.1:1/", 400),
        ("44772/proxy/22@x/", 400),
        ("8000/http://evil/", 502),
        ("8000//evil/", 502),
        ("8000/\\evil", 502),
        ("8000/?x=%0d%0aA:b", 502),
    ],
)
def test_the_proxy_leads_to_the_sandbox_only(live: Live, sandbox: str, rest: str, expected: int) -> None:
    """Nothing in a proxied path chooses another host; a dead port inside is what is reported."""
    answer = call(live, "GET", f"/v1/sandboxes/{sandbox}/proxy/{rest}", key=True)
    assert status(answer) == expected
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"]


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Content-Length: +5",
        "Content-Length : 5",
        "X: a\r\n\tTransfer-Encoding: chunked",
    ],
)
def test_one_request_is_never_two(live: Live, sandbox: str, framing: str) -> None:
    """A request whose end can be read in two ways is refused, and what follows it is not served."""
    head = f"POST /v1/sandboxes/{sandbox}/proxy/8000/ HTTP/1.1\r\nHost: gw\r\n{HEADER_API_KEY}: {live.key}\r\n{framing}"
    hidden = f"GET /v1/sandboxes HTTP/1.1\r\nHost: gw\r\n{HEADER_API_KEY}: {live.key}\r\n\r\n"
    answer = raw(live, f"{head}\r\n\r\n0\r\n\r\n{hidden}".encode())
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"items" not in answer


def test_a_strangers_word_chooses_no_address(live: Live, sandbox: str) -> None:
    """Forwarding headers do not move an endpoint, and a Host that is none does not get into one."""
    path = f"/v1/sandboxes/{sandbox}/endpoints/8000?use_server_proxy=true"
    for header in ("X-Forwarded-Host: evil", "Forwarded: host=evil", "X-Forwarded-Prefix: /evil"):
        assert b"evil" not in call(live, "GET", path, header, key=True)
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: evil/a?b",
        "Connection: close",
        f"{HEADER_API_KEY}: {live.key}",
        "",
        "",
    ]
    assert b"evil" not in raw(live, "\r\n".join(lines).encode())


def test_no_report_shows_a_value_of_the_environment(live: Live, sandbox: str) -> None:
    """Set-up is shown with names only, whatever the names sound like."""
    for report in ("inspect", "summary"):
        shown = ask(live, "GET", f"/sandboxes/{sandbox}/diagnostics/{report}")[1]
        assert "HARMLESS_NAME" in shown
        assert "planted5ecret" not in shown


def test_a_flood_of_output_is_bounded(live: Live) -> None:
    """Binary and endless lines come back cut, in the shape of every report."""
    flood = "head -c 20000000 /dev/urandom; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end; exec tail -f /dev/null"
    made = create(live, entrypoint=["sh", "-c", flood])
    end = time.monotonic() + 60
    while "end" not in ask(live, "GET", f"/sandboxes/{made}/diagnostics/logs?tail=1")[1]:
        assert time.monotonic() < end
        time.sleep(0.1)
    for report in ("logs", "logs?tail=10000", "logs?scope=container", "summary"):
        code, shown = ask(live, "GET", f"/sandboxes/{made}/diagnostics/{report}")
        assert code == 200
        assert len(str(shown)) < 8 << 20
    ask(live, "DELETE", f"/sandboxes/{made}")


def test_a_key_in_a_race_makes_one_sandbox(live: Live) -> None:
    """Twenty creates at once with one Idempotency-Key make one; those that ask for something else are told so."""
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(
                lambda number: ask(
                    live,
                    "POST",
                    "/sandboxes",
                    wish(env={"A": str(number % 2)}),
                    **{"Idempotency-Key": "race"},
                ),
                range(20),
            )
        )
    assert Counter(code for code, _ in answers) == {202: 10, 409: 10}
    made = {told["id"] for code, told in answers if code == 202}
    assert len(made) == 1
    ask(live, "DELETE", f"/sandboxes/{made.pop()}")


def test_bursts_leave_nothing(live: Live) -> None:
    """Twenty at once create and delete back to back out of a hundred ports; nothing fails, nothing is left (R11, R104)."""

    def round_trip(_: int) -> int:
        code, told = ask(live, "POST", "/sandboxes", wish())
        return ask(live, "DELETE", f"/sandboxes/{told['id']}")[0] if code == 202 else code

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(round_trip, range(40))) == {204}
    assert_only(live, {item["id"] for item in ask(live, "GET", "/sandboxes?pageSize=200")[1]["items"]})


def test_hanging_up_changes_nothing(live: Live) -> None:
    """A create whose caller left is finished and listed, one whose body never came is none (R05)."""
    before = len(ask(live, "GET", "/sandboxes?pageSize=200")[1]["items"])
    host, port = live.domain.split(":")
    for number in range(10):
        content = json.dumps(wish()).encode()
        head = f"POST /v1/sandboxes HTTP/1.1\r\nHost: gw\r\n{HEADER_API_KEY}: {live.key}\r\nContent-Type: application/json\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode())
            connection.sendall(content if number % 2 else content[:-5])
    end = time.monotonic() + 30
    while True:
        items = ask(live, "GET", "/sandboxes?pageSize=200")[1]["items"]
        if len(items) == before + 5 and all(item["status"]["state"] == "Running" for item in items):
            break
        assert time.monotonic() < end, items
        time.sleep(0.1)
    assert_only(live, {item["id"] for item in items})
    for item in items[:5]:
        ask(live, "DELETE", f"/sandboxes/{item['id']}")


def assert_only(live: Live, wanted: set[str]) -> None:
    """Wait until the engine has these sandboxes of this installation and no others."""
    end = time.monotonic() + 60
    while (found := set(workloads(live))) != wanted:
        assert time.monotonic() < end, found ^ wanted
        time.sleep(0.1)


def workloads(live: Live) -> list[str]:
    with closing(sqlite3.connect(live.home / "boxwright.db")) as store:
        (instance,) = store.execute("SELECT value FROM meta WHERE name = 'instance'").fetchone()
    with closing(Engine()) as engine:
        return [str(one["Labels"][LABEL_ID]) for one in engine.labelled(f"{LABEL_INSTANCE}={instance}")]


def test_the_log_tells_no_secret(live: Live, sandbox: str) -> None:
    """After all that, the log has neither values of an environment nor a story of a failure."""
    log = live.log.read_text()
    assert "planted5ecret" not in log
    assert "request_failed" not in log
