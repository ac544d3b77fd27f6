"""Files, directories and metrics of a real execd process, over its own port."""

import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

REPO = Path(__file__).parents[3]


class Execd:
    """A running daemon and one way to ask it."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def ask(
        self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict | list) else body
            connection.request(method, target, data, headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(
        self, route: str, headers: dict[str, str] | None = None, /, **query: Any
    ) -> tuple[int, dict[str, str], bytes]:
        return self.ask(
            "GET", f"{route}?{urlencode(query, doseq=True, errors='surrogateescape')}", None, headers
        )

    def delete(self, path: str, *paths: Path | str) -> tuple[int, dict[str, str], bytes]:
        return self.ask("DELETE", f"{path}?{urlencode({'path': [str(one) for one in paths]}, doseq=True)}")

    def download(self, path: Path | str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.get(
            "/files/download",
            {name.replace("_", "-"): value for name, value in headers.items()},
            path=str(path),
        )

    def rss_kib(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
        raise AssertionError("no VmHWM")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@pytest.fixture(scope="module")
def execd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Execd]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = tmp_path_factory.mktemp("cwd")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(where),
        "WORK": str(where),
        "PYTHONPATH": str(REPO),
        "BOXWRIGHT_STATE_DIR": str(tmp_path_factory.mktemp("state")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "execd", "--port", str(port), "--host", "127.0.0.1"], cwd=where, env=environ
    )
    try:
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    raise
        yield Execd(port, process.pid)
    finally:
        process.terminate()
        assert process.wait(10) == 0


def form(*pairs: tuple[dict[str, Any], bytes], filenames: bool = True) -> tuple[bytes, dict[str, str]]:
    boundary = "opensandbox_0123456789abcdef"
    out = []
    for metadata, data in pairs:
        names = ('; filename="metadata"', '; filename="a.txt"') if filenames else ("", "")
        out.append(
            f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"{names[0]}\r\n'
            f"Content-Type: application/json\r\n\r\n{json.dumps(metadata)}\r\n".encode()
        )
        out.append(
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"{names[1]}\r\n\r\n'.encode()
            + data
            + b"\r\n"
        )
    return b"".join((*out, f"--{boundary}--\r\n".encode())), {
        "Content-Type": f"multipart/form-data; boundary={boundary}"
    }


def upload(execd: Execd, path: Path | str, data: bytes, **more: Any) -> tuple[int, dict[str, str], bytes]:
    body, headers = form(({"path": str(path), **more}, data))
    return execd.ask("POST", "/files/upload", body, headers)


def error(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    status, _, body = answer
    out = json.loads(body)
    assert out["message"]
    return status, out["code"]


# -- upload ------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [0, 1, 18_431, 18_432, 18_433, 65_535, 65_536, 65_537, 1 << 20, 9_999_999])
def test_uploads_arrive_whole(execd: Execd, tmp_path: Path, size: int, chunked: bool) -> None:
    """R72, R74: whatever the size and the framing, the file has the bytes that were sent."""
    data = os.urandom(size)
    body, headers = form(({"path": str(tmp_path / "d/a"), "owner": None, "group": None, "mode": 755}, data))
    sent: Any = iter([body[at : at + 7001] for at in range(0, len(body), 7001)]) if chunked else body
    status, answer, text = execd.ask("POST", "/files/upload", sent, headers)
    assert (status, text, answer["content-length"]) == (200, b"", "0")
    assert (tmp_path / "d/a").read_bytes() == data
    assert (tmp_path / "d/a").stat().st_mode & 0o777 == 0o755
    assert os.listdir(tmp_path / "d") == ["a"]


def test_many_pairs_in_one_form_without_filenames(execd: Execd, tmp_path: Path) -> None:
    """Parts without a filename are parts as well."""
    pairs = [({"path": str(tmp_path / f"{at}")}, b"%d" % at * at) for at in range(50)]
    body, headers = form(*pairs, filenames=False)
    assert execd.ask("POST", "/files/upload", body, headers)[0] == 200
    for at in range(50):
        assert (tmp_path / f"{at}").read_bytes() == b"%d" % at * at


def test_a_broken_upload_changes_nothing(execd: Execd, tmp_path: Path) -> None:
    """R72: when the connection breaks half-way the old file stays and no other is left."""
    (tmp_path / "a").write_text("old")
    body, headers = form(({"path": str(tmp_path / "a")}, bytes(3_000_000)))
    before = execd.descriptors()
    for cut in (100, len(body) // 2, len(body) - 3):
        with socket.create_connection(("127.0.0.1", execd.port)) as sock:
            head = f"POST /files/upload HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            sock.sendall(f"{head}Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body[:cut])
    until = time.monotonic() + 10
    while execd.descriptors() > before and time.monotonic() < until:
        execd.ask("GET", "/ping")
    assert execd.descriptors() <= before
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_an_upload_is_there_when_it_is_answered(execd: Execd, tmp_path: Path) -> None:
    """R73: 500 uploads, ten at a time, are each complete the moment the answer comes."""
    wrong: list[str] = []

    def work(worker: int) -> None:
        for at in range(50):
            data = os.urandom(20_000 + at)
            path = tmp_path / f"{worker}"
            if upload(execd, path, data)[0] != 200 or path.read_bytes() != data:
                wrong.append(f"{worker}/{at}")

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(os.listdir(tmp_path)) == 10


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"{}", "application/json", "INVALID_FILE"),
        (b"x", "multipart/form-data", "INVALID_FILE"),
        (b"--b\r\n", "multipart/form-data; boundary=b", "INVALID_FILE"),
        (b"--b--\r\n", "multipart/form-data; boundary=b", "INVALID_FILE_METADATA"),
        (b'--b\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{"path":"/x/y"}\r\n--b--\r\n',
         "multipart/form-data; boundary=b", "INVALID_FILE_CONTENT"),
        (b'--b\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{"path":1}\r\n--b--\r\n',
         "multipart/form-data; boundary=b", "INVALID_FILE_METADATA"),
    ],
)  # fmt: skip
def test_bad_forms_have_their_codes(execd: Execd, body: bytes, content_type: str, code: str) -> None:
    """Each way in which a form is wrong has the protocol's code (§1.2)."""
    assert error(execd.ask("POST", "/files/upload", body, {"Content-Type": content_type})) == (400, code)


