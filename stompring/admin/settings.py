"""``…/settings`` of queues and addresses: every value in force, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from enum import StrEnum
from typing import Any, NamedTuple

from stompring.broker.address import Address
from stompring.broker.queue import Queue, QueueAttributes
from stompring.settings.match import SettingsRepository
from stompring.settings.model import AddressSettings, PolicyUse, QueueConfiguration
from stompring.settings.options import CHANGEABLE, Option, options_of
from stompring.settings.references import hidden

from .access import view_address, view_queue
from .addresses import address_of
from .api import NAME, Answer, Call, Response, Route, json_answer
from .json_schema import Component, array, boolean, integer, keyword, string, structure
from .queues import queue_of


class Source(StrEnum):
    """Where a value comes from."""

    QUEUE = "queue"
    ADDRESS_SETTING = "address-setting"
    DEFAULT = "default"


class Origin(NamedTuple):
    """The source of a value, and the address-setting with its line."""

    source: Source
    match: str | None = None
    line: int | None = None


DEFAULT = Origin(Source.DEFAULT)

#: Options of a queue that are attributes of a running one.
QUEUE_OPTIONS = [
    row
    for row in options_of(QueueConfiguration)
    if row.name in {field.name for field in fields(QueueAttributes)}
]


def origin_of(repository: SettingsRepository, address: str, setting: str) -> Origin:
    """The origin of a value of the address-settings of an address: the most specific entry that sets it."""
    for entry in repository.entries_for(address):
        if setting in entry.values:
            return Origin(Source.ADDRESS_SETTING, entry.match, entry.line)
    return DEFAULT


def of_address(address: Address) -> Iterator[dict[str, Any]]:
    """The address-settings in force."""
    repository = address.directory.settings
    for row in options_of(AddressSettings):
        value = getattr(address.settings, row.name)
        yield shown(row, value, origin_of(repository, address.name, row.name))


def of_queue(queue: Queue) -> Iterator[dict[str, Any]]:
    """The attributes of a queue. A queue gets values from the address-settings when it is created, and keeps them."""
    configured = configuration_of(queue)
    address, attributes = queue.address, queue.attributes
    repository = address.directory.settings
    routing_type = attributes.routing_type
    yield {
        "name": "routingType",
        "element": routing_type.lower(),
        "value": routing_type,
        "unit": None,
        "source": Source.QUEUE,
        "match": None,
        "line": None,
        "addressSetting": None,
        "group": None,
        "changeable": False,
        "meaning": "Routing type of the queue.",
    }
    for row in QUEUE_OPTIONS:
        value = getattr(attributes, row.name)
        if not row.inherits:
            origin = DEFAULT if value == row.default else Origin(Source.QUEUE)
        elif configured is not None and getattr(configured, row.name) is not None:
            origin = Origin(Source.QUEUE)
        elif value != getattr(address.settings, row.inherits):
            origin = Origin(Source.QUEUE)
        else:
            origin = origin_of(repository, address.name, row.inherits)
        yield shown(row, value, origin)


def configuration_of(queue: Queue) -> QueueConfiguration | None:
    """The queue of broker.xml, None for another queue."""
    if queue.attributes.configured:
        for address in queue.broker.configuration.addresses:
            for configured in address.queues:
                if configured.name == queue.name:
                    return configured
    return None


INHERITED = {row.name: row.xml_name for row in options_of(AddressSettings)}


def shown(row: Option, value: Any, origin: Origin) -> dict[str, Any]:
    """One value as JSON."""
    if isinstance(value, tuple):
        value = [one.name if isinstance(one, PolicyUse) else one for one in value]
    return {
        "name": row.json_name,
        "element": row.xml_name,
        "value": hidden(value),
        "unit": row.unit or None,
        "source": origin.source,
        "match": origin.match,
        "line": origin.line,
        "addressSetting": INHERITED.get(row.inherits),
        "group": row.group or None,
        "changeable": row.http == CHANGEABLE,
        "meaning": row.meaning,
    }


def queue_settings(call: Call) -> Answer:
    return json_answer({"data": list(of_queue(queue_of(call)))})


def address_settings(call: Call) -> Answer:
    return json_answer({"data": list(of_address(address_of(call)))})


SETTING = Component(
    "Setting",
    structure(
        {
            "name": string("Name in JSON."),
            "element": string("Name in broker.xml."),
            "value": {"description": "Value in force. Policies are names."},
            "unit": string("Unit of a number.", null=True),
            "source": keyword(
                Source, "Where the value comes from: the queue itself, an address-setting, or the default."
            ),
            "match": string("match of the address-setting.", null=True),
            "line": integer("Line of the address-setting in broker.xml.", 1, null=True),
            "addressSetting": string(
                "Of a queue: the address-setting that provides the value for new queues.", null=True
            ),
            "group": string("Group of the setting in docs/settings.md.", null=True),
            "changeable": boolean("Whether PATCH of the queue changes it."),
            "meaning": string("Meaning, in Markdown."),
        }
    ),
)
SETTINGS = {200: Response("The settings.", structure({"data": array(SETTING, "Settings.")}))}

ROUTES = (
    Route(
        "GET",
        "/api/v1/queues/{name}/settings",
        queue_settings,
        view_queue,
        "queueSettings",
        "Show the attributes of a queue and where each value comes from.",
        SETTINGS,
        "A queue gets its values when it is created, and keeps them when address-settings change. A value that equals "
        "the one of the address-settings is shown as theirs.",
        parameters=(NAME,),
    ),
    Route(
        "GET",
        "/api/v1/addresses/{name}/settings",
        address_settings,
        view_address,
        "addressSettings",
        "Show the address-settings in force for an address and where each value comes from.",
        SETTINGS,
        "Of several address-settings that set a value the most specific one decides.",
        parameters=(NAME,),
    ),
)
