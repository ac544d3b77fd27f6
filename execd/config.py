"""Read the whole configuration once, or refuse to start.

The only place of execd that reads its environment. What the user's processes get
as theirs is made here too: execd's own names are taken out, the image's
LD_PRELOAD is given back.
"""

from __future__ import annotations

import os

from specs.names import (
    ENV_ACCESS_TOKEN,
    ENV_ACCESS_TOKEN_HASH,
    ENV_ENVS_FILE,
    ENV_LD_PRELOAD,
    ENV_PRIVATE,
    ENV_STATE_DIR,
    MOUNT_STATE,
    PORT_EXECD,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HASH_PREFIX = "sha256:"


class BadSetting(Exception):
    """A setting is not understood; there is no fallback to a weaker one."""


class Settings:
    """Everything configurable, read once; never changed afterwards."""

    __slots__ = (
        "base_environ",
        "envs_file",
        "foreground_buffer",
        "grace_seconds",
        "heartbeat_seconds",
        "host",
        "max_body",
        "port",
        "retain_count",
        "retain_seconds",
        "spool_limit",
        "state_dir",
        "token",
        "token_hash",
    )

    def __init__(
        self,
        *,
        state_dir: str,
        port: int = PORT_EXECD,
        host: str = "0.0.0.0",
        token: str | None = None,
        token_hash: str | None = None,
        envs_file: str | None = None,
        base_environ: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self.host = host  # "0.0.0.0" means every address, IPv6 included where there is any
        self.token = token
        self.token_hash = token_hash  # "sha256:" and 64 hex digits
        self.state_dir = state_dir
        self.envs_file = envs_file or f"{state_dir}/env/vars"
        self.base_environ: dict[str, str] = dict(base_environ or {})  # of every user process
        self.base_environ[ENV_ENVS_FILE] = self.envs_file
        self.heartbeat_seconds = 3.0  # between pings of a quiet stream
        self.grace_seconds = 10.0  # from TERM to KILL
        self.max_body = 8 << 20  # of a JSON request
        self.foreground_buffer = 1 << 20  # bytes of one stream in flight to a slow client
        self.spool_limit = 64 << 20  # bytes of one command's spooled output
        self.retain_count = 1000  # finished commands that can still be asked about
        self.retain_seconds = 24 * 3600.0


def load(environ: Mapping[str, str], *, port: int = PORT_EXECD, host: str = "0.0.0.0") -> Settings:
    """
    Read the environment.

    Raises:
        BadSetting: a value is missing or not understood.
    """
    token = environ.get(ENV_ACCESS_TOKEN)
    token_hash = environ.get(ENV_ACCESS_TOKEN_HASH)
    if token == "":
        raise BadSetting(f"{ENV_ACCESS_TOKEN} is set but empty: unset it to serve without a token")
    if token_hash is not None:
        token_hash = check_hash(token_hash)
    return Settings(
        port=port,
        host=host,
        token=token,
        token_hash=token_hash,
        state_dir=open_state_dir(environ),
        envs_file=environ.get(ENV_ENVS_FILE) or None,
        base_environ=user_environ(environ),
    )


def check_hash(value: str) -> str:
    """
    Return a token hash in lower case.

    Raises:
        BadSetting: it is not `sha256:` and 64 hexadecimal digits.
    """
    digits = value.removeprefix(HASH_PREFIX)
    if not value.startswith(HASH_PREFIX) or len(digits) != 64 or digits.strip("0123456789abcdefABCDEF"):
        raise BadSetting(f"{ENV_ACCESS_TOKEN_HASH}: expected {HASH_PREFIX} and 64 hexadecimal digits")
    return value.lower()


def user_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of user processes: ours without our names, LD_PRELOAD given back."""
    out = {name: value for name, value in environ.items() if name not in ENV_PRIVATE}
    preload = environ.get(ENV_LD_PRELOAD)
    if preload:
        out["LD_PRELOAD"] = preload
    elif preload is not None or not out.get("LD_PRELOAD"):
        out.pop("LD_PRELOAD", None)
    return out


def open_state_dir(environ: Mapping[str, str]) -> str:
    """
    Return a directory of ours to keep state in, made if need be.

    A directory named by the environment must work. Otherwise the usual mount is taken,
    or, where that cannot be written, a private directory for temporary files.

    Raises:
        BadSetting: nothing can be written.
    """
    named = environ.get(ENV_STATE_DIR)
    if named:
        if not os.path.isabs(named) or not _writable(named):
            raise BadSetting(f"{ENV_STATE_DIR}={named}: not a directory that can be written")
        return named
    if _writable(MOUNT_STATE):
        return MOUNT_STATE
    for parent in (environ.get("TMPDIR"), "/tmp", "/dev/shm", "/var/tmp"):  # noqa: S108 - checked below
        if parent and os.path.isabs(parent):
            path = f"{parent}/boxwright-{os.getuid()}"
            if _writable(path, private=True):
                return path
    raise BadSetting(f"no directory can be written for state: set {ENV_STATE_DIR}")


def _writable(path: str, private: bool = False) -> bool:
    """Say whether `path` is a directory we can write, made if missing; if `private`, ours alone."""
    try:
        os.makedirs(path, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if private and (found.st_mode & 0o170077 != 0o040000 or found.st_uid != os.getuid()):
        return False
    return found.st_mode & 0o170000 in {0o040000, 0o120000} and os.access(path, os.W_OK | os.X_OK)
