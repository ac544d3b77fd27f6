"""gateway/runtimes/docker/render.py: the plan as the engine's JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.runtimes.docker import render
from gateway.sandboxes.model import BundleMount, Hardening, Limits, Mount, RegistryAuth, SandboxPlan, Secret
from specs import names

PLAN = SandboxPlan(
    sandbox_id="abc",
    instance="inst",
    image="python:3.12",
    platform=None,
    auth=RegistryAuth("user", Secret("hunter2")),
    entrypoint=("sleep", "60"),
    env=(("A", "1"),),
    token_hash="sha256:00",
    labels=(("team", "red"),),
    limits=Limits(nano_cpus=500_000_000, memory_bytes=64 << 20, pids=128),
    mounts=(),
    extra_binds=("/srv/ca:/ca:ro",),
    hardening=Hardening(drop_capabilities=("NET_RAW", "SYS_ADMIN")),
    bundle=BundleMount("/var/lib/bundle", ("/opt/boxwright/execd",)),
    network="bridge",
    publish_host="127.0.0.1",
    publish_ports=(40000, 40100),
    runtime=None,
    stop_grace_seconds=10,
)


def body(plan: SandboxPlan = PLAN, **changed: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"image": "sha256:1", "image_env": {}, "sources": {}} | changed
    return render.container(plan, **options)


def env(plan: SandboxPlan = PLAN, **changed: Any) -> dict[str, str]:
    return dict(item.split("=", 1) for item in body(plan, **changed)["Env"])


def test_execd_runs_the_users_command() -> None:
    """
    The bundle's entrypoint gets the request's entrypoint as its arguments, behind "--".
    """
    out = body()

    assert out["Entrypoint"] == ["/opt/boxwright/execd", "--"]
    assert out["Cmd"] == ["sleep", "60"]
    assert out["Image"] == "sha256:1"
    assert out["StopSignal"] == "SIGTERM"
    assert out["Healthcheck"] == {"Test": ["NONE"]}


def test_only_execds_port_is_published_inside_the_range() -> None:
    """
    One port, on the configured address, and the engine chooses within the range.
    """
    out = body()

    assert out["ExposedPorts"] == {"44772/tcp": {}}
    assert out["HostConfig"]["PortBindings"] == {
        "44772/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40000-40100"}]
    }
    assert out["HostConfig"]["PublishAllPorts"] is False


@pytest.mark.parametrize("network", ["none", "host"])
def test_networks_without_ports_publish_none(network: str) -> None:
    """
    A port cannot be published where there is no network of the sandbox's own.
    """
    out = body(replace(PLAN, network=network))

    assert "ExposedPorts" not in out
    assert "PortBindings" not in out["HostConfig"]


def test_the_default_is_hardened() -> None:
    """
    Nothing privileged, no new privileges, no extra capability, limits without extra swap.
    """
    host = body()["HostConfig"]

    assert host["Privileged"] is False
    assert host["CapAdd"] == []
    assert host["CapDrop"] == ["NET_RAW", "SYS_ADMIN"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["IpcMode"] == "private"
    assert host["Memory"] == host["MemorySwap"] == 64 << 20
    assert host["PidsLimit"] == 128
    assert host["NanoCpus"] == 500_000_000
    assert host["RestartPolicy"] == {"Name": "no"}
    assert host["AutoRemove"] is False
    assert host["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "2"}
    assert "PidMode" not in host
    assert "Devices" not in host
    assert "MaskedPaths" not in host


def test_no_limits_means_no_limit_keys() -> None:
    """
    What the plan leaves open is left to the engine.
    """
    host = body(replace(PLAN, limits=Limits()))["HostConfig"]

    assert not {"Memory", "MemorySwap", "NanoCpus", "PidsLimit", "DeviceRequests"} & host.keys()


def test_gpus_become_a_device_request() -> None:
    """
    Minus one asks for all of them.
    """
    host = body(replace(PLAN, limits=Limits(gpus=-1)))["HostConfig"]

    assert host["DeviceRequests"] == [{"Count": -1, "Capabilities": [["gpu"]]}]


def test_isolation_is_rendered_only_when_the_plan_has_it() -> None:
    """
    Making namespaces inside takes SYS_ADMIN, unconfined profiles and unmasked paths; other drops stay.
    """
    host = body(replace(PLAN, hardening=replace(PLAN.hardening, isolation=True)))["HostConfig"]

    assert host["CapAdd"] == ["SYS_ADMIN"]
    assert host["CapDrop"] == ["NET_RAW"]
    assert host["SecurityOpt"] == ["no-new-privileges", "seccomp=unconfined", "apparmor=unconfined"]
    assert host["MaskedPaths"] == host["ReadonlyPaths"] == []
    assert "/var/lib/execd/isolation" in host["Tmpfs"]
    assert host["Privileged"] is False


def test_profiles_are_passed_on() -> None:
    """
    A profile of the settings replaces the engine's default.
    """
    hardening = replace(
        PLAN.hardening, seccomp_profile="{}", apparmor_profile="mine", no_new_privileges=False
    )

    assert body(replace(PLAN, hardening=hardening))["HostConfig"]["SecurityOpt"] == [
        "seccomp={}",
        "apparmor=mine",
    ]


def test_a_read_only_root_has_a_scratch_folder() -> None:
    """
    Programs need somewhere to write, unless the request mounts its own.
    """
    plan = replace(PLAN, hardening=replace(PLAN.hardening, read_only_root=True))
    host = body(plan)["HostConfig"]
    own = body(replace(plan, mounts=(Mount("t", "volume", "v", "/tmp/"),)))["HostConfig"]

    assert host["ReadonlyRootfs"] is True
    assert set(host["Tmpfs"]) == {"/run/boxwright", "/tmp"}
    assert set(own["Tmpfs"]) == {"/run/boxwright"}


def test_the_state_folder_is_a_small_tmpfs() -> None:
    """
    Any user of the image can write there, and nobody can gain from what lies there.
    """
    options = set(body()["HostConfig"]["Tmpfs"][names.MOUNT_STATE].split(","))

    assert {"mode=1777", "size=64m", "nosuid", "nodev"} <= options


def test_our_environment_wins_and_credentials_stay_out() -> None:
    """
    A user cannot speak in the gateway's name, and no token or registry password is in the body.
    """
    hostile = replace(
        PLAN,
        env=(
            ("OPENSANDBOX_ID", "other"),
            ("EXECD_ACCESS_TOKEN", "stolen"),
            ("BOXWRIGHT_STATE_DIR", "/x"),
            ("B", "x=y"),
        ),
    )

    assert env(hostile) == {
        "OPENSANDBOX_ID": "abc",
        "B": "x=y",
        "EXECD_ENVS": "/run/boxwright/env/vars",
        "BOXWRIGHT_STATE_DIR": "/run/boxwright",
        "BOXWRIGHT_ACCESS_TOKEN_HASH": "sha256:00",
    }
    assert "hunter2" not in repr(body(hostile))


@pytest.mark.parametrize(
    ("request_env", "image_env", "expected"),
    [
        ((), {}, (None, None)),
        ((), {"LD_PRELOAD": "/i.so"}, ("", "/i.so")),
        ((("LD_PRELOAD", "/r.so"),), {"LD_PRELOAD": "/i.so"}, ("", "/r.so")),
        ((("LD_PRELOAD", ""),), {}, ("", None)),
        ((("BOXWRIGHT_LD_PRELOAD", "/x.so"),), {}, (None, None)),
    ],
)
def test_preloads_are_kept_from_execd(
    request_env: tuple[tuple[str, str], ...],
    image_env: dict[str, str],
    expected: tuple[str | None, str | None],
) -> None:
    """
    LD_PRELOAD is blank for execd; its value travels under another name.
    """
    out = env(replace(PLAN, env=request_env), image_env=image_env)

    assert (out.get("LD_PRELOAD"), out.get("BOXWRIGHT_LD_PRELOAD")) == expected


def test_labels_say_whose_it_is() -> None:
    """
    Identity labels cannot be overwritten by the plan's.
    """
    out = render.labels(replace(PLAN, labels=((names.LABEL_ID, "forged"), ("team", "red"))))

    assert out == {
        names.LABEL_ID: "abc",
        names.LABEL_INSTANCE: "inst",
        names.LABEL_MANAGED_BY: "boxwright",
        "team": "red",
    }


def test_mounts() -> None:
    """
    The bundle is always first and read-only; subpaths are a private place or the engine's own.
    """
    plan = replace(
        PLAN,
        mounts=(
            Mount("h", "bind", "/data/x", "/x", read_only=True),
            Mount("v", "volume", "vol", "/v"),
            Mount("s", "volume", "vol", "/s", subpath="a/b"),
        ),
    )
    bundle, host, named, held = body(plan, sources={"s": "/run/held/abc-2"})["HostConfig"]["Mounts"]
    native = body(plan, native_subpaths=True)["HostConfig"]["Mounts"][3]

    read_only = {"Propagation": "rprivate", "NonRecursive": True}
    assert bundle == {
        "Type": "bind",
        "Source": "/var/lib/bundle",
        "Target": "/opt/boxwright",
        "ReadOnly": True,
        "BindOptions": read_only,
    }
    assert (host["Source"], host["ReadOnly"], host["BindOptions"]) == ("/data/x", True, read_only)
    assert named == {"Type": "volume", "Source": "vol", "Target": "/v", "ReadOnly": False}
    assert (held["Type"], held["Source"], held["Target"]) == ("bind", "/run/held/abc-2", "/s")
    assert native["VolumeOptions"] == {"Subpath": "a/b"}
    assert body()["HostConfig"]["Binds"] == ["/srv/ca:/ca:ro"]


def test_a_secure_runtime_is_named() -> None:
    """
    No runtime in the plan means the engine's default, said by silence.
    """
    assert "Runtime" not in body()["HostConfig"]
    assert body(replace(PLAN, runtime="runsc"))["HostConfig"]["Runtime"] == "runsc"


def test_volumes_carry_their_maker() -> None:
    """
    The label tells which sandbox takes the volume away again.
    """
    out = render.volume("v", "abc", "inst")

    assert out["Labels"] == {
        names.LABEL_VOLUME_MANAGED_BY: "server",
        names.LABEL_INSTANCE: "inst",
        names.LABEL_ID: "abc",
    }
