"""What the engine says, as values of ours (pure).

Source: Docker Engine API 1.41: container inspect, events, pull progress, the log
stream's frames. Nothing here calls anyone.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from gateway.sandboxes.model import Address, Observed, Platform
from specs import names
from specs.errors import BoxwrightError, EntrypointFailed, ImagePullFailed, ImageRefused, StartFailed

GONE: Final = "gone"
"""Phase of a sandbox whose workload was removed; the engine no longer knows it."""

EVENTS: Final = ("start", "die", "oom", "pause", "unpause", "stop", "kill", "destroy")
HIDDEN: Final = "(hidden)"

_PLAIN_VARIABLES: Final = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TERM", "HOSTNAME"})
_SECRETIVE = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|KEY|HASH|CREDENTIAL|AUTH", re.IGNORECASE)
_ARCHES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv8": "arm64"}


# -- containers --------------------------------------------------------------------


def observed(inspect: Mapping[str, Any]) -> Observed:
    """Read container inspect JSON."""
    state = inspect.get("State") or {}
    found = dict((inspect.get("Config") or {}).get("Labels") or {})
    phase = str(state.get("Status") or "unknown")
    ended = phase in {"exited", "dead"}
    return Observed(
        sandbox_id=sandbox_id(found, str(inspect.get("Name") or "")),
        phase=phase,
        exit_code=int(state.get("ExitCode", 0)) if ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error")) if state.get("Error") else None,
        created_at=instant(inspect.get("Created")),
        started_at=instant(state.get("StartedAt")),
        finished_at=instant(state.get("FinishedAt")),
        address=address(inspect) if phase in {"running", "paused"} else None,
        instance=found.get(names.LABEL_INSTANCE),
        labels=found,
    )


def gone(sandbox: str, instance: str | None) -> Observed:
    return Observed(sandbox_id=sandbox, phase=GONE, instance=instance)


def sandbox_id(labels: Mapping[str, str], name: str) -> str:
    return labels.get(names.LABEL_ID) or name.lstrip("/").removeprefix(names.CONTAINER_PREFIX)


def address(inspect: Mapping[str, Any]) -> Address | None:
    """Say where execd of this container answers; None while it has no network."""
    settings = inspect.get("NetworkSettings") or {}
    mode = str((inspect.get("HostConfig") or {}).get("NetworkMode") or "")
    if mode == "host":
        return Address(ip="127.0.0.1", port=names.PORT_EXECD, published_host=None, published_port=None)
    networks = settings.get("Networks") or {}
    wanted = "bridge" if mode == "default" else mode
    # A container attached to more networks later still answers on the one it was made on.
    own = networks.get(wanted) or next(iter(networks.values()), None) or {}
    ip = own.get("IPAddress") or settings.get("IPAddress") or None
    bindings = (settings.get("Ports") or {}).get(f"{names.PORT_EXECD}/tcp") or []
    first = bindings[0] if bindings else {}
    if ip is None and not first:
        return None
    port = first.get("HostPort")
    return Address(
        ip=ip,
        port=names.PORT_EXECD,
        published_host=first.get("HostIp") or None,
        published_port=int(port) if port else None,
    )


def instant(text: object) -> datetime | None:
    """Read an engine timestamp; nanoseconds are cut to microseconds, "year 1" means never."""
    if not isinstance(text, str) or not text or text.startswith("0001-"):
        return None
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", text)
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    micros = (fraction or "0")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{seconds}.{micros}{'+00:00' if zone == 'Z' else zone}").astimezone(UTC)


def since(moment: datetime) -> str:
    """Write an instant the way the engine's `since` parameters want it."""
    whole = int(moment.timestamp())
    return f"{whole}.{moment.microsecond * 1000:09d}"


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One line of the engine's event stream, as far as it concerns a sandbox."""

    action: str
    sandbox_id: str
    instance: str | None
    at_ns: int


def event(line: Mapping[str, Any]) -> EngineEvent | None:
    """Read one event; None when it is about nothing of ours."""
    if line.get("Type") != "container":
        return None
    attributes = (line.get("Actor") or {}).get("Attributes") or {}
    if names.LABEL_ID not in attributes:
        return None
    # "exec_start: sh -c …" and "health_status: healthy" carry details after a colon.
    action = str(line.get("Action") or line.get("status") or "").partition(":")[0]
    return EngineEvent(
        action=action,
        sandbox_id=str(attributes[names.LABEL_ID]),
        instance=attributes.get(names.LABEL_INSTANCE),
        at_ns=int(line.get("timeNano") or int(line.get("time") or 0) * 1_000_000_000),
    )