@pytest.mark.parametrize("name", ["-rf", "a\nb", "a$b", "100%20x", "é漢🙂", " x", "report%20name.txt"])
def test_strange_names_make_the_round_trip(execd: Execd, tmp_path: Path, name: str) -> None:
    """R76: a name is decoded exactly once on every route."""
    path = tmp_path / name
    assert upload(execd, path, name.encode())[0] == 200
    assert path.read_bytes() == name.encode()
    assert execd.download(path)[2] == name.encode()
    info = json.loads(execd.get("/files/info", path=str(path))[2])
    assert info[str(path)]["path"] == str(path)
    assert [item["path"] for item in json.loads(execd.get("/directories/list", path=str(tmp_path))[2])] == [
        str(path)
    ]
    assert execd.ask("POST", "/files/mv", [{"src": str(path), "dest": f"{path}.2"}])[0] == 200
    assert execd.delete("/files", f"{path}.2")[0] == 200
    assert os.listdir(tmp_path) == []


def test_percent_signs_are_told_apart(execd: Execd, tmp_path: Path) -> None:
    """R76: both files exist and each answers with its own content."""
    (tmp_path / "report%20name.txt").write_text("percent")
    (tmp_path / "report name.txt").write_text("space")
    for name, content in (("report%20name.txt", b"percent"), ("report name.txt", b"space")):
        assert execd.ask("GET", f"/files/download?path={quote(str(tmp_path / name))}")[2] == content


def test_names_that_are_not_utf8(execd: Execd, tmp_path: Path) -> None:
    """Undecodable bytes are told as lone surrogates and address the file again, raw or in JSON."""
    raw = os.fsencode(tmp_path) + b"/\xff\xfe"
    Path(os.fsdecode(raw)).write_text("x")
    listing = json.loads(execd.get("/directories/list", path=str(tmp_path))[2])
    name = listing[0]["path"]
    assert os.fsencode(name) == raw
    assert execd.ask("GET", f"/files/download?path={quote(raw)}")[2] == b"x"
    assert execd.ask("POST", "/files/permissions", {name: {"mode": 600}})[0] == 200
    assert os.stat(raw).st_mode & 0o777 == 0o600
    found = json.loads(execd.get("/files/info", path=name)[2])
    assert found[name]["size"] == 1


