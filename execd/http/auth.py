"""Check the access token of a request.

Tokens are compared as SHA-256 digests in constant time; only the digest is kept.
"""

from __future__ import annotations

from specs.errors import ExecdUnauthorized
from specs.names import HEADER_ACCESS_TOKEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.config import Settings
    from execd.http.exchange import Request

OPEN_PATHS = frozenset({"/ping", "/ready"})
TOKEN_HEADER = HEADER_ACCESS_TOKEN.lower()


class Gate:
    """Admit requests that carry the token; every request if none is configured.

    Where both a token and a hash are configured the hash counts.
    """

    __slots__ = ("_digest", "_token")

    def __init__(self, settings: Settings) -> None:
        self._digest: bytes | None = None
        self._token: bytes | None = None  # until it is first needed, then its digest is kept instead
        if settings.token_hash is not None:
            self._digest = bytes.fromhex(settings.token_hash.rpartition(":")[2])
        elif settings.token is not None:
            self._token = settings.token.encode("utf-8", "surrogateescape")

    def check(self, request: Request) -> None:
        """
        Admit a request or refuse it.

        Raises:
            ExecdUnauthorized: the token is missing or wrong.
        """
        if self._digest is None and self._token is None:
            return
        if request.path in OPEN_PATHS and request.method in {"GET", "HEAD"}:
            return
        if self._token is not None:
            self._digest, self._token = digest(self._token), None
        wanted = self._digest
        if wanted is None:
            raise RuntimeError("there is neither token nor digest")
        given = request.header(TOKEN_HEADER)
        if given is None:
            raise ExecdUnauthorized(f"the header {HEADER_ACCESS_TOKEN} is required")
        from _operator import _compare_digest

        # Header values are latin-1 on the wire as here: the bytes are those the client sent.
        if not _compare_digest(digest(given.encode("latin-1")), wanted):
            raise ExecdUnauthorized(f"the header {HEADER_ACCESS_TOKEN} does not hold the right token")


def digest(data: bytes) -> bytes:
    """Return a SHA-256 digest, without `hashlib`, which would import OpenSSL."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]  # since 3.12
    except ModuleNotFoundError:
        from _sha256 import sha256  # type: ignore[import-not-found]
    return bytes(sha256(data).digest())
