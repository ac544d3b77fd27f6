"""What the operations need from the world, as protocols.

Every implementation passes the contract suite of its port (`tests/contracts/`), the
in-memory fakes included. All methods are cancellable and bounded: an implementation
takes its deadlines from settings and raises `EngineTimeout` / `EngineUnavailable`;
"unknown" is never reported as "absent".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from gateway.sandboxes.model import (
    Address,
    LifeEvent,
    Observed,
    RegistryAuth,
    SandboxPlan,
    SandboxRecord,
    Secret,
)

Progress = Callable[[str], None]
"""Called with one short sentence whenever something worth telling happened (pull progress)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do, as declared data."""

    pause: bool
    snapshots: bool = False
    pools: bool = False
    templates: bool = False
    network_policy: bool = False
    credential_proxy: bool = False
    secure_access: bool = False
    signed_endpoints: bool = False


class Runtime(Protocol):
    """A container backend. Every verb is idempotent by sandbox id."""

    capabilities: Capabilities

    async def ensure_image(
        self, image: str, plan: SandboxPlan, auth: RegistryAuth | None, progress: Progress
    ) -> None:
        """
        Make the image present, pulling it when it is not (or its platform does not fit).

        Raises:
            ImageRefused: unknown image, bad credentials, platform not in the image.
            ImagePullFailed: the registry or the engine failed.
        """
        ...

    async def missing_volumes(self, plan: SandboxPlan) -> tuple[str, ...]:
        """
        Name the plan's named volumes that do not exist yet; refuse what cannot be mounted.

        Raises:
            VolumeError: `create` is false and the volume is missing; subpath on a driver without it.
        """
        ...

    async def create(self, plan: SandboxPlan) -> None:
        """
        Create missing volumes and the stopped workload. A second call for the same id is a no-op.

        Raises:
            StartFailed, VolumeError
        """
        ...

    async def start(self, sandbox_id: str) -> Address:
        """
        Start the workload and say where execd will answer. A started one just says where.

        Raises:
            EntrypointFailed: the image lacks what is needed to start.
            StartFailed: the engine could not start it (its own words in the message).
        """
        ...

    async def observe(self, sandbox_id: str) -> Observed | None:
        """Ask the engine about one sandbox; None only when the engine positively says it does not exist."""
        ...

    async def observe_all(self) -> list[Observed]:
        """Ask the engine about every sandbox of this installation."""
        ...

    async def pause(self, sandbox_id: str) -> None: ...

    async def resume(self, sandbox_id: str) -> None: ...

    async def remove(self, sandbox_id: str, *, volumes: tuple[str, ...], grace_seconds: int) -> None:
        """
        TERM, grace, KILL, remove, then remove the named volumes. Absent parts are fine.

        Raises:
            DeleteFailed: something is still there; calling again is safe.
        """
        ...

    async def logs(self, sandbox_id: str, *, tail: int, since: datetime | None, timestamps: bool) -> str:
        """Return the newest lines of the workload's own output."""
        ...

    async def inspect_text(self, sandbox_id: str) -> str:
        """Describe the workload for a human; values of secret-looking environment names hidden."""
        ...

    def changes(self) -> AsyncIterator[Observed]:
        """
        Yield what changed, as the engine's own event stream tells it, for ever.

        After a broken stream it reconnects and yields everything that may have changed meanwhile.
        """
        ...

    async def ping(self) -> None:
        """
        Ask the engine for a sign of life.

        Raises:
            EngineUnavailable
        """
        ...

    async def close(self) -> None: ...


class ExecdPeer(Protocol):
    """The daemon inside a sandbox, as far as the gateway talks to it."""

    async def wait_ready(self, address: Address, *, deadline: float) -> bool:
        """Return True as soon as execd answers, False when `deadline` seconds passed first."""
        ...


class Store(Protocol):
    """Durable state. Every method is one transaction."""

    async def insert(
        self, record: SandboxRecord, event: LifeEvent, *, idempotency_key: str | None = None
    ) -> SandboxRecord | None:
        """
        Record a new sandbox, and bind the client's key to it.

        Returns:
            None when it is recorded; the record bound to the same key of the same owner earlier, in
            which case nothing was written. A create that failed gives its key free again.
        """
        ...

    async def get(self, sandbox_id: str) -> SandboxRecord | None:
        """Return a live record or a tombstone (`deleted_at` set)."""
        ...

    async def update(self, record: SandboxRecord, *events: LifeEvent) -> SandboxRecord | None:
        """Compare `version` and set; return the new record, or None when someone was faster."""
        ...

    async def page(
        self,
        *,
        states: tuple[str, ...] | None,
        metadata: tuple[tuple[str, str], ...],
        offset: int,
        limit: int,
    ) -> tuple[list[SandboxRecord], int]:
        """Return a page of live records, newest first, and how many match; `None` is any state, `()` none."""
        ...

    async def due(self, moment: datetime, limit: int) -> list[SandboxRecord]:
        """Return live records whose expiry is not after `moment`, the earliest first."""
        ...

    async def next_expiry(self) -> datetime | None:
        """Return the earliest expiry of all live records."""
        ...

    async def unfinished(self) -> list[SandboxRecord]:
        """Return records with a sequence under way, tombstones included, for the sweep at start."""
        ...

    async def all_live(self) -> list[SandboxRecord]: ...

    async def events(self, sandbox_id: str, limit: int) -> list[LifeEvent]:
        """Return the newest events of a sandbox, oldest first."""
        ...

    async def add_event(self, event: LifeEvent) -> None: ...

    async def purge(self, before: datetime) -> int:
        """Forget finished tombstones older than `before`, with all that hangs on them; return how many."""
        ...

    async def instance(self) -> str:
        """Return the id of this installation, made with the store."""
        ...

    async def enlist(self) -> str:
        """
        Put this process among those at work on the store; return its id, the same one each time.

        It stays there until it ends, however it ends.
        """
        ...

    async def enlisted(self) -> frozenset[str]:
        """Return the ids of all processes at work on the store now; one that was killed is not among them."""
        ...

    async def foreign_writes(self) -> int:
        """Return a number that is another one after any other process wrote."""
        ...

    async def ping(self) -> None:
        """Read something."""
        ...


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One API key, without the key: that is shown once, when it is made."""

    key_id: str
    name: str
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class Keys(Protocol):
    """API keys, of which only hashes are kept."""

    async def create(self, name: str) -> tuple[ApiKey, Secret]:
        """Make a key; the secret is not to be had again."""
        ...

    async def ensure_first(self, text: Secret) -> ApiKey:
        """Accept a key that the operator chose, under the name `first`. Another text replaces it."""
        ...

    async def find(self, text: str) -> ApiKey | None:
        """Return the key that `text` is, None when it is none or was revoked."""
        ...

    async def touch(self, key_id: str) -> None:
        """Note that a key was used."""
        ...

    async def list(self) -> tuple[ApiKey, ...]: ...

    async def revoke(self, key_id: str) -> bool:
        """End a key at once; False when there is no such key in force."""
        ...


class Clock(Protocol):
    def now(self) -> datetime: ...