def test_paths_are_expanded(execd: Execd) -> None:
    """Home, variables and relative paths; results are keyed by what was asked (§7.1)."""
    assert upload(execd, "~/a.txt", b"x")[0] == 200
    out = json.loads(execd.get("/files/info", path=["~/a.txt", "$WORK/a.txt", "${WORK}/./a.txt", "a.txt"])[2])
    assert len(out) == 4
    assert len({item["path"] for item in out.values()}) == 1
    assert error(execd.get("/files/info", path="$NOPE/a")) == (400, "INVALID_REQUEST_BODY")
    assert b"NOPE" in execd.get("/files/info", path="$NOPE/a")[2]
    assert execd.delete("/files", "a.txt")[0] == 200


# -- download ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "header", "status", "content_range", "body"),
    [
        (5, "bytes=0-0", 206, "bytes 0-0/5", b"0"),
        (5, "bytes=-1", 206, "bytes 4-4/5", b"4"),
        (5, "bytes=-0", 416, "bytes */5", None),
        (5, "bytes=5-4", 416, "bytes */5", None),
        (5, f"bytes=0-{2**63 - 1}", 206, "bytes 0-4/5", b"01234"),
        (5, f"bytes={2**64}-", 416, "bytes */5", None),
        (5, "abc", 200, None, b"01234"),
        (5, "bytes=abc", 416, "bytes */5", None),
        (5, "bytes=0-0,2-3", 206, "bytes 0-0/5", b"0"),
        (5, "bytes=9-", 416, "bytes */5", None),
        (0, "bytes=0-", 416, "bytes */0", None),
        (0, "bytes=-5", 416, "bytes */0", None),
    ],
)  # fmt: skip
def test_ranges(
    execd: Execd,
    tmp_path: Path,
    size: int,
    header: str,
    status: int,
    content_range: str | None,
    body: bytes | None,
) -> None:
    """R77: lengths always match the body; what cannot be satisfied says the size, in JSON."""
    (tmp_path / "a").write_bytes(b"0123456789"[:size])
    got, headers, data = execd.download(tmp_path / "a", Range=header)
    assert (got, headers.get("content-range")) == (status, content_range)
    assert headers["content-length"] == str(len(data))
    if body is None:
        out = json.loads(data)
        assert out["code"]
        assert out["message"]
    else:
        assert data == body
    got, headers, data = execd.ask(
        "HEAD", f"/files/download?path={quote(str(tmp_path / 'a'))}", None, {"Range": header}
    )
    assert (got, headers.get("content-range"), data) == (status, content_range, b"")


def test_a_plain_download(execd: Execd, tmp_path: Path) -> None:
    """R74: every header of §7.6 is there, and an empty file is a file."""
    path = tmp_path / 'we"ird.bin'
    for data in (b"", os.urandom(3_000_000)):
        path.write_bytes(data)
        status, headers, body = execd.download(path)
        assert (status, body) == (200, data)
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-length"] == str(len(data))
        assert headers["content-disposition"] == 'attachment; filename="we\\"ird.bin"'
        assert headers["accept-ranges"] == "bytes"
        assert headers["last-modified"].endswith("GMT")
        status, _, body = execd.download(path, If_None_Match=headers["etag"])
        assert (status, body) == (304, b"")
        status, _, body = execd.download(path, If_Modified_Since=headers["last-modified"])
        assert (status, body) == (304, b"")
    assert execd.download(path, Range="bytes=1-2", If_Range=headers["etag"])[0] == 206
    assert execd.download(path, Range="bytes=1-2", If_Range='"other"')[0] == 200


