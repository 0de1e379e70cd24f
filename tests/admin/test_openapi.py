"""The OpenAPI document that the routes generate is valid, and the server answers as it says."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from stompring.admin.api import JSON, PROBLEM
from stompring.admin.http import admin_routes
from stompring.admin.openapi import document, errors_of
from stompring.admin.tasks import RUNNING_TASKS, TaskState
from stompring.settings.connector import Connector
from stompring.settings.model import (
    AddressSettingEntry,
    BridgeConfiguration,
    DivertConfiguration,
    PermissionType,
    Property,
    SecuritySettingEntry,
    TransformerConfiguration,
)

from ..broker_document import broker_xml
from ..security.hashers import QUICK
from .admin_server import AdminServer, Stomp

ROUTES = {(route.method, route.path): route for route in admin_routes().all}
DOCUMENT = json.loads(json.dumps(document(list(ROUTES.values()))))


def resolved(node):
    """What a ``$ref`` refers to."""
    while "$ref" in node:
        target: Any = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


@dataclass(frozen=True)
class Operation:
    """One method of one path, as the document describes it."""

    method: str
    path: str
    described: Any
    shared: list[Any]

    @property
    def route(self):
        return ROUTES[(self.method, self.path)]

    @property
    def identifier(self):
        return str(self.described["operationId"])

    @property
    def parameters(self):
        return [resolved(node) for node in (*self.shared, *self.described.get("parameters", []))]

    @property
    def body(self):
        body = self.described.get("requestBody")
        return (
            None
            if body is None or JSON not in body["content"]
            else resolved(body["content"]["application/json"]["schema"])
        )

    def response(self, status):
        assert str(status) in self.described["responses"], f"{self.identifier} is not said to answer {status}"
        return resolved(self.described["responses"][str(status)])

    def check(self, reply):
        """An answer is one of those described, and looks as described."""
        described = self.response(reply.status)
        for name in described.get("headers", {}):
            assert name.lower() in reply.headers
        if "content" not in described:
            assert reply.body == b"" and "content-type" not in reply.headers
            return
        media_type = reply.headers["content-type"].partition(";")[0]
        schema = described["content"][media_type]["schema"]
        if media_type not in (JSON, PROBLEM):
            assert schema == {"type": "string"} and reply.body
            return
        where = {"$id": "urn:doc", **DOCUMENT}
        validator = Draft202012Validator({"$ref": "urn:doc#/x-asked"}, registry=registry_with(where, schema))
        faults = [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(reply.json)]
        assert not faults, faults


def registry_with(document, schema):
    contents = {**document, "x-asked": schema}
    return Registry().with_resource(
        "urn:doc", Resource.from_contents(contents, default_specification=DRAFT202012)
    )


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method, described in item.items():
            if method != "parameters":
                yield Operation(method.upper(), path, described, item.get("parameters", []))


ALL = list(operations())
BY_ID = {operation.identifier: operation for operation in ALL}


def label(operation):
    return operation.identifier


# ---- the document in itself


def test_it_is_served_as_generated():
    reply = AdminServer().ask("GET", "/api/v1/openapi.json")
    assert reply.json == DOCUMENT
    assert DOCUMENT["openapi"].startswith("3.1.")


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
    for kind in ("parameters", "responses", "schemas"):
        for name in DOCUMENT["components"][kind]:
            assert f"#/components/{kind}/{name}" in used, name


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_schemas_are_valid(name):
    Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


def test_operation_ids_are_unique():
    assert len(BY_ID) == len(ALL)


# ---- the document and the routes


def test_every_route_is_described_and_nothing_else():
    assert {(operation.method, operation.path) for operation in ALL} == ROUTES.keys()


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_parameters(operation):
    described = set()
    for parameter in operation.parameters:
        if parameter["in"] == "query" and parameter["schema"].get("type") == "object":
            described |= parameter["schema"]["properties"].keys()
        elif parameter["in"] == "query":
            described.add(parameter["name"])
    assert described == operation.route.query_names
    in_path = {parameter["name"] for parameter in operation.parameters if parameter["in"] == "path"}
    assert in_path == {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_fields_of_bodies(operation):
    assert set(operation.body["properties"] if operation.body else ()) == operation.route.fields.keys()


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_public_routes_need_no_login(operation):
    assert (operation.described.get("security") == []) is operation.route.public
    assert ("401" in operation.described["responses"]) is not operation.route.public


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_what_a_route_declares_is_described(operation):
    route, described = operation.route, operation.described
    assert (described["operationId"], described["summary"]) == (route.operation, route.summary)
    assert set(described["responses"]) == {str(status) for status in (*route.responses, *errors_of(route))}
    assert route.public or f"Permissions: {route.permissions.text}." in described["description"]
    body = operation.body
    if route.body is None:
        assert body is None
    else:
        assert set(body["required"]) == set(route.body.required)
        assert described["requestBody"]["required"] is not route.body.optional


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_property_has_a_meaning(name):
    schema = DOCUMENT["components"]["schemas"][name]
    silent = {key for key, node in schema["properties"].items() if not resolved(node).get("description")}
    assert silent <= {"status"}


# ---- answers


class Scene:
    """A broker in which every operation has something to do."""

    def __init__(self, tmp_path):
        file = tmp_path / "broker.xml"
        file.write_text(broker_xml(), encoding="utf-8")
        users, roles = tmp_path / "users.properties", tmp_path / "roles.properties"
        users.write_text("".join(f"{name}={QUICK.hash('x')}\n" for name in ("anna", "berta")))
        roles.write_text("staff = anna\nothers = berta\n")
        self.server = AdminServer(
            file=str(file),
            global_max_size=1_000_000,
            security_enabled=True,
            users_file=str(users),
            roles_file=str(roles),
            address_settings=(AddressSettingEntry("a", {"dead_letter_address": "free"}),),
            bridges=(BridgeConfiguration("q", (Connector("c", "127.0.0.1", 1),), "q"),),
            security_settings=(
                SecuritySettingEntry("#", dict.fromkeys(PermissionType, frozenset(("staff",)))),
            ),
        )
        self.server.headers = {"Authorization": "Basic " + base64.b64encode(b"anna:x").decode()}
        self.server.queue("q", "a", filter="colour <> 'x'", user="anna", ring_size=50)
        self.server.queue("free")
        self.client: Stomp = self.server.stomp(**{"client-id": "c", "login": "anna", "passcode": "x"})
        for number in range(4):
            self.client.send("SEND", b"\xff" if number else b"x", destination="/queue/a", colour="red")
        delay = {"AMQ_SCHEDULED_DELAY": "60000", "AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "3"}
        self.client.send("SEND", b"later", destination="/queue/a", colour="red", **delay)
        subscribe = {
            "id": "1",
            "ack": "client-individual",
            "prefetch-count": "1",
            "selector": "colour = 'red'",
        }
        self.client.send("SUBSCRIBE", destination="a::q", **subscribe)
        letter = {"_AMQ_ORIG_ADDRESS": "a", "_AMQ_ORIG_QUEUE": "q", "stompring-imported": "true"}
        self.client.send("SEND", b"dead", destination="/queue/free", **letter)
        transformer = TransformerConfiguration((Property("k", "v"),), ("x",))
        divert = DivertConfiguration("d", "elsewhere", ("b", "c"), "k = '1'", transformer=transformer)
        self.server.broker.diverts.add(divert)
        tasks = self.server.service.tasks
        tasks.new("move", "q", None)
        tasks.new("move", "q", None).end(TaskState.COMPLETED, 0)

    def path(self, operation):
        """The operation's path with names of things that are there."""
        queue = "free" if operation.identifier == "deleteQueue" else "q"
        name = (
            {
                "addresses": "a",
                "bridges": "q",
                "diverts": "d",
                "loggers": "websockets",
                "queues": queue,
                "users": "berta",
            }.get(operation.path.split("/")[3], "")
            if "{" in operation.path
            else ""
        )
        kind = "scheduled" if "scheduled" in operation.path else "messages"
        identifier = self.client.session.number
        if name:
            page = self.server.get(f"/api/v1/queues/q/{kind}")
            identifier = page["data"][0]["messageID"]
        elif operation.path.startswith("/api/v1/tasks"):
            identifier = "1"
        force = "?force=true" if operation.identifier == "deleteAddress" else ""
        return operation.path.replace("{name}", name).replace("{id}", identifier) + force


