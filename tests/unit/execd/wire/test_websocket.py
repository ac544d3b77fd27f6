"""WebSocket frames, each promise as one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.wire import websocket as ws

KEY = b"\x01\x80\xff\x00"
MESSAGES = st.lists(
    st.tuples(st.sampled_from([ws.TEXT, ws.BINARY, ws.PING, ws.PONG]), st.binary(max_size=120)), max_size=6
)


@given(MESSAGES, st.booleans(), st.data())
def test_any_chunking_gives_the_same_messages(
    messages: list[tuple[int, bytes]], masked: bool, data: st.DataObject
) -> None:
    """R68: However frames are cut or joined on the way, the same messages come out in order."""
    wire = b"".join(ws.frame(opcode, payload, key=KEY if masked else None) for opcode, payload in messages)
    parser = ws.FrameParser(masked=masked, max_message=1 << 20)
    got: list[tuple[int, bytes]] = []
    while wire:
        cut = data.draw(st.integers(1, len(wire)))
        got += [(message.opcode, message.payload) for message in parser.feed(wire[:cut])]
        wire = wire[cut:]
    assert got == messages


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536, 100_000])
def test_every_length_form_round_trips(size: int) -> None:
    """Frames of all three length forms are read as they were built."""
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    [message] = ws.FrameParser(masked=True, max_message=1 << 20).feed(ws.frame(ws.BINARY, payload, key=KEY))
    assert message.payload == payload


def test_control_frames_come_between_fragments() -> None:
    """A ping inside a fragmented message does not disturb it."""
    wire = b"\x01\x02he" + ws.frame(ws.PING, b"p") + b"\x00\x01l" + b"\x80\x02lo"
    got = ws.FrameParser(masked=False, max_message=10).feed(wire)
    assert [(message.opcode, message.payload) for message in got] == [(ws.PING, b"p"), (ws.TEXT, b"hello")]
    assert got[1].text() == "hello"


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"\xc1\x00", 1002),
        (b"\x83\x00", 1002),
        (b"\x81\x80", 1002),
        (b"\x09\x00", 1002),
        (b"\x89\x7e", 1002),
        (b"\x80\x00", 1002),
        (b"\x01\x00\x01\x00", 1002),
        (b"\x82\x7e\x00\x05", 1002),
        (b"\x82\x7f" + b"\xff" * 8, 1002),
        (b"\x82\x0b", 1009),
        (b"\x02\x08" + b"x" * 8 + b"\x80\x08", 1009),
        (b"\x88\x01x", 1002),
        (b"\x88\x02\x03\xed", 1002),
        (b"\x88\x03\x03\xe8\xff", 1007),
    ],
    ids=repr,
)
def test_a_broken_frame_names_its_close_code(wire: bytes, code: int) -> None:
    """A peer that breaks the protocol is told with the right code."""
    with pytest.raises(ws.WebSocketError) as caught:
        ws.FrameParser(masked=False, max_message=10).feed(wire)
    assert caught.value.code == code


@given(st.binary(max_size=100))
def test_the_parser_raises_nothing_else(data: bytes) -> None:
    """Arbitrary bytes give messages, or the parser's error."""
    try:
        ws.FrameParser(masked=False, max_message=1000).feed(data)
    except ws.WebSocketError:
        pass


def test_text_must_be_utf8() -> None:
    """A text message that is not UTF-8 is invalid data."""
    with pytest.raises(ws.WebSocketError):
        ws.Message(ws.TEXT, b"\xff").text()


def test_close_frames_carry_code_and_reason() -> None:
    """R70: A close frame is read back as it was meant, its reason cut to fit whole characters."""
    [message] = ws.FrameParser(masked=False, max_message=10).feed(ws.close_frame(4001, "é" * 100))
    assert ws.close_reason(message.payload) == (4001, "é" * 61)
    assert ws.close_reason(b"") == (None, "")


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 2999, 5000])
def test_reserved_close_codes_are_never_sent(code: int) -> None:
    """R70: Codes that only stand for events are not put on the wire."""
    with pytest.raises(ValueError):
        ws.close_frame(code)


def test_the_handshake_is_answered() -> None:
    """The key is answered as the RFC's own example says (RFC 6455 §1.3)."""
    assert ws.accept_value("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
