"""Messages, queues and addresses as ``stompring data export`` writes them: JSON objects, one a line (docs/data.md).

Fields are named as in the management API. Where bytes are not UTF-8 an object ``{"base64": …}`` stands for a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from stompring.broker.attributes import QueueAttributes
from stompring.broker.message import Message, Traits
from stompring.broker.recurrence import Recurrence
from stompring.errors import Refused
from stompring.settings.model import RingPolicy, RoutingType
from stompring.stomp.frames import header_line, unescape

from .portable_fields import Fields, Unusable, text


@dataclass(frozen=True, slots=True)
class Place:
    """A message in one queue."""

    queue: str
    deliveries: int = 0
    attempts: int = 0
    due: int = 0
    recurrence: Recurrence | None = None


@dataclass(frozen=True, slots=True)
class PortableMessage:
    """A message with all the queues that hold it."""

    number: int  # where it comes from; it gets another one where it goes
    address: str
    places: Sequence[Place]
    traits: Traits
    body: bytes
    timestamp: int
    expires: int

    def fields(self) -> dict[str, Any]:
        """The JSON object."""
        traits = self.traits
        return {
            "number": self.number,
            "address": self.address,
            "queues": [_place_fields(place) for place in self.places],
            "priority": traits.priority,
            "durable": traits.durable,
            "timestamp": self.timestamp,
            "expires": self.expires,
            "routingType": traits.routing_type,
            "destination": text(traits.destination),
            "user": traits.user,
            "origin": None if traits.origin is None else str(traits.origin),
            "group": None if traits.group is None else text(traits.group),
            "groupEnd": traits.group_sequence == -1,
            "headers": [[text(name), text(value)] for name, value in header_pairs(traits.block)],
            "body": text(self.body),
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PortableMessage:
        """From the JSON object. Raises `Unusable`."""
        take = Fields(given, "message")
        block = b"".join(header_line(name, value) for name, value in _headers(take))
        traits = Traits(
            block,
            take.raw("destination"),
            take.choice("routingType", RoutingType),
            take.number("priority", 9),
            take.flag("durable"),
            0,
            take.raw_or_none("group"),
            -1 if take.flag("groupEnd") else 0,
            take.text_or_none("origin"),
            take.text_or_none("user"),
        )
        found = cls(
            take.number("number"),
            take.text("address"),
            tuple(_place(place) for place in take.objects("queues")),
            traits,
            take.raw("body"),
            take.number("timestamp"),
            take.number("expires"),
        )
        take.done()
        return found

    def message(self, number: int, address: Any) -> Message:
        """The message itself, on an `Address` of another broker."""
        traits = address.mark(self.traits)
        return Message(number, address, traits, self.body, self.timestamp, self.expires)


def header_pairs(block: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines of a block, decoded, in their order."""
    pairs = (line.partition(b":") for line in block.split(b"\n")[:-1])
    return [(unescape(name, b"1.2"), unescape(value, b"1.2")) for name, _, value in pairs]


def _headers(take: Fields) -> list[tuple[bytes, bytes]]:
    pairs = take.items("headers")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise Unusable("headers is not a list of names with their values")
    return [(take.as_bytes("headers", name), take.as_bytes("headers", value)) for name, value in pairs]


def _place_fields(place: Place) -> dict[str, Any]:
    recurrence = place.recurrence
    return {
        "queue": place.queue,
        "deliveryCount": place.deliveries,
        "failedAttempts": place.attempts,
        "dueTime": place.due or None,
        "recurrence": None if recurrence is None else recurrence_fields(recurrence),
    }


def recurrence_fields(recurrence: Recurrence) -> dict[str, Any]:
    """How a scheduled message goes on, as JSON."""
    return {name: getattr(recurrence, name) for name in ("period", "repeat", "cron", "delay")}


