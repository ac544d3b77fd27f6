"""What the gateway says it serves, against the documents we publish."""

from __future__ import annotations

from gateway.app import openapi_document
from tests.wire.compare import reconcile
from tests.wire.documents import compare_served, named_differences


def test_served_document_is_the_published_one() -> None:
    """Each documented route is served, each served route is documented, and their shapes agree."""
    names = [name for name in named_differences() if name.where.startswith("served ")]
    unnamed, stale = reconcile(compare_served(openapi_document()), names)
    assert unnamed == []
    assert stale == []
