"""The one tree of failures a caller may be told about.

Each class carries the protocol's code and HTTP status (contract: lifecycle §4.3,
execd §1.2). Code that raises knows nothing of HTTP; each daemon has exactly one
place that renders. A message names the field, the value's problem and the fix,
never a secret. execd loads this module, so it imports nothing.

A class's docstring says in one sentence when the failure happens and, after an empty line,
what to do about it; a section `Codes:` does the same for codes that are set where the failure
is raised. `errors.md` is printed from these (`boxwright errors -o markdown`), and the frozen
execd leaves them out.
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
    """The request is well formed and asks for something that cannot be.

    Correct the member that the message names; repeating the request unchanged fails again.

    Codes:
        DOCKER::SANDBOX_NOT_RUNNING: an endpoint of a sandbox that has ended was asked for. Create a new
            sandbox.
        INVALID_PORT: a path of execd's port proxy names no port. Write `/proxy/{port}/...` with a port from
            1 to 65535.
    """

    code, status = "SANDBOX::INVALID_PARAMETER", 400


class Unauthorized(BoxwrightError):
    """The API key is not one that this gateway knows, or it was revoked.

    Send a key in force as `OPEN-SANDBOX-API-KEY`; `boxwright keys list` shows them, `boxwright keys create`
    makes one.
    """

    code, status = "INVALID_API_KEY", 401


class Forbidden(BoxwrightError):
    """The caller is known and may not do this.

    Use a key that may, or ask the operator.
    """

    code, status = "FORBIDDEN", 403


class NotFound(BoxwrightError):
    """Something that the request names does not exist.

    Check the name in the message.
    """

    code, status = "NOT_FOUND", 404


class Conflict(BoxwrightError):
    """The request does not fit what the sandbox is doing at this moment, or an `Idempotency-Key` was used
    for another request.

    Read the sandbox's state and try again, or take a new `Idempotency-Key`.
    """

    code, status = "CONFLICT", 409


class Unprocessable(BoxwrightError):
    """The request does not have the documented shape.

    Correct the members that `details` lists; the shapes are in the API document.
    """

    code, status = "SANDBOX::INVALID_PARAMETER", 422


class TooMany(BoxwrightError):
    """More is asked for at once than this gateway takes on.

    Wait as long as `Retry-After` says and try again; operators raise [gateway] start_queue, [server]
    limit_concurrency or [proxy] connections_per_sandbox.
    """

    code, status, retry_after = "SANDBOX::TOO_MANY_REQUESTS", 429, 1


class NotSupported(BoxwrightError):
    """This release or this backend does not have the feature.

    Do without it; `GET /v1/capabilities` lists what there is and why the rest is missing.
    """

    code, status = "SANDBOX::API_NOT_SUPPORTED", 501


class Unavailable(BoxwrightError):
    """Something that the gateway needs does not answer at this moment.

    Try again after `Retry-After`; operators look at `boxwright status` and `boxwright doctor`.

    Codes:
        SANDBOX::STORE_UNAVAILABLE: the store is locked, full or damaged. Try again; operators look at the
            disk, and restore a backup of a damaged store with `boxwright restore`.
    """

    code, status, retry_after = "DOCKER::INITIALIZATION_ERROR", 503, 2


class Internal(BoxwrightError):
    """The gateway failed in a way that the caller cannot mend.

    Report it with the `X-Request-ID` of the answer; the gateway's log has the story under that id.

    Codes:
        GENERAL::UNKNOWN_ERROR: nobody expected this failure. Report it with the `X-Request-ID` of the
            answer.
        IMAGE::LOCAL_BUILD_FAILED: the `boxwright` command could not build a local image. Read the message: it
            names what is missing on this machine.
    """

    code, status = "SANDBOX::INTERNAL_ERROR", 500


# -- lifecycle -----------------------------------------------------------------


class MissingApiKey(Unauthorized):
    """The request carries no API key.

    Send one as the header `OPEN-SANDBOX-API-KEY`; clients take it from `OPEN_SANDBOX_API_KEY`.
    """

    code = "MISSING_API_KEY"


class SandboxNotFound(NotFound):
    """There is no sandbox with this id: it never existed, was deleted, or has expired.

    List the sandboxes there are (`boxwright ps`), or create a new one.
    """

    code = "DOCKER::SANDBOX_NOT_FOUND"

    def __init__(self, sandbox_id: str) -> None:
        super().__init__(f"no sandbox {sandbox_id}: it never existed, was deleted, or has expired")
        self.sandbox_id = sandbox_id


class NoAddressYet(NotFound):
    """The sandbox is still starting and has no address yet.

    Ask again in a moment; clients do so by themselves (lifecycle §9.2).
    """

    code = "KUBERNETES::POD_IP_NOT_AVAILABLE"


class SandboxNotRunning(Conflict):
    """The sandbox is not running: it is still starting, paused, ended or being removed.

    Read its state and reason (`boxwright events ID`); resume it when it is paused, else create a new one.
    """

    code = "DOCKER::SANDBOX_NOT_RUNNING"


class SandboxNotPaused(Conflict):
    """A resume was asked for and the sandbox is not paused.

    Read its state first; a running sandbox needs no resume.
    """

    code = "DOCKER::SANDBOX_NOT_PAUSED"


class InvalidExpiration(BadRequest):
    """The new expiry is not a time ahead of the server's clock, or is further away than allowed.

    Give an instant in the future with its offset, within [server] max_sandbox_timeout_seconds.
    """

    code = "DOCKER::INVALID_EXPIRATION"


class NoExpirationToRenew(Conflict):
    """The sandbox never expires, so there is nothing to renew.

    Leave the renewal out, or create the sandbox with a timeout.
    """

    code = "DOCKER::INVALID_EXPIRATION"


class InvalidPort(BadRequest):
    """A port is not a number from 1 to 65535, or is one that this kind of endpoint does not lead to.

    Correct the port.
    """

    code = "DOCKER::INVALID_PORT"


class InvalidEntrypoint(BadRequest):
    """The entrypoint names no program, or holds what no argument can hold.

    Give a list of strings that begins with a program of the image.
    """

    code = "DOCKER::INVALID_ENTRYPOINT"


class InvalidMetadataLabel(BadRequest):
    """A metadata key or value of a create breaks the rules for labels.

    Use letters, digits, `-`, `_` and `.`, at most 63 characters, as the message says.
    """

    code = "SANDBOX::INVALID_METADATA_LABEL"


class ReservedMetadataLabel(BadRequest):
    """A metadata key begins with the platform's own prefix `opensandbox.io/`.

    Choose another key.
    """

    code = "INVALID_METADATA_LABEL"


class InvalidMetadataFormat(BadRequest):
    """The metadata filter of a list is not of the form `key=value&key=value`.

    Write pairs joined by `&`, encoded once.
    """

    code = "INVALID_METADATA_FORMAT"


class ScopeUnsupported(BadRequest):
    """Diagnostics were asked for in a scope that does not exist here.

    Use a scope that the message lists.
    """

    code = "DIAGNOSTICS_SCOPE_UNSUPPORTED"


class ApiNotSupported(BadRequest):
    """The request asks for a feature in a way that this backend lacks.

    Leave the member out that the message names; `GET /v1/capabilities` lists what there is.

    Codes:
        SNAPSHOT::NOT_IMPLEMENTED: a create names a snapshot. Start from an image.
        FSB::API_NOT_SUPPORTED: a create names a template. Start from an image.
    """

    code = "SANDBOX::API_NOT_SUPPORTED"


class PoolRefUnsupported(BadRequest):
    """A create names a pool and this backend has none.

    Leave `extensions.poolRef` out and name an image.
    """

    code = "SANDBOX::UNSUPPORTED_POOL_REF"


class PoolsNotSupported(NotSupported):
    """A route for pools was called and this backend has none.

    Create sandboxes from images.
    """

    code = "KUBERNETES::POOL_NOT_SUPPORTED"


class TemplatesNotSupported(NotSupported):
    """A route for templates was called and this backend has none.

    Create sandboxes from images.
    """

    code = "FSB::API_NOT_SUPPORTED"


class SnapshotsNotSupported(NotSupported):
    """A route for snapshots was called and this release has none.

    Keep files outside of the sandbox: download them, or use a volume.
    """

    code = "SNAPSHOT::NOT_IMPLEMENTED"


class EndpointUnavailable(Internal):
    """The sandbox's network gives clients no way to this port.

    Ask with `use_server_proxy=true`; operators check [docker] network_mode and publish_host.
    """

    code = "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE"


# -- engine ----------------------------------------------------------------------


class EngineUnavailable(Unavailable):
    """The container engine does not answer, or refuses work.

    Try again after `Retry-After`; operators start it and look at `boxwright doctor`.
    """

    code = "DOCKER::INITIALIZATION_ERROR"


class EngineTimeout(Unavailable):
    """The container engine did not finish a call in time.

    Try again after `Retry-After`; operators look at the engine's load and its log.
    """

    code = "DOCKER::ENGINE_TIMEOUT"


class ImageRefused(BadRequest):
    """The image cannot be had for a reason the caller can mend: its name, its credentials or its platform.

    Correct `image.uri`, `image.auth` or `platform` as the message says.
    """

    code = "DOCKER::SANDBOX_IMAGE_PULL_FAILED"


class ImagePullFailed(Internal):
    """The image could not be pulled: the registry, the network or the disk failed.

    Try again; operators try `docker pull` on the engine's host and look at its disk.
    """

    code = "DOCKER::SANDBOX_IMAGE_PULL_FAILED"


class StartFailed(Internal):
    """The engine could not create or start the sandbox.

    Read the engine's words in the message; operators look at `boxwright doctor`.

    Codes:
        VOLUME::HOST_PATH_CREATE_FAILED: a host folder could not be made. Let the operator make it, or
            correct its path.
    """

    code = "DOCKER::SANDBOX_START_FAILED"


class EntrypointFailed(BadRequest):
    """The image lacks the program that the entrypoint names, or it ended at once.

    Name a program of the image that keeps running, such as `tail -f /dev/null`.
    """

    code = "DOCKER::SANDBOX_START_FAILED"


class DeleteFailed(Internal):
    """The engine did not remove the sandbox.

    Delete it again: a delete may be repeated, and the gateway goes on trying by itself.
    """

    code = "DOCKER::SANDBOX_DELETE_FAILED"


class PauseFailed(Internal):
    """The engine did not freeze the sandbox.

    Read the engine's words in the message and try again.
    """

    code = "DOCKER::SANDBOX_PAUSE_FAILED"


class ResumeFailed(Internal):
    """The engine did not wake the sandbox.

    Read the engine's words in the message and try again, or delete the sandbox.
    """

    code = "DOCKER::SANDBOX_RESUME_FAILED"


class QueryFailed(Internal):
    """The engine could not say how a sandbox is.

    Try again; operators look at `boxwright doctor`.

    Codes:
        VOLUME::PVC_INSPECT_FAILED: the engine could not say how a volume is. Try again.
    """

    code = "DOCKER::SANDBOX_QUERY_FAILED"


class VolumeError(BadRequest):
    """A volume of a create cannot be honoured; the code says which rule it breaks.

    Correct the volume that the message names.

    Codes:
        VOLUME::INVALID_NAME: a volume has no usable name. Use letters, digits, `-`, `_` and `.`.
        VOLUME::DUPLICATE_NAME: two volumes have one name. Give each its own.
        VOLUME::INVALID_MOUNT_PATH: `mountPath` is not a plain absolute path, is used twice, or covers a
            folder of the platform. Mount it elsewhere.
        VOLUME::INVALID_SUB_PATH: `subPath` leaves the volume, follows a link, or is no folder. Name a plain
            folder inside of the volume.
        VOLUME::INVALID_HOST_PATH: a host path is not a plain absolute path. Write it without `..`, `:` and
            doubled slashes.
        VOLUME::HOST_PATH_NOT_ALLOWED: a host path lies outside of what the operator allows. Ask for it
            below [storage] allowed_host_paths.
        VOLUME::HOST_PATH_NOT_FOUND: a host path does not exist. Make it first, or ask for
            `createIfNotExists`.
        VOLUME::INVALID_PVC_NAME: the engine cannot make a volume of this name. Use letters, digits, `-`,
            `_` and `.`.
        VOLUME::PVC_NOT_FOUND: there is no such volume and `createIfNotExists` is false. Make it first, or
            ask for it to be made.
        VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER: `subPath` was asked for on a volume of another driver. Mount
            the whole volume, or use the local driver.
        VOLUME::UNSUPPORTED_BACKEND: the kind of volume is not available here. Use `host` or `pvc`.
    """

    code = "VOLUME::INVALID_BACKEND"


# -- proxy -----------------------------------------------------------------------


class BackendConnectionFailed(BoxwrightError):
    """Nothing listens on the port of the sandbox, or its address cannot be reached.

    Start the service inside of the sandbox on that port, bound to every interface, and try again.
    """

    code, status = "BACKEND_CONNECTION_FAILED", 502


class BackendTimeout(BoxwrightError):
    """The service in the sandbox did not begin its answer in time.

    Look at the service; operators raise [proxy] answer_timeout_seconds for slow ones.
    """

    code, status = "BACKEND_TIMEOUT", 504


class BackendResponseFailed(BoxwrightError):
    """The service in the sandbox answered with something that is not proper HTTP, or broke off.

    Look at the service and its output (`boxwright logs ID`).
    """

    code, status = "BACKEND_RESPONSE_FAILED", 502


# -- execd (contract: execd §1.2) --------------------------------------------------


class InvalidBody(BadRequest):
    """A body or query parameter of an execd call cannot be used.

    Correct the member that the message names.
    """

    code = "INVALID_REQUEST_BODY"


class MissingQuery(BadRequest):
    """A query parameter that an execd call needs is missing.

    Add the parameter that the message names.
    """

    code = "MISSING_QUERY"


class InvalidFile(BadRequest):
    """An upload's parts do not pair up into metadata and file.

    Send each metadata part right before its file part.
    """

    code = "INVALID_FILE"


class InvalidFileContent(BadRequest):
    """An upload has no part named `file`.

    Add the part.
    """

    code = "INVALID_FILE_CONTENT"


class InvalidFileMetadata(BadRequest):
    """An upload's metadata part is missing, too long or not the documented JSON.

    Send a part named `metadata` with at least `path`.
    """

    code = "INVALID_FILE_METADATA"


class PathNotFound(NotFound):
    """A file or folder inside of the sandbox does not exist.

    Check the path; list its folder first.
    """

    code = "FILE_NOT_FOUND"


class PathForbidden(Forbidden):
    """The sandbox's user may not touch this path.

    Use a path that this user may touch, or start the sandbox from an image with another user.
    """

    code = "PERMISSION_DENIED"


class ContextNotFound(NotFound):
    """There is no shell session or kernel with this id: it never existed or was deleted.

    Open a new one.
    """

    code = "CONTEXT_NOT_FOUND"


class CommandNotFound(NotFound):
    """There is no such command, or it ended too long ago.

    Start it again; finished background commands are kept for a limited time only.
    """

    code = "COMMAND_NOT_FOUND"


class RangeNotSatisfiable(BoxwrightError):
    """A `Range` header asks for bytes that the file does not have.

    Ask within the size that `Content-Range` states.

    Codes:
        UNKNOWN: a `Range` header is malformed. Write `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT`.
    """

    code, status = "RANGE_NOT_SATISFIABLE", 416


class PayloadTooLarge(BoxwrightError):
    """The body is larger than this call takes.

    Send less at once; files have no such limit on the upload route.

    Codes:
        SANDBOX::BODY_TOO_LARGE: the body of a lifecycle call is larger than [limits] max_body_bytes. Make
            it smaller.
    """

    code, status = "PAYLOAD_TOO_LARGE", 413


class HeadTooLarge(BoxwrightError):
    """The address and the headers of a request are together larger than 64 KiB.

    Send fewer or smaller headers; a key or a cookie of another service does not belong into them.
    """

    code, status = "SANDBOX::HEAD_TOO_LARGE", 431


class ExecutionFailed(Internal):
    """execd failed in a way that the caller cannot mend.

    Report it with the request id; `boxwright logs ID` shows what execd printed.
    """

    code = "RUNTIME_ERROR"


class ExecdUnauthorized(Unauthorized):
    """The call to execd carries no access token, or a wrong one.

    Send every header that the endpoint lookup returned.
    """

    code = "UNAUTHORIZED"


class RouteNotFound(NotFound):
    """There is no such route.

    Compare the path with the API document.
    """

    code = "ROUTE_NOT_FOUND"


class MethodNotAllowed(BoxwrightError):
    """The route does not take this method.

    Use a method that the `Allow` header lists.
    """

    code, status = "METHOD_NOT_ALLOWED", 405


class ExecdNotSupported(NotSupported):
    """execd does not have this feature in this release.

    Do without it; `GET /v1/capabilities` lists what there is.
    """

    code = "NOT_SUPPORTED"


class UpstreamUnreachable(BoxwrightError):
    """execd cannot reach the port inside of the sandbox that a proxy path names.

    Start the service on that port and try again.
    """

    code, status = "UPSTREAM_UNREACHABLE", 502
