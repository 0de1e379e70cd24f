"""The record encoder: turns messages and events of one reactor turn into records for the newest segment.

Names of queues, addresses and consumers are written before they are used, so that each segment can be read alone.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple
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
    framed_message,
    message_head,
    pack_name,
    pack_numbers,
    scoped,
)
from .segment import Footer, ReadFile

#: Messages, and bytes of them, in one record: a millisecond or two of work. A message that is larger has one to itself.
MAX_RETAINED_MESSAGES, MAX_RETAINED_BYTES = 2000, 1 << 20

#: States in RETAINED of messages in a queue: waiting, or acknowledged by a consumer.
RETAINED_WAITING, RETAINED_ACKNOWLEDGED = 0, 1


class RetainedPart:
    """What goes into one record: messages, and which of them entered a queue in which way."""

    __slots__ = ("entries", "messages")

    def __init__(self, messages: list[Message], entries: list[tuple[Entries, array[int] | None]]) -> None:
        self.messages = messages
        self.entries = entries  # with their places among the messages; None: all of them


def retained_parts(found: Sequence[Entries]) -> Iterator[RetainedPart]:
    """What is in entries, put into records of bearable size. The entries are empty then."""
    if len(found) == 1:
        entries = found[0]
        messages, entries.messages = entries.messages, []
        for some in _slices(messages):
            yield RetainedPart(some, [(entries, None)])
        return
    places: dict[Message, int] = {}  # a message that enters several queues at once is written once
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


def retained_columns(
    messages: Sequence[Message], name_address: Callable[[AddressBase], int]
) -> tuple[int, bytes, bytes]:
    """How many traits the messages have, the columns of their record, and the traits.

    ``name_address`` gives the number of an address, and writes a NAME record if needed.
    """
    which, known = _traits(messages, name_address)
    fixed = (
        array("Q", [message.number for message in messages]),
        array("Q", [message.timestamp for message in messages]),
        array("Q", [message.expires for message in messages]),
        which,
        array("I", [message.body_at for message in messages]),
        array("I", [len(message.tail) for message in messages]),
    )
    return len(known), b"".join(fixed), b"".join(known)


def _traits(
    messages: Sequence[Message], name_address: Callable[[AddressBase], int]
) -> tuple[array[int], list[bytes]]:
    """Of which traits each message is, and the traits as they stand in the record."""
    first, home = messages[0].traits, messages[0].address
    if (
        [message.traits for message in messages].count(first)
        == len(messages)
        == [message.address for message in messages].count(home)
    ):
        record = first.record or encode_traits(first)
        return array("I", bytes(4 * len(messages))), [
            RETAINED_TRAITS.pack(name_address(home), len(record)) + record
        ]
    known: dict[bytes, int] = {}
    seen: dict[tuple[Traits, AddressBase], int] = {}
    which = array("I")
    for message in messages:
        traits, address = message.traits, message.address
        place = seen.get((traits, address))
        if place is None:
            record = traits.record or encode_traits(traits)
            key = RETAINED_TRAITS.pack(name_address(address), len(record)) + record
            place = seen[traits, address] = known.setdefault(key, len(known))
        which.append(place)
    return which, list(known)


def pack_entries(
    part: RetainedPart, ids: Callable[[QueueBase], int], name_consumer: Callable[[str], int]
) -> bytes:
    """Which queues had the messages of a part; ``ids`` gives the number of one."""
    packed = []
    for entries, places in part.entries:
        consumer = name_consumer(entries.taker) if entries.taker else 0
        outcome = RETAINED_WAITING if entries.taker is None else RETAINED_ACKNOWLEDGED
        if places is None or len(places) == len(part.messages):
            packed.append(RETAINED_ENTRIES.pack(ids(entries.queue), outcome, 0, consumer, 0))
        else:
            packed.append(RETAINED_ENTRIES.pack(ids(entries.queue), outcome, 0, consumer, len(places)))
            packed.append(places.tobytes())
    return b"".join(packed)


_U32 = Struct("<I")
_pack_message = MESSAGE.pack
_pack_prefix = PREFIX.pack

#: The greatest delivery count in a message record.
MAX_DELIVERIES = 255

#: The most new deliveries in one STATE or PAGE_STATE record.
MAX_NEW_DELIVERIES = 65535

#: The most consumers that one segment can name: later ones are not known.
MAX_CONSUMERS = 65535


class StateChange(NamedTuple):
    """Something happened to a message in one queue, and how it stood there after that."""

    ref: Reference
    cause: Cause
    deliveries: int
    attempts: int
    due: int
    recurrence: bytes  # packed; empty for none
    time: int  # epoch ms

    @classmethod
    def of(cls, ref: Reference, cause: Cause, time: int) -> StateChange:
        """As it stands there now."""
        recurrence = b"" if ref.recurrence is None else pack_recurrence(ref.recurrence)
        return cls(ref, cause, ref.deliveries, ref.attempts, _due(ref), recurrence, time)

    @property
    def place(self) -> DeliveryState:
        """How it stood there."""
        return self.deliveries, self.attempts, self.due, self.recurrence


#: Deliveries, failed ones of them, due time, recurrence.
DeliveryState = tuple[int, int, int, bytes]


class RecordEncoder:
    """Records for one segment. Names are written before they are used, so that each segment can be read alone.

    ``at`` is where the next record will begin; ``footer`` has those that an earlier run wrote, ``consumers`` how
    many consumers it named. Between `open` and `close` records become one TRANSACTION.
    """

    __slots__ = (
        "_address",
        "_address_id",
        "_addresses",
        "_consumers",
        "_flags",
        "_inner",
        "_last_consumer",
        "_next_address",
        "_parts",
        "_priority",
        "_queue",
        "_queues",
        "_rest",
        "_starts",
        "_traits",
        "_traits_size",
        "at",
        "footer",
    )

    def __init__(
        self, at: int, next_address: Iterable[int], footer: Footer | None = None, consumers: int = 0
    ) -> None:
        self.at = at
        self.footer = Footer(array("I")) if footer is None else footer
        self._starts = self.footer.starts
        self._next_address = iter(next_address)
        self._addresses: set[int] = set()
        self._queues: dict[int, bytes] = {}  # packed ids of queues with a NAME record in this segment
        self._consumers: dict[str, int] = {}
        self._last_consumer = consumers
        self._parts: list[bytes] = []
        self._inner: list[bytes] | None = None
        # of the message before: see `_prepare`
        self._traits: Traits | None = None
        self._queue: QueueBase | None = None
        self._address: AddressBase | None = None
        self._flags = self._priority = self._traits_size = self._address_id = 0
        self._rest = b""

    def take(self) -> bytes:
        """All records since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)

    # ---- records

    def add(self, payload: bytes, scope: int = 0) -> None:
        """Any record, given without its frame; for a ``scope`` alone where that is given (`record.SCOPED`)."""
        if scope:
            payload = scoped(payload, scope)
        if self._inner is not None:
            self._inner.append(payload)
        else:
            self._frame(payload)

    def _frame(self, payload: bytes) -> None:
        self._starts.append(self.at)
        self.at += len(payload) + 8
        self._parts.append(framed(payload))

    def message(self, message: Message, ref: Reference) -> None:
        """A message that one queue holds, and where it stands there. The hot one."""
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
        tail, body_at, number, timestamp = message.tail, message.body_at, message.number, message.timestamp
        size = len(tail)
        head = (
            _pack_message(
                1,
                self._flags,
                self._priority,
                deliveries,
                self._address_id,
                number,
                timestamp,
                message.expires,
                0,
                0,
                body_at,
                size - body_at - 2,
                1,
                self._traits_size,
            )
            + self._rest
        )
        if self._inner is not None:
            self._inner.append(head + tail)
        else:
            size += len(head)
            at = self.at
            self.at = at + 8 + size
            self._starts.append(at)
            self._parts += (_pack_prefix(size, crc32(tail, crc32(head))) + head, tail)
        footer = self.footer
        if number > footer.greatest_number > 0 and timestamp >= footer.greatest_timestamp:
            footer.greatest_number, footer.greatest_timestamp = number, timestamp
        else:
            footer.include(number, timestamp)

    def _prepare(self, message: Message, queue: QueueBase) -> bool:
        """Note what is the same in all messages with these traits for this queue; False: names are to be written."""
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
        """A message that several queues hold: encoded once, with the numbers of all of them."""
        queues, deliveries, ids = self._queues, refs[0].deliveries, []
        address = message.address.number
        if address in self._addresses and deliveries <= MAX_DELIVERIES:
            for ref in refs:
                packed = queues.get(ref.queue.number)
                if packed is None or ref.deliveries != deliveries or ref.attempts or ref.state == SCHEDULED:
                    break
                if ref.recurrence is not None:
                    break
                ids.append(packed)
            else:
                self._add_message(message, message_head(message, address, b"".join(ids), 0, deliveries))
                return
        self.copies(message, refs)

    def _add_message(self, message: Message, head: bytes) -> None:
        tail = message.tail
        if self._inner is not None:
            self._inner.append(head + tail)
        else:
            frame = framed_message(head, tail)
            at = self.at
            self.at = at + len(frame) + len(tail)
            self._starts.append(at)
            self._parts += (frame, tail)
        footer = self.footer
        if message.number > footer.greatest_number > 0 and message.timestamp >= footer.greatest_timestamp:
            footer.greatest_number, footer.greatest_timestamp = message.number, message.timestamp
        else:
            footer.include(message.number, message.timestamp)

    def copies(
        self,
        message: Message,
        refs: list[Reference],
        changes: Iterable[StateChange] = (),
        *,
        logged: Mapping[Reference, int] | None = None,
        time: int = 0,
    ) -> None:
        """A message, and where it stands in each of the queues that hold it.

        ``changes`` have no record yet. ``logged`` is for a message that has a record already: the logged deliveries of
        each reference. It enters the queues of the others now.
        """
        address = self.name_address(message.address)
        ids = b"".join([self._queues.get(ref.queue.number) or self.name_queue(ref.queue) for ref in refs])
        happened: dict[Reference, list[StateChange]] = {}
        for change in changes:
            happened.setdefault(change.ref, []).append(change)
        due = _due_when_sent(refs, happened) if happened and logged is None else _due(refs[0])
        deliveries = min([happened[ref][0].deliveries if ref in happened else ref.deliveries for ref in refs])
        deliveries = min(deliveries, MAX_DELIVERIES)
        head = message_head(message, address, ids, due, deliveries)
        if logged is not None:
            head = b"%c%c%b" % (head[0], head[1] | COPY, head[2:])
        states: list[bytes] = []
        for ref in refs:
            known = deliveries if logged is None else logged.get(ref, -1)
            if known < ref.deliveries or ref in happened or _differs(ref, due, deliveries):
                states += _states(ref, happened.get(ref, ()), (deliveries, 0, due, b""), known, time)
        together = self._inner is None and len(states) > 0
        if together:
            self.open()
        self._add_message(message, head)
        for state in states:
            self.add(state)
        if together:
            self.close()

    def retained(self, part: RetainedPart, now: int) -> None:
        """Messages that no restart brings back, and what became of them in their queues."""
        messages = part.messages
        count, fixed, traits = retained_columns(messages, self.name_address)
        entries = pack_entries(part, self._queue_number, self.name_consumer)
        head = RETAINED.pack(Kind.RETAINED, 0, 0, len(messages), count, len(part.entries), now, len(traits))
        head = b"".join((head, fixed, traits, entries))
        tails = b"".join([message.tail for message in messages])
        frame = framed_message(head, tails)
        self._starts.append(self.at)
        self.at += len(frame) + len(tails)
        self._parts += (frame, tails)
        numbers, times = [each.number for each in messages], [each.timestamp for each in messages]
        self.footer.include(min(numbers), min(times))
        self.footer.include(max(numbers), max(times))

    def _queue_number(self, queue: QueueBase) -> int:
        self.name_queue(queue)
        return queue.number

    def change(self, change: StateChange, scope: int = 0) -> None:
        """What happened to a message in a queue; its deliveries have records already."""
        queue = change.ref.queue
        if queue.number not in self._queues:
            self.name_queue(queue)
        self.add(_state(change.ref, change.cause, 0, change.place, change.time), scope)

    def settled(
        self,
        queue: QueueBase,
        reason: Reason,
        now: int,
        numbers: list[int],
        taker: str = "",
        scope: int = 0,
    ) -> None:
        """A queue let go of messages, to the consumer with that name where it is known."""
        if queue.number not in self._queues:
            self.name_queue(queue)
        consumer = self.name_consumer(taker) if taker else 0
        fixed = SETTLED.pack(Kind.SETTLED, reason, consumer, queue.number, now)
        self.add(fixed + pack_numbers(numbers), scope)

    def delivered(self, queue: QueueBase, now: int, numbers: list[int], scope: int = 0) -> None:
        """Messages of a queue went out to consumers once more."""
        if queue.number not in self._queues:
            self.name_queue(queue)
        self.add(DELIVERED.pack(Kind.DELIVERED, 0, 0, queue.number, now) + pack_numbers(numbers), scope)

    # ---- transactions

    def open(self) -> None:
        """What follows takes effect as one."""
        self._inner = []

    def close(self, number: int = 0) -> None:
        """End of what `open` began; pages know it by ``number`` where that is not 0."""
        inner, self._inner = self._inner or [], None
        if number or len(inner) > 1:
            parts = [TRANSACTION.pack(Kind.TRANSACTION, 0, 0, len(inner), number)]
            for payload in inner:
                parts += (_U32.pack(len(payload)), payload)
            self._frame(b"".join(parts))
        elif inner:
            self._frame(inner[0])

    # ---- names

    def name_queue(self, queue: QueueBase) -> bytes:
        """Tell the name of a queue and its address if this segment does not have them, and return its packed id."""
        packed = self._queues.get(queue.number)
        if packed is None:
            packed = self.name_queue_alone(queue)
            address = self.name_address(queue.address)
            self._frame(QUEUE_ADDRESS.pack(Kind.QUEUE_ADDRESS, 0, 0, queue.number, address))
        return packed

    def name_queue_alone(self, queue: QueueBase) -> bytes:
        """The same without the address, for files whose own records have it."""
        packed = self._queues.get(queue.number)
        if packed is None:
            self._frame(pack_name(QUEUE, queue.number, queue.name))
            packed = self._queues[queue.number] = _U32.pack(queue.number)
        return packed

    def name_consumer(self, name: str) -> int:
        """Tell the name of a consumer if this segment does not have it, and return its number here; 0: too many."""
        number = self._consumers.get(name, 0)
        if not number and self._last_consumer < MAX_CONSUMERS:
            number = self._consumers[name] = self._last_consumer = self._last_consumer + 1
            self._frame(pack_name(CONSUMER, number, name))
        return number

    def name_address(self, address: AddressBase) -> int:
        """Tell the name of an address if this segment does not have it, and return its id; a new one if it has none."""
        if not address.number:
            address.number = next(self._next_address)
        number = address.number
        if number not in self._addresses:
            self._addresses.add(number)
            self._frame(pack_name(ADDRESS, number, address.name))
        return number

    def ending(self, read: ReadFile, size: int) -> bytes:
        """Footer and trailer (see `Stream.close`)."""
        self.footer.addresses = tuple(sorted({*self.footer.addresses, *self._addresses}))
        return self.footer.ending_of(read, size)


