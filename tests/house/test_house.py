"""Facts about the code itself: floors, folders, settings, names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "specs",
    "policies",
    "images",
    "gateway",
    "execd",
    "egress",
    "reconciler",
    "infra",
    "boxwright",
    "tests",
)
TOP_LEVEL = {*FOLDERS}
PRODUCT = [p for folder in FOLDERS if folder != "tests" for p in sorted((ROOT / folder).rglob("*.py"))]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked() -> list[Path]:
    """What git tracks or would track; outside a checkout every file."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in done.stdout.splitlines() if (ROOT / line).is_file()]


def test_arrows_point_down_only() -> None:
    """The floor plan's import contracts hold."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_nothing_else_joins_the_top_level() -> None:
    """Top-level folders are the fixed ones."""
    found = {path.relative_to(ROOT).parts[0] for path in tracked() if len(path.relative_to(ROOT).parts) > 1}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_has_its_one_screen_readme(folder: str) -> None:
    """A newcomer finds one screen in each folder."""
    readme = ROOT / folder / "README.md"
    assert readme.exists()
    assert len(readme.read_text().splitlines()) <= 60


@pytest.mark.parametrize(
    "source", [p for p in PRODUCT if p.parts[len(ROOT.parts)] in {"gateway", "execd"}], ids=relative
)
def test_only_config_reads_the_environment(source: Path) -> None:
    """A daemon's settings come from its config module and nowhere else."""
    reads = {
        node.attr
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    }
    assert source.name in {"config.py", "__main__.py"} or not reads & {"environ", "getenv", "environb"}


@pytest.mark.parametrize("source", PRODUCT, ids=relative)
def test_no_task_is_started_and_forgotten(source: Path) -> None:
    """Tasks are started through a task group (or the loop), so that each has an owner."""
    calls = {
        node.func.attr
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "asyncio"
    }
    assert not calls & {"create_task", "ensure_future"}


def test_no_room_is_called_utils() -> None:
    """Rooms are named after their subject."""
    banned = {"utils", "util", "helpers", "common", "lib", "misc", "core"}
    assert not [relative(p) for p in PRODUCT if p.stem in banned or p.parent.name in banned]


def test_no_machine_path_or_registry_host_is_tracked() -> None:
    """The repository names neither the machine it was made on nor where packages come from."""
    hosts = [
        "py" + "pi.org",
        "files.python" + "hosted.org",
        "registry.npm" + "js.org",
        "deb.deb" + "ian.org",
        "proxy.go" + "lang.org",
    ]
    found = []
    for path in tracked():
        text = path.read_text(errors="replace")
        found += [f"{relative(path)}: {host}" for host in hosts if host in text]
    assert not found
