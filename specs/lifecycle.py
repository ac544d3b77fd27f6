"""The shapes of the lifecycle API (published in `openapi/lifecycle.yaml`).

Members are camelCase on the wire; the Python name is taken on input too. Unknown members
are ignored unless a shape is closed. An answer leaves out what has no value. Checks here are the
ones that need nothing but the request; a message says which member is at fault and what would be
accepted, and never repeats what was sent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from specs.names import ENV_LIFECYCLE, EXTENSION_POOL_REF

NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
QUANTITY: Final = r"^\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|Ei)?$"
HOST_PATH: Final = r"^(/|[A-Za-z]:[\\/])"


def render_instant(moment: datetime) -> str:
    """
    Write an instant the way every answer does: UTC, microseconds, `Z`.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _as_utc(moment: datetime) -> datetime:
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:  # the last and first hours of the calendar, in another zone
        raise ValueError("is outside the years 1 to 9999 in UTC; give an instant inside") from error


def _blank_is_absent(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Instant = Annotated[
    datetime,
    AfterValidator(_as_utc),
    PlainSerializer(render_instant, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Text = Annotated[str, Field(min_length=1)]
BlankText = Annotated[str | None, BeforeValidator(_blank_is_absent)]
StringMap = dict[str, str]
Command = Annotated[list[str], Field(min_length=1)]


class Shape(BaseModel):
    """Base of every shape: camelCase outside, both spellings taken."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class ClosedShape(Shape):
    """A shape that refuses members it does not know."""

    model_config = ConfigDict(extra="forbid")


# -- errors ----------------------------------------------------------------------------


class Fault(Shape):
    loc: list[str | int]
    msg: str
    type: str


class ErrorResponse(Shape):
    code: str
    message: str
    details: list[Fault] | dict[str, Any] | None = None


# -- what a sandbox is made of -----------------------------------------------------------


class ImageAuth(Shape):
    username: str
    password: str = Field(repr=False, json_schema_extra={"writeOnly": True})


class ImageSpec(Shape):
    uri: str
    auth: ImageAuth | None = None


class ImageReference(Shape):
    uri: str


class PlatformSpec(Shape):
    """Which values exist is judged when a sandbox is planned (400, not 422)."""

    os: Annotated[str, BeforeValidator(_lower), Field(json_schema_extra={"enum": ["linux", "windows"]})]
    arch: Annotated[str, BeforeValidator(_lower), Field(json_schema_extra={"enum": ["amd64", "arm64"]})]


class LifecycleHook(ClosedShape):
    command: Command
    timeout_seconds: Annotated[int, Field(ge=1, le=10800)] | None = None


class PeriodicLifecycleHook(ClosedShape):
    name: Text
    schedule: Text
    command: Command
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] | None = None


class SandboxLifecycle(ClosedShape):
    pre_start: LifecycleHook | None = None
    periodic: list[PeriodicLifecycleHook] | None = None

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [hook.name.strip() for hook in self.periodic or ()]
        if "" in names or len(set(names)) != len(names):
            raise ValueError("periodic: each hook needs a name of its own that is not blank")
        return self


class NetworkRule(Shape):
    action: Literal["allow", "deny"]
    target: Text


class NetworkPolicy(Shape):
    default_action: Literal["allow", "deny"] | None = None
    egress: list[NetworkRule] | None = Field(
        default=None,
        json_schema_extra={"type": "array", "items": {"$ref": "#/components/schemas/NetworkRule"}},
    )


class NetworkPolicyStatus(Shape):
    status: str
    mode: str | None = None
    enforcement_mode: str | None = None
    reason: str | None = None
    policy: NetworkPolicy | None = None


class CredentialProxyConfig(Shape):
    enabled: bool = False


class Host(Shape):
    path: Annotated[str, Field(pattern=HOST_PATH)]


class PVC(Shape):
    claim_name: Annotated[str, Field(pattern=NAME, max_length=253)]
    create_if_not_exists: bool = True
    delete_on_sandbox_termination: bool = False
    storage_class: str | None = None
    storage: Annotated[str, Field(pattern=QUANTITY)] | None = None
    access_modes: list[str] | None = None


class OSSFS(Shape):
    bucket: Annotated[str, Field(min_length=3, max_length=63)]
    endpoint: Text
    version: Literal["1.0", "2.0"] = "2.0"
    options: list[str] | None = None
    access_key_id: Text | None = None
    access_key_secret: str | None = Field(
        default=None, min_length=1, repr=False, json_schema_extra={"writeOnly": True}
    )


class Volume(Shape):
    name: Annotated[str, Field(pattern=NAME, max_length=63)]
    host: Host | None = None
    pvc: PVC | None = None
    ossfs: OSSFS | None = None
    mount_path: Annotated[str, Field(pattern="^/.*")]
    read_only: bool = False
    sub_path: str | None = None

    @model_validator(mode="after")
    def _one_backend(self) -> Self:
        given = [name for name in ("host", "pvc", "ossfs") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of host, pvc and ossfs; {len(given)} were given")
        return self


TEMPLATE_EXCLUDES: Final = (
    "image",
    "snapshotId",
    "entrypoint",
    "env",
    "resourceLimits",
    "resourceRequests",
    "volumes",
    "platform",
    "credentialProxy",
    "secureAccess",
    "lifecycle",
)


class CreateSandboxRequest(Shape):
    """What to start, from where, with which limits and for how long (lifecycle §2.1)."""

    image: ImageSpec | None = None
    snapshot_id: BlankText = None
    template_id: Annotated[Text | None, BeforeValidator(_blank_is_absent)] = None
    platform: PlatformSpec | None = None
    timeout: Annotated[int, Field(ge=60)] | None = None
    resource_limits: StringMap | None = None
    resource_requests: StringMap | None = None
    env: dict[str, str | None] | None = None
    metadata: StringMap | None = None
    lifecycle: SandboxLifecycle | None = None
    entrypoint: Command | None = None
    network_policy: NetworkPolicy | None = None
    credential_proxy: CredentialProxyConfig | None = None
    secure_access: bool = False
    volumes: list[Volume] | None = None
    extensions: StringMap | None = None

    @property
    def pool_ref(self) -> str | None:
        """The pool asked for, None when there is none or it is blank."""
        return (self.extensions or {}).get(EXTENSION_POOL_REF, "").strip() or None

    @property
    def image_uri(self) -> str | None:
        """The image asked for; a blank reference counts as none."""
        return (self.image.uri.strip() or None) if self.image is not None else None

    @model_validator(mode="after")
    def _in_the_contracts_order(self) -> Self:
        if ENV_LIFECYCLE in (self.env or {}):
            raise ValueError(f"env: {ENV_LIFECYCLE} is reserved; remove it and use `lifecycle` instead")
        if self.template_id is not None:
            self._check_template()
            return self
        if self.pool_ref is not None:
            clash = [
                name
                for name, given in (("lifecycle", self.lifecycle), ("snapshotId", self.snapshot_id))
                if given
            ]
            if clash:
                raise ValueError(f"{clash[0]}: cannot be used with extensions.poolRef; leave one of them out")
            return self
        if (
            self.credential_proxy is not None
            and self.credential_proxy.enabled
            and self.network_policy is None
        ):
            raise ValueError("credentialProxy: needs a networkPolicy; add one, or set enabled to false")
        if (self.image_uri is None) == (self.snapshot_id is None):
            raise ValueError("image, snapshotId: give exactly one of them, with a value that is not blank")
        if self.image_uri is not None and self.entrypoint is None:
            raise ValueError('entrypoint: is needed with image; for example ["tail", "-f", "/dev/null"]')
        if self.resource_limits is None:
            raise ValueError('resourceLimits: is needed; give {} for none or {"cpu": "1", "memory": "2Gi"}')
        return self

    def _check_template(self) -> None:
        given = {
            "image": self.image_uri,
            "snapshotId": self.snapshot_id,
            "entrypoint": self.entrypoint,
            "env": self.env,
            "resourceLimits": self.resource_limits,
            "resourceRequests": self.resource_requests,
            "volumes": self.volumes,
            "platform": self.platform,
            "credentialProxy": self.credential_proxy,
            "secureAccess": self.secure_access or None,
            "lifecycle": self.lifecycle,
        }
        for name in TEMPLATE_EXCLUDES:
            if given[name] is not None:
                raise ValueError(f"{name}: cannot be used with templateId; leave one of them out")
        if self.timeout is None:
            raise ValueError("timeout: is needed with templateId; give at least 60 seconds")


# -- answers ---------------------------------------------------------------------------


class SandboxStatus(Shape):
    state: str
    reason: str | None = None
    message: str | None = None
    last_transition_at: Instant | None = None


class AllocationSummary(ClosedShape):
    mode: Literal["pool"] = "pool"
    pool_ref: str
    state: Literal["allocated"] = "allocated"


class CreateSandboxResponse(Shape):
    id: str
    status: SandboxStatus
    metadata: StringMap | None = None
    extensions: StringMap | None = None
    platform: PlatformSpec | None = None
    expires_at: Instant | None = None
    created_at: Instant
    entrypoint: list[str]


class Sandbox(Shape):
    id: str
    image: ImageReference | None = None
    snapshot_id: str | None = None
    platform: PlatformSpec | None = None
    status: SandboxStatus
    metadata: StringMap | None = None
    extensions: StringMap | None = None
    allocation: AllocationSummary | None = None
    entrypoint: list[str]
    expires_at: Instant | None = None
    created_at: Instant


class PaginationInfo(Shape):
    page: Annotated[int, Field(ge=1)]
    page_size: Annotated[int, Field(ge=1)]
    total_items: Annotated[int, Field(ge=0)]
    total_pages: Annotated[int, Field(ge=0)]
    has_next_page: bool


class ListSandboxesResponse(Shape):
    items: list[Sandbox]
    pagination: PaginationInfo


class RenewSandboxExpirationRequest(Shape):
    expires_at: Instant


class RenewSandboxExpirationResponse(Shape):
    expires_at: Instant


class Endpoint(Shape):
    endpoint: str
    headers: StringMap | None = None


# -- snapshots, pools, templates (shapes now, behaviour when a backend has them) -----------


class CreateSnapshotRequest(Shape):
    name: Text | None = None


class SnapshotStatus(Shape):
    state: str
    reason: str | None = None
    message: str | None = None
    last_transition_at: Instant | None = None


class Snapshot(Shape):
    id: str
    sandbox_id: str
    name: str | None = None
    status: SnapshotStatus
    created_at: Instant


class ListSnapshotsResponse(Shape):
    items: list[Snapshot]
    pagination: PaginationInfo


Count = Annotated[int, Field(ge=0)]


class PoolCapacitySpec(Shape):
    buffer_max: Count
    buffer_min: Count
    pool_max: Count
    pool_min: Count


class CreatePoolRequest(Shape):
    name: Annotated[str, Field(pattern=NAME, max_length=253)]
    template: dict[str, Any]
    capacity_spec: PoolCapacitySpec


class UpdatePoolRequest(Shape):
    capacity_spec: PoolCapacitySpec


class PoolStatus(Shape):
    total: int
    allocated: int
    available: int
    revision: str


class PoolResponse(Shape):
    name: str
    capacity_spec: PoolCapacitySpec
    status: PoolStatus | None = None
    created_at: Instant | None = None


class ListPoolsResponse(Shape):
    items: list[PoolResponse]


class TemplateReadiness(Shape):
    probe: str | None = None
    warmup_seconds: Count | None = None


class CreateTemplateRequest(ClosedShape):
    image: Text
    resource_limits: StringMap | None = None
    entrypoint: Command | None = None
    env: StringMap | None = None
    metadata: StringMap | None = None
    readiness: TemplateReadiness | None = None
    publish: Text
    format: Literal["native", "overlaybd"] = "overlaybd"


class TemplateStatus(Shape):
    phase: Literal["Pending", "Building", "Succeeded", "Failed"]
    manifest_ref: str | None = None
    message: str | None = None


class Template(Shape):
    template_id: str
    image: str
    resource_limits: StringMap | None = None
    entrypoint: list[str] | None = None
    env: StringMap | None = None
    metadata: StringMap | None = None
    readiness: TemplateReadiness | None = None
    publish: str
    format: Literal["native", "overlaybd"]
    status: TemplateStatus
    created_at: Instant
    updated_at: Instant


class ListTemplatesResponse(Shape):
    items: list[Template]
    pagination: PaginationInfo


# -- the gateway itself ------------------------------------------------------------------


class MetricsEvent(Shape):
    event_type: Literal["sandbox.create"]
    sandbox_id: str | None = None
    image: str | None = None
    create_duration_ms: Count
    success: bool


class Capability(Shape):
    supported: bool
    runtimes: list[str] | None = None
    reason: str | None = None


class Capabilities(Shape):
    version: str
    runtime: str
    features: dict[str, Capability]


class Health(Shape):
    status: str


class Readiness(Shape):
    status: Literal["ready", "unready"]
    checks: dict[str, str]


class Version(Shape):
    version: str
