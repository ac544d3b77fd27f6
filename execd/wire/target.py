"""Take a request target apart: path and query, percent-decoded exactly once.

Source: RFC 3986 §2.1 and §3.4; the `+` of queries is the form encoding's space.
"""

from __future__ import annotations

_HEX = b"0123456789abcdefABCDEF"
_BYTES = {
    bytes((a, b)): bytes((int(chr(a) + chr(b), 16),)) for a in _HEX for b in _HEX
}  # two digits to the byte they mean


def percent_bytes(data: bytes) -> bytes:
    """Decode `%XX`; what is not two hexadecimal digits stays as it is."""
    if b"%" not in data:
        return data
    first, *rest = data.split(b"%")
    out = [first]
    for piece in rest:
        byte = _BYTES.get(piece[:2])
        if byte is None:
            out.append(b"%" + piece)
        else:
            out.append(byte)
            out.append(piece[2:])
    return b"".join(out)


def percent_text(data: bytes) -> str:
    """Decode `%XX` and UTF-8; bytes that are not UTF-8 become lone surrogates (surrogateescape)."""
    return percent_bytes(data).decode("utf-8", "surrogateescape")


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Return the raw path and the raw query of a target in origin form."""
    path, _, query = target.partition(b"?")
    return path, query.partition(b"#")[0]


def parse_query(query: bytes) -> dict[str, list[str]]:
    """Decode a query into its keys, in order, each with all its values."""
    out: dict[str, list[str]] = {}
    if not query:
        return out
    for pair in query.replace(b"+", b" ").split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            out.setdefault(percent_text(name), []).append(percent_text(value))
    return out
