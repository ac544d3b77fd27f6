"""The routes under /files but upload. A message names the path as the caller will recognise it."""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISFIFO

from execd.files import change, conditions, owners, read, tree
from execd.files.dates import http_date
from execd.files.disposition import attachment
from execd.files.faults import refusal, telling
from execd.files.globs import BadPattern, Glob
from execd.files.info import describe
from execd.files.lines import LineWindow
from execd.files.move import move as move_entry
from execd.files.pace import Pace
from execd.files.paths import Paths
from execd.files.ranges import choose
from execd.files.replace import replace as replace_in
from execd.http.exchange import ClientGone
from execd.loop import TimedOut, checkpoint, close_fd, current_loop, deadline, readable, start
from specs.errors import ExecutionFailed, InvalidBody, MissingQuery, RangeNotSatisfiable
from specs.execd import MoveItem, Permission, ReplaceItem
from specs.wire import BadField, array, encode, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from execd.app import Services
    from execd.http.exchange import Body, Reply, Request
    from specs.execd import FileInfo

    T = TypeVar("T")

_PIECE = 256 << 10
_FIRST = 256 << 10  # of a listing: until then a failure still gets its own status
_WRITER_SECONDS = 25.0  # that a pipe without a writer is waited for; clients give up after 30


# -- shared with the other file routes ------------------------------------------------


def paths_of(services: Services) -> Paths:
    """Return what resolves the paths of a request."""
    return Paths(services.config.base_environ, services.environment.where())


def needed_path(request: Request) -> str:
    """Return the one path of a query.

    Raises:
        MissingQuery: there is none.
    """
    path = request.first("path")
    if not path:
        raise MissingQuery("the query parameter path is required")
    return path


def entries_of(value: object, shape: Callable[[object], T]) -> dict[str, T]:
    """Read a body that maps paths to things, in its order.

    Raises:
        InvalidBody: it is no such map; the message names the path and the field.
    """
    out: dict[str, T] = {}
    at = "body"
    try:
        for key, item in record(value).items():
            at = key
            out[key] = shape(item)
    except BadField as bad:
        raise InvalidBody(f"{at}: {bad}" if at != "body" else str(bad)) from None
    return out


class Listing:
    """A JSON array of files that is sent while it is made, so that it never stands in memory whole."""

    __slots__ = ("_body", "_pieces", "_reply", "_size", "_some")

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._body: Body | None = None
        self._pieces: list[bytes] = [b"["]
        self._size = 0
        self._some = False

    async def add(self, info: FileInfo) -> None:
        """Append one entry."""
        item = encode(info.to_json())
        if self._some:
            self._pieces.append(b",")
        self._some = True
        self._pieces.append(item)
        self._size += len(item)
        if self._size >= _FIRST:
            if self._body is None:
                self._body = await self._reply.start(200, [("Content-Type", "application/json")])
            await self._body.write(b"".join(self._pieces))
            self._pieces.clear()
            self._size = 0

    async def finish(self) -> None:
        """End the array."""
        self._pieces.append(b"]")
        rest = b"".join(self._pieces)
        if self._body is None:
            await self._reply.send(200, [("Content-Type", "application/json")], rest)
        else:
            await self._body.finish(rest)


async def list_tree(
    root: str, depth: int | None, wanted: Callable[[tree.Entry], bool], listing: Listing
) -> None:
    """Append what is below a directory, letting others run meanwhile.

    Raises:
        BoxwrightError: a directory cannot be read; the message names it.
    """
    prefix = root.rstrip("/") + "/"
    pace = Pace()
    entries = tree.walk(root, depth)
    try:
        for entry in entries:
            if entry is not None and wanted(entry):
                await listing.add(describe(prefix + entry.relative, entry.stat))
            if pace.due():
                await checkpoint()
    except OSError as failure:
        below = failure.filename or ""
        raise refusal(
            failure, "list", root if below == root else prefix + below if below else root
        ) from failure
    finally:
        entries.close()  # type: ignore[attr-defined]  # the iterator is a generator


# -- routes -----------------------------------------------------------------------------


async def info(request: Request, reply: Reply, services: Services) -> None:
    """`GET /files/info`: describe entries, links themselves; one that is missing refuses the whole list."""
    paths = paths_of(services)
    owners.refresh()
    out: dict[str, object] = {}
    pace = Pace()
    for text in request.query.get("path", []):
        path = paths.resolve(text)
        with telling("describe", path):
            out[text] = describe(path, os.lstat(path)).to_json()
        if pace.due():
            await checkpoint()
    await reply.json(out)


async def delete(request: Request, reply: Reply, services: Services) -> None:
    """`DELETE /files`: remove files in order; missing ones are fine, links are removed themselves."""
    paths = paths_of(services)
    pace = Pace()
    for path in [paths.resolve(text) for text in request.query.get("path", [])]:
        change.delete(path)
        if pace.due():
            await checkpoint()
    await reply.empty()


