"""The one tree of failures a caller may be told about.

Each class carries the protocol's code and HTTP status (contract: lifecycle §4.3,
execd §1.2). Code that raises knows nothing of HTTP; each daemon has exactly one
place that renders. A message names the field, the value's problem and the fix,
never a secret. execd loads this module, so it imports nothing.
"""

from __future__ import annotations


class BoxwrightError(Exception):
    """Base of every failure a caller may be told about."""

    code: str = "GENERAL::UNKNOWN_ERROR"
    status: int = 500
    retry_after: int | None = None  # seconds; rendered as Retry-After

    def __init__(self, message: str, *, code: str | None = None, details: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if code is not None:
            self.code = code

    def body(self) -> dict[str, object]:
        """Return the error body `{code, message[, details]}` (lifecycle §4.1)."""
        out: dict[str, object] = {"code": self.code, "message": self.message}
        if self.details is not None:
            out["details"] = self.details
        return out


class BadRequest(BoxwrightError):
    code, status = "SANDBOX::INVALID_PARAMETER", 400


class Unauthorized(BoxwrightError):
    code, status = "INVALID_API_KEY", 401


class Forbidden(BoxwrightError):
    code, status = "FORBIDDEN", 403


class NotFound(BoxwrightError):
    code, status = "NOT_FOUND", 404


class Conflict(BoxwrightError):
    code, status = "CONFLICT", 409


class Unprocessable(BoxwrightError):
    code, status = "SANDBOX::INVALID_PARAMETER", 422


class TooMany(BoxwrightError):
    code, status, retry_after = "SANDBOX::TOO_MANY_REQUESTS", 429, 1


class NotSupported(BoxwrightError):
    code, status = "SANDBOX::API_NOT_SUPPORTED", 501


class Unavailable(BoxwrightError):
    code, status, retry_after = "DOCKER::INITIALIZATION_ERROR", 503, 2


class Internal(BoxwrightError):
    code, status = "SANDBOX::INTERNAL_ERROR", 500


# -- lifecycle -----------------------------------------------------------------


class MissingApiKey(Unauthorized):
    code = "MISSING_API_KEY"


class SandboxNotFound(NotFound):
    code = "DOCKER::SANDBOX_NOT_FOUND"

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"no sandbox {sandbox_id}: it never existed, was deleted, or has expired")
        self.sandbox_id = sandbox_id


class NoAddressYet(NotFound):
    """The one code the Python client retries on (lifecycle §9.2)."""

    code = "KUBERNETES::POD_IP_NOT_AVAILABLE"


class SandboxNotRunning(Conflict):
    code = "DOCKER::SANDBOX_NOT_RUNNING"


class SandboxNotPaused(Conflict):
    code = "DOCKER::SANDBOX_NOT_PAUSED"


class InvalidExpiration(BadRequest):
    code = "DOCKER::INVALID_EXPIRATION"


class NoExpirationToRenew(Conflict):
    code = "DOCKER::INVALID_EXPIRATION"


class InvalidPort(BadRequest):
    code = "DOCKER::INVALID_PORT"


class InvalidEntrypoint(BadRequest):
    code = "DOCKER::INVALID_ENTRYPOINT"


class InvalidMetadataLabel(BadRequest):
    code = "SANDBOX::INVALID_METADATA_LABEL"


class ReservedMetadataLabel(BadRequest):
    code = "INVALID_METADATA_LABEL"


class InvalidMetadataFormat(BadRequest):
    code = "INVALID_METADATA_FORMAT"


class ScopeUnsupported(BadRequest):
    code = "DIAGNOSTICS_SCOPE_UNSUPPORTED"


class ApiNotSupported(BadRequest):
    """Asked for in a way this backend lacks, refused at once with a reason."""

    code = "SANDBOX::API_NOT_SUPPORTED"


class PoolRefUnsupported(BadRequest):
    code = "SANDBOX::UNSUPPORTED_POOL_REF"