# -- images ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What matters of a local image."""

    image_id: str
    platform: Platform
    env: dict[str, str]
    labels: dict[str, str]


def image_facts(inspect: Mapping[str, Any]) -> ImageFacts:
    config = inspect.get("Config") or {}
    pairs = (str(item).partition("=") for item in config.get("Env") or [])
    return ImageFacts(
        image_id=str(inspect["Id"]),
        platform=platform(str(inspect.get("Os") or ""), str(inspect.get("Architecture") or "")),
        env={name: value for name, _, value in pairs},
        labels=dict(config.get("Labels") or {}),
    )


def platform(os_name: str, arch: str) -> Platform:
    arch = arch.lower()
    return Platform(os_name.lower(), _ARCHES.get(arch, arch))


_NETWORK: Final = ("dial tcp", "lookup ", "timeout", "connection refused", "x509", "tls handshake")
_REFUSED: Final = (
    "pull access denied",
    "repository does not exist",
    "manifest unknown",
    "name unknown",
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "incorrect username or password",
    "requested access to the resource is denied",
    "invalid reference format",
    "invalid repository name",
    "no matching manifest",
    "does not match the specified platform",
    "not found",
    "denied:",
)


def pull_failure(image: str, words: str) -> BoxwrightError:
    """Sort a failed pull: what the caller can mend is refused, the rest failed."""
    text = short(words)
    lowered = words.lower()
    network = any(mark in lowered for mark in _NETWORK)
    if not network and any(mark in lowered for mark in _REFUSED):
        return ImageRefused(
            f"image {image} cannot be pulled: {text}; check its name, tag, platform and credentials"
        )
    return ImagePullFailed(f"pulling {image} failed: {text}")


@dataclass(slots=True)
class PullProgress:
    """Fold the engine's per-layer lines into one short sentence."""

    image: str
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    _layers: dict[str, bool] = field(default_factory=dict)

    def feed(self, line: Mapping[str, Any]) -> None:
        layer, status = str(line.get("id") or ""), str(line.get("status") or "")
        if not layer or status.startswith("Pulling from"):
            return
        detail = line.get("progressDetail") or {}
        self._layers.setdefault(layer, False)
        if status == "Downloading" and detail.get("total"):
            self._sizes[layer] = (int(detail.get("current") or 0), int(detail["total"]))
        elif status in {"Download complete", "Extracting", "Verifying Checksum"} and layer in self._sizes:
            total = self._sizes[layer][1]
            self._sizes[layer] = (total, total)
        elif status in {"Pull complete", "Already exists"}:
            self._layers[layer] = True

    def sentence(self) -> str:
        total = sum(size for _, size in self._sizes.values())
        done = sum(current for current, _ in self._sizes.values())
        layers = f"{sum(self._layers.values())}/{len(self._layers)} layers"
        if not self._layers:
            return f"pulling {self.image}"
        if not total:
            return f"pulling {self.image}: {layers}"
        size = f"{total / 1e6:.0f} MB" if total >= 1_000_000 else f"{total / 1e3:.0f} kB"
        return f"pulling {self.image}: {100 * done // total} % of {size}, {layers}"


# -- failures ----------------------------------------------------------------------


def is_port_conflict(words: str) -> bool:
    lowered = words.lower()
    return "port is already allocated" in lowered or "address already in use" in lowered


def start_failure(words: str) -> BoxwrightError:
    """Sort the engine's words about a container that did not start."""
    lowered = words.lower()
    text = short(words)
    if "exec format error" in lowered:
        return ImageRefused(f"the image is built for another processor than the engine's host: {text}")
    if "all ports are allocated" in lowered:
        return StartFailed(f"no free host port is left in the configured range: {text}")
    entry = ("executable file not found", "no such file or directory", "permission denied")
    if "exec:" in lowered and any(mark in lowered for mark in entry):
        return EntrypointFailed(f"the entrypoint cannot be executed: {text}")
    return StartFailed(f"the engine could not start the sandbox: {text}")


