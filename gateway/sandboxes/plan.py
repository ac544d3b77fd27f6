"""From a request to a plan: every decision about a new sandbox, in the contract's order (lifecycle §2.1).

Pure: what must be looked up first comes in as `Facts`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from gateway.config import Settings
from gateway.sandboxes import metadata as labels_rules
from gateway.sandboxes import quantities, volumes
from gateway.sandboxes.model import (
    BundleMount,
    Hardening,
    Limits,
    Platform,
    RegistryAuth,
    SandboxPlan,
    Secret,
)
from images import reference
from policies.decision import Decision
from policies.limits import (
    MIB,
    Ceilings,
    Demand,
    judge_environment,
    judge_metadata,
    judge_resources,
    judge_timeout,
    judge_volumes,
)
from specs import names
from specs.errors import (
    ApiNotSupported,
    BadRequest,
    InvalidEntrypoint,
    InvalidMetadataLabel,
    PoolRefUnsupported,
)
from specs.lifecycle import CreateSandboxRequest, render_instant

OSES: Final = ("linux", "windows")
ARCHES: Final = ("amd64", "arm64")
RENEW_SECONDS: Final = (300, 86400)

# Variables that belong to the platform; a request that sets one is refused, never half obeyed.
PLATFORM_VARIABLES: Final = frozenset(
    {
        names.ENV_SANDBOX_ID,
        names.ENV_ENVS_FILE,
        names.ENV_ACCESS_TOKEN,
        "EXECD_ISOLATION_CONFIG",
        "EXECD_RUNTIME_INIT",
    }
)
EGRESS_SUFFIXES: Final = frozenset(
    {
        "LOG_LEVEL",
        "DNS_UPSTREAM_TIMEOUT",
        "MITMPROXY_SSL_INSECURE",
        "MITMPROXY_TRANSPARENT",
        "MITMPROXY_EXTRA_PORTS",
        "DENY_WEBHOOK",
        "METRICS_EXTRA_ATTRS",
        "CREDENTIAL_VAULT_REQUIRE_TLS",
        "CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH",
        "CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS",
        "POLICY_FILE",
    }
)
# Label prefixes that tools of the engine's world act upon; metadata with them stays in the store only.
FOREIGN_LABELS: Final = ("com.docker.", "desktop.docker.", "org.opencontainers.image.", "boxwright.io/")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan needs to know and cannot decide.

    Attributes:
        resolved_paths: each of `volumes.host_paths` with every link followed.
    """

    sandbox_id: str
    instance: str
    accepted_at: datetime
    token_hash: str
    bundle: BundleMount
    resolved_paths: Mapping[str, str] = field(default_factory=dict)


def ceilings(settings: Settings) -> Ceilings:
    """
    Collect the ceilings that the settings name.
    """
    limits = settings.limits
    return Ceilings(
        timeout_seconds=settings.server.max_sandbox_timeout_seconds,
        nano_cpus=None if limits.max_cpus is None else int(limits.max_cpus * quantities.NANO),
        memory_bytes=None if limits.max_memory_mib is None else limits.max_memory_mib * MIB,
        env_bytes=limits.max_env_bytes,
        volumes=limits.max_volumes,
        metadata=limits.max_metadata,
    )


def make_plan(request: CreateSandboxRequest, settings: Settings, facts: Facts) -> SandboxPlan:
    """
    Decide one sandbox to the last detail, or refuse it with the first reason in the contract's order.

    Raises:
        BadRequest: any of its kinds; the message names the member, the rule and the fix.
    """
    most = ceilings(settings)
    isolation = _check_extensions(request)
    _refuse_sources(request)
    entrypoint = split_entrypoint(request.entrypoint or ())
    metadata = request.metadata or {}
    labels_rules.check_labels(metadata)
    _hold(judge_metadata(Demand(metadata=len(metadata)), most), InvalidMetadataLabel)
    platform = _platform(request)
    _hold(judge_timeout(Demand(timeout_seconds=request.timeout), most))
    _refuse_network(request)
    limits = _limits(request, settings, most)
    env = _environment(request, settings)
    _hold(judge_environment(Demand(env_bytes=_size(env)), most))
    wanted = request.volumes or ()
    _hold(judge_volumes(Demand(volumes=len(wanted)), most))
    mounts = volumes.plan_mounts(wanted, settings.storage.allowed_host_paths, facts.resolved_paths)
    docker = settings.docker
    return SandboxPlan(
        sandbox_id=facts.sandbox_id,
        instance=facts.instance,
        image=_image(request),
        platform=platform,
        auth=_auth(request),
        entrypoint=entrypoint,
        env=tuple(env.items()),
        token_hash=facts.token_hash,
        labels=_labels(metadata, facts),
        limits=limits,
        mounts=mounts,
        extra_binds=docker.sandbox_binds,
        hardening=Hardening(
            drop_capabilities=docker.drop_capabilities,
            no_new_privileges=docker.no_new_privileges,
            seccomp_profile=docker.seccomp_profile,
            apparmor_profile=docker.apparmor_profile,
            read_only_root=docker.read_only_root,
            isolation=isolation,
        ),
        bundle=facts.bundle,
        network=docker.network_mode,
        publish_host=docker.publish_host,
        publish_ports=(docker.port_range_min, docker.port_range_max),
        runtime=settings.engine_runtime,
        stop_grace_seconds=docker.stop_grace_seconds,
    )


