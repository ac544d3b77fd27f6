"""Files and directories with the Python SDK."""

from __future__ import annotations

import asyncio
import hashlib
import io
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from opensandbox import Sandbox
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)

from tests.e2e.site import MARKS, Client, Site, texts

pytestmark = MARKS

SIZES = (0, 1, 18_431, 18_432, 18_433, 65_535, 65_536, 65_537, 1_048_579)


def content(size: int) -> bytes:
    """Make bytes of every value, in a pattern that repeats at no power of two."""
    block = bytes(range(256)) + b"boxwright"
    return (block * (size // len(block) + 1))[:size]


async def digest(sandbox: Sandbox, path: str) -> str:
    done = await sandbox.commands.run(["sha256sum", path])
    return texts(done.logs.stdout)[0].split()[0]


@pytest.mark.parametrize("size", SIZES)
async def test_bytes_of_any_size_arrive_whole(sandbox: Sandbox, place: str, size: int) -> None:
    """What was written is there for the next command and reads back equal, at once and in pieces (R72, R73)."""
    path, data = f"{place}/deep/file.bin", content(size)
    await sandbox.files.write_file(path, data)
    assert await digest(sandbox, path) == hashlib.sha256(data).hexdigest()
    assert await sandbox.files.read_bytes(path) == data
    pieces = await _pieces(sandbox, path, chunk_size=10_000)
    assert b"".join(pieces) == data


async def _pieces(sandbox: Sandbox, path: str, **options: Any) -> list[bytes]:
    stream = await sandbox.files.read_bytes_stream(path, **options)
    return [piece async for piece in stream]


async def test_streams_are_uploaded(sandbox: Sandbox, place: str) -> None:
    """An open file is sent as it is read."""
    data = content(300_000)
    await sandbox.files.write_file(f"{place}/stream", io.BytesIO(data), mode=600)
    assert await digest(sandbox, f"{place}/stream") == hashlib.sha256(data).hexdigest()
    info = (await sandbox.files.get_file_info([f"{place}/stream"]))[f"{place}/stream"]
    assert (info.mode, info.size) == (600, 300_000)


async def test_several_files_in_one_request(sandbox: Sandbox, place: str) -> None:
    """Each pair of a request is written with its own mode, owner and group."""
    await sandbox.files.write_files(
        [
            WriteEntry(path=f"{place}/a", data="text é漢🙂\r\n", mode=640),
            WriteEntry(path=f"{place}/b", data=b"\x00\xff", mode=4),
            WriteEntry(path=f"{place}/c", data="owned", owner="daemon", group="daemon"),
            WriteEntry(path=f"{place}/d", data=io.BytesIO(b"from a stream")),
        ]
    )
    assert await sandbox.files.read_file(f"{place}/a") == "text é漢🙂\r\n"
    assert await sandbox.files.read_bytes(f"{place}/b") == b"\x00\xff"
    assert await sandbox.files.read_file(f"{place}/d") == "from a stream"
    info = await sandbox.files.get_file_info([f"{place}/{name}" for name in "abc"])
    assert [one.mode for one in info.values()] == [640, 4, 755]
    assert (info[f"{place}/c"].owner, info[f"{place}/c"].group) == ("daemon", "daemon")


async def test_writing_again_replaces(sandbox: Sandbox, place: str) -> None:
    """A second write leaves nothing of the first."""
    for data in ("a long first content", "short"):
        await sandbox.files.write_file(f"{place}/file", data)
        assert await sandbox.files.read_file(f"{place}/file") == data


@pytest.mark.parametrize(
    "name", ["plain", "with space", "100%25 & more?#.txt", "Grüße 漢🙂", "quo\"te's", "-dash", "a+b;c=d"]
)
async def test_any_name_is_addressed(sandbox: Sandbox, place: str, name: str) -> None:
    """Names are decoded exactly once on every route (R76)."""
    path = f"{place}/{name}"
    await sandbox.files.write_file(path, name)
    assert await sandbox.files.read_file(path) == name
    assert list(await sandbox.files.get_file_info([path])) == [path]
    listed = await sandbox.files.list_directory(DirectoryListEntry(path=place))
    assert [one.path for one in listed] == [path]
    await sandbox.files.delete_files([path])
    assert await sandbox.files.list_directory(DirectoryListEntry(path=place)) == []


async def test_percent_sequences_are_different_files(sandbox: Sandbox, place: str) -> None:
    """`report%20name.txt` and `report name.txt` are two files (R76)."""
    names = ("report%20name.txt", "report name.txt")
    for name in names:
        await sandbox.files.write_file(f"{place}/{name}", f"this is {name}")
    for name in names:
        assert await sandbox.files.read_file(f"{place}/{name}") == f"this is {name}"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", b"0123456789"),
        ("bytes=20-", b"klmnopqrstuvwxyz"),
        ("bytes=-3", b"xyz"),
        ("bytes=5-5", b"5"),
    ],
)
async def test_byte_ranges(sandbox: Sandbox, place: str, header: str, expected: bytes) -> None:
    """A range reads just those bytes, at once and streamed."""
    path = f"{place}/alphabet"
    await sandbox.files.write_file(path, "0123456789abcdefghijklmnopqrstuvwxyz")
    assert await sandbox.files.read_bytes(path, range_header=header) == expected
    assert b"".join(await _pieces(sandbox, path, range_header=header)) == expected


