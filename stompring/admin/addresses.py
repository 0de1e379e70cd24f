"""Addresses, diverts and bridges over HTTP.

``/api/v1/addresses``: list, create, change and delete addresses.

``/api/v1/diverts``: the diverts of broker.xml with their counters.

``/api/v1/bridges``: list, show, start, stop, pause and resume bridges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from stompring.broker import address
from stompring.broker.address import Address
from stompring.broker.bridge import Bridge, BridgeState
from stompring.broker.directory import check_not_internal
from stompring.broker.publish import Divert
from stompring.errors import Refused
from stompring.settings.document import hidden
from stompring.settings.match import is_internal
from stompring.settings.model import AddressSettings, ComponentRoutingType, PolicyUse, RoutingType, camel_case
from stompring.settings.run_time import FILE, RUN_TIME, source_of

from .api import (
    CONFLICT,
    FORCE,
    Answer,
    Body,
    BodyField,
    Call,
    Json,
    Response,
    Steps,
    address_creation,
    address_deletion,
    choices,
    created,
    created_response,
    edit_address,
    edit_broker,
    flag,
    listing,
    named,
    read_fields,
    required,
    route,
    view,
    view_address,
    view_broker,
)
from .context import background_done
from .counters import ADDRESS, BRIDGE, DIVERT, fields_of
from .json_schema import (
    TEXT,
    Field,
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    object_of,
    string,
    string_or_null,
    structure,
    timestamp,
)
from .sampler import ADDRESS_RATES, rate_fields
from .verdict import of_address, verdict_fields

ROUTING_TYPE = {"enum": [str(kind) for kind in RoutingType]}
ROUTING_TYPES: Schema = array(ROUTING_TYPE, "Routing types of the address.", uniqueItems=True)

FIELDS: Fields[Address] = {
    "name": string("Name of the address.", "name"),
    "routingTypes": Field(ROUTING_TYPES, lambda a: sorted(a.routing_types)),
    "queueCount": integer("Queues of the address.", lambda a: len(a.queues)),
    "messageCount": integer("Sum of messageCount of its queues.", "message_count"),
    **fields_of(ADDRESS),
    **rate_fields(
        ADDRESS_RATES,
        {
            "added": "Messages sent to the address and routed to a queue.",
            "delivered": "Messages delivered to consumers of its queues.",
            "acknowledged": "Messages acknowledged in its queues.",
            "redelivered": "Messages that came back from a consumer.",
            "evicted": "Messages evicted by rings.",
            "expired": "Messages expired.",
            "paged": "Messages by which pagedCount of its queues grew.",
            "unrouted": "Messages sent to the address and routed to no queue.",
            "dropped": "Messages dropped.",
        },
    ),
    "policies": array(
        TEXT,
        "Address policies, in the order in which they are evaluated.",
        lambda a: a.broker.policies.names_for(a),
    ),
    "paused": boolean("Whether its queues are paused. New queues start paused meanwhile.", "paused"),
    "autoCreated": boolean("Whether the address was created automatically.", "auto_created"),
    "temporary": boolean(
        "Whether the address is a temporary topic, or has a queue that is deleted with its connection.",
        lambda a: a.temporary or any(queue.attributes.temporary for queue in a.queues.values()),
    ),
    "configured": boolean("Whether broker.xml defines the address.", "configured"),
}

DETAILS: Fields[Address] = {**verdict_fields(of_address), **FIELDS}

CHANGEABLE: dict[str, BodyField] = {
    "routingTypes": BodyField(
        "routing_types",
        partial(choices, RoutingType),
        array(ROUTING_TYPE, "Routing types of the address.", minItems=1),
    ),
    "paused": BodyField("paused", flag, boolean("Pause or resume all queues of the address.")),
}


def address_of(call: Call) -> Address:
    """The address that the path names. Raises `NotFound`."""
    return call.directory.address(call.names["name"])


def settings_shown(settings: AddressSettings) -> JsonObject:
    """Return address-settings as JSON; the keys are the names of broker.xml in camelCase."""
    return {camel_case(name): hidden(value) for name, value in asdict(settings).items()}


def setting_shown(value: Any) -> Any:
    """Return a value of a setting as JSON, without secrets. A policy is shown by its name."""
    if isinstance(value, tuple):
        return [one.name if isinstance(one, PolicyUse) else hidden(one) for one in value]
    return hidden(value)


def detailed(address: Address) -> JsonObject:
    """All fields, the names of the address's queues, and the address-settings in force for it."""
    return {
        **view(address, DETAILS),
        "queues": list(address.queues),
        "settings": settings_shown(address.settings),
    }