def short(words: str, limit: int = 500) -> str:
    """Make one bounded line of the engine's words."""
    line = " ".join(words.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


# -- logs --------------------------------------------------------------------------


class LogFrames:
    """Take the engine's log stream apart, keeping the newest bytes only.

    The stream is frames of `kind, 0, 0, 0, length (4 bytes, big-endian), payload`
    (Engine API, "Stream format"). Both kinds are kept in the order they came.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._buffer = bytearray()
        self._parts: deque[bytes] = deque()
        self._size = 0
        self.cut = False

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            length = int.from_bytes(self._buffer[4:8], "big")
            if len(self._buffer) < 8 + length:
                return
            self._add(bytes(self._buffer[8 : 8 + length]))
            del self._buffer[: 8 + length]

    def _add(self, payload: bytes) -> None:
        self._parts.append(payload[-self._keep :])
        self._size += len(self._parts[-1])
        while self._size > self._keep:
            self._size -= len(self._parts.popleft())
            self.cut = True

    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace")


# -- for people --------------------------------------------------------------------


def describe(inspect: Mapping[str, Any]) -> str:
    """Describe a container for a human; nothing that looks like a secret is shown."""
    config, host = inspect.get("Config") or {}, inspect.get("HostConfig") or {}
    state = inspect.get("State") or {}
    return "\n".join(_lines(inspect, config, host, state)) + "\n"


def _lines(
    inspect: Mapping[str, Any], config: Mapping[str, Any], host: Mapping[str, Any], state: Mapping[str, Any]
) -> Iterator[str]:
    yield f"Name:        {str(inspect.get('Name') or '').lstrip('/')}"
    yield f"Container:   {str(inspect.get('Id') or '')[:12]}"
    yield f"Image:       {config.get('Image', '')}"
    yield f"Created:     {inspect.get('Created', '')}"
    yield f"State:       {state.get('Status', 'unknown')}"
    for title, key in (("Started", "StartedAt"), ("Finished", "FinishedAt")):
        if instant(state.get(key)) is not None:
            yield f"{title + ':':<12} {state[key]}"
    if state.get("Status") in {"exited", "dead"}:
        yield f"Exit code:   {state.get('ExitCode')}"
    if state.get("OOMKilled"):
        yield "OOM killed:  yes"
    if state.get("Error"):
        yield f"Error:       {short(str(state['Error']))}"
    yield f"Command:     {' '.join(config.get('Cmd') or [])}"
    yield f"Runtime:     {host.get('Runtime') or 'default'}"
    yield f"Network:     {host.get('NetworkMode', '')}"
    where = address(inspect)
    if where is not None:
        yield f"Address:     {where.ip or '-'}:{where.port}"
        if where.published_port is not None:
            yield f"Published:   {where.published_host}:{where.published_port}"
    yield f"CPU:         {int(host.get('NanoCpus') or 0) / 1e9:g} (0 = no limit)"
    yield f"Memory:      {int(host.get('Memory') or 0)} bytes (0 = no limit)"
    yield f"Processes:   {host.get('PidsLimit') or 0} (0 = no limit)"
    yield f"Dropped:     {', '.join(host.get('CapDrop') or []) or '-'}"
    yield f"Security:    {', '.join(_options(host.get('SecurityOpt') or [])) or '-'}"
    yield "Mounts:"
    for mount in inspect.get("Mounts") or []:
        source = mount.get("Name") or mount.get("Source") or ""
        access = "rw" if mount.get("RW") else "ro"
        yield f"  {mount.get('Destination', '')} <- {mount.get('Type', '')} {source} ({access})"
    yield "Environment:"
    for item in config.get("Env") or []:
        name, _, value = str(item).partition("=")
        # A secret may stand behind any name; these few are the engine's and the image's own.
        yield f"  {name}={value if name in _PLAIN_VARIABLES else HIDDEN}"
    yield "Labels:"
    for name, value in sorted((config.get("Labels") or {}).items()):
        yield f"  {name}={HIDDEN if _SECRETIVE.search(name) else value}"


def _options(options: Sequence[str]) -> Iterator[str]:
    # A seccomp profile is passed as a whole JSON document; its name is enough.
    for option in options:
        yield option if len(option) < 60 else option[:40] + "…"
