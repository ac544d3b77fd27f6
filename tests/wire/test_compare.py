"""The comparer, on documents of a few lines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.compare import (
    CONTRACT,
    SERVED,
    Difference,
    Direction,
    Named,
    Node,
    compare,
    compare_schemas,
    merge,
    operations,
    reconcile,
    shape,
    undocumented,
)

STRING = {"type": "string"}
OR_NULL = {"anyOf": [STRING, {"type": "null"}]}
THING = {"type": "object", "required": ["a"], "properties": {"a": STRING, "b": {"type": "integer"}}}


def document(paths: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **rest}


def answer(schema: Any, status: str = "200", media: str = "application/json") -> dict[str, Any]:
    return {status: {"description": "d", "content": {media: {"schema": schema}}}}


def body(schema: Any, **rest: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, **rest}}


def parameter(name: str, place: str = "query", **rest: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": STRING, **rest}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        pytest.param(STRING, STRING, id="the same"),
        pytest.param(OR_NULL, {"type": ["string", "null"]}, id="null as a type"),
        pytest.param(OR_NULL, {"type": "string", "nullable": True}, id="null as a flag"),
        pytest.param(OR_NULL, {"oneOf": [{"type": "null"}, STRING]}, id="null by oneOf"),
        pytest.param({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, id="enum in another order"),
        pytest.param({"const": "a"}, {"enum": ["a"]}, id="const as an enum of one"),
        pytest.param({"minimum": 1}, {"minimum": 1.0}, id="numbers of two kinds"),
        pytest.param({}, THING, id="theirs says nothing"),
        pytest.param({"type": "object"}, {"type": "object", "properties": {"x": STRING}}, id="more members"),
        pytest.param(
            {"type": "object"},
            {"type": "object", "additionalProperties": True},
            id="open said and unsaid",
        ),
        pytest.param(STRING, {"type": "string", "format": "date-time"}, id="a hint more"),
        pytest.param(
            {"type": "object"},
            {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            id="one of two members",
        ),
        pytest.param(
            {"oneOf": [STRING, {"type": "integer"}]},
            {"oneOf": [{"type": "boolean"}, {"type": "integer"}, STRING]},
            id="a variant more",
        ),
    ],
)
@pytest.mark.parametrize("direction", Direction)
def test_equal_in_meaning(theirs: Any, ours: Any, direction: Direction) -> None:
    """Two spellings of one meaning are no difference."""
    assert list(compare_schemas(Node({}, theirs), Node({}, ours), direction, "x")) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        pytest.param(STRING, {"type": "integer"}, ("x", "string", "integer"), id="type"),
        pytest.param({"type": "object"}, {}, ("x", "object", "anything"), id="type unsaid"),
        pytest.param(
            {"type": "string", "minLength": 1}, STRING, ("x minLength", "1", "absent"), id="bound gone"
        ),
        pytest.param({"pattern": "^a"}, {"pattern": "^b"}, ("x pattern", "^a", "^b"), id="bound moved"),
        pytest.param({"default": 20}, {"default": 50}, ("x default", "20", "50"), id="default moved"),
        pytest.param({"default": True}, {"default": False}, ("x default", "True", "False"), id="flag moved"),
        pytest.param(
            {"type": "string", "format": "uri"}, STRING, ("x format", "uri", "absent"), id="format gone"
        ),
        pytest.param(
            {"type": "object", "properties": {"a": STRING}},
            {"type": "object"},
            ("x.a", "property", "absent"),
            id="member gone",
        ),
        pytest.param(
            THING, {**THING, "required": []}, ("x.a", "required", "optional"), id="no longer required"
        ),
        pytest.param(
            {"type": "array", "items": STRING}, {"type": "array"}, ("x[]", "items", "absent"), id="items"
        ),
        pytest.param(
            {"type": "array", "items": STRING},
            {"type": "array", "items": {"type": "integer"}},
            ("x[]", "string", "integer"),
            id="type of items",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": STRING},
            {"type": "object"},
            ("x{}", "typed members", "open"),
            id="type of free members",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": False},
            {"type": "object"},
            ("x{}", "closed", "open"),
            id="opened",
        ),
        pytest.param(
            {"anyOf": [STRING, {"type": "integer"}]},
            {"anyOf": [STRING, {"type": "boolean"}]},
            ("x", "integer", "string"),
            id="variant gone",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"anyOf": [THING, {"type": "null"}]}}},
            {
                "type": "object",
                "properties": {"a": {"anyOf": [{**THING, "required": []}, {"type": "null"}]}},
            },
            ("x.a.a", "required", "optional"),
            id="deep inside",
        ),
    ],
)
@pytest.mark.parametrize("direction", Direction)
def test_different_either_way(
    theirs: Any, ours: Any, found: tuple[str, str, str], direction: Direction
) -> None:
    """A change of meaning is found whoever sends the value."""
    differences = list(compare_schemas(Node({}, theirs), Node({}, ours), direction, "x"))
    assert differences == [Difference(*found)]


@pytest.mark.parametrize(
    ("theirs", "ours", "in_request", "in_answer"),
    [
        pytest.param(OR_NULL, STRING, ("x", "or null", "never null"), None, id="null taken away"),
        pytest.param(STRING, OR_NULL, None, ("x", "never null", "or null"), id="null added"),
        pytest.param(
            STRING, {"type": "string", "maxLength": 9}, ("x maxLength", "absent", "9"), None, id="bound added"
        ),
        pytest.param(
            {**THING, "required": []}, THING, ("x.a", "optional", "required"), None, id="required added"
        ),
        pytest.param(
            {"type": "object"},
            {"type": "object", "additionalProperties": False},
            ("x{}", "open", "closed"),
            None,
            id="closed",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": False},
            {"type": "object", "additionalProperties": False, "properties": {"n": STRING}},
            None,
            ("x.n", "absent", "property"),
            id="member added to a closed answer",
        ),
    ],
)
def test_different_one_way(
    theirs: Any, ours: Any, in_request: tuple[str, str, str] | None, in_answer: tuple[str, str, str] | None
) -> None:
    """A request may be taken wider and an answer given narrower, but not the reverse."""
    for direction, found in ((Direction.REQUEST, in_request), (Direction.ANSWER, in_answer)):
        differences = list(compare_schemas(Node({}, theirs), Node({}, ours), direction, "x"))
        assert differences == ([Difference(*found)] if found else [])


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        pytest.param({"get": {}}, {}, [("t GET /a", "operation", "absent")], id="operation gone"),
        pytest.param({"get": {}}, {"get": {}, "put": {}}, [], id="operation added"),
        pytest.param(
            {"get": {"parameters": [parameter("q")]}},
            {"get": {}},
            [("t GET /a query q", "parameter", "absent")],
            id="parameter gone",
        ),
        pytest.param(
            {"get": {}},
            {"get": {"parameters": [parameter("q")]}},
            [],
            id="optional parameter added",
        ),
        pytest.param(
            {"get": {}},
            {"get": {"parameters": [parameter("q", required=True)]}},
            [("t GET /a query q", "absent", "required")],
            id="required parameter added",
        ),
        pytest.param(
            {"get": {"parameters": [parameter("q")]}},
            {"get": {"parameters": [parameter("q", required=True)]}},
            [("t GET /a query q", "optional", "required")],
            id="parameter now required",
        ),
        pytest.param(
            {"get": {"parameters": [parameter("X-A", "header")]}},
            {"parameters": [parameter("x-a", "header")], "get": {}},
            [],
            id="header in another case, on the path",
        ),
        pytest.param(
            {"get": {"parameters": [{"name": "q", "in": "query", "schema": OR_NULL}]}},
            {"get": {"parameters": [parameter("q")]}},
            [],
            id="null in a query means nothing",
        ),
        pytest.param(
            {"get": {"parameters": [parameter("q", explode=False)]}},
            {"get": {"parameters": [parameter("q")]}},
            [("t GET /a query q spelling", "form", "form exploded")],
            id="list spelled otherwise",
        ),
        pytest.param(
            {"put": body(STRING)}, {"put": {}}, [("t PUT /a body", "body", "absent")], id="body gone"
        ),
        pytest.param(
            {"put": body(STRING)},
            {"put": body(STRING, required=True)},
            [("t PUT /a body", "optional", "required")],
            id="body now required",
        ),
        pytest.param(
            {"put": {}},
            {"put": body(STRING, required=True)},
            [("t PUT /a body", "absent", "required")],
            id="required body added",
        ),
        pytest.param(
            {"put": body(STRING)},
            {"put": body({"type": "integer"})},
            [("t PUT /a body application/json", "string", "integer")],
            id="body of another type",
        ),
        pytest.param(
            {"get": {"responses": answer(STRING, "404")}},
            {"get": {"responses": answer(STRING)}},
            [("t GET /a 404", "status", "absent")],
            id="status gone",
        ),
        pytest.param(
            {"get": {"responses": answer(STRING, media="text/plain")}},
            {"get": {"responses": answer(STRING)}},
            [("t GET /a 200 text/plain", "media type", "absent")],
            id="media type gone",
        ),
        pytest.param(
            {"get": {"responses": {"200": {"headers": {"ETag": {"schema": STRING}}}}}},
            {"get": {"responses": {"200": {}}}},
            [("t GET /a 200 header ETag", "header", "absent")],
            id="header gone",
        ),
        pytest.param(
            {"get": {"responses": {"200": {"headers": {"ETag": {"schema": STRING}}}}}},
            {"get": {"responses": {"200": {"headers": {"etag": {"schema": {"type": "integer"}}}}}}},
            [("t GET /a 200 header ETag", "string", "integer")],
            id="header of another type",
        ),
    ],
)
def test_operations(theirs: Any, ours: Any, found: list[tuple[str, str, str]]) -> None:
    """What an operation loses or demands anew is found."""
    differences = compare(document({"/a": theirs}), document({"/a": ours}), "t", CONTRACT)
    assert differences == [Difference(*one) for one in found]


def test_paths_meet_under_prefix_and_any_name() -> None:
    """A path is the same with its prefix in the server's address and with its parameters renamed."""
    one = {"parameters": [parameter("id", "path", required=True)], "get": {}}
    other = {"get": {"parameters": [parameter("thing_id", "path", required=True)]}}
    theirs = document({"/things/{id}": one}, servers=[{"url": "http://localhost/v1"}])
    ours = document({"/v1/things/{thing_id}": other})
    assert operations(theirs).keys() == operations(ours).keys() == {("GET", "/v1/things/{}")}
    assert compare(theirs, ours, "t") == []


