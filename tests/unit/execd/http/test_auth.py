"""The gate, each promise as one sentence."""

import hashlib

import pytest

from execd.config import Settings
from execd.http.auth import Gate, digest
from execd.http.exchange import Request
from specs.errors import ExecdUnauthorized


def request(path: str, token: str | None, method: str = "GET") -> Request:
    out = Request()
    out.method, out.path = method, path
    out.headers = [] if token is None else [("x-execd-access-token", token)]
    return out


def settings(token: str | None = None, token_hash: str | None = None) -> Settings:
    return Settings(state_dir="/nowhere", token=token, token_hash=token_hash)


def test_the_digest_is_sha256() -> None:
    """The interpreter's own module gives the usual digest."""
    assert digest(b"abc") == hashlib.sha256(b"abc").digest()


@pytest.mark.parametrize("token", ["plain", "schlüssel", "\udcff"])
def test_the_right_token_is_admitted(token: str) -> None:
    """A token is compared as the bytes that were configured."""
    on_the_wire = token.encode("utf-8", "surrogateescape").decode("latin-1")
    Gate(settings(token=token)).check(request("/command", on_the_wire))
    hashed = "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
    Gate(settings(token="other", token_hash=hashed)).check(request("/command", on_the_wire))


@pytest.mark.parametrize("token", [None, "", "wrong", "plain "])
def test_any_other_is_refused_without_being_repeated(token: str | None) -> None:
    """A wrong token is refused, and the message does not hold it."""
    with pytest.raises(ExecdUnauthorized) as caught:
        Gate(settings(token="plain")).check(request("/command", token))
    assert "plain" not in caught.value.message
    assert not token or token == "plain " or token not in caught.value.message.replace("wrong", "", 0).split()


@pytest.mark.parametrize(
    ("path", "method"), [("/ping", "POST"), ("/ping/", "GET"), ("/proxy/44772/ping", "GET"), ("/x", "GET")]
)
def test_only_health_is_open(path: str, method: str) -> None:
    """Nothing but GET and HEAD of the two health paths goes without a token."""
    with pytest.raises(ExecdUnauthorized):
        Gate(settings(token="t")).check(request(path, None, method))


def test_health_is_open() -> None:
    """Health may be asked by anybody."""
    for path in ("/ping", "/ready"):
        for method in ("GET", "HEAD"):
            Gate(settings(token="t")).check(request(path, None, method))


def test_without_a_token_everything_is_open() -> None:
    """No token configured means no check, as the protocol has it."""
    Gate(settings()).check(request("/command", None))
