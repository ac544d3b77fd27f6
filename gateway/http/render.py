"""Records as the answers that show them (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sandboxes.endpoints import Route
from gateway.sandboxes.model import SandboxRecord
from gateway.sandboxes.query import Page
from specs.lifecycle import (
    CreateSandboxResponse,
    Endpoint,
    ImageReference,
    ListSandboxesResponse,
    PaginationInfo,
    PlatformSpec,
    Sandbox,
    SandboxStatus,
)


def created(record: SandboxRecord) -> CreateSandboxResponse:
    """
    Show a sandbox at the end of its create; it has no image there.
    """
    return CreateSandboxResponse(
        id=record.sandbox_id,
        status=status(record),
        metadata=record.metadata or None,
        extensions=record.extensions or None,
        platform=platform(record),
        expires_at=record.expires_at,
        created_at=record.created_at,
        entrypoint=list(record.entrypoint),
    )


def sandbox(record: SandboxRecord) -> Sandbox:
    """
    Show a sandbox as it is now.
    """
    return Sandbox(
        id=record.sandbox_id,
        image=ImageReference(uri=record.image),
        platform=platform(record),
        status=status(record),
        metadata=record.metadata or None,
        extensions=record.extensions or None,
        entrypoint=list(record.entrypoint),
        expires_at=record.expires_at,
        created_at=record.created_at,
    )


def page(records: Sequence[SandboxRecord], total: int, wanted: Page) -> ListSandboxesResponse:
    """
    Show one page.
    """
    pages = wanted.count(total)
    return ListSandboxesResponse(
        items=[sandbox(record) for record in records],
        pagination=PaginationInfo(
            page=wanted.number,
            page_size=wanted.size,
            total_items=total,
            total_pages=pages,
            has_next_page=wanted.number < pages,
        ),
    )


def status(record: SandboxRecord) -> SandboxStatus:
    """
    Show where a sandbox is in its life.
    """
    return SandboxStatus(
        state=record.status.state.value,
        reason=record.status.reason or None,
        message=record.status.message or None,
        last_transition_at=record.status.since,
    )


def platform(record: SandboxRecord) -> PlatformSpec | None:
    """
    Show the platform, only when the request asked for one.
    """
    return None if record.platform is None else PlatformSpec(os=record.platform.os, arch=record.platform.arch)


def endpoint(route: Route) -> Endpoint:
    """
    Show an endpoint.
    """
    return Endpoint(endpoint=route.endpoint, headers=dict(route.headers) or None)
