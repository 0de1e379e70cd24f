"""Recovery: at start, the repair of the journal's segments, and the addresses, queues and messages of the journal."""

from __future__ import annotations

import gc
import logging
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from stompring.broker.address import Address, as_address, cache_size
from stompring.broker.broker import Broker
from stompring.broker.last_value import LastValueQueue
from stompring.broker.message import MESSAGE_OVERHEAD, MessageNumbers, RecoveredMessage
from stompring.broker.queue import Queue
from stompring.broker.reference import PENDING, QueueAttributes, Reference, ReferenceRun
from stompring.errors import StoreError
from stompring.settings.model import QueueConfiguration, RoutingType

from .bindings import UNUSABLE, Bindings, StoredAddress, StoredIds, StoredQueue
from .datadir import IDENTITY
from .encoder import RecordEncoder, unpack_recurrence
from .files import free_name
from .journal import (
    DAMAGED,
    MESSAGE_LEASE,
    RECORD_OVERHEAD,
    Journal,
    JournalSegment,
    LiveRecord,
    MessageReferences,
)
from .record import (
    ADDRESS,
    COPY,
    GREATEST_NUMBER,
    LENGTHS,
    LENGTHS_AT,
    MESSAGE,
    NOTE,
    QUEUE,
    Kind,
    StoredMessage,
    TraitsCache,
)
from .replay import GONE, MessageKind, ReadSegment, Replay, SegmentMessages
from .segment import HEADER, Fault, build_footer, record_end

log = logging.getLogger(__name__)

#: Number of bytes after a fault that are searched for a whole record.
SEARCH_BYTES: Final = 256 * 1024


def _has_records(data: bytes, at: int) -> bool:
    """Return whether a whole record begins after the fault at ``at``. If so, the fault is damage, not an incomplete
    write.
    """
    for start in range(at + 1, min(len(data) - 8, at + SEARCH_BYTES)):
        length = int.from_bytes(data[start : start + 4], "little")
        if (
            8 <= length <= len(data) - start - 8
            and data[start + 8] != Kind.FOOTER
            and not record_end(data, start, len(data))[1]
        ):
            return True
    return False


#: Milliseconds between two progress lines of a long recovery.
PROGRESS_INTERVAL: Final = 2000

#: Number of messages restored between two progress reports.
LOADED_AT_ONCE: Final = 10_000

#: Maximum number of messages in a `StoredRun`: their references are created together, in less than a millisecond.
RUN_LENGTH: Final = 256

_lengths = LENGTHS.unpack_from


@dataclass(eq=False)
class StoredRun:
    """Messages of one segment for one queue, ascending by number. The first use of one creates the objects of all."""

    _data: bytes
    _begins: array[int]
    _segment: JournalSegment
    _queue: Queue
    _address: Address
    _memo: TraitsCache

    def keys(self, queue: LastValueQueue) -> list[bytes]:
        """Return the keys of the messages that have one."""
        data, keys = self._data, []
        for at in self._begins:
            head, _, _, traits_length = _lengths(data, at + LENGTHS_AT)
            start = at + MESSAGE.size + 4 + traits_length  # 4 bytes: the id of the only queue
            key = queue.key_in(data, start, start + head)
            if key is not None:
                keys.append(key)
        return keys

    def references(self, run: ReferenceRun) -> list[Reference]:
        """Create the references of a run, and add them to the live messages of the segment. Recovery has
        counted their memory before.
        """
        queue, address, segment, memo = self._queue, self._address, self._segment, self._memo
        data, live, unpack = self._data, segment.live, MESSAGE.unpack_from
        refs = []
        for at in self._begins:
            # fmt: off
            (_, flags, priority, deliveries, _, number, timestamp, expires, _, _,
             head, body, _, traits_length) = unpack(data, at)
            # fmt: on
            start = at + MESSAGE.size + 4  # 4 bytes: the id of the only queue
            tail_at = start + traits_length
            tail = data[tail_at : tail_at + head + body + 2]
            traits = memo.recall(flags & ~COPY, priority, data[start:tail_at], tail, head)
            message = RecoveredMessage(number, address, traits, tail, head, timestamp, expires, address)
            message.holders = 1
            message.segment = segment
            ref = live[number] = Reference(message, queue, PENDING)
            ref.deliveries = deliveries
            refs.append(ref)
        live.pop(run, None)
        queue.on_run_made(run, refs)
        return refs


