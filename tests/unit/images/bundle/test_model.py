"""The manifest of a bundle and its digest."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from images.bundle.model import (
    ENTRYPOINTS,
    KINDS,
    File,
    Manifest,
    ManifestUnreadable,
    bundle_of,
    content_digest,
    difference,
    parse,
    render,
)

EXECD = File("execd", 10, executable=True, sha256="a" * 64)
SPAWN = File("spawn", 5, executable=True, sha256="b" * 64)
MANIFEST = Manifest(
    "frozen", "3.13.5", "x86_64", "frozen-k", "zig 0.17", ENTRYPOINTS["frozen"], (EXECD, SPAWN)
)


@pytest.mark.parametrize(
    "manifest", [MANIFEST, replace(MANIFEST, spawn=None), replace(MANIFEST, kind="debian")]
)
def test_a_manifest_survives_its_text(manifest: Manifest) -> None:
    """
    What is rendered is what is parsed.
    """
    assert parse(render(manifest)) == manifest


def test_every_kind_has_an_entrypoint_under_the_mount() -> None:
    """
    A container can start either kind by an absolute path inside the mount.
    """
    assert {kind: ENTRYPOINTS[kind][0] for kind in KINDS} == {
        "frozen": "/opt/boxwright/execd",
        "debian": "/opt/boxwright/bin/python3",
    }


@pytest.mark.parametrize(
    "changed",
    [
        replace(EXECD, sha256="c" * 64),
        replace(EXECD, path="execd2"),
        replace(EXECD, executable=False),
    ],
    ids=["content", "path", "executable bit"],
)
def test_the_digest_covers_what_runs(changed: File) -> None:
    """
    Another content, path or executable bit gives another digest.
    """
    assert content_digest([changed, SPAWN]) != content_digest([EXECD, SPAWN])


def test_the_digest_does_not_depend_on_order() -> None:
    """
    Two listings of the same files have the same digest.
    """
    assert content_digest([SPAWN, EXECD]) == content_digest([EXECD, SPAWN])


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ({"format": 2}, "format 2"),
        ({"kind": "zip"}, "kind 'zip'"),
        ({"digest": "sha256:0"}, "digest"),
        ({"files": [{}]}, "not understood"),
        ({"entrypoint": None}, "not understood"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(edit: dict[str, object], problem: str) -> None:
    """
    Another format, an unknown kind, a wrong digest or a missing field is an error that says so.
    """
    text = json.dumps({**json.loads(render(MANIFEST)), **edit})

    with pytest.raises(ManifestUnreadable, match=problem):
        parse(text)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"format"'])
def test_text_that_is_no_manifest_is_refused(text: str) -> None:
    """
    Anything but a manifest object is unreadable, not a crash.
    """
    with pytest.raises(ManifestUnreadable):
        parse(text)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([EXECD, SPAWN], None),
        ([EXECD], "spawn is missing"),
        ([EXECD, SPAWN, replace(EXECD, path="extra")], "extra is not in the manifest"),
        ([replace(EXECD, size=11), SPAWN], "execd was changed"),
    ],
    ids=["same", "missing", "extra", "changed"],
)
def test_the_first_difference_is_named(found: list[File], problem: str | None) -> None:
    """
    A directory equals its manifest or the difference has a file name.
    """
    assert difference(MANIFEST, found) == problem


def test_a_bundle_takes_its_facts_from_the_manifest() -> None:
    """
    Size and digest are those of the listed files.
    """
    bundle = bundle_of(MANIFEST, Path("/b"))

    assert (bundle.size, bundle.digest) == (15, content_digest([EXECD, SPAWN]))
    assert bundle.entrypoint == ("/opt/boxwright/execd",)