def test_line_windows(execd: Execd, tmp_path: Path) -> None:
    """Windows of lines are 1-based, bounded in memory, and do not mix with ranges (§7.6)."""
    path = str(tmp_path / "a")
    Path(path).write_text("line1\nline2\r\nline3\nline4\nline5\n")
    status, headers, body = execd.get("/files/download", path=path, offset=2, limit=2)
    assert (status, body, headers["content-type"]) == (200, b"line2\nline3", "text/plain; charset=utf-8")
    assert execd.get("/files/download", path=path, offset=9)[2] == b""
    assert execd.get("/files/download", path=path, limit=1)[2] == b"line1"
    for query in ({"offset": 0}, {"limit": "x"}, {"offset": -1}):
        assert error(execd.get("/files/download", path=path, **query)) == (400, "INVALID_REQUEST_BODY")
    assert execd.get("/files/download", {"Range": "bytes=0-1"}, path=path, offset=1)[0] == 400
    with open(path, "wb") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\nlast")
    before = execd.rss_kib()
    assert len(execd.get("/files/download", path=path, limit=1)[2]) == 64 << 20
    assert execd.get("/files/download", path=path, offset=2)[2] == b"last"
    assert execd.rss_kib() - before < 8192
    Path(path).write_bytes(b"")
    assert execd.get("/files/download", path=path, offset=1)[2] == b""


def test_made_up_files_and_streams(execd: Execd, tmp_path: Path) -> None:
    """R86: files of /proc and /sys come whole, pipes stream, devices are refused."""
    status, headers, body = execd.download("/proc/self/status")
    assert (status, headers["content-length"]) == (200, str(len(body)))
    assert body.startswith(b"Name:")
    sys_file = next(path for path in ("/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum",
                                      "/sys/kernel/kexec_loaded") if os.path.exists(path))  # fmt: skip
    assert execd.download(sys_file)[2] == Path(sys_file).read_bytes()
    assert execd.get("/files/download", path="/proc/self/status", limit=1)[2].startswith(b"Name:")
    for device in ("/dev/zero", "/dev/null"):
        assert error(execd.download(device)) == (400, "INVALID_REQUEST_BODY")
    os.mkfifo(tmp_path / "p")
    writer = subprocess.Popen(["/bin/sh", "-c", f"seq 1 50000 > '{tmp_path}/p'"])
    status, _, body = execd.download(tmp_path / "p")
    assert writer.wait(10) == 0
    assert (status, body) == (200, "".join(f"{at}\n" for at in range(1, 50001)).encode())


