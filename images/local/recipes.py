"""What the local images are made of (pure).

An image is identified by the hash of its recipe and of what goes in, kept as a label on
it: an image with that label need not be made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from images.bundle.apt_sources import Entry

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
        kind: how the root file system is made. "packages": a Debian with these beside the
            essential ones; "unpacked": these packages' files and no more, none of their
            scripts run; "busybox"; "musl": busybox, musl's loader and a program that needs
            it; "dressed": busybox, a user of its own and an entry program; "program".
        packages: names of Debian packages.
        command: what runs when nothing is named.
        release: codename of the Debian release; None = this machine's own.
        settings: further Dockerfile instructions.
    """

    name: str
    kind: str
    command: tuple[str, ...]
    packages: tuple[str, ...] = ()
    release: str | None = None
    settings: tuple[str, ...] = ()


# What a small image of Debian packages has beside its language: a shell and the usual commands.
_SLIM: Final = ("base-files", "base-passwd", "coreutils", "dash")

RECIPES: Final[Mapping[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe("debian", "packages", ("/bin/bash",), ("bash", "procps", "python3")),
        Recipe("busybox", "busybox", ("/bin/sh",)),
        Recipe("static", "program", ("/app",)),
        Recipe("debian12", "packages", ("/bin/bash",), ("bash", "procps"), release="bookworm"),
        Recipe("debian13", "packages", ("/bin/bash",), ("bash", "procps"), release="trixie"),
        Recipe("musl", "musl", ("/bin/sh",)),
        Recipe(
            "python",
            "unpacked",
            ("/usr/bin/python3",),
            (*_SLIM, "python3"),
            # What would lead another Python astray that listens to them.
            settings=("ENV PYTHONHOME=/usr PYTHONPATH=/srv/app PYTHONUNBUFFERED=1", "WORKDIR /srv/app"),
        ),
        Recipe(
            "node",
            "unpacked",
            ("/usr/bin/node",),
            (*_SLIM, "nodejs"),
            settings=("ENV NODE_ENV=production NODE_OPTIONS=--max-old-space-size=128",),
        ),
        Recipe(
            "dressed",
            "dressed",
            ("/bin/sh",),
            settings=(
                "USER agent",
                "WORKDIR /home/agent/work",
                'ENTRYPOINT ["/bin/entry"]',
                "VOLUME /data",
                "EXPOSE 8080/tcp",
                "HEALTHCHECK --interval=1s --timeout=1s --retries=1 CMD false",
            ),
        ),
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
    document: dict[str, object] = {
        "edition": EDITION,
        "name": recipe.name,
        "kind": recipe.kind,
        "command": recipe.command,
        "packages": recipe.packages,
        "ingredients": dict(ingredients),
    }
    if recipe.release is not None:
        document["release"] = recipe.release
    if recipe.settings:
        document["settings"] = recipe.settings
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]


def changes(recipe: Recipe, recipe_id: str) -> list[str]:
    """Say what the engine adds to the imported root file system (Dockerfile instructions)."""
    return [
        f"ENV PATH={PATH}",
        # Before the command: naming an entrypoint takes an earlier command away.
        *recipe.settings,
        f"CMD {json.dumps(list(recipe.command))}",
        f"LABEL {LABEL_RECIPE}={recipe_id}",
        f"LABEL {LABEL_NAME}={recipe.name}",
    ]


def of_release(entries: Iterable[Entry], own: str, wanted: str | None) -> tuple[Entry, ...]:
    """
    Ask the same mirrors, with the same keys, for another release.

    Only for the release itself: mirrors need not carry the pockets of one that is not their machine's.

    Args:
        entries: this machine's own.
        own: the codename that they name.
        wanted: the codename to ask for; None = leave them as they are.
    """
    if wanted in {None, own}:
        return tuple(entries)
    return tuple(replace(entry, suites=(str(wanted),)) for entry in entries if own in entry.suites)
