"""The shape of logs and events (published in `openapi/diagnostics.yaml`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from specs.lifecycle import Instant, Shape


class DiagnosticContentResponse(Shape):
    """A piece of diagnostic text and what it is."""

    model_config = ConfigDict(extra="forbid")

    sandbox_id: str
    kind: Literal["logs", "events"]
    scope: str
    delivery: Literal["inline", "url"]
    content_type: str
    content: str | None = None
    content_url: Annotated[str, Field(json_schema_extra={"format": "uri"})] | None = None
    content_length: Annotated[int, Field(ge=0)] | None = None
    expires_at: Instant | None = None
    truncated: bool
    warnings: list[str] | None = None
