"""A plan, as the engine's own JSON (pure).

Source: Docker Engine API 1.41, `POST /containers/create`. Everything that a workload
may not do is said here and nowhere else; nothing in this file can ask for a privileged
container.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.sandboxes.model import Hardening, Limits, Mount, SandboxPlan
from specs import names

MANAGER: Final = "boxwright"
VOLUME_MANAGER: Final = "server"
EXECD_PORT: Final = f"{names.PORT_EXECD}/tcp"
STATE_TMPFS: Final = "rw,nosuid,nodev,mode=1777,size=64m,nr_inodes=16384"
SCRATCH_TMPFS: Final = "rw,nosuid,nodev,exec,mode=1777"
ISOLATION_DIR: Final = "/var/lib/execd/isolation"
LOG_CONFIG: Final = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "2"}}

# Kept from the user's environment: they would speak to execd in the gateway's name.
_NOT_FROM_USERS: Final = frozenset(
    {names.ENV_ACCESS_TOKEN, names.ENV_ACCESS_TOKEN_HASH, names.ENV_STATE_DIR, names.ENV_LD_PRELOAD}
)


def container_name(sandbox_id: str) -> str:
    return f"{names.CONTAINER_PREFIX}{sandbox_id}"


def container(
    plan: SandboxPlan,
    *,
    image: str,
    image_env: dict[str, str],
    sources: dict[str, str],
    native_subpaths: bool = False,
) -> dict[str, Any]:
    """
    Render the body of the create call.

    Args:
        plan: the sandbox, decided to the last detail.
        image: what to run, as the engine knows it (the id of the image that was judged).
        image_env: the image's own environment; only LD_PRELOAD matters.
        sources: mount name → host path, where it differs from the plan's (a subpath made stable).
        native_subpaths: the engine mounts subpaths of volumes itself (API 1.45 and newer).
    """
    published = plan.network not in {"host", "none"}
    body: dict[str, Any] = {
        "Image": image,
        "Entrypoint": [*plan.bundle.entrypoint, "--"],
        "Cmd": list(plan.entrypoint),
        "Env": environment(plan, image_env),
        "Labels": labels(plan),
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host_config(plan, sources=sources, native_subpaths=native_subpaths),
    }
    if published:
        body["ExposedPorts"] = {EXECD_PORT: {}}
    return body


def environment(plan: SandboxPlan, image_env: dict[str, str]) -> list[str]:
    """
    Compose the container's environment: the user's, then ours, which wins.

    A library that the image or the user preloads must not load into execd: the
    variable is blanked and its value kept for the user's own processes.
    """
    out = {name: value for name, value in plan.env if name not in _NOT_FROM_USERS}
    preload = out.get("LD_PRELOAD", image_env.get("LD_PRELOAD"))
    if preload:
        out["LD_PRELOAD"] = ""
        out[names.ENV_LD_PRELOAD] = preload
    out[names.ENV_SANDBOX_ID] = plan.sandbox_id
    out[names.ENV_ENVS_FILE] = names.ENVS_FILE
    out[names.ENV_STATE_DIR] = names.MOUNT_STATE
    out[names.ENV_ACCESS_TOKEN_HASH] = plan.token_hash
    return [f"{name}={value}" for name, value in out.items()]


def labels(plan: SandboxPlan) -> dict[str, str]:
    return dict(plan.labels) | {
        names.LABEL_ID: plan.sandbox_id,
        names.LABEL_INSTANCE: plan.instance,
        names.LABEL_MANAGED_BY: MANAGER,
    }


def volume(name: str, sandbox_id: str, instance: str) -> dict[str, Any]:
    """Render the body that creates a named volume; the label says who takes it away again."""
    return {
        "Name": name,
        "Driver": "local",
        "Labels": {
            names.LABEL_VOLUME_MANAGED_BY: VOLUME_MANAGER,
            names.LABEL_INSTANCE: instance,
            names.LABEL_ID: sandbox_id,
        },
    }


def host_config(plan: SandboxPlan, *, sources: dict[str, str], native_subpaths: bool) -> dict[str, Any]:
    published = plan.network not in {"host", "none"}
    low, high = plan.publish_ports
    config: dict[str, Any] = {
        "NetworkMode": plan.network,
        "Mounts": [
            _bind(plan.bundle.path, names.MOUNT_BUNDLE, read_only=True),
            *(_mount(mount, sources, native_subpaths=native_subpaths) for mount in plan.mounts),
        ],
        "Binds": list(plan.extra_binds),
        "Tmpfs": _tmpfs(plan),
        "LogConfig": LOG_CONFIG,
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "Privileged": False,
        "PublishAllPorts": False,
        "IpcMode": "private",
        "ReadonlyRootfs": plan.hardening.read_only_root,
        **_confinement(plan.hardening),
        **_limits(plan.limits),
    }
    if published:
        # A range leaves the choice to the engine, which makes it without a race.
        port_range = str(low) if low == high else f"{low}-{high}"
        config["PortBindings"] = {EXECD_PORT: [{"HostIp": plan.publish_host, "HostPort": port_range}]}
    if plan.runtime is not None:
        config["Runtime"] = plan.runtime
    return config


def _confinement(hardening: Hardening) -> dict[str, Any]:
    drop = list(hardening.drop_capabilities)
    options = ["no-new-privileges"] if hardening.no_new_privileges else []
    if hardening.isolation:
        # What making namespaces inside the sandbox takes (lifecycle §2.9); the plan allowed it.
        return {
            "CapAdd": ["SYS_ADMIN"],
            "CapDrop": [name for name in drop if name.removeprefix("CAP_") != "SYS_ADMIN"],
            "SecurityOpt": [*options, "seccomp=unconfined", "apparmor=unconfined"],
            "MaskedPaths": [],
            "ReadonlyPaths": [],
        }
    if hardening.seccomp_profile is not None:
        options.append(f"seccomp={hardening.seccomp_profile}")
    if hardening.apparmor_profile is not None:
        options.append(f"apparmor={hardening.apparmor_profile}")
    return {"CapAdd": [], "CapDrop": drop, "SecurityOpt": options}


def _limits(limits: Limits) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if limits.nano_cpus is not None:
        out["NanoCpus"] = limits.nano_cpus
    if limits.memory_bytes is not None:
        out["Memory"] = limits.memory_bytes
        # Without it the engine would add as much swap again.
        out["MemorySwap"] = limits.memory_bytes if limits.swap_bytes is None else limits.swap_bytes
    if limits.pids is not None:
        out["PidsLimit"] = limits.pids
    if limits.gpus is not None:
        out["DeviceRequests"] = [{"Count": limits.gpus, "Capabilities": [["gpu"]]}]
    return out


def _tmpfs(plan: SandboxPlan) -> dict[str, str]:
    out = {names.MOUNT_STATE: STATE_TMPFS}
    targets = {mount.target.rstrip("/") for mount in plan.mounts}
    if plan.hardening.read_only_root and "/tmp" not in targets:  # noqa: S108 - a path inside the sandbox
        out["/tmp"] = SCRATCH_TMPFS  # noqa: S108
    if plan.hardening.isolation:
        out[ISOLATION_DIR] = SCRATCH_TMPFS
    return out


def _mount(mount: Mount, sources: dict[str, str], *, native_subpaths: bool) -> dict[str, Any]:
    if mount.kind == "bind" or mount.name in sources:
        return _bind(sources.get(mount.name, mount.source), mount.target, read_only=mount.read_only)
    out: dict[str, Any] = {
        "Type": "volume",
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
    }
    if mount.subpath and native_subpaths:
        out["VolumeOptions"] = {"Subpath": mount.subpath}
    return out


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    # "Read-only" covers only the top mount on engines before API 1.44: what is mounted
    # below it is left out rather than carried along writable.
    options: dict[str, Any] = {"Propagation": "rprivate"}
    if read_only:
        options["NonRecursive"] = True
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": options}
