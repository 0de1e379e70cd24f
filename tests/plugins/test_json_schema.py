"""plugins/json_schema.py"""

import json

import pytest

from stompring.policy.testing import PolicyHarness

from . import fault, policy

KIND = policy("json-schema")
ORDER = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "string", "maxLength": 8},
        "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
    },
    "additionalProperties": False,
    "$defs": {"line": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}},
}
RIGHT = {"id": "a-1", "lines": [{"count": 2}]}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, ORDER)
    return tmp_path


def write(folder, schema):
    (folder / "order.json").write_text(schema if isinstance(schema, str) else json.dumps(schema))


def house(folder, **arguments):
    return PolicyHarness(KIND, folder=folder, **{"schema": "order.json", **arguments})


def refused(folder, body, **arguments):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    harness = house(folder, **arguments)
    text = harness.send(data).refused
    assert not harness.errors and not harness.waiting()
    return text


@pytest.mark.parametrize(
    "body, words",
    [
        ({**RIGHT, "id": 5}, "$.id must be of type string"),
        ({"lines": [{}]}, "$ lacks id (required)"),
        ({}, "$ lacks id, lines (required)"),
        ({"id": "a", "lines": [{}, {"count": 0}]}, "$.lines[1].count violates minimum: 1"),
        ({**RIGHT, "more": 1}, "$ violates additionalProperties: false"),
        ([], "$ must be of type object"),
        ({**RIGHT, "id": "secret-and-long"}, "$.id violates maxLength: 8"),
    ],
)
def test_refusal_has_path_and_rule(folder, body, words):
    assert f"Body is not valid by the schema: {words} (policy" in refused(folder, body)


def test_the_body_is_never_shown(folder):
    assert "secret" not in refused(folder, {**RIGHT, "id": "secret" * 1000})
    assert "secret" not in refused(folder, "secret")
    assert len(refused(folder, {**RIGHT, "x" * 5000: 1})) < 500


def test_a_long_place_is_cut_short(tmp_path):
    write(tmp_path, {"additionalProperties": {"type": "integer"}})
    assert len(refused(tmp_path, {"x" * 5000: "y"})) < 300


@pytest.mark.parametrize(
    "body, words",
    [
        (b"", "not JSON: line 1 column 1: Expecting value"),
        (b'{"id": "a",\n "lines": [}', "not JSON: line 2 column 12"),
        (b"\xff{}", "not UTF-8: invalid byte at position 0"),
        ('{"id": "ä"}'.encode("latin-1"), "not UTF-8: invalid byte at position 8"),
        ("{}".encode("utf-16"), "not UTF-8: invalid byte at position 0"),
        (b'{"id": NaN}', "not JSON: NaN is not a JSON number"),
        (b"[" * 60_000, "nested too deeply"),
        (b"1" * 5000, "not JSON"),
        (b"{} {}", "not JSON: line 1 column 4: Extra data"),
    ],
)
def test_invalid_json_is_refused_with_the_position(folder, body, words):
    assert words in refused(folder, body)


def test_content_types(folder):
    harness = house(folder, content_types=("application/json", "Text/JSON"))
    assert harness.send(b"no json").accepted
    assert harness.send(b"no json", {"content-type": "text/plain"}).accepted
    for name in ("application/json", "APPLICATION/JSON;charset=utf-8", "text/json ; x=y"):
        assert "not JSON" in harness.send(b"no json", {"content-type": name}).refused
    assert "not JSON" in house(folder).send(b"x", {"content-type": "text/plain"}).refused


def test_the_longest_body(folder):
    body = json.dumps(RIGHT).encode()
    assert house(folder, longest_body=len(body)).send(body).accepted
    assert f"{len(body)} bytes, the maximum is {len(body) - 1}" in refused(
        folder, body, longest_body=len(body) - 1
    )
    assert "the maximum is 65536" in refused(folder, b" " * (64 * 1024 + 1))


@pytest.mark.parametrize("schema", [True, {}])
def test_schemas_without_rules(tmp_path, schema):
    write(tmp_path, schema)
    assert house(tmp_path).send(b"1").accepted


def test_a_schema_that_nothing_keeps_to(tmp_path):
    write(tmp_path, False)
    assert "$ is not allowed" in refused(tmp_path, 1)


