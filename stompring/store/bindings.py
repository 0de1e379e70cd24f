"""Addresses, queues and known duplicate ids, as the journal keeps them.

Addresses and queues as the journal keeps them: JSON, with every attribute by name.

The ids of durable messages, by which an address knows duplicates, as the journal keeps them.

Ids of an address have consecutive *positions* for ever. They are stored in chunks; a chunk is deleted when the address
has forgotten the last of its ids; a chunk that is in the oldest segment is written again without disturbing the order,
for its ids keep their positions.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from struct import Struct
from typing import TYPE_CHECKING, Any

from stompring.broker.address import Address, DuplicateIds, cache_size
from stompring.broker.queue import Queue
from stompring.broker.queue_attributes import QueueAttributes
from stompring.errors import Refused
from stompring.settings.model import QueueConfiguration, RoutingType, options_of
from stompring.settings.value_types import VALUE_TYPES

from .encoder import RecordEncoder
from .record import ADDRESS, BINDING, BOUND, DUPLICATE_IDS, NOTE, QUEUE, UNBOUND, Kind
from .segment import LiveRecord

if TYPE_CHECKING:
    from .journal import Journal
    from .recovery import Recovery
    from .replay import ReadSegment


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


#: How much one chunk holds at most, but for its last id.
CHUNK_IDS, CHUNK_BYTES = 1000, 64 * 1024

_LENGTH = Struct("<I")


class IdChunk(LiveRecord):
    """Ids of one address with consecutive positions."""

    __slots__ = (
        "_logged",
        "_mark",
        "_owner",
        "_size",
        "_unlogged",
        "dropped",
        "first",
        "full",
        "ids",
        "live_bytes",
    )

    whole = False

    def __init__(self, owner: StoredIds, first: int) -> None:
        super().__init__()
        self.ids: list[bytes] = []
        self.first = first
        self.dropped = 0  # how many at the front are forgotten
        self.full = False  # nothing more is added
        self.live_bytes = 0  # what this takes in the journal, more or less
        self._owner = owner
        self._size = 0
        self._logged = 0  # how many are in records
        self._unlogged: deque[int] = deque()  # how many of the others each `Journal.update` is about
        self._mark: object = None  # the transaction of the last of them

    @property
    def end(self) -> int:
        """The position after its last id."""
        return self.first + len(self.ids)

    @property
    def left(self) -> int:
        """How many count."""
        return len(self.ids) - self.dropped

    def add(self, identifier: bytes) -> None:
        """One more. The ids of one transaction go into one record, apart from others."""
        log = self._owner.log
        self._append(identifier)
        if self._mark is log.mark and self._unlogged and log.in_transaction:
            self._unlogged[-1] += 1
        else:
            self._mark = log.mark
            self._unlogged.append(1)
            log.update(self)

    def restore(self, identifier: bytes) -> None:
        """One more that a segment has."""
        self._append(identifier)
        self._logged += 1

    def _append(self, identifier: bytes) -> None:
        self.ids.append(identifier)
        self._size += len(identifier)
        if len(self.ids) >= CHUNK_IDS or self._size >= CHUNK_BYTES:
            self.full = True

    def count_live(self) -> None:
        """The journal counts what was restored."""
        self._count(record_bytes(self.ids))

    def encode(self, encoder: RecordEncoder) -> None:
        self._owner.drop_forgotten()
        first = self._logged
        self._logged += self._unlogged.popleft()
        ids = self.ids[max(first, self.dropped) : self._logged]
        if ids and not self.gone:
            self._write(encoder, max(first, self.dropped), ids)
            self._count(record_bytes(ids))

    def encode_all(self, encoder: RecordEncoder) -> None:
        ids = self.ids[self.dropped : self._logged]
        if ids:
            self._write(encoder, self.dropped, ids)
        self._count(record_bytes(ids) - self.live_bytes)

    def _write(self, encoder: RecordEncoder, index: int, ids: list[bytes]) -> None:
        owner = self._owner
        encoder.add(pack_ids(encoder.name_address(owner.address), self.first + index, owner.oldest, ids))

    def _count(self, more: int) -> None:
        self.live_bytes += more
        self._owner.log.live_bytes += more

    def end_here(self) -> None:
        """None of its ids counts any more."""
        self.gone = True
        self._count(-self.live_bytes)
        self._owner.log.forget(self)


class IdsCleared(LiveRecord):
    """That none of the ids counts which one address had so far.

    Nothing keeps it: when its segment goes, all older ones have gone, and with them the ids.
    """

    __slots__ = ("_address", "_oldest")

    def __init__(self, address: Address, oldest: int) -> None:
        super().__init__()
        self.gone = True
        self._address = address
        self._oldest = oldest

    def encode(self, encoder: RecordEncoder) -> None:
        encoder.add(pack_ids(encoder.name_address(self._address), self._oldest, self._oldest, []))


class StoredIds:
    """The ids of one address. ``oldest`` is the position of the first one that counts."""

    def __init__(self, log: Journal, address: Address, oldest: int = 0) -> None:
        self.log = log
        self.address = address
        self.chunks: deque[IdChunk] = deque()
        self.oldest = oldest
        self._next = oldest
        self._forgotten = 0  # of `Duplicates.forgotten`, how many are off the chunks

    def remember(self, identifier: bytes) -> None:
        """A durable message with this id was routed."""
        chunks = self.chunks
        if not chunks or chunks[-1].full:
            self.drop_forgotten()
            chunks.append(IdChunk(self, self._next))
        chunks[-1].add(identifier)
        self._next += 1

    def drop_forgotten(self) -> None:
        """The address has forgotten some."""
        known = self.address.duplicates
        dropping = 0 if known is None else known.forgotten - self._forgotten
        self._forgotten += dropping
        while dropping and self.chunks:
            chunk = self.chunks[0]
            some = min(dropping, chunk.left)
            dropping -= some
            chunk.dropped += some
            self.oldest = chunk.first + chunk.dropped
            if chunk.left:
                break
            self.chunks.popleft().end_here()
        if self.chunks:
            self.oldest = self.chunks[0].first + self.chunks[0].dropped

    def forget_all(self) -> None:
        """None of its ids counts any more, including those that only the journal has."""
        self.drop_forgotten()
        self.end()
        self.oldest = self._next
        self.log.update(IdsCleared(self.address, self.oldest))

    def end(self) -> None:
        """The address is deleted."""
        while self.chunks:
            self.chunks.popleft().end_here()

    def restore(self, found: ReplayedIds, recovery: Recovery) -> None:
        """Bring back what was read, as far as it still counts."""
        size = cache_size(self.address) if recovery.persist_ids else 0
        found_ids = list(found.latest(size))
        self._next = self.oldest = found.next
        if not found_ids:
            return
        known = self.address.duplicates = DuplicateIds(size)
        known.restore([identifier for _, _, identifier in found_ids])
        self.oldest = found_ids[0][0]
        oldest_segments: list[ReadSegment] = []
        for position, segment, identifier in found_ids:
            chunk = self.chunks[-1] if self.chunks else None
            if chunk is None or chunk.full or chunk.end != position:
                chunk = IdChunk(self, position)
                self.chunks.append(chunk)
                oldest_segments.append(segment)
            elif segment.number < oldest_segments[-1].number:
                oldest_segments[-1] = segment
            chunk.restore(identifier)
        for chunk, segment in zip(self.chunks, oldest_segments, strict=True):
            chunk.count_live()
            recovery.adopt(chunk, segment)


class ReplayedIds:
    """What the records of a journal say of the ids of one address."""

    def __init__(self) -> None:
        self.oldest = 0
        self.next = 0
        self._found: dict[int, tuple[ReadSegment, bytes]] = {}  # by position

    def include(self, segment: ReadSegment, first: int, oldest: int, ids: list[bytes]) -> None:
        """One record. Later ones replace what earlier ones say of the same positions."""
        self.oldest = max(self.oldest, oldest)
        self.next = max(self.next, self.oldest, first + len(ids))
        for position, identifier in enumerate(ids, first):
            self._found[position] = (segment, identifier)

    def latest(self, size: int | None = None) -> Iterator[tuple[int, ReadSegment, bytes]]:
        """Position, segment and id of the latest ``size`` that count, the oldest first; none of them twice."""
        seen: set[bytes] = set()
        chosen: list[tuple[int, ReadSegment, bytes]] = []
        for position in sorted(self._found, reverse=True):
            if position < self.oldest or len(chosen) == size:
                break
            segment, identifier = self._found[position]
            if identifier not in seen:
                seen.add(identifier)
                chosen.append((position, segment, identifier))
        return reversed(chosen)


def record_bytes(ids: list[bytes]) -> int:
    """What a record with these ids takes, more or less."""
    return sum(map(len, ids)) + 4 * len(ids) + DUPLICATE_IDS.size + 8 if ids else 0


def pack_ids(address: int, first: int, oldest: int, ids: list[bytes]) -> bytes:
    """The payload of a DUPLICATE_IDS record."""
    head = DUPLICATE_IDS.pack(Kind.DUPLICATE_IDS, 0, 0, address, first, oldest, len(ids))
    pack = _LENGTH.pack
    return head + b"".join([pack(len(identifier)) + identifier for identifier in ids])


def unpack_ids(data: bytes, begin: int, end: int) -> tuple[int, int, int, list[bytes]]:
    """Address, first position, oldest position and ids of such a payload. Raises `ValueError` where it is none."""
    _, _, _, address, first, oldest, count = DUPLICATE_IDS.unpack_from(data, begin)
    ids, at = [], begin + DUPLICATE_IDS.size
    for _ in range(count):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        if at > end:
            raise ValueError
        ids.append(data[start:at])
    return address, first, oldest, ids