BODIES: dict[str, Any] = {
    "createQueue": {"name": "new", "address": "a", "ringSize": 5},
    "changeQueue": {"ringSize": 1, "paused": False},
    "changeLogger": {"level": None},
    "purgeQueue": {"filter": "colour = 'red'"},
    "moveMessages": {"address": "free"},
    "changeMessagesPriority": {"priority": 9},
    "sendMessages": {"address": "free", "body": "x"},
    "copyMessages": {"queue": "free"},
    "createAddress": {"name": "new", "routingTypes": ["ANYCAST"]},
    "changeAddress": {"paused": True},
    "createUser": {"name": "clara", "password": "x", "roles": ["staff"]},
    "changeUser": {"password": "y", "roles": ["staff", "others"]},
}


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_success(scene, operation):
    reply = scene.server.ask(operation.method, scene.path(operation), BODIES.get(operation.identifier))
    assert reply.status in (200, 201, 204), reply.body
    operation.check(reply)


@pytest.mark.parametrize("operation", [operation for operation in ALL if "{" in operation.path], ids=label)
def test_unknown_name_gets_404(scene, operation):
    path = operation.path.replace("{name}", "none").replace("{id}", "none")
    reply = scene.server.ask(operation.method, path, BODIES.get(operation.identifier))
    assert reply.status == 404
    operation.check(reply)


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_unknown_parameters_and_fields(scene, operation):
    path = scene.path(operation).partition("?")[0]
    reply = scene.server.ask(operation.method, f"{path}?colour=red")
    assert (reply.status, reply.json["parameter"]) == (400, "colour")
    operation.check(reply)
    if operation.method != "GET" and operation.route.body_type == JSON:
        reply = scene.server.ask(operation.method, path, {"colour": "red"})
        assert (reply.status, reply.json["field"]) == (400, "colour")
        operation.check(reply)