async def test_range_past_the_end_is_refused(sandbox: Sandbox, place: str) -> None:
    """A range that starts behind the last byte is 416."""
    await sandbox.files.write_file(f"{place}/short", "abc")
    with pytest.raises(SandboxApiException) as refused:
        await sandbox.files.read_bytes(f"{place}/short", range_header="bytes=9-")
    assert refused.value.status_code == 416


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ({"offset": 2, "limit": 2}, "line2\nline3"),
        ({"offset": 4}, "line4\nline5"),
        ({"limit": 1}, "line1"),
        ({"offset": 9}, ""),
    ],
)
async def test_line_windows(sandbox: Sandbox, place: str, window: dict[str, int], expected: str) -> None:
    """Offset and limit count lines from one, without line ends."""
    await sandbox.files.write_file(f"{place}/lines", "".join(f"line{n}\r\n" for n in range(1, 6)))
    assert await sandbox.files.read_file(f"{place}/lines", **cast(Any, window)) == expected


async def test_info_tells_kind_size_owner_and_time(sandbox: Sandbox, place: str) -> None:
    """Info is of the entry itself, links included, and keyed by what was asked."""
    await sandbox.files.write_file(f"{place}/file", "12345", mode=644)
    await sandbox.commands.run(f"ln -s file {place}/link; mkdir {place}/dir; chmod 2750 {place}/dir")
    info = await sandbox.files.get_file_info([f"{place}/{name}" for name in ("file", "link", "dir")])
    assert [one.entry_type for one in info.values()] == ["file", "symlink", "directory"]
    file = info[f"{place}/file"]
    assert (file.path, file.size, file.mode, file.owner, file.group) == (
        f"{place}/file",
        5,
        644,
        "root",
        "root",
    )
    assert info[f"{place}/dir"].mode == 750
    for moment in (file.modified_at, file.created_at):
        assert abs(moment - datetime.now(UTC)) < timedelta(minutes=1)


async def test_list_goes_as_deep_as_asked(sandbox: Sandbox, place: str) -> None:
    """Depth one lists children; depth two lists theirs, each parent first; zero lists nothing."""
    for name in ("b/x", "b/deep/y", "a", "c"):
        await sandbox.files.write_file(f"{place}/{name}", name)
    for depth, expected in (
        (None, ["a", "b", "c"]),
        (0, []),
        (1, ["a", "b", "c"]),
        (2, ["a", "b", "b/deep", "b/x", "c"]),
        (3, ["a", "b", "b/deep", "b/deep/y", "b/x", "c"]),
    ):
        listed = await sandbox.files.list_directory(DirectoryListEntry(path=place, depth=depth))
        assert [one.path.removeprefix(f"{place}/") for one in listed] == expected


