"""Settings, plugins and loggers over HTTP.

``…/settings`` of queues and addresses: every value in force, and where it comes from.

``/api/v1/plugins``: the address policies that broker.xml names, their parameters, uses, errors and slow calls.

``/api/v1/loggers``: levels of the log at run time.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Any, NamedTuple

from stompring.broker.address import Address
from stompring.broker.directory import services_of
from stompring.broker.queue import Queue
from stompring.broker.reference import QueueAttributes
from stompring.policy.api import AddressPolicy
from stompring.policy.load import summary_of
from stompring.settings.document import hidden
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    CHANGEABLE,
    AddressSettingEntry,
    AddressSettings,
    Option,
    PluginConfiguration,
    QueueConfiguration,
    options_of,
)
from stompring.settings.run_time import FILE, RUN_TIME, line_of, source_of

from .addresses import address_of, setting_shown
from .api import (
    Body,
    Call,
    Json,
    Response,
    edit_broker,
    invalid,
    listing,
    named,
    route,
    view,
    view_address,
    view_broker,
    view_queue,
)
from .context import AdminContext
from .json_schema import (
    TEXT,
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    number,
    object_of,
    string,
    string_or_null,
    structure,
    timestamp,
)
from .queues import queue_of


class Source(StrEnum):
    """Source of a value."""

    QUEUE = "queue"
    ADDRESS_SETTING = "address-setting"
    DEFAULT = "default"


class Origin(NamedTuple):
    """The source of a value. ``match`` and ``line``: match and line of the address-setting that sets the value."""

    source: Source
    match: str | None = None
    line: int | None = None


DEFAULT = Origin(Source.DEFAULT)

#: Options of a queue that are also attributes of a running queue.
QUEUE_OPTIONS = [
    row
    for row in options_of(QueueConfiguration)
    if row.name in {field.name for field in fields(QueueAttributes)}
]


def origin_of(repository: SettingsRepository, address: str, setting: str) -> Origin:
    """The origin of a value in force for an address: the most specific address-setting that sets the value."""
    for entry in repository.entries_for(address):
        if setting in entry.values:
            return Origin(Source.ADDRESS_SETTING, entry.match, entry.line)
    return DEFAULT


def of_address(address: Address) -> Iterator[JsonObject]:
    """The address-settings in force, as JSON."""
    repository = services_of(address).directory.settings
    for row in options_of(AddressSettings):
        yield shown_setting(
            row, getattr(address.settings, row.name), origin_of(repository, address.name, row.name)
        )


def of_queue(queue: Queue) -> Iterator[JsonObject]:
    """The attributes of a queue. A queue takes values from the address-settings only when it is created."""
    address, attributes = queue.address, queue.attributes
    # the queue in broker.xml, None if broker.xml lacks it
    declared = services_of(queue).configuration.addresses if attributes.configured else ()
    configured = next((one for each in declared for one in each.queues if one.name == queue.name), None)
    repository = services_of(queue).directory.settings
    routing_type = attributes.routing_type
    yield {
        **dict.fromkeys(SETTING),
        "name": "routingType",
        "element": routing_type.lower(),
        "value": routing_type,
        "source": Source.QUEUE,
        "changeable": False,
        "meaning": "Routing type of the queue.",
    }
    for row in QUEUE_OPTIONS:
        value = getattr(attributes, row.name)
        origin = Origin(Source.QUEUE)
        if not row.inherits:
            origin = DEFAULT if value == row.default else origin
        elif configured is None or getattr(configured, row.name) is None:
            if value == getattr(address.settings, row.inherits):
                origin = origin_of(repository, address.name, row.inherits)
        yield shown_setting(row, value, origin)


INHERITED = {row.name: row.xml_name for row in options_of(AddressSettings)}


def shown_setting(row: Option, value: Any, origin: Origin) -> JsonObject:
    """One setting as JSON: its value, and the origin of the value."""
    return {
        "name": row.json_name,
        "element": row.xml_name,
        "value": setting_shown(value),
        "unit": row.unit or None,
        **origin._asdict(),
        "line": line_of(origin.line),
        "definedIn": None if origin.match is None else source_of(origin.line),
        "addressSetting": INHERITED.get(row.inherits),
        "group": row.group or None,
        "changeable": row.http == CHANGEABLE,
        "meaning": row.meaning,
    }


SETTING: dict[str, Schema] = {
    "name": string("Name in JSON."),
    "element": string("Name in broker.xml."),
    "value": {"description": "Value in force. Policies are names."},
    "unit": string_or_null("Unit of a number."),
    "source": keyword(
        Source, "Where the value comes from: the queue itself, an address-setting, or the default."
    ),
    "match": string_or_null("match of the address-setting."),
    "line": integer("Line of the address-setting in broker.xml.", minimum=1, null=True),
    "definedIn": string_or_null(
        "Where the address-setting is defined: broker.xml or run time.", enum=[FILE, RUN_TIME, None]
    ),
    "addressSetting": string_or_null(
        "Of a queue: the address-setting that provides the value for new queues."
    ),
    "group": string_or_null("Group of the setting in docs/settings.md."),
    "changeable": boolean("Whether PATCH of the queue changes it."),
    "meaning": string("Meaning, in Markdown."),
}
SETTINGS = Response("The settings.", structure({"data": array(object_of("Setting", SETTING), "Settings.")}))


#: The hooks that a policy may override, in the order of `AddressPolicy`.
HOOKS = [
    name
    for name, value in vars(AddressPolicy).items()
    if inspect.isfunction(value) and not name.startswith("_") and name != "check"
]


def entries(context: AdminContext) -> Iterator[JsonObject]:
    """The broker-plugins in the order of broker.xml."""
    policies = context.policies
    counts = policies.address_counts()
    for plugin in context.configuration.plugins:
        kind = policies.kinds.get(plugin.name)
        uses = list(uses_of(plugin, context.configuration.address_settings))
        last = policies.recorded.last.get(plugin.name)
        yield {
            "name": plugin.name,
            "plugin": plugin.policy,
            "class": "" if kind is None else kind.__qualname__,
            "description": "" if kind is None else summary_of(kind),
            "parameters": [] if kind is None else list(parameters_of(kind, plugin)),
            "matches": [use["match"] for use in uses if use["enabled"]],
            "uses": uses,
            "addresses": counts[plugin.name],
            "hooks": list(hooks_of(context, plugin.name, kind)),
            "lastError": None if last is None else last._asdict(),
        }


def parameters_of(kind: type[AddressPolicy], plugin: PluginConfiguration) -> Iterator[JsonObject]:
    """The parameters of a policy with the values of the broker-plugin."""
    given = {one.key: one for one in plugin.properties}
    for parameter in kind.parameters.values():
        own = given.get(parameter.key)
        default = None if parameter.required or parameter.default is None else parameter.shown_default
        yield {
            "name": parameter.key,
            "value": default if own is None else hidden(own.value),
            "default": default,
            "required": parameter.required,
            "type": parameter.takes,
            "source": "default" if own is None else "broker-plugin",
            "meaning": parameter.help,
        }


def uses_of(plugin: PluginConfiguration, settings: tuple[AddressSettingEntry, ...]) -> Iterator[JsonObject]:
    """The address-settings that name a policy."""
    for entry in settings:
        named: Any = entry.values.get("address_policy", ())
        for policy in named:
            if policy.name == plugin.name:
                yield {
                    "match": entry.match,
                    "line": policy.line or entry.line,
                    "element": "address-policy",
                    "enabled": policy.enabled,
                    "parameters": {one.key: hidden(one.value) for one in policy.properties},
                }
        if entry.values.get("address_full_policy") == plugin.name:
            yield {
                "match": entry.match,
                "line": entry.line,
                "element": "address-full-policy",
                "enabled": True,
                "parameters": {},
            }


def hooks_of(context: AdminContext, name: str, kind: type[AddressPolicy] | None) -> Iterator[JsonObject]:
    """The hooks that a policy overrides, and its other functions with recorded calls, such as ``timer``."""
    recorded = context.policies.recorded
    overridden = [
        hook for hook in HOOKS if kind is not None and getattr(kind, hook) is not getattr(AddressPolicy, hook)
    ]
    others = [hook for policy, hook in (*recorded.counts, *recorded.slow) if policy == name]
    for hook in dict.fromkeys((*overridden, *others)):
        key = (name, hook)
        yield {
            "hook": hook,
            "errors": recorded.counts.get(key, 0),
            "slow": recorded.slow.get(key, 0),
            "longest": round(recorded.longest.get(key, 0.0) * 1000, 3),
        }


PARAMETER = structure(
    {
        "name": string("Key of the property."),
        "value": string_or_null("Value for the addresses without own properties; *** for a secret."),
        "default": string_or_null("Default."),
        "required": boolean("Whether it has no default."),
        "type": string("Type and bounds of its values."),
        "source": keyword(("broker-plugin", "default"), "Where the value comes from."),
        "meaning": string("Meaning."),
    }
)
USE = structure(
    {
        "match": string("match of the address-setting."),
        "line": integer("Line in broker.xml.", minimum=1, null=True),
        "element": keyword(("address-policy", "address-full-policy"), "Element that names the policy."),
        "enabled": boolean("Whether it applies; false removes the policy of a less specific entry."),
        "parameters": {
            "type": "object",
            "description": "Own properties: values for these addresses.",
            "additionalProperties": TEXT,
        },
    }
)
HOOK = structure(
    {
        "hook": string("Name of the hook."),
        "errors": integer("Exceptions since the broker started."),
        "slow": integer("Calls longer than 20 ms since the broker started."),
        "longest": number("Longest of these calls, in milliseconds."),
    }
)
LAST_ERROR = structure(
    {
        "time": timestamp("Time of the last exception."),
        "address": string("Address."),
        "hook": string("Hook."),
        "text": string("Type and text of the exception."),
    }
)
PLUGIN = object_of(
    "Plugin",
    {
        "name": string("Name of the broker-plugin."),
        "plugin": string("Name of the policy: of its module or entry point."),
        "class": string("Name of its class."),
        "description": string("First line of its docstring."),
        "parameters": array(PARAMETER, "Parameters."),
        "matches": array(TEXT, "match of each address-setting that applies it."),
        "uses": array(USE, "Address-settings that name it, with their own properties."),
        "addresses": integer("Number of addresses with the policy."),
        "hooks": array(HOOK, "Hooks that it overrides."),
        "lastError": {
            "description": "Last exception; null: none.",
            "anyOf": [LAST_ERROR, {"type": "null"}],
        },
    },
)


ROOT = "root"

#: Packages whose loggers are listed.
PACKAGES = ("stompring", "twisted", "websockets")

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


#: Levels of the changed loggers before the change, by name.
_configured: dict[str, int] = {}


def level_name(level: int) -> str:
    """The name of a level: the least severe level in `LEVELS` whose lines a logger with ``level`` logs, else error."""
    return next((name for name, value in LEVELS.items() if level <= value), "error")


LOGGER_FIELDS: Fields[logging.Logger] = {
    "name": string("Name of the logger: a module or package, or root.", "name"),
    "level": string_or_null(
        "Level of the logger; null: that of its parent.",
        lambda each: level_name(each.level) if each.level else None,
        enum=[*LEVELS, None],
    ),
    "effectiveLevel": string(
        "Lines of this level and above are logged.",
        lambda each: level_name(each.getEffectiveLevel()),
        enum=list(LEVELS),
    ),
    "configured": boolean(
        "Whether the level is that of the start of the broker.",
        lambda each: _configured.get(each.name, each.level) == each.level,
    ),
}


def loggers() -> dict[str, logging.Logger]:
    """The root logger and those of `PACKAGES`, by name."""
    found = [name for name in sorted(logging.root.manager.loggerDict) if name.partition(".")[0] in PACKAGES]
    # a package may have no logger yet
    return {name: logging.getLogger(None if name == ROOT else name) for name in (ROOT, *found, *PACKAGES)}


@route("GET /api/v1/queues/{name}/settings", view_queue, SETTINGS)
def show_queue_settings(call: Call) -> Json:
    """Show the attributes of a queue and where each value comes from.

    A queue gets its values when it is created, and keeps them when address-settings change. A value that equals the
    one of the address-settings is shown as theirs.
    """
    return {"data": list(of_queue(queue_of(call)))}


@route("GET /api/v1/addresses/{name}/settings", view_address, SETTINGS)
def show_address_settings(call: Call) -> Json:
    """Show the address-settings in force for an address and where each value comes from.

    Of several address-settings that set a value the most specific one decides.
    """
    return {"data": list(of_address(address_of(call)))}


@route(
    "GET /api/v1/plugins",
    view_broker,
    Response("The policies.", structure({"data": array(PLUGIN, "Policies.")})),
)
def show_plugins(call: Call) -> Json:
    """Show the address policies that broker.xml names."""
    return {"data": list(entries(call.context))}


@listing("/api/v1/loggers", view_broker, "loggers", "Logger", LOGGER_FIELDS)
def list_loggers(call: Call) -> list[logging.Logger]:
    """List loggers with their levels."""
    return list(loggers().values())


@route(
    "PATCH /api/v1/loggers/{name}",
    edit_broker,
    Response("The changed logger.", object_of("Logger", LOGGER_FIELDS)),
    body=Body(
        {"level": string_or_null("New level; null: that of its parent.", enum=[*LEVELS, None])},
        ("level",),
        "LoggerChange",
    ),
)
def change_logger(call: Call) -> Json:
    """Change the level of a logger until the broker stops."""
    found = named(call, loggers(), "Logger")
    name = call.names["name"]
    if "level" not in call.body:
        raise invalid("level", "is missing")
    level: Any = call.body["level"]
    if level is None and name != ROOT:
        number = logging.NOTSET
    elif isinstance(level, str) and level in LEVELS:
        number = LEVELS[level]
    else:
        null = "" if name == ROOT else " or null"
        raise invalid("level", f"must be {', '.join(LEVELS)}{null}, not {level!r:.50}")
    _configured.setdefault(name, found.level)
    found.setLevel(number)
    return view(found, LOGGER_FIELDS)
