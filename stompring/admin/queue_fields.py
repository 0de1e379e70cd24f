"""What is shown of a queue, and what may be said about one."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from stompring.broker.queue import Queue
from stompring.settings import options
from stompring.settings.model import QueueConfiguration, RoutingType
from stompring.settings.options import Option
from stompring.settings.value_types import VALUE_TYPES

from .api import Fields, Reader, choice, flag, number, text_or_none, view
from .counters import QUEUE, readers

#: The rows of the options that the interface shows.
OPTIONS = [row for row in options.options_of(QueueConfiguration) if row.http]


def attribute(name: str) -> Callable[[Queue], Any]:
    """Reads an attribute of a queue."""
    return attrgetter(f"attributes.{name}")


COUNTERS = readers(QUEUE)

FIELDS: Fields[Queue] = {
    "name": lambda q: q.name,
    "address": lambda q: q.address.name,
    "routingType": lambda q: q.attributes.routing_type,
    **COUNTERS,
    "paused": lambda q: q.paused,
    **{row.json_name: attribute(row.name) for row in OPTIONS if row.json_name not in COUNTERS},
    "lastValue": lambda q: False,  # this version has no last-value queues
    "autoCreated": lambda q: q.attributes.auto_created,
    "autoDelete": lambda q: q.attributes.auto_delete,
    "temporary": lambda q: q.attributes.temporary,
    "configured": lambda q: q.attributes.configured,
}


def reader(row: Option) -> Reader:
    """How a request gives the value of an option."""
    value_type = VALUE_TYPES[row.type]
    if value_type.choices is not None:
        return choice(value_type.choices)
    if value_type.kind is int:
        return number(value_type.least)
    return flag if value_type.kind is bool else text_or_none


#: Attributes that a request may change: their fields in JSON, with the attribute's name and the reader of a value.
CHANGEABLE: dict[str, tuple[str, Reader]] = {
    row.json_name: (row.name, reader(row)) for row in OPTIONS if row.http == options.CHANGEABLE
}

#: Attributes that only a new queue takes; a PATCH may repeat the value, but not change it.
FIXED: dict[str, tuple[str, Reader]] = {
    "routingType": ("routing_type", choice(RoutingType)),
    **{row.json_name: (row.name, reader(row)) for row in OPTIONS if row.http == options.CREATE_ONLY},
}

ATTRIBUTES = {**FIXED, **CHANGEABLE}


def detailed(queue: Queue) -> dict[str, Any]:
    """All fields, and the queue's consumers."""
    return {**view(queue, FIELDS), "consumers": [consumer.describe() for consumer in queue.consumers]}
