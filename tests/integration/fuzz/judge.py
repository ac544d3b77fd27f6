"""Does an answer keep to the document?"""

from __future__ import annotations

import json
from typing import Any, Final

from jsonschema import Draft202012Validator

from tests.integration.fuzz.calls import PLANTED, Call
from tests.integration.fuzz.document import Operation

TERMINAL: Final = ("execution_complete", "error")
ANYWHERE: Final = {413, 431}  # bounds of the server itself, whatever the operation


def judge(
    operation: Operation,
    call: Call,
    status: int,
    kind: str,
    body: bytes,
    *,
    excused: frozenset[str] = frozenset(),
) -> None:
    """
    Hold one answer against the document.

    Args:
        excused: codes of failures of a server that the test itself brought about.
    """
    shown = f"{call.method} {call.target} -> {status} {body[:600]!r}"
    if status >= 400 and call.method != "HEAD":
        _judge_error(operation, status, kind, body, shown, excused)
    if not call.authorised and operation.guarded:
        assert status == 401, f"not refused: {shown}"
    if status >= 400 or operation.name == "createSandbox":
        assert PLANTED.encode() not in body, f"a secret is repeated: {shown}"
    described = operation.responses.get(str(status)) or operation.responses.get("default")
    if described is None and status in ANYWHERE:
        return
    assert described is not None, f"not documented: {shown}"
    content = described.get("content")
    if not content:
        assert body == b"", f"documented as empty: {shown}"
        return
    media = content.get(kind.partition(";")[0].strip()) or content.get("*/*")
    if not body and (status < 300 or call.method == "HEAD"):
        return  # a success without anything to tell is empty, as the documents say in words
    assert media is not None, f"undocumented media type {kind}: {shown}"
    if kind.startswith("application/json"):
        _validate(operation, media.get("schema", {}), json.loads(body), shown)
    elif kind.startswith("text/event-stream"):
        _judge_stream(operation, media["schema"], body, shown)


def _judge_error(
    operation: Operation, status: int, kind: str, body: bytes, shown: str, excused: frozenset[str]
) -> None:
    assert kind.startswith("application/json"), f"an error that is not JSON: {shown}"
    told = json.loads(body)
    for member in ("code", "message"):
        assert isinstance(told.get(member), str), f"an error without {member}: {shown}"
        assert told[member], f"an error with an empty {member}: {shown}"
    assert status < 500 or told["code"] in excused or (status == 501 and operation.planned), (
        f"failed: {shown}"
    )


def _judge_stream(operation: Operation, schema: Any, body: bytes, shown: str) -> None:
    events = [json.loads(line) for line in body.split(b"\n\n") if line]
    for event in events:
        _validate(operation, schema, event, shown)
    if operation.name != "watchMetrics":
        assert events, shown
        assert events[-1]["type"] in TERMINAL, f"a stream without end: {shown}"
        assert sum(event["type"] in TERMINAL for event in events) == 1, f"a stream with two ends: {shown}"


def _validate(operation: Operation, schema: Any, value: Any, shown: str) -> None:
    whole = {**schema, "components": operation.document["components"]}  # where its references lead
    faults = list(Draft202012Validator(whole).iter_errors(value))
    assert not faults, f"{faults[0].message}: {shown}"