def test_references_are_followed() -> None:
    """A schema by reference equals the same schema in place, members beside the reference included."""
    parts = {"schemas": {"Thing": THING, "Alias": {"$ref": "#/components/schemas/Thing"}}}
    by_name = document({"/a": {"get": {"responses": answer({"$ref": "#/components/schemas/Alias"})}}})
    in_place = document({"/a": {"get": {"responses": answer(THING)}}})
    assert compare(in_place, {**by_name, "components": parts}, "t") == []
    assert shape(
        Node({"components": parts}, {"$ref": "#/components/schemas/Thing", "type": "array"})
    ).types == {"array"}


def test_reference_to_itself_is_an_error() -> None:
    """A reference that leads back to itself ends the comparison instead of hanging it."""
    parts = {"schemas": {"A": {"$ref": "#/components/schemas/A"}}}
    with pytest.raises(ValueError, match="refers to itself"):
        Node({"components": parts}, {"$ref": "#/components/schemas/A"}).resolved()


def test_loose_schema_is_compared_by_name() -> None:
    """A schema that no operation refers to must exist under its name."""
    theirs = document({}, components={"schemas": {"A": STRING, "B": STRING}})
    ours = document({}, components={"schemas": {"B": {"type": "integer"}}})
    assert compare(theirs, ours, "t") == [
        Difference("t schema A", "schema", "absent"),
        Difference("t schema B", "string", "integer"),
    ]


