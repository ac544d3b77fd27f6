"""Events, each promise as one sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import stream

LINE = st.text(
    st.characters(exclude_characters="\n", exclude_categories=["Cs"]) | st.sampled_from('\\n"~^`|@#')
)


def events(data: bytes) -> list[dict[str, object]]:
    """Read a stream the strict way: one line, one blank line."""
    assert data.isascii()
    assert data.endswith(b"\n\n")
    return [json.loads(frame) for frame in data[:-2].split(b"\n\n")]


@given(st.lists(LINE, min_size=1, max_size=20), st.booleans())
def test_every_line_is_one_event(lines: list[str], ended: bool) -> None:
    """Whatever the text, each line is one event with its terminator stripped, an empty one is a line feed."""
    text = "\n".join(lines) + ("\n" if ended or not lines[-1] else "")
    got = events(stream.output("stdout", text.encode(), 5))
    assert [event["text"] for event in got] == [line or "\n" for line in lines]
    assert all(event["type"] == "stdout" and event["timestamp"] == 5 for event in got)


@pytest.mark.parametrize("prefix", [b"", "é".encode()])
def test_all_stand_ins_may_occur(prefix: bytes) -> None:
    """R40: A chunk with backslashes and every stand-in character is still cut at its line feeds only."""
    got = events(stream.output("stderr", prefix + b"~^`|@#\\n\\\nb\n", 1))
    assert [event["text"] for event in got] == [prefix.decode() + "~^`|@#\\n\\", "b"]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_are_replaced(data: bytes) -> None:
    """Whatever the bytes, the events hold what decoding with replacement gives, line by line."""
    lines = data.removesuffix(b"\n").split(b"\n")
    expected = [line.decode("utf-8", "replace") or "\n" for line in lines] if data else []
    got = events(stream.output("stdout", data, 1)) if data else []
    assert [event["text"] for event in got] == expected


def test_no_text_is_no_event() -> None:
    """A text of no length never produces an event."""
    assert stream.output("stdout", b"", 1) == b""


@pytest.mark.parametrize("unit", [b"\xf0\x9f\x98\x80", b"\x01", b"\xff", "é".encode()], ids=repr)
def test_the_longest_event_stays_readable(unit: bytes) -> None:
    """The longest line allowed, of whatever bytes, stays below 4 MiB (execd §0 rule 2)."""
    line = unit * (stream.MAX_LINE // len(unit))
    assert len(stream.output("stdout", line, 1)) < 4 << 20


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (stream.init("5f", 1), {"type": "init", "text": "5f", "timestamp": 1}),
        (stream.ping(1), {"type": "ping", "text": "pong", "timestamp": 1}),
        (stream.status("error", 1), {"type": "status", "text": "error", "timestamp": 1}),
        (
            stream.error("CommandExecError", "7", ["exit status 7"], 1),
            {
                "type": "error",
                "error": {"ename": "CommandExecError", "evalue": "7", "traceback": ["exit status 7"]},
                "timestamp": 1,
            },
        ),
        (stream.complete(104, 1), {"type": "execution_complete", "execution_time": 104, "timestamp": 1}),
    ],
    ids=["init", "ping", "status", "error", "complete"],
)
def test_each_event_has_its_shape(data: bytes, event: dict[str, object]) -> None:
    """Each kind of event is the object the protocol says."""
    assert events(data) == [event]
