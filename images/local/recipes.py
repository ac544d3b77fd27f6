"""What the local images are made of (pure).

An image is identified by the hash of its recipe and of what goes in, kept as a label on
it: an image with that label need not be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

LABEL_RECIPE: Final = "boxwright.io/recipe"
LABEL_NAME: Final = "boxwright.io/local-image"
REPOSITORY: Final = "boxwright"
TAG: Final = "local"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Raised when the way an image is put together changes without its ingredients changing.
EDITION: Final = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image: what is in it and what it runs.

    Attributes:
        kind: how the root file system is made: "packages", "busybox" or "program".
        packages: Debian packages beside the essential ones.
        command: what runs when nothing is named.
    """

    name: str
    kind: str
    command: tuple[str, ...]
    packages: tuple[str, ...] = ()


RECIPES: Final[Mapping[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe("debian", "packages", ("/bin/bash",), ("bash", "procps", "python3")),
        Recipe("busybox", "busybox", ("/bin/sh",)),
        Recipe("static", "program", ("/app",)),
    )
}
NAMES: Final = tuple(RECIPES)


class UnknownImage(ValueError):
    """No local image of that name."""


def chosen(names: Iterable[str]) -> tuple[Recipe, ...]:
    """Return the recipes of these names, each once."""
    out = []
    for name in dict.fromkeys(names):
        if name not in RECIPES:
            raise UnknownImage(f"no local image {name!r}; there are {', '.join(NAMES)}")
        out.append(RECIPES[name])
    return tuple(out)


def reference(name: str) -> str:
    return f"{REPOSITORY}/{name}:{TAG}"


def recipe_hash(recipe: Recipe, ingredients: Mapping[str, str]) -> str:
    """
    Name an image by what it is made of.

    Args:
        recipe: the image.
        ingredients: what this machine adds: release, architecture, digests of files that go in.
    """
    document = {
        "edition": EDITION,
        "name": recipe.name,
        "kind": recipe.kind,
        "command": recipe.command,
        "packages": recipe.packages,
        "ingredients": dict(ingredients),
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]


def changes(recipe: Recipe, recipe_id: str) -> list[str]:
    """Say what the engine adds to the imported root file system (Dockerfile instructions)."""
    return [
        f"ENV PATH={PATH}",
        f"CMD {json.dumps(list(recipe.command))}",
        f"LABEL {LABEL_RECIPE}={recipe_id}",
        f"LABEL {LABEL_NAME}={recipe.name}",
    ]
