"""Changes of elements of broker.xml at run time over HTTP: diverts, bridges, address-settings and security-settings.

A body has the values of the element under their names in JSON. They become the element that broker.xml would have, and
the reader of broker.xml checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, NamedTuple

from stompring.errors import ConfigurationError, NotFound, Refused
from stompring.security.access import Permissions
from stompring.settings.model import (
    AddressSettings,
    BridgeConfiguration,
    BrokerConfiguration,
    DivertConfiguration,
    PermissionType,
    camel_case,
    options_of,
)
from stompring.settings.run_time import CONNECTOR, KINDS, key_of, line_of, literal

from .addresses import BRIDGE_FIELDS, DIVERT_FIELDS, TRANSFORMER, defined_in, setting_shown
from .api import (
    CONFLICT,
    MANAGE,
    MANAGEMENT,
    Answer,
    Body,
    Call,
    Json,
    Parameter,
    Problem,
    Response,
    Route,
    Steps,
    created,
    created_response,
    invalid,
    listing,
    manage_broker,
    named,
    required,
    route,
    text,
    view,
    view_broker,
)
from .context import awaited
from .json_schema import (
    TEXT,
    Field,
    Fields,
    JsonObject,
    Schema,
    Thing,
    array,
    integer,
    object_of,
    string,
    structure,
)


class Member(NamedTuple):
    """A field of a body: the name in broker.xml, the conversion of its value, and its schema."""

    element: str
    convert: Callable[[str, Any], Any]
    schema: Schema


def plain(name: str, value: Any) -> Any:
    """A text, a number, true or false, or a list of texts. Raises 400 for another value."""
    if isinstance(value, list):
        return texts(name, value)
    return value if isinstance(value, int | float) else text(name, value)


def texts(name: str, value: Any) -> list[str]:
    """A list of texts, or one text. Raises 400."""
    return [text(name, one) for one in (value if isinstance(value, list) else [value])]


def members_of(kind: type, **renamed: str) -> dict[str, Member]:
    """Return the fields of a body that set the options of ``kind``, by name. ``renamed``: names that differ from
    ``json_name``, by name of the option.
    """
    fields = {
        renamed.get(row.name, row.json_name): Member(row.xml_name, plain, {"description": row.meaning})
        for row in options_of(kind)
        if row.type and row.name != "name"
    }
    changes = {"type": ["object", "null"], "description": "Changes of headers.", "required": []}
    return {**fields, "transformer": Member("transformer", transformer, {**TRANSFORMER, **changes})}


def transformer(name: str, value: Any) -> Any:
    """Return the element of broker.xml for the JSON of a transformer. Raises 400."""
    if not isinstance(value, dict) or value.keys() - TRANSFORMER["properties"].keys():
        raise invalid(name, "must be an object with addHeaders, removeHeaders and policy")
    headers, policy = value.get("addHeaders", []), value.get("policy")
    if not isinstance(headers, list) or not all(
        isinstance(one, dict) and one.keys() == {"name", "value"} for one in headers
    ):
        raise invalid(name, "has addHeaders that are not a list of objects with name and value")
    return {
        "property": [{"key": text(name, one["name"]), "value": text(name, one["value"])} for one in headers],
        "remove-header": [{"name": one} for one in texts(name, value.get("removeHeaders", []))],
        "address-policy": None if policy is None else {"name": text(name, policy)},
    }


DIVERT = members_of(DivertConfiguration, forwarding_address="forwardingAddresses")
BRIDGE = {
    "to": Member(
        CONNECTOR,
        texts,
        array(
            TEXT,
            "URLs of the remote broker, as of connectors in broker.xml, in the order in which they are tried.",
        ),
    ),
    "staticConnectors": Member(
        "static-connectors",
        lambda name, value: {"connector-ref": texts(name, value)},
        array(TEXT, "Names of connectors of broker.xml, in place of to."),
    ),
    **members_of(BridgeConfiguration, queue_name="queue"),
}

#: Names of address-settings in broker.xml, by their names in JSON.
SETTINGS = {row.json_name: row.xml_name for row in options_of(AddressSettings)}


def values_of(body: JsonObject, members: Mapping[str, Member]) -> JsonObject:
    """Convert a body to the values of an element in broker.xml; null becomes None. Raises 400."""
    return {
        each.element: None if body[name] is None else literal(each.convert(name, body[name]), each.element)
        for name, each in members.items()
        if name in body
    }


def object_in(body: JsonObject, name: str) -> JsonObject:
    """A member of a body that must be an object. Raises 400."""
    value = body.get(name)
    if not isinstance(value, dict):
        raise invalid(name, "must be an object")
    return value


def body_of(members: Mapping[str, Member], name: str, *required: str) -> Body:
    """Describe a body with these fields. If some are ``required``, the body creates an element and also contains its
    name.
    """
    fields = {key: each.schema for key, each in members.items()}
    if required:
        fields = {"name": string("Name of the element."), **fields}
        required = ("name", *required)
    return Body(fields, required, name)


def put(call: Call, kind: str, name: str, element: Mapping[str, Any] | None) -> None:
    """Change an element. Raises 400 with the error texts of the reader of broker.xml.

    Raises `Refused` if the user of the request would lose the permission manage.
    """

    def check(new: BrokerConfiguration) -> None:
        security, user = call.context.security, call.user
        if (
            security is not None
            and user is not None
            and kind == "security-setting"
            and not Permissions.of(new).allows(security.authority.roles_of(user), MANAGE, MANAGEMENT)
        ):
            raise Refused(f"The change would take {MANAGE} on {MANAGEMENT} from user {user}, who makes it")

    element = element and {key: value for key, value in element.items() if value is not None}
    try:
        call.context.run_time.put(kind, name, element, check)
    except ConfigurationError as fault:
        raise Problem(400, "; ".join(each for _, _, each in fault.faults)) from None


def create(
    call: Call, kind: str, members: Mapping[str, Member], known: Mapping[str, Thing], fields: Fields[Thing]
) -> Answer:
    """Create an element from the body. ``known``: the existing elements by name. Raises 409 if the name exists."""
    name = required(call.body, "name")
    if name in known:
        raise Refused(f"{kind.capitalize()} {name} already exists")
    put(call, kind, name, values_of(call.body, members))
    return created(view(known[name], fields), f"{kind}s", name)


def update(call: Call, kind: str, values: Mapping[str, Any]) -> None:
    """Change values of the element in the path; None removes a value. The other values stay.

    Raises `NotFound` if there is nothing to remove from.
    """
    name = call.names["name"]
    present = call.context.run_time.present(kind, name)
    if present is None and values and set(map(type, values.values())) == {NoneType}:
        raise NotFound(f"{kind.capitalize()} {name} does not exist")
    put(call, kind, name, {**(present or {}), **values})


def deletion(kind: str) -> Route:
    """The route that deletes an element of a kind."""

    def delete(call: Call) -> None:
        name, context = call.names["name"], call.context
        live: Mapping[str, Mapping[str, object]] = {
            "divert": context.broker.diverts.by_name,
            "bridge": context.bridges.by_name,
        }
        if name not in live.get(kind, {}) and context.run_time.present(kind, name) is None:
            raise NotFound(f"{kind.capitalize()} {name} does not exist")
        put(call, kind, name, None)

    delete.__name__ = f"delete_{kind.replace('-', '_')}"
    delete.__doc__ = f"Delete a {kind}.\n\nOne of broker.xml stays deleted until its element there changes."
    return route(
        f"DELETE /api/v1/{kind}s/{{name}}",
        manage_broker,
        Response(f"The {kind} is deleted."),
        errors=CONFLICT,
    )(delete)


delete_divert, delete_bridge, delete_address_setting, delete_security_setting = map(deletion, KINDS)


# ---- diverts and bridges

THE_DIVERT, THE_BRIDGE = object_of("Divert", DIVERT_FIELDS), object_of("Bridge", BRIDGE_FIELDS)


@route(
    "POST /api/v1/diverts",
    manage_broker,
    created_response("The new divert.", THE_DIVERT),
    body=body_of(DIVERT, "NewDivert", "address", "forwardingAddresses"),
    errors=CONFLICT,
)
def create_divert(call: Call) -> Answer:
    """Create a divert.

    The rules are those of a divert in broker.xml. It is in effect, and on disk, when it is answered.
    """
    return create(call, "divert", DIVERT, call.context.broker.diverts.by_name, DIVERT_FIELDS)


@route(
    "PATCH /api/v1/diverts/{name}",
    manage_broker,
    Response("The changed divert.", THE_DIVERT),
    body=body_of(DIVERT, "DivertChange"),
    errors=CONFLICT,
)
def change_divert(call: Call) -> Json:
    """Change a divert, also one of broker.xml; null removes a value."""
    diverts = call.context.broker.diverts.by_name
    named(call, diverts, "Divert")
    update(call, "divert", values_of(call.body, DIVERT))
    return view(named(call, diverts, "Divert"), DIVERT_FIELDS)


@route(
    "POST /api/v1/bridges",
    manage_broker,
    created_response("The new bridge.", THE_BRIDGE),
    body=body_of(BRIDGE, "NewBridge", "queue"),
    errors=CONFLICT,
    secret=frozenset(("password", "to")),
)
def create_bridge(call: Call) -> Answer:
    """Create a bridge, and start it.

    The rules are those of a bridge in broker.xml. The password is in no answer and in no log.
    """
    return create(call, "bridge", BRIDGE, call.context.bridges.by_name, BRIDGE_FIELDS)


# ---- address-settings and security-settings


class Entry(NamedTuple):
    """An address-setting or a security-setting of the broker."""

    entry: Any
    durable: bool


COMMON_FIELDS: Fields[Entry] = {
    "match": string("Address, or wildcard address, to which it applies.", "entry.match"),
    "definedIn": defined_in(lambda each: each.entry.line, lambda each: each.durable),
    "line": integer("Line in broker.xml.", lambda each: line_of(each.entry.line), 1, null=True),
}
SETTING_FIELDS: Fields[Entry] = {
    **COMMON_FIELDS,
    "settings": Field(
        {"type": "object", "description": "The values that it sets."},
        lambda each: {camel_case(name): setting_shown(value) for name, value in each.entry.values.items()},
    ),
}
RULE_FIELDS: Fields[Entry] = {
    **COMMON_FIELDS,
    "permissions": Field(
        {"type": "object", "description": "Roles by permission."},
        lambda each: {str(kind): sorted(roles) for kind, roles in each.entry.roles.items()},
    ),
}


def entries_of(call: Call, kind: str) -> list[Entry]:
    """The address-settings or the security-settings of the broker."""
    entries = getattr(call.context.configuration, kind.replace("-", "_") + "s")
    return [Entry(entry, call.context.run_time.durable) for entry in entries]


def entry_of(call: Call, kind: str, fields: Fields[Entry]) -> JsonObject:
    """The address-setting or security-setting that the path names, as JSON. Raises `NotFound`."""
    match = key_of(kind, call.names["name"], call.context.configuration)
    for each in entries_of(call, kind):
        if each.entry.match == match:
            return view(each, fields)
    raise NotFound(f"{kind.capitalize()} {match} does not exist")


@listing(
    "/api/v1/address-settings",
    view_broker,
    "address-settings",
    "AddressSetting",
    SETTING_FIELDS,
    searched="match",
    unfiltered=("settings",),
)
def list_address_settings(call: Call) -> list[Entry]:
    """List the address-settings with the values that each sets.

    The settings of an address are those of all matching entries: see GET /api/v1/addresses/{name}/settings.
    """
    return entries_of(call, "address-setting")


THE_SETTING = Response("The address-setting.", object_of("AddressSetting", SETTING_FIELDS))
THE_RULE = Response("The security-setting.", object_of("SecurityRule", RULE_FIELDS))


@route("GET /api/v1/address-settings/{name}", view_broker, THE_SETTING)
def show_address_setting(call: Call) -> Json:
    """Show one address-setting."""
    return entry_of(call, "address-setting", SETTING_FIELDS)


def changes_in(name: str, description: str) -> Body:
    """Describe a body with one member, ``name``: an object with the changed values by name."""
    return Body({name: {"type": "object", "description": description}}, (name,), f"{name.capitalize()}Change")


@route(
    "PATCH /api/v1/address-settings/{name}",
    manage_broker,
    THE_SETTING,
    body=changes_in(
        "settings", "Values by name, in JSON or as in broker.xml; null removes a value, others stay."
    ),
    errors=CONFLICT,
)
def change_address_setting(call: Call) -> Json:
    """Create or change an address-setting; all addresses that match have the new values at once.

    Existing queues keep their attributes.
    """
    values: JsonObject = {}
    for name, value in object_in(call.body, "settings").items():
        element = SETTINGS.get(name, name)
        if value is not None or element not in SETTINGS.values():  # the reader reports an unknown name
            value = plain(name, "" if value is None else value)
            if element == "address-policy":
                value = [{"name": one} for one in ",".join(texts(name, value)).split(",")]
        values[element] = literal(value)
    update(call, "address-setting", values)
    return entry_of(call, "address-setting", SETTING_FIELDS)


@route(
    "PATCH /api/v1/security-settings/{name}",
    manage_broker,
    THE_RULE,
    body=changes_in(
        "permissions", "Roles by permission: all of them; null removes a permission, others stay."
    ),
    errors=CONFLICT,
)
def change_security_setting(call: Call) -> Json:
    """Create or change a security-setting. Permissions of open connections are checked again.

    The user of the request keeps manage on activemq.management: a change that takes it is refused.
    """
    present = call.context.run_time.present("security-setting", call.names["name"]) or {}
    granted: JsonObject = {each["type"]: each["roles"] for each in present.get("permission", [])}
    given = object_in(call.body, "permissions")
    for kind, roles in given.items():
        granted[kind] = None if roles is None else literal(",".join(texts(kind, roles)))
    permissions = [
        {"type": kind, "roles": roles}
        for kind, roles in granted.items()
        if roles is not None or kind not in list(PermissionType)  # the reader reports an unknown permission
    ]
    update(call, "security-setting", {"permission": permissions or (None if given else [])})
    return entry_of(call, "security-setting", RULE_FIELDS)


# ---- export


@route(
    "GET /api/v1/configuration",
    manage_broker,
    Response("The configuration.", structure({"document": string("A broker.xml.")})),
    parameters=(
        Parameter("secrets", "Whether passwords are included.", {"type": "boolean", "default": False}),
    ),
    errors=CONFLICT,
)
def show_configuration(call: Call) -> Steps:
    """Show the broker.xml that gives the configuration in use: that of the last reload, with all changes since.

    Without secrets, references to the environment variables STOMPRING_SECRET_1 and so on replace passwords.
    """
    run_time, addresses = call.context.run_time, dict[str, Any]()
    yield from run_time.addresses(addresses)
    document = yield from awaited(run_time.export(addresses, call.query.flag("secrets")))
    return {"document": document}
