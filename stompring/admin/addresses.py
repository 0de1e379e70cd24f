"""``/api/v1/addresses``: list, create, change and delete addresses."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stompring.broker import address
from stompring.broker.address import Address
from stompring.broker.directory import check_not_internal
from stompring.errors import Refused
from stompring.settings.document import hidden
from stompring.settings.match import is_internal
from stompring.settings.model import RoutingType, camel_case

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
    edit_address,
    flag,
    listing,
    read_fields,
    required,
    route,
    view,
    view_address,
    view_broker,
)
from .context import background_done
from .counters import ADDRESS, fields_of
from .json_schema import (
    TEXT,
    Component,
    Field,
    Fields,
    Schema,
    array,
    boolean,
    integer,
    object_of,
    string,
    structure,
)
from .sampler import ADDRESS_RATES, rate_fields

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

CHANGEABLE: dict[str, BodyField] = {
    "routingTypes": BodyField(
        "routing_types",
        choices(RoutingType),
        array(ROUTING_TYPE, "Routing types of the address.", minItems=1),
    ),
    "paused": BodyField("paused", flag, boolean("Pause or resume all queues of the address.")),
}


def address_of(call: Call) -> Address:
    """The address that the path names. Raises `NotFound`."""
    return call.directory.address(call.names["name"])


def detailed(address: Address) -> dict[str, Any]:
    """All fields, the names of the address's queues, and the address-settings in force for it."""
    settings = {camel_case(name): hidden(value) for name, value in asdict(address.settings).items()}
    return {**view(address, FIELDS), "queues": list(address.queues), "settings": settings}


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
FORGOTTEN = structure({"forgotten": integer("Number of duplicate ids that were known.")})

ADDRESS_SCHEMA = object_of("Address", FIELDS)
ADDRESS_DETAIL = Component(
    "AddressDetail",
    structure(
        {
            **FIELDS,
            "queues": array(TEXT, "Names of its queues."),
            "settings": {
                "type": "object",
                "description": "The address-settings in force, with their names of broker.xml in camelCase.",
            },
        }
    ),
)


@listing("/api/v1/addresses", view_broker, "addresses", ADDRESS_SCHEMA, FIELDS)
def list_addresses(call: Call) -> list[Address]:
    """List addresses."""
    return [a for a in call.directory.addresses.values() if not is_internal(a.name)]


@route(
    "POST /api/v1/addresses",
    address_creation,
    Response("The new address.", ADDRESS_DETAIL, headers=("Location",), status=201),
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
        yield background_done(queue.broker.background, queue)  # until its messages are deleted


@route(
    "POST /api/v1/addresses/{name}/forget-duplicates",
    edit_address,
    Response("The number of duplicate ids that were known.", FORGOTTEN),
)
def forget_duplicates(call: Call) -> Json:
    """Forget the duplicate ids of an address permanently."""
    return {"forgotten": address.forget_all(address_of(call))}
