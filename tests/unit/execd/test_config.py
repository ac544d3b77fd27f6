"""Settings, each promise as one sentence."""

import os
from pathlib import Path

import pytest

from execd.config import BadSetting, check_hash, load, user_environ
from specs.names import ENV_ACCESS_TOKEN, ENV_ENVS_FILE, ENV_LD_PRELOAD, ENV_PRIVATE, ENV_STATE_DIR

HASH = "sha256:" + "aB" * 32


def test_the_environment_is_read_once(tmp_path: Path) -> None:
    """Every setting has its value, the given ones theirs."""
    settings = load(
        {ENV_ACCESS_TOKEN: "t", ENV_STATE_DIR: str(tmp_path), ENV_ENVS_FILE: "/x/env", "A": "b"},
        port=1,
        host="::1",
    )
    assert (settings.port, settings.host, settings.token, settings.token_hash) == (1, "::1", "t", None)
    assert settings.state_dir == str(tmp_path)
    assert settings.envs_file == "/x/env"
    assert settings.base_environ["A"] == "b"


def test_user_processes_know_the_environment_file(tmp_path: Path) -> None:
    """EXECD_ENVS stays visible to commands, also when nobody set it (execd §4.2)."""
    settings = load({ENV_STATE_DIR: str(tmp_path)})
    assert settings.base_environ[ENV_ENVS_FILE] == settings.envs_file == f"{tmp_path}/env/vars"


def test_user_processes_never_see_our_names() -> None:
    """R53: Names that belong to execd do not reach user processes."""
    assert user_environ({name: "x" for name in ENV_PRIVATE if name != ENV_LD_PRELOAD} | {"A": "b"}) == {
        "A": "b"
    }


@pytest.mark.parametrize(
    ("environ", "preload"),
    [
        ({"LD_PRELOAD": "", ENV_LD_PRELOAD: "/lib/x.so"}, "/lib/x.so"),
        ({"LD_PRELOAD": "", ENV_LD_PRELOAD: ""}, None),
        ({"LD_PRELOAD": "/lib/y.so"}, "/lib/y.so"),
        ({"LD_PRELOAD": ""}, None),
        ({}, None),
    ],
)
def test_the_images_preload_is_given_back(environ: dict[str, str], preload: str | None) -> None:
    """User processes get the LD_PRELOAD that the image had, and none if it had none."""
    assert user_environ(environ).get("LD_PRELOAD") == preload


@pytest.mark.parametrize(
    "value", ["", "sha256:", "sha256:" + "a" * 63, "md5:" + "a" * 64, "sha256:" + "g" * 64, "a" * 64]
)
def test_a_malformed_hash_is_refused(value: str) -> None:
    """A hash that cannot match anything stops the start."""
    with pytest.raises(BadSetting):
        check_hash(value)


def test_a_hash_may_be_in_any_case() -> None:
    """Hexadecimal digits count the same in upper and lower case."""
    assert check_hash(HASH) == HASH.lower()


def test_an_empty_token_is_refused(tmp_path: Path) -> None:
    """An empty token is a mistake, not an open door."""
    with pytest.raises(BadSetting):
        load({ENV_ACCESS_TOKEN: "", ENV_STATE_DIR: str(tmp_path)})


@pytest.mark.parametrize("name", ["relative", "/proc/nothing", "/dev/null"])
def test_a_named_state_directory_must_work(name: str) -> None:
    """A state directory that was asked for is used or refused, never replaced."""
    with pytest.raises(BadSetting):
        load({ENV_STATE_DIR: name})


def test_a_state_directory_is_made(tmp_path: Path) -> None:
    """A missing state directory is made for us alone."""
    settings = load({ENV_STATE_DIR: str(tmp_path / "a")})
    assert os.stat(settings.state_dir).st_mode & 0o777 == 0o700