def set_paused(address: Address, paused: bool) -> None:
    """Pause or resume all queues of an address; new queues of a paused address start paused."""
    if paused == address.paused:
        return
    address.paused = paused
    address.broker.store.bind_address(address)
    for queue in list(address.queues.values()):
        if paused:
            queue.pause()
        else:
            queue.resume()


SETTABLE = {name: field.schema for name, field in CHANGEABLE.items()}

ADDRESS_DETAIL = object_of(
    "AddressDetail",
    {
        **DETAILS,
        "queues": array(TEXT, "Names of its queues."),
        "settings": {
            "type": "object",
            "description": "The address-settings in force, with their names of broker.xml in camelCase.",
        },
    },
)


@listing("/api/v1/addresses", view_broker, "addresses", "Address", FIELDS)
def list_addresses(call: Call) -> list[Address]:
    """List addresses."""
    return [a for a in call.directory.addresses.values() if not is_internal(a.name)]


@route(
    "POST /api/v1/addresses",
    address_creation,
    created_response("The new address.", ADDRESS_DETAIL),
    body=Body({"name": string("Name of the address.", minLength=1), **SETTABLE}, ("name",), "NewAddress"),
    errors=CONFLICT,
)
def create_address(call: Call) -> Answer:
    """Create an address without queues."""
    directory = call.directory
    name = required(call.body, "name")
    check_not_internal(name)
    given = read_fields(call.body, CHANGEABLE)
    default = frozenset({directory.settings.lookup(name).default_address_routing_type})
    if name not in directory.addresses:
        directory.resource_limits.check_address(name)
    address = directory.create_address(name, given.get("routing_types", default))
    set_paused(address, given.get("paused", False))
    return created(detailed(address), "addresses", name)


@route("GET /api/v1/addresses/{name}", view_address, Response("The address.", ADDRESS_DETAIL))
def show_address(call: Call) -> Json:
    """Show one address."""
    return detailed(address_of(call))


@route(
    "PATCH /api/v1/addresses/{name}",
    edit_address,
    Response("The changed address.", ADDRESS_DETAIL),
    body=Body(SETTABLE, name="AddressChange"),
    errors=CONFLICT,
)
def change_address(call: Call) -> Json:
    """Change the routing types of an address, pause or resume it."""
    address = address_of(call)
    given = read_fields(call.body, CHANGEABLE)
    if "routing_types" in given:
        call.directory.update_address(address, given["routing_types"])
    set_paused(address, given.get("paused", address.paused))
    return detailed(address)


@route(
    "DELETE /api/v1/addresses/{name}",
    address_deletion,
    Response("The address is deleted."),
    parameters=(FORCE,),
    errors=CONFLICT,
)
def delete_address(call: Call) -> Steps:
    """Delete an address.

    An address with queues requires force=true, which deletes them too.
    """
    directory, address = call.directory, address_of(call)
    check_not_internal(address.name)
    if address.queues and not call.query.flag("force"):
        few = ", ".join(sorted(address.queues)[:5])
        raise Refused(f"Address {address.name} has queues ({few}); use force=true to delete them too")
    queues = list(address.queues.values())
    directory.delete_address(address.name, force=True)
    for queue in queues:
        # fires when the messages of the queue are deleted
        yield background_done(queue.broker.background, queue)


@route(
    "POST /api/v1/addresses/{name}/forget-duplicates",
    edit_address,
    Response(
        "The number of duplicate ids that were known.",
        structure({"forgotten": integer("Number of duplicate ids that were known.")}),
    ),
)
def forget_duplicates(call: Call) -> Json:
    """Forget the duplicate ids of an address permanently."""
    return {"forgotten": address.forget_all(address_of(call))}


HEADER = structure({"name": string("Name of the header."), "value": string("Its value.")})
TRANSFORMER = structure(
    {
        "addHeaders": array(HEADER, "Headers that are set on the copies."),
        "removeHeaders": array(TEXT, "Headers that the copies do not have."),
        "policy": string_or_null("Broker-plugin that decides about the headers; null: none."),
    }
)


def transformer(divert: Divert) -> JsonObject | None:
    """The transformer as JSON, None without one."""
    configured = divert.configuration.transformer
    if configured is None:
        return None
    return {
        "addHeaders": [{"name": one.key, "value": hidden(one.value)} for one in configured.add_headers],
        "removeHeaders": list(configured.remove_headers),
        "policy": None if configured.policy is None else configured.policy.name,
    }


