"""WebSocket frames: bytes in, messages out, and back.

Source: RFC 6455 §5 (frames), §4.2.2 (the handshake's answer), §7.4 (close codes).
"""

from __future__ import annotations

TEXT = 0x1
BINARY = 0x2
CLOSE = 0x8
PING = 0x9
PONG = 0xA

_CONTINUATION = 0x0
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
INVALID_DATA = 1007
TOO_BIG = 1009


class WebSocketError(ValueError):
    """The peer broke the protocol; `code` is what to close with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Message:
    """A whole message, or a control frame."""

    __slots__ = ("opcode", "payload")

    def __init__(self, opcode: int, payload: bytes) -> None:
        self.opcode = opcode
        self.payload = payload

    def text(self) -> str:
        """
        Return a text message's text.

        Raises:
            WebSocketError: it is not UTF-8.
        """
        try:
            return str(self.payload, "utf-8")
        except UnicodeDecodeError:
            raise WebSocketError(INVALID_DATA, "a text message is not UTF-8") from None


class FrameParser:
    """Collect messages from the bytes of one direction.

    Args:
        masked: whether the peer must mask: True when we are the server (RFC 6455 §5.1).
        max_message: bytes a message may have, over all its fragments.
    """

    __slots__ = ("_buffer", "_fragments", "_masked", "_max", "_opcode", "_size")

    def __init__(self, *, masked: bool, max_message: int) -> None:
        self._masked = masked
        self._max = max_message
        self._buffer = bytearray()
        self._fragments: list[bytes] = []
        self._size = 0
        self._opcode = 0

    def feed(self, data: bytes) -> list[Message]:
        """
        Take bytes; return the messages that are complete now.

        Raises:
            WebSocketError: the protocol was broken; messages before that are lost, as the
                connection is to be closed.
        """
        buffer = self._buffer
        buffer += data
        out: list[Message] = []
        at = 0
        while True:
            after = self._frame(at, out)
            if after < 0:
                break
            at = after
        del buffer[:at]
        return out

    def _frame(self, at: int, out: list[Message]) -> int:
        """Read the frame at `at`; return where the next begins, or -1 while it is incomplete."""
        buffer = self._buffer
        available = len(buffer) - at
        if available < 2:
            return -1
        first, second = buffer[at], buffer[at + 1]
        final, opcode, size = first & 0x80, first & 0x0F, second & 0x7F
        if first & 0x70:
            raise WebSocketError(PROTOCOL_ERROR, "a reserved bit is set")
        if bool(second & 0x80) != self._masked:
            raise WebSocketError(PROTOCOL_ERROR, "the frame is masked the wrong way")
        control = opcode & 0x8
        if opcode not in {_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}:
            raise WebSocketError(PROTOCOL_ERROR, f"opcode {opcode} is not defined")
        if control and (not final or size > 125):
            raise WebSocketError(PROTOCOL_ERROR, "a control frame is fragmented or too long")
        head = 2
        if size == 126:
            head = 4
        elif size == 127:
            head = 10
        if available < head:
            return -1
        if head > 2:
            size = int.from_bytes(buffer[at + 2 : at + head], "big")
            if size >> 63 or size < (126 if head == 4 else 65536):
                raise WebSocketError(PROTOCOL_ERROR, "the length is not in its shortest form")
        if not control and self._size + size > self._max:
            raise WebSocketError(TOO_BIG, f"a message is longer than {self._max} bytes")
        start = at + head + (4 if self._masked else 0)
        if len(buffer) < start + size:
            return -1
        payload = bytes(buffer[start : start + size])
        if self._masked:
            payload = mask(payload, bytes(buffer[start - 4 : start]))
        self._take(final, opcode, payload, out)
        return start + size

    def _take(self, final: int, opcode: int, payload: bytes, out: list[Message]) -> None:
        if opcode & 0x8:
            if opcode == CLOSE:
                close_reason(payload)
            out.append(Message(opcode, payload))
            return
        if opcode == _CONTINUATION:
            if not self._opcode:
                raise WebSocketError(PROTOCOL_ERROR, "a continuation has nothing to continue")
        elif self._opcode:
            raise WebSocketError(PROTOCOL_ERROR, "a new message begins inside another")
        else:
            self._opcode = opcode
        self._fragments.append(payload)
        self._size += len(payload)
        if final:
            out.append(Message(self._opcode, b"".join(self._fragments)))
            self._fragments.clear()
            self._size = 0
            self._opcode = 0


def mask(payload: bytes, key: bytes) -> bytes:
    """Mask or unmask a payload (the operation is its own inverse)."""
    size = len(payload)
    if not size:
        return b""
    pad = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")).to_bytes(size, "little")


def frame(opcode: int, payload: bytes, *, key: bytes | None = None) -> bytes:
    """
    Build one unfragmented frame.

    Args:
        opcode: what it is.
        payload: its content.
        key: four random bytes when we are the client, None when we are the server.
    """
    size = len(payload)
    flag = 0 if key is None else 0x80
    if size < 126:
        head = bytes((0x80 | opcode, flag | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, flag | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, flag | 127)) + size.to_bytes(8, "big")
    return head + payload if key is None else head + key + mask(payload, key)


def close_frame(code: int, reason: str = "", *, key: bytes | None = None) -> bytes:
    """
    Build a close frame; the reason is cut to what fits.

    Raises:
        ValueError: the code must not be sent (RFC 6455 §7.4).
    """
    if not may_send(code):
        raise ValueError(f"close code {code} must not appear on the wire")
    text = reason.encode("utf-8")[:123].decode("utf-8", "ignore").encode("utf-8")
    return frame(CLOSE, code.to_bytes(2, "big") + text, key=key)


def may_send(code: int) -> bool:
    """Say whether a close code may appear on the wire (1004, 1005, 1006 and 1015 never do)."""
    return code in {1000, 1001, 1002, 1003, *range(1007, 1015)} or 3000 <= code <= 4999


def close_reason(payload: bytes) -> tuple[int | None, str]:
    """
    Read a close frame's payload: the code, None if there is none, and the reason.

    Raises:
        WebSocketError: it is malformed.
    """
    if not payload:
        return None, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not may_send(code):
        raise WebSocketError(PROTOCOL_ERROR, "the close code is not one that may be sent")
    try:
        return code, str(payload[2:], "utf-8")
    except UnicodeDecodeError:
        raise WebSocketError(INVALID_DATA, "the close reason is not UTF-8") from None


def accept_value(key: str) -> str:
    """Answer a `Sec-WebSocket-Key` (RFC 6455 §4.2.2)."""
    # Late: only a handshake needs them. `hashlib` would import OpenSSL.
    from _sha1 import sha1  # type: ignore[import-not-found]  # typeshed has no stub
    from binascii import b2a_base64

    digest = sha1(key.strip().encode("latin-1") + _GUID).digest()
    return b2a_base64(digest, newline=False).decode("ascii")
