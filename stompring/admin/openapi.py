"""``GET /api/v1/openapi.json``: the OpenAPI 3.1 document, generated from the declarations of the routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from .api import JSON, PROBLEM, Answer, Call, Json, Parameter, Response, Route, encode, no_permission, route
from .json_schema import TEXT, Component, JsonObject, array, integer, string, structure

PROBLEM_SCHEMA = Component(
    "Problem",
    structure(
        {
            "type": string("Always about:blank."),
            "title": string("Reason phrase of the HTTP status."),
            "status": integer("HTTP status.", minimum=None),
            "detail": string("Description of the error."),
            "instance": string("Path of the request."),
            "field": string("Field of the body with the error."),
            "parameter": string("Parameter with the error."),
            "line": integer("Line of the error in a body that is not JSON.", minimum=None),
            "column": integer("Column of the error in a body that is not JSON.", minimum=None),
            "taskID": string("Task that has failed."),
            "done": integer("Messages that the failed task has changed."),
            "skipped": integer("Messages in delivery or gone that the failed task has skipped."),
            "failed": integer("Messages that the failed task could not send."),
        },
        "Problem details (RFC 9457).",
        ("type", "title", "status", "detail", "instance"),
    ),
)

#: Error answers by HTTP status: name of the component, description, descriptions of the headers.
ERRORS: Mapping[int, tuple[str, str, Mapping[str, str]]] = {
    400: ("BadRequest", "A parameter, a field or the body is invalid: see field, parameter and detail.", {}),
    401: (
        "Unauthorized",
        "Security is enabled and the request has no valid login (HTTP Basic, no cookies).",
        {"WWW-Authenticate": "The scheme Basic; with X-Requested-With: stompring-console Stompring-Basic."},
    ),
    403: (
        "Forbidden",
        "The user lacks a permission (see detail), the Origin header is of another site, or the Host header is not "
        "a name of this machine.",
        {},
    ),
    404: ("NotFound", "The queue, address, message or connection does not exist.", {}),
    409: ("Conflict", "The state of the broker does not allow the change: see detail.", {}),
    413: ("TooLarge", "The body is longer than 1 MiB.", {}),
    415: ("UnsupportedMediaType", "The body is not application/json in UTF-8.", {}),
    429: (
        "TooManyRequests",
        "Too many failed logins from this host, or too many logins waiting to be checked.",
        {"Retry-After": "Seconds."},
    ),
    502: ("BadGateway", "The login directory or the keys of tokens cannot be read: see detail.", {}),
    503: (
        "NotSynced",
        "The change is in effect, but not synced to disk after 10 seconds; a crash before that loses it. detail names "
        "the cause.",
        {},
    ),
}


def errors_of(route: Route) -> list[int]:
    """The HTTP statuses with which a route may report an error."""
    statuses = {400, 403, *route.errors}
    if not route.public:
        statuses |= {401, 429, 502}
    if "{" in route.path:
        statuses.add(404)
    if route.changes:
        statuses |= {413, 415, 503}
    return sorted(statuses - route.responses.keys())


LOGIN = {
    "type": "http",
    "scheme": "basic",
    "description": "A user of the broker. Required while security-enabled is true.",
}

#: OpenAPI encoding in which each field of an object, or each item of an array, is one query parameter.
EXPLODED = {"style": "form", "explode": True}


class Document:
    """The operations of an OpenAPI document, and the components that they refer to."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.components: dict[str, JsonObject] = {
            "securitySchemes": {"login": LOGIN},
            "parameters": {},
            "responses": {},
            "schemas": {},
        }
        self.paths: dict[str, JsonObject] = {}
        for each in routes:
            self.paths.setdefault(each.path, {})[each.method.lower()] = self.operation(each)

    def component(self, kind: str, name: str, value: Any) -> dict[str, str]:
        """Add a component to the document, and return a reference to it."""
        self.components[kind][name] = value
        return {"$ref": f"#/components/{kind}/{name}"}

    def operation(self, route: Route) -> JsonObject:
        """The description of a route: one method of one path."""
        found: JsonObject = {"operationId": route.operation, "summary": route.summary}
        if not route.public:
            found["description"] = f"{route.description} Permissions: {route.permissions.text}.".lstrip()
        parameters = [self.parameter(parameter) for parameter in route.parameters]
        if route.filters:
            parameters.append(
                {
                    "name": "fields",
                    "in": "query",
                    "description": "Only items whose field has this value: address=orders, temporary=false.",
                    "schema": {
                        "type": "object",
                        "properties": {name: {} for name in route.filters},
                        "additionalProperties": False,
                    },
                    **EXPLODED,
                }
            )
        if parameters:
            found["parameters"] = parameters
        body = route.body
        if body is not None:
            schema = structure(body.fields, required=body.required)
            found["requestBody"] = {
                "required": not body.optional,
                "content": {
                    JSON: {"schema": self.schema(Component(body.name, schema) if body.name else schema)}
                },
            }
        elif route.body_type != JSON:
            found["requestBody"] = {"required": True, "content": {route.body_type: {"schema": TEXT}}}
        found["responses"] = {
            **{str(status): self.response(response) for status, response in route.responses.items()},
            **{str(status): self.error(status) for status in errors_of(route)},
        }
        if route.public:
            found["security"] = []
        return found

    def parameter(self, parameter: Parameter) -> JsonObject:
        """Add the component of a parameter, and return a reference to it."""
        described: JsonObject = {
            "name": parameter.name,
            "in": parameter.where,
            "description": parameter.description,
            "schema": parameter.schema,
        }
        if parameter.where == "path":
            described["required"] = True
        if parameter.schema["type"] == "array":
            described |= EXPLODED
        return self.component("parameters", parameter.component or parameter.name, described)

    def response(self, response: Response) -> JsonObject:
        """The description of an answer. Content other than one JSON value has the schema of a text."""
        found: JsonObject = {"description": response.description}
        if response.schema is not None:
            schema = self.schema(response.schema)
            found["content"] = {
                kind: {"schema": schema if kind in (JSON, PROBLEM) else TEXT}
                for kind in response.content_types
            }
        if response.headers:
            found["headers"] = {name: {"schema": TEXT} for name in response.headers}
        return found

    def error(self, status: int) -> dict[str, str]:
        """Add the component of an error answer, and return a reference to it."""
        name, description, headers = ERRORS[status]
        found = self.response(Response(description, PROBLEM_SCHEMA, (PROBLEM,)))
        if headers:
            found["headers"] = {
                header: {"description": text, "schema": TEXT} for header, text in headers.items()
            }
        return self.component("responses", name, found)

    def schema(self, node: Any) -> Any:
        """A schema in which each named part is a reference to a component."""
        if isinstance(node, Component):
            schemas = self.components["schemas"]
            if node.name not in schemas:
                schemas[node.name] = {}  # reserves the name: a schema may refer to itself
                schemas[node.name] = self.schema(node.schema)
            return {"$ref": f"#/components/schemas/{node.name}"}
        if isinstance(node, Mapping):
            return {key: self.schema(value) for key, value in node.items()}
        if isinstance(node, (list, tuple)):
            return [self.schema(value) for value in node]
        return node


