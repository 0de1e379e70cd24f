"""``/api/v1/diverts`` and ``/api/v1/bridges``.

``/api/v1/diverts``: the diverts of broker.xml and what they have copied.

``/api/v1/bridges``: list, show, start, stop, pause and resume bridges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stompring.broker.bridge import Bridge, BridgeState
from stompring.broker.publish import Divert
from stompring.errors import NotFound
from stompring.settings.document import hidden
from stompring.settings.model import ComponentRoutingType

from .api import (
    Call,
    Json,
    Response,
    edit_broker,
    listing,
    route,
    view,
    view_broker,
)
from .counters import BRIDGE, DIVERT, fields_of
from .json_schema import (
    TEXT,
    Field,
    Fields,
    array,
    boolean,
    object_of,
    string,
    structure,
    timestamp,
)

HEADER = structure({"name": string("Name of the header."), "value": string("Its value.")})
TRANSFORMER = structure(
    {
        "addHeaders": array(HEADER, "Headers that are set on the copies."),
        "removeHeaders": array(TEXT, "Headers that the copies do not have."),
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
    "name": string("Name of the divert.", "name"),
    "routingName": string("routing-name of the divert.", lambda d: d.configuration.routing_name or d.name),
    "address": string("Address whose messages it copies; may have wildcards.", "configuration.address"),
    "forwardingAddresses": array(
        TEXT, "Addresses that get the copies.", lambda d: list(d.configuration.forwarding_address)
    ),
    "filter": string("Selector of the messages; null: all.", "configuration.filter", null=True),
    "exclusive": boolean("Whether its messages do not enter the queues of their address.", "exclusive"),
    "routingType": Field(
        {"enum": [str(kind) for kind in ComponentRoutingType], "description": "Routing type of the copies."},
        "configuration.routing_type",
    ),
    **fields_of(DIVERT),
    "transformer": Field(
        {"anyOf": [TRANSFORMER, {"type": "null"}], "description": "Changes of headers; null: none."},
        transformer,
    ),
}

SORTABLE = {
    name: field for name, field in DIVERT_FIELDS.items() if name not in ("transformer", "forwardingAddresses")
}


DIVERT_SCHEMA = object_of("Divert", DIVERT_FIELDS)


STATE = {"enum": [str(state) for state in BridgeState]}

BRIDGE_FIELDS: Fields[Bridge] = {
    "name": string("Name of the bridge.", "name"),
    "queue": string("Queue whose messages are forwarded.", "configuration.queue_name"),
    "forwardingAddress": string(
        "Destination at the remote broker; null: the address of each message.",
        "configuration.forwarding_address",
        null=True,
    ),
    "filter": string("Selector of what is forwarded.", "configuration.filter", null=True),
    "state": Field(
        {
            **STATE,
            "description": "CONNECTED as soon as one of its connections is. WAITING: for the next attempt to connect. "
            "STOPPING: for confirmations. FAILED: the attempts are used up.",
        },
        lambda b: str(b.state),
    ),
    "paused": boolean("Whether no messages are taken from the queue.", "paused"),
    "remote": string("Host and port of the remote broker in use, or tried last.", "remote", null=True),
    "remoteServer": string("The server header of the remote broker, while connected.", "server", null=True),
    "connectors": array(
        TEXT,
        "Host and port of each connector, in the order in which they are tried.",
        lambda b: [each.remote for each in b.configuration.connectors],
    ),
    **fields_of(BRIDGE),
    "lastError": string("The last fault.", "last_error", null=True),
    "lastErrorTime": timestamp("Time of the last fault.", lambda b: b.last_error_time or None, null=True),
}


def _changed(call: Call, change: Callable[[Bridge], object]) -> Json:
    """The bridge in the path after a change. Raises `NotFound`."""
    name = call.names["name"]
    bridge = call.context.bridges.by_name.get(name)
    if bridge is None:
        raise NotFound(f"Bridge {name} does not exist")
    change(bridge)
    return view(bridge, BRIDGE_FIELDS)


BRIDGE_SCHEMA = object_of("Bridge", BRIDGE_FIELDS)
THE_BRIDGE = Response("The bridge.", BRIDGE_SCHEMA)


@listing(
    "/api/v1/diverts",
    view_broker,
    "diverts",
    DIVERT_SCHEMA,
    DIVERT_FIELDS,
    unfiltered=("transformer", "forwardingAddresses"),
)
def list_diverts(call: Call) -> list[Divert]:
    """List diverts."""
    return list(call.context.broker.diverts.by_name.values())


@route("GET /api/v1/diverts/{name}", view_broker, Response("The divert.", DIVERT_SCHEMA))
def show_divert(call: Call) -> Json:
    """Show one divert."""
    divert = call.context.broker.diverts.by_name.get(call.names["name"])
    if divert is None:
        raise NotFound(f"Divert {call.names['name']} does not exist")
    return view(divert, DIVERT_FIELDS)


@listing("/api/v1/bridges", view_broker, "bridges", BRIDGE_SCHEMA, BRIDGE_FIELDS)
def list_bridges(call: Call) -> list[Bridge]:
    """List bridges."""
    return list(call.context.bridges.by_name.values())


@route("GET /api/v1/bridges/{name}", view_broker, THE_BRIDGE)
def show_bridge(call: Call) -> Json:
    """Show one bridge."""
    return _changed(call, lambda bridge: None)


@route("POST /api/v1/bridges/{name}/start", edit_broker, THE_BRIDGE)
def start_bridge(call: Call) -> Json:
    """Start a bridge that was stopped or has failed."""
    return _changed(call, Bridge.start)


@route("POST /api/v1/bridges/{name}/stop", edit_broker, THE_BRIDGE)
def stop_bridge(call: Call) -> Json:
    """Stop a bridge until it is started, or the broker restarts.

    It takes no more messages, waits up to pending-ack-timeout for confirmations, and disconnects.
    """
    # the answer does not wait for what is still to be confirmed
    return _changed(call, Bridge.stop)


@route("POST /api/v1/bridges/{name}/pause", edit_broker, THE_BRIDGE)
def pause_bridge(call: Call) -> Json:
    """Take no more messages from the queue; the connection stays open."""
    return _changed(call, lambda bridge: bridge.set_paused(True))


@route("POST /api/v1/bridges/{name}/resume", edit_broker, THE_BRIDGE)
def resume_bridge(call: Call) -> Json:
    """Resume a paused bridge."""
    return _changed(call, lambda bridge: bridge.set_paused(False))
