"""The frozen values that travel between the rooms of the gateway.

`SandboxPlan` is everything a runtime needs to make one sandbox and nothing it must
look up. `SandboxRecord` is what the store remembers of it. `Observed` is what the
engine says of it right now.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn


class State(StrEnum):
    """Protocol states (lifecycle contract §3.1)."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    STOPPING = "Stopping"
    TERMINATED = "Terminated"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class Secret:
    """A value that can be used on purpose and not printed by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


@dataclass(frozen=True, slots=True)
class RegistryAuth:
    """Credentials for one pull; never stored, never logged."""

    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class Platform:
    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}/{self.arch}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings of one sandbox. `None` means the engine's own (no) limit."""

    nano_cpus: int | None = None
    memory_bytes: int | None = None
    swap_bytes: int | None = None  # memory + swap together, as the engine counts
    pids: int | None = None
    gpus: int | None = None  # -1 = all


@dataclass(frozen=True, slots=True)
class Mount:
    """One volume of one sandbox.

    Attributes:
        kind: "bind" (a host path) or "volume" (a named volume).
        source: host path (already resolved and allowed) or volume name.
        target: absolute path inside the sandbox.
        subpath: relative path below `source` (volumes only; binds carry it resolved in `source`).
        create: make a missing named volume / host directory.
        delete_with_sandbox: remove the named volume with the sandbox if this sandbox created it.
    """

    name: str
    kind: str
    source: str
    target: str
    read_only: bool = False
    subpath: str | None = None
    create: bool = True
    delete_with_sandbox: bool = False


@dataclass(frozen=True, slots=True)
class Hardening:
    """What a workload may not do (defaults are the safe ones)."""

    drop_capabilities: tuple[str, ...]
    no_new_privileges: bool = True
    seccomp_profile: str | None = None  # None = the engine's default profile
    apparmor_profile: str | None = None
    read_only_root: bool = False
    isolation: bool = False  # extensions["bootstrap.execd.isolation"] == "enable"


@dataclass(frozen=True, slots=True)
class BundleMount:
    """The execd bundle as the runtime mounts and starts it."""

    path: str  # on the engine's host
    entrypoint: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """One sandbox to be made, decided to the last detail."""

    sandbox_id: str
    instance: str  # which installation makes it (label; adoption and orphan sweep look at it)
    image: str
    platform: Platform | None
    auth: RegistryAuth | None
    entrypoint: tuple[str, ...]
    env: tuple[tuple[str, str], ...]  # of the user's processes: settings.sandbox_env overlaid by the request
    token_hash: str  # "sha256:<hex>" of execd's access token
    labels: tuple[tuple[str, str], ...]
    limits: Limits
    mounts: tuple[Mount, ...]
    extra_binds: tuple[str, ...]  # docker.sandbox_binds, "src:dst[:ro]"
    hardening: Hardening
    bundle: BundleMount
    network: str  # engine network name; "bridge" by default
    publish_host: str
    publish_ports: tuple[int, int]  # host port range, inclusive
    runtime: str | None  # engine runtime such as "runsc"; None = the engine's default
    stop_grace_seconds: int


@dataclass(frozen=True, slots=True)
class Address:
    """Where execd of one sandbox answers."""

    ip: str | None  # inside the engine's network; reachable from the gateway's host
    port: int  # execd's port at `ip`
    published_host: str | None
    published_port: int | None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the engine says of one sandbox, at one moment."""

    sandbox_id: str
    phase: str  # created | running | paused | restarting | removing | exited | dead | gone (only in a stream)
    exit_code: int | None = None
    oom_killed: bool = False
    error: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    address: Address | None = None
    instance: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    reason: str
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """What the store remembers of one sandbox.

    `step` is what was about to be done of the sequence under way ("" when none is) and `worker` the
    gateway process that does it; `version` is compared and set on every update. A record with
    `deleted_at` is a tombstone.
    """

    sandbox_id: str
    status: Status
    created_at: datetime
    expires_at: datetime | None
    image: str
    entrypoint: tuple[str, ...]
    metadata: dict[str, str]
    extensions: dict[str, str]
    platform: Platform | None
    token_salt: str
    address: Address | None
    managed_volumes: tuple[str, ...]  # named volumes this sandbox created and takes with it
    exit_code: int | None = None
    step: str = ""
    worker: str = ""
    deleted_at: datetime | None = None
    owner: str = ""  # id of the API key that created it
    version: int = 0
    spec: dict[str, Any] = field(
        default_factory=dict
    )  # the request without secrets: limits, volumes, env names


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """One line of a sandbox's history."""

    sandbox_id: str
    at: datetime
    reason: str
    message: str