def test_a_reader_of_a_pipe_that_leaves_leaves_nothing(execd: Execd, tmp_path: Path) -> None:
    """R86: when the client of a silent pipe hangs up, the pipe is closed."""
    os.mkfifo(tmp_path / "p")
    before = execd.descriptors()
    with socket.create_connection(("127.0.0.1", execd.port)) as sock:
        sock.sendall(
            f"GET /files/download?path={quote(str(tmp_path / 'p'))} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        writer = os.open(tmp_path / "p", os.O_WRONLY)
        os.write(writer, b"first")
        got = b""
        while b"first" not in got:
            got += sock.recv(4096)
    until = time.monotonic() + 10
    while execd.descriptors() > before and time.monotonic() < until:
        execd.ask("GET", "/ping")
    assert execd.descriptors() <= before
    os.close(writer)


# -- errors ------------------------------------------------------------------------------


def test_the_cause_decides_the_status(execd: Execd, tmp_path: Path) -> None:
    """R79: missing, looping, too long and wrong kinds have their own status on every route."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    cases = {
        "missing": (404, "FILE_NOT_FOUND"),
        "loop/x": (400, "INVALID_REQUEST_BODY"),
        "x" * 300: (400, "INVALID_REQUEST_BODY"),
        "file/x": (400, "INVALID_REQUEST_BODY"),
    }
    for name, expected in cases.items():
        path = str(tmp_path / name)
        assert error(execd.get("/files/info", path=path)) == expected
        assert error(execd.get("/files/info", path=[str(tmp_path / "file"), path])) == expected
        assert error(execd.download(path)) == expected
        assert error(execd.get("/directories/list", path=path)) == expected
        assert error(execd.get("/files/search", path=path)) == expected
        assert error(execd.ask("POST", "/files/permissions", {path: {"mode": 644}})) == expected
        assert error(execd.ask("POST", "/files/replace", {path: {"old": "a", "new": "b"}})) == expected
        assert error(execd.ask("POST", "/files/mv", [{"src": path, "dest": str(tmp_path / "d")}])) == expected
        gone = execd.delete("/files", path)
        assert gone[0] == 200 if name == "missing" else error(gone) == expected
    assert error(execd.download(tmp_path)) == (400, "INVALID_REQUEST_BODY")
    assert error(execd.delete("/files", tmp_path)) == (400, "INVALID_REQUEST_BODY")
    assert error(execd.get("/files/search")) == (400, "MISSING_QUERY")
    assert error(execd.get("/files/search", path=str(tmp_path), pattern="[a")) == (
        400,
        "INVALID_REQUEST_BODY",
    )
    assert error(execd.get("/directories/list", path=str(tmp_path), depth="-1")) == (
        400,
        "INVALID_REQUEST_BODY",
    )
    assert error(execd.get("/directories/list", path=str(tmp_path / "file"))) == (400, "INVALID_REQUEST_BODY")
    assert error(execd.ask("POST", "/files/replace", {"/x": {"old": "", "new": "b"}})) == (
        400,
        "INVALID_REQUEST_BODY",
    )
    assert error(execd.ask("POST", "/files/permissions", {"/x": {"mode": 988}})) == (
        400,
        "INVALID_REQUEST_BODY",
    )
    assert execd.get("/files/info")[2] == b"{}"
    assert error(upload(execd, tmp_path / "file/x", b"")) == (400, "INVALID_REQUEST_BODY")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


@pytest.fixture
def big_enough(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: making 200,000 files on a disk takes a minute."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


# -- trees -------------------------------------------------------------------------------


def test_list_and_search(execd: Execd, tmp_path: Path) -> None:
    """Order, depth, types and patterns (§7.4)."""
    for name in ("a/x.py", "a/b/y.py", "c.py", "c.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "l.py").symlink_to("/")

    def names(route: str, **query: Any) -> list[str]:
        status, _, body = execd.get(route, path=str(tmp_path), **query)
        assert status == 200
        return [os.path.relpath(item["path"], tmp_path) for item in json.loads(body)]

    assert names("/directories/list") == ["a", "c.py", "c.txt", "l.py"]
    assert names("/directories/list", depth=0) == []
    assert names("/directories/list", depth=9) == ["a", "a/b", "a/b/y.py", "a/x.py", "c.py", "c.txt", "l.py"]
    assert names("/files/search") == ["a/b/y.py", "a/x.py", "c.py", "c.txt", "l.py"]
    assert names("/files/search", pattern="*.py") == ["a/b/y.py", "a/x.py", "c.py", "l.py"]
    assert names("/files/search", pattern="a/**/*.py") == ["a/b/y.py", "a/x.py"]
    one = json.loads(execd.get("/files/search", path=str(tmp_path / "c.py"), pattern="*.py")[2])
    assert [item["path"] for item in one] == [str(tmp_path / "c.py")]


def test_a_link_as_a_root(execd: Execd, tmp_path: Path) -> None:
    """R80: a link is listed as a link, never walked; deleting it deletes the link."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text("old")
    link = tmp_path / "l"
    link.symlink_to(tmp_path / "d")
    assert error(execd.get("/directories/list", path=str(link), depth=5))[0] == 400
    found = json.loads(execd.get("/files/search", path=str(link))[2])
    assert [(item["path"], item["type"]) for item in found] == [(str(link), "symlink")]
    assert execd.ask("POST", "/files/replace?verbose=true", {f"{link}/f": {"old": "old", "new": "new"}})[
        2
    ] == (b'{"%b/f":{"replacedCount":1}}' % os.fsencode(link))
    assert (tmp_path / "d/f").read_text() == "new"
    assert execd.delete("/directories", f"{link}/")[0] == 200
    assert not link.is_symlink()
    assert (tmp_path / "d/f").exists()
    link.symlink_to(tmp_path / "d")
    assert execd.delete("/files", link)[0] == 200
    assert os.listdir(tmp_path) == ["d"]


def test_directories(execd: Execd, tmp_path: Path) -> None:
    """Made with parents and mode, deleted with all they hold, missing ones are fine."""
    body = {
        str(tmp_path / "a/b"): {"mode": 700, "owner": None, "group": None},
        str(tmp_path / "c"): {"mode": 0},
    }
    assert execd.ask("POST", "/directories", body)[0] == 200
    assert (tmp_path / "a/b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a/b/f").touch()
    assert execd.delete("/directories", tmp_path / "a", tmp_path / "missing", tmp_path / "c")[0] == 200
    assert os.listdir(tmp_path) == []


def test_a_huge_directory_does_not_starve_the_daemon(execd: Execd, big_enough: Path) -> None:
    """R85: 200,000 entries are listed and deleted in bounded memory while others are answered."""
    top = big_enough / "t"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    count = 200_000
    for at in range(count):
        os.mknod(f"file-{at:06}", 0o600, dir_fd=fd)
    os.close(fd)
    before = execd.rss_kib()
    slowest = 0.0
    done = threading.Event()

    def ping() -> None:
        nonlocal slowest
        while not done.is_set():
            begin = time.monotonic()
            assert execd.ask("GET", "/ping")[0] == 200
            slowest = max(slowest, time.monotonic() - begin)

    pinger = threading.Thread(target=ping)
    pinger.start()
    try:
        begin = time.monotonic()
        body = execd.get("/directories/list", path=str(top))[2]
        listed = time.monotonic() - begin
        found = json.loads(execd.get("/files/search", path=str(top), pattern="*-19999?")[2])
        grown = execd.rss_kib() - before
        begin = time.monotonic()
        assert execd.delete("/directories", top)[0] == 200
        deleted = time.monotonic() - begin
    finally:
        done.set()
        pinger.join()
    print(
        f"listed in {listed:.2f} s, deleted in {deleted:.2f} s, grew {grown} KiB, slowest ping {slowest:.3f} s"
    )
    assert body.count(b'"path"') == count
    assert [item["path"][-6:] for item in found] == [f"19999{at}" for at in range(10)]
    assert not top.exists()
    assert grown < 40 * 1024
    assert slowest < 1


def test_a_deep_tree(execd: Execd, tmp_path: Path) -> None:
    """R85: depth 300 with long names, beyond PATH_MAX, is listed and deleted."""
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("directory-with-a-long-name", dir_fd=fd)
        below = os.open("directory-with-a-long-name", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    body = execd.get("/directories/list", path=str(tmp_path), depth=1000)[2]
    assert body.count(b'"path"') == 300
    assert execd.delete("/directories", tmp_path / "directory-with-a-long-name")[0] == 200
    assert os.listdir(tmp_path) == []


def test_an_unfinished_listing_leaves_nothing(execd: Execd, tmp_path: Path) -> None:
    """A client that leaves in the middle of a listing leaves no descriptor behind."""
    for at in range(5000):
        (tmp_path / f"{'x' * 200}{at}").touch()
    before = execd.descriptors()
    with socket.create_connection(("127.0.0.1", execd.port)) as sock:
        sock.sendall(
            f"GET /directories/list?path={quote(str(tmp_path))} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        sock.recv(1000)
    until = time.monotonic() + 10
    while execd.descriptors() > before and time.monotonic() < until:
        execd.ask("GET", "/ping")
    assert execd.descriptors() <= before


# -- metrics -----------------------------------------------------------------------------


def test_metrics(execd: Execd) -> None:
    """The five fields are there, and an answer never takes long (§8)."""
    begin = time.monotonic()
    out = json.loads(execd.get("/metrics")[2])
    assert time.monotonic() - begin < 1
    assert set(out) == {"cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "timestamp"}
    assert 0 < out["mem_used_mib"] <= out["mem_total_mib"]
    assert 0 <= out["cpu_used_pct"] <= 100
    assert abs(out["timestamp"] / 1000 - time.time()) < 5


def test_watching_metrics(execd: Execd) -> None:
    """One object a second, each followed by a blank line, until the client leaves."""
    before = execd.descriptors()
    times = []
    with socket.create_connection(("127.0.0.1", execd.port)) as sock:
        sock.sendall(b"GET /metrics/watch HTTP/1.1\r\nHost: x\r\n\r\n")
        got = b""
        while got.count(b"\n\n") < 3:
            got += sock.recv(4096)
            times.append(time.monotonic())
    assert b"text/event-stream" in got
    objects = [json.loads(line) for line in got.split(b"\n") if line.startswith(b"{")]
    gaps = [b["timestamp"] - a["timestamp"] for a, b in itertools.pairwise(objects)]
    assert all(800 <= gap <= 1500 for gap in gaps), gaps
    until = time.monotonic() + 5
    while execd.descriptors() > before and time.monotonic() < until:
        execd.ask("GET", "/ping")
    assert execd.descriptors() <= before
