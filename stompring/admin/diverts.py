"""``/api/v1/diverts``: the diverts of broker.xml and what they have copied."""

from __future__ import annotations

from typing import Any

from stompring.broker.divert import Divert
from stompring.errors import NotFound
from stompring.settings.model import ComponentRoutingType
from stompring.settings.references import hidden

from .access import view_broker
from .api import LISTING, NAME, Answer, Call, Response, Route, Steps, json_answer, paged, view
from .counters import DIVERT, fields_of
from .json_schema import Component, Field, Fields, array, boolean, page_of, shown, string, structure

HEADER = structure({"name": string("Name of the header."), "value": string("Its value.")})
TRANSFORMER = structure(
    {
        "addHeaders": array(HEADER, "Headers that are set on the copies."),
        "removeHeaders": array({"type": "string"}, "Headers that the copies do not have."),
        "policy": string("Broker-plugin that decides about the headers; null: none.", null=True),
    }
)


def transformer(divert: Divert) -> dict[str, Any] | None:
    """The transformer as JSON, None without one."""
    configured = divert.configuration.transformer
    if configured is None:
        return None
    return {
        "addHeaders": [{"name": one.key, "value": hidden(one.value)} for one in configured.add_headers],
        "removeHeaders": list(configured.remove_headers),
        "policy": None if configured.policy is None else configured.policy.name,
    }


FIELDS: Fields[Divert] = {
    "name": Field(lambda d: d.name, string("Name of the divert.")),
    "routingName": Field(
        lambda d: d.configuration.routing_name or d.name, string("routing-name of the divert.")
    ),
    "address": Field(
        lambda d: d.configuration.address, string("Address whose messages it copies; may have wildcards.")
    ),
    "forwardingAddresses": Field(
        lambda d: list(d.configuration.forwarding_address),
        array({"type": "string"}, "Addresses that get the copies."),
    ),
    "filter": Field(
        lambda d: d.configuration.filter, string("Selector of the messages; null: all.", null=True)
    ),
    "exclusive": Field(
        lambda d: d.exclusive, boolean("Whether its messages do not enter the queues of their address.")
    ),
    "routingType": Field(
        lambda d: d.configuration.routing_type,
        {"enum": [str(kind) for kind in ComponentRoutingType], "description": "Routing type of the copies."},
    ),
    **fields_of(DIVERT),
    "transformer": Field(
        transformer,
        {"anyOf": [TRANSFORMER, {"type": "null"}], "description": "Changes of headers; null: none."},
    ),
}

SORTABLE = {
    name: field for name, field in FIELDS.items() if name not in ("transformer", "forwardingAddresses")
}


def list_diverts(call: Call) -> Steps:
    return paged(call.query, list(call.context.broker.diverts.by_name.values()), FIELDS, "name")


def show(call: Call) -> Answer:
    divert = call.context.broker.diverts.by_name.get(call.names["name"])
    if divert is None:
        raise NotFound(f"Divert {call.names['name']} does not exist")
    return json_answer(view(divert, FIELDS))


DIVERT_SCHEMA = Component("Divert", structure(shown(FIELDS)))

ROUTES = (
    Route(
        "GET",
        "/api/v1/diverts",
        list_diverts,
        view_broker,
        "listDiverts",
        "List diverts.",
        {200: Response("One page of diverts.", page_of(DIVERT_SCHEMA))},
        parameters=LISTING,
        filters=SORTABLE,
    ),
    Route(
        "GET",
        "/api/v1/diverts/{name}",
        show,
        view_broker,
        "divert",
        "Show one divert.",
        {200: Response("The divert.", DIVERT_SCHEMA)},
        parameters=(NAME,),
    ),
)
