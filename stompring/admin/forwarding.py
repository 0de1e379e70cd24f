"""``/api/v1/diverts`` and ``/api/v1/bridges``.

``/api/v1/diverts``: the diverts of broker.xml and what they have copied.

``/api/v1/bridges``: list, show, start, stop, pause and resume bridges.
"""

from __future__ import annotations

from typing import Any

from stompring.broker.bridge import Bridge, BridgeState
from stompring.broker.publish import Divert
from stompring.errors import NotFound
from stompring.settings.document import hidden
from stompring.settings.model import ComponentRoutingType

from .api import (
    LISTING,
    NAME,
    Answer,
    Call,
    Response,
    Route,
    Steps,
    edit_broker,
    json_answer,
    paged,
    view,
    view_broker,
)
from .counters import BRIDGE, DIVERT, fields_of
from .json_schema import (
    Component,
    Field,
    Fields,
    array,
    boolean,
    page_of,
    shown,
    string,
    structure,
    timestamp,
)

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


DIVERT_FIELDS: Fields[Divert] = {
    "name": Field("name", string("Name of the divert.")),
    "routingName": Field(
        lambda d: d.configuration.routing_name or d.name, string("routing-name of the divert.")
    ),
    "address": Field(
        "configuration.address", string("Address whose messages it copies; may have wildcards.")
    ),
    "forwardingAddresses": Field(
        lambda d: list(d.configuration.forwarding_address),
        array({"type": "string"}, "Addresses that get the copies."),
    ),
    "filter": Field("configuration.filter", string("Selector of the messages; null: all.", null=True)),
    "exclusive": Field(
        "exclusive", boolean("Whether its messages do not enter the queues of their address.")
    ),
    "routingType": Field(
        "configuration.routing_type",
        {"enum": [str(kind) for kind in ComponentRoutingType], "description": "Routing type of the copies."},
    ),
    **fields_of(DIVERT),
    "transformer": Field(
        transformer,
        {"anyOf": [TRANSFORMER, {"type": "null"}], "description": "Changes of headers; null: none."},
    ),
}

SORTABLE = {
    name: field for name, field in DIVERT_FIELDS.items() if name not in ("transformer", "forwardingAddresses")
}


def list_diverts(call: Call) -> Steps:
    return paged(call.query, list(call.context.broker.diverts.by_name.values()), DIVERT_FIELDS, "name")


def show_divert(call: Call) -> Answer:
    divert = call.context.broker.diverts.by_name.get(call.names["name"])
    if divert is None:
        raise NotFound(f"Divert {call.names['name']} does not exist")
    return json_answer(view(divert, DIVERT_FIELDS))


DIVERT_SCHEMA = Component("Divert", structure(shown(DIVERT_FIELDS)))


STATE = {"enum": [str(state) for state in BridgeState]}

BRIDGE_FIELDS: Fields[Bridge] = {
    "name": Field("name", string("Name of the bridge.")),
    "queue": Field("configuration.queue_name", string("Queue whose messages are forwarded.")),
    "forwardingAddress": Field(
        "configuration.forwarding_address",
        string("Destination at the remote broker; null: the address of each message.", null=True),
    ),
    "filter": Field("configuration.filter", string("Selector of what is forwarded.", null=True)),
    "state": Field(
        lambda b: str(b.state),
        {
            **STATE,
            "description": "CONNECTED as soon as one of its connections is. WAITING: for the next attempt to connect. "
            "STOPPING: for confirmations. FAILED: the attempts are used up.",
        },
    ),
    "paused": Field("paused", boolean("Whether no messages are taken from the queue.")),
    "remote": Field("remote", string("Host and port of the remote broker in use, or tried last.", null=True)),
    "remoteServer": Field(
        "server", string("The server header of the remote broker, while connected.", null=True)
    ),
    "connectors": Field(
        lambda b: [each.remote for each in b.configuration.connectors],
        array({"type": "string"}, "Host and port of each connector, in the order in which they are tried."),
    ),
    **fields_of(BRIDGE),
    "lastError": Field("last_error", string("The last fault.", null=True)),
    "lastErrorTime": Field(
        lambda b: b.last_error_time or None, timestamp("Time of the last fault.", null=True)
    ),
}


def bridge_of(call: Call) -> Bridge:
    """The bridge in the path. Raises `NotFound`."""
    name = call.names["name"]
    bridge = call.context.bridges.by_name.get(name)
    if bridge is None:
        raise NotFound(f"Bridge {name} does not exist")
    return bridge


def list_bridges(call: Call) -> Steps:
    return paged(call.query, list(call.context.bridges.by_name.values()), BRIDGE_FIELDS, "name")


def show_bridge(call: Call) -> Answer:
    return json_answer(view(bridge_of(call), BRIDGE_FIELDS))


def start(call: Call) -> Answer:
    bridge = bridge_of(call)
    bridge.start()
    return json_answer(view(bridge, BRIDGE_FIELDS))


def stop(call: Call) -> Answer:
    """Stop a bridge; the answer does not wait for what is still to be confirmed."""
    bridge = bridge_of(call)
    bridge.stop()
    return json_answer(view(bridge, BRIDGE_FIELDS))


def pause(call: Call) -> Answer:
    bridge = bridge_of(call)
    bridge.set_paused(True)
    return json_answer(view(bridge, BRIDGE_FIELDS))


def resume(call: Call) -> Answer:
    bridge = bridge_of(call)
    bridge.set_paused(False)
    return json_answer(view(bridge, BRIDGE_FIELDS))


BRIDGE_SCHEMA = Component("Bridge", structure(shown(BRIDGE_FIELDS)))
BRIDGES_PATH, BRIDGE_PATH = "/api/v1/bridges", "/api/v1/bridges/{name}"
THE_BRIDGE = {200: Response("The bridge.", BRIDGE_SCHEMA)}


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
        show_divert,
        view_broker,
        "divert",
        "Show one divert.",
        {200: Response("The divert.", DIVERT_SCHEMA)},
        parameters=(NAME,),
    ),
    Route(
        "GET",
        BRIDGES_PATH,
        list_bridges,
        view_broker,
        "listBridges",
        "List bridges.",
        {200: Response("One page of bridges.", page_of(BRIDGE_SCHEMA))},
        parameters=LISTING,
        filters=BRIDGE_FIELDS,
    ),
    Route(
        "GET",
        BRIDGE_PATH,
        show_bridge,
        view_broker,
        "bridge",
        "Show one bridge.",
        THE_BRIDGE,
        parameters=(NAME,),
    ),
    Route(
        "POST",
        f"{BRIDGE_PATH}/start",
        start,
        edit_broker,
        "startBridge",
        "Start a bridge that was stopped or has failed.",
        THE_BRIDGE,
        parameters=(NAME,),
    ),
    Route(
        "POST",
        f"{BRIDGE_PATH}/stop",
        stop,
        edit_broker,
        "stopBridge",
        "Stop a bridge until it is started, or the broker restarts.",
        THE_BRIDGE,
        "It takes no more messages, waits up to pending-ack-timeout for confirmations, and disconnects.",
        parameters=(NAME,),
    ),
    Route(
        "POST",
        f"{BRIDGE_PATH}/pause",
        pause,
        edit_broker,
        "pauseBridge",
        "Take no more messages from the queue; the connection stays open.",
        THE_BRIDGE,
        parameters=(NAME,),
    ),
    Route(
        "POST",
        f"{BRIDGE_PATH}/resume",
        resume,
        edit_broker,
        "resumeBridge",
        "Resume a paused bridge.",
        THE_BRIDGE,
        parameters=(NAME,),
    ),
)
