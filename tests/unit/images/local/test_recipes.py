"""images/local/recipes.py: an image is named by what it is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from images.bundle.apt_sources import Entry
from images.local.recipes import (
    NAMES,
    RECIPES,
    UnknownImage,
    changes,
    chosen,
    of_release,
    recipe_hash,
    reference,
)
from images.reference import parse


def test_the_hash_follows_every_ingredient() -> None:
    """
    Anything that changes the content changes the name; nothing else does.
    """
    recipe = RECIPES["debian"]
    base = recipe_hash(recipe, {"release": "a", "machine": "m"})

    assert base == recipe_hash(recipe, {"machine": "m", "release": "a"})
    assert base != recipe_hash(recipe, {"release": "b", "machine": "m"})
    assert base != recipe_hash(replace(recipe, packages=("x",)), {"release": "a", "machine": "m"})
    assert base != recipe_hash(replace(recipe, command=("x",)), {"release": "a", "machine": "m"})
    assert base != recipe_hash(replace(recipe, release="b"), {"release": "a", "machine": "m"})
    assert base != recipe_hash(replace(recipe, settings=("USER x",)), {"release": "a", "machine": "m"})


def test_names_are_chosen_once_each() -> None:
    """
    Asking twice makes one image; an unknown name lists the known ones.
    """
    assert [recipe.name for recipe in chosen(["static", "busybox", "static"])] == ["static", "busybox"]
    with pytest.raises(UnknownImage, match="debian, busybox, static"):
        chosen(["alpine"])


@pytest.mark.parametrize("name", NAMES)
def test_references_are_well_formed_and_labelled(name: str) -> None:
    """
    The engine can be asked for the image, and the label says whether it is current.
    """
    assert parse(reference(name)).familiar == f"boxwright/{name}:local"
    said = changes(RECIPES[name], "id")
    assert "LABEL boxwright.io/recipe=id" in said
    assert any(line.startswith('CMD ["/') for line in said)


def test_the_command_is_said_after_the_entrypoint() -> None:
    """
    An instruction that names an entrypoint would take an earlier command away.
    """
    said = changes(RECIPES["dressed"], "id")
    entry, command = (
        next(n for n, line in enumerate(said) if line.startswith(word)) for word in ("ENTRYPOINT", "CMD")
    )
    assert entry < command


OWN = Entry(("deb",), ("http://mirror/debian",), ("old", "old-updates"), ("main",), (("Signed-By", "/key"),))
SECURITY = replace(OWN, uris=("http://mirror/security",), suites=("old-security",))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, (OWN, SECURITY)),
        ("old", (OWN, SECURITY)),
        ("new", (replace(OWN, suites=("new",)),)),
    ],
)
def test_another_release_comes_from_the_same_mirror(wanted: str | None, found: tuple[Entry, ...]) -> None:
    """
    Mirror and key stay; of another release only the release itself is asked for.
    """
    assert of_release((OWN, SECURITY), "old", wanted) == found
