"""Name a download without letting the name write headers.

Pure. Source: RFC 6266, RFC 8187; protocol: execd §7.6.
"""

from __future__ import annotations

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$&+-.^_`|~")


def attachment(name: str) -> str:
    """Return the Content-Disposition value for a file's base name.

    A printable ASCII name is quoted. Any other name (control characters, other scripts,
    bytes that are not UTF-8) is percent-encoded in both parameters.
    """
    if name.isascii() and name.isprintable():
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        return f'attachment; filename="{quoted}"'
    encoded = "".join(
        chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in name.encode("utf-8", "surrogateescape")
    )
    return f"attachment; filename=\"{encoded}\"; filename*=UTF-8''{encoded}"
