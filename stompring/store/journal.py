"""The journal: one sequence of segments with durable messages that are in memory, and facts about all messages.

What the broker tells is gathered in a list and put into records at the end of the turn: a message that was settled
within the turn it came in costs nothing. Every record goes to the newest segment. A segment is deleted when nothing
in it counts any more, always the oldest first: a fact is never older than what it is about, so it may go too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, repeat
from pathlib import Path

from stompring.broker.address import Address
from stompring.broker.clock import Clock, Timer
from stompring.broker.consumer import Consumer
from stompring.broker.message import NOWHERE, Message
from stompring.broker.queue import Queue
from stompring.broker.reference import GONE, Reference
from stompring.broker.storage import DELIVERED, RETURNED, Entries, Reason

from .bindings import Binding
from .cursor import QueuePageState
from .encoder import (
    DELIVERY,
    RENEW_NUMBERS,
    TRANSACTIONS_COMPLETE,
    RecordBatch,
    RecordBatchByConsumer,
    RecordEncoder,
    StateChange,
    TransactionEnd,
    TransactionStart,
    retained_parts,
)
from .record import FOR_READERS, NUMBERS, Cause, Kind
from .retention import Retention
from .segment import (
    HEADER,
    JOURNAL,
    NO_IDENTITY,
    JournalSegment,
    LiveRecord,
    MessageReferences,
    live_size,
    pack_header,
)
from .writer import Writer

log = logging.getLogger(__name__)

#: Queue numbers given out ahead of use, so that one of a queue that is not stored is not given to another later.
LEASE = 1000

#: Of what was told, how much is put into records in one go: some milliseconds of work.
MAX_ENCODED_AT_ONCE = 2000

#: Bytes of transactions that become one, where they may: what a record has that counts as a whole or not at all.
MAX_JOINED_BYTES = 64 * 1024

#: Retained messages that take as long as one thing that was told.
RETAINED_AT_ONCE = 10

#: Milliseconds within which what is only retained is safe from a power cut.
RETAINED_SYNC_INTERVAL = 1000

#: Numbers of messages given out ahead of use: more than a broker gives in a few minutes.
MESSAGE_LEASE = 10_000_000


def segment_path(directory: Path, number: int) -> Path:
    """Where segment ``number`` is."""
    return directory / f"{number:09d}.journal"


class Journal:
    """See the module. ``sync`` False leaves it to the operating system when what is told reaches the disk."""

    def __init__(
        self, directory: Path, writer: Writer, clock: Clock, file_size: int, *, sync: bool = True
    ) -> None:
        self.directory = directory
        self.writer = writer
        self.segments: list[JournalSegment] = []  # ascending; the last is being written
        self.bytes = 0  # of all segments
        self.live_bytes = 0  # of what in them counts, more or less
        self.identity = NO_IDENTITY  # of the data directory
        self.next_message = 1  # greater than the number of any message in it
        self.leased_message = 1  # greater than any message's number that may be in use after a crash now
        self.on_lease: Callable[[int], None] = _ignore  # hears up to which number that is on disk
        self.next_page = 0  # greater than any page's number; 0 until all pages that there are were told of
        self.last_segment = 0  # the greatest number of a file that was found at the start
        self.next_transaction = 1
        self.complete_transaction = 1  # those with smaller numbers are in the journal, or never will be
        self.next_queue = 1  # greater than any queue's number that may be in use after a crash now
        self.next_address = count(1)
        self.on_roll: Callable[[], None] = _nothing
        self.retention: Retention | None = None  # with one all is written, also what has gone already
        self.facts: type[RecordBatch] = RecordBatch
        self.clock = clock
        self.file_size = file_size
        self._sync = sync
        self.unwritten: dict[Queue | Address, Binding] = {}  # bindings of which nothing is on disk yet
        self._told: list[object] = []
        self._entries: list[Entries] = []  # with messages that are retained and need not come back
        self._taken: dict[
            tuple[Queue, Consumer], Entries
        ] = {}  # those with what was settled before it was written
        self._logged: list[
            tuple[Reference, int] | StateChange | QueuePageState
        ] = []  # what became of such messages
        self._asked = False  # `gather` has something to do, and will be called
        self._syncing: Timer | None = None  # when what was retained is synced
        self._depth = 0
        self.mark = self._opened = TransactionStart()  # the transaction that was begun last
        self._closed = TransactionEnd(self._opened)
        self._gathering: Iterator[None] | None = None  # what was told and is put into records bit by bit
        self._going_on = False  # with that, soon
        self._lease_written = 0
        self._sync_next = False  # what is put next must be safe, whatever the settings
        self._skipped = False  # something shall be gathered once the transaction that is open has ended
        self._next_page = 0
        self._tail = RecordEncoder(0, self.next_address)
        writer.gather = self.gather

    # ---- the start

    def begin(
        self, segments: list[JournalSegment], tail: RecordEncoder | None = None, *, roll: bool = False
    ) -> None:
        """Go on after ``segments`` that recovery found: in the last where its ``tail`` is given, else in a new one.

        ``roll``: seal the last, and go on in a new one.
        """
        self.segments = segments
        self.leased_message = self.next_message + MESSAGE_LEASE
        self.bytes = sum(segment.size for segment in segments)
        if tail is None or not segments:
            self._open_segment()
        else:
            last = segments[-1]
            last.stream = self.writer.open(last.path, last.size, journal=True)
            self._tail = tail
            if roll:
                self._next_segment()
                return
            self._tell_numbers()
            self._put()

    # ---- what the broker tells

    def append(self, ref: Reference) -> None:
        """A message entered a queue."""
        message = ref.message
        held = message.segment
        if held is None:
            message.segment = ref
            self.note(ref)
        elif type(held) is Reference:
            message.segment = MessageReferences([held, ref])
        elif type(held) is MessageReferences:
            held.refs.append(ref)
        else:
            self._append_again(ref)

    def append_scheduled(self, ref: Reference) -> None:
        """The same, with a due time."""
        self.append(ref)
        if ref.due > ref.message.timestamp:
            self._changed(ref, Cause.SCHEDULED)

    def _append_again(self, ref: Reference) -> None:
        """A message that is written already entered another queue: it is written again, with all of them."""
        message = ref.message
        segment = message.segment
        assert type(segment) is JournalSegment
        held = segment.live.pop(message.number, None)
        if held is not None:
            self.live_bytes -= live_size(len(message.tail))
        refs = held.refs if type(held) is MessageReferences else [held] if type(held) is Reference else []
        message.segment = MessageReferences([*refs, ref], {each: each.deliveries for each in refs})
        self.note(ref)

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
                self._retains(message) or (segment.told is not None and ref in segment.told)
            ):
                self.note((ref, reason))
            return
        live, number = segment.live, message.number
        held = live.pop(number, None)
        if held is ref:
            self.live_bytes -= live_size(len(message.tail))
        elif type(held) is MessageReferences:
            held.left -= 1
            if held.left:
                live[number] = held
            else:
                self.live_bytes -= live_size(len(message.tail))
        self.note((ref, reason))

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
        for _ in range(ref.deliveries):
            self.log(ref, DELIVERED)
        self.log(ref, reason)

    def log(self, ref: Reference, event: int) -> None:
        """What became of a message that is retained, and that no restart brings back."""
        if not self._asked:
            self._ask()
        if event >= RETURNED:
            cause = Cause.RETURNED if event == RETURNED else Cause.SCHEDULED
            self._logged.append(StateChange.of(ref, cause, self.clock.now))
        else:
            self._logged.append((ref, event))

    def log_page(self, holding: QueuePageState) -> None:
        """The same of messages of a page."""
        if not self._asked:
            self._ask()
        self._logged.append(holding)

    def returned(self, ref: Reference) -> None:
        """A delivery came back: the counts of a message in a queue are new, and its due time perhaps."""
        self._changed(ref, Cause.RETURNED)

    def postponed(self, ref: Reference) -> None:
        """A recurring message waits for its next due time."""
        self._changed(ref, Cause.SCHEDULED)

    def _changed(self, ref: Reference, cause: Cause) -> None:
        message = ref.message
        held = message.segment
        if held is None:
            return
        change = StateChange.of(ref, cause, self.clock.now)
        if type(held) is JournalSegment:
            self.note(change)
            return
        if type(held) is not MessageReferences:
            held = message.segment = MessageReferences(
                [ref]
            )  # so that it is not taken for one to which nothing happened
        held.changes.append(change)

    def delivered(self, ref: Reference) -> None:
        """A message that waited went out to a consumer."""
        if type(ref.message.segment) is JournalSegment:
            self.note((ref, DELIVERY))

    def record(self, entries: Entries) -> None:
        """Messages that need not come back are about to be gathered in ``entries``."""
        if not self._asked:
            self._ask()
        self._entries.append(entries)

    def _ask(self) -> None:
        self._asked = True
        self.clock.soon(self.writer.attend)

    def bind(self, binding: Binding) -> None:
        """A queue or an address was made or changed. Pages that name one whose binding is `unwritten` repeat it."""
        if binding.segment is None:
            self.unwritten[binding.subject] = binding
        self.note(binding)

    def unbind(self, binding: Binding) -> None:
        """It was deleted."""
        self.unwritten.pop(binding.subject, None)
        binding.gone = True
        self.note(binding)

    def tell(self, kept: LiveRecord) -> None:
        """Something else has news; it is asked at the end of the turn, in its place among what else was told."""
        self.note(kept)

    def forget(self, kept: LiveRecord) -> None:
        """What was told of it does not count any more."""
        segment, kept.segment = kept.segment, None
        if segment is not None:
            del segment.live[kept]

    def begin_transaction(self, size: int = 0) -> None:
        """What follows takes effect as one. Transactions nest.

        With a ``size`` in bytes it may become one with such a transaction that was told right before: both are written
        together in any case, and nobody was told that one of them is safe.
        """
        if not self._depth:
            opened, told = self._opened, self._told
            if 0 < size <= opened.spare and told and told[-1] is self._closed and not opened.number:
                told.pop()
                opened.spare -= size
            else:
                self.mark = self._opened = opened = TransactionStart(MAX_JOINED_BYTES - size if size else 0)
                self._closed = TransactionEnd(opened)
                self.note(opened)
        self._depth += 1

    def commit(self) -> None:
        """End of what `begin_transaction` opened."""
        self._depth -= 1
        if not self._depth:
            self.note(self._closed)
            if self._skipped:
                self._skipped = False
                self.clock.soon(self.writer.attend)

    def transaction(self) -> int:
        """The number that pages note with what they write now: it counts once the transaction is committed. 0: now."""
        if not self._depth:
            return 0
        if not self._opened.number:
            self._opened.number = self.next_transaction
            self.next_transaction += 1
        return self._opened.number

    @property
    def in_transaction(self) -> bool:
        """Whether one is open."""
        return self._depth > 0

    def pages_recovered(self, transaction: int, message: int, queue: int, page: int) -> None:
        """The greatest numbers in pages. What is not complete of transactions there has been told to be settled.

        All pages that there are have been told of too: only after those may a record say so.
        """
        self._next_page = page + 1
        self.next_transaction = max(self.next_transaction, transaction + 1)
        self.next_message = max(self.next_message, message + 1)
        self.next_queue = max(self.next_queue, queue + 1)
        self.note(TRANSACTIONS_COMPLETE)

    def note_queue(self, number: int) -> None:
        """A queue has this number, which none shall have that is made after a crash."""
        if number + LEASE // 2 >= self.next_queue:
            self.next_queue = number + LEASE
            if self.segments:
                self.note(RENEW_NUMBERS)

    def lease_messages(self, end: int) -> None:
        """Numbers of messages before ``end`` will be in use; ``on_lease`` hears when they may be."""
        self.leased_message = max(self.leased_message, end)
        self.note(RENEW_NUMBERS)

    def note(self, news: object) -> None:
        """Anything that `gather` understands."""
        if not self._asked:
            self._ask()
        self._told.append(news)

    def when_synced(self, call: Callable[[], None]) -> None:
        """Call once everything told so far would survive a crash."""
        if self._asked or self._gathering is not None:
            self.writer.with_next(call)
        else:
            self.writer.when_synced(call)

    # ---- records

    def gather(self) -> bool:
        """Put what was told into records, and those into the newest segment.

        False where that is not all of it: what is much is put there in slices, and of a transaction that is open
        nothing is. `Writer.attend` is called again for the rest.
        """
        left = MAX_ENCODED_AT_ONCE
        while True:
            if self._gathering is None:
                if not self._asked:
                    return True
                if self._depth:
                    self._skipped = True  # only ever whole transactions
                    return False
                self._asked = False
                told, self._told = self._told, []
                self._gathering = self._put_into_records(told)
            for _ in self._gathering:
                left -= 1
                if left <= 0 and not self.writer.draining:
                    if not self._going_on:
                        self._going_on = True
                        self.clock.soon(self._go_on)
                    return False
            self._gathering = None

    def _go_on(self) -> None:
        self._going_on = False
        self.writer.attend()

    def _put_into_records(self, told: list[object]) -> Iterator[None]:
        if self._tail.at >= self.file_size:
            self._roll()
        tail, newest = self._tail, self.segments[-1]
        if self._entries or self._logged:
            yield from self._put_retained_into_records()
        live = newest.live
        facts = self.facts(tail, self.clock.now)
        told.reverse()
        while told:  # each is let go of when it is written, and not all at once at the end
            news = told.pop()
            yield
            try:
                if type(news) is Reference:
                    message = news.message
                    if message.segment is not news or news.state == GONE:
                        self._write(news, facts)
                        continue
                    # one queue holds it, as it is with most
                    tail.message(message, news)
                    live[message.number] = news
                    message.segment = newest
                    self.live_bytes += live_size(len(message.tail))
                elif type(news) is tuple:
                    ref: Reference = news[0]
                    reason: int = news[1]
                    if reason == DELIVERY:
                        facts.went_out(ref)
                    else:
                        facts.add(ref, reason)
                else:
                    facts.flush()
                    self._gather_other(news)
            except Exception:  # a fault of ours: it must not take along what else was told
                log.exception("the journal cannot write %r", news)
        facts.flush()
        self.next_message = max(self.next_message, tail.footer.greatest_number + 1)
        self._put()
        self.drop_dead()

    def _put_retained_into_records(self) -> Iterator[None]:
        entries, logged = self._entries, self._logged
        self._entries, self._logged, self._taken = [], [], {}
        tail, now = self._tail, self.clock.now
        for part in retained_parts(entries):
            tail.retained(part, now)
            yield from repeat(None, 1 + len(part.messages) // RETAINED_AT_ONCE)
        facts = RecordBatchByConsumer(tail, now, FOR_READERS)
        for news in logged:
            if isinstance(news, StateChange):
                facts.flush()
                tail.change(news, FOR_READERS)
            elif isinstance(news, QueuePageState):
                news.tell_logged(tail)
            elif news[1] == DELIVERED:
                facts.went_out(news[0])
            else:
                facts.add(news[0], news[1])
            yield
        facts.flush()
        self._put_retained()

    def _write(self, ref: Reference, facts: RecordBatch) -> None:
        """A message that several queues hold, or none any more."""
        message = ref.message
        held = message.segment
        if type(held) is MessageReferences:
            alive = [each for each in held.refs if each.state != GONE]
            refs, retains = held.refs, self._retains(message)
            if held.told is not None:
                facts.flush()  # they count from that record on
                if not retains:  # what that one has is told to be settled later, and must be in this one too
                    refs = [each for each in refs if each.state != GONE or each in held.told]
            elif not retains:
                refs = alive
            if alive or retains:
                changes = held.changes and [each for each in held.changes if each.ref in refs]
                self._tail.copies(message, refs, changes, told=held.told, time=self.clock.now)
            held.changes, held.told = [], None
            if not alive:
                message.segment = None
                return
            held.refs, held.left = alive, len(alive)
            self._keep(message.number, held if len(alive) > 1 else alive[0])
            message.segment = self.segments[-1]
            self.live_bytes += live_size(len(message.tail))

    def _keep(self, key: int | LiveRecord, item: Reference | MessageReferences | LiveRecord) -> None:
        self.segments[-1].live[key] = item

    def _gather_other(self, news: object) -> None:
        if type(news) is StateChange:
            self._tail.change(news)
        elif isinstance(news, LiveRecord):
            news.tell(self._tail)
            if self.unwritten and isinstance(news, Binding):
                self.writer.with_next(partial(self._written, news.subject))
            if news.gone:
                self.forget(news)
            else:
                self.settle_down(news)
        elif isinstance(news, TransactionStart):
            self._tail.open()
        elif isinstance(news, TransactionEnd):
            number = news.opened.number
            self._tail.close(number)
            self.complete_transaction = max(self.complete_transaction, number + 1 if number else 0)
        else:
            if news is TRANSACTIONS_COMPLETE:
                self.complete_transaction = self.next_transaction
                self.next_page = max(self.next_page, self._next_page)
            self._tell_numbers()

    def _written(self, subject: Queue | Address) -> None:
        self.unwritten.pop(subject, None)

    def settle_down(self, kept: LiveRecord, *, repeated: bool = False) -> None:
        """Note the segment with the oldest record of ``kept`` that counts, after it was told or ``repeated``."""
        newest = self.segments[-1]
        if kept.segment is not None and (kept.whole or repeated) and kept.segment is not newest:
            self.forget(kept)
        if kept.segment is None:
            kept.segment = newest
            newest.live[kept] = kept

    def rewrite(self, key: int | LiveRecord, held: Reference | MessageReferences | LiveRecord) -> None:
        """Write something live once more, at the end; it was taken out of its segment."""
        if isinstance(held, LiveRecord):
            held.segment = None
            held.repeat(self._tail)
            self.settle_down(held, repeated=True)
        else:
            found = held.refs if isinstance(held, MessageReferences) else [held]
            # of a queue that was deleted nothing counts, whether it has let go of all its messages already or not
            refs = [each for each in found if each.state != GONE and not each.queue.deleted]
            message = found[0].message
            if not refs:
                self.live_bytes -= live_size(len(message.tail))
                return
            self._tail.copies(message, refs, told={each: each.deliveries for each in refs})
            self._keep(key, held)
            message.segment = self.segments[-1]

    def _put(self, *, sync: bool = False) -> None:
        segment = self.segments[-1]
        sync, self._sync_next = sync or self._sync_next, False
        data = self._tail.take()
        if data or sync:
            assert segment.stream is not None
            segment.stream.append(data, self._sync or sync)
            segment.size += len(data)
            self.bytes += len(data)

    def _put_retained(self) -> None:
        """As `_put`, of what no restart needs: it need not be safe before anybody is answered, but it must be written.

        So the end of the process takes nothing of it along, and a power cut what came in the last moments.
        """
        segment, data = self.segments[-1], self._tail.take()
        assert segment.stream is not None
        segment.stream.append(data, False)
        segment.size += len(data)
        self.bytes += len(data)
        self.writer.await_next()
        if self._sync and self._syncing is None:
            steady = self.clock.steady
            self._syncing = steady.call_at(steady.now + RETAINED_SYNC_INTERVAL, self._sync_retained)

    def stop(self) -> None:
        """No timer is left behind."""
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None

    def _sync_retained(self) -> None:
        self._syncing = None
        stream = self.segments[-1].stream
        assert stream is not None
        if stream.unsynced or stream.size > stream.written:
            stream.append(b"", True)

    # ---- segments

    def _open_segment(self, previous: int = 0) -> None:
        """``previous`` is how many bytes of records the one before has; 0 where that is not known."""
        number = self.last_segment = (
            max(self.last_segment, *(each.number for each in self.segments[-1:]), 0) + 1
        )
        path = segment_path(self.directory, number)
        segment = JournalSegment(number, path, self.writer.open(path, journal=True))
        self.segments.append(segment)
        self._tail = RecordEncoder(HEADER.size, self.next_address)
        header = pack_header(
            JOURNAL, self.next_message, self.clock.now, number, self.identity, previous=previous
        )
        assert segment.stream is not None
        segment.stream.append(header, self._sync)
        segment.size += len(header)
        self.bytes += len(header)
        self._tell_numbers()
        self._put()

    def _tell_numbers(self) -> None:
        leased = max(self.leased_message, self.next_message)
        self._tail.add(
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
            self.writer.with_next(lambda: self.on_lease(leased))

    def _roll(self) -> None:
        self._next_segment()
        self.on_roll()

    def _next_segment(self) -> None:
        last = self.segments[-1]
        assert last.stream is not None
        last.stream.close(self._tail.ending)
        self._open_segment(self._tail.at)

    def drop_dead(self) -> None:
        """Delete the oldest segments in which nothing counts, once what made it so is safe."""
        dead = []
        while len(self.segments) > 1 and not self.segments[0].live:
            dead.append(self.segments.pop(0))
        if not dead:
            return
        self._tell_numbers()  # which segment is the oldest now
        self._put(sync=True)
        for segment in dead:
            self.bytes -= segment.size
            self.writer.with_next(partial(segment.remove, self.writer, self.retention))

    def compact_step(self, items: int, size: int) -> int:
        """Write some of what counts in the oldest segment once more, at the end; returns the bytes that took."""
        if not self.gather():
            return 0
        if self._tail.at >= self.file_size:
            self._roll()
        oldest, before = self.segments[0], self._tail.at
        live = oldest.live
        while live and items > 0 and self._tail.at - before < size and oldest is not self.segments[-1]:
            key, held = live.popitem()
            self.rewrite(key, held)
            items -= 1
        written = self._tail.at - before
        self._put()
        self.drop_dead()
        return written


def _nothing() -> None:
    """Nobody is interested."""


def _ignore(number: int) -> None:
    """Nobody is interested."""
