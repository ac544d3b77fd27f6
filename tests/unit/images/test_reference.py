"""images/reference.py: one grammar, one canonical form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.reference import BadReference, parse

HEX = "a" * 64
DIGEST = f"sha256:{HEX}"


@pytest.mark.parametrize(
    ("text", "canonical", "familiar"),
    [
        ("python", "docker.io/library/python:latest", "python:latest"),
        ("python:3.12-slim", "docker.io/library/python:3.12-slim", "python:3.12-slim"),
        ("boxwright/debian:local", "docker.io/boxwright/debian:local", "boxwright/debian:local"),
        ("index.docker.io/library/a", "docker.io/library/a:latest", "a:latest"),
        ("localhost/x", "localhost/x:latest", "localhost/x:latest"),
        ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b:1"),
        ("[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a:latest"),
        ("ghcr.io/a/b__c/d-e@" + DIGEST, f"ghcr.io/a/b__c/d-e@{DIGEST}", f"ghcr.io/a/b__c/d-e@{DIGEST}"),
        ("a:1@" + DIGEST, f"docker.io/library/a:1@{DIGEST}", f"a:1@{DIGEST}"),
        ("REG/a", "REG/a:latest", "REG/a:latest"),
    ],
)
def test_a_reference_has_one_canonical_and_one_familiar_form(
    text: str, canonical: str, familiar: str
) -> None:
    """
    What is left out is filled in as every engine does.
    """
    assert str(parse(text)) == canonical
    assert parse(text).familiar == familiar


@pytest.mark.parametrize(
    "text",
    ["", " a", "a ", "A", "a:", "a:-x", "a@sha256:12", "a/", "/a", "a//b", "-a", "a..b", HEX, "a b", "a@" + HEX,
     "x.io/" + "a" * 260, "http://a/b"],
)  # fmt: skip
def test_what_is_not_a_reference_is_refused(text: str) -> None:
    """
    A malformed reference never reaches an engine.
    """
    with pytest.raises(BadReference):
        parse(text)


@given(st.text(max_size=80))
def test_parsing_is_total_and_stable(text: str) -> None:
    """
    Any text either is refused or parses to a form that parses to itself.
    """
    try:
        reference = parse(text)
    except BadReference:
        return
    assert parse(str(reference)) == reference
    assert parse(reference.familiar) == reference


def test_pinning_names_the_bytes() -> None:
    """
    A pinned reference keeps its tag for people and gains the digest; other bytes are refused.
    """
    pinned = parse("a:1").pin(DIGEST)

    assert str(pinned) == f"docker.io/library/a:1@{DIGEST}"
    assert pinned.is_pinned
    assert pinned.pin(DIGEST) == pinned
    with pytest.raises(BadReference):
        pinned.pin("sha256:" + "b" * 64)
    with pytest.raises(BadReference):
        pinned.pin("latest")
