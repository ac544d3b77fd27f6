"""Shapes of the execution API, each promise as one sentence."""

from collections.abc import Callable

import pytest

from specs import execd
from specs.wire import BadField


@pytest.mark.parametrize(
    "body",
    [
        {}, [], None, "x",
        {"command": ""},
        {"command": "a", "argv": ["b"]},
        {"argv": []}, {"argv": [""]}, {"argv": ["a", None]}, {"argv": ["a\0"]},
        {"command": "a", "timeout": -1},
        {"command": "a", "timeout": 2**53},
        {"command": "a", "timeout": 10**400},
        {"command": "a", "gid": 1},
        {"command": "a", "uid": 4294967295},
        {"command": "a", "uid": "0"},
        {"command": "a", "background": 1},
        {"command": "a", "envs": {"A": 1}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_wrong_command_request_is_refused(body: object) -> None:
    """A request that cannot be run as it stands names the wrong field."""
    with pytest.raises(BadField):
        execd.RunCommandRequest.from_json(body)


def test_a_command_request_is_read() -> None:
    """Every field arrives; zero time means no limit; unknown fields are ignored."""
    got = execd.RunCommandRequest.from_json(
        {"argv": ["ls", ""], "command": "", "cwd": "/", "background": True, "timeout": 0, "uid": 0, "gid": 5,
         "envs": {"A": "b=c"}, "later": 1}
    )  # fmt: skip
    assert (got.command, got.argv, got.cwd, got.background) == (None, ["ls", ""], "/", True)
    assert (got.timeout, got.uid, got.gid, got.envs) == (None, 0, 5, {"A": "b=c"})


def test_a_session_needs_no_body() -> None:
    """An empty body makes a session in the usual place."""
    assert execd.CreateSessionRequest.from_json(None).cwd is None
    assert execd.CreateSessionRequest.from_json({"cwd": "/x"}).cwd == "/x"


@pytest.mark.parametrize(
    ("digits", "bits"), [(644, 0o644), (0, None), (None, None), (1777, 0o1777), (7777, 0o7777), (7, 0o007)]
)
def test_mode_digits_are_octal(digits: object, bits: int | None) -> None:
    """A mode is a decimal number whose digits are octal, 0 means leave it (execd §0 rule 9)."""
    assert execd.Permission.from_json({"mode": digits}).mode == bits


@pytest.mark.parametrize("mode", [8, 648, 10000, -1, "644", True, 6.44])
def test_a_wrong_mode_is_refused(mode: object) -> None:
    """What is not octal digits is no mode."""
    with pytest.raises(BadField):
        execd.Permission.from_json({"mode": mode})


def test_modes_are_written_as_digits() -> None:
    """The file type is no part of a mode on the wire."""
    assert execd.mode_digits(0o100644) == 644
    assert execd.mode_digits(0o41777) == 1777
    assert execd.mode_digits(0o40000) == 0


def test_owners_may_be_numbers() -> None:
    """An owner is a name or an id, empty means leave it."""
    got = execd.Permission.from_json({"owner": 1000, "group": ""})
    assert (got.owner, got.group) == ("1000", None)


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (execd.RunInSessionRequest.from_json, {"command": ""}),
        (execd.FileMetadata.from_json, {"mode": 644}),
        (execd.FileMetadata.from_json, {"path": ""}),
        (execd.MoveItem.from_json, {"src": "a"}),
        (execd.ReplaceItem.from_json, {"old": "", "new": "x"}),
        (execd.Permission.from_json, {"owner": True}),
        (execd.Permission.from_json, []),
    ],
)
def test_a_missing_field_is_refused(read: Callable[[object], object], body: object) -> None:
    """What is required must be there and not empty."""
    with pytest.raises(BadField):
        read(body)


def test_a_running_command_has_no_end() -> None:
    """Members that are not known yet are left out of a status."""
    running = execd.CommandStatus("a", "sleep 1", True, "2026-01-01T00:00:00Z").to_json()
    assert running == {"id": "a", "content": "sleep 1", "running": True, "started_at": "2026-01-01T00:00:00Z"}
    done = execd.CommandStatus("a", "x", False, "s", exit_code=0, finished_at="f").to_json()
    assert done["exit_code"] == 0
    assert done["finished_at"] == "f"


def test_a_file_and_metrics_are_written() -> None:
    """File entries and metrics carry every member the clients need."""
    info = execd.FileInfo("/a", "file", 1, "m", "c", "root", "root", 0o100600).to_json()
    assert info["mode"] == 600
    assert set(info) == {"path", "type", "size", "modified_at", "created_at", "owner", "group", "mode"}
    assert set(execd.Metrics(1, 2, 3, 4, 5).to_json()) == set(execd.Metrics.__slots__)
