"""A stand-in execd, built into real bundles, and empty images to run them in."""

import io
import os
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.bundle import Bundle, Kind, build, default_cache, own_source_root

BUSYBOX = Path("/bin/busybox")

STAND_IN = {
    "execd/__init__.py": "",
    "execd/__main__.py": """
import sys


def main(argv: list[str]) -> int:
    from execd.room import facts

    return getattr(facts, argv[0])(argv[1:])
""",
    "execd/room/__init__.py": "",
    "execd/room/facts.py": """
import posix
import sys


def show(argv):
    from specs.names import GREETING

    sys.stdout.write(f"{GREETING} {posix.getuid()} {argv}\\n")
    return 7


def paths(argv):
    sys.stdout.write(f"{sys.prefix} {sys.flags.isolated} {sys.flags.utf8_mode} {sys.dont_write_bytecode}\\n")
    return 0


def fail(argv):
    raise RuntimeError("on purpose")


def leave(argv):
    raise SystemExit(9)


def malformed(argv):
    from _json import make_scanner

    class Context:
        strict = True
        object_hook = object_pairs_hook = parse_constant = None
        parse_float = float
        parse_int = int
        memo = {}

    try:
        make_scanner(Context())('{"a" 1}', 0)
    except ValueError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\\n")
        return 0
    return 1


def thread(argv):
    import _thread

    done = _thread.allocate_lock()
    done.acquire()

    def deep(level):
        return level and sorted([level - 1], key=deep) and level

    def run():
        deep(150)
        done.release()

    _thread.start_new_thread(run, ())
    return 0 if done.acquire(timeout=20) else 1


def modules(argv):
    import _posixsubprocess, _random, _sha1, _signal, _socket, array, binascii, errno, fcntl, grp, math, mmap
    import pwd, resource, select, termios, time

    select.epoll().close()
    sys.stdout.write(_sha1.sha1(b"x").hexdigest()[:8] + "\\n")
    return 0


def spawn(argv):
    import posix

    pid = posix.posix_spawn("/opt/boxwright/spawn", ["spawn"], {})
    return posix.waitstatus_to_exitcode(posix.waitpid(pid, 0)[1])
""",
    "specs/__init__.py": "",
    "specs/names.py": 'GREETING = "hello"\n',
    # The real one is tested with execd; here it matters that it is compiled, static and reachable.
    "images/build/execd/spawn.c": "int main(void) { return 42; }\n",
}


@pytest.fixture(scope="session")
def source_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build's real C sources and stand-ins around a small execd."""
    root = tmp_path_factory.mktemp("sources")
    shutil.copytree(own_source_root() / "images/build/execd", root / "images/build/execd")
    for name, text in STAND_IN.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(scope="session")
def cache() -> Path:
    """The user's own cache: the interpreter is minutes of work and the same for everybody."""
    return default_cache(os.environ)


@pytest.fixture(scope="session")
def bundle(source_root: Path, cache: Path) -> Iterator[Callable[[Kind], Bundle]]:
    """Build a bundle of the stand-in; what was built leaves the cache at the end, the interpreters stay."""
    built: set[Path] = set()

    def of(kind: Kind) -> Bundle:
        made = build(kind, source_root=source_root, cache=cache, report=print)
        built.add(made.path)
        return made

    yield of
    for path in built:
        shutil.rmtree(path)


@pytest.fixture(scope="session")
def engine() -> str:
    """The docker command, if an engine answers."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker command on this machine")
    answer = subprocess.run([docker, "version"], capture_output=True, timeout=30, check=False)
    if answer.returncode != 0:
        pytest.skip(f"no container engine answers: {answer.stderr.decode()[-200:]}")
    return docker


def _image(docker: str, files: dict[str, Path]) -> str:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(folder)
        for name, path in files.items():
            tar.add(path.resolve(), name)
    name = f"boxwright-test-bundle:{uuid.uuid4().hex[:12]}"
    argv = [docker, "import", "-", name]
    subprocess.run(argv, input=archive.getvalue(), capture_output=True, timeout=60, check=True)
    return name


@pytest.fixture(scope="session")
def images(engine: str) -> Iterator[dict[str, str]]:
    """An image with nothing in it, and one with busybox alone."""
    made = {"scratch": _image(engine, {})}
    try:
        if BUSYBOX.is_file():
            made["busybox"] = _image(engine, {"bin/busybox": BUSYBOX, "bin/sh": BUSYBOX})
        yield made
    finally:
        argv = [engine, "image", "rm", "--force", *made.values()]
        subprocess.run(argv, capture_output=True, timeout=60, check=True)


@pytest.fixture(scope="session")
def in_container(engine: str) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run a bundle's entrypoint in a fresh container and return what came of it."""

    def run(
        bundle: Bundle, image: str, *arguments: str, options: tuple[str, ...] = ()
    ) -> "subprocess.CompletedProcess[str]":
        argv = [
            engine,
            "run",
            "--rm",
            "--network",
            "none",
            "--volume",
            f"{bundle.path}:/opt/boxwright:ro",
            *options,
        ]
        argv += [image, *bundle.entrypoint, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def serving(engine: str, images: dict[str, str]) -> Iterator[Callable[[Bundle], str]]:
    """Start a bundle as a hardened sandbox would and return the container's address."""
    started: list[str] = []

    def start(bundle: Bundle) -> str:
        argv = [engine, "run", "--detach", "--read-only", "--user=65534:65534", "--cap-drop=ALL"]
        argv += ["--security-opt=no-new-privileges", "--tmpfs=/run/boxwright:mode=1777"]
        argv += ["--volume", f"{bundle.path}:/opt/boxwright:ro", images["scratch"], *bundle.entrypoint]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
        started.append(done.stdout.strip())
        argv = [engine, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", started[-1]]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout.strip()

    try:
        yield start
    finally:
        if started:
            subprocess.run([engine, "rm", "--force", *started], capture_output=True, timeout=60, check=True)