@pytest.mark.parametrize(
    "dialect, schema, accepted",
    [
        (None, {"prefixItems": [{"type": "string"}]}, False),
        ("http://json-schema.org/draft-07/schema#", {"prefixItems": [{"type": "string"}]}, True),
        ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}, False),
        ("http://json-schema.org/draft-04/schema#", {"maximum": 1, "exclusiveMaximum": True}, True),
        ("https://json-schema.org/draft/2019-09/schema", {"items": [{"type": "string"}]}, False),
        ("https://json-schema.org/draft/2020-12/schema", {"items": {"type": "string"}}, False),
        ("http://json-schema.org/draft-03/schema#", {"items": {"type": "string"}}, False),
        ("http://json-schema.org/draft-06/schema#", {"contains": {"type": "string"}}, False),
    ],
)
def test_drafts(tmp_path, dialect, schema, accepted):
    write(tmp_path, schema if dialect is None else {"$schema": dialect, **schema})
    assert house(tmp_path).send(b"[1]").accepted is accepted


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
        {"$ref": "n", "$defs": {"n": {"$id": "n", "type": "integer"}}},
        {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "integer"}}},
        {"$id": "https://example.org/a", "$ref": "b", "$defs": {"n": {"$id": "b", "type": "integer"}}},
        {"$id": "https://example.org/a", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}},
        {"type": ["integer", "array"], "items": {"$ref": "#"}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "allOf": [{"$ref": "#/definitions/n"}],
            "definitions": {"n": {"type": "integer"}},
        },
        {"properties": {"$ref": {"type": "string"}}, "type": "integer", "enum": [1, {"$ref": "elsewhere"}]},
    ],
)
def test_references_within_the_file(tmp_path, schema):
    write(tmp_path, schema)
    harness = house(tmp_path)
    assert harness.send(b"1").accepted
    assert harness.send(b'"text"').refused
    assert not harness.errors


@pytest.mark.parametrize(
    "target",
    [
        "https://json-schema.org/draft/2020-12/schema",
        "https://example.org/other.json",
        "other.json",
        "file:///etc/passwd",
        "#/$defs/none",
        "#nowhere",
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_references_that_lead_elsewhere(tmp_path, target, deep):
    schema = {"$ref": target}
    write(tmp_path, {"$id": "https://example.org/a", "not": {"items": schema}} if deep else schema)
    text = fault(KIND, folder=tmp_path, schema="order.json")
    assert f"$ref '{target}' cannot be resolved in this file, and nothing is fetched" in text
    assert str(tmp_path / "order.json") in text


@pytest.mark.parametrize(
    "schema, words",
    [
        ("{", "is not JSON: Expecting property name"),
        ("[" * 100_000, "is not JSON"),
        ([], "is not a valid schema: $:"),
        ({"type": "number or so"}, "is not a valid schema: $.type:"),
        ({"properties": {"a": {"minimum": "1"}}}, "is not a valid schema: $.properties.a.minimum:"),
        ({"$schema": "https://example.org/mine"}, "unknown $schema: https://example.org/mine"),
        ({"$schema": 5}, "unknown $schema: 5"),
        ({"pattern": "["}, "is not a valid schema: $.pattern:"),
        ('{"not": ' * 500 + "{}" + "}" * 500, "is nested too deeply"),
        ({"$id": 5}, "is not a valid schema: $['$id']"),
    ],
)
def test_files_that_are_no_schema(tmp_path, schema, words):
    write(tmp_path, schema)
    text = fault(KIND, folder=tmp_path, schema="order.json")
    assert words in text and str(tmp_path / "order.json") in text
    assert "check failed" not in text


def test_a_file_that_is_not_there(tmp_path):
    text = fault(KIND, folder=tmp_path, schema="none.json")
    assert f"schema file {tmp_path / 'none.json'} cannot be read: No such file" in text
    assert "cannot be read" in fault(KIND, folder=tmp_path, schema=".")


def test_a_file_that_is_not_utf_8(tmp_path):
    (tmp_path / "order.json").write_bytes(b'{"title": "\xe4"}')
    assert "is not JSON" in fault(KIND, folder=tmp_path, schema="order.json")


def test_without_the_library(folder, monkeypatch):
    monkeypatch.setitem(KIND.check.__globals__, "jsonschema", None)
    text = fault(KIND, folder=folder, schema="order.json")
    assert "requires the library jsonschema: pip install jsonschema, or 'stompring[plugins]'" in text


def test_a_reload_with_another_schema(folder):
    (folder / "other.json").write_text('{"type": "integer"}')
    harness = house(folder)
    assert harness.send(b"1").refused
    harness.reload(schema="other.json")
    assert harness.send(b"1").accepted


def test_parameters(folder):
    assert "parameter 'schema' is required" in fault(KIND)
    assert "must be at least 1" in fault(KIND, folder=folder, schema="order.json", longest_body=0)
    assert "must be a comma-separated list" in fault(
        KIND, folder=folder, schema="order.json", content_types="a,,b"
    )
