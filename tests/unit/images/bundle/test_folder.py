"""Finished bundle directories."""

from pathlib import Path

import pytest

from images.bundle.errors import BundleDamaged
from images.bundle.folder import finish, load
from images.bundle.model import ENTRYPOINTS, MANIFEST, Manifest


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    (path / "lib").mkdir(parents=True, mode=0o700)
    (path / "execd").write_bytes(b"program")
    (path / "execd").chmod(0o700)
    (path / "lib/data").write_bytes(b"data")
    (path / "lib/data").chmod(0o600)
    finish(path, Manifest("frozen", "3.13.5", "x86_64", "k", "zig", ENTRYPOINTS["frozen"], ()))
    return path


def test_a_finished_bundle_loads(bundle: Path) -> None:
    """
    What was finished verifies, with its size and entrypoint.
    """
    loaded = load(bundle)

    assert (loaded.path, loaded.size, loaded.kind) == (bundle, 11, "frozen")
    assert loaded.digest.startswith("sha256:")


def test_every_user_may_read_and_run_it(bundle: Path) -> None:
    """
    Sandboxes run as any uid, so nothing depends on the owner.
    """
    modes = {path.name: path.stat().st_mode & 0o777 for path in [bundle, *bundle.rglob("*")]}

    assert modes == {"bundle": 0o755, "lib": 0o755, "execd": 0o755, "data": 0o644, MANIFEST: 0o644}


def test_equal_content_has_an_equal_digest(bundle: Path, tmp_path: Path) -> None:
    """
    The digest does not depend on where or when a bundle was made.
    """
    other = tmp_path / "other"
    (other / "lib").mkdir(parents=True)
    (other / "lib/data").write_bytes(b"data")
    (other / "execd").write_bytes(b"program")
    (other / "execd").chmod(0o755)
    finish(other, Manifest("frozen", "3.13.5", "x86_64", "k", "zig", ENTRYPOINTS["frozen"], ()))

    assert load(other).digest == load(bundle).digest


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: (path / "execd").write_bytes(b"prograM"), "execd was changed"),
        (lambda path: (path / "lib/data").unlink(), "lib/data is missing"),
        (lambda path: (path / "lib/more").touch(), "lib/more is not in the manifest"),
        (lambda path: (path / "lib/data").chmod(0o755), "lib/data was changed"),
        (lambda path: (path / "link").symlink_to("execd"), "link is neither"),
        (lambda path: (path / MANIFEST).write_text("{}"), "not understood"),
        (lambda path: (path / MANIFEST).write_bytes(b"\xff"), "utf-8"),
        (lambda path: (path / MANIFEST).unlink(), "is missing"),
    ],
    ids=["content", "removed", "added", "mode", "link", "manifest", "bytes", "no manifest"],
)
def test_a_damaged_bundle_is_refused(bundle: Path, damage: object, problem: str) -> None:
    """
    Whatever differs from the manifest is named, and the bundle is not used.
    """
    assert callable(damage)
    damage(bundle)

    with pytest.raises(BundleDamaged, match=problem):
        load(bundle)
