"""The systemd unit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from boxwright.service import UnitFacts, put, quoted, unit

PLAIN = UnitFacts(program="/opt/box wright/bin/boxwright", home="/var/lib/boxwright", writable=("/srv/data",))


def values(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_is_confined() -> None:
    """The gateway gains nothing, sees the system read-only, and writes only where its state is."""
    found = values(unit(PLAIN))
    assert found["NoNewPrivileges"] == ["yes"]
    assert found["ProtectSystem"] == ["strict"]
    assert found["CapabilityBoundingSet"] == ["CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_NET_BIND_SERVICE"]
    assert found["ReadWritePaths"] == [
        "/var/lib/boxwright /var/cache/boxwright -/var/lib/docker/volumes -/srv/data"
    ]


def test_the_log_of_the_service_has_no_key() -> None:
    """The greeting, which shows the first key, is off."""
    assert "--no-greeting" in values(unit(PLAIN))["ExecStart"][0]


def test_an_engine_that_shares_our_mounts_gets_no_private_ones() -> None:
    """No option that makes a mount namespace is there where the engine must see the gateway's mounts."""
    found = values(unit(UnitFacts(program="/b", home="/h", mounts=True)))
    private = {
        "ProtectSystem",
        "ReadWritePaths",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
    }
    private |= {"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups"}
    assert not private & set(found)
    assert "CAP_SYS_ADMIN" in found["CapabilityBoundingSet"][0]


def test_settings_and_engine_go_along() -> None:
    """The configuration file and another engine's address are in the unit's environment."""
    about = UnitFacts(program="/b", home="/h", config="/etc/b.toml", engine="tcp://far:1")
    assert {"BOXWRIGHT_CONFIG=/etc/b.toml", "DOCKER_HOST=tcp://far:1"} <= set(
        values(unit(about))["Environment"]
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [("/plain", "/plain"), ("/100%", "/100%%"), ("/a b", '"/a b"'), ('a"\\', '"a\\"\\\\"')],
)
def test_values_are_written_as_systemd_reads_them(text: str, written: str) -> None:
    """Blanks, quotes and specifiers stand for themselves."""
    assert quoted(text) == written


def test_a_unit_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Installing twice writes once."""
    path = tmp_path / "boxwright.service"
    put(path, "text")
    stamp = path.stat().st_mtime_ns
    put(path, "text")
    assert path.stat().st_mtime_ns == stamp
    put(path, "other")
    assert path.read_text() == "other"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
@pytest.mark.parametrize("mounts", [True, False])
def test_systemd_understands_every_line(tmp_path: Path, mounts: bool) -> None:
    """systemd's own check finds nothing to say about the unit."""
    path = tmp_path / "boxwright.service"
    path.write_text(unit(UnitFacts(program="/bin/true", home="/var/lib/boxwright", mounts=mounts)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "boxwright.service" in line]
    assert complaints == []