def _place(given: Mapping[str, Any]) -> Place:
    take = Fields(given, "queues")
    due = take.number("dueTime") if given.get("dueTime") is not None else take.nothing("dueTime")
    recurrence = take.value("recurrence")
    found = Place(
        take.text("queue"),
        take.number("deliveryCount", 2**32 - 1),
        take.number("failedAttempts", 2**32 - 1),
        due,
        None if recurrence is None else _recurrence(recurrence),
    )
    take.done()
    return found


def _recurrence(given: Any) -> Recurrence:
    take = Fields(given, "recurrence")
    try:
        found = Recurrence(
            take.number("period"),
            take.number("repeat", least=-1),
            take.text_or_none("cron"),
            take.number("delay"),
        )
    except Refused as fault:
        raise Unusable(str(fault)) from None
    take.done()
    return found


# ---- queues and addresses


def camel(name: str) -> str:
    """``ring_size`` as ``ringSize``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


#: What a queue is, by its name in JSON; the compiled filter is made of the other one.
QUEUE_FIELDS = {camel(each.name): each.name for each in fields(QueueAttributes) if each.name != "accepts"}
CHOICES: dict[str, type[StrEnum]] = {"routing_type": RoutingType, "ring_policy": RingPolicy}


@dataclass(frozen=True, slots=True)
class PortableQueue:
    """A queue: its name, its address, and all of its attributes by the names of `QueueAttributes`."""

    name: str
    address: str
    attributes: Mapping[str, Any]
    paused: bool = False
    no_local: str | None = None  # whose messages its subscriber does not want
    as_configured: Mapping[str, Any] | None = None  # what broker.xml had said, where it was changed since

    def fields(self) -> dict[str, Any]:
        """The JSON object."""
        configured = self.as_configured
        return {
            "name": self.name,
            "address": self.address,
            **_shown(self.attributes),
            "paused": self.paused,
            "noLocal": self.no_local,
            "asConfigured": None if configured is None else _shown(configured),
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PortableQueue:
        """From the JSON object. Raises `Unusable`."""
        take = Fields(given, "queue")
        configured = take.value("asConfigured")
        found = cls(
            take.text("name"),
            take.text("address"),
            _attributes(take),
            take.flag("paused"),
            take.text_or_none("noLocal"),
            None if configured is None else _only_attributes(configured),
        )
        take.done()
        return found


def _shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attributes[ours] for name, ours in QUEUE_FIELDS.items()}


def _only_attributes(given: Any) -> dict[str, Any]:
    take = Fields(given, "asConfigured")
    found = _attributes(take)
    take.done()
    return found


def _attributes(take: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for shown, ours in QUEUE_FIELDS.items():
        if ours in CHOICES:
            found[ours] = take.choice(shown, CHOICES[ours])
            if found[ours] is None:
                raise Unusable(f"queue: {shown} is missing")
        elif ours in ("filter", "user"):
            found[ours] = take.text_or_none(shown)
        elif isinstance(DEFAULTS[ours], bool):
            found[ours] = take.flag(shown)
        else:
            found[ours] = take.number(shown, least=-1)
    return found


DEFAULTS = {each.name: each.default for each in fields(QueueAttributes)} | {"durable": True}


@dataclass(frozen=True, slots=True)
class PortableAddress:
    """An address."""

    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool = False
    configured: bool = False
    paused: bool = False

    def fields(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "name": self.name,
            "routingTypes": sorted(self.routing_types),
            "autoCreated": self.auto_created,
            "configured": self.configured,
            "paused": self.paused,
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PortableAddress:
        """From the JSON object. Raises `Unusable`."""
        take = Fields(given, "address")
        types = take.items("routingTypes")
        if unknown := [each for each in types if each not in RoutingType.__members__]:
            raise Unusable(f"routingTypes: {unknown[0]!r} is none")
        found = cls(
            take.text("name"),
            frozenset(map(RoutingType, types)),
            take.flag("autoCreated"),
            take.flag("configured"),
            take.flag("paused"),
        )
        take.done()
        return found
