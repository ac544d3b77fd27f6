"""images/local/build.py: what is there is not made again (the making: tests/integration/docker)."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.local import ensure
from images.local.build import APP_SOURCE, _digest
from images.local.recipes import RECIPES, UnknownImage, recipe_hash


class Shelf:
    """An engine that has images or not, and takes in what it is given."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {}
        self.imported: list[str] = []

    async def image_labels(self, image: str) -> dict[str, str] | None:
        return self.labels.get(image)

    async def import_image(self, tar: Path, *, repository: str, tag: str, changes: list[str]) -> None:
        assert tar.stat().st_size > 0
        pairs = (line.removeprefix("LABEL ").split("=", 1) for line in changes if line.startswith("LABEL "))
        self.labels[f"{repository}:{tag}"] = dict(pairs)
        self.imported.append(f"{repository}:{tag}")


async def test_an_image_is_made_once() -> None:
    """
    The second call finds the label and makes nothing, and says nothing.
    """
    shelf, said = Shelf(), list[str]()
    for _ in range(2):
        assert await ensure(["static"], shelf, said.append, deadline=60.0) == {
            "static": "boxwright/static:local"
        }

    assert shelf.imported == ["boxwright/static:local"]
    assert len(said) == 2
    assert shelf.labels["boxwright/static:local"]["boxwright.io/local-image"] == "static"


async def test_an_image_of_another_recipe_is_made_anew() -> None:
    """
    The label, not the name, says whether an image is current.
    """
    shelf = Shelf()
    shelf.labels["boxwright/static:local"] = {"boxwright.io/recipe": "old"}
    await ensure(["static"], shelf, lambda _: None, deadline=60.0)

    assert shelf.imported == ["boxwright/static:local"]


async def test_unknown_names_make_nothing() -> None:
    """
    A wrong name is refused before anything is made.
    """
    shelf = Shelf()
    with pytest.raises(UnknownImage):
        await ensure(["static", "alpine"], shelf, lambda _: None, deadline=60.0)
    assert shelf.imported == []


def test_the_programs_source_is_an_ingredient() -> None:
    """
    Changing app.c changes the image.
    """
    recipe = RECIPES["static"]

    assert recipe_hash(recipe, {"app": _digest(APP_SOURCE)}) != recipe_hash(recipe, {"app": "other"})
