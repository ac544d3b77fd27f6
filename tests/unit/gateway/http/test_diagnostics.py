"""Logs and events in every form."""

from __future__ import annotations

import pytest
from opensandbox.api.diagnostic.models import DiagnosticContentResponse

from tests.fakes.gateway import FakeGateway, Running


async def test_stable_form(gw: Running, site: FakeGateway) -> None:
    """With a scope the answer is JSON that the client's model reads, cut to its cap and saying so."""
    sandbox_id = await gw.create()
    place = f"/sandboxes/{sandbox_id}/diagnostics"
    empty = (await gw.http.get(f"{place}/logs", params={"scope": "container"})).json()
    assert (empty["content"], empty["truncated"]) == ("(no logs)", False)
    site.runtime.workloads[sandbox_id].output = "é\n" * 150
    logs = (await gw.http.get(f"{place}/logs", params={"scope": "ALL"})).json()
    DiagnosticContentResponse.from_dict(logs)
    assert (logs["scope"], logs["delivery"], logs["kind"], logs["truncated"]) == (
        "all",
        "inline",
        "logs",
        True,
    )
    assert logs["contentLength"] == len(logs["content"].encode())
    assert len(logs["content"].splitlines()) == 100
    assert logs["warnings"]
    events = (await gw.http.get(f"{place}/events", params={"scope": "runtime"})).json()
    assert [line.split()[1] for line in events["content"].splitlines()][-1] == "CONTAINER_RUNNING"
    assert "warnings" not in events


@pytest.mark.parametrize(("kind", "scope"), [("logs", "runtime"), ("events", "container"), ("logs", "")])
async def test_an_unknown_scope_is_refused(gw: Running, kind: str, scope: str) -> None:
    """Each kind has its own scopes."""
    answer = await gw.http.get(f"/sandboxes/{await gw.create()}/diagnostics/{kind}", params={"scope": scope})
    assert (answer.status_code, answer.json()["code"]) == (400, "DIAGNOSTICS_SCOPE_UNSUPPORTED")


async def test_text_forms_are_deprecated(gw: Running, site: FakeGateway) -> None:
    """Without a scope, and for both reports, the answer is text with a Deprecation header."""
    sandbox_id = await gw.create(env={"API_TOKEN": "planted-secret"})
    site.runtime.workloads[sandbox_id].output = "one\ntwo\nthree\n"
    for path in ("logs?tail=2&since=bad", "events?limit=3", "inspect", "summary?tail=1&event_limit=1"):
        answer = await gw.http.get(f"/sandboxes/{sandbox_id}/diagnostics/{path}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["deprecation"] == "true"
        assert answer.text
        assert "planted-secret" not in answer.text
    text = (await gw.http.get(f"/sandboxes/{sandbox_id}/diagnostics/logs?tail=2")).text
    assert [line.split()[-1] for line in text.splitlines()] == ["two", "three"]
    assert (await gw.http.get(f"/sandboxes/{sandbox_id}/diagnostics/logs?tail=0")).status_code == 422
    assert (await gw.http.get("/sandboxes/none/diagnostics/logs")).status_code == 404
