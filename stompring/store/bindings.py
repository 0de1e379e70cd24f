"""Addresses and queues as the journal keeps them: JSON, with every attribute by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from stompring.broker.address import Address
from stompring.broker.queue import Queue, QueueAttributes
from stompring.errors import Refused
from stompring.settings.model import QueueConfiguration, RoutingType
from stompring.settings.options import options_of
from stompring.settings.value_types import VALUE_TYPES

from .encoder import RecordEncoder
from .record import ADDRESS, BINDING, BOUND, NOTE, QUEUE, UNBOUND, Kind
from .segment import LiveRecord

#: Attributes that are not written: made of others.
DERIVED = frozenset({"accepts"})

#: What a description that says too little or something impossible raises.
UNUSABLE = (KeyError, TypeError, ValueError, AttributeError, Refused)


class QueueBinding(LiveRecord):
    """A durable queue."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue

    @property
    def subject(self) -> Queue:
        """What it describes."""
        return self.queue

    def record(self) -> bytes:
        """The BINDING record of the queue as it is now."""
        packed = BINDING.pack(Kind.BINDING, QUEUE, BOUND, 0, self.queue.number)
        return packed + encode(describe_queue(self.queue))

    def encode(self, encoder: RecordEncoder) -> None:
        if self.gone:
            encoder.add(BINDING.pack(Kind.BINDING, QUEUE, UNBOUND, 0, self.queue.number))
        else:
            encoder.add(self.record())


class AddressBinding(LiveRecord):
    """An address."""

    __slots__ = ("address",)

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.address = address

    @property
    def subject(self) -> Address:
        """What it describes."""
        return self.address

    def record(self) -> bytes:
        """The BINDING record of the address as it is now; it must have a number."""
        packed = BINDING.pack(Kind.BINDING, ADDRESS, BOUND, 0, self.address.number)
        return packed + encode(describe_address(self.address))

    def encode(self, encoder: RecordEncoder) -> None:
        number = encoder.number_of(self.address)
        if self.gone:
            encoder.add(BINDING.pack(Kind.BINDING, ADDRESS, UNBOUND, 0, number))
        else:
            encoder.add(self.record())


Binding = QueueBinding | AddressBinding


class NamedValue(LiveRecord):
    """Something that others want to find again: JSON under a number of theirs."""

    __slots__ = ("number", "value")

    def __init__(self, number: int, value: Mapping[str, Any]) -> None:
        super().__init__()
        self.number = number
        self.value = value

    def encode(self, encoder: RecordEncoder) -> None:
        if self.gone:
            encoder.add(BINDING.pack(Kind.BINDING, NOTE, UNBOUND, 0, self.number))
        else:
            encoder.add(BINDING.pack(Kind.BINDING, NOTE, BOUND, 0, self.number) + encode(self.value))


def encode(value: Mapping[str, Any]) -> bytes:
    """As a BINDING record ends."""
    return json.dumps(value, separators=(",", ":")).encode()


def describe_queue(queue: Queue) -> dict[str, Any]:
    """All that makes a queue but its messages."""
    return {
        "name": queue.name,
        "address": queue.address.name,
        "attributes": describe_attributes(queue.attributes),
        "paused": queue.paused,
        "noLocal": queue.no_local,
        "asConfigured": None if queue.as_configured is None else describe_attributes(queue.as_configured),
    }


def describe_attributes(attributes: QueueAttributes) -> dict[str, Any]:
    """Attributes by the names that `QueueAttributes` has for them."""
    return {
        each.name: getattr(attributes, each.name) for each in fields(attributes) if each.name not in DERIVED
    }


def describe_address(address: Address) -> dict[str, Any]:
    """All that makes an address but its queues."""
    return {
        "name": address.name,
        "routingTypes": sorted(address.routing_types),
        "autoCreated": address.auto_created,
        "configured": address.configured,
        "paused": address.paused,
    }


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue as it was described."""

    number: int
    name: str
    address: str
    attributes: dict[str, Any]
    paused: bool
    no_local: str | None
    as_configured: dict[str, Any] | None

    @classmethod
    def parse(cls, number: int, value: Mapping[str, Any]) -> StoredQueue:
        """From `describe_queue`. Raises `KeyError` where something is missing."""
        return cls(
            number,
            value["name"],
            value["address"],
            dict(value["attributes"]),
            bool(value.get("paused", False)),
            value.get("noLocal"),
            value.get("asConfigured"),
        )

    def make_attributes(self) -> QueueAttributes:
        """The attributes it had. Raises `Refused` where they cannot be."""
        return attributes_of(self.attributes)

    def make_as_configured(self) -> QueueAttributes | None:
        """What broker.xml had said of it."""
        return None if self.as_configured is None else attributes_of(self.as_configured)


_CHOICES = {
    row.name: choices
    for row in options_of(QueueConfiguration)
    if (choices := VALUE_TYPES[row.type].choices) is not None
}


def attributes_of(described: Mapping[str, Any]) -> QueueAttributes:
    """The other way round. What is not known here is left out, so that an older version can read what a newer wrote."""
    known = {each.name for each in fields(QueueAttributes)} - DERIVED
    values = {name: value for name, value in described.items() if name in known}
    values["routing_type"] = RoutingType(values["routing_type"])
    for name, choices in _CHOICES.items():
        if name in values:
            values[name] = choices(values[name])
    text = values.pop("filter", None)
    return QueueAttributes(**values).changed({"filter": text})


@dataclass(frozen=True, slots=True)
class StoredAddress:
    """An address as it was described."""

    number: int
    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool
    configured: bool
    paused: bool

    @classmethod
    def parse(cls, number: int, value: Mapping[str, Any]) -> StoredAddress:
        """From `describe_address`. Raises `KeyError` where something is missing."""
        return cls(
            number,
            value["name"],
            frozenset(map(RoutingType, value["routingTypes"])),
            bool(value.get("autoCreated", False)),
            bool(value.get("configured", False)),
            bool(value.get("paused", False)),
        )
