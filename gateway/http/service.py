"""Routes about the gateway itself: is it up, can it work, what can it do, how did clients fare."""

from __future__ import annotations

from typing import Any, Final

import structlog
from fastapi import APIRouter, Response

from gateway.http.guarded import ServicesHere, answer, errors, guarded_router
from gateway.operations.readiness import GOOD
from specs.lifecycle import Capabilities, Capability, Health, MetricsEvent, Readiness, Version

public = APIRouter(tags=["service"])
matrix = guarded_router("service")
telemetry = guarded_router("telemetry")

_log = structlog.get_logger(__name__)

UNREADY: Final[dict[int | str, dict[str, Any]]] = {
    503: {"model": Readiness, "description": "Something that a create needs does not answer."}
}


@public.get("/health", response_model=Health, operation_id="getHealth")
async def health() -> Response:
    """Say that the process answers; looks at nothing else."""
    return answer(Health(status="healthy"))


@public.get("/readyz", response_model=Readiness, responses=UNREADY, operation_id="getReadiness")
async def readyz(services: ServicesHere) -> Response:
    """Ask the store and the engine."""
    checks = await services.readiness.check()
    ready = all(verdict == GOOD for verdict in checks.values())
    shape = Readiness(status="ready" if ready else "unready", checks=checks)
    return answer(shape, 200 if ready else 503)


@public.get("/version", response_model=Version, operation_id="getVersion")
async def version(services: ServicesHere) -> Response:
    """Say which release this is."""
    return answer(Version(version=services.version))


@matrix.get(
    "/capabilities", response_model=Capabilities, responses=errors(401, 500), operation_id="getCapabilities"
)
async def capabilities(services: ServicesHere) -> Response:
    """Say which features this gateway has, and why the others are missing."""
    features = {
        name: Capability(supported=has, runtimes=["docker"] if has else [], reason=None if has else reason)
        for name, (has, reason) in _features(services).items()
    }
    shape = Capabilities(version=services.version, runtime=services.settings.runtime.type, features=features)
    return answer(shape)


@telemetry.post(
    "/metrics/events", status_code=204, responses=errors(400, 401, 422, 500), operation_id="recordClientEvent"
)
async def record_event(body: MetricsEvent) -> Response:
    """Take note of how a create went for a client."""
    _log.info("client_create", duration_ms=body.create_duration_ms, success=body.success)
    return Response(status_code=204)


def _features(services: ServicesHere) -> dict[str, tuple[bool, str]]:
    able = services.capabilities
    later = "this release does not have it yet"
    return {
        "pause": (able.pause, "the backend cannot freeze workloads"),
        "hostVolumes": (
            bool(services.settings.storage.allowed_host_paths),
            "the operator allowed no host folder (storage.allowed_host_paths)",
        ),
        "namedVolumes": (True, ""),
        "secureRuntime": (
            services.settings.engine_runtime is not None,
            "the engine's default runtime is used ([secure_runtime], [runtime] docker_runtime)",
        ),
        "serverProxy": (True, ""),
        "idempotentCreate": (True, ""),
        "ossfs": (False, later),
        "snapshots": (able.snapshots, later),
        "pools": (able.pools, later),
        "templates": (able.templates, "only a Kubernetes backend has templates"),
        "networkPolicy": (able.network_policy, later),
        "credentialProxy": (able.credential_proxy, later),
        "secureAccess": (able.secure_access, "only an ingress gateway can demand the token"),
        "signedEndpoints": (able.signed_endpoints, "only an ingress gateway can check signatures"),
        "lifecycleHooks": (False, later),
    }