def _due(ref: Reference) -> int:
    return ref.due if ref.state == SCHEDULED else 0


def _due_when_sent(refs: list[Reference], happened: dict[Reference, list[StateChange]]) -> int:
    """The due time that a message was sent with. MESSAGE has it, so it is removed from the changes."""
    firsts = [each[0] for each in happened.values() if is_initial_schedule(each[0])]
    if not firsts:
        return _due(refs[0])
    due = firsts[0].due
    if len(firsts) < len(refs) or any(each.due != due for each in firsts):
        return 0
    for ref, changes in list(happened.items()):
        del changes[0]
        if not changes:
            del happened[ref]
    return due


def _differs(ref: Reference, due: int, deliveries: int) -> bool:
    """Whether a reference stands otherwise than a MESSAGE says."""
    return (
        ref.deliveries != deliveries
        or ref.attempts > 0
        or ref.recurrence is not None
        or (ref.due if ref.state == SCHEDULED else 0) != due
    )


def is_initial_schedule(change: StateChange) -> bool:
    """Whether it is that a message was sent with a due time."""
    return change.cause is Cause.SCHEDULED and not change.deliveries


def _states(
    ref: Reference, changes: Iterable[StateChange], place: DeliveryState, known: int, time: int
) -> Iterator[bytes]:
    """What comes behind a MESSAGE that says ``place`` of one of its queues; ``known`` deliveries were logged, -1: none,
    nor that it entered the queue.
    """
    if known < 0:
        known, place = 0, (0, 0, 0, b"")
        yield _state(ref, Cause.ADDED, 0, place, time)
    for change in changes:
        place = change.place
        yield _state(ref, change.cause, change.deliveries - known, place, change.time)
        known = max(known, change.deliveries)
    now = StateChange.of(ref, Cause.REPEATED, time)
    if now.place != place or ref.deliveries > known:
        yield _state(ref, Cause.REPEATED, ref.deliveries - known, now.place, time)


