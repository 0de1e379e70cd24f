"""Addresses, queues, named values (`broker.ports.NamedValues`) and duplicate ids in the journal.

Addresses and queues are JSON, with every attribute by name. The duplicate ids of an address's durable messages are
stored in chunks. Each id has a permanent *position*; the positions of an address are consecutive. A chunk is deleted
when the address has forgotten all its ids. Compaction can write a chunk again after later chunks, because ids keep
their positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

from stompring.broker.address import Address, DuplicateIds
from stompring.broker.queue import Queue
from stompring.broker.reference import QueueAttributes
from stompring.errors import Refused
from stompring.settings.model import QueueConfiguration, RoutingType, options_of
from stompring.settings.value_types import VALUE_TYPES

from .encoder import RecordEncoder
from .journal import Binding, Journal, LiveRecord
from .record import ADDRESS, DUPLICATE_IDS, NOTE, QUEUE, pack_ids
from .replay import ReadSegment, ReplayedIds

#: Attributes that are computed from other attributes, and therefore not stored.
DERIVED: Final = frozenset({"accepts"})

#: Names of the stored attributes.
ATTRIBUTES = [each.name for each in fields(QueueAttributes) if each.name not in DERIVED]

#: Exceptions that an incomplete or invalid description raises.
UNUSABLE = (KeyError, TypeError, ValueError, AttributeError, Refused)


def describe_queue(queue: Queue) -> dict[str, Any]:
    """Return the JSON description of a queue, without its messages."""
    return {
        "name": queue.name,
        "address": queue.address.name,
        "attributes": describe_attributes(queue.attributes),
        "paused": queue.paused,
        "noLocal": queue.no_local,
        "asConfigured": None if queue.as_configured is None else describe_attributes(queue.as_configured),
    }


def describe_attributes(attributes: QueueAttributes) -> dict[str, Any]:
    """Return the stored attributes by their names in `QueueAttributes`."""
    return {name: getattr(attributes, name) for name in ATTRIBUTES}


def describe_address(address: Address) -> dict[str, Any]:
    """Return the JSON description of an address, without its queues."""
    return {
        "name": address.name,
        "routingTypes": sorted(address.routing_types),
        "autoCreated": address.auto_created,
        "configured": address.configured,
        "paused": address.paused,
    }


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue as `describe_queue` describes it."""

    name: str
    address: str
    attributes: QueueAttributes
    paused: bool
    no_local: str | None
    as_configured: QueueAttributes | None  # attributes in broker.xml when the file was last applied

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> StoredQueue:
        """Parse the result of `describe_queue`. Raises one of `UNUSABLE`."""
        configured = value.get("asConfigured")
        return cls(
            value["name"],
            value["address"],
            attributes_of(value["attributes"]),
            bool(value.get("paused", False)),
            value.get("noLocal"),
            None if configured is None else attributes_of(configured),
        )


_CHOICES = {
    row.name: choices
    for row in options_of(QueueConfiguration)
    if (choices := VALUE_TYPES[row.type].choices) is not None
}


def attributes_of(described: Mapping[str, Any]) -> QueueAttributes:
    """Parse the result of `describe_attributes`. Ignores names of newer versions. Raises one of `UNUSABLE`."""
    values = {name: value for name, value in described.items() if name in ATTRIBUTES}
    values["routing_type"] = RoutingType(values["routing_type"])
    for name, choices in _CHOICES.items():
        if name in values:
            values[name] = choices(values[name])
    text = values.pop("filter", None)
    return QueueAttributes(**values).changed({"filter": text})


@dataclass(frozen=True, slots=True)
class StoredAddress:
    """An address as `describe_address` describes it."""

    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool
    configured: bool
    paused: bool

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> StoredAddress:
        """Parse the result of `describe_address`. Raises one of `UNUSABLE`."""
        return cls(
            value["name"],
            frozenset(map(RoutingType, value["routingTypes"])),
            bool(value.get("autoCreated", False)),
            bool(value.get("configured", False)),
            bool(value.get("paused", False)),
        )


#: Number of ids, and bytes of ids, at which a chunk is full. The last id may exceed the number of bytes.
CHUNK_IDS, CHUNK_BYTES = 1000, 64 * 1024


