"""One reader, one tree, and a refusal that says where, what and how to mend it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gateway.config import SECTIONS, BadSetting, load, render_sample


def written(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text)
    return path


def test_defaults_are_the_safe_ones() -> None:
    """Without any setting: loopback, bridge, no host path, no weakening."""
    settings = load(None, {})
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8080)
    assert (settings.docker.network_mode, settings.docker.publish_host) == ("bridge", "127.0.0.1")
    assert settings.docker.no_new_privileges
    assert settings.docker.pids_limit == 4096
    assert settings.storage.allowed_host_paths == ()
    assert settings.server.cors_origins == ()
    assert settings.warnings == ()


def test_an_opensandbox_file_is_accepted(tmp_path: Path) -> None:
    """The other server's file works; what has no effect is reported, unknown keys too."""
    path = written(
        tmp_path,
        """
        [server]
        host = "0.0.0.0"
        port = 9000
        api_key = "planted-secret-of-the-file"
        loop = "uvloop"
        max_sandbox_timeout_seconds = 3600
        [runtime]
        type = "docker"
        execd_image = "opensandbox/execd:v1.1.0"
        [docker]
        network_mode = "bridge"
        sandbox_env = {A = "1"}
        sandbox_binds = ["/a:/b:ro"]
        [storage]
        allowed_host_paths = ["/srv/data"]
        [store]
        type = "sqlite"
        [egress]
        image = "opensandbox/egress:v1.1.7"
        [tenants]
        provider = "file"
        [kubernetes]
        namespace = "x"
        """,
    )
    settings = load(path, {})
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 9000)
    assert settings.server.max_sandbox_timeout_seconds == 3600
    assert settings.docker.sandbox_env == {"A": "1"}
    assert settings.storage.allowed_host_paths == ("/srv/data",)
    told = "\n".join(settings.warnings)
    for word in ("[server] loop", "[egress]", "[tenants]", "[kubernetes]"):
        assert word in told
    assert "planted-secret" not in repr(settings)
    assert "planted-secret" not in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nport = 70000", ["[server] port", "1..65535"]),
        ('[server]\nport = "80"', ["[server] port", "whole number"]),
        ("[server]\nport = true", ["[server] port"]),
        ('[log]\nlevel = "loud"', ["[log] level", "DEBUG"]),
        ('[runtime]\ntype = "kubernetes"', ["[runtime] type", "docker"]),
        ('[store]\ntype = "postgresql"', ["[store] type", "sqlite"]),
        ('[ingress]\nmode = "gateway"', ["[ingress] mode", "direct"]),
        ('[docker]\nnetwork_mode = "host"', ["[docker] network_mode", "bridge"]),
        ("[docker]\nport_range_min = 50000\nport_range_max = 50050", ["port_range_max", "100"]),
        ('[storage]\nallowed_host_paths = ["data"]', ["allowed_host_paths", "absolute"]),
        ('[storage]\nallowed_host_paths = ["/"]', ["allowed_host_paths"]),
        ('[storage]\nallowed_host_paths = "/srv"', ["allowed_host_paths", "list"]),
        ("[docker]\nsandbox_env = {A = 1}", ["sandbox_env", "table"]),
        ('[secure_runtime]\ntype = "firecracker"', ["[secure_runtime] type", "gvisor"]),
        ("server = 1", ["server", "section"]),
        ("not toml", ["not TOML"]),
    ],
)
def test_a_bad_setting_stops_the_start(tmp_path: Path, text: str, words: list[str]) -> None:
    """File, section, key, what is wrong and what would do are in the message."""
    path = written(tmp_path, text)
    with pytest.raises(BadSetting) as refused:
        load(path, {})
    for word in (str(path), *words):
        assert word in str(refused.value)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    """A named file that is not there is no empty configuration."""
    with pytest.raises(BadSetting, match="cannot be read"):
        load(tmp_path / "none.toml", {})


