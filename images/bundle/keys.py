"""Names for what is in the cache: equal inputs, equal name (pure)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

KEY_LENGTH = 20


def key_of(parts: Mapping[str, str | bytes]) -> str:
    """
    Return a short name for a set of named inputs.

    Names and values are length-prefixed, so that no two different sets of inputs
    can run together into the same text.
    """
    total = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        data = value.encode() if isinstance(value, str) else value
        total.update(f"{len(name.encode())}:{name}={len(data)}:".encode())
        total.update(data)
    return total.hexdigest()[:KEY_LENGTH]


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the digest of named contents, whatever order they come in."""
    total = hashlib.sha256()
    for name, data in sorted(files):
        total.update(f"{len(name.encode())}:{name}={len(data)}:".encode())
        total.update(data)
    return total.hexdigest()