class Batch:
    """Consecutive messages of one address for one queue, all with the same priority."""

    def __init__(self, queue: Queue, priority: int) -> None:
        self.queue = queue
        self.priority = priority
        self.address: Address | None = None
        self.places = array("I")  # indexes in the `SegmentMessages` of a segment


class MessageLoader:
    """Restores messages in the order of their numbers, which is the order in which they were sent.

    Messages without events, in queues that need no message object, are restored as runs with only their numbers and
    sizes.
    """

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._replay = recovery.replay
        self._queues = recovery.queues
        self._addresses = recovery.addresses
        self._memo = TraitsCache()
        self._batches: dict[tuple[Queue, int], Batch] = {}  # batches of the current segment

    def run(self) -> None:
        """Restore all messages, and count them."""
        recovery, replay = self._recovery, self._replay
        index = replay.messages
        total, done = len(index), 0
        eventful = replay.gone.keys() | replay.states.keys() | replay.went_out.keys()
        others = sorted(index.others, reverse=True)
        index.segments.reverse()
        while index.segments:
            columns = index.segments.pop()  # frees the bytes of a segment after the last of its messages
            recovery.report_progress(f"restored {done} of {total} messages")
            done += len(columns.numbers)
            self._restore_segment(columns, others, eventful)
        while others:
            if not len(others) % LOADED_AT_ONCE:
                recovery.report_progress(f"restored {total - len(others)} of {total} messages")
            self._restore_other(others.pop())
        # not before: a dead letter must come after those in its queue
        for queue in self._queues.values():
            for _ in queue.trim():
                pass

    def _restore_other(self, number: int) -> None:
        read, data, at = self._replay.messages.others.pop(number)
        self._restore(number, StoredMessage(data, at), self._recovery.segments[read.number])

    def _restore_segment(self, columns: SegmentMessages, others: list[int], eventful: set[int]) -> None:
        """Restore the messages of a segment. ``others``: numbers of messages not in ``columns``, descending."""
        self._batches = {}
        batches = [self._batch_for(kind) for kind in columns.kinds]
        addresses = [None if kind is None else self._addresses.get(kind.address) for kind in columns.kinds]
        numbers, kinds = columns.numbers, columns.kinds_of
        segment = self._recovery.segments[columns.segment.number]
        following = others[-1] if others else GREATEST_NUMBER
        if len(batches) == 2 and not columns.gone and numbers[-1] < following:
            only = batches[1]
            if only is not None and (not eventful or eventful.isdisjoint(numbers)):
                only.address = addresses[1]
                for first in range(0, len(numbers), RUN_LENGTH):
                    only.places = array("I", range(first, min(first + RUN_LENGTH, len(numbers))))
                    self._defer(columns, only, segment)
                return
        for place in range(len(numbers)):
            number = numbers[place]
            if number > following:
                self._flush(columns, segment)
                while others and others[-1] < number:
                    self._restore_other(others.pop())
                following = others[-1] if others else GREATEST_NUMBER
            kind_number = kinds[place]
            if kind_number == GONE:
                continue
            batch = batches[kind_number]
            if batch is None or number in eventful:
                self._flush(columns, segment)
                self._restore(number, StoredMessage(columns.data, columns.begins[place]), segment)
                continue
            address = addresses[kind_number]
            if batch.address is not address or len(batch.places) == RUN_LENGTH:
                self._defer(columns, batch, segment)
                batch.address = address
            batch.places.append(place)
        self._flush(columns, segment)

    def _batch_for(self, kind: MessageKind | None) -> Batch | None:
        """Return the batch for messages of a kind, None if recovery must create references for them immediately."""
        if kind is None or kind.grouped:
            return None
        queue = self._queues.get(kind.queue)
        if queue is None or kind.address not in self._addresses:
            return None
        # these queues need more of a restored message than its number, priority, size and headers
        if queue.hooks.enqueued or (isinstance(queue, LastValueQueue) and not queue.has_header_keys):
            return None
        return self._batches.setdefault((queue, kind.priority), Batch(queue, kind.priority))

    def _flush(self, columns: SegmentMessages, segment: JournalSegment) -> None:
        for batch in self._batches.values():
            self._defer(columns, batch, segment)

    def _defer(self, columns: SegmentMessages, batch: Batch, segment: JournalSegment) -> None:
        """Add a batch to its queue as one `ReferenceRun`."""
        places, batch.places = batch.places, array("I")
        length, queue, address = len(places), batch.queue, batch.address
        if not length or address is None:
            return
        first, last = places[0], places[-1]
        if length == 1:
            self._restore_each(columns, places, segment)
            return
        if last - first + 1 == length:
            begins, tails = columns.begins[first : last + 1], sum(columns.sizes[first : last + 1])
        else:
            begins = array("I", [columns.begins[place] for place in places])
            tails = sum([columns.sizes[place] for place in places])
        stored = StoredRun(columns.data, begins, segment, queue, address, self._memo)
        run = ReferenceRun(columns.numbers[first], columns.numbers[last], length, stored.references)
        if isinstance(queue, LastValueQueue) and not queue.claim(stored.keys(queue), run):
            self._restore_each(columns, places, segment)
            return
        segment.live[run] = run
        size = tails + length * MESSAGE_OVERHEAD
        address.occupy(size, length)
        queue.reinstate_run(run, batch.priority, size)
        self._recovery.journal.live_bytes += RECORD_OVERHEAD * length + tails
        self._recovery.messages += length

    def _restore_each(self, columns: SegmentMessages, places: array[int], segment: JournalSegment) -> None:
        for place in places:
            self._restore(columns.numbers[place], StoredMessage(columns.data, columns.begins[place]), segment)

    def _restore(self, number: int, stored: StoredMessage, segment: JournalSegment) -> None:
        gone = self._replay.gone.get(number, ())
        queues = self._queues
        address = self._recovery.address_of(stored.address)
        found = [queues.get(each) or self._recovery.queue_of(each, address) for each in stored.queue_ids()]
        holders = [queue for queue in found if queue is not None and queue.number not in gone]
        if not holders:
            self._recovery.orphaned += 1
            return
        message = stored.restore(address, self._memo)
        refs: list[Reference] = []
        for queue in holders:
            ref = queue.restore(message)
            state = self._replay.state_of(stored, queue.number)
            ref.deliveries, ref.attempts, ref.due = state.deliveries, state.attempts, state.due
            if state.recurrence:
                ref.recurrence = unpack_recurrence(state.recurrence)
            refs.append(ref)
        segment.live[message.number] = refs[0] if len(refs) == 1 else MessageReferences(refs)
        message.segment = segment
        self._recovery.journal.live_bytes += RECORD_OVERHEAD + len(message.tail)
        self._recovery.messages += 1
        for queue, ref in zip(holders, refs, strict=True):
            queue.reinstate(ref)


