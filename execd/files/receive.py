"""Receive the parts of an upload and write each file as soon as its bytes come.

The i-th file belongs to the i-th metadata, in whatever order the parts are sent; a file that
comes before its metadata waits in a file without a name. A pair is published when the next part
begins or the form ends, so a body that breaks off anywhere leaves the pairs before it written and
the last target untouched.

Source: protocol, execd §7.5.
"""

from __future__ import annotations

import os

from execd.files import change, staging
from execd.files.faults import telling
from execd.loop import TimedOut, checkpoint, close_fd, deadline, write_all
from specs.errors import ExecutionFailed, InvalidFile, InvalidFileContent, InvalidFileMetadata
from specs.execd import FileMetadata
from specs.wire import BadField, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from execd.files.paths import Paths

_METADATA = 64 << 10  # bytes of one metadata part
_WAITING = 64  # files that may come before their metadata: each holds a descriptor
_PENDING = 100_000  # metadata that may come before their files
_TURN = 1 << 20  # bytes written before others may run
_PIPE_SECONDS = 60.0  # that a pipe's reader may let us wait


class Receiver:
    """Takes parts one after another. Always `close` it."""

    __slots__ = (
        "_complete",
        "_early",
        "_files",
        "_kind",
        "_metadata",
        "_pairs",
        "_paths",
        "_sink",
        "_text",
        "_turn",
    )

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._kind = ""
        self._text = bytearray()
        self._metadata: list[FileMetadata] = []  # without a file yet
        self._early: list[int] = []  # descriptors of files without a metadata yet
        self._pairs = 0
        self._files = 0
        self._complete: _Replace | _Stream | None = None  # whole, to be published
        self._sink: _Replace | _Stream | int | None = None
        self._turn = 0

    async def begin(self, name: str) -> None:
        """A part begins, so the one before is whole; parts of other names are read and dropped.

        Raises:
            BoxwrightError: the file cannot be written where its metadata says, or the one
                before cannot be put in place.
        """
        await self._publish()
        self._kind = name
        if name == "metadata":
            self._text.clear()
        elif name == "file":
            self._files += 1
            if self._metadata:
                self._sink = self._open(self._metadata.pop(0))
            elif len(self._early) >= _WAITING:
                raise InvalidFile(f"more than {_WAITING} file parts come before their metadata parts")
            else:
                with telling("make", "a temporary file"):
                    self._sink = staging.open_spool()

    async def data(self, view: memoryview) -> None:
        """Some bytes of the part.

        Raises:
            BoxwrightError: they cannot be written, or a metadata part is too long.
        """
        sink = self._sink
        if self._kind == "metadata":
            if len(self._text) + len(view) > _METADATA:
                raise InvalidFileMetadata(f"a metadata part is longer than {_METADATA} bytes")
            self._text += view
        elif self._kind == "file" and sink is not None:
            if isinstance(sink, int):
                with telling("write", "a temporary file"):
                    staging.write_out(sink, view)
            else:
                await sink.write(view)
            self._turn += len(view)
            if self._turn >= _TURN:
                self._turn = 0
                await checkpoint()

    async def end(self) -> None:
        """The part is complete.

        Raises:
            BoxwrightError: the metadata is wrong, or the file that waits for it cannot be written.
        """
        if self._kind == "metadata":
            metadata = self._read_metadata()
            if self._early:
                await self._place(metadata)
            elif len(self._metadata) >= _PENDING:
                raise InvalidFile(f"more than {_PENDING} metadata parts come before their file parts")
            else:
                self._metadata.append(metadata)
        elif self._kind == "file" and self._sink is not None:
            sink = self._sink
            if isinstance(sink, int):
                self._early.append(sink)
                self._sink = None
            else:
                self._complete, self._sink = sink, None
        self._kind = ""

    async def finish(self) -> None:
        """The body is complete.

        Raises:
            InvalidFileMetadata: no metadata part came.
            InvalidFileContent: no file part came.
            InvalidFile: there are not as many files as metadata.
            BoxwrightError: the last file cannot be put in place.
        """
        metadata = self._pairs + (self._complete is not None) + len(self._metadata)
        if not metadata:
            raise InvalidFileMetadata("the form has no part named metadata")
        if not self._files:
            raise InvalidFileContent("the form has no part named file")
        if metadata != self._files:
            raise InvalidFile(
                f"the form has {metadata} metadata parts but {self._files} file parts: each file needs one"
            )
        await self._publish()

    async def _publish(self) -> None:
        complete = self._complete
        if complete is not None:
            await complete.publish()
            self._complete = None
            complete.close()
            self._pairs += 1

    def close(self) -> None:
        """Let go of everything; what was not published is dropped."""
        self._drop_sink()
        if self._complete is not None:
            self._complete.close()
            self._complete = None
        while self._early:
            os.close(self._early.pop())

    def _drop_sink(self) -> None:
        sink, self._sink = self._sink, None
        if isinstance(sink, int):
            os.close(sink)
        elif sink is not None:
            sink.close()

    def _read_metadata(self) -> FileMetadata:
        try:
            return FileMetadata.from_json(decode(bytes(self._text)))
        except BadField as bad:
            raise InvalidFileMetadata(f"metadata: {bad}") from None
        except ValueError as bad:
            raise InvalidFileMetadata(f"a metadata part is not JSON: {bad}") from None

    def _open(self, metadata: FileMetadata) -> _Replace | _Stream:
        path = self._paths.resolve(metadata.path)
        uid, gid = change.ids(metadata.permission)
        with telling("write", path):
            change.make_directories(os.path.dirname(path), uid, gid)
            target = staging.look(path)
            if target.stream:
                return _Stream(path)
            return _Replace(path, target, metadata.permission.mode, uid, gid)

    async def _place(self, metadata: FileMetadata) -> None:
        """Write a file that came before its metadata."""
        spool = self._early.pop(0)
        try:
            sink = self._sink = self._open(metadata)
            await sink.take(spool)
            self._complete, self._sink = sink, None
        finally:
            os.close(spool)


class _Replace:
    """A regular file on its way to its target."""

    __slots__ = ("_gid", "_mode", "_path", "_staged", "_uid")

    def __init__(self, path: str, target: staging.Target, mode: int | None, uid: int, gid: int) -> None:
        self._path = path
        self._mode = mode
        self._uid = uid
        self._gid = gid
        self._staged = staging.Staged(target)

    async def write(self, view: memoryview) -> None:
        with telling("write", self._path):
            self._staged.write(view)

    async def take(self, spool: int) -> None:
        with telling("write", self._path):
            await staging.copy(spool, self._staged.fd)

    async def publish(self) -> None:
        with telling("write", self._path):
            await self._staged.publish(self._mode, self._uid, self._gid)

    def close(self) -> None:
        self._staged.close()


class _Stream:
    """A pipe or device that is written through."""

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = staging.open_stream(path)

    async def write(self, view: memoryview) -> None:
        try:
            with telling("write", self._path), deadline(_PIPE_SECONDS):
                await write_all(self._fd, view)
        except TimedOut:
            raise ExecutionFailed(
                f"cannot write {self._path}: its reader took nothing for {_PIPE_SECONDS:.0f} s"
            ) from None

    async def take(self, spool: int) -> None:
        os.lseek(spool, 0, os.SEEK_SET)
        while data := os.read(spool, staging.PIECE):
            await self.write(memoryview(data))

    async def publish(self) -> None:
        """Everything is written already; owner and mode of a device are left alone."""

    def close(self) -> None:
        close_fd(self._fd)
