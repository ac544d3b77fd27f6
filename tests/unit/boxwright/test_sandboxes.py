"""`ps`, `logs`, `events`, `rm` against a gateway's double."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from boxwright.__main__ import app
from boxwright.access import Key
from boxwright.api import Api, send_http
from boxwright.sandboxes import followed, parse_event, row, split_time
from tests.fakes.lifecycle import KEY, Double, item


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_row_has_state_age_and_what_is_left() -> None:
    """A line shows what an operator asks first; a missing expiry is `never`, a past one `now`."""
    now = datetime(2026, 1, 1, 1, 0, 5, tzinfo=UTC)
    whole = item(1, expiresAt="2026-01-01T01:10:05.000000Z", metadata={"team": "search", "a": "1"})
    assert row(whole, now)[1:] == ("Running", "CONTAINER_RUNNING", "img:1", "1h", "10m", "a=1, team=search")
    assert row(item(1), now)[5] == "never"
    assert row(item(1, expiresAt="2026-01-01T00:00:00Z"), now)[5] == "now"


def test_ps_prints_what_the_api_says(at_double: Double) -> None:
    """-o json is the API's own items; a table has the id whole, markup in it is only text."""
    at_double.items = [item(1, metadata={"note": "[red]x[/]"})]
    assert json.loads(run("ps", "-o", "json").stdout) == at_double.items
    table = run("ps").stdout
    assert at_double.items[0]["id"] in table
    assert "note=[red]x[/]" in table


def test_ps_shows_the_newest_and_says_that_there_are_more(at_double: Double) -> None:
    """One page is shown; --all shows every one."""
    at_double.items = [item(number) for number in range(210)]
    first = run("ps", "-q")
    assert len(first.stdout.splitlines()) == 50
    assert "160 more" in first.stderr
    assert len(run("ps", "-q", "--all").stdout.splitlines()) == 210


def test_filters_are_the_apis(at_double: Double) -> None:
    """States are repeated, pairs are joined and encoded once more inside their parameter."""
    run("ps", "--state", "failed", "-s", "Paused", "-m", "team=a&b", "-m", "x=")
    assert at_double.asked[-1][1] == (
        "/v1/sandboxes?state=Failed&state=Paused&metadata=team%3Da%2526b%26x%3D&pageSize=50"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("ps", "--metadata", "team"), 1, "KEY=VALUE"),
        (("ps", "--state", "sleeping"), 2, "sleeping"),
        (("logs", "x", "--since", "5"), 1, "30s"),
        (("logs", "x", "-f", "-o", "json"), 1, "--follow"),
        (("rm",), 1, "--all"),
        (("rm", "x", "--all"), 1, "--all"),
        (("rm", "x", "--state", "failed"), 1, "--all"),
        (("logs", "abc"), 1, "boxwright ps"),
        (("events", "00000000-0000-4000-8000-000000000000"), 1, "no sandbox"),
    ],
)
def test_a_slip_is_answered_with_the_way_out(
    at_double: Double, arguments: tuple[str, ...], code: int, words: str
) -> None:
    """What cannot be done ends with 1 or 2 and a message that names the fix; nothing is removed."""
    result = run(*arguments)
    assert result.exit_code == code
    assert words in result.stderr
    assert not [asked for asked in at_double.asked if asked[0] == "DELETE"]


def test_rm_asks_and_without_a_terminal_wants_yes(at_double: Double) -> None:
    """Nothing is removed by a script that did not say --yes."""
    at_double.items = [item(1)]
    result = run("rm", "--all")
    assert result.exit_code == 1
    assert "--yes" in result.stderr
    assert len(at_double.items) == 1


def test_rm_removes_what_is_named_and_counts_what_is_gone_as_removed(at_double: Double) -> None:
    """A delete is idempotent; one that fails is told, does not keep the others, and makes the status 1."""
    at_double.items = [item(1), item(2), item(3)]
    first, second, third = (one["id"] for one in at_double.items)
    done = run("rm", "--yes", "-o", "json", first, "00000002")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == [
        {"id": first, "removed": True, "problem": None},
        {"id": second, "removed": True, "problem": None},
    ]
    assert [one["id"] for one in at_double.items] == [third]