class Recovery:
    """The recovery of one start. ``messages``: number of restored messages. ``lost_bytes``: number of unreadable bytes
    in the journal.
    """

    def __init__(self, journal: Journal, bindings: Bindings, broker: Broker) -> None:
        self.journal = journal
        self._bindings = bindings
        self._files = files = journal.writer.files
        self.replay = Replay(files, journal.directory, journal.identity)
        self._broker = broker
        self.addresses: dict[int, Address] = {}
        self.queues: dict[int, Queue] = {}  # durable queues by number
        self.segments: dict[int, JournalSegment] = {}  # segments by number
        self._reported_at = broker.clock.steady.refresh()
        self.messages = 0
        self.orphaned = 0  # number of messages whose queues no longer exist
        self._numbers: MessageNumbers | None = None
        self.lost_bytes = 0
        self.damaged: list[str] = []  # texts about damage, for operators

    def run(self, pages: Callable[[], None] | None) -> None:
        """Restore everything. Raises `StoreError` if a file cannot be read or changed, or if a newer version wrote it.

        ``pages`` restores the pages, after addresses and queues and before the messages in memory.
        """
        began = self._broker.clock.steady.refresh()
        collecting = gc.isenabled()
        # recovery leaves no garbage, and the collector would traverse a million objects again and again
        gc.disable()
        try:
            self.replay.read(
                lambda done, total: self.report_progress(f"read {done / 1e6:.0f} of {total / 1e6:.0f} MB")
            )
            self._begin_journal()
            self._restore_bindings()
            self._restore_numbers()
            if pages is not None:
                pages()
                self._restore_numbers()
            MessageLoader(self).run()
            self._restore_ids()
        except OSError as fault:
            raise StoreError.of(fault) from fault
        finally:
            if collecting:
                gc.enable()
        if self.orphaned:
            log.warning("skipped %d messages whose queues no longer exist", self.orphaned)
        seconds = (self._broker.clock.steady.refresh() - began) / 1000
        log.info(
            "journal recovered: %d queues, %d messages (%d segments, %.1f MB, %.1f s)",
            len(self.queues),
            self.messages,
            len(self.replay.segments),
            sum(segment.size for segment in self.replay.segments) / 1e6,
            seconds,
        )

    def report_progress(self, text: str) -> None:
        """Log the progress of a long recovery, at most every `PROGRESS_INTERVAL`."""
        now = self._broker.clock.steady.refresh()
        if now - self._reported_at >= PROGRESS_INTERVAL:
            self._reported_at = now
            log.info("recovering the journal: %s", text)

    # ---- files

    def _begin_journal(self) -> None:
        self._set_misplaced_aside()
        replay = self.replay
        repaired = self._without_begun(replay.segments)
        for read, after in zip(repaired, [*repaired[1:], None], strict=False):
            self._repair_segment(read, after)
        segments: list[JournalSegment] = []
        for read in repaired:
            segment = self.segments[read.number] = JournalSegment(read.number, read.path, size=read.size)
            segment.damaged = bool(read.faults)
            segments.append(segment)
        for number in replay.missing:
            self._report(
                f"segment {number} of the journal in {replay.directory} is missing; number of lost messages "
                "unknown"
            )
        for text in replay.malformed:
            self._report(f"skipped malformed record in {text}")
        journal = self.journal
        journal.next_message = replay.next_message
        journal.next_queue = replay.next_queue
        journal.next_transaction = replay.next_transaction
        journal.complete_transaction = replay.complete_transaction
        journal.next_address = count(replay.next_address)
        journal.next_page = replay.next_page if replay.lists_pages else 0
        numbers = [each.number for each in (*repaired, *[each for each, _ in replay.misplaced])]
        journal.last_segment = max([*numbers, *replay.missing, 0])
        journal.begin(segments, self._tail_of(repaired[-1]) if repaired else None)

    def _without_begun(self, segments: list[ReadSegment]) -> list[ReadSegment]:
        """Return the segments without an unreadable last one whose creation a crash interrupted.

        The broker seals a segment after it creates the next one. If the segment before the last is not sealed, the
        last segment has no confirmed record.
        """
        if not segments or segments[-1].records or not segments[-1].faults or segments[-1].sealed:
            return segments
        *others, last = segments
        short = last.size <= HEADER.size
        if last.faults[0].unsupported or not (short or (others and not others[-1].sealed)):
            return segments
        log.warning("%s: ignored incomplete segment", last.path)
        if not short:
            self._files.rename(last.path, free_name(self._files, last.path, DAMAGED))
        # after a sealed segment, keep the file: the next new segment has its name, and overwrites it
        elif not others or not others[-1].sealed:
            self._files.remove(last.path)
        return others

    def _repair_segment(self, read: ReadSegment, after: ReadSegment | None) -> None:
        """Repair a segment: truncate it, or leave its ``faults`` if it must be set aside once its records are
        rewritten. ``after``: the next segment. Raises `StoreError` if a newer version wrote the segment, `OSError`.
        """
        if not read.faults and after is not None and not read.sealed and after.header.previous != read.end:
            read.faults.append(Fault(read.size, "footer missing; trailing records may be lost"))
        if not read.faults:
            if read.zeros:  # the broker was killed: remove the prefilled zeros at the end
                self._files.truncate(read.path, read.size)
                read.zeros = 0
            return
        fault = read.faults[0]
        if fault.unsupported:
            raise StoreError(f"{fault.reason}: written by a newer version of stompring", read.path, fault.at)
        if after is None and not read.sealed and fault.at >= HEADER.size:
            self._cut(read, fault)
            return
        lost = read.size - read.good
        extent = f"the last {lost} bytes are unreadable"
        if read.sealed or not fault.at:
            extent = f"{len(read.faults)} unreadable part{'s' if len(read.faults) > 1 else ''}"
        self._report(
            f"{read.path} is damaged at byte {fault.at} ({fault.reason}): {extent}; "
            "set aside once its readable records are rewritten"
        )
        self.lost_bytes += lost

    def _cut(self, read: ReadSegment, fault: Fault) -> None:
        """Truncate the newest segment at a fault: an incomplete write, or damage.

        Without a footer no record can be found after damage: bytes that look like a record may be part of a message.
        """
        data = self._files.read(read.path)
        lost = len(data) - read.good
        if _has_records(data, fault.at):
            aside = read.path.with_name(read.path.name + ".damaged")
            self._files.replace(aside, data)
            self._report(
                f"{read.path} is damaged at byte {fault.at} ({fault.reason}): dropped the last {lost} bytes; "
                f"{aside.name} has the whole file"
            )
            self.lost_bytes += lost
        else:
            log.warning("%s: the last %d bytes of an incomplete write are truncated", read.path, lost)
        self._files.truncate(read.path, read.good)
        read.size = read.good
        read.faults = []

    def _set_misplaced_aside(self) -> None:
        """Rename segments that do not match their names. Raises `StoreError` if all are of another data directory."""
        replay = self.replay
        foreign = [read for read, _ in replay.misplaced if read.header.directory != replay.identity]
        if foreign and not any(read.header.directory == replay.identity for read in replay.segments):
            raise StoreError(
                f"the journal belongs to data directory {foreign[-1].header.directory.hex()}, but this one is "
                f"{replay.identity.hex()}: restore the matching journal or the file '{IDENTITY}'",
                replay.directory,
            )
        for read, why in replay.misplaced:
            aside = free_name(self._files, read.path, DAMAGED)
            self._files.rename(read.path, aside)
            self._report(f"{read.path} is not segment {read.number}: {why}; set aside as {aside.name}")

    def _tail_of(self, read: ReadSegment) -> RecordEncoder | None:
        """Return the encoder that continues the last segment, None if it is sealed or damaged."""
        if read.sealed or read.faults:
            return None
        footer = build_footer(self._files.read(read.path))
        return RecordEncoder(read.size, self.journal.next_address, footer, read.consumers)

    def _report(self, text: str, **fields: str) -> None:
        self.damaged.append(text)
        log.error("%s", text, extra=fields)

    # ---- addresses and queues

    def queue_of(self, number: int, address: Address, *, wanted: bool = False) -> Queue | None:
        """Return the queue with this number in a message of ``address``, None if it was deleted.

        If parts of the journal are lost, the definition of the queue may be lost, too: the queue is then recreated with
        its name from other records, so that its messages are not lost. ``wanted``: recreate it even without known loss.
        """
        queue = self.queues.get(number)
        if queue is None and (wanted or self.damaged) and (QUEUE, number) not in self.replay.ended:
            name = self.replay.names.get((QUEUE, number))
            if name is not None and name not in self._broker.directory.queues:
                queue = self.queues[number] = self._recreate_queue(name, number, address)
        return queue

    def _recreate_queue(self, name: str, number: int, address: Address) -> Queue:
        directory = self._broker.directory
        kind = RoutingType.ANYCAST if name == address.name else RoutingType.MULTICAST
        if directory.addresses.get(address.name) is not address:
            directory.add_address(address)
        address.routing_types |= {kind}
        settings = directory.settings.lookup(address.name)
        attributes = QueueAttributes.of(QueueConfiguration(name, address.name, kind), settings)
        queue = directory.restore_queue(name, address.name, attributes, number)
        self._rebind(queue)
        self._report(
            f"queue {name}: definition lost; recreated with default attributes on address {address.name}",
            queue=name,
            address=address.name,
        )
        return queue

    def _rebind(self, queue: Queue) -> None:
        """Record a restored queue and its address in the journal, which has lost one of them."""
        self._bindings.bind(queue)
        self._bindings.bind(as_address(queue.address))

    def address_in_page(self, number: int, description: Mapping[str, Any], path: Path) -> Address | None:
        """Restore an address that the journal does not have, from a page. Returns None if that is impossible."""
        address = self._address_from(number, description, path)
        if address is not None:
            self._bindings.bind(address)
            self._log_restored("address", address.name, path)
        return address

    def queue_in_page(self, number: int, description: Mapping[str, Any], path: Path) -> Queue | None:
        """Restore a queue from a page: a crash prevented its record in the journal. Returns None if impossible."""
        named = str(description.get("name"))
        if (QUEUE, number) in self.replay.ended or named in self._broker.directory.queues:
            return None
        queue = self._queue_from(number, description, path)
        if queue is not None:
            self._rebind(queue)
            self._log_restored("queue", queue.name, path)
        return queue

    @staticmethod
    def _log_restored(kind: str, name: str, path: Path) -> None:
        text = "%s %s restored from page file %s, not from the journal"
        log.info(text, kind, name, path, extra={kind: name})

    def _restore_bindings(self) -> None:
        """Restore named values, then addresses, whose policies read these values, then queues."""
        known, found = self._bindings, self.replay.bindings
        known.values.update({number: value for (what, number), (_, value) in found.items() if what == NOTE})
        self._broker.storage.values.restore(known.values)
        for (what, number), (segment, value) in sorted(found.items(), key=lambda each: each[0][0] % NOTE):
            subject: Address | Queue | int | None = None
            if what == ADDRESS:
                subject = self._address_from(number, value, segment.path)
            elif what == QUEUE:
                subject = self._queue_from(number, value, segment.path)
            elif what == NOTE:
                subject = number
            if subject is not None:
                self.adopt(known.of(subject), segment)

    def _address_from(self, number: int, value: Mapping[str, Any], path: Path) -> Address | None:
        try:
            stored = StoredAddress.parse(value)
            address = self._broker.directory.create_address(
                stored.name,
                stored.routing_types,
                auto_created=stored.auto_created,
                configured=stored.configured,
            )
        except UNUSABLE as fault:
            self._report(f"cannot restore an address from {path}: {_why(fault)}")
            return None
        address.number = number
        address.paused = stored.paused
        address.used = stored.auto_created
        self.addresses[number] = address
        return address

    def _queue_from(self, number: int, value: Mapping[str, Any], path: Path) -> Queue | None:
        try:
            stored = StoredQueue.parse(value)
            directory, attributes = self._broker.directory, stored.attributes
            if stored.address not in directory.addresses:
                directory.create_address(
                    stored.address, frozenset({attributes.routing_type}), auto_created=True
                )
            queue = directory.restore_queue(stored.name, stored.address, attributes, number)
            queue.no_local = stored.no_local
            queue.as_configured = stored.as_configured
            queue.paused = stored.paused
            queue.update_filter()
            self.queues[number] = queue
            return queue
        except UNUSABLE as fault:
            self._report(
                f"cannot restore queue {value.get('name', number)} from {path}: {_why(fault)}",
                queue=str(value.get("name", number)),
            )
            return None

    def _restore_ids(self) -> None:
        persist, journal = self._broker.configuration.persist_id_cache, self.journal
        while self.replay.duplicate_ids:  # frees the ids of each address after their restore
            number, found = self.replay.duplicate_ids.popitem()
            address = self.addresses.get(number)
            if address is not None and not address.deleted:
                ids = self._bindings.ids[address] = StoredIds(journal, address)
                ids.restore(found, cache_size(address) if persist else 0, self.adopt)

    def _restore_numbers(self) -> None:
        journal, broker = self.journal, self._broker
        if self._numbers is None:
            self._numbers = MessageNumbers(
                journal.next_message, MESSAGE_LEASE, lambda: broker.clock.now, journal.lease_messages
            )
            journal.on_lease = self._numbers.granted
            broker.numbers = self._numbers
        else:
            self._numbers.skip_to(journal.next_message)
            journal.lease_messages(journal.next_message + MESSAGE_LEASE)
        broker.next_queue_number = count(journal.next_queue).__next__

    def adopt(self, repaired: LiveRecord, read: ReadSegment) -> None:
        """Add ``repaired``, an object restored from the journal, to the live records of the segment that has its oldest
        valid record.
        """
        segment = repaired.segment = self.segments[read.number]
        segment.live[repaired] = repaired

    def address_of(self, number: int) -> Address:
        """Return the address with this number. Creates an object for a deleted address that has messages in
        wildcard queues.
        """
        address = self.addresses.get(number)
        if address is None:
            directory = self._broker.directory
            name = self.replay.names.get((ADDRESS, number), f"#{number}")
            address = directory.addresses.get(name)
            if address is None:
                address = Address(name, frozenset(), directory.settings.lookup(name), directory.broker)
                address.number, address.deleted = number, True
            self.addresses[number] = address
        return address


def _why(fault: Exception) -> str:
    return f"{fault.args[0]!r} is missing" if isinstance(fault, KeyError) else str(fault)
