"""``/api/v1/bridges``: list, show, start, stop, pause and resume bridges."""

from __future__ import annotations

from stompring.broker.bridge import Bridge, BridgeState
from stompring.errors import NotFound

from .access import edit_broker, view_broker
from .api import LISTING, NAME, Answer, Call, Response, Route, Steps, json_answer, paged, view
from .counters import BRIDGE, fields_of
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

STATE = {"enum": [str(state) for state in BridgeState]}

FIELDS: Fields[Bridge] = {
    "name": Field(lambda b: b.name, string("Name of the bridge.")),
    "queue": Field(lambda b: b.configuration.queue_name, string("Queue whose messages are forwarded.")),
    "forwardingAddress": Field(
        lambda b: b.configuration.forwarding_address,
        string("Destination at the remote broker; null: the address of each message.", null=True),
    ),
    "filter": Field(lambda b: b.configuration.filter, string("Selector of what is forwarded.", null=True)),
    "state": Field(
        lambda b: str(b.state),
        {
            **STATE,
            "description": "CONNECTED as soon as one of its connections is. WAITING: for the next attempt to connect. "
            "STOPPING: for confirmations. FAILED: the attempts are used up.",
        },
    ),
    "paused": Field(lambda b: b.paused, boolean("Whether no messages are taken from the queue.")),
    "remote": Field(
        lambda b: b.remote, string("Host and port of the remote broker in use, or tried last.", null=True)
    ),
    "remoteServer": Field(
        lambda b: b.server, string("The server header of the remote broker, while connected.", null=True)
    ),
    "connectors": Field(
        lambda b: [each.remote for each in b.configuration.connectors],
        array({"type": "string"}, "Host and port of each connector, in the order in which they are tried."),
    ),
    **fields_of(BRIDGE),
    "lastError": Field(lambda b: b.last_error, string("The last fault.", null=True)),
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
    return paged(call.query, list(call.context.bridges.by_name.values()), FIELDS, "name")


def show(call: Call) -> Answer:
    return json_answer(view(bridge_of(call), FIELDS))


def start(call: Call) -> Answer:
    bridge = bridge_of(call)
    bridge.start()
    return json_answer(view(bridge, FIELDS))


def stop(call: Call) -> Answer:
    """Stop a bridge; the answer does not wait for what is still to be confirmed."""
    bridge = bridge_of(call)
    bridge.stop()
    return json_answer(view(bridge, FIELDS))


def pause(call: Call) -> Answer:
    bridge = bridge_of(call)
    bridge.set_paused(True)
    return json_answer(view(bridge, FIELDS))


def resume(call: Call) -> Answer:
    bridge = bridge_of(call)
    bridge.set_paused(False)
    return json_answer(view(bridge, FIELDS))


BRIDGE_SCHEMA = Component("Bridge", structure(shown(FIELDS)))
BRIDGES_PATH, BRIDGE_PATH = "/api/v1/bridges", "/api/v1/bridges/{name}"
THE_BRIDGE = {200: Response("The bridge.", BRIDGE_SCHEMA)}

ROUTES = (
    Route(
        "GET",
        BRIDGES_PATH,
        list_bridges,
        view_broker,
        "listBridges",
        "List bridges.",
        {200: Response("One page of bridges.", page_of(BRIDGE_SCHEMA))},
        parameters=LISTING,
        filters=FIELDS,
    ),
    Route(
        "GET", BRIDGE_PATH, show, view_broker, "bridge", "Show one bridge.", THE_BRIDGE, parameters=(NAME,)
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
