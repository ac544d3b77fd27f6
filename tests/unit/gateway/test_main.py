"""The gateway does not start where nobody could call it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
import structlog

from gateway.__main__ import config_path, configure_logs, main, prepare
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


def test_a_logged_failure_holds_no_local_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback in the log names the places and never the values: keys and output are among those."""
    handlers = list(logging.getLogger().handlers)
    try:
        configure_logs(load(None, {}))
        planted = "planted" + "-secret"
        try:
            _fail_with(planted.encode())
        except ValueError:
            structlog.get_logger("test").exception("broke")
            logging.getLogger("elsewhere").exception("broke too")
    finally:
        logging.basicConfig(handlers=handlers, force=True)
        structlog.reset_defaults()
    said = capsys.readouterr().err
    assert "_fail_with" in said
    assert said.count("ValueError") >= 2
    assert "planted-secret" not in said


def _fail_with(secret: bytes) -> None:
    raise ValueError(f"{len(secret)} bytes")
