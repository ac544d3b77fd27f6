"""The installation's secret is made once, kept private, and never silently replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.stores.installation import FILE, SecretDamaged, read_secret


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    """The first call makes 32 private bytes, later ones read them."""
    first = read_secret(tmp_path / "home")
    assert len(first) == 32
    assert read_secret(tmp_path / "home") == first
    assert (tmp_path / "home" / FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir()] == [FILE]


@pytest.mark.parametrize(
    ("content", "mode", "word"), [(b"short", 0o600, "bytes"), (b"x" * 32, 0o644, "chmod")]
)
def test_a_damaged_secret_stops_the_start(tmp_path: Path, content: bytes, mode: int, word: str) -> None:
    """A short file or an open one is refused with the way out."""
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(SecretDamaged, match=word):
        read_secret(tmp_path)