def test_a_delete_that_fails_does_not_keep_the_others(at_double: Double, double: Double) -> None:
    """Every chosen sandbox is tried, and one that stays makes the status 1."""
    from boxwright.sandboxes import removed

    double.items = [item(1), item(2)]
    first, second = (one["id"] for one in double.items)
    double.refuse[first] = (500, {"code": "DOCKER::SANDBOX_DELETE_FAILED", "message": "busy"})
    double.refuse["gone"] = (404, {"code": "DOCKER::SANDBOX_NOT_FOUND", "message": "no sandbox"})
    outcome = list(removed(api(double), [first, "gone", second], None))
    assert [bool(one.problem) for one in outcome] == [True, False, False]
    assert "busy" in outcome[0].problem
    assert run("rm", "--all", "--yes").exit_code == 1


def test_rm_all_takes_filters(at_double: Double) -> None:
    """--all with a state leaves the others alone."""
    at_double.items = [item(1), item(2, "Failed")]
    assert run("rm", "--all", "--state", "failed", "-y").exit_code == 0
    assert [one["status"]["state"] for one in at_double.items] == ["Running"]


def test_logs_leave_times_out_unless_asked(at_double: Double) -> None:
    """Lines are printed as they were written; -t puts their time before them, -o json beside them."""
    at_double.items = [item(1)]
    at_double.logs = ["2026-01-01T00:00:00.000000001Z a  [b]", "2026-01-01T00:00:01.000000001Z "]
    assert run("logs", "00000001").stdout == "a  [b]\n\n"
    assert run("logs", "00000001", "-t", "-n", "1").stdout.startswith("2026-01-01T00:00:01")
    assert json.loads(run("logs", "00000001", "-o", "json").stdout)[0]["text"] == "a  [b]"
    at_double.logs = []
    assert run("logs", "00000001").stdout == ""


def test_events_are_read_as_instant_reason_message(at_double: Double) -> None:
    """A line of the history has three parts, the last with blanks."""
    at_double.items = [item(1)]
    at_double.events = "2026-01-01T00:00:00.000000Z ACCEPTED looking for the image"
    assert json.loads(run("events", "00000001", "-o", "json").stdout) == [
        {"at": "2026-01-01T00:00:00.000000Z", "reason": "ACCEPTED", "message": "looking for the image"}
    ]
    assert "looking for the image" in run("events", "00000001").stdout
    at_double.events = "(no events)"
    assert json.loads(run("events", "00000001", "-o", "json").stdout) == []


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("2026-01-01T00:00:00.1Z text  more", ("2026-01-01T00:00:00.1Z", "text  more")),
        ("2026-01-01T00:00:00.1Z", ("2026-01-01T00:00:00.1Z", "")),
        ("no time", ("", "no time")),
    ],
)
def test_a_log_line_is_split(line: str, parts: tuple[str, str]) -> None:
    """The engine's time comes first; a line without one is all text."""
    assert split_time(line) == parts


def test_an_event_without_a_message_is_an_event() -> None:
    """A missing part is empty, not an error."""
    assert parse_event("2026 REASON") == {"at": "2026", "reason": "REASON", "message": ""}


def api(double: Double) -> Api:
    return Api(f"http://{double.domain}", Key(KEY, "a test"), send_http)


@pytest.mark.parametrize("removed_at_last", [True, False])
def test_following_prints_each_line_once_until_the_end(double: Double, removed_at_last: bool) -> None:
    """Lines that are seen again are not printed again, late ones are not lost, and the end is noticed."""
    sandbox = item(1)
    double.items = [sandbox]
    double.logs = [f"2026-01-01T00:00:0{n}Z {n}" for n in range(4)]
    now = [0.0]

    def later(seconds: float) -> None:
        now[0] += seconds
        if now[0] == 1:
            double.logs.append("2026-01-01T00:00:05Z 5")
            double.logs.insert(2, "2026-01-01T00:00:01.5Z late")
        elif now[0] == 2:
            double.logs.append("2026-01-01T00:00:06Z last")
            if removed_at_last:
                double.items.clear()
            else:
                sandbox["status"]["state"] = "Failed"

    lines = followed(api(double), sandbox["id"], 2, None, clock=lambda: now[0], wait=later)
    texts: list[Any] = [split_time(line)[1] for line in lines]
    assert texts == ["2", "3", "late", "5", *([] if removed_at_last else ["last"])]
