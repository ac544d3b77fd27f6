"""The routes under /directories."""

from __future__ import annotations

import os
from stat import S_ISDIR

from execd.files import change, owners
from execd.files.faults import telling
from execd.files.pace import Pace
from execd.http.files import Listing, entries_of, list_tree, needed_path, paths_of
from execd.loop import checkpoint
from specs.errors import InvalidBody
from specs.execd import Permission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.app import Services
    from execd.http.exchange import Reply, Request


async def list_(request: Request, reply: Reply, services: Services) -> None:
    """`GET /directories/list`: every entry down to a depth, parents first; links are not followed.

    Raises:
        InvalidBody: the root is no directory (a link to one neither), or depth is wrong.
        BoxwrightError: a directory cannot be read.
    """
    root = paths_of(services).resolve(needed_path(request))
    depth = _depth(request.first("depth"))
    owners.refresh()
    with telling("list", root):
        st = os.lstat(root)
    if not S_ISDIR(st.st_mode):
        raise InvalidBody(f"cannot list {root}: it is not a directory; links are not followed")
    listing = Listing(reply)
    await list_tree(root, depth, lambda _: True, listing)
    await listing.finish()


def _depth(text: str | None) -> int:
    if text is None or text == "":
        return 1
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidBody(f"depth: a whole number, at least 0, is expected, got {text[:40]}")
    return int(text)


async def create(request: Request, reply: Reply, services: Services) -> None:
    """`POST /directories`: make directories and what is missing above them, in order."""
    paths = paths_of(services)
    owners.refresh()
    wanted = entries_of(await request.json(), Permission.from_json)
    pace = Pace()
    for path, permission in [(paths.resolve(text), item) for text, item in wanted.items()]:
        change.make_directory(path, permission)
        if pace.due():
            await checkpoint()
    await reply.empty()


async def delete(request: Request, reply: Reply, services: Services) -> None:
    """`DELETE /directories`: remove trees (or files), in order; missing ones are fine."""
    paths = paths_of(services)
    for path in [paths.resolve(text) for text in request.query.get("path", [])]:
        await change.delete_tree(path)
    await reply.empty()
