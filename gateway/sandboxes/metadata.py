"""Rules for metadata: the ones of Kubernetes labels, on every backend (lifecycle §2.5, §2.6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from specs.errors import InvalidMetadataLabel, ReservedMetadataLabel
from specs.names import RESERVED_METADATA_PREFIX

NAME_LENGTH: Final = 63
PREFIX_LENGTH: Final = 253

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_DOMAIN_PART: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)


def check_labels(metadata: Mapping[str, str]) -> None:
    """
    Refuse the first pair that breaks a rule, at create.

    Raises:
        InvalidMetadataLabel: with the key (shortened), the rule and what would be accepted.
    """
    for key, value in metadata.items():
        if key.startswith(RESERVED_METADATA_PREFIX):
            raise InvalidMetadataLabel(
                f"metadata: the prefix {RESERVED_METADATA_PREFIX} is reserved; use another one"
            )
        _check_key(key)
        _check_value(key, value)


def patched(current: Mapping[str, str], patch: Mapping[str, str | None]) -> dict[str, str]:
    """
    Apply a merge patch (RFC 7396): a string sets a key, null removes it, the rest stays.

    Raises:
        ReservedMetadataLabel: a key has the reserved prefix.
        InvalidMetadataLabel: a key or value to be set breaks a rule.
    """
    for key in patch:
        if key.startswith(RESERVED_METADATA_PREFIX):
            raise ReservedMetadataLabel(
                f"metadata: the prefix {RESERVED_METADATA_PREFIX} is reserved; use another one"
            )
    check_labels({key: value for key, value in patch.items() if value is not None})
    merged = {**current, **patch}
    return {key: value for key, value in merged.items() if value is not None}


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash:
        parts = prefix.split(".")
        if len(prefix) > PREFIX_LENGTH or not all(
            len(part) <= 63 and _DOMAIN_PART.fullmatch(part) for part in parts
        ):
            raise InvalidMetadataLabel(
                f"metadata key {_short(key)}: what stands before `/` is not a DNS name of at most "
                f"{PREFIX_LENGTH} "
                "lower-case letters, digits, `-` and `.`"
            )
    if len(name) > NAME_LENGTH:
        raise InvalidMetadataLabel(
            f"metadata key {_short(key)}: the name is longer than {NAME_LENGTH} characters; shorten it"
        )
    if not _NAME.fullmatch(name):
        raise InvalidMetadataLabel(
            f"metadata key {_short(key)}: a name starts and ends with a letter or digit and has only "
            "letters, digits, "
            "`-`, `_` and `.` between"
        )


def _check_value(key: str, value: str) -> None:
    if len(value) > NAME_LENGTH:
        raise InvalidMetadataLabel(
            f"metadata value of {_short(key)} is longer than {NAME_LENGTH} characters; shorten it"
        )
    if value and not _NAME.fullmatch(value):
        raise InvalidMetadataLabel(
            f"metadata value of {_short(key)}: it is empty, or starts and ends with a letter or digit and "
            "has only "
            "letters, digits, `-`, `_` and `.` between"
        )


def _short(key: str) -> str:
    return ascii(key if len(key) <= 80 else key[:77] + "...")
