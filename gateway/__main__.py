"""Serve the gateway: `python -m gateway [--config FILE]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import logging.handlers
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI

from gateway.app import SystemClock, open_app
from gateway.config import BadSetting, Settings, load
from gateway.http.protocol import BoundedProtocol
from gateway.proxy.websocket import MAX_MESSAGE_BYTES
from gateway.runtimes.docker.engine import Engine, EngineSettings
from gateway.runtimes.docker.probe import check_runtime
from gateway.sandboxes.model import BundleMount
from gateway.stores.database import Database, StoreTooNew
from gateway.stores.installation import SecretDamaged
from gateway.stores.keys import SqliteKeys
from images.bundle.cache import default_cache
from images.bundle.choose import quickest
from images.bundle.errors import BundleError
from images.bundle.model import Kind
from specs.errors import BoxwrightError

SOURCES: Final = Path(__file__).resolve().parents[1]
KINDS: Final[Mapping[str, Kind | None]] = {"auto": None, "frozen": "frozen", "debian": "debian"}


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Read the settings, have a bundle, serve until told to stop.
    """
    parser = argparse.ArgumentParser(prog="gateway", description="Serve the lifecycle API.")
    parser.add_argument("--config", type=Path, help="TOML file; also BOXWRIGHT_CONFIG or SANDBOX_CONFIG_PATH")
    asked = parser.parse_args(arguments)
    try:
        settings = load(asked.config or config_path(os.environ), os.environ)
        configure_logs(settings)
        serve(settings, prepare(settings, have_bundle(settings, os.environ)))
    except (BadSetting, BundleError, StoreTooNew, SecretDamaged, BoxwrightError) as error:
        sys.stderr.write(f"gateway: {error}\n")
        return 1
    return 0


def config_path(environ: Mapping[str, str]) -> Path | None:
    """
    Return the configuration file that the environment names, ours before the other server's.
    """
    named = environ.get("BOXWRIGHT_CONFIG") or environ.get("SANDBOX_CONFIG_PATH")
    return Path(named) if named else None


def have_bundle(settings: Settings, environ: Mapping[str, str]) -> BundleMount:
    """
    Return the execd bundle that the settings ask for, building it when there is none.

    Raises:
        BundleError: no kind could be had.
    """
    log = structlog.get_logger(__name__)
    made = quickest(
        source_root=SOURCES,
        cache=default_cache(environ),
        report=lambda text: log.info("bundle", text=text),
        kind=KINDS[settings.gateway.bundle],
    )
    log.info("bundle_chosen", kind=made.kind, digest=made.digest, path=str(made.path))
    return BundleMount(str(made.path), made.entrypoint)


def prepare(settings: Settings, bundle: BundleMount) -> FastAPI:
    """
    Check what must hold before the first request, and put the gateway together.

    Raises:
        BadSetting: no API key is there to call with, or the secure runtime does not work.
    """
    for warning in settings.warnings:
        structlog.get_logger(__name__).warning("setting", text=warning)
    app = open_app(settings, bundle=bundle)
    asyncio.run(_check(settings))
    return app


def serve(settings: Settings, app: FastAPI) -> None:
    """
    Serve until a signal; running requests get a moment, streams are cut.
    """
    server = settings.server
    uvicorn.run(
        app,
        host=server.host,
        port=server.port,
        loop="uvloop",
        http=BoundedProtocol,
        ws="websockets-sansio",
        log_config=None,
        access_log=False,
        ws_max_size=MAX_MESSAGE_BYTES,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=server.backlog,
        timeout_keep_alive=server.timeout_keep_alive,
        timeout_graceful_shutdown=server.timeout_graceful_shutdown,
        lifespan="on",
    )


def configure_logs(settings: Settings) -> None:
    """
    Write one JSON object for each line, our own events and the libraries' alike.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Never local variables: they hold keys, tokens and what sandboxes print.
        structlog.processors.ExceptionRenderer(
            structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        ),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if settings.log.file_enabled:
        handlers.append(_log_file(settings))
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(handlers=handlers, level=settings.log.level, force=True)
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Streams that the end of the server cuts are no failures."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _log_file(settings: Settings) -> logging.Handler:
    path = Path(settings.log.file_path) if settings.log.file_path else settings.home / "server.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return logging.handlers.RotatingFileHandler(
        path, maxBytes=settings.log.file_max_bytes, backupCount=settings.log.file_backup_count
    )


async def _check(settings: Settings) -> None:
    await _check_keys(settings)
    runtime = settings.engine_runtime
    if runtime is None:
        return
    log = structlog.get_logger(__name__)
    engine = Engine(EngineSettings())
    try:
        verdict = await check_runtime(engine, runtime, report=lambda text: log.info("probe", text=text))
    finally:
        await engine.close()
    if verdict.level != "ok":
        raise BadSetting("[secure_runtime] docker_runtime", f"does not work: {verdict.text}", verdict.fix)
    log.info("secure_runtime", runtime=runtime, text=verdict.text)


async def _check_keys(settings: Settings) -> None:
    if settings.server.api_key is not None:
        return
    database = Database(settings.database)
    try:
        keys = await SqliteKeys(database, SystemClock()).list()
    finally:
        database.close()
    if all(key.revoked_at is not None for key in keys):
        raise BadSetting(
            "[server] api_key",
            "is not set and no key was made yet, so nobody could call this gateway",
            "run `boxwright keys create`, or set BOXWRIGHT_API_KEY",
        )


if __name__ == "__main__":
    sys.exit(main())
