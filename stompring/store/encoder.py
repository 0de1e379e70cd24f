"""The record encoder: it encodes messages and events of a reactor turn as records of the newest segment."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from stompring.broker.clock import Recurrence
from stompring.broker.message import NOWHERE, AddressBase, Message, Traits
from stompring.broker.ports import Entries, Reason
from stompring.broker.reference import SCHEDULED, ConsumerBase, QueueBase, Reference
from stompring.errors import Refused

from .record import (
    ADDRESS,
    CONSUMER,
    COPY,
    DELIVERED,
    FOR_RESTARTS,
    MESSAGE,
    PREFIX,
    QUEUE,
    QUEUE_ADDRESS,
    RETAINED,
    RETAINED_ENTRIES,
    RETAINED_TRAITS,
    SETTLED,
    STATE,
    TRANSACTION,
    Cause,
    Kind,
    encode_traits,
    framed,
    message_head,
    pack_name,
    pack_numbers,
    scoped,
)
from .segment import Footer, ReadFile

#: Maximum number of messages and bytes in a RETAINED record: 1 to 2 ms of work. A larger message has its own record.
MAX_RETAINED_MESSAGES, MAX_RETAINED_BYTES = 2000, 1 << 20

#: States of messages in the queues of a RETAINED record: waiting, or acknowledged by a consumer.
RETAINED_WAITING, RETAINED_ACKNOWLEDGED = 0, 1


class RetainedPart(NamedTuple):
    """The contents of one RETAINED record: messages, and the queues that these entered."""

    messages: list[Message]
    #: the `Entries` of each queue and consumer, with the indexes of their messages in ``messages``; None: all messages
    entries: list[tuple[Entries, array[int] | None]]


def retained_parts(found: Sequence[Entries]) -> Iterator[RetainedPart]:
    """Divide the messages of ``found`` into parts, each for one RETAINED record. Removes them from ``found``."""
    if len(found) == 1:
        entries = found[0]
        messages, entries.messages = entries.messages, []
        for some in _slices(messages):
            yield RetainedPart(some, [(entries, None)])
        return
    places: dict[Message, int] = {}  # index of each message in the record, which has each message once
    within: list[tuple[Entries, array[int] | None]] = []
    size = 0
    for entries in found:
        messages, entries.messages = entries.messages, []
        for some in _slices(messages):
            if places and (len(places) + len(some) > MAX_RETAINED_MESSAGES or size > MAX_RETAINED_BYTES):
                yield RetainedPart(list(places), within)
                places, within, size = {}, [], 0
            before = len(places)
            at = array("I", [places.setdefault(message, len(places)) for message in some])
            within.append((entries, at))
            if len(places) > before:
                size += sum([len(message.tail) for message in some])
    if places:
        yield RetainedPart(list(places), within)


def _slices(messages: list[Message]) -> Iterator[list[Message]]:
    if (
        len(messages) <= MAX_RETAINED_MESSAGES
        and sum([message.size for message in messages]) <= MAX_RETAINED_BYTES
    ):
        yield messages
        return
    begin = size = 0
    for place, message in enumerate(messages):
        size += message.size
        if place > begin and (size > MAX_RETAINED_BYTES or place - begin >= MAX_RETAINED_MESSAGES):
            yield messages[begin:place]
            begin, size = place, message.size
    yield messages[begin:]


_U32: Final = Struct("<I")
_pack_message = MESSAGE.pack
_pack_prefix = PREFIX.pack

#: Maximum delivery count in a MESSAGE record (a byte). A higher count needs a STATE record.
MAX_DELIVERIES: Final = 255

#: Maximum number of new deliveries in a STATE or PAGE_STATE record (16 bits).
MAX_NEW_DELIVERIES: Final = 65535

#: Maximum number of consumers that one segment can name (16 bits). Further consumers are recorded as unknown.
MAX_CONSUMERS: Final = 65535


class MessageState(NamedTuple):
    """The state of a message in one queue, as in a STATE record."""

    deliveries: int
    attempts: int  # number of failed deliveries
    due: int  # epoch ms; 0: not scheduled
    recurrence: bytes = b""  # JSON (`recurrence_fields`); empty: none

    @classmethod
    def of(cls, ref: Reference) -> MessageState:
        recurrence = b""
        if ref.recurrence is not None:
            recurrence = json.dumps(recurrence_fields(ref.recurrence), separators=(",", ":")).encode()
        return cls(ref.deliveries, ref.attempts, _due(ref), recurrence)


class StateChange(NamedTuple):
    """A change of a message in one queue, and its state after the change."""

    ref: Reference
    cause: Cause
    state: MessageState
    time: int  # epoch ms


class RecordEncoder:
    """Encodes the records of one segment. The segment has the name of a queue, address or consumer before its first
    use, so that each segment can be read alone.

    ``at``: offset of the next record. ``parts``: encoded bytes to append. ``footer``: index of all records in the
    segment, including records of an earlier run. ``consumers``: number of consumers that an earlier run named in the
    segment. The records between `open` and `close` become one TRANSACTION record.
    """

    def __init__(
        self, at: int, next_address: Iterator[int], footer: Footer | None = None, consumers: int = 0
    ) -> None:
        self.at = at
        self.footer = Footer(array("I")) if footer is None else footer
        self._starts = self.footer.starts
        self._next_address = next_address
        self._addresses: set[int] = set()
        self._queues: dict[int, bytes] = {}  # packed ids of queues with a NAME record in this segment
        self._consumers: dict[str, int] = {}
        self._last_consumer = consumers
        self.parts: list[bytes] = []
        self._inner: list[bytes] | None = None
        # fields of the previous record that a record with the same traits and queue repeats, set by `_prepare`
        self._traits: Traits | None = None
        self._queue: QueueBase | None = None
        self._address: AddressBase | None = None
        self._flags = self._priority = self._traits_size = self._address_id = 0
        self._rest = b""

    # ---- records

    def add(self, payload: bytes, scope: int = 0) -> None:
        """Add a record with this payload. ``scope``: readers that use the record (`record.SCOPED`); 0: all readers."""
        if scope:
            payload = scoped(payload, scope)
        if self._inner is not None:
            self._inner.append(payload)
        else:
            self._frame(payload)

    def _frame(self, payload: bytes) -> None:
        self._starts.append(self.at)
        self.at += len(payload) + 8
        self.parts.append(framed(payload))

    def message(self, message: Message, ref: Reference) -> None:
        """Add a message that one queue holds, and its state there. This is hot code: the most frequent record."""
        traits, deliveries = message.traits, ref.deliveries
        if (
            (
                traits is not self._traits
                or ref.queue is not self._queue
                or message.address is not self._address
            )
            and not self._prepare(message, ref.queue)
        ) or (ref.state == SCHEDULED or ref.attempts or deliveries > MAX_DELIVERIES):
            self.copies(message, [ref])
            return
        body_at = message.body_at
        head = (
            _pack_message(
                1,
                self._flags,
                self._priority,
                deliveries,
                self._address_id,
                message.number,
                message.timestamp,
                message.expires,
                0,
                0,
                body_at,
                len(message.tail) - body_at - 2,
                1,
                self._traits_size,
            )
            + self._rest
        )
        self._add_message(message, head)

    def _prepare(self, message: Message, queue: QueueBase) -> bool:
        """Cache the parts of a record that depend on traits and queue. Returns False if the segment does not have the
        names of queue and address yet.
        """
        address, ids = message.address.number, self._queues.get(queue.number)
        if ids is None or address not in self._addresses:
            return False
        traits = message.traits
        record = traits.record or encode_traits(traits)
        self._traits, self._queue, self._address = traits, queue, message.address
        self._flags, self._priority, self._traits_size = record[0], record[1], len(record) - 2
        self._address_id, self._rest = address, ids + record[2:]
        return True

    def message_in_queues(self, message: Message, refs: list[Reference]) -> None:
        """Add a message that several queues hold. If the states are equal, one record has the numbers of all queues."""
        queues, deliveries, ids = self._queues, refs[0].deliveries, []
        address = message.address.number
        if address in self._addresses and deliveries <= MAX_DELIVERIES:
            for ref in refs:
                packed = queues.get(ref.queue.number)
                if packed is None or ref.deliveries != deliveries or ref.attempts:
                    break
                if ref.state == SCHEDULED or ref.recurrence is not None:
                    break
                ids.append(packed)
            else:
                self._add_message(message, message_head(message, address, b"".join(ids), 0, deliveries))
                return
        self.copies(message, refs)

    def _add_message(self, message: Message, head: bytes) -> None:
        tail, number, timestamp = message.tail, message.number, message.timestamp
        if self._inner is not None:
            self._inner.append(head + tail)
        else:  # two parts avoid a copy of the tail
            at, size = self.at, len(head) + len(tail)
            self.at = at + 8 + size
            self._starts.append(at)
            self.parts += (_pack_prefix(size, crc32(tail, crc32(head))) + head, tail)
        footer = self.footer
        if number > footer.greatest_number > 0 and timestamp >= footer.greatest_timestamp:
            footer.greatest_number, footer.greatest_timestamp = number, timestamp
        else:
            footer.include(number, timestamp)

    def copies(
        self,
        message: Message,
        refs: list[Reference],
        changes: Iterable[StateChange] = (),
        *,
        logged: Mapping[Reference, int] | None = None,
        time: int = 0,
    ) -> None:
        """Add the record of a message, and the records of its state in each of its queues.

        ``changes``: state changes that no record has yet. ``logged``: None if the message has no earlier record, else
        the number of deliveries that records have, by reference. A reference that is missing in ``logged`` is new: the
        message enters its queue at ``time`` (epoch ms).
        """
        address = self.name_address(message.address)
        ids = b"".join([self._queues.get(ref.queue.number) or self.name_queue(ref.queue) for ref in refs])
        happened: dict[Reference, list[StateChange]] = {}
        for change in changes:
            happened.setdefault(change.ref, []).append(change)
        due = _due_when_sent(refs, happened) if happened and logged is None else _due(refs[0])
        counts = [happened[ref][0].state.deliveries if ref in happened else ref.deliveries for ref in refs]
        deliveries = min(MAX_DELIVERIES, *counts)
        head = message_head(message, address, ids, due, deliveries)
        if logged is not None:
            head = b"%c%c%b" % (head[0], head[1] | COPY, head[2:])
        states: list[bytes] = []
        sent = MessageState(deliveries, 0, due)
        for ref in refs:
            known = deliveries if logged is None else logged.get(ref, -1)
            if known < ref.deliveries or ref in happened or MessageState.of(ref) != sent:
                states += _states(ref, happened.get(ref, ()), sent, known, time)
        together = self._inner is None and len(states) > 0
        if together:
            self.open()
        self._add_message(message, head)
        for state in states:
            self.add(state)
        if together:
            self.close()

    def retained(self, part: RetainedPart, now: int) -> None:
        """Add a RETAINED record: messages that recovery does not restore. ``now``: epoch ms."""
        messages = part.messages
        numbers = array("Q", [message.number for message in messages])
        times = array("Q", [message.timestamp for message in messages])
        which, known = self._retained_traits(messages)
        traits = b"".join(known)
        columns = (
            numbers,
            times,
            array("Q", [message.expires for message in messages]),
            which,
            array("I", [message.body_at for message in messages]),
            array("I", [len(message.tail) for message in messages]),
            traits,
            self._retained_entries(part),
        )
        counts = (len(messages), len(known), len(part.entries))
        head = RETAINED.pack(Kind.RETAINED, 0, 0, *counts, now, len(traits))
        self._frame(b"".join((head, *columns, *[message.tail for message in messages])))
        self.footer.include(min(numbers), min(times))
        self.footer.include(max(numbers), max(times))

    def _retained_traits(self, messages: Sequence[Message]) -> tuple[array[int], list[bytes]]:
        """Return the traits index of each message, and the encoded traits. Adds NAME records of the addresses."""
        first, home = messages[0].traits, messages[0].address
        if (
            [message.traits for message in messages].count(first)
            == len(messages)
            == [message.address for message in messages].count(home)
        ):
            return array("I", bytes(4 * len(messages))), [self._pack_retained_traits(first, home)]
        known: dict[bytes, int] = {}
        seen: dict[tuple[Traits, AddressBase], int] = {}
        which = array("I")
        for message in messages:
            traits, address = message.traits, message.address
            place = seen.get((traits, address))
            if place is None:
                key = self._pack_retained_traits(traits, address)
                place = seen[traits, address] = known.setdefault(key, len(known))
            which.append(place)
        return which, list(known)

    def _pack_retained_traits(self, traits: Traits, address: AddressBase) -> bytes:
        record = traits.record or encode_traits(traits)
        return RETAINED_TRAITS.pack(self.name_address(address), len(record)) + record

    def _retained_entries(self, part: RetainedPart) -> bytes:
        """Encode the queues that the messages of a part entered, and their states there."""
        packed: list[bytes] = []
        for entries, places in part.entries:
            queue, taker = entries.queue, entries.taker
            consumer = self.name_consumer(taker or "")
            self.name_queue(queue)
            outcome = RETAINED_WAITING if taker is None else RETAINED_ACKNOWLEDGED
            some = b"" if places is None or len(places) == len(part.messages) else places.tobytes()
            packed += (RETAINED_ENTRIES.pack(queue.number, outcome, 0, consumer, len(some) >> 2), some)
        return b"".join(packed)

    def change(self, change: StateChange, scope: int = 0) -> None:
        """Add a state change of a message in a queue. The record does not change the number of
        deliveries: each delivery has a record of its own.
        """
        self.name_queue(change.ref.queue)
        self.add(_state(change.ref, change.cause, 0, change.state, change.time), scope)

    # ---- transactions

    def open(self) -> None:
        """Begin a transaction: a restart applies all of its records or none."""
        self._inner = []

    def close(self, number: int = 0) -> None:
        """End the transaction. ``number``: the transaction's number, 0 if no page has messages of the transaction."""
        inner, self._inner = self._inner or [], None
        if number or len(inner) > 1:
            parts = [TRANSACTION.pack(Kind.TRANSACTION, 0, 0, len(inner), number)]
            for payload in inner:
                parts += (_U32.pack(len(payload)), payload)
            self._frame(b"".join(parts))
        elif inner:
            self._frame(inner[0])

    # ---- names

    def name_queue(self, queue: QueueBase, *, alone: bool = False) -> bytes:
        """Write the name of a queue and its address if this segment lacks them. Returns the packed id of the queue.
        ``alone``: without the address, for a file whose other records have the address.
        """
        packed = self._queues.get(queue.number)
        if packed is None:
            self._frame(pack_name(QUEUE, queue.number, queue.name))
            packed = self._queues[queue.number] = _U32.pack(queue.number)
            if not alone:
                address = self.name_address(queue.address)
                self._frame(QUEUE_ADDRESS.pack(Kind.QUEUE_ADDRESS, 0, 0, queue.number, address))
        return packed

    def name_consumer(self, name: str) -> int:
        """Write the name of a consumer if the segment lacks it. Returns its number; 0: no name, or too many names."""
        number = self._consumers.get(name, 0)
        if name and not number and self._last_consumer < MAX_CONSUMERS:
            number = self._consumers[name] = self._last_consumer = self._last_consumer + 1
            self._frame(pack_name(CONSUMER, number, name))
        return number

    def name_address(self, address: AddressBase) -> int:
        """Write the name of an address if this segment lacks it. Returns the id of the address, maybe a new one."""
        if not address.number:
            address.number = next(self._next_address)
        number = address.number
        if number not in self._addresses:
            self._addresses.add(number)
            self._frame(pack_name(ADDRESS, number, address.name))
        return number

    def ending(self, read: ReadFile, size: int) -> bytes:
        """Return the footer and trailer of the segment, which has ``size`` bytes (a `writer.Seal`)."""
        self.footer.addresses = tuple(sorted({*self.footer.addresses, *self._addresses}))
        return self.footer.ending_of(read, size)


