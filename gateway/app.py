"""The composition root: who gets what, on one page."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware

from gateway.config import Settings
from gateway.http import context, diagnostics, document, endpoints, planned, sandboxes, service
from gateway.http import errors as http_errors
from gateway.http.auth import KeyAuthenticator
from gateway.operations.changes import Changes
from gateway.operations.diagnostics import Diagnostics
from gateway.operations.ports import Clock, ExecdPeer, Keys, Runtime, Store
from gateway.operations.provisioning import Provisioner
from gateway.operations.readiness import Readiness
from gateway.operations.register import Register
from gateway.operations.sandboxes import Sandboxes
from gateway.operations.services import Services
from gateway.operations.tasks import Tasks
from gateway.peers.execd import HttpExecdPeer
from gateway.proxy.routes import mount
from gateway.runtimes.docker.engine import EngineSettings
from gateway.runtimes.registry import RUNTIMES, OpenArguments
from gateway.sandboxes.model import BundleMount, Secret
from gateway.stores.database import Database
from gateway.stores.installation import read_secret
from gateway.stores.keys import SqliteKeys
from gateway.stores.sqlite import SqliteStore
from gateway.workers.engine_events import EngineEvents
from gateway.workers.expiry import ExpirySweep
from gateway.workers.neighbours import Neighbours
from gateway.workers.recovery import Recovery
from specs.names import HEADER_REQUEST_ID

# Doors whose routes exist with and without /v1; the ones with are documented.
EVERYWHERE: Final = (sandboxes.router, endpoints.router, diagnostics.router, *planned.ROUTERS, service.matrix)

_log = structlog.get_logger(__name__)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def version() -> str:
    """
    Return the one version that all parts of an installation share.
    """
    return importlib.metadata.version("boxwright")


@dataclass(frozen=True, slots=True)
class Core:
    """Operations and workers on a store and an engine: a gateway without its doors."""

    settings: Settings
    register: Register
    runtime: Runtime
    tasks: Tasks
    provisioner: Provisioner
    operations: Sandboxes
    recovery: Recovery

    async def begin(self) -> None:
        """Take part in the work on the store, and start the workers."""
        await self.register.join()
        sweep = ExpirySweep(self.register, self.operations, tombstone_days=self.settings.store.tombstone_days)
        neighbours = Neighbours(self.register, self.provisioner, self.recovery.ask)
        self.tasks.supervise(self.recovery.run, "recovery")
        self.tasks.supervise(neighbours.run, "neighbours")
        self.tasks.supervise(EngineEvents(self.runtime, self.operations).run, "engine events")
        self.tasks.supervise(sweep.run, "expiry")

    async def end(self) -> None:
        """Let promised work end within the grace of the settings, then stop everything."""
        await self.tasks.close(self.settings.server.timeout_graceful_shutdown)


def make_core(
    settings: Settings,
    *,
    runtime: Runtime,
    store: Store,
    peer: ExecdPeer,
    bundle: BundleMount,
    secret: bytes,
    clock: Clock | None = None,
) -> Core:
    """
    Put operations and workers together; nothing runs before `begin`.
    """
    tasks = Tasks()
    register = Register(store, Changes(), clock or SystemClock())
    provisioner = Provisioner(register, runtime, peer, tasks, settings.gateway)
    operations = Sandboxes(register, provisioner, runtime, tasks, settings, secret=secret, bundle=bundle)
    recovery = Recovery(register, provisioner, runtime, operations)
    return Core(settings, register, runtime, tasks, provisioner, operations, recovery)


def create_app(
    settings: Settings,
    *,
    runtime: Runtime,
    store: Store,
    keys: Keys,
    peer: ExecdPeer,
    bundle: BundleMount,
    secret: bytes,
    clock: Clock | None = None,
) -> FastAPI:
    """
    Put the gateway together; nothing runs before the app's lifespan begins.

    `secret` is the installation's, from which execd's tokens are derived; `clock` is the machine's own unless
    a test brings another.
    """
    core = make_core(
        settings, runtime=runtime, store=store, peer=peer, bundle=bundle, secret=secret, clock=clock
    )
    services = Services(
        settings=settings,
        operations=core.operations,
        diagnostics=Diagnostics(core.register, runtime),
        readiness=Readiness(store, runtime),
        auth=KeyAuthenticator(keys, core.tasks),
        capabilities=runtime.capabilities,
        version=version(),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if settings.server.api_key is not None:
            await keys.ensure_first(Secret(settings.server.api_key))
        await core.begin()
        try:
            yield
        finally:
            await core.end()
            await proxy.close()
            await runtime.close()

    app = FastAPI(
        title="Boxwright",
        version=services.version,
        summary="Create, watch, reach and end sandboxes.",
        lifespan=lifespan,
        docs_url="/docs" if settings.server.docs else None,
        redoc_url="/redoc" if settings.server.docs else None,
        openapi_url="/openapi.json" if settings.server.docs else None,
    )
    app.state.services = services
    _add_doors(app)
    proxy = mount(app, services)
    http_errors.install(app)
    if settings.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.server.cors_origins,
            allow_credentials=True,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[HEADER_REQUEST_ID],
        )
    app.add_middleware(context.RequestContext, limit=settings.server.limit_concurrency)
    return app


def open_app(settings: Settings, *, bundle: BundleMount) -> FastAPI:
    """
    Open the real store, engine and peer that the settings name, and put the gateway together.

    Raises:
        StoreTooNew, SecretDamaged: the state folder is not usable.
    """
    database = Database(settings.database)
    store = SqliteStore(database, events_per_sandbox=settings.store.events_per_sandbox)
    arguments = OpenArguments(
        instance=asyncio.run(store.instance()),
        parallel_starts=settings.gateway.starts,
        hold_dir=settings.home / "hold",
        engine=EngineSettings(
            call_seconds=float(settings.docker.api_timeout),
            start_seconds=settings.gateway.engine_deadline_seconds,
            pull_seconds=settings.gateway.pull_deadline_seconds,
        ),
    )
    return create_app(
        settings,
        runtime=RUNTIMES[settings.runtime.type].open(arguments),
        store=store,
        keys=SqliteKeys(database, SystemClock()),
        peer=HttpExecdPeer(),
        bundle=bundle,
        secret=read_secret(settings.home),
    )


def openapi_document() -> dict[str, Any]:
    """
    Return the document that is served, without starting or opening anything.
    """
    app = FastAPI(title="Boxwright", version=version(), summary="Create, watch, reach and end sandboxes.")
    _add_doors(app)
    return app.openapi()


def _add_doors(app: FastAPI) -> None:
    app.include_router(service.public)
    documented = APIRouter(prefix="/v1")
    plain = APIRouter(include_in_schema=False)
    for router in EVERYWHERE:
        documented.include_router(router)
        plain.include_router(router)
    documented.include_router(service.telemetry)
    app.include_router(documented)
    app.include_router(plain)

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            generated = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes
            )
            app.openapi_schema = document.with_proxy(generated)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
