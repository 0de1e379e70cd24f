"""The journal: a sequence of segments with messages and events, and its compaction.

Compaction: what still counts in the oldest segment is written once more, so that the segment can go.

It happens in small steps between other things, never far ahead of the disk, and only while little of the journal
counts (``journal-compact-min-files``, ``journal-compact-percentage``), so that what is written twice is a part of
what is written anyway. A segment that is damaged goes as soon as it is the oldest.

The journal: a sequence of segments with the durable messages that are in memory, and events about all messages.

Events are appended to a list and encoded as records at the end of the reactor turn: a message that is settled within
the turn it came in costs nothing. Every record goes to the newest segment. A segment is deleted when it has no live
record, always the oldest first: an event is never older than the message it is about, so it is deleted after it.

The path of a durable message has four steps: `Journal.append` takes it, `Journal.gather` has it encoded as a record
(`RecordEncoder`), `WriteBatch.write` writes and syncs the record in the disk thread, and `WriteBatch.confirm` calls
those who wait for it, such as receipts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any

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
DAMAGED = ".damaged"


class LiveRecord:
    """Something besides messages: a binding, or what a queue has settled in a page.

    ``segment`` is the oldest one that holds something of it which no later record repeats. ``whole`` says that
    `encode` writes all of it, so that older records no longer count; ``gone`` that it writes its own removal.
    """

    whole = True

    def __init__(self) -> None:
        self.segment: JournalSegment | None = None
        self.gone = False

    def encode(self, encoder: RecordEncoder) -> None:
        """Add what is new since the last time; called once at the end of the turn for each `Journal.update`."""
        raise AssertionError("a subclass encodes its record")

    def encode_all(self, encoder: RecordEncoder) -> None:
        """Add all of it, because the segment goes that has it."""
        self.encode(encoder)

    def encode_logged(self, encoder: RecordEncoder) -> None:
        """Add what `Journal.log_page` was called for."""
        raise AssertionError("a subclass encodes its record")


class Binding(LiveRecord):
    """JSON under a number: an address, a durable queue, or a value that others want to find again."""

    def __init__(
        self, what: int, number: int, subject: object, describe: Callable[[], Mapping[str, Any]]
    ) -> None:
        super().__init__()
        self.subject = subject  # what is described
        self._what = what
        self._number = number
        self._describe = describe

    def record(self) -> bytes:
        """The payload of its record, as it is now."""
        return pack_binding(self._what, self._number, None if self.gone else self._describe())

    def encode(self, encoder: RecordEncoder) -> None:
        encoder.add(self.record())


class MessageReferences:
    """The references of a message that several queues hold. ``left`` counts those that are not settled.

    Until the message is written it stands also for one that a single queue holds, where something happened to that.
    """

    __slots__ = ("changes", "left", "logged", "refs")

    def __init__(self, refs: list[Reference], logged: dict[Reference, int] | None = None) -> None:
        self.refs = refs
        self.left = len(refs)
        self.changes: list[StateChange] = []  # before it was written
        #: Where a segment has the message without the latest of these: deliveries of the others that were logged.
        self.logged = logged


#: What stands for a live message in its segment.
LiveMessage = Reference | MessageReferences


@dataclass(eq=False)
class JournalSegment:
    """One file of the journal, and what in it still counts.

    A message's ``segment`` is the one with its latest record. Before the message is written it is the `Reference`
    or `MessageReferences` that will be.
    """

    number: int
    path: Path
    stream: AppendOnlyFile | None = None  # None for one of an earlier run
    size: int = 0
    #: messages by number, and runs of them by themselves
    live: dict[int | LiveRecord | ReferenceRun, LiveMessage | LiveRecord] = field(default_factory=dict)
    damaged: bool = False  # it is set aside, and not deleted, when its time comes

    def remove(self, writer: Writer, retention: Retention | None) -> None:
        """The file goes, or is set aside where it is damaged: everything that counts in it is safe elsewhere."""
        path = self.path
        if self.damaged:
            writer.run_task(lambda files: files.rename(path, path.with_name(path.name + DAMAGED)))
        elif retention is not None:
            retention.retain(path, self.size)
        elif self.stream is not None:
            self.stream.delete()
        else:
            writer.run_task(lambda files: files.remove(path))


#: Bytes of a record beyond the tail of its message, more or less, for the share of what is live.
RECORD_OVERHEAD = 120


#: What one step may write: about a millisecond of work.
STEP_RECORDS, STEP_BYTES = 200, 256 * 1024

#: Seconds between two steps, and until a disk that is behind is looked at again.
STEP_INTERVAL, BACKLOG_INTERVAL = 0.004, 0.1

#: Bytes that wait for the disk from which on it is behind.
BACKLOG_BYTES = 4 * 1024 * 1024


class Compaction:
    """Keeps one journal small. ``segments`` and ``rewritten`` count what it has done."""

    def __init__(self, journal: Journal, clock: Clock, min_files: int, percentage: int) -> None:
        self.segments = 0
        self.rewritten = 0  # bytes
        self.clock = clock
        self._journal = journal
        self._min_files = min_files
        self._percentage = percentage
        self._timer: Any = None
        self._at: object = None  # the segment that is being emptied
        self._last = 0  # the number of the newest segment when this pass over the journal began
        self._own = 0  # segments that were begun by compaction itself
        self._others = -1  # how many others there had been when this pass began
        journal.on_roll = self.consider

    @property
    def needed(self) -> bool:
        """Whether the oldest segment should go."""
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
        return segments[0].number <= self._last or self._news > self._others

    @property
    def _news(self) -> int:
        """How many segments were begun for events of the broker.

        Without another one of these a new pass would find what the last one has written, and nothing else: where
        bindings alone are most of a small journal it would go on for ever.
        """
        return self._journal.segments[-1].number - self._own

    def consider(self) -> None:
        """The journal has grown, or something in it has ended."""
        if self._timer is None and self.needed:
            self._timer = self.clock.reactor.callLater(STEP_INTERVAL, self._step)

    def stop(self) -> None:
        """No timer is left behind."""
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
            self._last, self._others = newest, self._news
        self.rewritten += self._journal.compact_step(STEP_RECORDS, STEP_BYTES)
        self._own += segments[-1].number - newest
        if self._journal.segments[0] is not oldest:
            self._at = None
            self.segments += 1
            log.debug("compacted journal segment %d", oldest.number)
        self.consider()


#: Queue numbers given out ahead of use, so that one of a queue that is not stored is not given to another later.
LEASE = 1000

#: Events encoded in one slice: some milliseconds of work.
MAX_ENCODED_AT_ONCE = 2000

#: Bytes of transactions that become one, where they may: what a record has that counts as a whole or not at all.
MAX_JOINED_BYTES = 64 * 1024

#: Events between two looks at how many there were.
ENCODED_AT_ONCE = 64

#: Retained messages that take as long to encode as one event.
RETAINED_AT_ONCE = 10

#: Milliseconds within which what is only retained is safe from a power cut.
RETAINED_SYNC_INTERVAL = 1000

#: Numbers of messages given out ahead of use: more than a broker gives in a few minutes.
MESSAGE_LEASE = 10_000_000


class Journal:
    """See the module. ``sync`` False leaves it to the operating system when records reach the disk."""

    def __init__(self, directory: Path, writer: Writer, clock: Clock, file_size: int, *, sync: bool) -> None:
        self.directory = directory
        self.writer = writer
        self.segments: list[JournalSegment] = []  # ascending; the last is being written
        self.bytes = 0  # of all segments
        self.live_bytes = 0  # of what in them counts, more or less
        self.identity = NO_IDENTITY  # of the data directory
        self.next_message = 1  # greater than the number of any message in it
        self.leased_message = 1  # greater than any message's number that may be in use after a crash now
        #: Called with the end of the reservation that is on disk.
        self.on_lease: Callable[[int], object] = lambda number: None
        self.next_page = 0  # greater than any page's number; 0 until all existing pages have a record
        self.last_segment = 0  # the greatest number of a file that was found at the start, or was begun since
        self.next_transaction = 1
        self.complete_transaction = 1  # those with smaller numbers are in the journal, or never will be
        self.next_queue = 1  # greater than any queue's number that may be in use after a crash now
        self.next_address = count(1)
        self.on_roll: Callable[[], object] = lambda: None
        self.retention: Retention | None = None  # with one all is written, also what has gone already
        self.clock = clock
        self.file_size = file_size
        self.prefill_from = (
            PREFILL_FROM  # bytes of a segment from which on zeros are written ahead of records
        )
        self._sync = sync
        self.unwritten: dict[object, Binding] = {}  # bindings of which nothing is on disk yet
        self._pending: list[object] = []
        self._replaced: list[object] = []  # settled because a newer message has come: written behind that
        self._entries: list[Entries] = []  # with messages that are retained and need not come back
        self._taken: dict[
            tuple[QueueBase, ConsumerBase], Entries
        ] = {}  # those of messages that were settled before they were written
        self._logged: list[
            tuple[Reference, int] | StateChange | LiveRecord
        ] = []  # what became of such messages
        self._gather_due = False  # `gather` has something to do, and will be called
        self._syncing: Timer | None = None  # when what was retained is synced
        self._depth = 0
        self.mark = Transaction()  # the one that was begun last
        self._gathering: Iterator[int] | None = None  # events that are being encoded; gives how many
        self._going_on = False  # with that, soon
        self._lease_written = 0
        self._sync_next = False  # what is put next must be safe, whatever the settings
        self._skipped = False  # something shall be gathered once the transaction that is open has ended
        self._next_page = 0
        self._encoder = RecordEncoder(0, self.next_address)
        writer.gather = self.gather

    # ---- the start

    def begin(self, segments: list[JournalSegment], encoder: RecordEncoder | None = None) -> None:
        """Continue after the ``segments`` of an earlier run: in the last with its ``encoder``, else in a new one."""
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

    # ---- step 1: append events; they are encoded at the end of the turn

    def append(self, ref: Reference) -> None:
        """A message entered a queue."""
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
        """A message that is written already entered another queue: it is written again, with all of them."""
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
        """A queue gave up a message."""
        message = ref.message
        segment = message.segment
        if type(segment) is not JournalSegment:
            if segment is ref:
                message.segment = None  # not written yet, and never will be
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
        """Whether a message is written even where no restart has to bring it back."""
        return self.retention is not None and message.traits.retained != NOWHERE

    def _retain(self, ref: Reference, reason: Reason) -> None:
        """A message that one queue had was settled before it was written: no restart brings it back."""
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
        """What became of a message that is retained, and that no restart brings back."""
        self._schedule_gather()
        if event >= RETURNED:
            cause = Cause.RETURNED if event == RETURNED else Cause.SCHEDULED
            self._logged.append(StateChange(ref, cause, MessageState.of(ref), self.clock.now))
        else:
            self._logged.append((ref, event))

    def log_page(self, page_state: LiveRecord) -> None:
        """The same of messages of a page."""
        self._schedule_gather()
        self._logged.append(page_state)

    def returned(self, ref: Reference) -> None:
        """A delivery came back: the counts of a message in a queue are new, and its due time perhaps."""
        self._changed(ref, Cause.RETURNED)

    def postponed(self, ref: Reference) -> None:
        """A message has come with a due time, or a recurring one waits for its next."""
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
            # so that it is not taken for one to which nothing happened
            live = message.segment = MessageReferences([ref])
        live.changes.append(change)

    def delivered(self, ref: Reference) -> None:
        """A message that waited went out to a consumer."""
        if type(ref.message.segment) is JournalSegment:
            self.update((ref, DELIVERY))

    def record(self, entries: Entries) -> None:
        """Retained messages that need not survive a restart are about to be collected in ``entries``."""
        self._schedule_gather()
        self._entries.append(entries)

    def _schedule_gather(self) -> None:
        if not self._gather_due:
            self._gather_due = True
            self.writer.require_end_of_turn()

    def bind(self, binding: Binding) -> None:
        """What it describes was made or changed. Pages that name one whose binding is `unwritten` repeat it."""
        if binding.segment is None:
            self.unwritten[binding.subject] = binding
        self.update(binding)

    def unbind(self, binding: Binding) -> None:
        """It was deleted."""
        self.unwritten.pop(binding.subject, None)
        binding.gone = True
        self.update(binding)

    def forget(self, record: LiveRecord) -> None:
        """No record of it counts any more."""
        segment, record.segment = record.segment, None
        if segment is not None:
            del segment.live[record]

    def begin_transaction(self, size: int = 0) -> None:
        """What follows takes effect as one. Transactions nest.

        With a ``size`` in bytes it may be merged with such a transaction that ended right before: both are written
        together in any case, and neither was confirmed before.
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
        """End of what `begin_transaction` opened."""
        self._depth -= 1
        if not self._depth:
            self.update(self.mark)
            if self._skipped:
                self._skipped = False
                self.writer.require_end_of_turn()

    def transaction(self) -> int:
        """The number that pages write with their messages, which count once it is committed; 0: outside of one."""
        if not self._depth:
            return 0
        if not self.mark.number:
            self.mark.number = self.next_transaction
            self.next_transaction += 1
        return self.mark.number

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return self._depth > 0

    def pages_recovered(self, page: int) -> None:
        """All pages, up to number ``page``, and the settling of incomplete transactions were appended."""
        self._next_page = page + 1
        self.update(TRANSACTIONS_COMPLETE)

    def number_of(self, address: AddressBase) -> int:
        """The number of an address; a new one if it has none."""
        if not address.number:
            address.number = next(self.next_address)
        return address.number

    def reserve_queue(self, number: int) -> None:
        """A queue has this number, which must not be given to another after a crash."""
        if number + LEASE // 2 >= self.next_queue:
            self.next_queue = number + LEASE
            if self.segments:
                self.update(RENEW_NUMBERS)

    def lease_messages(self, end: int) -> None:
        """Reserve message numbers before ``end``; ``on_lease`` is called when the reservation is on disk."""
        self.leased_message = max(self.leased_message, end)
        self.update(RENEW_NUMBERS)

    def update(self, event: object) -> None:
        """Encode an event, such as a change of a live record, at the end of the turn, in order with the others."""
        self._schedule_gather()
        self._pending.append(event)

    # ---- step 2: encode the events as records of the newest segment

    def gather(self) -> bool:
        """Encode pending events and append the records to the newest segment.

        False if some are left: many events are encoded in slices, and those of an open transaction not before its end.
        `Writer.end_of_turn` is called again for the rest.
        """
        left = MAX_ENCODED_AT_ONCE
        while True:
            if self._gathering is None:
                if not self._gather_due:
                    return True
                if self._depth:
                    self._skipped = True  # only ever whole transactions
                    return False
                self._gather_due = False
                pending, self._pending = self._pending, []
                if self._replaced:
                    # behind all messages of the turn: a write that is torn must not lose both
                    pending += self._replaced
                    self._replaced = []
                self._gathering = self._encode(pending)
            for encoded in self._gathering:
                left -= encoded
                if left <= 0 and not self.writer.draining:
                    if not self._going_on:
                        self._going_on = True
                        self.clock.soon(self._go_on)
                    return False
            self._gathering = None

    def _go_on(self) -> None:
        self._going_on = False
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
        while pending:  # each is let go of when it is written, and not all at once at the end
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
                    # one queue holds it, as it is with most
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
            except Exception:  # a bug: the other events must be written all the same
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
        """A message that several queues hold, or none any more."""
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
                batch.flush()  # they count from that record on
                if not retains:  # settled by a later record, so they must be in this one, too
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
        """Note that the newest segment has the record of a message."""
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
        """Note the segment with its oldest record that counts, after ``record`` was encoded."""
        newest = self.segments[-1]
        if record.whole and record.segment is not newest:
            self.forget(record)
        if record.segment is None:
            record.segment = newest
            newest.live[record] = record

    def rewrite(self, key: int | LiveRecord, live: LiveMessage | LiveRecord) -> None:
        """Write something live once more, at the end; it was taken out of its segment."""
        if isinstance(live, LiveRecord):
            live.segment = None
            live.encode_all(self._encoder)
            self.keep_live(live)
        else:
            found = live.refs if isinstance(live, MessageReferences) else [live]
            # of a queue that was deleted nothing counts, whether it has let go of all its messages already or not
            refs = [each for each in found if each.state != GONE and not each.queue.deleted]
            message = found[0].message
            if not refs:
                self.live_bytes -= len(message.tail) + RECORD_OVERHEAD
                return
            self._encoder.copies(message, refs, logged={each: each.deliveries for each in refs})
            newest = message.segment = self.segments[-1]
            newest.live[key] = live

    def _append_records(self, *, sync: bool = False, retained: bool = False) -> None:
        """Append what is encoded to the newest segment.

        ``retained``: no restart needs it. It is written with the batch and synced later: it survives the end of the
        process; a power cut may lose the last second of it.
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
        """No timer is left behind."""
        cancel(self._syncing)

    def _sync_retained(self) -> None:
        self._syncing = None
        stream = self.segments[-1].stream
        assert stream is not None
        if stream.unsynced or stream.size > stream.written:
            stream.append(b"", True)

    # ---- segments

    def _open_segment(self, previous: int = 0) -> None:
        """``previous`` is how many bytes of records the one before has; 0 where that is not known."""
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
        """Delete the oldest segments in which nothing counts, once what made it so is safe."""
        dead = []
        while len(self.segments) > 1 and not self.segments[0].live:
            dead.append(self.segments.pop(0))
        if not dead:
            return
        self._encode_numbers()  # which segment is the oldest now
        self._append_records(sync=True)
        for segment in dead:
            self.bytes -= segment.size
            self.writer.after_next_batch(partial(segment.remove, self.writer, self.retention))

    def compact_step(self, items: int, size: int) -> int:
        """Write some of what counts in the oldest segment once more, at the end; returns the bytes that took."""
        if not self.gather():
            return 0
        if self._encoder.at >= self.file_size:
            self._roll()
        oldest, before = self.segments[0], self._encoder.at
        live = oldest.live
        while live and items > 0 and self._encoder.at - before < size and oldest is not self.segments[-1]:
            key, item = live.popitem()
            if isinstance(key, ReferenceRun):
                key.references()  # they are in ``live`` now
                continue
            self.rewrite(key, item)
            items -= 1
        written = self._encoder.at - before
        self._append_records()
        self.drop_dead()
        return written