def split_entrypoint(entrypoint: Sequence[str]) -> tuple[str, ...]:
    """
    Return the argument list that runs: a single element with blanks is split as a shell splits words.

    Raises:
        InvalidEntrypoint: nothing to run, unbalanced quotes, or a NUL character.
    """
    argv = tuple(entrypoint)
    if any("\0" in word for word in argv):
        raise InvalidEntrypoint("entrypoint has a NUL character, which no argument can hold; remove it")
    if len(argv) == 1 and any(mark.isspace() for mark in argv[0]):
        try:
            argv = tuple(shlex.split(argv[0]))
        except ValueError as error:
            raise InvalidEntrypoint(
                "entrypoint has a quote that is not closed; close it or give a list"
            ) from error
    if not argv or not argv[0].strip():
        raise InvalidEntrypoint('entrypoint names no program; give for example ["tail", "-f", "/dev/null"]')
    return argv


def kept_extensions(request: CreateSandboxRequest) -> dict[str, str]:
    """
    Return the extensions that are stored and given back.
    """
    return {
        key: value
        for key, value in (request.extensions or {}).items()
        if key.startswith(names.EXTENSION_PREFIX) and key != names.EXTENSION_PREFIX
    }


# -- one check each, in order --------------------------------------------------------------


def _check_extensions(request: CreateSandboxRequest) -> bool:
    extensions = request.extensions or {}
    renew = extensions.get(names.EXTENSION_RENEW)
    if renew is not None:
        low, high = RENEW_SECONDS
        if not (renew.isascii() and renew.isdigit() and len(renew) < 9 and low <= int(renew) <= high):
            raise BadRequest(
                f"extensions.{names.EXTENSION_RENEW} is not a whole number of seconds in {low}..{high}"
            )
    if sum(len(key) + len(value) for key, value in kept_extensions(request).items()) > 65_536:
        raise BadRequest("extensions: the ones to keep are larger than 64 KiB together; shorten them")
    return extensions.get(names.EXTENSION_ISOLATION) == "enable"


def _refuse_sources(request: CreateSandboxRequest) -> None:
    if request.snapshot_id is not None:
        raise ApiNotSupported(
            "snapshotId: this gateway has no snapshots yet; start from an image",
            code="SNAPSHOT::NOT_IMPLEMENTED",
        )
    if request.template_id is not None:
        raise ApiNotSupported(
            "templateId: the Docker backend has no templates; start from an image",
            code="FSB::API_NOT_SUPPORTED",
        )
    if request.lifecycle is not None:
        raise ApiNotSupported(
            "lifecycle: the Docker backend runs no hooks; leave it out and run commands instead"
        )
    if request.pool_ref is not None:
        raise PoolRefUnsupported("extensions.poolRef: the Docker backend has no pools; start from an image")


def _platform(request: CreateSandboxRequest) -> Platform | None:
    asked = request.platform
    if asked is None:
        return None
    if asked.os not in OSES:
        raise BadRequest(f"platform.os is not one of {', '.join(OSES)}")
    if asked.arch not in ARCHES:
        raise BadRequest(f"platform.arch is not one of {', '.join(ARCHES)}")
    if asked.os != "linux":
        raise BadRequest("platform.os: this gateway runs Linux images only; ask for linux")
    return Platform(asked.os, asked.arch)