def defined_in(line: Callable[[Any], int | None], durable: Callable[[Any], bool]) -> Field[Any]:
    """Return the field that shows where an element is defined. ``line`` returns the line of the element, ``durable``
    whether the broker has a store.
    """
    return keyword(
        (FILE, RUN_TIME, MEMORY),
        "Where it is defined. memory: at run time, without a store; a restart loses it.",
        lambda thing: source_of(line(thing)) if durable(thing) or source_of(line(thing)) == FILE else MEMORY,
    )


#: Value of the field that `defined_in` returns: the element was changed at run time, on a broker without a store.
MEMORY = "memory"

DEFINED_IN = defined_in(lambda each: each.configuration.line, lambda each: each.broker.storage.values.durable)

DIVERT_FIELDS: Fields[Divert] = {
    "name": string("Name of the divert.", "name"),
    "definedIn": DEFINED_IN,
    "routingName": string("routing-name of the divert.", lambda d: d.configuration.routing_name or d.name),
    "address": string("Address whose messages it copies; may have wildcards.", "configuration.address"),
    "forwardingAddresses": array(
        TEXT, "Addresses that get the copies.", lambda d: list(d.configuration.forwarding_address)
    ),
    "filter": string_or_null("Selector of the messages; null: all.", "configuration.filter"),
    "exclusive": boolean(
        "Whether its messages do not enter the queues of their address.", "configuration.exclusive"
    ),
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

BRIDGE_FIELDS: Fields[Bridge] = {
    "name": string("Name of the bridge.", "name"),
    "definedIn": DEFINED_IN,
    "queue": string("Queue whose messages are forwarded.", "configuration.queue_name"),
    "forwardingAddress": string_or_null(
        "Destination at the remote broker; null: the address of each message.",
        "configuration.forwarding_address",
    ),
    "filter": string_or_null("Selector of what is forwarded.", "configuration.filter"),
    "state": Field(
        {
            "enum": [str(state) for state in BridgeState],
            "description": "CONNECTED as soon as one of its connections is. WAITING: for the next attempt to connect. "
            "STOPPING: for confirmations. FAILED: the attempts are used up.",
        },
        lambda b: str(b.state),
    ),
    "paused": boolean("Whether no messages are taken from the queue.", "paused"),
    "remote": string_or_null("Host and port of the remote broker in use, or tried last.", "remote"),
    "remoteServer": string_or_null("The server header of the remote broker, while connected.", "server"),
    "connectors": array(
        TEXT,
        "Host and port of each connector, in the order in which they are tried.",
        lambda b: [each.remote for each in b.configuration.connectors],
    ),
    **fields_of(BRIDGE),
    "lastError": string_or_null("The last fault.", "last_error"),
    "lastErrorTime": timestamp("Time of the last fault.", lambda b: b.last_error_time or None, null=True),
}


def _changed(call: Call, change: Callable[[Bridge], object]) -> Json:
    """Apply a change to the bridge that the path names, and return the bridge as JSON. Raises `NotFound`."""
    bridge = named(call, call.context.bridges.by_name, "Bridge")
    change(bridge)
    return view(bridge, BRIDGE_FIELDS)


THE_BRIDGE = Response("The bridge.", object_of("Bridge", BRIDGE_FIELDS))


@listing(
    "/api/v1/diverts",
    view_broker,
    "diverts",
    "Divert",
    DIVERT_FIELDS,
    unfiltered=("transformer", "forwardingAddresses"),
)
def list_diverts(call: Call) -> list[Divert]:
    """List diverts."""
    return list(call.context.broker.diverts.by_name.values())


@route("GET /api/v1/diverts/{name}", view_broker, Response("The divert.", object_of("Divert", DIVERT_FIELDS)))
def show_divert(call: Call) -> Json:
    """Show one divert."""
    return view(named(call, call.context.broker.diverts.by_name, "Divert"), DIVERT_FIELDS)


@listing("/api/v1/bridges", view_broker, "bridges", "Bridge", BRIDGE_FIELDS)
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
    # the answer does not wait for the outstanding confirmations
    return _changed(call, Bridge.stop)


@route("POST /api/v1/bridges/{name}/pause", edit_broker, THE_BRIDGE)
def pause_bridge(call: Call) -> Json:
    """Take no more messages from the queue, also after a restart; the connection stays open."""
    return _changed(call, lambda bridge: bridge.set_paused(True))


@route("POST /api/v1/bridges/{name}/resume", edit_broker, THE_BRIDGE)
def resume_bridge(call: Call) -> Json:
    """Resume a paused bridge."""
    return _changed(call, lambda bridge: bridge.set_paused(False))
