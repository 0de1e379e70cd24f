"""``/api/v1/addresses``: list, create, change and delete addresses."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from stompring.broker import address
from stompring.broker.address import Address
from stompring.broker.directory import check_not_internal
from stompring.errors import Refused
from stompring.settings.document import hidden
from stompring.settings.match import is_internal
from stompring.settings.model import RoutingType

from .api import (
    FORCE,
    LISTING,
    NAME,
    NO_CONTENT,
    Answer,
    Body,
    BodyField,
    Call,
    Response,
    Route,
    Steps,
    choices,
    create_address,
    delete_address,
    edit_address,
    flag,
    json_answer,
    paged,
    read_fields,
    required,
    view,
    view_address,
    view_broker,
)
from .context import background_done
from .counters import ADDRESS, fields_of
from .json_schema import Component, Field, Fields, array, boolean, integer, page_of, shown, string, structure
from .sampler import ADDRESS_RATES, rate_fields

ROUTING_TYPE = {"enum": [str(kind) for kind in RoutingType]}
ROUTING_TYPES = array(ROUTING_TYPE, "Routing types of the address.", uniqueItems=True)

FIELDS: Fields[Address] = {
    "name": Field(lambda a: a.name, string("Name of the address.")),
    "routingTypes": Field(lambda a: sorted(a.routing_types), ROUTING_TYPES),
    "queueCount": Field(lambda a: len(a.queues), integer("Queues of the address.")),
    "messageCount": Field(lambda a: a.message_count, integer("Sum of messageCount of its queues.")),
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
    "policies": Field(
        lambda a: a.broker.policies.names_for(a),
        array({"type": "string"}, "Address policies, in the order in which they are evaluated."),
    ),
    "paused": Field(
        lambda a: a.paused, boolean("Whether its queues are paused. New queues start paused meanwhile.")
    ),
    "autoCreated": Field(lambda a: a.auto_created, boolean("Whether the address was created automatically.")),
    "temporary": Field(
        lambda a: a.temporary or any(queue.attributes.temporary for queue in a.queues.values()),
        boolean(
            "Whether the address is a temporary topic, or has a queue that is deleted with its connection."
        ),
    ),
    "configured": Field(lambda a: a.configured, boolean("Whether broker.xml defines the address.")),
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
    return call.context.broker.directory.address(call.names["name"])


def detailed(address: Address) -> dict[str, Any]:
    """All fields, the names of the address's queues, and the address-settings in force for it."""
    settings = {camel(name): hidden(value) for name, value in asdict(address.settings).items()}
    return {**view(address, FIELDS), "queues": list(address.queues), "settings": settings}


def camel(name: str) -> str:
    """``max_size_bytes`` as JSON has it: ``maxSizeBytes``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def list_addresses(call: Call) -> Steps:
    addresses = [a for a in call.context.broker.directory.addresses.values() if not is_internal(a.name)]
    return paged(call.query, addresses, FIELDS, "name")


def show(call: Call) -> Answer:
    return json_answer(detailed(address_of(call)))


def create(call: Call) -> Answer:
    directory = call.context.broker.directory
    name = required(call.body, "name")
    check_not_internal(name)
    given = read_fields(call.body, CHANGEABLE)
    default = frozenset({directory.settings.lookup(name).default_address_routing_type})
    if name not in directory.addresses:
        directory.resource_limits.check_address(name)
    address = directory.create_address(name, given.get("routing_types", default))
    set_paused(address, given.get("paused", False))
    return json_answer(detailed(address), 201, {"Location": f"/api/v1/addresses/{quote(name, safe='')}"})


def change(call: Call) -> Answer:
    address = address_of(call)
    given = read_fields(call.body, CHANGEABLE)
    if "routing_types" in given:
        call.context.broker.directory.update_address(address, given["routing_types"])
    set_paused(address, given.get("paused", address.paused))
    return json_answer(detailed(address))


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


def delete(call: Call) -> Steps:
    """Delete an address; with ``force`` also its queues, their messages and consumers."""
    directory, address = call.context.broker.directory, address_of(call)
    check_not_internal(address.name)
    if address.queues and not call.query.flag("force"):
        few = ", ".join(sorted(address.queues)[:5])
        raise Refused(f"Address {address.name} has queues ({few}); use force=true to delete them too")
    queues = list(address.queues.values())
    directory.delete_address(address.name, force=True)
    for queue in queues:
        yield background_done(queue.broker.background, queue)  # until its messages are deleted
    return NO_CONTENT


def forget_duplicates(call: Call) -> Answer:
    return json_answer({"forgotten": address.forget_all(address_of(call))})


SETTABLE = {name: field.schema for name, field in CHANGEABLE.items()}
FORGOTTEN = structure({"forgotten": integer("Number of duplicate ids that were known.")})

ADDRESS_SCHEMA = Component("Address", structure(shown(FIELDS)))
ADDRESS_DETAIL = Component(
    "AddressDetail",
    structure(
        {
            **shown(FIELDS),
            "queues": array({"type": "string"}, "Names of its queues."),
            "settings": {
                "type": "object",
                "description": "The address-settings in force, with their names of broker.xml in camelCase.",
            },
        }
    ),
)

ADDRESSES_PATH, ADDRESS_PATH = "/api/v1/addresses", "/api/v1/addresses/{name}"
ROUTES = (
    Route(
        "GET",
        ADDRESSES_PATH,
        list_addresses,
        view_broker,
        "listAddresses",
        "List addresses.",
        {200: Response("One page of addresses.", page_of(ADDRESS_SCHEMA))},
        parameters=LISTING,
        filters=FIELDS,
    ),
    Route(
        "POST",
        ADDRESSES_PATH,
        create,
        create_address,
        "createAddress",
        "Create an address without queues.",
        {201: Response("The new address.", ADDRESS_DETAIL, headers=("Location",))},
        body=Body({"name": string("Name of the address.", minLength=1), **SETTABLE}, ("name",), "NewAddress"),
        errors=(409,),
    ),
    Route(
        "GET",
        ADDRESS_PATH,
        show,
        view_address,
        "address",
        "Show one address.",
        {200: Response("The address.", ADDRESS_DETAIL)},
        parameters=(NAME,),
    ),
    Route(
        "PATCH",
        ADDRESS_PATH,
        change,
        edit_address,
        "changeAddress",
        "Change the routing types of an address, pause or resume it.",
        {200: Response("The changed address.", ADDRESS_DETAIL)},
        parameters=(NAME,),
        body=Body(SETTABLE, name="AddressChange"),
        errors=(409,),
    ),
    Route(
        "DELETE",
        ADDRESS_PATH,
        delete,
        delete_address,
        "deleteAddress",
        "Delete an address.",
        {204: Response("The address is deleted.")},
        "An address with queues requires force=true, which deletes them too.",
        parameters=(NAME, FORCE),
        errors=(409,),
    ),
    Route(
        "POST",
        f"{ADDRESS_PATH}/forget-duplicates",
        forget_duplicates,
        edit_address,
        "forgetDuplicates",
        "Forget the duplicate ids of an address permanently.",
        {200: Response("The number of duplicate ids that were known.", FORGOTTEN)},
        parameters=(NAME,),
    ),
)
