"""The gateway does not start where nobody could call it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.__main__ import config_path, main, prepare
from gateway.app import SystemClock
from gateway.config import BadSetting, load
from gateway.sandboxes.model import BundleMount
from gateway.stores.database import Database
from gateway.stores.keys import SqliteKeys

BUNDLE = BundleMount("/bundle", ("/e",))


async def _make_key(path: Path) -> str:
    database = Database(path)
    made, _ = await SqliteKeys(database, SystemClock()).create("ci")
    database.close()
    return made.key_id


async def _revoke(path: Path, key_id: str) -> None:
    database = Database(path)
    await SqliteKeys(database, SystemClock()).revoke(key_id)
    database.close()


def test_no_key_no_start(tmp_path: Path) -> None:
    """Without a key the start is refused with the way out; a configured or a made one will do (R29)."""
    without = load(None, {"BOXWRIGHT_HOME": str(tmp_path)})
    with pytest.raises(BadSetting, match="boxwright keys create"):
        prepare(without, BUNDLE)
    key_id = asyncio.run(_make_key(without.database))
    prepare(without, BUNDLE)
    asyncio.run(_revoke(without.database, key_id))
    with pytest.raises(BadSetting):
        prepare(without, BUNDLE)
    prepare(load(None, {"BOXWRIGHT_HOME": str(tmp_path), "BOXWRIGHT_API_KEY": "chosen by hand"}), BUNDLE)


def test_the_named_file_is_ours_first() -> None:
    """Our variable wins over the other server's."""
    assert config_path({}) is None
    assert config_path({"SANDBOX_CONFIG_PATH": "/a"}) == Path("/a")
    assert config_path({"SANDBOX_CONFIG_PATH": "/a", "BOXWRIGHT_CONFIG": "/b"}) == Path("/b")


def test_a_bad_file_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says what is wrong and exits with 1."""
    assert main(["--config", str(tmp_path / "none.toml")]) == 1
    assert "none.toml" in capsys.readouterr().err