def test_the_environment_wins(tmp_path: Path) -> None:
    """Each key has a variable; the short names are the ones people type."""
    path = written(tmp_path, "[server]\nport = 9000")
    environ = {
        "BOXWRIGHT_PORT": "9001",
        "BOXWRIGHT_HOST": "0.0.0.0",
        "BOXWRIGHT_HOME": "/tmp/x/../state",
        "BOXWRIGHT_API_KEY": "ours",
        "OPENSANDBOX_SERVER_API_KEY": "theirs",
        "BOXWRIGHT_DOCKER_PIDS_LIMIT": "100",
        "BOXWRIGHT_DOCKER_SANDBOX_ENV": "A=1,B=x=y",
        "BOXWRIGHT_STORAGE_ALLOWED_HOST_PATHS": "/a, /b",
        "BOXWRIGHT_SERVER_DOCS": "no",
        "BOXWRIGHT_LIMITS_MAX_CPUS": "2.5",
        "BOXWRIGHT_TYPO": "1",
        "OPENSANDBOX_INSECURE_SERVER": "YES",
    }
    settings = load(path, environ)
    assert (settings.server.port, settings.server.host, settings.server.api_key) == (9001, "0.0.0.0", "ours")
    assert settings.gateway.home == "/tmp/state"
    assert settings.database == Path("/tmp/state/boxwright.db")
    assert settings.docker.pids_limit == 100
    assert settings.docker.sandbox_env == {"A": "1", "B": "x=y"}
    assert settings.storage.allowed_host_paths == ("/a", "/b")
    assert not settings.server.docs
    assert settings.limits.max_cpus == 2.5
    told = "\n".join(settings.warnings)
    assert "BOXWRIGHT_TYPO" in told
    assert "OPENSANDBOX_INSECURE_SERVER" in told
    assert "could be guessed" in told
    with pytest.raises(BadSetting, match="BOXWRIGHT_PORT"):
        load(None, {"BOXWRIGHT_PORT": "many"})


def test_the_sample_is_the_settings() -> None:
    """The sample names each key once, and with its defaults uncommented it reads back as them."""
    sample = render_sample()
    lines = [line.removeprefix("#") for line in sample.splitlines() if not line.startswith("# ")]
    document = tomllib.loads("\n".join(line for line in lines if not line.endswith("# not set")))
    assert set(document) == set(SECTIONS)
    for name, kind in SECTIONS.items():
        for key, value in document[name].items():
            default = getattr(kind(), key)
            assert (tuple(value) if isinstance(default, tuple) else value) == default


@pytest.mark.parametrize(
    ("text", "runtime"),
    [
        ("", None),
        ('[runtime]\ndocker_runtime = "runsc"', "runsc"),
        ('[secure_runtime]\ntype = "gvisor"', "runsc"),
        ('[secure_runtime]\ntype = "kata"\ndocker_runtime = "kata-fc"', "kata-fc"),
    ],
)
def test_the_engine_runtime_is_named_in_either_section(
    tmp_path: Path, text: str, runtime: str | None
) -> None:
    """
    `[runtime] docker_runtime` and `[secure_runtime]` both choose the engine's runtime.
    """
    path = tmp_path / "boxwright.toml"
    path.write_text(text)
    assert load(path, {}).engine_runtime == runtime


def test_two_different_engine_runtimes_stop_the_start(tmp_path: Path) -> None:
    """
    Sections that contradict each other are refused, never resolved by guessing.
    """
    path = tmp_path / "boxwright.toml"
    path.write_text('[runtime]\ndocker_runtime = "crun"\n[secure_runtime]\ntype = "gvisor"')
    with pytest.raises(BadSetting, match="docker_runtime"):
        load(path, {})


def test_the_sample_read_back_is_the_defaults(tmp_path: Path) -> None:
    """
    A sample whose every line is uncommented means the same as no file at all.
    """
    path = tmp_path / "boxwright.toml"
    keys = re.compile(r"^# (\w+ = .*)$")
    path.write_text("\n".join(keys.sub(r"\1", line) for line in render_sample().splitlines()))
    assert load(path, {}) == load(None, {})


def test_an_empty_string_takes_a_default_away(tmp_path: Path) -> None:
    """
    `""` means "none" for a key that may be absent, in the file and in the environment.
    """
    path = tmp_path / "boxwright.toml"
    path.write_text('[limits]\ndefault_cpus = ""')
    settings = load(path, {"BOXWRIGHT_LIMITS_DEFAULT_MEMORY_MIB": ""})
    assert settings.limits.default_cpus is None
    assert settings.limits.default_memory_mib is None
    assert load(None, {}).limits.default_memory_mib == 2048
