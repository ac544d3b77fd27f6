"""The gateway's settings: one frozen tree and the one function that reads it.

The file is TOML in the sections of an OpenSandbox server file, so that such a file can be
used as it is, plus `[gateway]` and `[limits]`, which are ours. `BOXWRIGHT_<SECTION>_<KEY>` in the
environment wins over the file. Nothing here is looked up anywhere else.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ENV_PREFIX: Final = "BOXWRIGHT_"
SHORT_NAMES: Final = {
    "BOXWRIGHT_PORT": ("server", "port"),
    "BOXWRIGHT_HOST": ("server", "host"),
    "BOXWRIGHT_API_KEY": ("server", "api_key"),
    "BOXWRIGHT_HOME": ("gateway", "home"),
    "OPENSANDBOX_SERVER_API_KEY": ("server", "api_key"),
}
WEAK_KEY: Final = 16
OWN_NAMES: Final = ("BOXWRIGHT_CONFIG",)

# Sections of an OpenSandbox server file that this release reads past, and what that means.
UNUSED_SECTIONS: Final = {
    "kubernetes": "this gateway drives Docker",
    "agent_sandbox": "this gateway drives Docker",
    "ingress": "endpoints are direct or go through this server",
    "egress": "requests with networkPolicy are refused",
    "renew_intent": "sandboxes are renewed by renew-expiration only",
    "tenants": "every API key sees every sandbox",
    "otel": "no metrics are pushed",
}


class BadSetting(Exception):
    """A setting is missing or not understood; the gateway does not start."""

    def __init__(self, where: str, problem: str, fix: str) -> None:
        super().__init__(f"{where}: {problem}; {fix}")
        self.where, self.problem, self.fix = where, problem, fix


def _setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """Declare one key with everything that reading it and printing the sample need."""
    metadata = {"doc": doc, "low": low, "high": high, "choices": choices}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the API listens and what it calls itself."""

    host: str = _setting("127.0.0.1", "address to listen on; 0.0.0.0 for every interface")
    port: int = _setting(8080, "port to listen on", low=1, high=65535)
    api_key: str | None = _setting(
        None, "the first API key, if you choose it yourself; kept as a hash", secret=True
    )
    eip: str | None = _setting(None, "public host (or base address with path) that endpoints shall carry")
    max_sandbox_timeout_seconds: int | None = _setting(
        None, "longest timeout a create may ask for; none = any", low=60
    )
    timeout_keep_alive: int = _setting(30, "seconds an idle connection is kept", low=1)
    timeout_graceful_shutdown: int = _setting(5, "seconds that running requests get at the end", low=1)
    limit_concurrency: int = _setting(1024, "requests at once; 0 = no limit; above it: 429", low=0)
    backlog: int = _setting(2048, "connections the kernel queues", low=1)
    cors_origins: tuple[str, ...] = _setting(
        (), "browser origins that may call this API with their credentials; none by default"
    )
    docs: bool = _setting(True, "serve /docs and /openapi.json")


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The way through this server to a port of a sandbox."""

    resolve_internal: bool = _setting(
        True, "dial the sandbox's own address; false = its published port on the host"
    )
    connect_timeout_seconds: float = _setting(10.0, "seconds to reach the sandbox", low=0.1)
    answer_timeout_seconds: float = _setting(
        180.0, "seconds until the service must have begun its answer; streams are not limited", low=1
    )
    connections_per_sandbox: int = _setting(256, "connections at once to one sandbox", low=1)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is written to standard error, or to a file."""

    level: str = _setting("INFO", "least severity", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    file_enabled: bool = _setting(False, "write to `file_path` as well")
    file_path: str = _setting("", "log file; empty = server.log in the state folder")
    file_max_bytes: int = _setting(104_857_600, "size at which the file is turned over", low=4096)
    file_backup_count: int = _setting(5, "old files kept", low=0)


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """Which backend makes the sandboxes."""

    type: str = _setting("docker", "container backend", choices=("docker",))
    execd_image: str | None = _setting(
        None, "has no effect: execd comes from the bundle built on this machine"
    )
    execd_run_as_init: bool = _setting(True, "has no effect: execd always is the first process")
    docker_runtime: str | None = _setting(
        None, "engine runtime of every sandbox, such as runsc; none = the engine's default; checked at start"
    )


DROPPED: Final = (
    "AUDIT_WRITE",
    "MKNOD",
    "NET_ADMIN",
    "NET_RAW",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
)


@dataclass(frozen=True, slots=True)
class DockerSettings:
    """How containers are made."""

    network_mode: str = _setting("bridge", "`bridge` or the name of an existing user network")
    api_timeout: int = _setting(180, "seconds one engine call may take", low=1)
    host_ip: str | None = _setting(
        None, "address of the host as clients see it, when ports are published on every interface"
    )
    drop_capabilities: tuple[str, ...] = _setting(DROPPED, "capabilities taken from every sandbox")
    apparmor_profile: str | None = _setting(None, "AppArmor profile; none = the engine's default")
    seccomp_profile: str | None = _setting(None, "seccomp profile file; none = the engine's default")
    no_new_privileges: bool = _setting(True, "set-uid programs gain nothing inside a sandbox")
    port_range_min: int = _setting(
        20000,
        "first host port for sandboxes; below the kernel's own outgoing range (32768 and up)",
        low=1024,
        high=65535,
    )
    port_range_max: int = _setting(32000, "last host port for sandboxes", low=1024, high=65535)
    publish_host: str = _setting("127.0.0.1", "host address that sandbox ports are published on")
    read_only_root: bool = _setting(False, "sandboxes may write to /tmp, their volumes and nowhere else")
    pids_limit: int | None = _setting(4096, "processes and threads one sandbox may have", low=1)
    sandbox_env: Mapping[str, str] = _setting({}, "environment of every sandbox; a request's own wins")
    sandbox_binds: tuple[str, ...] = _setting((), "extra binds of every sandbox, `source:target[:ro]`")
    stop_grace_seconds: int = _setting(10, "seconds between TERM and KILL at the end", low=0, high=300)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """What of the host may be mounted."""

    allowed_host_paths: tuple[str, ...] = _setting(
        (), "folders whose content may be mounted; none = host volumes are refused"
    )


@dataclass(frozen=True, slots=True)
class SecureRuntimeSettings:
    """A stronger container runtime."""

    type: str = _setting("", "kind of secure runtime", choices=("", "gvisor", "kata"))
    docker_runtime: str | None = _setting(
        None, "its name in the engine; none = runsc for gvisor, kata-runtime for kata"
    )

    @property
    def engine_name(self) -> str | None:
        """The runtime's name as the engine knows it, None for the engine's default."""
        return self.docker_runtime or {"gvisor": "runsc", "kata": "kata-runtime"}.get(self.type)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where state is kept."""

    type: str = _setting("sqlite", "kind of store", choices=("sqlite",))
    path: str | None = _setting(None, "database file; none = boxwright.db in the state folder")
    tombstone_days: int = _setting(7, "days an ended sandbox stays on record", low=0)
    events_per_sandbox: int = _setting(200, "history lines kept of one sandbox", low=10)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Ceilings for one sandbox, and what it gets when it asks for nothing."""

    default_cpus: float | None = _setting(1.0, 'cores when a request names none; "" = no limit', low=0.01)
    default_memory_mib: int | None = _setting(
        2048, 'memory (swap included) when a request names none; "" = no limit', low=8
    )
    max_cpus: float | None = _setting(None, "most cores a request may name; none = any", low=0.01)
    max_memory_mib: int | None = _setting(None, "most memory a request may name; none = any", low=8)
    max_env_bytes: int = _setting(131_072, "size of all names and values of `env`", low=1024)
    max_volumes: int = _setting(32, "volumes of one sandbox", low=0)
    max_metadata: int = _setting(64, "metadata pairs of one sandbox", low=1)
    max_body_bytes: int = _setting(1_048_576, "size of a request body", low=65_536)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Deadlines, bounds and places of this gateway."""

    home: str = _setting(
        "", "state folder; empty = /var/lib/boxwright as root, else ~/.local/share/boxwright"
    )
    bundle: str = _setting(
        "auto", "which execd bundle to use; auto = what is had soonest", choices=("auto", "frozen", "debian")
    )
    create_wait_seconds: float = _setting(
        1.5, "how long a create waits for Running before it answers Pending", low=0, high=25
    )
    endpoint_wait_seconds: float = _setting(
        25.0, "how long an endpoint lookup waits for a sandbox that is still starting", low=0, high=28
    )
    ready_deadline_seconds: float = _setting(30.0, "seconds from start until execd must answer", low=1)
    pull_deadline_seconds: float = _setting(900.0, "seconds an image pull may take", low=1)
    engine_deadline_seconds: float = _setting(60.0, "seconds a create or start may take", low=1)
    concurrent_starts: int = _setting(0, "starts given to the engine at once; 0 = four for each core", low=0)
    start_queue: int = _setting(512, "creates under way at once; above it: 429", low=1)

    @property
    def starts(self) -> int:
        return self.concurrent_starts or 4 * (os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree."""

    server: ServerSettings = field(default_factory=ServerSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    docker: DockerSettings = field(default_factory=DockerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    secure_runtime: SecureRuntimeSettings = field(default_factory=SecureRuntimeSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    log: LogSettings = field(default_factory=LogSettings)
    warnings: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        return Path(self.gateway.home)

    @property
    def engine_runtime(self) -> str | None:
        """The engine runtime of every sandbox; None for the engine's default."""
        return self.secure_runtime.engine_name or self.runtime.docker_runtime

    @property
    def database(self) -> Path:
        return Path(self.store.path) if self.store.path else self.home / "boxwright.db"


SECTIONS: Final = {
    one.name: typing.cast("type[Any]", one.default_factory)
    for one in dataclasses.fields(Settings)
    if one.name != "warnings"
}


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """
    Read the whole configuration once, or refuse to start.

    Args:
        path: the TOML file, if there is one.
        environ: the process's environment.

    Raises:
        BadSetting: a value is not understood or asks for something this gateway does not do.
    """
    document = _document(path) if path is not None else {}
    source = str(path) if path is not None else "configuration"
    warnings: list[str] = []
    values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for section, content in document.items():
        _refuse_foreign(source, section, content)
        if section in UNUSED_SECTIONS:
            warnings.append(
                f"{source}: [{section}] is accepted and has no effect: {UNUSED_SECTIONS[section]}"
            )
        elif section not in SECTIONS:
            warnings.append(f"{source}: [{section}] is not known and has no effect")
        elif not isinstance(content, dict):
            raise BadSetting(
                f"{source}: {section}", "is not a section", f"write [{section}] and its keys below"
            )
        else:
            for key, value in content.items():
                if key in _fields(SECTIONS[section]):
                    where = f"{source}: [{section}] {key}"
                    values[section][key] = _checked(SECTIONS[section], key, value, where)
                else:
                    warnings.append(f"{source}: [{section}] {key} is not known and has no effect")
    for name, (section, key), text in _from_environment(environ, warnings):
        values[section][key] = _checked(
            SECTIONS[section], key, _parsed(SECTIONS[section], key, text, name), name
        )
    values["gateway"]["home"] = _home(values["gateway"].get("home", ""), environ)
    if 0 < len(values["server"].get("api_key") or "") < WEAK_KEY:
        warnings.append(f"the configured API key is shorter than {WEAK_KEY} characters and could be guessed")
    sections = {name: kind(**values[name]) for name, kind in SECTIONS.items()}
    settings = Settings(**sections, warnings=tuple(warnings))
    _check_together(settings, source)
    return settings


def render_sample() -> str:
    """
    Print every key with its meaning and default, commented out, as a TOML file.
    """
    lines = ["# Boxwright gateway. Every key is optional; the values shown are the defaults."]
    for name, kind in SECTIONS.items():
        summary = (kind.__doc__ or "").strip().splitlines()[0]
        lines += ["", f"# {summary}", f"[{name}]"]
        for one in _fields(kind).values():
            lines.append(f"# {one.metadata['doc']}{_bounds(one)}")
            default = one.default_factory() if callable(one.default_factory) else one.default
            lines.append(f"#{one.name} = {_toml(default)}")
    return "\n".join(lines) + "\n"


# -- reading ---------------------------------------------------------------------------


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(
            str(path), f"cannot be read ({error.strerror})", "give a file that exists"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(str(path), f"is not TOML ({error})", "correct that line") from error


def _refuse_foreign(source: str, section: str, content: object) -> None:
    """Stop at settings that ask for a guarantee which would silently be missing."""
    if not isinstance(content, dict):
        return
    if section == "runtime" and content.get("type") == "kubernetes":
        raise BadSetting(
            f"{source}: [runtime] type", "is kubernetes, which this release does not drive", 'use "docker"'
        )
    if section == "store" and content.get("type") == "postgresql":
        raise BadSetting(
            f"{source}: [store] type", "is postgresql, which this release does not have", 'use "sqlite"'
        )
    if section == "ingress" and content.get("mode", "direct") != "direct":
        raise BadSetting(
            f"{source}: [ingress] mode", "is not available on Docker", 'use "direct" or leave it out'
        )


def _from_environment(
    environ: Mapping[str, str], warnings: list[str]
) -> Iterator[tuple[str, tuple[str, str], str]]:
    # Short names last, and our own after the other server's, so that the most specific word wins.
    long_names = {
        f"{ENV_PREFIX}{section}_{key}".upper(): (section, key)
        for section, kind in SECTIONS.items()
        for key in _fields(kind)
    }
    for name in sorted(environ):
        if name in long_names:
            yield name, long_names[name], environ[name]
        elif name.startswith(ENV_PREFIX) and name not in SHORT_NAMES and name not in OWN_NAMES:
            warnings.append(f"environment: {name} is not known and has no effect")
    for name in sorted(SHORT_NAMES, reverse=True):
        if environ.get(name):
            yield name, SHORT_NAMES[name], environ[name]
    if environ.get("OPENSANDBOX_INSECURE_SERVER"):
        warnings.append("environment: OPENSANDBOX_INSECURE_SERVER has no effect: an API key is always needed")


def _home(configured: str, environ: Mapping[str, str]) -> str:
    if configured:
        return os.path.abspath(os.path.expanduser(configured))
    if os.geteuid() == 0:
        return "/var/lib/boxwright"
    base = environ.get("XDG_DATA_HOME") or os.path.join(environ.get("HOME", "/tmp"), ".local/share")  # noqa: S108
    return os.path.join(base, "boxwright")


def _check_together(settings: Settings, source: str) -> None:
    docker = settings.docker
    where = f"{source}: [docker]"
    if docker.port_range_max - docker.port_range_min + 1 < 100:
        raise BadSetting(f"{where} port_range_max", "leaves fewer than 100 ports", "widen the range")
    if docker.network_mode in {"host", "none"} or docker.network_mode.startswith("container:"):
        raise BadSetting(
            f"{where} network_mode",
            f"is {docker.network_mode!r}: sandboxes would share a network that is not theirs, or have none",
            'use "bridge" or the name of a network made with `docker network create`',
        )
    secure, plain = settings.secure_runtime.engine_name, settings.runtime.docker_runtime
    if secure is not None and plain is not None and secure != plain:
        raise BadSetting(
            f"{source}: [runtime] docker_runtime",
            f"is {plain!r} while [secure_runtime] asks for {secure!r}",
            "name the runtime in one of the two",
        )
    for path in settings.storage.allowed_host_paths:
        if not path.startswith("/") or os.path.normpath(path) != path.rstrip("/") or not path.strip("/"):
            raise BadSetting(
                f"{source}: [storage] allowed_host_paths",
                f"has {path!r}, which is no plain absolute folder",
                "name folders below /, without `..` or `//`",
            )


# -- one value -------------------------------------------------------------------------


def _fields(kind: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {one.name: one for one in dataclasses.fields(kind)}


def _type_of(kind: type[Any], key: str) -> tuple[Any, bool]:
    """Return the bare type of a key and whether it may be absent."""
    hint = typing.get_type_hints(kind)[key]
    if isinstance(hint, types.UnionType):
        inner = [one for one in typing.get_args(hint) if one is not types.NoneType]
        return inner[0], True
    return hint, False


def _checked(kind: type[Any], key: str, value: Any, where: str) -> Any:
    wanted, optional = _type_of(kind, key)
    if optional and value == "":
        return None
    value = _typed(wanted, value, where)
    meta = _fields(kind)[key].metadata
    if meta["choices"] and isinstance(value, str):
        value = _chosen(value, meta["choices"], where)
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = meta["low"], meta["high"]
        if (low is not None and value < low) or (high is not None and value > high):
            raise BadSetting(
                where, f"is {value}, which is out of range", f"use a value{_bounds(_fields(kind)[key])}"
            )
    return value


def _chosen(value: str, choices: tuple[str, ...], where: str) -> str:
    for choice in choices:
        if value.lower() == choice.lower():
            return choice
    raise BadSetting(where, f"is {value!r}", "use one of " + ", ".join(f'"{one}"' for one in choices))


def _typed(wanted: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(wanted) or wanted
    if origin is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise BadSetting(where, "is not a list of strings", 'write it like ["one", "two"]')
        return tuple(value)
    if origin is Mapping:
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise BadSetting(where, "is not a table of strings", 'write it like {NAME = "value"}')
        return dict(value)
    if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if type(value) is not origin:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
        raise BadSetting(where, f"is not {words[origin]}", f"give {words[origin]}")
    return value


def _parsed(kind: type[Any], key: str, text: str, name: str) -> Any:
    """Read the text of an environment variable as the key's type."""
    wanted, optional = _type_of(kind, key)
    if optional and not text:
        return ""
    origin = typing.get_origin(wanted) or wanted
    if origin is bool:
        verdict = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(
            text.lower()
        )
        return text if verdict is None else verdict
    if origin is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if origin is Mapping:
        pairs = [part.partition("=") for part in text.split(",") if part]
        return {left.strip(): right for left, _, right in pairs}
    if origin in {int, float}:
        try:
            return origin(text)
        except ValueError as error:
            raise BadSetting(name, "is not a number", "give digits") from error
    return text


def _bounds(one: dataclasses.Field[Any]) -> str:
    low, high = one.metadata["low"], one.metadata["high"]
    if one.metadata["choices"]:
        return " (" + ", ".join(f'"{choice}"' for choice in one.metadata["choices"]) + ")"
    if low is not None and high is not None:
        return f" ({low}..{high})"
    return f" (at least {low})" if low is not None else ""


def _toml(value: Any) -> str:
    if value is None:
        return '""  # not set'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return str(value)