def document(routes: Sequence[Route]) -> JsonObject:
    """The OpenAPI document of these routes as a JSON object."""
    described = Document(routes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "stompring management API",
            "version": "1",
            "description": "Monitor and manage a running broker. HEAD works wherever GET does. Unknown parameters "
            "and fields are rejected with 400, other methods with 405. Sizes are bytes, times milliseconds.",
        },
        "servers": [{"url": "/"}],
        "security": [{"login": []}],
        "paths": described.paths,
        "components": described.components,
    }


LISTED = structure(
    {
        "method": string("Method."),
        "path": string("Path, with names in braces."),
        "summary": string("What the route does."),
    }
)


def with_document(routes: Sequence[Route]) -> tuple[Route, ...]:
    """These routes and two more: one serves the OpenAPI document of all routes, one lists all routes."""

    @cache
    def encoded() -> bytes:
        return encode(document(everything))

    @route(
        "GET /api/v1/openapi.json", no_permission, Response("An OpenAPI 3.1 document.", {"type": "object"})
    )
    def openapi(call: Call) -> Answer:
        """Show the OpenAPI document."""
        return Answer(encoded())

    @route(
        "GET /api/v1/",
        no_permission,
        Response(
            "All routes.",
            structure(
                {"document": string("Path of the OpenAPI document."), "routes": array(LISTED, "Routes.")}
            ),
        ),
    )
    def list_routes(call: Call) -> Json:
        """List the routes of the API."""
        listed = [{"method": each.method, "path": each.path, "summary": each.summary} for each in everything]
        return {"document": openapi.path, "routes": listed}

    everything = (*routes, openapi, list_routes)
    return everything
