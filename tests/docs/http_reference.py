"""The tables of docs/http-api.md, made from the OpenAPI document and from what the events and series are made of."""

import json
import re

from stompring.admin.api import LISTING
from stompring.admin.http import admin_routes
from stompring.admin.openapi import ERRORS
from stompring.broker import notifications

from .generated import table

BASE = "/api/v1/"

#: Statuses that every route, or every change, may answer.
EVERYWHERE = {"400", "401", "403", "413", "415", "429", "502"}

#: Values of an enumeration that a table shows.
SHOWN_VALUES = 8

#: Objects with a field for each limit, and for each permission.
NOT_EXPANDED = {"refusals", "permissions"}

#: All routes, by method and path, and the OpenAPI document that they generate.
ROUTES = {(route.method, route.path): route for route in admin_routes().all}
DOCUMENT = json.loads(ROUTES["GET", "/api/v1/openapi.json"].answer(None).body)


def resolved(node):
    """What a ``$ref`` refers to."""
    while "$ref" in node:
        target = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def selected(pattern):
    """The routes whose path below ``/api/v1/``, or whole path, matches a regular expression."""
    return [each for each in ROUTES.values() if re.fullmatch(pattern, each.path.removeprefix(BASE))]


def requests(pattern, *answers):
    """Requests of paths, their parameters and fields, and the fields of answers to ``METHOD PATH``, of a list those of
    its items. The pattern and the paths are below ``/api/v1/``, or whole paths elsewhere. The default method is GET.
    """
    parts = [_routes(pattern)]
    if rows := _inputs(pattern):
        heads = "parameter or field, of, type, meaning"
        parts.append("Parameters and fields of bodies:\n\n" + table(heads, rows))
    for where in answers:
        method, path = where.split(" ") if " " in where else ("GET", where)
        path = path if path.startswith("/") else BASE + path
        shown = table("field, type, meaning", _rows(answer(method, path)))
        parts.append(f"Fields of the answer to `{method} {path}`:\n\n{shown}")
    return "\n\n".join(parts)


def _routes(pattern):
    rows = []
    for each in selected(pattern):
        described = DOCUMENT["paths"][each.path][each.method.lower()]
        answers = ", ".join(status for status in described["responses"] if status not in EVERYWHERE)
        permissions = "none, no login" if each.public else each.permissions.text
        rows.append((f"`{each.method} {each.path}`", each.summary, permissions, answers))
    return table("request, effect, permissions, answers", rows)


def kind_of(node):
    """The type of a value, with its bounds and its default."""
    values = [value for value in node.get("enum", []) if value is not None]
    kinds = node.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    text = " or ".join(kinds)
    if 0 < len(values) <= SHOWN_VALUES:
        text = ", ".join(f"`{value}`" for value in values) + (" or null" if "null" in kinds else "")
    if "maximum" in node:
        text += f", {node.get('minimum', 0)} to {node['maximum']}"
    return text + (f"; default {str(node['default']).lower()}" if "default" in node else "")


def _inputs(pattern):
    """Rows of the parameters of queries and of the fields of bodies, without the parameters of all lists."""
    found = {}
    for each in selected(pattern):
        own = [p for p in each.parameters if p.where == "query" and p not in LISTING]
        rows = [(f"`?{p.name}`", kind_of(p.schema), p.description) for p in own]
        for name, schema in each.fields.items():
            node = resolved(schema)
            required = ", required" if name in each.body.required else ""
            rows.append((f"`{name}`", kind_of(node) + required, node["description"]))
        for row in rows:
            last = re.sub(".+/", "…/", each.path.removeprefix(BASE))
            found.setdefault(row, {})[f"`{each.method} {last}`"] = None
    return [(row[0], ", ".join(requests), *row[1:]) for row, requests in found.items()]


def answer(method, path):
    """The schema of an answer, of a list that of its items."""
    responses = DOCUMENT["paths"][path][method.lower()]["responses"]
    found = resolved(resolved(responses["200"])["content"]["application/json"]["schema"])
    data = found["properties"].get("data")
    return resolved(data["items"]) if data else found


def _rows(schema, prefix=""):
    for name, node in schema["properties"].items():
        whole = resolved(node)
        meaning = node.get("description") or whole.get("description", "")
        choices = [resolved(each) for each in whole.get("anyOf", [])]
        whole = next((each for each in choices if "properties" in each), whole)
        kind = " or ".join(map(kind_of, choices)) if choices else kind_of(whole)
        yield f"`{prefix}{name}`", kind, meaning
        items = resolved(whole.get("items", whole))
        if items.get("properties") and name not in NOT_EXPANDED:
            yield from _rows(items, f"{prefix}{name}{'[]' if 'items' in whole else ''}.")


def errors():
    """The statuses of errors."""
    return table("status, meaning", [(str(status), text) for status, (_, text, _) in sorted(ERRORS.items())])


def listing():
    """The parameters of all lists."""
    rows = [(f"`{p.name}`", kind_of(p.schema), p.description) for p in LISTING]
    return table("parameter, type, meaning", rows)


def events(kind):
    """The types of events (``TYPES``), or the fields that only some have and their headers (``HEADERS``)."""
    return table(
        "name, meaning", [(f"`{name}`", text) for name, text in getattr(notifications, kind).items()]
    )