@pytest.mark.parametrize(
    "operation", [operation for operation in ALL if operation.method != "GET"], ids=label
)
def test_invalid_content_type_and_oversized_body(scene, operation):
    path = scene.path(operation)
    for status, raw, content_type in (
        (415, b"a=b", "text/plain"),
        (413, b" " * 2_000_000, operation.route.body_type),
    ):
        reply = scene.server.ask(operation.method, path, raw=raw, headers={"Content-Type": content_type})
        assert reply.status == status
        operation.check(reply)


@pytest.mark.parametrize("operation", ALL, ids=label)
def test_page_of_another_site_gets_403(scene, operation):
    reply = scene.server.ask(
        operation.method, scene.path(operation), headers={"Origin": "http://evil.example"}
    )
    assert reply.status == 403
    operation.check(reply)


@pytest.mark.parametrize(
    ("identifier", "path", "body"),
    [
        ("createQueue", "/api/v1/queues", {"name": "q"}),
        ("changeQueue", "/api/v1/queues/q", {"durable": False}),
        ("deleteQueue", "/api/v1/queues/q", None),
        ("removeMessage", None, None),
        ("createAddress", "/api/v1/addresses", {"name": "a"}),
        ("changeAddress", "/api/v1/addresses/a", {"routingTypes": ["MULTICAST"]}),
        ("deleteAddress", "/api/v1/addresses/a", None),
        ("reload", "/api/v1/reload", None),
        ("moveMessages", "/api/v1/queues/q/move", {"queue": "q"}),
        ("copyMessages", "/api/v1/queues/q/copy", {"queue": "q"}),
        ("purgeQueue", "/api/v1/queues/q/purge", None),
        ("retryMessages", "/api/v1/queues/q/retry", None),
        ("removeMessages", "/api/v1/queues/q/remove", None),
        ("expireMessages", "/api/v1/queues/q/expire", None),
        ("sendMessagesToDeadLetterAddress", "/api/v1/queues/q/dead-letter", None),
        ("changeMessagesPriority", "/api/v1/queues/q/priority", {"priority": 1}),
        ("cancelTask", "/api/v1/tasks/2", None),
        ("sendMessages", "/api/v1/messages", {"address": "a", "queue": "free"}),
        ("createUser", "/api/v1/users", {"name": "berta", "password": "x"}),
        ("changeUser", "/api/v1/users/anna", {"roles": ["others"]}),
        ("deleteUser", "/api/v1/users/anna", None),
        ("user", "/api/v1/users/anna", None),
        ("listUsers", "/api/v1/users", None),
        ("listRoles", "/api/v1/roles", None),
        ("importMessages", "/api/v1/queues/q/import", None),
    ],
)
def test_conflicts(scene, identifier, path, body):
    operation = BY_ID[identifier]
    if identifier in ("user", "listUsers", "listRoles"):
        scene.server.service.security = None
    if identifier == "reload":
        Path(str(scene.server.service.configuration.file)).write_text(
            "<configuration><core><oops/></core></configuration>"
        )
    if identifier == "importMessages":
        scene.server.directory.update_queue(scene.server.directory.queue("q"), {"enabled": False})
    if path is not None and path.endswith(
        ("/purge", "/retry", "/remove", "/expire", "/dead-letter", "/priority")
    ):
        for _ in range(RUNNING_TASKS - 1):
            scene.server.service.tasks.new("purge", "q", None)
    if path is None:
        messages = scene.server.get("/api/v1/queues/q/messages")["data"]
        delivering = next(message for message in messages if message["state"] == "delivering")
        path = f"/api/v1/queues/q/messages/{delivering['messageID']}"
    reply = scene.server.ask(operation.method, path, body)
    assert reply.status == 409, reply.body
    operation.check(reply)


def test_every_conflict_described_is_tested():
    described = {operation.identifier for operation in ALL if "409" in operation.described["responses"]}
    (mark,) = test_conflicts.pytestmark
    assert described == {case[0] for case in mark.args[1]}


def test_not_ready(scene):
    scene.server.service.stopping = True
    reply = scene.server.ask("GET", "/health/ready")
    assert reply.status == 503
    BY_ID["ready"].check(reply)


def test_openmetrics(scene):
    BY_ID["metrics"].check(
        scene.server.ask("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
    )


def test_every_list_shows_something(scene):
    """So that `test_success` has looked at items too."""
    for operation in ALL:
        if operation.identifier.startswith("list"):
            assert scene.server.get(scene.path(operation))["count"] > 0
