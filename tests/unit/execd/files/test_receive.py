"""Parts of an upload becoming files."""

import os
from pathlib import Path

import pytest

from execd import loop
from execd.files.paths import Paths
from execd.files.receive import Receiver
from specs.errors import BoxwrightError, InvalidFile, InvalidFileContent, InvalidFileMetadata

ROOT = os.geteuid() == 0


def metadata(path: Path | str, **more: object) -> tuple[str, bytes]:
    from specs.wire import encode

    return ("metadata", encode({"path": str(path), **more}))


def receive(*parts: tuple[str, bytes], cut: str = "") -> None:
    async def main() -> None:
        receiver = Receiver(Paths({}, "/"))
        try:
            for at, (name, data) in enumerate(parts):
                await receiver.begin(name)
                for start in range(0, len(data), 1000):
                    await receiver.data(memoryview(data)[start : start + 1000])
                last = at == len(parts) - 1
                if cut.startswith("inside") and last:
                    return
                await receiver.end()
                if cut and last:
                    return
            await receiver.finish()
        finally:
            receiver.close()

    before = len(os.listdir("/proc/self/fd"))
    loop.run(main())
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("order", ["mfmf", "mmff", "ffmm", "fmmf"])
@pytest.mark.parametrize("size", [0, 1, 18_431, 18_432, 18_433, 65_535, 65_536, 65_537, 1 << 20])
def test_pairs_belong_by_order(tmp_path: Path, order: str, size: int) -> None:
    """The i-th file belongs to the i-th metadata however the parts are mixed (R72, R74)."""
    names, contents = iter("ab"), iter((os.urandom(size), b"second"))
    sent: list[bytes] = []
    parts = []
    for kind in order:
        if kind == "m":
            parts.append(metadata(tmp_path / "new/dir" / next(names)))
        else:
            sent.append(next(contents))
            parts.append(("file", sent[-1]))
    receive(*parts, ("comment", b"ignored"))
    assert [(tmp_path / "new/dir" / name).read_bytes() for name in "ab"] == sent
    assert sorted(os.listdir(tmp_path / "new/dir")) == ["a", "b"]


@pytest.mark.parametrize("where", ["inside of the part", "behind the part"])
def test_a_broken_upload_leaves_the_old_file(tmp_path: Path, where: str) -> None:
    """The pair before it is written, its own target is untouched, nothing else is left (R72)."""
    (tmp_path / "b").write_text("old")
    parts = [metadata(tmp_path / "a"), ("file", b"A"), metadata(tmp_path / "b"), ("file", bytes(500_000))]
    receive(*parts, cut=where)
    assert (tmp_path / "a").read_text() == "A"
    assert (tmp_path / "b").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_mode_and_owner_reach_file_and_parents(tmp_path: Path) -> None:
    """The file has what was asked for; parents that were made have the owner."""
    more: dict[str, object] = {"owner": 4321, "group": "root"} if ROOT else {}
    receive(metadata(tmp_path / "d/a", mode=600, **more), ("file", b"x"))
    st = (tmp_path / "d/a").stat()
    assert st.st_mode & 0o777 == 0o600
    if ROOT:
        assert (st.st_uid, (tmp_path / "d").stat().st_uid) == (4321, 4321)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([], InvalidFileMetadata),
        ([("other", b"x")], InvalidFileMetadata),
        ([("file", b"x")], InvalidFileMetadata),
        ([metadata("/nonexistent/never")], InvalidFileContent),
        ([("metadata", b"{"), ("file", b"x")], InvalidFileMetadata),
        ([("metadata", b"{}"), ("file", b"x")], InvalidFileMetadata),
        ([("metadata", b'{"path":""}'), ("file", b"x")], InvalidFileMetadata),
        ([("metadata", b'{"path":"/x","mode":999}'), ("file", b"x")], InvalidFileMetadata),
        ([("metadata", b'{"path":"/x",' + b" " * 70_000 + b"}")], InvalidFileMetadata),
        ([("file", b"x")] * 65, InvalidFile),
        ([metadata("/tmp"), ("file", b"x")], BoxwrightError),
    ],
)
def test_forms_that_do_not_pair_are_refused(parts: list[tuple[str, bytes]], error: type[Exception]) -> None:
    """What is missing, malformed or too much is named (§1.2)."""
    with pytest.raises(error) as caught:
        receive(*parts)
    assert isinstance(caught.value, BoxwrightError)
    assert caught.value.status == 400


def test_counts_that_differ_are_refused_after_the_complete_pairs(tmp_path: Path) -> None:
    """A file too many is an error; the complete pair before it is written."""
    with pytest.raises(InvalidFile, match="1 metadata parts but 2 file parts"):
        receive(metadata(tmp_path / "a"), ("file", b"A"), ("file", b"B"))
    assert (tmp_path / "a").read_text() == "A"


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    """A pipe with a reader gets the bytes and stays a pipe (R86)."""
    os.mkfifo(tmp_path / "p")
    reader = os.open(tmp_path / "p", os.O_RDONLY | os.O_NONBLOCK)

    async def drain() -> int:
        got = 0
        while got < 300_000:
            got += len(await loop.read_some(reader, 65536))
        return got

    async def main() -> None:
        task = loop.start(drain(), "drain")
        receiver = Receiver(Paths({}, "/"))
        await receiver.begin("metadata")
        await receiver.data(memoryview(metadata(tmp_path / "p")[1]))
        await receiver.end()
        await receiver.begin("file")
        await receiver.data(memoryview(bytes(300_000)))
        await receiver.end()
        await receiver.finish()
        receiver.close()
        assert await task.join() == 300_000

    loop.run(main())
    os.close(reader)
    assert os.stat(tmp_path / "p").st_mode & 0o170000 == 0o010000


def test_devices_are_written_through() -> None:
    """/dev/null takes everything and stays what it is (R86)."""
    before = os.stat("/dev/null")
    receive(metadata("/dev/null", mode=644), ("file", b"x" * 100_000))
    assert os.stat("/dev/null").st_mode == before.st_mode
