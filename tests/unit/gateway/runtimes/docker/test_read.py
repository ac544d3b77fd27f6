"""gateway/runtimes/docker/read.py: the engine's words as values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runtimes.docker import read
from gateway.sandboxes.model import Address, Platform
from specs import names
from specs.errors import BoxwrightError, EntrypointFailed, ImagePullFailed, ImageRefused, StartFailed


def inspect(status: str = "running", **changed: Any) -> dict[str, Any]:
    return {
        "Id": "f" * 64,
        "Name": "/sandbox-abc",
        "Created": "2026-01-02T03:04:05.123456789Z",
        "State": {
            "Status": status,
            "ExitCode": 137,
            "OOMKilled": True,
            "Error": "",
            "StartedAt": "2026-01-02T03:04:06Z",
            "FinishedAt": "0001-01-01T00:00:00Z",
        },
        "Config": {
            "Image": "sha256:1",
            "Cmd": ["sleep", "1"],
            "Env": ["A=1", "MY_SECRET=planted", "API_KEY=planted", "BOXWRIGHT_ACCESS_TOKEN_HASH=planted"],
            "Labels": {names.LABEL_ID: "abc", names.LABEL_INSTANCE: "inst", "x.token": "planted"},
        },
        "HostConfig": {"NetworkMode": "bridge", "SecurityOpt": ["no-new-privileges", "seccomp=" + "x" * 100]},
        "NetworkSettings": {
            "Networks": {"other": {"IPAddress": "10.0.0.9"}, "bridge": {"IPAddress": "172.17.0.2"}},
            "Ports": {"44772/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40001"}], "80/tcp": None},
        },
        "Mounts": [{"Type": "volume", "Name": "vol", "Source": "/v/_data", "Destination": "/v", "RW": False}],
        **changed,
    }


def test_a_running_container_is_observed() -> None:
    """
    Identity comes from labels, times are cut to microseconds, "year 1" is never.
    """
    seen = read.observed(inspect())

    assert (seen.sandbox_id, seen.instance, seen.phase) == ("abc", "inst", "running")
    assert seen.created_at == datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)
    assert seen.started_at == datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
    assert seen.finished_at is None
    assert seen.exit_code is None
    assert seen.address == Address("172.17.0.2", 44772, "127.0.0.1", 40001)


def test_an_ended_container_has_an_exit_code_and_no_address() -> None:
    """
    What is over answers nowhere.
    """
    seen = read.observed(inspect("exited"))

    assert (seen.exit_code, seen.oom_killed, seen.address) == (137, True, None)


@pytest.mark.parametrize(
    ("mode", "settings", "expected"),
    [
        ("host", {}, Address("127.0.0.1", 44772, None, None)),
        ("none", {"Networks": {"none": {"IPAddress": ""}}, "Ports": {}}, None),
        (
            "default",
            {"Networks": {"bridge": {"IPAddress": "172.17.0.3"}}},
            Address("172.17.0.3", 44772, None, None),
        ),
        ("mine", {"Networks": {"a1": {"IPAddress": "10.1.0.3"}}}, Address("10.1.0.3", 44772, None, None)),
        ("bridge", {}, None),
    ],
)
def test_the_address_is_on_the_sandboxs_own_network(
    mode: str, settings: dict[str, Any], expected: Address | None
) -> None:
    """
    A container without a network has no address, which is not an error here.
    """
    found = inspect(HostConfig={"NetworkMode": mode}, NetworkSettings=settings)

    assert read.address(found) == expected


@pytest.mark.parametrize("text", [None, "", "yesterday", "0001-01-01T00:00:00Z", 5])
def test_what_is_no_time_is_none(text: object) -> None:
    """
    An unreadable time is not known.
    """
    assert read.instant(text) is None


def test_times_with_an_offset_are_turned_to_utc() -> None:
    """
    The engine writes its host's zone in some answers.
    """
    assert read.instant("2026-01-02T03:04:05.5+02:00") == datetime(2026, 1, 2, 1, 4, 5, 500000, tzinfo=UTC)


def test_since_keeps_microseconds() -> None:
    """
    The engine takes seconds and nanoseconds.
    """
    assert read.since(datetime(1970, 1, 1, 0, 0, 7, 50, tzinfo=UTC)) == "7.000050000"


def test_events_of_sandboxes_are_read() -> None:
    """
    The labels in the event name the sandbox; everything else is nothing of ours.
    """
    line = {
        "Type": "container",
        "Action": "die",
        "timeNano": 5,
        "Actor": {"Attributes": {names.LABEL_ID: "abc", names.LABEL_INSTANCE: "inst"}},
    }

    assert read.event(line) == read.EngineEvent("die", "abc", "inst", 5)
    assert read.event(line | {"Type": "network"}) is None
    assert read.event(line | {"Actor": {"Attributes": {"name": "x"}}}) is None
    assert read.event({}) is None


def test_image_facts() -> None:
    """
    The processor's name is the one that platforms use.
    """
    facts = read.image_facts(
        {
            "Id": "sha256:1",
            "Os": "linux",
            "Architecture": "x86_64",
            "Config": {"Env": ["P=a=b"], "Labels": None},
        }
    )

    assert facts == read.ImageFacts("sha256:1", Platform("linux", "amd64"), {"P": "a=b"}, {})


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "pull access denied for nope, repository does not exist or may require 'docker login'",
            ImageRefused,
        ),
        ("manifest for a:b not found: manifest unknown: manifest unknown", ImageRefused),
        ("Get http://127.0.0.1:5/v2/: unauthorized: authentication required", ImageRefused),
        ("no basic auth credentials", ImageRefused),
        ("no matching manifest for linux/arm64 in the manifest list entries", ImageRefused),
        ("Get https://r/v2/: dial tcp: lookup r on 1.1.1.1:53: no such host", ImagePullFailed),
        ("Get http://r/v2/: dial tcp 127.0.0.1:1: connect: connection refused", ImagePullFailed),
        ("dial tcp: lookup r: server misbehaving; name not found", ImagePullFailed),
        ("filesystem layer verification failed for digest sha256:1", ImagePullFailed),
    ],
)
def test_pull_failures_are_sorted(words: str, kind: type[BoxwrightError]) -> None:
    """
    The caller's mistake is a refusal, the world's is a failure; both carry the engine's words.
    """
    failure = read.pull_failure("a:b", words)

    assert type(failure) is kind
    assert words in failure.message


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            'OCI runtime create failed: exec: "x": executable file not found in $PATH: unknown',
            EntrypointFailed,
        ),
        ('exec: "/x": stat /x: no such file or directory: unknown', EntrypointFailed),
        ("standard_init_linux.go: exec user process caused: exec format error", ImageRefused),
        ("driver failed programming external connectivity: all ports are allocated", StartFailed),
        ("network mine not found", StartFailed),
    ],
)
def test_start_failures_are_sorted(words: str, kind: type[BoxwrightError]) -> None:
    """
    What the image lacks is told apart from what the engine could not do.
    """
    assert type(read.start_failure(words)) is kind


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Bind for 127.0.0.1:40000 failed: port is already allocated", True),
        ("listen tcp4 127.0.0.1:40000: bind: address already in use", True),
        ("no such network", False),
    ],
)
def test_port_conflicts_are_recognised(words: str, expected: bool) -> None:
    """
    Only these are worth another start.
    """
    assert read.is_port_conflict(words) is expected


def test_pull_progress_is_one_short_sentence() -> None:
    """
    Bytes of all layers are added up; layers count when they are in place.
    """
    progress = read.PullProgress("python:3.12")
    assert progress.sentence() == "pulling python:3.12"

    for line in (
        {"id": "3.12", "status": "Pulling from library/python"},
        {"id": "a", "status": "Already exists"},
        {"id": "b", "status": "Pulling fs layer"},
        {"id": "c", "status": "Pulling fs layer"},
    ):
        progress.feed(line)
    assert progress.sentence() == "pulling python:3.12: 1/3 layers"

    progress.feed({"id": "b", "status": "Downloading", "progressDetail": {"current": 10e6, "total": 60e6}})
    progress.feed({"id": "c", "status": "Downloading", "progressDetail": {"current": 5e6, "total": 60e6}})
    progress.feed({"id": "c", "status": "Download complete"})
    assert progress.sentence() == "pulling python:3.12: 58 % of 120 MB, 1/3 layers"

    progress.feed({"id": "c", "status": "Pull complete"})
    progress.feed({"status": "Digest: sha256:1"})
    assert progress.sentence() == "pulling python:3.12: 58 % of 120 MB, 2/3 layers"


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=8), st.integers(1, 7))
def test_log_frames_are_joined_whatever_the_chunks(parts: list[tuple[int, bytes]], size: int) -> None:
    """
    The payload comes out in order, however the network cut the stream.
    """
    stream = b"".join(frame(kind, payload) for kind, payload in parts)
    frames = read.LogFrames(keep=10_000)
    for start in range(0, len(stream), size):
        frames.feed(stream[start : start + size])

    assert frames.text() == b"".join(payload for _, payload in parts).decode("utf-8", "replace")
    assert not frames.cut


def test_only_the_newest_log_bytes_are_kept() -> None:
    """
    Memory is bounded whatever the workload printed.
    """
    frames = read.LogFrames(keep=10)
    for number in range(5):
        frames.feed(frame(1, f"line{number}\n".encode()))

    assert frames.text() == "line4\n"
    assert frames.cut


def test_a_description_hides_what_looks_secret() -> None:
    """
    Planted secrets of environment and labels do not come out; the rest does.
    """
    text = read.describe(inspect())

    assert "planted" not in text
    assert "A=(hidden)" in text
    assert "MY_SECRET=(hidden)" in text
    assert "/v <- volume vol (ro)" in text
    assert "Published:   127.0.0.1:40001" in text
    assert "x" * 60 not in text


def test_an_end_is_described() -> None:
    """
    A person sees how it ended.
    """
    text = read.describe(inspect("exited"))

    assert "Exit code:   137" in text
    assert "OOM killed:  yes" in text


def test_words_are_cut_to_one_line() -> None:
    """
    The engine's words never flood a message.
    """
    assert read.short("a\n  b") == "a b"
    assert len(read.short("x" * 1000)) == 500
