"""Records: the encoding of messages and events in segments.

docs/dev/store-format.md has tables of the comments above the layouts: a line ``NAME: MEANING`` for each field. A field
after the layout has its type after its name.

A record is ``length`` and CRC-32 of its payload, both u32, then the payload. All numbers are little-endian. The first
byte of a payload is its kind. A message record has the tail of the MESSAGE frame as sent to clients, so that writes and
reads need not format anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import IntEnum
from struct import Struct, pack, unpack
from typing import Any, Final
from zlib import crc32

from stompring.broker.message import (
    EVERYWHERE,
    IN_DURABLE,
    NOWHERE,
    TAIL_END,
    AddressBase,
    Message,
    RecoveredMessage,
    Traits,
    Transfer,
)
from stompring.settings.model import RoutingType

#: length: bytes of the payload
#: crc: CRC-32 of the payload
#: payload bytes[length]: its first byte is the kind of the record
PREFIX: Final = Struct("<II")


class Kind(IntEnum):
    """The kind of a record. Each comment has the files with such records, and their contents."""

    MESSAGE = 1  # journal, pages: a message and the queues that it entered
    SETTLED = 2  # journal: a queue settled messages
    STATE = 3  # journal: the state of a message in one queue if it differs from the MESSAGE, and its cause
    TRANSACTION = 4  # journal: several payloads that apply atomically
    PAGE_SETTLED = 5  # journal: a queue settled messages of one page
    PAGE_STATE = 6  # journal: the state of a paged message in one queue
    PAGE_CURSOR = 7  # journal: all that a queue has settled of one page, in place of earlier PAGE_SETTLED
    NUMBERS = 8  # journal: number leases
    BINDING = 9  # journal, pages: an address or a queue was created, changed or deleted
    NAME = 10  # journal, pages, samples: the name of an address, queue or consumer number
    FOOTER = 11  # journal, pages, samples: index and checksums of this file
    DELIVERED = 12  # journal: messages were delivered to consumers again, once each
    DUPLICATE_IDS = 13  # journal: duplicate ids of messages sent to an address
    SAMPLE = 14  # samples: the counters of queues at one time
    QUEUE_ADDRESS = 15  # journal: the address of a queue; follows the first NAME of both in each segment
    PAGE_FILE = 16  # journal: begin, completion or removal of a page file
    RETAINED = 17  # journal: retained messages that a restart does not recover
    SCOPED = 18  # journal: a payload about messages that a restart does not recover, or that are not retained


class Cause(IntEnum):
    """The reason for which a STATE or PAGE_STATE record was written."""

    REPEATED = 0  # nothing has changed: compaction writes the state again
    RETURNED = 1  # a delivered message was requeued
    SCHEDULED = 2  # a recurring message waits for its next due time
    ADDED = 3  # a message with a record entered another queue


#: kind
#: flags: sum of: 1 durable (`persistent:true`); 2 sent as ANYCAST or 4 as MULTICAST (neither: any routing type); 8
#:    closes its message group; 16 rewritten: an earlier record has the same message; 32 copy made for a dead
#:    letter, 64 for an expired message, 96 by a policy; 128 the field `retain` is present
#: priority: 0 to 9
#: deliveries: lower bound of the deliveries to consumers of each of its queues
#: address: destination address
#: number: of the message: unique in the broker and ascending. Defines the delivery order within a priority
#: timestamp: when it was sent
#: expires: expiry time, 0 for never
#: due: scheduled delivery time, 0 for immediately
#: transaction: in a page: the transaction that it was sent in, 0 for none
#: head_length, body_length
#: queue_count: number of queues that it entered
#: traits_length: bytes of the fields from block_length to group
#: queues u32[queue_count]: numbers of these queues
#: block_length u32: bytes of the sender's own headers, at the end of `head` before its empty line
#: destination_length u32, user_length u32, origin_length u32, group_length u32
#: destination bytes[destination_length]: as the sender wrote it
#: user text[user_length]: user name of the sender; empty without a login
#: origin text[origin_length]: client-id or session of the sender, for `no-local`
#: group bytes[group_length]: its message group; empty for none
#: retain u8[flags&128]: with flag 128: the queues that have it retained: 1 all of them, 2 none; else
#:    absent
#: head bytes[head_length]: the end of the headers of its MESSAGE frame: the number and a line feed, then lines
#:    `name:value`, then an empty line
#: body bytes[body_length]: as it was sent
#: end bytes[2]: NUL and a line feed
MESSAGE: Final = Struct("<BBBBIQQQQQIIII")
#: bytes of block, destination, user, origin and group in the traits part
TRAITS: Final = Struct("<IIIII")
#: kind
#: reason: 0 acknowledged, 1 expired, 2 killed, 3 replaced (evicted from a ring)
#: consumer: the acknowledging consumer: the number of a NAME; 0 if unknown
#: queue
#: time: when it happened
#: numbers u64[*]: of the messages
SETTLED: Final = Struct("<BBHIQ")
#: kind
#: cause: the event: 0 none (the record repeats a state or belongs to its MESSAGE); 1 a delivery was requeued; 2 the
#:    message was scheduled: a recurring message for its next due time, or a message that was sent with a due time;
#:    3 the message entered this queue after its MESSAGE was written
#: delivered: number of these `deliveries` that no earlier record has
#: queue
#: number: of the message
#: deliveries: number of deliveries to consumers
#: attempts: number of failed deliveries that count towards `max-delivery-attempts`
#: due: scheduled delivery time, 0 for immediately
#: time: when the event happened; undefined for cause 0
#: recurrence json[*]: empty, or the recurrence after `due`
STATE: Final = Struct("<BBHIQIIQQ")
#: kind, zero, zero
#: count: payloads that follow
#: number: of the transaction; 0 if no page refers to it
#: parts part[count]: payloads of any kind but 4, 10, 11 and 15
TRANSACTION: Final = Struct("<BBHIQ")
#: kind
#: reason: as in SETTLED; plus 128 if each of the messages had one delivery to a consumer that no other record has
#: consumer: as in SETTLED
#: address, queue
#: page: the number of the page
#: time: when it happened
#: runs run[*]: message indexes in this page, counted from 0
PAGE_SETTLED: Final = Struct("<BBHIIQQ")
#: kind
#: cause: as in STATE: 0 or 1
#: delivered: as in STATE
#: address, queue
#: page: the number of the page
#: index: message index in this page, counted from 0
#: deliveries: as in STATE
#: attempts: as in STATE
#: due: as in STATE
#: time: as in STATE
PAGE_STATE: Final = Struct("<BBHIIQIIIQQ")
#: kind, zero, zero, address, queue
#: page: the number of the page
#: runs run[*]: indexes of all messages of this page that the queue has settled, counted from 0
PAGE_CURSOR: Final = Struct("<BBHIIQ")
#: kind, zero, zero
#: next_queue: all queues before this record have lower numbers
#: next_transaction: all transactions before this record have lower numbers; those are complete
#: next_message: end of the lease: the broker uses this number and higher ones only after a later NUMBERS. After a
#:    restart message numbers begin here
#: next_page: all pages before this record have lower numbers and a PAGE_FILE; 0: some have no PAGE_FILE
#: oldest_segment: segments with lower numbers are not needed
NUMBERS: Final = Struct("<BBHIQQQQ")
#: kind, zero, zero, queue
#: time: when it happened
#: numbers u64[*]: of the messages
DELIVERED: Final = Struct("<BBHIQ")
#: kind, zero, zero, address
#: first: the position of the first id
#: oldest: ids with a lower position are invalid
#: count
#: ids part[count]: one id in each
DUPLICATE_IDS: Final = Struct("<BBHIQQI")
#: kind, zero, zero, rows
#: time: when the counters were read
#: queues SAMPLE_ROW[rows]: a row for each queue that changed since its previous row in this file
SAMPLE: Final = Struct("<BBHIQ")
#: queue, address
#: ring: ring-size, 0 for none
#: messages: messageCount
#: delivering: deliveringCount
#: scheduled: scheduledCount
#: paged: pagedCount
#: consumers: consumerCount
#: added: messagesAdded; this and the next four count from the start of the broker
#: acknowledged: messagesAcknowledged
#: expired: messagesExpired
#: killed: messagesKilled
#: replaced: messagesReplaced
#: size: persistentSize
SAMPLE_ROW: Final = Struct("<IIQQQQQQQQQQQQ")
#: kind
#: operation: 0 the file begins, 1 it is complete, 2 it is deleted, or moved to `retention/`
#: zero, address
#: page: the number of the page
#: messages: number of messages in the page; 0 unless it is complete
#: share_count
#: shares PAGE_SHARE[share_count]: the durable queues that durable messages of the page entered; none unless it is
#:    complete
PAGE_FILE: Final = Struct("<BBHIQII")
#: queue
#: count: number of durable messages of the page that entered it
PAGE_SHARE: Final = Struct("<II")
#: kind
#: scope: 1 for readers of retained files; 2 for restarts only
#: zero
#: payload bytes[*]: of kind 2, 3, 5, 6 or 12
SCOPED: Final = Struct("<BBH")
#: kind, zero, zero
#: count: number of messages
#: traits_count, entries_count
#: time: when it was written: the end of the event loop iteration in which the messages arrived
#: traits_length: bytes of `traits`
#: numbers u64[count]: of the messages
#: timestamps u64[count]: when each was sent
#: expires u64[count]: expiry time of each, 0 for never
#: which u32[count]: index in `traits` for each message, counted from 0
#: head_lengths u32[count]
#: lengths u32[count]: bytes of each in `tails`
#: traits RETAINED_TRAITS[traits_count]: fields that messages share
#: entries RETAINED_ENTRIES[entries_count]: the queues that they entered
#: tails bytes[*]: for each message in order: `head`, `body` and `end` as in MESSAGE
RETAINED: Final = Struct("<BBHIIIQI")
#: The columns of RETAINED, in this order. Each has one number for each message.
RETAINED_COLUMNS = (
    ("number", "Q"),
    ("timestamp", "Q"),
    ("expires", "Q"),
    ("traits", "I"),
    ("head", "I"),
    ("size", "I"),
)
#: address: destination address
#: length: bytes that follow
#: flags u8: as in MESSAGE
#: priority u8: 0 to 9
#: block_length u32: this and all later fields as in MESSAGE
#: destination_length u32, user_length u32, origin_length u32, group_length u32, destination
#:    bytes[destination_length], user text[user_length], origin text[origin_length], group bytes[group_length],
#:    retain u8[flags&128]
RETAINED_TRAITS: Final = Struct("<II")
#: queue: that the messages entered; a message can be in several of these
#: outcome: 0 enqueued: later records have the events; 1 delivered once, immediately, and acknowledged
#: zero
#: consumer: the acknowledging consumer, as in SETTLED
#: place_count
#: places u32[place_count]: message indexes; none: all messages of the record
RETAINED_ENTRIES: Final = Struct("<IBBHI")
#: kind
#: what: 1 an address, 2 a queue, 3 a named value
#: operation: 0 created or changed, 1 deleted
#: zero
#: id: its number
#: attributes json[*]: its description; empty if deleted
BINDING: Final = Struct("<BBBBI")
#: kind
#: what: 1 an address, 2 a queue, 4 a consumer
#: passing: in a page: 1 for a non-durable queue; else 0
#: id: its number
#: name text[*]
NAME: Final = Struct("<BBHI")
#: kind, zero, zero, queue
#: address: that the queue is bound to
QUEUE_ADDRESS: Final = Struct("<BBHII")

FOR_READERS, FOR_RESTARTS = 1, 2  # values of ``scope`` in SCOPED
ADDRESS, QUEUE, NOTE = 1, 2, 3  # values of ``what`` in BINDING; NAME has the first two, too
CONSUMER: Final = 4  # a value of ``what`` in NAME: the number of a consumer is valid in one segment
BOUND, UNBOUND = 0, 1  # values of ``operation`` in BINDING
BEGUN, COMPLETE, REMOVED = 0, 1, 2  # values of ``operation`` in PAGE_FILE

#: Flags of a message.
DURABLE, GROUP_END = 1, 8
#: A flag of the record, not of the message: an earlier record has the same message.
COPY: Final = 16
#: Flags of a copy that the broker made: for a dead-letter address, for an expiry address; both flags: for a policy.
DEAD_LETTER, EXPIRED = Transfer.DEAD_LETTER << 5, Transfer.EXPIRED << 5
TRANSFERRED: Final = DEAD_LETTER | EXPIRED
#: Added to the reason in PAGE_SETTLED if no other record has the delivery of the settled messages.
WENT_OUT: Final = 128
#: In the flags of MESSAGE: the traits part ends with a byte that names the queues that retain the message.
RETAIN: Final = 128
#: Values of the byte that `RETAIN` announces: all queues retain the message, or none. Without this byte, durable queues
#: retain the message if it is durable.
RETAINED_EVERYWHERE, RETAINED_NOWHERE = 1, 2
_RETAIN_BYTES = {EVERYWHERE: RETAINED_EVERYWHERE, NOWHERE: RETAINED_NOWHERE}
_RETAINED = {RETAINED_EVERYWHERE: EVERYWHERE, RETAINED_NOWHERE: NOWHERE}
ROUTING = {None: 0, RoutingType.ANYCAST: 2, RoutingType.MULTICAST: 4}
ROUTING_TYPES = {value: key for key, value in ROUTING.items()}
ROUTING_MASK: Final = 6

#: length
#: content bytes[length]
_LENGTH: Final = Struct("<I")
_pack_message = MESSAGE.pack
# the fields before the message number, and those after it
_pack_begin = Struct("<BBBBI").pack
_pack_end = Struct("<QQQQIIII").pack
_pack_prefix = PREFIX.pack


def framed(payload: bytes) -> bytes:
    """Return the whole record with this payload: length and CRC-32 of the payload, then the payload."""
    return _pack_prefix(len(payload), crc32(payload)) + payload


def encode_traits(traits: Traits) -> bytes:
    """Encode flags and priority, then the traits part of a message record. Cached in ``traits.record``."""
    like = traits.like
    if like is not None:  # the records of both traits differ only in the length of the block
        known = like.record or encode_traits(like)
        traits.record = record = known[:2] + _LENGTH.pack(len(traits.block)) + known[2 + _LENGTH.size :]
        return record
    flags = (DURABLE if traits.durable else 0) | (GROUP_END if traits.group_sequence == -1 else 0)
    flags |= ROUTING[traits.routing_type]
    flags |= traits.transfer << 5
    retain = b""
    if traits.retained != (IN_DURABLE if traits.durable else NOWHERE):
        flags |= RETAIN
        retain = b"%c" % _RETAIN_BYTES[traits.retained]
    parts = (
        traits.destination,
        (traits.user or "").encode("utf-8", "surrogateescape"),
        b"" if traits.origin is None else str(traits.origin).encode("utf-8", "surrogateescape"),
        traits.group or b"",
    )
    lengths = TRAITS.pack(len(traits.block), *map(len, parts))
    traits.record = record = b"%c%c%b%b%b" % (flags, traits.priority, lengths, b"".join(parts), retain)
    return record


def message_head(
    message: Message, address: int, queues: bytes, due: int = 0, deliveries: int = 0, transaction: int = 0
) -> bytes:
    """Encode the payload of a message record without its end, which is the message's tail. ``queues``: ids of the
    message's queues, u32 each. ``deliveries``: number of deliveries in each of these queues.
    """
    traits = message.traits
    record = traits.record or encode_traits(traits)
    body_at = message.body_at
    return (
        _pack_message(
            1,
            record[0],
            record[1],
            deliveries,
            address,
            message.number,
            message.timestamp,
            message.expires,
            due,
            transaction,
            body_at,
            len(message.tail) - body_at - 2,
            len(queues) >> 2,
            len(record) - 2,
        )
        + queues
        + record[2:]
    )


def message_records(
    messages: Iterable[Message],
    traits: Traits,
    address: int,
    rest: bytes,
    queues: int = 1,
    due: int = 0,
    transaction: int = 0,
) -> list[bytes]:
    """Encode whole records of messages with these traits and without deliveries.

    ``rest``: bytes that all records share: the ids of the messages' queues (``queues``: number of ids), then the traits
    part.
    """
    record = traits.record
    assert record is not None
    flags, priority, part = record[0], record[1], len(record) - 2
    fixed = MESSAGE.size + len(rest)
    begin = _pack_begin(1, flags, priority, 0, address)
    length = end = b""  # these bytes are usually the same for many messages
    timestamp = expires = body_at = size = -1
    records = []
    for message in messages:
        tail = message.tail
        if (
            len(tail) != size
            or message.timestamp != timestamp
            or message.expires != expires
            or message.body_at != body_at
        ):
            size, timestamp, expires, body_at = len(tail), message.timestamp, message.expires, message.body_at
            length = (fixed + size).to_bytes(4, "little")
            end = _pack_end(timestamp, expires, due, transaction, body_at, size - body_at - 2, queues, part)
            end += rest
        head = begin + message.number.to_bytes(8, "little") + end
        records.append(length + crc32(tail, crc32(head)).to_bytes(4, "little") + head + tail)
    return records


#: Maximum number of `Traits` in one cache.
MAX_TRAITS: Final = 4096


class TraitsCache:
    """The `Traits` of messages that are read from disk: one object for all messages with the same headers."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes, bytes], Traits] = {}
        self._traits: Traits | None = None  # result of the previous `recall`
        self._part = self._block = b""

    def recall(self, flags: int, priority: int, part: bytes, tail: bytes, head: int) -> Traits:
        """Return the traits of a message. ``part``: traits part of its record. ``head``: bytes of the head in ``tail``.

        Fastest if the message of the previous call had the same headers.
        """
        traits = self._traits
        if (
            traits is None
            or part != self._part
            or not tail.endswith(self._block, 0, head)
            or traits.priority != priority
            or traits.record is None
            or traits.record[0] != flags
        ):
            block = tail[head - 1 - _LENGTH.unpack_from(part)[0] : head - 1]
            key = (flags << 8 | priority, part, block)
            traits = self._known.get(key)
            if traits is None:
                traits = self._make(flags, priority, part, block)
                if len(self._known) >= MAX_TRAITS:
                    self._known.clear()
                self._known[key] = traits
            self._traits, self._part, self._block = traits, part, block + b"\n"
        return traits

    @staticmethod
    def _make(flags: int, priority: int, part: bytes, block: bytes) -> Traits:
        _, *lengths = TRAITS.unpack_from(part)
        fields, at = [], TRAITS.size
        for length in lengths:
            fields.append(part[at : at + length])
            at += length
        destination, user, origin, group = fields
        traits = Traits(
            block,
            destination,
            ROUTING_TYPES[flags & ROUTING_MASK],
            priority,
            bool(flags & DURABLE),
            0,
            group or None,
            -1 if flags & GROUP_END else 0,
            origin.decode("utf-8", "surrogateescape") or None,
            user.decode("utf-8", "surrogateescape") or None,
        )
        if flags & RETAIN:
            traits.retained = _RETAINED.get(part[-1], traits.retained)
        traits.record = b"%c%c%b" % (flags, priority, part)
        return traits