async def permissions(request: Request, reply: Reply, services: Services) -> None:
    """`POST /files/permissions`: set owner, group and mode, in order, stopping at the first failure."""
    paths = paths_of(services)
    owners.refresh()
    wanted = entries_of(await request.json(), Permission.from_json)
    pace = Pace()
    for path, permission in [(paths.resolve(text), item) for text, item in wanted.items()]:
        change.permit(path, permission)
        if pace.due():
            await checkpoint()
    await reply.empty()


async def move(request: Request, reply: Reply, services: Services) -> None:
    """`POST /files/mv`: move entries in order, stopping at the first failure; nothing is overwritten."""
    paths = paths_of(services)
    items: list[tuple[str, str]] = []
    try:
        for value in array(await request.json()):
            item = MoveItem.from_json(value)
            items.append((item.src, item.dest))
    except BadField as bad:
        raise InvalidBody(f"item {len(items)}: {bad}") from None
    for src, dest in items:
        await move_entry(paths.resolve(src, "src"), paths.resolve(dest, "dest"))
        await checkpoint()
    await reply.empty()


async def search(request: Request, reply: Reply, services: Services) -> None:
    """`GET /files/search`: list what is no directory and matches, at any depth; links are not followed."""
    root = paths_of(services).resolve(needed_path(request))
    try:
        glob = Glob(request.first("pattern") or "**")
    except BadPattern as bad:
        raise InvalidBody(str(bad)) from None
    owners.refresh()
    with telling("search", root):
        st = os.lstat(root)
    listing = Listing(reply)
    if S_ISDIR(st.st_mode):
        whole = glob.whole_path

        def wanted(entry: tree.Entry) -> bool:
            return not S_ISDIR(entry.stat.st_mode) and glob.matches(entry.relative if whole else entry.name)

        await list_tree(root, None, wanted, listing)
    elif glob.matches(os.path.basename(root)):
        await listing.add(describe(root, st))
    await listing.finish()


async def replace(request: Request, reply: Reply, services: Services) -> None:
    """`POST /files/replace`: replace text in files, in the body's order, stopping at the first failure."""
    paths = paths_of(services)
    verbose = request.first("verbose") == "true"
    wanted = entries_of(await request.json(), ReplaceItem.from_json)
    counts: dict[str, object] = {}
    for text, item in wanted.items():
        path = paths.resolve(text)
        old = item.old.encode("utf-8", "surrogateescape")
        new = item.new.encode("utf-8", "surrogateescape")
        with telling("replace in", path):
            counts[text] = {"replacedCount": await replace_in(path, old, new)}
    if verbose:
        await reply.json(counts)
    else:
        await reply.empty()


# -- download ---------------------------------------------------------------------------


async def download(request: Request, reply: Reply, services: Services) -> None:
    """`GET /files/download`: a file, a range of it, or a window of its lines (execd §7.6).

    Raises:
        InvalidBody: it is a directory or a device, or offset and limit are wrong.
        BoxwrightError: it cannot be read.
    """
    path = paths_of(services).resolve(needed_path(request))
    window = _line_window(request)
    with telling("read", path):
        fd, st = read.open_to_read(path)
    try:
        if S_ISFIFO(st.st_mode):
            await _wait_for_writer(fd, path)
        if window is not None:
            await _send_lines(reply, fd, window)
        elif S_ISFIFO(st.st_mode):
            await _send_stream(reply, fd, _names(path), b"", None)
        elif read.states_true_length(st):
            await _send_file(request, reply, fd, st, path)
        else:
            with telling("read", path):
                data, whole = await read.read_small(fd)
            if whole:
                await _send_bytes(request, reply, st, path, data)
            else:
                await _send_stream(reply, fd, _names(path), data, read.LIMIT)
    finally:
        close_fd(fd)


def _line_window(request: Request) -> LineWindow | None:
    offset, limit = _count(request, "offset"), _count(request, "limit")
    if offset is None and limit is None:
        return None
    if request.header("range") is not None:
        raise InvalidBody("offset and limit count lines: they cannot be combined with a Range header")
    return LineWindow(offset or 1, limit)


def _count(request: Request, name: str) -> int | None:
    text = request.first(name)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18) or int(text) < 1:
        raise InvalidBody(f"{name}: a whole number of lines, at least 1, is expected, got {text[:40]}")
    return int(text)


def _names(path: str) -> list[tuple[str, str]]:
    return [
        ("Content-Type", "application/octet-stream"),
        ("Content-Disposition", attachment(os.path.basename(path))),
    ]


async def _send_file(request: Request, reply: Reply, fd: int, st: os.stat_result, path: str) -> None:
    answer = _answer(request, st, path, st.st_size)
    if answer is None:
        await _send_not_modified(reply, st)
        return
    status, headers, offset, count = answer
    if status == 416:
        await _refuse_range(request, reply, st.st_size)
    elif count == 0:
        await reply.send(status, headers, b"")
    else:
        await reply.file(status, headers, fd, offset, count)


