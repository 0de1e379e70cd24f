"""The fields of a queue in JSON: those of answers, and those that POST and PATCH set.

Each option of a queue is a row in `stompring.settings.model`; the fields, their meanings and their checks come from it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from stompring.broker.queue import Queue
from stompring.settings import options
from stompring.settings.model import QueueConfiguration, RoutingType
from stompring.settings.options import Option
from stompring.settings.value_types import VALUE_TYPES

from .api import BodyField, Reader, choice, flag, number, text_or_none, view
from .counters import QUEUE, fields_of
from .json_schema import (
    Component,
    Field,
    Fields,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    shown,
    string,
    structure,
    typed,
)

#: The rows of the options that the interface shows.
OPTIONS = [row for row in options.options_of(QueueConfiguration) if row.http]

ROUTING_TYPE = keyword(RoutingType, "Routing type of the queue.")


def meaning(row: Option) -> str:
    """The meaning of an option, with its unit."""
    return f"{row.meaning} In milliseconds." if row.unit == "ms" else row.meaning


def schema_of(row: Option) -> Schema:
    """The schema of an option's value in an answer."""
    value_type = VALUE_TYPES[row.type]
    if value_type.choices is not None:
        return keyword(value_type.choices, meaning(row))
    if value_type.kind is int:
        return integer(meaning(row), -1)
    return boolean(meaning(row)) if value_type.kind is bool else string(meaning(row), null=True)


def body_field(row: Option) -> BodyField:
    """How a request sets an option. A number may also be -1."""
    value_type = VALUE_TYPES[row.type]
    schema = schema_of(row)
    if row.http == options.CREATE_ONLY:
        schema = create_only(schema)
    if value_type.choices is not None:
        return BodyField(row.name, choice(value_type.choices), schema)
    if value_type.kind is int:
        if value_type.least > 0:
            bounds = {"anyOf": [{"const": -1}, {"minimum": value_type.least}]}
            schema = typed("integer", schema["description"], False, bounds)
        return BodyField(row.name, number(value_type.least), schema)
    reader: Reader = flag if value_type.kind is bool else text_or_none
    return BodyField(row.name, reader, schema)


def create_only(schema: Schema) -> Schema:
    """The schema of an attribute that PATCH does not change."""
    text = f"{schema['description']} A PATCH may repeat the value, but not change it."
    return {**schema, "description": text}


COUNTERS = fields_of(QUEUE)

FIELDS: Fields[Queue] = {
    "name": Field(lambda q: q.name, string("Name of the queue, unique in the broker.")),
    "address": Field(lambda q: q.address.name, string("Address of the queue.")),
    "routingType": Field(lambda q: q.attributes.routing_type, ROUTING_TYPE),
    **COUNTERS,
    "paused": Field(lambda q: q.paused, boolean("Whether delivery to consumers is paused.")),
    **{
        row.json_name: Field(attrgetter(f"attributes.{row.name}"), schema_of(row))
        for row in OPTIONS
        if row.json_name not in COUNTERS
    },
    "lastValue": Field(lambda q: False, boolean("Always false: last-value queues are not supported.")),
    "autoCreated": Field(
        lambda q: q.attributes.auto_created, boolean("Whether the queue was created automatically.")
    ),
    "autoDelete": Field(
        lambda q: q.attributes.auto_delete,
        boolean("Whether the queue is deleted automatically when it is no longer used."),
    ),
    "temporary": Field(
        lambda q: q.attributes.temporary, boolean("Whether the queue is deleted with its connection.")
    ),
    "configured": Field(
        lambda q: q.attributes.configured,
        boolean("Whether broker.xml defines the queue: a reload resets it to the file."),
    ),
}

#: Attributes that POST and PATCH set.
CHANGEABLE: dict[str, BodyField] = {
    row.json_name: body_field(row) for row in OPTIONS if row.http == options.CHANGEABLE
}

#: Attributes that only POST sets; a PATCH may repeat the value, but not change it.
FIXED: dict[str, BodyField] = {
    "routingType": BodyField("routing_type", choice(RoutingType), create_only(ROUTING_TYPE)),
    **{row.json_name: body_field(row) for row in OPTIONS if row.http == options.CREATE_ONLY},
}

ATTRIBUTES = {**FIXED, **CHANGEABLE}

CONSUMER = Component(
    "Consumer",
    structure(
        {
            "subscription": string("Id of the subscription."),
            "queue": string("Queue of the consumer."),
            "destination": string("Destination as the client wrote it in SUBSCRIBE."),
            "ack": string("auto, client or client-individual."),
            "filter": string("Selector of the subscription.", null=True),
            "deliveringCount": integer("Messages delivered and not yet settled."),
        }
    ),
)

QUEUE_SCHEMA = Component("Queue", structure(shown(FIELDS)))
QUEUE_DETAIL = Component(
    "QueueDetail", structure({**shown(FIELDS), "consumers": array(CONSUMER, "Consumers of the queue.")})
)


def detailed(queue: Queue) -> dict[str, Any]:
    """All fields, and the queue's consumers."""
    return {**view(queue, FIELDS), "consumers": [consumer.describe() for consumer in queue.consumers]}