class StoredMessage:
    """The fields of a message record. The rest of its payload is not parsed."""

    def __init__(self, payload: bytes | memoryview, at: int = 0) -> None:
        (
            _,
            self.flags,
            self.priority,
            self.deliveries,
            self.address,
            self.number,
            self.timestamp,
            self.expires,
            self.due,
            self.transaction,
            self.head,
            self.body,
            self.queues,
            self.traits_length,
        ) = MESSAGE.unpack_from(payload, at)
        self._payload = payload
        self._at = at + MESSAGE.size

    @property
    def size(self) -> int:
        """Size of the payload in bytes."""
        size: int = MESSAGE.size + 4 * self.queues + self.traits_length + self.head + self.body + TAIL_END
        return size

    def queue_ids(self) -> tuple[int, ...]:
        """Return the ids of the queues that the message was routed to."""
        return tuple(memoryview(self._payload)[self._at : self._at + 4 * self.queues].cast("I"))

    def contents(self, memo: TraitsCache) -> tuple[Traits, bytes]:
        """Return the traits and the tail."""
        start = self._at + 4 * self.queues
        tail_at = start + self.traits_length
        part = bytes(self._payload[start:tail_at])
        tail = bytes(self._payload[tail_at : tail_at + self.head + self.body + TAIL_END])
        return memo.recall(self.flags & ~COPY, self.priority, part, tail, self.head), tail

    def restore(self, address: AddressBase, memo: TraitsCache) -> Message:
        """Return the message as an object of the broker."""
        traits, tail = self.contents(memo)
        return RecoveredMessage(
            self.number, address, traits, tail, self.head, self.timestamp, self.expires, address
        )


