"""How a WebSocket's end on one side is told to the other (RFC 6455 §7.4, lifecycle §1.4)."""

from __future__ import annotations

from typing import Final

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
NO_STATUS: Final = 1005
ABNORMAL: Final = 1006
POLICY: Final = 1008
TOO_BIG: Final = 1009
INTERNAL: Final = 1011

_MAX_REASON_BYTES: Final = 123  # a control frame holds 125 bytes, two of them are the code


def legal(code: int) -> bool:
    """Say whether a code may stand in a close frame."""
    return (1000 <= code <= 1014 and code not in {1004, NO_STATUS, ABNORMAL}) or 3000 <= code <= 4999


def to_backend(code: int) -> int:
    """Return the code for the sandbox's side when the client's side ended with `code`."""
    if code == NO_STATUS:
        return NORMAL
    return code if legal(code) else GOING_AWAY


def to_client(code: int) -> int:
    """Return the code for the client when the sandbox's side ended with `code`."""
    if code == NO_STATUS:
        return NORMAL
    return code if legal(code) else INTERNAL


def fit_reason(reason: str) -> str:
    """Cut a reason to what a close frame can hold, on a character's border."""
    raw = reason.encode("utf-8", "replace")
    return reason if len(raw) <= _MAX_REASON_BYTES else raw[:_MAX_REASON_BYTES].decode("utf-8", "ignore")