def _refuse_network(request: CreateSandboxRequest) -> None:
    if request.secure_access:
        raise ApiNotSupported(
            "secureAccess: the Docker backend has no ingress gateway; leave it out or send false"
        )
    if request.network_policy is not None:
        raise ApiNotSupported(
            "networkPolicy: this gateway has no egress control yet, and a sandbox that was asked to be "
            "fenced in is not "
            "started without the fence; leave it out to accept open egress"
        )
    if request.credential_proxy is not None and request.credential_proxy.enabled:
        raise ApiNotSupported("credentialProxy: this gateway has no egress control yet; set enabled to false")


def _limits(request: CreateSandboxRequest, settings: Settings, most: Ceilings) -> Limits:
    asked = request.resource_limits or {}
    limits = settings.limits
    cpus = quantities.nano_cpus(asked["cpu"]) if "cpu" in asked else None
    memory = quantities.memory_bytes(asked["memory"]) if "memory" in asked else None
    # A default gives way to a lower ceiling; where there is no default, asking for nothing means no limit.
    if cpus is None and limits.default_cpus is not None:
        cpus = int(min(limits.default_cpus, limits.max_cpus or limits.default_cpus) * quantities.NANO)
    if memory is None and limits.default_memory_mib is not None:
        memory = min(limits.default_memory_mib, limits.max_memory_mib or limits.default_memory_mib) * MIB
    if memory is not None and memory < SMALLEST_MEMORY:
        raise BadRequest("resourceLimits.memory is too small for any container; ask for at least 8Mi")
    _hold(judge_resources(Demand(nano_cpus=cpus, memory_bytes=memory), most))
    return Limits(
        nano_cpus=cpus,
        memory_bytes=memory,
        swap_bytes=memory,
        pids=settings.docker.pids_limit,
        gpus=quantities.gpus(asked["gpu"]) if "gpu" in asked else None,
    )


SMALLEST_MEMORY: Final = 8 * MIB


def _environment(request: CreateSandboxRequest, settings: Settings) -> dict[str, str]:
    env = dict(settings.docker.sandbox_env)
    for name, value in (request.env or {}).items():
        _check_variable(name, value)
        if value is not None and not name.startswith(names.ENV_EGRESS_PREFIX):
            env[name] = value
    return env


def _check_variable(name: str, value: str | None) -> None:
    if not name or "=" in name or "\0" in name or "\0" in (value or ""):
        raise BadRequest(
            "env: a name is empty or has `=`, or a name or value has a NUL character; correct it"
        )
    if name in PLATFORM_VARIABLES or name.startswith("BOXWRIGHT_"):
        raise BadRequest(f"env: {name[:60]!a} is set by the platform; remove it")
    if (
        name.startswith(names.ENV_EGRESS_PREFIX)
        and name[len(names.ENV_EGRESS_PREFIX) :] not in EGRESS_SUFFIXES
    ):
        raise BadRequest(f"env: {name[:60]!a} is not a variable that a request may set; remove it")


def _size(env: Mapping[str, str]) -> int:
    return sum(
        len(name.encode()) + len(value.encode("utf-8", "surrogatepass")) for name, value in env.items()
    )


def _image(request: CreateSandboxRequest) -> str:
    uri = request.image_uri or ""
    try:
        reference.parse(uri)
    except reference.BadReference as error:
        # Beyond telling the caller early: the name becomes part of a path of the engine's API.
        raise BadRequest("image.uri is not an image reference; write it like registry/name:tag") from error
    return uri


def _auth(request: CreateSandboxRequest) -> RegistryAuth | None:
    auth = request.image.auth if request.image is not None else None
    return None if auth is None else RegistryAuth(auth.username, Secret(auth.password))


def _labels(metadata: Mapping[str, str], facts: Facts) -> tuple[tuple[str, str], ...]:
    own = {
        names.LABEL_ID: facts.sandbox_id,
        names.LABEL_MANAGED_BY: "boxwright",
        names.LABEL_INSTANCE: facts.instance,
        names.LABEL_CREATED_AT: render_instant(facts.accepted_at),
    }
    shown = {key: value for key, value in metadata.items() if not key.startswith(FOREIGN_LABELS)}
    return tuple({**shown, **own}.items())


def _hold(decision: Decision, refusal: type[BadRequest] = BadRequest) -> None:
    if not decision.allowed:
        raise refusal(decision.reason)