def pack_name(what: int, number: int, name: str, passing: bool = False) -> bytes:
    """Return the payload of a NAME record. ``passing``: whether the record names a non-durable queue in a page."""
    return NAME.pack(Kind.NAME, what, passing, number) + name.encode("utf-8", "surrogateescape")


def scoped(payload: bytes, scope: int) -> bytes:
    """Return a payload that only the readers of ``scope`` use."""
    return SCOPED.pack(Kind.SCOPED, scope, 0) + payload


def pack_binding(what: int, number: int, value: Mapping[str, Any] | None) -> bytes:
    """Return the payload of a BINDING record. ``value``: None for a deleted subject."""
    if value is None:
        return BINDING.pack(Kind.BINDING, what, UNBOUND, 0, number)
    described = json.dumps(value, separators=(",", ":")).encode()
    return BINDING.pack(Kind.BINDING, what, BOUND, 0, number) + described


def unpack_binding(payload: bytes) -> tuple[int, int, dict[str, Any] | None]:
    """Return ``what`` (ADDRESS, QUEUE, NOTE), number and description in a BINDING record. The description is None if
    the subject was deleted. Raises `ValueError` and `struct.error`.
    """
    _, what, operation, _, number = BINDING.unpack_from(payload)
    if operation != BOUND:
        return what, number, None
    try:
        value = json.loads(payload[BINDING.size :])
    except RecursionError:
        raise ValueError("a binding is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("a binding is not an object")
    return what, number, value


def pack_ids(address: int, first: int, oldest: int, ids: list[bytes]) -> bytes:
    """Return the payload of a DUPLICATE_IDS record."""
    head = DUPLICATE_IDS.pack(Kind.DUPLICATE_IDS, 0, 0, address, first, oldest, len(ids))
    pack = _LENGTH.pack
    return head + b"".join([pack(len(identifier)) + identifier for identifier in ids])


def unpack_ids(data: bytes, begin: int, end: int) -> tuple[int, int, int, list[bytes]]:
    """Return address, first position, oldest position and ids. Raises `ValueError` for a malformed payload."""
    _, _, _, address, first, oldest, count = DUPLICATE_IDS.unpack_from(data, begin)
    ids, at = [], begin + DUPLICATE_IDS.size
    for _ in range(count):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        if at > end:
            raise ValueError
        ids.append(data[start:at])
    return address, first, oldest, ids


def pack_runs(positions: Iterable[int]) -> bytes:
    """Encode ascending positions as runs of u32 first, u32 count."""
    runs = bytearray()
    first = stop = 0
    for position in (*positions, -1):  # -1 ends the last run
        if position != stop:
            if stop:
                runs += RUN.pack(first, stop - first)
            first = position
        stop = position + 1
    return bytes(runs)


#: first, count
RUN: Final = Struct("<II")


def pack_numbers(numbers: list[int]) -> bytes:
    """Encode the message numbers that end a SETTLED or DELIVERED record."""
    return pack(f"<{len(numbers)}Q", *numbers)


def unpack_numbers(data: bytes | memoryview) -> tuple[int, ...]:
    """Decode the message numbers that end a SETTLED or DELIVERED record."""
    return unpack(f"<{len(data) >> 3}Q", data[: len(data) & -8])


def unpack_runs(data: bytes | memoryview) -> Iterable[tuple[int, int]]:
    """Return first and count of each run."""
    return RUN.iter_unpack(data)


#: numbers at the end of the prologue: bytes of head and body, number of queues, bytes of the traits part
LENGTHS: Final = Struct("<IIII")
LENGTHS_AT: Final = MESSAGE.size - LENGTHS.size
_unpack = LENGTHS.unpack_from
#: Minimum bytes of the payload of a message record.
LEAST_MESSAGE: Final = MESSAGE.size + TRAITS.size + 2

#: Greatest id of a queue or address, and greatest message or transaction number. Ids and numbers start at 1.
GREATEST_ID, GREATEST_NUMBER = 0xFFFF_0000, 1 << 62


def fits(data: bytes, begin: int, end: int) -> bool:
    """Return whether the payload from ``begin`` to ``end`` can be that of a message record."""
    if end - begin < LEAST_MESSAGE:
        return False
    head, body, queues, traits = _unpack(data, begin + LENGTHS_AT)
    at = begin + MESSAGE.size + 4 * queues
    if at + traits + head + body + 2 != end or traits < TRAITS.size:
        return False
    block, *parts = TRAITS.unpack_from(data, at)
    return (
        TRAITS.size + sum(parts) <= traits
        and block < head
        and data[begin + 2] <= 9  # the byte of the priority
        and data[begin + 15] < 0x40  # the last byte of the message number
        and data[begin + 1] & ROUTING_MASK != ROUTING_MASK
    )