async def test_search_matches_base_names(sandbox: Sandbox, place: str) -> None:
    """A pattern without a slash is matched against the last part of each path."""
    for name in ("a.py", "b.txt", "deep/c.py", "deep/er/d.PY"):
        await sandbox.files.write_file(f"{place}/{name}", "")
    for pattern, expected in (
        ("*.py", ["a.py", "deep/c.py"]),
        ("?.txt", ["b.txt"]),
        ("[ab].*", ["a.py", "b.txt"]),
        ("*.{py,txt}", ["a.py", "b.txt", "deep/c.py"]),
        ("**", ["a.py", "b.txt", "deep/c.py", "deep/er/d.PY"]),
        ("nothing*", []),
    ):
        found = await sandbox.files.search(SearchEntry(path=place, pattern=pattern))
        assert sorted(one.path.removeprefix(f"{place}/") for one in found) == expected


async def test_replace_changes_every_occurrence(sandbox: Sandbox, place: str) -> None:
    """All occurrences are replaced, the mode is kept, and counts are told."""
    await sandbox.files.write_file(f"{place}/one", "red, red and redder", mode=600)
    await sandbox.files.write_file(f"{place}/two", "blue")
    await sandbox.files.replace_contents(
        [ContentReplaceEntry(path=f"{place}/one", old_content="red", new_content="grün")]
    )
    assert await sandbox.files.read_file(f"{place}/one") == "grün, grün and gründer"
    counted = await sandbox.files.replace_contents_detailed(
        [
            ContentReplaceEntry(path=f"{place}/one", old_content="grün", new_content=""),
            ContentReplaceEntry(path=f"{place}/two", old_content="nothing", new_content="x"),
        ]
    )
    assert {one.path: one.replaced_count for one in counted} == {f"{place}/one": 3, f"{place}/two": 0}
    assert await sandbox.files.read_file(f"{place}/one") == ",  and der"
    assert (await sandbox.files.get_file_info([f"{place}/one"]))[f"{place}/one"].mode == 600


async def test_move_renames_files_and_folders(sandbox: Sandbox, place: str) -> None:
    """A move makes missing parents, works for folders and refuses to overwrite."""
    await sandbox.files.write_file(f"{place}/a/file", "content")
    await sandbox.files.move_files(
        [
            MoveEntry(source=f"{place}/a/file", destination=f"{place}/new/parent/file"),
            MoveEntry(source=f"{place}/new", destination=f"{place}/newer"),
        ]
    )
    assert await sandbox.files.read_file(f"{place}/newer/parent/file") == "content"
    await sandbox.files.write_file(f"{place}/there", "stays")
    with pytest.raises(SandboxApiException):
        await sandbox.files.move_files(
            [MoveEntry(source=f"{place}/newer/parent/file", destination=f"{place}/there")]
        )
    assert await sandbox.files.read_file(f"{place}/there") == "stays"


async def test_permissions_are_set(sandbox: Sandbox, place: str) -> None:
    """Mode, owner and group change together; what is not given stays."""
    await sandbox.files.write_file(f"{place}/file", "")
    await sandbox.files.set_permissions(
        [SetPermissionEntry(path=f"{place}/file", mode=640, owner="daemon", group="mail")]
    )
    info = (await sandbox.files.get_file_info([f"{place}/file"]))[f"{place}/file"]
    assert (info.mode, info.owner, info.group) == (640, "daemon", "mail")
    await sandbox.files.set_permissions([SetPermissionEntry(path=f"{place}/file", mode=600)])
    info = (await sandbox.files.get_file_info([f"{place}/file"]))[f"{place}/file"]
    assert (info.mode, info.owner, info.group) == (600, "daemon", "mail")