def _due(ref: Reference) -> int:
    return ref.due if ref.state == SCHEDULED else 0


def _due_when_sent(refs: list[Reference], happened: dict[Reference, list[StateChange]]) -> int:
    """Return the due time with which a message was sent (0: none). Removes the changes that set this time, because the
    MESSAGE record has it.
    """
    firsts = [
        changes[0].state.due
        for changes in happened.values()
        if changes[0].cause is Cause.SCHEDULED and not changes[0].state.deliveries
    ]
    if not firsts:
        return _due(refs[0])
    due = firsts[0]
    if len(firsts) < len(refs) or firsts.count(due) < len(firsts):
        return 0
    for ref, changes in list(happened.items()):
        del changes[0]
        if not changes:
            del happened[ref]
    return due


def _states(
    ref: Reference, changes: Iterable[StateChange], state: MessageState, known: int, time: int
) -> Iterator[bytes]:
    """Yield the STATE records that follow a MESSAGE record with ``state``, for one queue of the message. ``known``:
    number of logged deliveries; -1: no record has logged that the message entered the queue.
    """
    if known < 0:
        known, state = 0, MessageState(0, 0, 0)
        yield _state(ref, Cause.ADDED, 0, state, time)
    for change in changes:
        state = change.state
        yield _state(ref, change.cause, state.deliveries - known, state, change.time)
        known = max(known, state.deliveries)
    now = MessageState.of(ref)
    if now != state or ref.deliveries > known:
        yield _state(ref, Cause.REPEATED, ref.deliveries - known, now, time)


