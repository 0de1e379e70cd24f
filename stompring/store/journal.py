"""The journal: segments with the durable messages that are in memory and events of all messages, and its compaction.

The journal collects events, and encodes them as records at the end of the reactor turn: a message that arrives and is
settled in that turn needs no record. All records go to the newest segment. Segments without live records are deleted,
the oldest first. An event is never in an older segment than its message, so that a deletion never removes an event and
leaves its message.

The path of a durable message has four steps: `Journal.append` queues it, `Journal.gather` encodes it as a record
(`RecordEncoder`), `WriteBatch.write` writes and syncs the record in the disk thread, and `WriteBatch.confirm` runs the
callbacks that wait for the record, such as receipts.

Compaction writes the live records of the oldest segment again, so that this segment can be deleted. It runs in small
steps, pauses while the disk is behind, and starts only if a small share of the journal is live
(``journal-compact-min-files``, ``journal-compact-percentage``), or if a segment is damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any, Final

from stompring.broker.clock import Clock, Timer, cancel
from stompring.broker.message import NOWHERE, AddressBase, Message
from stompring.broker.ports import DELIVERED, RETURNED, Entries, Reason
from stompring.broker.reference import GONE, ConsumerBase, QueueBase, Reference, ReferenceRun

from .encoder import (
    DELIVERY,
    RENEW_NUMBERS,
    TRANSACTIONS_COMPLETE,
    MessageState,
    RecordBatch,
    RecordEncoder,
    StateChange,
    Transaction,
    retained_parts,
)
from .record import FOR_READERS, NUMBERS, Cause, Kind, pack_binding
from .retention import Retention
from .segment import HEADER, JOURNAL, NO_IDENTITY, pack_header
from .writer import PREFILL_FROM, AppendOnlyFile, Writer

log = logging.getLogger(__name__)

#: The suffix of a damaged segment that was set aside.
DAMAGED: Final = ".damaged"


class LiveRecord:
    """A live part of the journal that is not a message: a binding, duplicate ids, or the state of a queue in a page.

    ``segment``: the oldest segment with a valid record of this object. ``whole``: `encode` writes the whole object, so
    that older records are no longer valid. ``gone``: `encode` writes the removal of the object.
    """

    whole = True

    def __init__(self) -> None:
        self.segment: JournalSegment | None = None
        self.gone = False

    def encode(self, encoder: RecordEncoder) -> None:
        """Add a record of the changes since the last call. Called at the end of the reactor turn,
        once for each `Journal.update`.
        """
        raise AssertionError("a subclass encodes its record")

    def encode_all(self, encoder: RecordEncoder) -> None:
        """Add a record of the whole object, because ``segment`` will be deleted."""
        self.encode(encoder)

    def encode_logged(self, encoder: RecordEncoder) -> None:
        """Add records of the events for which `Journal.log_page` was called to ``encoder``."""
        raise AssertionError("a subclass encodes its record")


class Binding(LiveRecord):
    """The JSON description of an address, a durable queue or a stored value, under its number."""

    def __init__(
        self, what: int, number: int, subject: object, describe: Callable[[], Mapping[str, Any]]
    ) -> None:
        super().__init__()
        self.subject = subject
        self.pending = False  # whether an event of `Journal.bind` is not encoded yet
        self._what = what
        self._number = number
        self._describe = describe

    def record(self) -> bytes:
        """Return the payload of a record with the present description."""
        return pack_binding(self._what, self._number, None if self.gone else self._describe())

    def encode(self, encoder: RecordEncoder) -> None:
        self.pending = False
        encoder.add(self.record())


class MessageReferences:
    """The references of a message that several queues hold. ``left`` counts the unsettled references. A message with
    one reference also has this object if the reference changes before the message is written.
    """

    __slots__ = ("changes", "left", "logged", "refs")

    def __init__(self, refs: list[Reference], logged: dict[Reference, int] | None = None) -> None:
        self.refs = refs
        self.left = len(refs)
        self.changes: list[StateChange] = []  # state changes logged before the record of the message
        #: Number of logged deliveries of each reference in the message's record, if newer references are missing from
        #: that record; else None.
        self.logged = logged


#: A live message in `JournalSegment.live`.
LiveMessage = Reference | MessageReferences


@dataclass(eq=False)
class JournalSegment:
    """One file of the journal, and its live records. ``Message.segment`` is the segment with the latest record of a
    message. Before the message is written, ``Message.segment`` is the `Reference` or `MessageReferences` to write.
    """

    number: int
    path: Path
    stream: AppendOnlyFile | None = None  # None for a complete segment of an earlier run
    size: int = 0  # bytes of the file
    #: live messages by number; a `LiveRecord` or a `ReferenceRun` is its own key
    live: dict[int | LiveRecord | ReferenceRun, LiveMessage | LiveRecord] = field(default_factory=dict)
    damaged: bool = False  # whether the file is damaged: `remove` then sets it aside

    def remove(self, writer: Writer, retention: Retention | None) -> None:
        """Delete the file, move it to ``retention``, or set it aside if damaged. It must not have live records."""
        path = self.path
        if self.damaged:
            writer.run_task(lambda files: files.rename(path, path.with_name(path.name + DAMAGED)))
        elif retention is not None:
            retention.retain(path, self.size)
        elif self.stream is not None:
            self.stream.delete()
        else:
            writer.run_task(lambda files: files.remove(path))


#: Approximate bytes of a message record in addition to the message's tail, to estimate the live bytes of the journal.
RECORD_OVERHEAD: Final = 120


#: Maximum records and bytes of one compaction step: about a millisecond of work.
STEP_RECORDS, STEP_BYTES = 200, 256 * 1024

#: Seconds between two compaction steps, and between two checks of a disk that is too slow or fails.
STEP_INTERVAL, BACKLOG_INTERVAL = 0.004, 0.1

#: Unwritten bytes above which the disk counts as too slow.
BACKLOG_BYTES: Final = 4 * 1024 * 1024


class Compaction:
    """The compaction of one journal."""

    def __init__(self, journal: Journal, clock: Clock, min_files: int, percentage: int) -> None:
        self.segments = 0  # number of segments emptied since the broker started
        self.rewritten = 0  # bytes written again since the broker started
        self.clock = clock
        self._journal = journal
        self._min_files = min_files
        self._percentage = percentage
        self._timer: Any = None
        self._at: object = None  # the segment that is being emptied
        self._last = 0  # number of the newest segment at the beginning of this pass over the journal
        self._own = 0  # number of segments created by compaction
        self._known_event_segments = -1  # `_event_segments` at the beginning of this pass
        journal.on_roll = self.consider

    @property
    def needed(self) -> bool:
        """Whether compaction should empty the oldest segment."""
        journal = self._journal
        segments = journal.segments
        if len(segments) < 2:
            return False
        if segments[0] is self._at or any(segment.damaged for segment in segments):
            return True
        if self._min_files <= 0 or len(segments) < self._min_files:
            return False
        if journal.live_bytes * 100 >= journal.bytes * self._percentage:
            return False
        return segments[0].number <= self._last or self._event_segments > self._known_event_segments

    @property
    def _event_segments(self) -> int:
        """Number of segments created for events of the broker, not by compaction.

        A pass of compaction begins only after a new segment for events. Otherwise it would rewrite the records of the
        previous pass, endlessly in a small journal that consists mainly of bindings.
        """
        return self._journal.segments[-1].number - self._own

    def consider(self) -> None:
        """Schedule a step of the compaction if `needed`. Called for a new segment, after recovery, on a full disk."""
        if self._timer is None and self.needed:
            self._timer = self.clock.reactor.callLater(STEP_INTERVAL, self._step)

    def stop(self) -> None:
        cancel(self._timer)

    def _step(self) -> None:
        self._timer = None
        writer = self._journal.writer
        if writer.failing is not None or writer.waiting_bytes > BACKLOG_BYTES:
            self._timer = self.clock.reactor.callLater(BACKLOG_INTERVAL, self._step)
            return
        if not self.needed:
            self._at = None
            return
        segments = self._journal.segments
        oldest = self._at = segments[0]
        newest = segments[-1].number
        if oldest.number > self._last:
            self._last, self._known_event_segments = newest, self._event_segments
        self.rewritten += self._journal.compact_step(STEP_RECORDS, STEP_BYTES)
        self._own += segments[-1].number - newest
        if self._journal.segments[0] is not oldest:
            self._at = None
            self.segments += 1
            log.debug("compacted journal segment %d", oldest.number)
        self.consider()


#: Number of queue numbers reserved ahead of use: after a crash no queue may get the number of an earlier queue that was
#: not stored.
LEASE: Final = 1000

#: Maximum number of events encoded in one time slice: some milliseconds of work.
MAX_ENCODED_AT_ONCE: Final = 2000

#: Maximum bytes of small transactions that are merged into one TRANSACTION record.
MAX_JOINED_BYTES: Final = 64 * 1024

#: Number of events encoded between two checks of `MAX_ENCODED_AT_ONCE`.
ENCODED_AT_ONCE: Final = 64

#: Number of retained messages that take as long to encode as one event.
RETAINED_AT_ONCE: Final = 10

#: Milliseconds between the append of records that only retention needs and their sync.
RETAINED_SYNC_INTERVAL: Final = 1000

#: Number of message numbers reserved ahead of use: more than a broker uses in a few minutes.
MESSAGE_LEASE: Final = 10_000_000


class Journal:
    """The journal of one broker. ``sync`` False: the operating system decides when records reach the disk."""

    def __init__(self, directory: Path, writer: Writer, clock: Clock, file_size: int, *, sync: bool) -> None:
        self.directory = directory
        self.writer = writer
        self.segments: list[JournalSegment] = []  # ascending; records go to the last one
        self.bytes = 0  # bytes of all segments
        self.live_bytes = 0  # approximate bytes of live records
        self.identity = NO_IDENTITY  # identity of the data directory
        self.next_message = 1  # greater than the number of any message in the journal
        self.leased_message = 1  # message numbers below this are reserved
        #: Called with ``leased_message`` when the reservation of these numbers is on disk.
        self.on_lease: Callable[[int], object] = lambda number: None
        self.next_page = 0  # greater than the numbers of all pages; 0 until all existing pages have a record
        self.last_segment = 0  # highest number of a segment that was found at the start or created later
        self.next_transaction = 1
        self.complete_transaction = 1  # transactions with lower numbers are in the journal, or lost
        self.next_queue = 1  # queue numbers below this are reserved
        self.next_address = count(1)
        self.on_roll: Callable[[], object] = lambda: None
        self.retention: Retention | None = None  # if set, settled messages are written, too
        self.clock = clock
        self.file_size = file_size  # bytes at which a segment is full
        self.prefill_from = PREFILL_FROM  # offset in a segment above which zeros are written ahead of records
        self._sync = sync
        self.unwritten: dict[object, Binding] = {}  # bindings without a record on disk, by subject
        self._pending: list[object] = []  # events to encode
        self._replaced: list[object] = []  # events with Reason.REPLACED
        # for retention only: `Entries` to write, those of acknowledged messages by queue and consumer too, and events
        self._entries: list[Entries] = []
        self._taken: dict[tuple[QueueBase, ConsumerBase], Entries] = {}
        self._logged: list[tuple[Reference, int] | StateChange | LiveRecord] = []
        self._gather_due = False  # whether events wait for a scheduled call of `gather`
        self._syncing: Timer | None = None  # timer of `_sync_retained`
        self._depth = 0  # number of open nested transactions
        self.mark = Transaction()  # the latest transaction
        self._gathering: Iterator[int] | None = None  # encodes events, and yields their number
        self._continuing = False  # whether `_continue` is scheduled
        self._lease_written = 0
        self._sync_next = False  # whether to sync the next records even if the settings do not require a sync
        self._skipped = False  # whether to gather after the end of the open transaction
        self._next_page = 0
        self._encoder = RecordEncoder(0, self.next_address)
        writer.gather = self.gather

    # ---- the start

    def begin(self, segments: list[JournalSegment], encoder: RecordEncoder | None = None) -> None:
        """Continue the journal of an earlier run, which has these ``segments``. With ``encoder`` append to the last
        segment, else begin a new segment.
        """
        self.segments = segments
        self.leased_message = self.next_message + MESSAGE_LEASE
        self.bytes = sum(segment.size for segment in segments)
        if encoder is None:
            self._open_segment()
        else:
            last = segments[-1]
            last.stream = self._open_stream(last.path, last.size)
            self._encoder = encoder
            self._encode_numbers()
            self._append_records()

    # ---- step 1: append events (see `Storage`); they are encoded at the end of the reactor turn

    def append(self, ref: Reference) -> None:
        message = ref.message
        live = message.segment
        if live is None:
            message.segment = ref
            if not self._gather_due:
                self._schedule_gather()
            self._pending.append(ref)
        elif type(live) is Reference:
            message.segment = MessageReferences([live, ref])
        elif type(live) is MessageReferences:
            live.refs.append(ref)
        else:
            self._append_again(ref)

    def _append_again(self, ref: Reference) -> None:
        """Write a message again with all its references: it was written before, and has entered one more queue."""
        message = ref.message
        segment = message.segment
        assert type(segment) is JournalSegment
        live = segment.live.pop(message.number, None)
        if live is not None:
            self.live_bytes -= len(message.tail) + RECORD_OVERHEAD
        refs = live.refs if type(live) is MessageReferences else [live] if type(live) is Reference else []
        message.segment = MessageReferences([*refs, ref], {each: each.deliveries for each in refs})
        self.update(ref)

    def settle(self, ref: Reference, reason: Reason) -> None:
        message = ref.message
        segment = message.segment
        if type(segment) is not JournalSegment:
            if segment is ref:
                # the message was settled before it was written: recovery needs no record of it
                message.segment = None
                if self.retention is not None and message.traits.retained:
                    self._retain(ref, reason)
            elif type(segment) is MessageReferences and (
                self._retains(message) or (segment.logged is not None and ref in segment.logged)
            ):
                self.update((ref, reason))
            return
        live, number = segment.live, message.number
        found = live.pop(number, None)
        if found is ref:
            self.live_bytes -= len(message.tail) + RECORD_OVERHEAD
        elif type(found) is MessageReferences:
            found.left -= 1
            if found.left:
                live[number] = found
            else:
                self.live_bytes -= len(message.tail) + RECORD_OVERHEAD
        if not self._gather_due:
            self._schedule_gather()
        if reason is Reason.REPLACED and not self._depth:
            self._replaced.append((ref, reason))
        else:
            self._pending.append((ref, reason))

    def _retains(self, message: Message) -> bool:
        """Return whether retention needs a record of a message, even if recovery does not."""
        return self.retention is not None and message.traits.retained != NOWHERE

    def _retain(self, ref: Reference, reason: Reason) -> None:
        """Log a message for retention only: its single queue has settled it before it was written."""
        taker = ref.last_rejected_by if reason is Reason.ACKNOWLEDGED else None
        if taker is not None and ref.deliveries == 1:
            entries = self._taken.get((ref.queue, taker))
            if entries is None:
                entries = self._taken[ref.queue, taker] = Entries(ref.queue, taker.consumer_name)
                self.record(entries)
            entries.messages.append(ref.message)
            return
        entries = Entries(ref.queue, None)
        self.record(entries)
        entries.messages.append(ref.message)
        for event in (*repeat(DELIVERED, ref.deliveries), reason):
            self.log(ref, event)

    def log(self, ref: Reference, event: int) -> None:
        self._schedule_gather()
        if event >= RETURNED:
            cause = Cause.RETURNED if event == RETURNED else Cause.SCHEDULED
            self._logged.append(StateChange(ref, cause, MessageState.of(ref), self.clock.now))
        else:
            self._logged.append((ref, event))

    def log_page(self, page_state: LiveRecord) -> None:
        """Log events of a page's messages that only retention needs. `LiveRecord.encode_logged` encodes them."""
        self._schedule_gather()
        self._logged.append(page_state)

    def returned(self, ref: Reference) -> None:
        self._changed(ref, Cause.RETURNED)

    def postponed(self, ref: Reference) -> None:
        self._changed(ref, Cause.SCHEDULED)

    def _changed(self, ref: Reference, cause: Cause) -> None:
        message = ref.message
        live = message.segment
        if live is None:
            return
        change = StateChange(ref, cause, MessageState.of(ref), self.clock.now)
        if type(live) is JournalSegment:
            self.update(change)
            return
        if type(live) is not MessageReferences:
            # a `Reference` cannot store the change until the message is written
            live = message.segment = MessageReferences([ref])
        live.changes.append(change)

    def delivered(self, ref: Reference) -> None:
        if type(ref.message.segment) is JournalSegment:
            self.update((ref, DELIVERY))

    def record(self, entries: Entries) -> None:
        self._schedule_gather()
        self._entries.append(entries)

    def _schedule_gather(self) -> None:
        if not self._gather_due:
            self._gather_due = True
            self.writer.require_end_of_turn()

    def bind(self, binding: Binding) -> None:
        """Record the binding of a new or changed subject. Pages repeat the binding while it is in `unwritten`."""
        if binding.segment is None:
            self.unwritten[binding.subject] = binding
        if not binding.pending:  # a pending event also writes this change when it is encoded
            binding.pending = True
            self.update(binding)

    def unbind(self, binding: Binding) -> None:
        """Record the deletion of the subject of ``binding``."""
        self.unwritten.pop(binding.subject, None)
        binding.gone = True
        self.update(binding)

    def forget(self, record: LiveRecord) -> None:
        """Remove an object from the live records of its segment: none of its records is valid any longer."""
        segment, record.segment = record.segment, None
        if segment is not None:
            del segment.live[record]

    def begin_transaction(self, size: int = 0) -> None:
        """Begin a transaction: the events until `commit` take effect together. Transactions nest.

        A transaction with a ``size`` (bytes) may be merged with the previous one if no event came between them: the
        same batch writes both, and neither is confirmed yet.
        """
        if not self._depth:
            opened, pending = self.mark, self._pending
            if 0 < size <= opened.spare and pending and pending[-1] is opened and not opened.number:
                pending.pop()
                opened.spare -= size
            else:
                self.mark = opened = Transaction(MAX_JOINED_BYTES - size if size else 0)
                self.update(opened)
        self._depth += 1

    def commit(self) -> None:
        """End the transaction that the last `begin_transaction` began."""
        self._depth -= 1
        if not self._depth:
            self.update(self.mark)
            if self._skipped:
                self._skipped = False
                self.writer.require_end_of_turn()

    def transaction(self) -> int:
        """Return the number of the open transaction, 0 without one. Pages store the number with each message: a message
        counts only if its transaction was committed.
        """
        if not self._depth:
            return 0
        if not self.mark.number:
            self.mark.number = self.next_transaction
            self.next_transaction += 1
        return self.mark.number

    @property
    def in_transaction(self) -> bool:
        return self._depth > 0

    def pages_recovered(self, page: int) -> None:
        """Report that all pages up to ``page`` have a record, written or queued. From now on, all transactions of
        earlier runs count as complete.
        """
        self._next_page = page + 1
        self.update(TRANSACTIONS_COMPLETE)

    def number_of(self, address: AddressBase) -> int:
        """Return the number of an address. Assigns one if the address has none."""
        if not address.number:
            address.number = next(self.next_address)
        return address.number

    def reserve_queue(self, number: int) -> None:
        """Reserve the number of a queue, so that no other queue gets this number after a crash."""
        if number + LEASE // 2 >= self.next_queue:
            self.next_queue = number + LEASE
            if self.segments:
                self.update(RENEW_NUMBERS)

    def lease_messages(self, end: int) -> None:
        """Reserve message numbers below ``end``. The journal calls ``on_lease`` when the reservation is on disk."""
        self.leased_message = max(self.leased_message, end)
        self.update(RENEW_NUMBERS)

    def update(self, event: object) -> None:
        """Queue an event, such as a changed `LiveRecord`. `gather` encodes the events in order."""
        self._schedule_gather()
        self._pending.append(event)

    # ---- step 2: encode the events as records of the newest segment

    def gather(self) -> bool:
        """Encode pending events and append the records to the newest segment.

        Returns False if events are left: many events take several time slices, and those of an open transaction wait
        for its end. The journal then calls `Writer.end_of_turn` again.
        """
        left = MAX_ENCODED_AT_ONCE
        while True:
            if self._gathering is None:
                if not self._gather_due:
                    return True
                if self._depth:
                    # the open transaction may get more events, and one record must contain the whole transaction
                    self._skipped = True
                    return False
                self._gather_due = False
                pending, self._pending = self._pending, []
                if self._replaced:
                    # events of replaced messages follow all messages of the reactor turn: an incomplete write must not
                    # lose both the former and the new message
                    pending += self._replaced
                    self._replaced = []
                self._gathering = self._encode(pending)
            for encoded in self._gathering:
                left -= encoded
                if left <= 0 and not self.writer.draining:
                    if not self._continuing:
                        self._continuing = True
                        self.clock.soon(self._continue)
                    return False
            self._gathering = None

    def _continue(self) -> None:
        self._continuing = False
        self.writer.end_of_turn()

    def _encode(self, pending: list[object]) -> Iterator[int]:
        if self._encoder.at >= self.file_size:
            self._roll()
        encoder, newest = self._encoder, self.segments[-1]
        if self._entries or self._logged:
            yield from self._encode_retained()
        live = newest.live
        batch = RecordBatch(encoder, self.clock.now, retaining=self.retention is not None)
        pending.reverse()
        some = min(ENCODED_AT_ONCE, MAX_ENCODED_AT_ONCE)
        done = 0
        while pending:  # `pop` frees each event when it is encoded, not all events at the end
            if done == some:
                yield done
                done = 0
            done += 1
            event = pending.pop()
            try:
                if type(event) is Reference:
                    message = event.message
                    if message.segment is not event or event.state == GONE:
                        self._write(event, batch)
                        continue
                    # only one queue holds the message, which is the most frequent case
                    encoder.message(message, event)
                    live[message.number] = event
                    message.segment = newest
                    self.live_bytes += len(message.tail) + RECORD_OVERHEAD
                elif type(event) is tuple:
                    ref: Reference = event[0]
                    reason: int = event[1]
                    if reason == DELIVERY:
                        batch.went_out(ref)
                    else:
                        batch.add(ref, reason)
                else:
                    batch.flush()
                    self._encode_other(event)
            except Exception:  # a bug in one event must not lose the other events
                log.exception("journal record could not be encoded: %r", event)
        batch.flush()
        self.next_message = max(self.next_message, encoder.footer.greatest_number + 1)
        self._append_records()
        if len(self.segments) > 1 and not self.segments[0].live:
            self.drop_dead()

    def _encode_retained(self) -> Iterator[int]:
        entries, logged = self._entries, self._logged
        self._entries, self._logged, self._taken = [], [], {}
        encoder, now = self._encoder, self.clock.now
        for part in retained_parts(entries):
            encoder.retained(part, now)
            yield from repeat(1, 1 + len(part.messages) // RETAINED_AT_ONCE)
        batch = RecordBatch(encoder, now, FOR_READERS, retaining=True)
        for event in logged:
            if isinstance(event, StateChange):
                batch.flush()
                encoder.change(event, FOR_READERS)
            elif isinstance(event, LiveRecord):
                event.encode_logged(encoder)
            elif event[1] == DELIVERED:
                batch.went_out(event[0])
            else:
                batch.add(event[0], event[1])
            yield 1
        batch.flush()
        self._append_records(retained=True)
        self.writer.require_next_batch()
        if self._sync and self._syncing is None:
            steady = self.clock.steady
            self._syncing = steady.call_at(steady.now + RETAINED_SYNC_INTERVAL, self._sync_retained)

    def _write(self, ref: Reference, batch: RecordBatch) -> None:
        """Encode a message with `MessageReferences`. Does nothing if the message is already written or settled."""
        message = ref.message
        live = message.segment
        if type(live) is MessageReferences:
            alive = [each for each in live.refs if each.state != GONE]
            if live.logged is None and not live.changes and len(alive) == len(live.refs):
                self._encoder.message_in_queues(message, live.refs)
                self._keep_message(message, live)
                return
            refs, retains = live.refs, self._retains(message)
            if live.logged is not None:
                batch.flush()  # earlier events must precede the new record
                if not retains:  # keep settled references that were logged: a later record settles them
                    refs = [each for each in refs if each.state != GONE or each in live.logged]
            elif not retains:
                refs = alive
            if alive or retains:
                changes = live.changes and [each for each in live.changes if each.ref in refs]
                self._encoder.copies(message, refs, changes, logged=live.logged, time=self.clock.now)
            live.changes, live.logged = [], None
            if not alive:
                message.segment = None
                return
            live.refs = alive
            self._keep_message(message, live)

    def _keep_message(self, message: Message, live: MessageReferences) -> None:
        """Add a message to the live messages of the newest segment, which has its record."""
        newest = message.segment = self.segments[-1]
        live.left = len(live.refs)
        newest.live[message.number] = live if live.left > 1 else live.refs[0]
        self.live_bytes += len(message.tail) + RECORD_OVERHEAD

    def _encode_other(self, event: object) -> None:
        if type(event) is StateChange:
            self._encoder.change(event)
        elif isinstance(event, LiveRecord):
            event.encode(self._encoder)
            if self.unwritten and isinstance(event, Binding):
                self.writer.after_next_batch(partial(self.unwritten.pop, event.subject, None))
            if event.gone:
                self.forget(event)
            else:
                self.keep_live(event)
        elif isinstance(event, Transaction):
            if event.begun:
                self._encoder.close(event.number)
                if event.number:
                    self.complete_transaction = max(self.complete_transaction, event.number + 1)
            else:
                event.begun = True
                self._encoder.open()
        else:
            if event is TRANSACTIONS_COMPLETE:
                self.complete_transaction = self.next_transaction
                self.next_page = max(self.next_page, self._next_page)
            self._encode_numbers()

    def keep_live(self, record: LiveRecord) -> None:
        """Add an encoded object to the live records of the newest segment, unless its records in an older segment are
        still valid.
        """
        newest = self.segments[-1]
        if record.whole and record.segment is not newest:
            self.forget(record)
        if record.segment is None:
            record.segment = newest
            newest.live[record] = record

    def rewrite(self, key: int | LiveRecord, live: LiveMessage | LiveRecord) -> None:
        """Write a live message or object to the newest segment. The caller has removed it from its old segment."""
        if isinstance(live, LiveRecord):
            live.segment = None
            live.encode_all(self._encoder)
            self.keep_live(live)
        else:
            found = live.refs if isinstance(live, MessageReferences) else [live]
            # a deleted queue may not have settled all of its messages yet
            refs = [each for each in found if each.state != GONE and not each.queue.deleted]
            message = found[0].message
            if not refs:
                self.live_bytes -= len(message.tail) + RECORD_OVERHEAD
                return
            self._encoder.copies(message, refs, logged={each: each.deliveries for each in refs})
            newest = message.segment = self.segments[-1]
            newest.live[key] = live

    def _append_records(self, *, sync: bool = False, retained: bool = False) -> None:
        """Append encoded records to the newest segment.

        ``retained``: only retention needs the records. The next batch writes them, and `_sync_retained` syncs them
        later: a power failure may lose those of the last second, but the end of the process loses none.
        """
        encoder = self._encoder
        data, encoder.parts = b"".join(encoder.parts), []
        if not retained:
            sync, self._sync_next = sync or self._sync_next, False
            if not data and not sync:
                return
            sync = sync or self._sync
        segment = self.segments[-1]
        assert segment.stream is not None
        segment.stream.append(data, sync)
        segment.size += len(data)
        self.bytes += len(data)

    def stop(self) -> None:
        cancel(self._syncing)

    def _sync_retained(self) -> None:
        self._syncing = None
        stream = self.segments[-1].stream
        assert stream is not None
        if stream.unsynced or stream.size > stream.written:
            stream.append(b"", True)

    # ---- segments

    def _open_segment(self, previous: int = 0) -> None:
        """Begin a new segment. ``previous``: bytes of the previous segment without its footer; 0: unknown."""
        number = self.last_segment = self.last_segment + 1
        path = self.directory / f"{number:09d}.journal"
        self.segments.append(JournalSegment(number, path, self._open_stream(path)))
        self._encoder = RecordEncoder(HEADER.size, self.next_address)
        self._encoder.parts.append(
            pack_header(JOURNAL, self.next_message, self.clock.now, number, self.identity, previous=previous)
        )
        self._encode_numbers()
        self._append_records()

    def _open_stream(self, path: Path, size: int = 0) -> AppendOnlyFile:
        stream = self.writer.open(path, size, journal=True)
        if self._sync and not self.writer.files.replicated:
            stream.prefill_from, stream.prefill_until = self.prefill_from, self.file_size
        return stream

    def _encode_numbers(self) -> None:
        leased = max(self.leased_message, self.next_message)
        self._encoder.add(
            NUMBERS.pack(
                Kind.NUMBERS,
                0,
                0,
                self.next_queue,
                self.complete_transaction,
                leased,
                self.next_page,
                self.segments[0].number,
            )
        )
        if leased > self._lease_written:
            self._lease_written, self._sync_next = leased, True
            self.writer.after_next_batch(lambda: self.on_lease(leased))

    def _roll(self) -> None:
        last = self.segments[-1]
        assert last.stream is not None
        last.stream.close(self._encoder.ending)
        self._open_segment(self._encoder.at)
        self.on_roll()

    def drop_dead(self) -> None:
        """Remove the oldest segments without live records, after newer records that replace theirs are on disk."""
        dead = []
        while len(self.segments) > 1 and not self.segments[0].live:
            dead.append(self.segments.pop(0))
        if not dead:
            return
        self._encode_numbers()  # writes the number of the oldest segment
        self._append_records(sync=True)
        for segment in dead:
            self.bytes -= segment.size
            self.writer.after_next_batch(partial(segment.remove, self.writer, self.retention))

    def compact_step(self, items: int, size: int) -> int:
        """Write live records of the oldest segment again: at most ``items`` records, and about ``size`` bytes. Returns
        the number of bytes written.
        """
        if not self.gather():
            return 0
        if self._encoder.at >= self.file_size:
            self._roll()
        oldest, before = self.segments[0], self._encoder.at
        live = oldest.live
        while live and items > 0 and self._encoder.at - before < size and oldest is not self.segments[-1]:
            key, item = live.popitem()
            if isinstance(key, ReferenceRun):
                key.references()  # adds the references of the run to ``live``
                continue
            self.rewrite(key, item)
            items -= 1
        written = self._encoder.at - before
        self._append_records()
        self.drop_dead()
        return written