def test_key_must_travel_the_same_way() -> None:
    """A key in another header is found."""
    theirs = document(
        {}, components={"securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "K"}}}
    )
    assert compare(theirs, document({}), "t") == [Difference("t security", "apiKey header K", "absent")]


def test_merge_keeps_equal_names_apart() -> None:
    """Two documents may use one name for two things; after merging each still means its own."""

    def one(path: str, schema: Any) -> dict[str, Any]:
        get = {"responses": answer({"$ref": "#/components/schemas/X"})}
        return document({path: {"get": get}}, components={"schemas": {"X": schema}})

    both = merge(one("/a", STRING), one("/b", THING))
    assert compare(one("/a", STRING), both, "t") == []
    assert compare(one("/b", THING), both, "t") == []


def test_merge_refuses_a_path_twice() -> None:
    """One path is documented in one place."""
    with pytest.raises(ValueError, match="documented twice"):
        merge(document({"/a": {}}), document({"/a": {}}))


@pytest.mark.parametrize(
    ("served", "found"),
    [
        pytest.param({"/v1/a": {"get": {}}}, [], id="as documented"),
        pytest.param({"/v1/a": {"get": {}}, "/a": {"get": {}}}, [], id="without the prefix too"),
        pytest.param({"/v1/a": {"post": {}}}, [("s POST /v1/a", "absent", "operation")], id="method unknown"),
        pytest.param({"/b": {"get": {}}}, [("s GET /b", "absent", "operation")], id="path unknown"),
    ],
)
def test_undocumented_routes(served: Any, found: list[tuple[str, str, str]]) -> None:
    """A route that no document mentions is found, the second spelling of one that is mentioned is not."""
    differences = undocumented(document(served), document({"/v1/a": {"get": {}}}), "s")
    assert differences == [Difference(*one) for one in found]


def test_served_document_may_leave_out_what_middleware_does() -> None:
    """Headers, error statuses and null are not held against a generated document; successes are."""
    responses = {
        **answer({"type": "object", "properties": {"a": STRING}}),
        **answer(THING, "404"),
        **answer(THING, "422"),
    }
    published = document(
        {"/a": {"get": {"parameters": [parameter("X-A", "header")], "responses": responses}}}
    )
    generated = answer({"type": "object", "properties": {"a": OR_NULL}})
    assert compare(published, document({"/a": {"get": {"responses": generated}}}), "s", SERVED) == []
    lying = {**generated, **answer({"type": "object", "properties": {"detail": STRING}}, "422")}
    assert compare(published, document({"/a": {"get": {"responses": lying}}}), "s", SERVED) == [
        Difference("s GET /a 422 application/json.a", "property", "absent"),
        Difference("s GET /a 422 application/json.b", "property", "absent"),
    ]
    assert compare(published, document({"/a": {"get": {"responses": {}}}}), "s", SERVED) == [
        Difference("s GET /a 200", "status", "absent")
    ]


FOUND = Difference("execd POST /command body.x[] enum", "absent", "['a']")


@pytest.mark.parametrize(
    ("where", "theirs", "ours", "covered"),
    [
        pytest.param(FOUND.where, FOUND.theirs, FOUND.ours, True, id="literally"),
        pytest.param("execd * enum", "*", "*", True, id="by pattern"),
        pytest.param("execd * enum", "present", "*", False, id="theirs is otherwise"),
        pytest.param("execd * enum", "absent", "['b']", False, id="ours is otherwise"),
        pytest.param("execd POST /command", "*", "*", False, id="only the beginning"),
    ],
)
def test_names_cover_differences(where: str, theirs: str, ours: str, covered: bool) -> None:
    """A name covers a difference when all three texts fit; brackets have no special meaning."""
    name = Named(where, theirs, ours, "why")
    unnamed, stale = reconcile([FOUND], [name])
    assert unnamed == ([] if covered else [FOUND])
    assert stale == ([] if covered else [name])