def _state(ref: Reference, cause: Cause, delivered: int, state: MessageState, time: int) -> bytes:
    """Return the payload of a STATE record. ``delivered``: number of deliveries that no earlier record has."""
    deliveries, attempts, due, recurrence = state
    delivered = min(max(delivered, 0), MAX_NEW_DELIVERIES)
    number, queue = ref.message.number, ref.queue.number
    payload = STATE.pack(Kind.STATE, cause, delivered, queue, number, deliveries, attempts, due, time)
    payload += recurrence
    return payload if ref.message.traits.retained else scoped(payload, FOR_RESTARTS)


def recurrence_fields(recurrence: Recurrence) -> dict[str, Any]:
    """Return the JSON fields of a recurrence."""
    return {name: getattr(recurrence, name) for name in ("period", "repeat", "cron", "delay")}


def unpack_recurrence(data: bytes) -> Recurrence | None:
    """Decode the recurrence at the end of a STATE record, None if empty. Raises `ValueError` if malformed."""
    if not data:
        return None
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("a recurrence is an object")
    cron, counts = fields.pop("cron", None), fields.values()
    if not (cron is None or isinstance(cron, str)) or any(type(count) is not int for count in counts):
        raise ValueError("a recurrence has a cron expression and whole numbers")
    try:
        return Recurrence(**fields, cron=cron)
    except (TypeError, Refused) as fault:
        raise ValueError(str(fault)) from None