class PoolsNotSupported(NotSupported):
    code = "KUBERNETES::POOL_NOT_SUPPORTED"


class TemplatesNotSupported(NotSupported):
    code = "FSB::API_NOT_SUPPORTED"


class SnapshotsNotSupported(NotSupported):
    code = "SNAPSHOT::NOT_IMPLEMENTED"


class EndpointUnavailable(Internal):
    code = "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE"


# -- engine ----------------------------------------------------------------------


class EngineUnavailable(Unavailable):
    code = "DOCKER::INITIALIZATION_ERROR"


class EngineTimeout(Unavailable):
    code = "DOCKER::ENGINE_TIMEOUT"


class ImageRefused(BadRequest):
    """The image cannot be had for a reason the caller can mend (name, credentials, platform)."""

    code = "DOCKER::SANDBOX_IMAGE_PULL_FAILED"


class ImagePullFailed(Internal):
    code = "DOCKER::SANDBOX_IMAGE_PULL_FAILED"


class StartFailed(Internal):
    code = "DOCKER::SANDBOX_START_FAILED"


class EntrypointFailed(BadRequest):
    """The image lacks the program that the entrypoint names, or it ended at once."""

    code = "DOCKER::SANDBOX_START_FAILED"


class DeleteFailed(Internal):
    code = "DOCKER::SANDBOX_DELETE_FAILED"


class PauseFailed(Internal):
    code = "DOCKER::SANDBOX_PAUSE_FAILED"


class ResumeFailed(Internal):
    code = "DOCKER::SANDBOX_RESUME_FAILED"


class QueryFailed(Internal):
    code = "DOCKER::SANDBOX_QUERY_FAILED"


class VolumeError(BadRequest):
    """A volume request that cannot be honoured; the code says which rule (lifecycle §4.3, VOLUME::*)."""

    code = "VOLUME::INVALID_BACKEND"


# -- proxy -----------------------------------------------------------------------


class BackendConnectionFailed(BoxwrightError):
    code, status = "BACKEND_CONNECTION_FAILED", 502


class BackendTimeout(BoxwrightError):
    code, status = "BACKEND_TIMEOUT", 504


class BackendResponseFailed(BoxwrightError):
    code, status = "BACKEND_RESPONSE_FAILED", 502


# -- execd (contract: execd §1.2) --------------------------------------------------


class InvalidBody(BadRequest):
    code = "INVALID_REQUEST_BODY"


class MissingQuery(BadRequest):
    code = "MISSING_QUERY"


class InvalidFile(BadRequest):
    code = "INVALID_FILE"


class InvalidFileContent(BadRequest):
    code = "INVALID_FILE_CONTENT"


class InvalidFileMetadata(BadRequest):
    code = "INVALID_FILE_METADATA"


class PathNotFound(NotFound):
    code = "FILE_NOT_FOUND"


class PathForbidden(Forbidden):
    code = "PERMISSION_DENIED"


class ContextNotFound(NotFound):
    code = "CONTEXT_NOT_FOUND"


class CommandNotFound(NotFound):
    code = "COMMAND_NOT_FOUND"


class RangeNotSatisfiable(BoxwrightError):
    code, status = "RANGE_NOT_SATISFIABLE", 416


class PayloadTooLarge(BoxwrightError):
    code, status = "PAYLOAD_TOO_LARGE", 413


class ExecutionFailed(Internal):
    code = "RUNTIME_ERROR"


class ExecdUnauthorized(Unauthorized):
    code = "UNAUTHORIZED"


class RouteNotFound(NotFound):
    code = "ROUTE_NOT_FOUND"


class MethodNotAllowed(BoxwrightError):
    code, status = "METHOD_NOT_ALLOWED", 405


class ExecdNotSupported(NotSupported):
    code = "NOT_SUPPORTED"


class UpstreamUnreachable(BoxwrightError):
    code, status = "UPSTREAM_UNREACHABLE", 502