async def test_directories_come_and_go(sandbox: Sandbox, place: str) -> None:
    """Directories are made with parents and mode, and removed with all they hold."""
    await sandbox.files.create_directories(
        [
            WriteEntry(path=f"{place}/x/y", mode=750),
            WriteEntry(path=f"{place}/z", owner="daemon", group="daemon"),
        ]
    )
    info = await sandbox.files.get_file_info([f"{place}/x/y", f"{place}/z"])
    assert [(one.entry_type, one.mode, one.owner) for one in info.values()] == [
        ("directory", 750, "root"),
        ("directory", 755, "daemon"),
    ]
    await sandbox.files.write_file(f"{place}/x/y/file", "")
    await sandbox.files.delete_directories([f"{place}/x", f"{place}/never-was"])
    left = await sandbox.files.list_directory(DirectoryListEntry(path=place))
    assert [one.path for one in left] == [f"{place}/z"]


async def test_delete_ignores_what_is_not_there(sandbox: Sandbox, place: str) -> None:
    """Deleting several files takes those that exist and does not mind the others."""
    await sandbox.files.write_file(f"{place}/a", "")
    await sandbox.files.delete_files([f"{place}/never", f"{place}/a"])
    with pytest.raises(SandboxApiException) as missing:
        await sandbox.files.get_file_info([f"{place}/a"])
    assert (missing.value.status_code, missing.value.error.code) == (404, "FILE_NOT_FOUND")


@pytest.mark.parametrize("call", ["read", "stream", "info", "list", "search", "replace", "move"])
async def test_missing_path_is_named(sandbox: Sandbox, place: str, call: str) -> None:
    """Each operation on a path that is not there answers 404 and names it."""
    path, files = f"{place}/missing", sandbox.files
    with pytest.raises(SandboxApiException) as missing:
        if call == "read":
            await files.read_file(path)
        elif call == "stream":
            await _pieces(sandbox, path)
        elif call == "info":
            await files.get_file_info([path])
        elif call == "list":
            await files.list_directory(DirectoryListEntry(path=path))
        elif call == "search":
            await files.search(SearchEntry(path=path, pattern="*"))
        elif call == "replace":
            await files.replace_contents([ContentReplaceEntry(path=path, old_content="a", new_content="b")])
        else:
            await files.move_files([MoveEntry(source=path, destination=f"{place}/there")])
    assert missing.value.status_code == 404
    assert path in str(missing.value)


async def test_identity_scoped_files_never_fall_back(sandbox: Sandbox, place: str) -> None:
    """Files under another identity are not served by this version, and are refused rather than done as root."""
    other = sandbox.files_with_identity(1234, 1234)
    if asyncio.iscoroutine(other):
        other = await other
    with pytest.raises(SandboxApiException) as refused:
        answer = other.write_file(f"{place}/file", "x")
        if asyncio.iscoroutine(answer):
            await answer
    assert refused.value.status_code == 501
    with pytest.raises(SandboxApiException):
        await sandbox.files.get_file_info([f"{place}/file"])


async def test_upload_cut_half_way_leaves_the_old_file(
    site: Site, async_client: Client, debian: str, place: str
) -> None:
    """A broken upload changes nothing: the old content stays and no scrap is left beside it (R72)."""
    sandbox = await async_client.connect(debian)
    await sandbox.files.write_file(f"{place}/file", "old")
    endpoint = await sandbox.get_endpoint(44772)
    headers = endpoint.build_request_headers(async_client.config())
    address, _, path = endpoint.endpoint.partition("/")
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    part = (
        b'--cut\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n\r\n'
        b'{"path":"' + f"{place}/file".encode() + b'"}\r\n'
        b'--cut\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n\r\n' + b"new" * 100_000
    )
    request = [
        f"POST /{path}/files/upload HTTP/1.1".replace("//", "/"),
        f"Host: {address}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Content-Type: multipart/form-data; boundary=cut",
        f"Content-Length: {len(part) * 2}",
    ]
    writer.write("\r\n".join([*request, "", ""]).encode() + part)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    del reader
    for _ in range(5):
        assert await sandbox.files.read_file(f"{place}/file") == "old"
        await asyncio.sleep(0.1)
    listed = await sandbox.files.list_directory(DirectoryListEntry(path=place))
    assert [one.path for one in listed] == [f"{place}/file"]