class IdChunk(LiveRecord):
    """Ids of one address with consecutive positions."""

    whole = False

    def __init__(self, owner: StoredIds, first: int) -> None:
        super().__init__()
        self.ids: list[bytes] = []
        self.first = first
        self.dropped = 0  # number of forgotten ids at the beginning of the chunk
        self.full = False  # whether later ids go to another chunk
        self.live_bytes = 0  # approximate bytes of the chunk's live records in the journal
        self._owner = owner
        self._size = 0  # bytes of all ids
        self._logged = 0  # number of ids that have a record
        self._unlogged: deque[int] = deque()  # number of unlogged ids for each pending `Journal.update`
        self._mark: object = None  # the transaction in which the last id was added

    @property
    def left(self) -> int:
        """Number of ids that are not forgotten."""
        return len(self.ids) - self.dropped

    def add(self, identifier: bytes) -> None:
        """Add an id. The ids of one transaction become one record, which has no other ids."""
        log = self._owner.log
        self._append(identifier)
        if self._mark is log.mark and self._unlogged and log.in_transaction:
            self._unlogged[-1] += 1
        else:
            self._mark = log.mark
            self._unlogged.append(1)
            log.update(self)

    def restore(self, identifier: bytes) -> None:
        """Add an id that recovery has read from a segment."""
        self._append(identifier)
        self._logged += 1

    def _append(self, identifier: bytes) -> None:
        self.ids.append(identifier)
        self._size += len(identifier)
        if len(self.ids) >= CHUNK_IDS or self._size >= CHUNK_BYTES:
            self.full = True

    def encode(self, encoder: RecordEncoder) -> None:
        self._owner.drop_forgotten()
        first = self._logged
        self._logged += self._unlogged.popleft()
        ids = self.ids[max(first, self.dropped) : self._logged]
        if ids and not self.gone:
            self._write(encoder, max(first, self.dropped), ids)
            self.count(record_bytes(ids))

    def encode_all(self, encoder: RecordEncoder) -> None:
        ids = self.ids[self.dropped : self._logged]
        if ids:
            self._write(encoder, self.dropped, ids)
        self.count(record_bytes(ids) - self.live_bytes)

    def _write(self, encoder: RecordEncoder, index: int, ids: list[bytes]) -> None:
        owner = self._owner
        encoder.add(pack_ids(encoder.name_address(owner.address), self.first + index, owner.oldest, ids))

    def count(self, more: int) -> None:
        """Add ``more`` bytes to the live bytes of this chunk and of the journal."""
        self.live_bytes += more
        self._owner.log.live_bytes += more

    def end_here(self) -> None:
        """Remove the chunk from the live records of the journal, because all its ids are forgotten."""
        self.gone = True
        self.count(-self.live_bytes)
        self._owner.log.forget(self)


class IdsCleared(LiveRecord):
    """The event that an address has forgotten all its ids. Its record is not live: segments with these ids
    are older, and deleted before the segment of the record.
    """

    def __init__(self, address: Address, oldest: int) -> None:
        super().__init__()
        self.gone = True
        self._address = address
        self._oldest = oldest

    def encode(self, encoder: RecordEncoder) -> None:
        encoder.add(pack_ids(encoder.name_address(self._address), self._oldest, self._oldest, []))


class StoredIds:
    """The ids of one address. ``oldest``: position of the first id that is not forgotten."""

    def __init__(self, log: Journal, address: Address) -> None:
        self.log = log
        self.address = address
        self.chunks: deque[IdChunk] = deque()
        self.oldest = 0
        self._next = 0
        self._forgotten = 0  # `DuplicateIds.forgotten` at the last `drop_forgotten`

    def remember(self, identifier: bytes) -> None:
        """Store the id of a durable message that the address has routed."""
        chunks = self.chunks
        if not chunks or chunks[-1].full:
            self.drop_forgotten()
            chunks.append(IdChunk(self, self._next))
        chunks[-1].add(identifier)
        self._next += 1

    def drop_forgotten(self) -> None:
        """Drop the ids that the address has forgotten since the last call."""
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
        """Forget all ids, including ids that are only in the journal."""
        self.drop_forgotten()
        self.end()
        self.oldest = self._next
        self.log.update(IdsCleared(self.address, self.oldest))

    def end(self) -> None:
        """Drop all chunks: the address is deleted, or has forgotten all its ids."""
        while self.chunks:
            self.chunks.popleft().end_here()

    def restore(
        self, found: ReplayedIds, size: int, adopt: Callable[[LiveRecord, ReadSegment], None]
    ) -> None:
        """Restore the latest ``size`` ids that recovery has read. Calls ``adopt`` with each chunk and the oldest
        segment that has ids of the chunk.
        """
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
            if chunk is None or chunk.full or chunk.first + len(chunk.ids) != position:
                chunk = IdChunk(self, position)
                self.chunks.append(chunk)
                oldest_segments.append(segment)
            elif segment.number < oldest_segments[-1].number:
                oldest_segments[-1] = segment
            chunk.restore(identifier)
        for chunk, segment in zip(self.chunks, oldest_segments, strict=True):
            chunk.count(record_bytes(chunk.ids))
            adopt(chunk, segment)


def record_bytes(ids: list[bytes]) -> int:
    """Return the approximate bytes of a record with these ids."""
    return sum(map(len, ids)) + 4 * len(ids) + DUPLICATE_IDS.size + 8 if ids else 0


class Bindings:
    """Bindings of durable queues, addresses and named values. ``values``: stored JSON objects by number. ``ids``:
    duplicate ids by address.
    """

    def __init__(self, journal: Journal) -> None:
        self.values: dict[int, Mapping[str, Any]] = {}
        self.ids: dict[Address, StoredIds] = {}
        self._journal = journal
        self._known: dict[object, Binding] = {}  # bindings by queue, address, or number of a value

    def of(self, subject: Queue | Address | int) -> Binding:
        """Return the binding of a queue, an address, or the value with a number. Creates it on first use."""
        binding = self._known.get(subject)
        if binding is None:
            describe: Callable[[], Mapping[str, Any]]
            if isinstance(subject, Queue):
                what, number, describe = QUEUE, subject.number, partial(describe_queue, subject)
            elif isinstance(subject, Address):
                what, number = ADDRESS, self._journal.number_of(subject)
                describe = partial(describe_address, subject)
            else:
                what, number, describe = NOTE, subject, partial(self.values.__getitem__, subject)
            binding = self._known[subject] = Binding(what, number, subject, describe)
        return binding

    def bind(self, subject: Queue | Address | int) -> None:
        """Record a new or changed queue, address or value."""
        self._journal.bind(self.of(subject))

    def unbind(self, subject: object) -> None:
        """Record the deletion of a queue, an address, or the value with a number."""
        binding = self._known.pop(subject, None)
        if binding is not None:
            self._journal.unbind(binding)
