"""Make the environment that everything else runs in, with nothing but the standard library.

`make up` and `make test` start here, under whatever `python3` the machine has. It finds a
Python of at least 3.11, makes `.venv`, installs exactly what the lock file pins (hashes
checked), and then hands over to `boxwright` inside that environment. A second run sees that
the lock has not changed and costs milliseconds.

Package sources are the machine's own (pip's and apt's configuration); none is named here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
FLOOR = (3, 11)
NAMES = ("python3", "python3.13", "python3.12", "python3.11")


def say(text: str) -> None:
    """Tell the person at the terminal what happens; standard output stays free for results."""
    print(f"boxwright: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> None:
    say(text)
    raise SystemExit(1)


def find_python() -> str:
    """Return an interpreter of at least 3.11, or stop with one clear instruction."""
    if sys.version_info >= FLOOR:
        return sys.executable
    for name in NAMES:
        path = shutil.which(name)
        if (
            path
            and subprocess.run(
                [path, "-c", f"import sys; sys.exit(sys.version_info < {FLOOR})"], check=False
            ).returncode
            == 0
        ):
            return path
    stop("Python 3.11 or newer is needed. On Debian 12+/Ubuntu 24.04+: apt-get install python3 python3-venv")
    raise AssertionError


def debian_root() -> bool:
    """Say whether we may install Debian packages here."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(*packages: str) -> None:
    """Install Debian packages from the machine's own sources, saying so."""
    say(f"installing {' '.join(packages)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            stop(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def make_venv(python: str) -> None:
    """Create `.venv`, installing Debian's venv package when the interpreter came without it."""
    if (VENV / "bin" / "python").exists():
        return
    say(f"making .venv with {python}")
    done = subprocess.run([python, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    if not debian_root():
        stop(
            f"{python} cannot make a virtual environment. Install the venv package "
            "(Debian/Ubuntu: apt-get install python3-venv) and try again."
        )
    version = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    apt_install(f"python{version}-venv")
    subprocess.run([python, "-m", "venv", str(VENV)], check=True)


def install(lock: Path) -> None:
    """Install what the lock pins, unless this very lock is installed already."""
    digest = hashlib.sha256(lock.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = VENV / f"installed-{lock.stem}"
    if stamp.exists() and stamp.read_text() == digest:
        return
    say(f"installing {lock.name} into .venv (a minute the first time)")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for arguments in (
        ["--require-hashes", "-r", str(lock)],
        ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)],
    ):
        done = subprocess.run([*pip, *arguments], check=False)
        if done.returncode:
            stop("pip failed; the lines above say why. Is a package index configured and reachable?")
    stamp.write_text(digest)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make Boxwright's environment, then run a command in it.")
    parser.add_argument("--dev", action="store_true", help="also install what tests and linters need")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run inside (default: nothing)")
    asked = parser.parse_args()
    os.chdir(ROOT)
    make_venv(find_python())
    install(ROOT / ("requirements-dev.lock" if asked.dev else "requirements.lock"))
    if asked.command:
        program = VENV / "bin" / asked.command[0]
        os.environ["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        sys.stdout.flush()
        os.execv(program, [str(program), *asked.command[1:]])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
