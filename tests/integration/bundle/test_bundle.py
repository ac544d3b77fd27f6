"""Both kinds of bundle, built for real and run in images that hold nothing."""

import http.client
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from images.bundle import (
    KINDS,
    Bundle,
    ImportsUnmet,
    Kind,
    SourceMissing,
    build,
    load,
    own_source_root,
    quickest,
)
from images.bundle.apt import sorted_versions
from specs.names import PORT_EXECD

pytestmark = [
    pytest.mark.engine,
    # The first build of an interpreter on a machine takes minutes; later ones take a second.
    pytest.mark.timeout(3000),
]

Build = Callable[[Kind], Bundle]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

HARDENED = (
    "--read-only",
    "--user=65534:65534",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)


@pytest.mark.parametrize("options", [(), HARDENED], ids=["plain", "hardened"])
@pytest.mark.parametrize("image", ["scratch", "busybox"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_runs_in_any_image(
    kind: Kind, image: str, options: tuple[str, ...], bundle: Build, images: dict[str, str], in_container: Run
) -> None:
    """
    Arguments, exit status and late imports work without a libc, a writable root or any privilege.
    """
    if image not in images:
        pytest.skip("busybox-static is not installed")

    done = in_container(bundle(kind), images[image], "show", "a b", options=options)

    assert (done.stdout, done.returncode) == (f"hello {65534 if options else 0} ['a b']\n", 7), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_image_s_environment_does_not_reach_the_interpreter(
    kind: Kind, bundle: Build, images: dict[str, str], in_container: Run
) -> None:
    """
    Variables that redirect Python or the dynamic loader change nothing.
    """
    names = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "LD_LIBRARY_PATH", "LC_ALL")
    hostile = tuple(f"--env={name}=/nowhere" for name in names)

    done = in_container(bundle(kind), images["scratch"], "paths", options=hostile)

    assert (done.stdout, done.returncode) == ("/opt/boxwright 1 1 True\n", 0), done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("deed", "code", "out"),
    [
        ("malformed", 0, "JSONDecodeError: Expecting ':' delimiter: line 1 column 6 (char 5)\n"),
        ("thread", 0, ""),
        ("modules", 0, "11f6ad8e\n"),
        ("leave", 9, ""),
        ("spawn", 42, ""),
    ],
)
def test_what_execd_leans_on_is_there(
    kind: Kind, deed: str, code: int, out: str, bundle: Build, images: dict[str, str], in_container: Run
) -> None:
    """
    Malformed JSON, deep stacks in threads, the C modules, exit statuses and the spawn program work.
    """
    done = in_container(bundle(kind), images["scratch"], deed, options=HARDENED)

    assert (done.stdout, done.returncode) == (out, code), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_shows_where_it_was(
    kind: Kind, bundle: Build, images: dict[str, str], in_container: Run
) -> None:
    """
    An exception that nobody catches ends with status 1 and a traceback that names module and line.
    """
    done = in_container(bundle(kind), images["scratch"], "fail")

    assert done.returncode == 1
    assert "RuntimeError: on purpose" in done.stderr
    assert {"frozen": '"<frozen execd.room.facts>", line', "debian": '/app/execd/room/facts.py", line'}[
        kind
    ] in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_build_is_the_first_one(kind: Kind, bundle: Build) -> None:
    """
    Equal sources give the same directory, and what lies there verifies.
    """
    first = bundle(kind)

    assert bundle(kind) == first == load(first.path)


def test_a_changed_source_is_a_matter_of_freezing(
    source_root: Path, cache: Path, bundle: Build, tmp_path: Path
) -> None:
    """
    With an interpreter in the cache a frozen bundle of new sources is the quickest, and no interpreter is built.
    """
    old = bundle("frozen")
    changed = tmp_path / "changed"
    shutil.copytree(source_root, changed)
    (changed / "specs/names.py").write_text('GREETING = "changed"\n')
    told: list[str] = []

    new = quickest(source_root=changed, cache=cache, report=told.append)

    try:
        assert new.kind == "frozen"
        assert new.digest != old.digest
        assert told[0] == "frozen bundle: its interpreter is in the cache"
        assert not any("interpreter built" in line for line in told)
    finally:
        shutil.rmtree(new.path)


def test_a_damaged_bundle_is_built_again(bundle: Build, source_root: Path, cache: Path) -> None:
    """
    A cached bundle that no longer verifies is never handed out.
    """
    first = bundle("frozen")
    (first.path / "spawn").write_bytes(b"other")
    told: list[str] = []

    again = build("frozen", source_root=source_root, cache=cache, report=told.append)

    assert again == first == load(first.path)
    assert "spawn was changed" in told[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_that_cannot_be_met_stops_the_build(
    kind: Kind, source_root: Path, cache: Path, tmp_path: Path
) -> None:
    """
    The build says which module asks for what, and leaves nothing in the cache.
    """
    changed = tmp_path / "changed"
    shutil.copytree(source_root, changed)
    (changed / "execd/room/facts.py").write_text("def show(argv):\n    import _ssl\n")
    before = set((cache / "bundles").iterdir())

    with pytest.raises(ImportsUnmet, match=r"execd\.room\.facts imports _ssl"):
        build(kind, source_root=changed, cache=cache, report=print)

    assert set((cache / "bundles").iterdir()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_no_bundle_lacks_its_spawn_program(
    kind: Kind, source_root: Path, cache: Path, tmp_path: Path
) -> None:
    """
    A source tree without the spawn program's source is an error for both kinds.
    """
    changed = tmp_path / "changed"
    shutil.copytree(source_root, changed)
    (changed / "images/build/execd/spawn.c").unlink()

    with pytest.raises(SourceMissing):
        build(kind, source_root=changed, cache=cache, report=print)


@pytest.mark.parametrize("kind", KINDS)
def test_execd_itself_answers(kind: Kind, cache: Path, serving: Callable[[Bundle], str]) -> None:
    """
    The real execd, bundled, serves its health check from an empty, hardened, read-only image.
    """
    bundle = build(kind, source_root=own_source_root(), cache=cache, report=print)
    address = serving(bundle)

    assert answer(address, PORT_EXECD, "/ping", seconds=20) == 200


def answer(host: str, port: int, path: str, *, seconds: float) -> int:
    """Return the status of a GET, asking again until something listens or the time is over."""
    end = time.monotonic() + seconds
    while True:
        connection = http.client.HTTPConnection(host, port, timeout=max(0.1, end - time.monotonic()))
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
        finally:
            connection.close()


def test_versions_are_sorted_as_the_distribution_sorts_them(tmp_path: Path) -> None:
    """
    A tilde sorts before nothing, and numbers as numbers; the newest is last.
    """
    if shutil.which("dpkg") is None:
        pytest.skip("dpkg is not installed")
    versions = ["3.13.5-2+deb13u5", "3.13.10-1", "3.13.5-2", "3.13.5~rc1-1", "3.13.5-2"]

    found = sorted_versions(versions, tmp_path / "log")

    assert found == ["3.13.5~rc1-1", "3.13.5-2", "3.13.5-2+deb13u5", "3.13.10-1"]
