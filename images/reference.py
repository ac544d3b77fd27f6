"""Parse and normalise image references (pure).

The grammar is the one engines and registries share (distribution reference:
`[domain/]path[:tag][@digest]`). A name is parsed once, at the door; what was parsed
is what is passed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

DEFAULT_DOMAIN: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
MAX_NAME: Final = 255

_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]{{1,5}})?")
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_IMAGE_ID = re.compile(r"[0-9a-f]{64}")


class BadReference(ValueError):
    """The text is not an image reference; the message says which part is wrong."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One image name in its canonical parts.

    Attributes:
        domain: registry host with port, "docker.io" when none was written.
        path: repository, "library/" included for Docker Hub's own images.
        tag: the tag, `None` only when there is a digest instead.
        digest: "sha256:<hex>" when pinned.
    """

    domain: str
    path: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """Return the canonical repository name."""
        return f"{self.domain}/{self.path}"

    @property
    def familiar(self) -> str:
        """Return the name as people write it: no docker.io/, no library/."""
        if self.domain != DEFAULT_DOMAIN:
            return self.name + self._suffix()
        return self.path.removeprefix("library/") + self._suffix()

    @property
    def is_pinned(self) -> bool:
        return self.digest is not None

    def pin(self, digest: str) -> Reference:
        """
        Name exactly the bytes that the digest names.

        Raises:
            BadReference: not a digest, or the reference already names other bytes.
        """
        if not _DIGEST.fullmatch(digest):
            raise BadReference(f"{digest!r} is not a digest: expected sha256:<64 hex digits>")
        if self.digest is not None and self.digest != digest:
            raise BadReference(f"{self} already names other bytes than {digest}")
        return replace(self, digest=digest)

    def _suffix(self) -> str:
        tag = f":{self.tag}" if self.tag is not None else ""
        return tag + (f"@{self.digest}" if self.digest is not None else "")

    def __str__(self) -> str:
        return self.name + self._suffix()


def parse(text: str) -> Reference:
    """
    Parse a reference as people write it and fill in what they leave out.

    Raises:
        BadReference: some part is malformed.
    """
    if not text or text != text.strip():
        raise BadReference("an image reference must not be empty or surrounded by spaces")
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise BadReference(f"bad digest in {text!r}: expected name@sha256:<64 hex digits>")
    domain, path = _split_domain(rest)
    path, colon, tag = path.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise BadReference(f"bad tag in {text!r}: up to 128 letters, digits, '_', '.' or '-'")
    if not _DOMAIN.fullmatch(domain):
        raise BadReference(f"bad registry host in {text!r}")
    if path != path.lower():
        raise BadReference(f"repository name in {text!r} must be lower case")
    if not _PATH.fullmatch(path):
        raise BadReference(f"bad repository name in {text!r}")
    if _IMAGE_ID.fullmatch(path):
        raise BadReference(f"{text!r} is an image id, not a name; write sha256:… ids nowhere but in a digest")
    if domain == DEFAULT_DOMAIN and "/" not in path:
        path = f"library/{path}"
    if len(domain) + 1 + len(path) > MAX_NAME:
        raise BadReference(f"repository name in {text[:40]!r}… is longer than {MAX_NAME} characters")
    return Reference(domain, path, tag or (None if digest else DEFAULT_TAG), digest or None)


def _split_domain(text: str) -> tuple[str, str]:
    """Take the first component as a host only when it looks like one, as every engine does."""
    first, slash, rest = text.partition("/")
    looks_like_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    if not slash or not looks_like_host:
        return DEFAULT_DOMAIN, text
    if first in {"index.docker.io", "registry-1.docker.io"}:
        return DEFAULT_DOMAIN, rest
    return first, rest
