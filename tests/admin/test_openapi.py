"""The OpenAPI document that the routes generate. `AdminServer.ask` checks each answer by it, in all tests."""

import pytest
from jsonschema import Draft202012Validator

from stompring.admin.api import JSON

from ..docs.http_reference import ROUTES
from .admin_server import AdminServer
from .described import DOCUMENT, resolved

OPERATIONS = {
    (method.upper(), path): (described, [*item.get("parameters", []), *described.get("parameters", [])])
    for path, item in DOCUMENT["paths"].items()
    for method, described in item.items()
    if method != "parameters"
}


def test_it_is_served_as_generated():
    assert AdminServer().get("/api/v1/openapi.json") == DOCUMENT
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_all_routes_are_listed():
    listed = AdminServer().get("/api/v1/")
    assert AdminServer().get(listed["document"]) == DOCUMENT
    assert {(each["method"], each["path"]): each["summary"] for each in listed["routes"]} == {
        key: described["summary"] for key, (described, _) in OPERATIONS.items()
    }


def test_references_resolve_and_all_components_are_used():
    used = set()

    def walk(node):
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                used.add(node["$ref"])
                resolved(node)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(DOCUMENT)
    kinds = ("parameters", "responses", "schemas")
    assert used == {f"#/components/{kind}/{name}" for kind in kinds for name in DOCUMENT["components"][kind]}


def test_schemas_are_valid_and_every_property_has_a_meaning():
    for name, schema in DOCUMENT["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        silent = {key for key, node in schema["properties"].items() if not resolved(node).get("description")}
        assert silent <= {"status"}, name


def test_every_route_is_described_and_nothing_else():
    assert OPERATIONS.keys() == ROUTES.keys()
    assert len({described["operationId"] for described, _ in OPERATIONS.values()}) == len(OPERATIONS)


@pytest.mark.parametrize("key", OPERATIONS, ids=" ".join)
def test_what_a_route_declares_is_described(key):
    route, (described, references) = ROUTES[key], OPERATIONS[key]
    expected = {400, 403, *route.errors, *route.responses}
    expected |= set() if route.public else {401, 429, 502}
    expected |= {404} if "{" in key[1] else set()
    expected |= {413, 415, 503} if key[0] != "GET" else set()
    assert set(described["responses"]) == set(map(str, expected))
    assert (described.get("security") == []) is ("401" not in described["responses"]) is route.public
    assert route.public or f"Permissions: {route.permissions.text}." in described["description"]
    queried = set()
    for parameter in map(resolved, references):
        if parameter["in"] == "query":
            of_object = parameter["schema"].get("type") == "object"
            queried |= parameter["schema"]["properties"].keys() if of_object else {parameter["name"]}
        else:
            assert parameter["in"] == "path" and f"{{{parameter['name']}}}" in route.path
    assert queried == route.query_names
    assert sum(parameter["in"] == "path" for parameter in map(resolved, references)) == route.path.count("{")
    content = described.get("requestBody", {}).get("content", {})
    body = resolved(content[JSON]["schema"]) if JSON in content else {"properties": {}}
    assert body["properties"].keys() == route.fields.keys()
    if route.body is None:
        assert JSON not in content
    else:
        assert set(body["required"]) == set(route.body.required)
        assert described["requestBody"]["required"] is not route.body.optional


@pytest.mark.parametrize("key", OPERATIONS, ids=" ".join)
def test_every_route_refuses_what_no_route_takes(key):
    method, route = key[0], ROUTES[key]
    server = AdminServer()
    path = key[1].replace("{name}", "none").replace("{id}", "none")
    assert server.refused(400, method, f"{path}?colour=red")["parameter"] == "colour"
    if "{" in key[1]:
        body = (
            {"level": None} if "loggers" in path else {"priority": 1} if path.endswith("priority") else None
        )
        body = {"address": "a"} if path.endswith(("/move", "/copy")) else body
        # security is off; a PATCH creates a setting
        status = 409 if "/users/" in path else 400 if method == "PATCH" and "-settings/" in path else 404
        server.refused(status, method, path, body)
    if method != "GET":
        if route.body_type == JSON:
            assert server.refused(400, method, path, {"colour": "red"})["field"] == "colour"
        server.refused(415, method, path, raw=b"a=b", headers={"Content-Type": "text/plain"})
        server.refused(413, method, path, raw=b" " * 2_000_000, headers={"Content-Type": route.body_type})