def _state(ref: Reference, cause: Cause, delivered: int, place: DeliveryState, time: int) -> bytes:
    """The payload of a STATE record that is the first with ``delivered`` deliveries."""
    deliveries, attempts, due, recurrence = place
    delivered = min(max(delivered, 0), MAX_NEW_DELIVERIES)
    number, queue = ref.message.number, ref.queue.number
    payload = STATE.pack(Kind.STATE, cause, delivered, queue, number, deliveries, attempts, due, time)
    payload += recurrence
    return payload if ref.message.traits.retained else scoped(payload, FOR_RESTARTS)


def pack_recurrence(recurrence: Recurrence) -> bytes:
    """A recurrence as it ends a STATE record."""
    return json.dumps(recurrence_fields(recurrence), separators=(",", ":")).encode()


def recurrence_fields(recurrence: Recurrence) -> dict[str, Any]:
    """How a scheduled message goes on, as JSON."""
    return {name: getattr(recurrence, name) for name in ("period", "repeat", "cron", "delay")}


def unpack_recurrence(data: bytes) -> Recurrence | None:
    """The recurrence that ends a STATE record, None where there is none. `ValueError` for what is none."""
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


#: An event in place of a reason: a reference was delivered.
DELIVERY = -1

#: An event: write a NUMBERS record.
RENEW_NUMBERS = "numbers"