#: Used in place of a `Reason` for the event that a message was delivered.
DELIVERY: Final = -1

#: An event for which the journal writes a NUMBERS record.
RENEW_NUMBERS: Final = "numbers"

#: The event that all transactions of earlier runs are complete. The journal records it in a NUMBERS record.
TRANSACTIONS_COMPLETE: Final = "complete"


class Transaction:
    """An event that begins a transaction; the same object later is the event that ends it.

    ``number`` is 0 unless pages have messages of the transaction. ``spare``: maximum bytes of later transactions that
    may still be merged into this transaction. ``begun``: whether the beginning of the transaction was encoded.
    """

    def __init__(self, spare: int = 0) -> None:
        self.number = 0
        self.spare = spare
        self.begun = False


class RecordBatch:
    """Deliveries and settlements of one reactor turn, in groups by queue and reason. Each group becomes one record;
    the records of deliveries come first.

    ``scope``: readers that use the records (`record.SCOPED`). If ``retaining``, records also name the consumers, and
    messages that are not retained have separate records.
    """

    def __init__(self, encoder: RecordEncoder, now: int, scope: int = 0, *, retaining: bool = False) -> None:
        self._encoder = encoder
        self._now = now
        self._scope = scope
        self._settled: dict[tuple[QueueBase, int, ConsumerBase | None], list[int]] = {}
        # queue, reason, consumer and message numbers of the group that got the previous settlement
        self._queue: QueueBase | None = None
        self._fact = 0
        self._taker: ConsumerBase | None = None
        self._numbers: list[int] = []
        self._out: dict[QueueBase, list[int]] = {}
        self._out_queue: QueueBase | None = None  # queue of the previous delivery
        self._out_numbers: list[int] = []
        #: The batch for the messages that are not retained.
        self._hidden = RecordBatch(encoder, now, FOR_RESTARTS) if retaining else None

    def went_out(self, ref: Reference) -> None:
        """Add the delivery of a message to a consumer."""
        if self._hidden is not None and ref.message.traits.retained == NOWHERE:
            self._hidden.went_out(ref)
            return
        if ref.queue is not self._out_queue:
            self._out_queue = ref.queue
            self._out_numbers = self._out.setdefault(ref.queue, [])
        self._out_numbers.append(ref.message.number)

    def add(self, ref: Reference, fact: int) -> None:
        """Add a settlement. ``fact``: its `Reason` as a number."""
        taker: ConsumerBase | None = None
        if self._hidden is not None:
            if ref.message.traits.retained == NOWHERE:
                self._hidden.add(ref, fact)
                return
            if fact == Reason.ACKNOWLEDGED:
                taker = ref.last_rejected_by
        if ref.queue is not self._queue or fact != self._fact or taker is not self._taker:
            self._queue, self._fact, self._taker = ref.queue, fact, taker
            self._numbers = self._settled.setdefault((ref.queue, fact, taker), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        """Encode the batch as records, and empty it."""
        encoder, now, scope = self._encoder, self._now, self._scope
        for queue, numbers in self._out.items():
            encoder.name_queue(queue)
            head = DELIVERED.pack(Kind.DELIVERED, 0, 0, queue.number, now)
            encoder.add(head + pack_numbers(numbers), scope)
        for (queue, fact, taker), numbers in self._settled.items():
            encoder.name_queue(queue)
            consumer = 0 if taker is None else encoder.name_consumer(taker.consumer_name)
            head = SETTLED.pack(Kind.SETTLED, fact, consumer, queue.number, now)
            encoder.add(head + pack_numbers(numbers), scope)
        self._out.clear()
        self._settled.clear()
        self._queue = self._out_queue = None
        if self._hidden is not None:
            self._hidden.flush()