async def _send_bytes(request: Request, reply: Reply, st: os.stat_result, path: str, data: bytes) -> None:
    answer = _answer(request, st, path, len(data))
    if answer is None:
        await _send_not_modified(reply, st)
        return
    status, headers, offset, count = answer
    if status == 416:
        await _refuse_range(request, reply, len(data))
    else:
        await reply.send(status, headers, data[offset : offset + count])


async def _send_not_modified(reply: Reply, st: os.stat_result) -> None:
    body = await reply.start(304, _validators(st), bodiless=True)
    await body.finish()


def _validators(st: os.stat_result) -> list[tuple[str, str]]:
    return [
        ("ETag", conditions.entity_tag(st)),
        ("Last-Modified", http_date(st.st_mtime_ns // 1_000_000_000)),
    ]


def _answer(
    request: Request, st: os.stat_result, path: str, size: int
) -> tuple[int, list[tuple[str, str]], int, int] | None:
    """Decide status, headers, offset and count; None when the client's copy is good."""
    tag = conditions.entity_tag(st)
    modified = st.st_mtime_ns // 1_000_000_000
    if conditions.not_modified(
        request.header("if-none-match"), request.header("if-modified-since"), tag, modified
    ):
        return None
    headers = [*_names(path), *_validators(st), ("Accept-Ranges", "bytes")]
    wanted = request.header("range")
    if wanted is not None and conditions.range_applies(request.header("if-range"), tag, modified):
        try:
            span = choose(wanted, size)
        except RangeNotSatisfiable:
            return 416, [], 0, 0
        if span is not None:
            offset, count = span
            headers.append(("Content-Range", f"bytes {offset}-{offset + count - 1}/{size}"))
            return 206, headers, offset, count
    return 200, headers, 0, size


async def _refuse_range(request: Request, reply: Reply, size: int) -> None:
    """Answer 416 with the size, which an error class cannot carry as a header."""
    try:
        choose(request.header("range") or "", size)
    except RangeNotSatisfiable as refused:
        headers = [("Content-Type", "application/json"), ("Content-Range", f"bytes */{size}")]
        await reply.send(416, headers, encode(refused.body()))


async def _wait_for_writer(fd: int, path: str) -> None:
    """Wait until a pipe has something to read or its writers are done.

    Raises:
        InvalidBody: nobody has opened it for writing.
    """
    try:
        with deadline(_WRITER_SECONDS):
            await readable(fd)
    except TimedOut:
        raise InvalidBody(
            f"cannot read {path}: nothing was written to the pipe within {_WRITER_SECONDS:.0f} s"
        ) from None


async def _send_lines(reply: Reply, fd: int, window: LineWindow) -> None:
    headers = [("Content-Type", "text/plain; charset=utf-8")]
    body: Body | None = None
    pieces: list[bytes] = []
    size = 0
    while not window.done and (data := await _more(reply, fd)):
        piece = window.feed(data)
        await checkpoint()
        if piece:
            pieces.append(piece)
            size += len(piece)
        if size >= _PIECE:
            if body is None:
                body = await reply.start(200, headers)
            await body.write(b"".join(pieces))
            pieces.clear()
            size = 0
    if body is None:
        await reply.send(200, headers, b"".join(pieces))
    else:
        await body.finish(b"".join(pieces))


async def _send_stream(
    reply: Reply, fd: int, headers: list[tuple[str, str]], data: bytes, limit: int | None
) -> None:
    """Send what states no length until its end.

    Raises:
        ExecutionFailed: it goes on past the limit; the client sees a body that was cut.
    """
    body = await reply.start(200, headers)
    sent = len(data)
    if data:
        await body.write(data)
    while data := await _more(reply, fd):
        await body.write(data)
        sent += len(data)
        if limit is not None and sent > limit:
            raise ExecutionFailed(f"the file states no length and has more than {limit} bytes")
        await checkpoint()
    await body.finish()


async def _more(reply: Reply, fd: int) -> bytes:
    """Read the next piece; while nothing comes, watch for the client's leave.

    Raises:
        ClientGone: the client hung up.
    """
    try:
        return os.read(fd, _PIECE)
    except BlockingIOError:
        pass
    left = False

    async def watch() -> None:
        nonlocal left
        await reply.gone()
        left = True
        current_loop().forget(fd)  # the wait below ends with EBADF

    watcher = start(watch(), "watch a download's client")
    try:
        while True:
            try:
                await readable(fd)
            except OSError:
                if left:
                    raise ClientGone from None
                raise
            try:
                return os.read(fd, _PIECE)
            except BlockingIOError:
                continue
    finally:
        watcher.cancel()