#: The same, after all transactions of an earlier run are complete.
TRANSACTIONS_COMPLETE = "complete"


class TransactionStart:
    """A transaction that is open. It has a number once a page needs one.

    ``spare`` is how many bytes of others may still become one with it, after it was closed.
    """

    __slots__ = ("number", "spare")

    def __init__(self, spare: int = 0) -> None:
        self.number = 0
        self.spare = spare


class TransactionEnd:
    """The end of a transaction."""

    __slots__ = ("opened",)

    def __init__(self, opened: TransactionStart) -> None:
        self.opened = opened


class RecordBatch:
    """Message numbers by queue and fact, of one turn: one record for each. Deliveries come first.

    ``scope`` limits the readers (`record.SCOPED`).
    """

    __slots__ = (
        "_by_fact",
        "_encoder",
        "_fact",
        "_now",
        "_numbers",
        "_out",
        "_out_numbers",
        "_out_queue",
        "_queue",
        "_scope",
    )

    def __init__(self, encoder: RecordEncoder, now: int, scope: int = 0) -> None:
        self._encoder = encoder
        self._now = now
        self._scope = scope
        self._by_fact: dict[tuple[QueueBase, int], list[int]] = {}
        self._queue: QueueBase | None = None  # of the last one
        self._fact = 0
        self._numbers: list[int] = []
        self._out: dict[QueueBase, list[int]] = {}
        self._out_queue: QueueBase | None = None  # of the last one that went out
        self._out_numbers: list[int] = []

    def went_out(self, ref: Reference) -> None:
        """A message went out to a consumer."""
        if ref.queue is not self._out_queue:
            self._out_queue = ref.queue
            self._out_numbers = self._out.setdefault(ref.queue, [])
        self._out_numbers.append(ref.message.number)

    def add(self, ref: Reference, fact: int) -> None:
        """One more: ``fact`` is a `Reason`."""
        if ref.queue is not self._queue or fact != self._fact:
            self._queue, self._fact = ref.queue, fact
            self._numbers = self._by_fact.setdefault((ref.queue, fact), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        """Put them into records."""
        if self._out:
            self._flush_out()
        if not self._by_fact:
            return
        for (queue, fact), numbers in self._by_fact.items():
            self._encoder.settled(queue, Reason(fact), self._now, numbers, scope=self._scope)
        self._by_fact = {}
        self._queue = None

    def _flush_out(self) -> None:
        for queue, numbers in self._out.items():
            self._encoder.delivered(queue, self._now, numbers, self._scope)
        self._out = {}
        self._out_queue = None


class RecordBatchByConsumer(RecordBatch):
    """The same where messages are retained: by the consumer that has acknowledged too, and apart of the others.

    Another class, so that others need not ask for it.
    """

    __slots__ = ("_by_taker", "_hidden", "_taker")

    def __init__(self, encoder: RecordEncoder, now: int, scope: int = 0) -> None:
        super().__init__(encoder, now, scope)
        self._hidden: RecordBatch | None = None  # of messages that are not retained
        self._by_taker: dict[tuple[QueueBase, int, ConsumerBase | None], list[int]] = {}
        self._taker: ConsumerBase | None = None  # of the last one

    def _of_hidden(self) -> RecordBatch:
        if self._hidden is None:
            self._hidden = RecordBatch(self._encoder, self._now, FOR_RESTARTS)
        return self._hidden

    def went_out(self, ref: Reference) -> None:
        if ref.message.traits.retained == NOWHERE:
            self._of_hidden().went_out(ref)
        else:
            super().went_out(ref)

    def add(self, ref: Reference, fact: int) -> None:
        if ref.message.traits.retained == NOWHERE:
            self._of_hidden().add(ref, fact)
            return
        queue, taker = ref.queue, ref.last_rejected_by if fact == Reason.ACKNOWLEDGED else None
        if queue is not self._queue or fact != self._fact or taker is not self._taker:
            self._queue, self._fact, self._taker = queue, fact, taker
            self._numbers = self._by_taker.setdefault((queue, fact, taker), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        if self._out:
            self._flush_out()
        for (queue, fact, taker), numbers in self._by_taker.items():
            name = "" if taker is None else taker.consumer_name
            self._encoder.settled(queue, Reason(fact), self._now, numbers, name, scope=self._scope)
        if self._hidden is not None:
            self._hidden.flush()
        self._by_taker = {}
        self._queue = None
