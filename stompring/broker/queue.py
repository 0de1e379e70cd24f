"""A queue: its messages, how they enter, leave and come back, its ring, its last values and its counters.

A queue: its messages, how they enter, leave and come back, its ring and its counters.

A message that arrives while nothing is pending is delivered at once to the consumer whose turn it is
(`Queue.enqueue`); everything else waits in the lists of the queue's `Dispatcher`.

Last-value queues: of all messages with one key only the newest is pending (Artemis, "Last-Value Queues").

The queue has an index: for each key the newest message that has entered the queue and not left it. That is a reference
while the message is in memory, and a number (`LastValueQueue.encode`) while it is on disk only. When the next message
with the key enters, the message in the index is replaced: at once if it is pending, when it comes back if it is in
delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush, merge
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from stompring.errors import Refused
from stompring.selector import InvalidSelector, compile_selector
from stompring.settings.model import AddressSettings, QueueConfiguration, RingPolicy, RoutingType, options_of
from stompring.settings.value_types import VALUE_TYPES, message_header

from .clock import Due
from .delivery import (
    CLOSED,
    LAST_VALUE,
    OBSERVED,
    PAGED,
    PAUSED,
    SELECTORS,
    Consumer,
    Dispatcher,
    Matches,
    not_from,
)
from .lifetime import is_expired, redelivery_delay_of, remove_if_exhausted
from .message import EVERYWHERE, IN_DURABLE, MESSAGE_OVERHEAD, NEVER, SYSTEM_PROPERTIES, Message, Traits
from .ports import DELIVERED, POSTPONED, RETURNED, Entries, Reason, hooks_with_settled
from .reference import DELIVERING, GONE, PENDING, SCHEDULED, PendingList, Reference, ReferenceRun

if TYPE_CHECKING:
    from .address import Address
    from .broker import Broker
    from .clock import Recurrence
    from .history import History
    from .ports import Cursor, Listener, Page, PagedQueue, Pages, Position


#: References of which a part comes back before paging is asked whether some are to be sent to disk again.
STEP = 256

#: References that are sorted in one go: some milliseconds.
MOST_SORTED = 10_000

#: Sequences that are reserved at the head of a queue for what falls due together: numbers, of which there are enough.
MOST_TOGETHER = 1 << 40


class DueBatch:
    """Scheduled messages of one queue that fall due together: their sequences at its head and, in a ring, those that
    are pending: the newest sent stay."""

    __slots__ = ("_pending", "_sequence")

    def __init__(self, first_sequence: int) -> None:
        self._sequence = first_sequence
        self._pending: list[tuple[int, int, Reference]] = []  # a heap, by message number, then as they came

    def next_sequence(self) -> int:
        """The sequence of the next one."""
        sequence = self._sequence
        self._sequence = sequence + 1
        return sequence

    def add(self, ref: Reference) -> None:
        """One has entered a ring."""
        heappush(self._pending, (ref.message.number, self._sequence, ref))

    def pop_older(self, ref: Reference) -> Reference | None:
        """The oldest that is pending, where that was sent before ``ref``."""
        pending = self._pending
        while pending and pending[0][2].state != PENDING:
            heappop(pending)
        if pending and pending[0][0] < ref.message.number:
            return heappop(pending)[2]
        return None


class Queue:  # only tests have weak references: # compiled: same
    """One queue of an address. Counters are plain integers, named as in management."""

    # more attributes than Python keeps fast in a dictionary
    __slots__ = (
        "__weakref__",
        "_entries",
        "_lowest_sequence",
        "accepts",
        "address",
        "as_configured",
        "attributes",
        "broker",
        "consumers",
        "deleted",
        "delivering",
        "dispatcher",
        "durable",
        "evicted",
        "history",
        "hooks",
        "id_prefix",
        "messages_acknowledged",
        "messages_added",
        "messages_expired",
        "messages_killed",
        "messages_removed",
        "messages_replaced",
        "messages_requeued",
        "name",
        "no_local",
        "number",
        "paged",
        "persistent_size",
        "ready",
        "retains_from",
        "ring_size",
        "scheduled",
        "used",
        "view",
    )

    in_memory_only = False  # whatever page mode its addresses are in

    def __init__(self, name: str, address: Address, attributes: QueueAttributes, broker: Broker) -> None:
        self.name = name
        self.address = address
        self.attributes = attributes
        self.broker = broker
        self.set_number(broker.next_queue_number())
        self.durable = attributes.durable
        #: the least ``Traits.retained`` of messages whose way through the queue is retained
        self.retains_from = (
            (IN_DURABLE if self.durable else EVERYWHERE) if broker.storage.keeps_all else NEVER
        )
        self.dispatcher = Dispatcher(self)
        self.consumers: list[Consumer] = self.dispatcher.consumers  # the same objects: read for every message
        self.ready = self.dispatcher.ready
        self.paged: PagedQueue | None = None  # what is in pages; None while nothing is
        self.scheduled: dict[int, Reference] = {}  # in memory, by message number
        self.ring_size = attributes.ring_size
        self.no_local: object = None  # whose messages a multicast subscription does not want
        self.accepts: Matches | None = None  # filter and no-local, for the address
        self.update_filter()
        self.view: object = None  # what stands for the queue before policies, once one has asked
        self.evicted: Listener | None = None  # notified of what the ring evicts
        self.update_hooks()
        self.used = False  # had a consumer at some time
        self.deleted = False
        self.as_configured: QueueAttributes | None = None  # what broker.xml said when it was last applied

        self._lowest_sequence = 0
        self._entries: Entries | None = (
            None  # made with the first message that is retained while pending here
        )

        self.delivering = 0
        self.persistent_size = 0  # bytes of the messages in memory
        self.messages_added: int = 0
        self.messages_acknowledged = 0
        self.messages_expired = 0
        self.messages_killed = 0
        self.messages_replaced = 0
        self.messages_requeued = 0  # rejected by a consumer, or its connection was lost
        self.messages_removed = 0  # of those acknowledged: by management
        self.history: History | None = None  # while it is sampled

    def set_number(self, number: int) -> None:
        """Set the number by which message ids and a store know this queue. Not once it has been used."""
        self.number = number
        self.id_prefix = b"%d-" % number  # of the message ids that its consumers see

    def update_filter(self) -> None:
        """Filter or no-local have changed."""
        matches, origin = self.attributes.accepts, self.no_local
        self.accepts = matches if origin is None else not_from(origin, matches)

    def update_hooks(self) -> None:
        """The policies of its address are others, or what becomes of what its ring evicts."""
        self.hooks = hooks = self.address.hooks
        self.evicted = self.broker.policies.evicted(self)
        self.dispatcher.set_block(OBSERVED, hooks.delivered is not None or hooks.settled is not None)
        attributes = self.attributes
        if attributes.group_rebalance and attributes.group_rebalance_pause_dispatch:
            self.hooks = hooks_with_settled(hooks, self.dispatcher.on_settled)

    def attach_pages(self, paged: PagedQueue) -> None:
        """Messages of this queue are in pages."""
        self.paged = paged
        self.dispatcher.set_block(PAGED, True)

    def detach_pages(self) -> None:
        """None are any more."""
        self.paged = None
        self.dispatcher.set_block(PAGED, False)

    # ---- counters

    @property
    def count(self) -> int:
        """Pending in memory."""
        return self.dispatcher.count

    @property
    def message_count(self) -> int:
        """Pending, scheduled, in delivery and paged (Artemis: messageCount)."""
        in_memory = self.dispatcher.count + len(self.scheduled) + self.delivering
        return in_memory if self.paged is None else in_memory + self.paged.waiting + self.paged.timed

    @property
    def keys(self) -> int:
        """Keys in the index of a last-value queue."""
        return 0

    @property
    def messages_delivered(self) -> int:
        """Deliveries to consumers."""
        settled = self.messages_acknowledged - self.messages_removed
        return settled + self.messages_requeued + self.delivering

    @property
    def scheduled_count(self) -> int:
        """Waiting for their time (Artemis: scheduledCount), in memory or in pages."""
        return len(self.scheduled) + (0 if self.paged is None else self.paged.timed)

    @property
    def paged_count(self) -> int:
        """Pending on disk only (pagedCount)."""
        return 0 if self.paged is None else self.paged.waiting

    # ---- messages enter

    def enqueue(self, message: Message) -> None:
        """A message that the address routed here: deliver it directly where nothing is against it, else it waits."""
        self.messages_added += 1
        ready = self.ready
        if (
            ready
            and message.traits.group is None
            and not (message.expires and is_expired(message, self.broker.clock.now))
        ):
            dispatcher = self.dispatcher
            if not dispatcher.blocks:
                if not dispatcher.count:
                    consumer = ready[0] if len(ready) == 1 else dispatcher.next_consumer()
                    consumer.deliver_message(message)
                    return
            elif dispatcher.blocks == SELECTORS:
                matching = dispatcher.matching(message)
                if not 0 <= self.ring_size <= dispatcher.count:  # else it evicts a message first
                    found = dispatcher.consumer_for(matching)
                    if found is not None:
                        found.deliver_message(message)
                        return
                self.add_pending(message, matching)
                return
        self.add_pending(message)

    def deliver_tail(self, traits: Traits, tail: bytes, body_at: int) -> bool:
        """As `enqueue`, for what is settled by being written: no `Message` is made of it. False: nothing was done.

        The message has no group and does not expire.
        """
        dispatcher, ready = self.dispatcher, self.ready
        if not ready or dispatcher.blocks or dispatcher.count:
            return False
        consumer = ready[0]
        if not consumer.writes_tails:
            return False
        if len(ready) > 1:
            ready.rotate(-1)
        self.messages_added += 1
        consumer.write_tail(traits, tail, body_at)
        return True

    def deliver_directly(self, message: Message) -> bool:
        """Deliver a message of a paging address as it arrives, where nothing comes before it; else False.

        There are ready consumers, and nothing but `PERHAPS` blocks. A message that must survive a crash never comes
        here: it is written first.
        """
        paged, dispatcher, ready = self.paged, self.dispatcher, self.ready
        if paged is not None and paged.waiting:
            return False
        consumer: Consumer | None = None
        if dispatcher.blocks & SELECTORS:
            if self.attributes.ring_counts_paged and 0 <= self.ring_size <= self.ring_count:
                return False  # it evicts a message first
            consumer = dispatcher.consumer_for(dispatcher.matching(message))
        elif not dispatcher.count:
            consumer = ready[0] if len(ready) == 1 else dispatcher.next_consumer()
        if consumer is None:
            return False
        consumer.deliver_message(message)
        return True

    def add_pending(self, message: Message, matching: list[PendingList] | None = None) -> None:
        """A message waits for a consumer; a full ring evicts its head before anybody is given it."""
        ref = self._add_reference(message, PENDING)
        dispatcher = self.dispatcher
        traits = message.traits
        if traits.durable or traits.retained:
            self._record_arrival(ref)
        dispatcher.enlist(ref, True, matching)
        if 0 <= self.ring_size < self.ring_count:
            self.evict()
        if self.ready:
            dispatcher.dispatch()
        if message.expires and ref.state == PENDING:
            self.broker.expiry.watch(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def enqueue_earlier(self, message: Message) -> None:
        """A message with a lower number than some that have arrived takes its position before them.

        As one that comes back unsettled: in a full ring it is dropped.
        """
        self.messages_added += 1
        ref = self.mark_delivering(message)
        ref.deliveries = 0
        self._requeue(ref, delayed=False)

    def mark_delivering(self, message: Message) -> Reference:
        """The reference to a message that is delivered as it arrives, and must be settled."""
        ref = self._add_reference(message, DELIVERING)
        traits = message.traits
        if traits.durable or traits.retained:
            self._record_arrival(ref)
        ref.deliveries = 1
        self.delivering += 1
        return ref

    def mark_delivering_unreferenced(self, message: Message) -> None:
        """As `mark_delivering`, for a message that no store wants to know of.

        Its reference is made (`reference_to`) when something else happens to it than that it is settled.
        """
        self._hold(message)
        self.delivering += 1

    def reference_to(self, message: Message) -> Reference:
        """The reference to a message of `mark_delivering_unreferenced`."""
        ref = Reference(message, self, message.number, DELIVERING)
        ref.deliveries = 1
        return ref

    def schedule(self, message: Message, due: Due, recurrence: Recurrence | None = None) -> Reference:
        """A message to be delivered at ``due`` (epoch ms), and again as ``recurrence`` says."""
        self.messages_added += 1
        ref = self._add_reference(message, SCHEDULED)
        traits = message.traits
        if traits.durable or traits.retained:
            self._record_arrival(ref, due)
        ref.recurrence = recurrence
        self.postpone(ref, due)
        if message.expires:
            self.broker.expiry.watch(ref)
        return ref

    def postpone(self, ref: Reference, due: Due) -> None:
        """Schedule a message that is in no list now for ``due`` (epoch ms)."""
        ref.state = SCHEDULED
        ref.due = due
        self.scheduled[ref.message.number] = ref
        self.broker.enter_schedule(ref)

    def due_batch(self) -> DueBatch:
        """For what falls due now, however much that is: `on_due` gets it with each part."""
        self._lowest_sequence -= MOST_TOGETHER
        return DueBatch(self._lowest_sequence)

    def on_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """Scheduled messages go to the head, in the order they fell due.

        In a full ring they evict only what was sent before them and fell due in the same ``batch``: else each is
        dropped itself.
        """
        for ref in refs:
            self.scheduled.pop(ref.message.number, None)
            sequence = batch.next_sequence()
            if not ref.deliveries:  # one that waited for its redelivery comes back to its old position
                ref.sequence = sequence
            if self.drop_if_full(ref, batch):
                continue
            ref.state = PENDING
            self.dispatcher.enlist(ref, at_tail=False)
            self.dispatcher.dispatch()
            if self.hooks.enqueued is not None and ref.state == PENDING:
                self.hooks.enqueued(ref)

    def load(self, message: Message, position: Position, counts: tuple[int, int]) -> Reference:
        """A reference to what was read back from a page, in no list yet; ``counts`` are deliveries and attempts."""
        ref = self._add_reference(message, GONE)
        ref.position = position
        ref.deliveries, ref.attempts = counts
        return ref

    def restore(self, message: Message) -> Reference:
        """A reference to what a store has recovered, in no list yet; `reinstate` follows once it has its counts."""
        self.messages_added += 1
        return self._add_reference(message, GONE)

    def reinstate(self, ref: Reference) -> None:
        """Enqueue or schedule what `restore` made; a full ring evicts its head."""
        if ref.due:
            self.postpone(ref, ref.due)
        else:
            ref.state = PENDING
            self.dispatcher.enlist(ref)
            if 0 <= self.ring_size < self.ring_count:
                self.evict()
        if ref.message.expires and ref.state != GONE:
            self.broker.expiry.watch(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def reinstate_run(self, run: ReferenceRun, priority: int, size: int) -> None:
        """As `restore` and `reinstate` of each reference of a run, whose messages take ``size`` bytes of memory.

        The queue has no ring, and no policy is notified of what is enqueued.
        """
        self.messages_added += run.length
        self.persistent_size += size
        self.dispatcher.enlist_run(run, priority)

    # ---- a reference is made, and undone

    def _add_reference(self, message: Message, state: int) -> Reference:
        """One more queue, this one, has a message in memory. `drop` undoes it."""
        self._hold(message)
        return Reference(message, self, message.number, state)

    def _hold(self, message: Message) -> None:
        """One more queue, this one, has a message in memory. `_release` undoes it."""
        size, holders = len(message.tail) + MESSAGE_OVERHEAD, message.holders
        if not holders:
            address = message.address
            if message.account is address:  # a call that compiled code knows
                address.occupy(size)
            else:
                message.account.occupy(size)
        else:
            message.account.occupy_reference()
        message.holders = holders + 1
        self.persistent_size += size

    def _release(self, message: Message) -> None:
        size, holders = len(message.tail) + MESSAGE_OVERHEAD, message.holders - 1
        self.persistent_size -= size
        message.holders = holders
        if not holders:
            address = message.address
            if message.account is address:
                address.release(size)
            else:
                message.account.release(size)
        else:
            message.account.release_reference()

    def drop(self, ref: Reference, reason: Reason | None) -> None:
        """Drop a reference for good; the counts of the state it was in are the caller's.

        ``reason`` is recorded, None where the message stays in its page.
        """
        ref.state = GONE
        message = ref.message
        self._release(message)
        if ref.watched:
            self.broker.expiry.unwatch(ref)
        if ref.position is not None:
            if (
                self.paged is not None and reason is not None
            ):  # None: deleted, and its pages have forgotten it
                self.paged.settled(ref, reason)
        elif reason is None:
            pass
        elif message.traits.durable and self.durable:
            self.broker.storage.settle(ref, reason)
        elif message.traits.retained >= self.retains_from:
            self.broker.storage.log(ref, reason)

    def _record_arrival(self, ref: Reference, due: Due = 0) -> None:
        """A message has entered that is durable or retained."""
        traits, storage = ref.message.traits, self.broker.storage
        if traits.durable and self.durable:
            if due:
                ref.due = due
                storage.append_scheduled(ref)
            else:
                storage.append(ref)
        elif traits.retained >= self.retains_from:  # a restart does not bring it back
            ref.due = due
            if self._entries is None:
                self._entries = Entries(self, None)
            if not self._entries.messages:
                storage.record(self._entries)
            self._entries.messages.append(ref.message)
            if ref.state == DELIVERING:
                storage.log(ref, DELIVERED)
            elif due > ref.message.timestamp:
                storage.log(ref, POSTPONED)

    # ---- messages leave

    def deliver(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver a reference that is in no list."""
        self.delivering += 1
        ref.state = DELIVERING
        ref.deliveries += 1
        ref.last_rejected_by = None
        if self.dispatcher.groups is not None:
            self.dispatcher.end_group(ref)
        if ref.position is not None and self.paged is not None:
            self.paged.on_delivered(ref, consumer)
        elif (traits := ref.message.traits).durable and self.durable:
            self.broker.storage.delivered(ref)
        elif traits.retained >= self.retains_from:
            self.broker.storage.log(ref, DELIVERED)
        if self.hooks.delivered is not None:
            self.hooks.delivered(ref)
        consumer.deliver_reference(ref)

    def settle(self, ref: Reference) -> None:
        """A consumer has acknowledged a message."""
        self.delivering -= 1
        self.messages_acknowledged += 1
        if self.hooks.settled is not None:
            self.hooks.settled(ref)
        self.drop(ref, Reason.ACKNOWLEDGED)

    def settle_message(self, message: Message) -> None:
        """As `settle`, for a message without a reference: see `mark_delivering_unreferenced`."""
        if self.hooks.settled is not None:
            self.settle(self.reference_to(message))
            return
        self.delivering -= 1
        self.messages_acknowledged += 1
        self._release(message)

    def settle_all(self, refs: list[Reference]) -> None:
        """A consumer has acknowledged many messages: in slices. The list is the queue's from now on."""
        self.broker.background.run(self._settle_all(refs), self)

    def _settle_all(self, refs: list[Reference]) -> Iterator[None]:
        refs.reverse()  # the first delivered is the first to be settled
        for ref in _consume(refs):
            self.settle(ref)
            yield
        self._consider_deleting()

    def detach(self, ref: Reference) -> None:
        """Adjust the counts for a reference that is about to be dropped or moved."""
        was, ref.state = ref.state, GONE
        if was == PENDING:
            self.dispatcher.delist()
        elif was == SCHEDULED:
            self.scheduled.pop(ref.message.number, None)
            self.broker.forget_schedule(ref)
        elif was == DELIVERING:
            self.delivering -= 1

    def unload(self, ref: Reference) -> None:
        """Forget a pending reference, whose message stays in its page."""
        self.detach(ref)
        self.drop(ref, None)

    def kill(self, ref: Reference) -> None:
        """Remove a message otherwise than by a consumer."""
        self.detach(ref)
        self.messages_killed += 1
        if self.hooks.killed is not None:
            self.hooks.killed(ref)
        self.drop(ref, Reason.KILLED)

    # ---- messages come back

    def requeue(
        self,
        refs: list[Reference],
        consumer: Consumer | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Take back unsettled messages, each to its old position. The list is the queue's from now on.

        ``failed`` counts an attempt against max-delivery-attempts and applies the redelivery-delay; ``consumer``
        rejected them and is offered them last. The latest come first, so that a ring retains the newest; nothing is
        delivered until all of them are back.
        """
        if not refs and self not in self.broker.background:
            self.dispatcher.dispatch_soon()  # others may have messages that a consumer which has left refused
            self._consider_deleting()
            return
        self.messages_requeued += len(refs)
        self.run_suspended(self._requeue_all(refs, consumer, failed))

    def _requeue_all(self, refs: list[Reference], consumer: Consumer | None, failed: bool) -> Iterator[None]:
        runs: list[Iterator[Reference]] = []
        while refs:
            run = refs[-MOST_SORTED:]  # what comes back from one consumer is as good as sorted
            del refs[-MOST_SORTED:]
            run.sort(key=attrgetter("sequence"))
            run.sort(key=attrgetter("message.traits.priority"), reverse=True)
            runs.append(_consume(run))
            if refs:
                yield
        newest_first = merge(*runs, key=attrgetter("order"), reverse=True) if len(runs) > 1 else chain(*runs)
        for number, ref in enumerate(newest_first, 1):
            ref.last_rejected_by = consumer
            if self.deleted:
                self.kill(ref)
            else:
                if failed:
                    ref.attempts += 1
                if not (failed and remove_if_exhausted(ref)):
                    self._requeue(ref, delayed=failed)
            if number % STEP == 0 and self.paged is not None:
                self.paged.demand()  # what does not fit into memory goes back to disk
            yield
        self._consider_deleting()

    def _consider_deleting(self) -> None:
        if not self.consumers:
            self.broker.consider_deleting(self)

    def _requeue(self, ref: Reference, *, delayed: bool) -> None:
        message = ref.message
        if is_expired(message, self.broker.clock.now):
            self.broker.expiry.expire(ref)
            return
        if self.attributes.purge_on_no_consumers and not self.consumers:
            self.kill(ref)
            return
        self.detach(ref)
        if self.drop_if_full(ref):
            return
        delay = redelivery_delay_of(ref) if delayed else 0
        if delay > 0:
            self.postpone(ref, self.broker.clock.from_now(delay))
        else:
            ref.state = PENDING
            self.dispatcher.enlist(ref, at_tail=False)
        if message.expires:
            self.broker.expiry.watch(ref)
        if ref.position is not None and self.paged is not None:
            self.paged.on_requeued(ref)
        else:
            self.record_requeue(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def record_requeue(self, ref: Reference) -> None:
        traits, storage = ref.message.traits, self.broker.storage
        if traits.durable and self.durable:
            storage.returned(ref)
        elif traits.retained >= self.retains_from:
            storage.log(ref, RETURNED)

    def run_suspended(self, job: Iterator[object]) -> None:
        """Work on many messages, in slices; nothing is delivered until it is done."""
        self.dispatcher.suspend()
        self.broker.background.run(self._suspended(job), self)

    def _suspended(self, job: Iterator[object]) -> Iterator[object]:
        try:
            yield from job
        finally:
            self.dispatcher.resume()

    # ---- the ring: what a queue with a ring-size evicts; only pending messages count

    @property
    def ring_count(self) -> int:
        """What counts for the ring: what is pending, with what is paged if ``ring-counts-paged`` says so."""
        if self.paged is None or not self.attributes.ring_counts_paged:
            return self.dispatcher.count
        return self.dispatcher.count + self.paged.waiting

    def evict(self, requeued: bool = False) -> None:
        """The ring is over its size, or full for a message that is requeued: its policy evicts (`Hooks.overflow`)."""
        self.hooks.overflow(self.view or self.broker.policies.view_of(self), requeued)

    def drop_if_full(self, ref: Reference, batch: DueBatch | None = None) -> bool:
        """Drop a message that comes back or falls due (in ``batch``) where the ring is full; whether it was.

        Of several that fall due together the newest sent stay.
        """
        if self.ring_size < 0:
            return False
        if self.ring_size <= self.ring_count:
            self.evict(requeued=True)
            if 0 <= self.ring_size <= self.ring_count:
                older = None if batch is None else batch.pop_older(ref)
                if older is None:
                    self.replace(ref)
                    return True
                self.evict_message(older)
        if batch is not None:
            batch.add(ref)
        return False

    def evict_head(self) -> bool:
        """Evict the next message that would have been delivered; False where there is none."""
        ref = self.dispatcher.first()
        if self.paged is not None and self.attributes.ring_counts_paged:
            position = self.paged.position_before(ref)
            if position is not None:
                self.paged.evict(position)
                return True
        if ref is None:
            return False
        self.evict_message(ref)
        return True

    def evict_message(self, ref: Reference) -> None:
        """Evict a pending message, as a ring does."""
        self.detach(ref)
        self.replace(ref)

    def replace(self, ref: Reference) -> None:
        """Drop a message that is in no list, because the ring is full (Artemis: reason REPLACED)."""
        ref.state = GONE
        self.messages_replaced += 1
        self.broker.replaced(ref)

    def trim(self) -> Iterator[int]:
        """Enforce a lowered ring-size; yields 1 for each message replaced, so that the caller may pause between."""
        while 0 <= self.ring_size < self.ring_count:
            self.evict()
            yield 1

    # ---- consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """A new consumer. Raises `Refused` beyond max-consumers."""
        consumer.queue = self
        self.dispatcher.add(consumer)
        self.used = True
        self.broker.slow_consumers.watch(self)
        if self.attributes.purge_on_no_consumers:
            self.address.changed()

    def remove_consumer(
        self, consumer: Consumer, unsettled: list[Reference], *, failed: bool = False
    ) -> None:
        """A consumer is gone; what it has not settled comes back: see `requeue`."""
        self.dispatcher.remove(consumer)
        if not self.consumers and self.attributes.purge_on_no_consumers:
            self.address.changed()
            self.purge()
        self.requeue(unsettled, failed=failed)

    # ---- the whole queue

    @property
    def open(self) -> bool:
        """Whether messages are routed here: enabled, and with consumers where purge-on-no-consumers wants them."""
        attributes = self.attributes
        return attributes.enabled and (not attributes.purge_on_no_consumers or bool(self.consumers))

    def purge(self) -> int:
        """Kill everything that is pending or scheduled; returns how many. Where they are many it takes its time."""
        killed = self.count + self.scheduled_count + self.paged_count
        self.run_suspended(self._kill_all(self.dispatcher.snapshot(), list(self.scheduled.values())))
        return killed

    def _kill_all(self, pending: Iterator[Reference], scheduled: list[Reference]) -> Iterator[None]:
        if self.paged is not None:
            for purged in self.paged.purge(Reason.KILLED):
                self.messages_killed += purged
                yield
        for ref in pending:
            if ref.state == PENDING:
                self.kill(ref)
            yield
        while scheduled:
            ref = scheduled.pop()
            if ref.state == SCHEDULED:
                self.kill(ref)
            yield

    @property
    def paused(self) -> bool:
        """Whether delivery is paused by management; messages still enter, and a ring still evicts."""
        return bool(self.dispatcher.blocks & PAUSED)

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.dispatcher.set_block(PAUSED, paused)

    def pause(self) -> None:
        """Pause delivery, and record that."""
        self.paused = True
        self.broker.storage.bind(self)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        self.broker.storage.bind(self)
        self.dispatcher.dispatch()

    def close(self, reason: str) -> None:
        """The queue is deleted: its consumers are cancelled, its messages killed, which may take its time."""
        self.deleted = True
        dispatcher = self.dispatcher
        dispatcher.cancel_timer()
        dispatcher.set_block(CLOSED, True)
        if self.paged is not None:
            self.messages_killed += sum(self.paged.purge(Reason.KILLED))
        if (self.count or self.scheduled) and not (self.broker.stopping and self.forgotten_by_restart):
            self.run_suspended(self._kill_all(dispatcher.detach(), list(self.scheduled.values())))
        for consumer in list(self.consumers):
            if consumer in self.consumers:  # one that is cancelled may take others along
                consumer.cancelled(reason)
        if self.paged is not None:
            self.paged.close()
        if self in self.broker.background:
            self.broker.background.after(self, self._end)
        else:
            self._end()

    @property
    def forgotten_by_restart(self) -> bool:
        """Whether no start recovers the queue, nothing retains its messages, and no policy has a hook for their end."""
        return not self.durable and self.retains_from == NEVER and self.hooks.killed is None

    def _end(self) -> None:
        """All that was in it is gone: break its cycles, so that it is freed by its count and not by the collector."""
        self.detach_pages()
        self.view = None
        self._entries = None
        self.dispatcher.close()


class NonDestructiveQueue(Queue):
    """A queue whose messages stay when they are acknowledged (Artemis, non-destructive queues).

    Every consumer gets all messages once, from a list of its own. Messages leave by expiry, by a ring, or by
    management. A message in delivery stays pending, so it counts once in messageCount however many consumers have it.
    """

    __slots__ = ()

    in_memory_only = True

    def deliver(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver a message, which stays pending."""
        deliver_and_keep(self, ref, consumer)

    def settle(self, ref: Reference) -> None:
        """A consumer has acknowledged a message, which stays."""
        settle_and_keep(self, ref)

    def requeue(
        self,
        refs: list[Reference],
        consumer: Consumer | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Offer a rejected message to the same consumer again; one that is gone returns nothing."""
        offer_again(self, refs, consumer, failed=failed)

    @property
    def message_count(self) -> int:
        """Pending and scheduled; what is in delivery is pending too."""
        return count_kept(self)


# What both kinds of non-destructive queues do: compiled classes have one base.


def deliver_and_keep(queue: Queue, ref: Reference, consumer: Consumer) -> None:
    """See `NonDestructiveQueue.deliver`."""
    queue.delivering += 1
    ref.message.account.occupy_reference()  # each reader has a delivery of its own
    if queue.hooks.delivered is not None:
        queue.hooks.delivered(ref)
    consumer.deliver_reference(ref)


def settle_and_keep(queue: Queue, ref: Reference) -> None:
    """See `NonDestructiveQueue.settle`."""
    queue.delivering -= 1
    queue.messages_acknowledged += 1
    ref.message.account.release_reference()
    if queue.hooks.settled is not None:
        queue.hooks.settled(ref)


def count_kept(queue: Queue) -> int:
    """See `NonDestructiveQueue.message_count`."""
    return queue.dispatcher.count + len(queue.scheduled)


def offer_again(queue: Queue, refs: list[Reference], consumer: Consumer | None, *, failed: bool) -> None:
    """See `NonDestructiveQueue.requeue`."""
    queue.messages_requeued += len(refs)
    queue.delivering -= len(refs)
    for ref in refs:
        ref.message.account.release_reference()
        if ref.state != PENDING:
            continue
        if failed and consumer is not None:  # NACK; one that leaves has not tried for the others
            ref.attempts += 1
            ref.deliveries = max(ref.deliveries, 1) + 1  # the next delivery is a redelivery
            if remove_if_exhausted(ref):
                continue
            queue.record_requeue(ref)
        if consumer is not None and consumer.source is not None and not queue.deleted:
            consumer.source.restore(ref)
    queue.dispatcher.dispatch()


def _consume(refs: list[Reference]) -> Iterator[Reference]:
    """From the end; each is let go of as it is given, so that those which are killed are not freed all at once."""
    while refs:
        yield refs.pop()


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """A `QueueConfiguration` without open ends, its filter compiled."""

    routing_type: RoutingType
    durable: bool = True
    filter: str | None = None
    accepts: Matches | None = None
    ring_size: int = -1
    ring_policy: RingPolicy = RingPolicy.DISCARD
    ring_counts_paged: bool = False
    max_consumers: int = -1
    purge_on_no_consumers: bool = False
    exclusive: bool = False
    non_destructive: bool = False
    last_value: bool = False
    last_value_key: str | None = None
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    group_buckets: int = -1
    group_rebalance: bool = False
    group_rebalance_pause_dispatch: bool = False
    group_first_key: str | None = None
    enabled: bool = True
    user: str | None = None
    auto_created: bool = False
    auto_delete: bool = False
    temporary: bool = False
    configured: bool = False

    @classmethod
    def of(cls, configuration: QueueConfiguration, settings: AddressSettings) -> QueueAttributes:
        """Fill in the ``default-…`` settings. Raises `Refused` where a value cannot be."""
        values = {name: getattr(configuration, name) for name in _FROM_CONFIGURATION}
        if configuration.configured and configuration.purge_on_no_consumers is None:
            values["purge_on_no_consumers"] = (
                False  # Artemis: the default is for queues that a file does not declare
            )
        for name, setting in _INHERITED:
            if values[name] is None:
                values[name] = getattr(settings, setting)
        if configuration.last_value is False and configuration.last_value_key is None:
            values["last_value_key"] = None  # an ordinary queue, whatever default-last-value-key says
        changes = {name: values.pop(name) for name in ("filter", "group_first_key")}
        return cls(**values).changed(changes)

    def changed(self, changes: Mapping[str, Any]) -> QueueAttributes:
        """A copy with some attributes changed, checked. Raises `Refused` naming the attribute and the value."""
        known = {field.name for field in fields(self)}
        if unknown := sorted(set(changes) - known):
            raise Refused(f"a queue has no attribute {unknown[0]}", status=400)
        changed = replace(self, **changes)
        for name, lowest in LEAST.items():
            value = getattr(changed, name)
            if isinstance(value, bool) or not isinstance(value, int) or (value < lowest and value != -1):
                raise Refused(
                    f"{name.replace('_', '-')} must be -1 or at least {lowest}, not {value!r}", status=400
                )
        if "filter" in changes:
            text = (changed.filter or "").strip() or None
            try:
                accepts = None if text is None else compile_selector(text).matches_lines
            except InvalidSelector as fault:
                raise Refused(f"filter: {fault}", status=400) from None
            changed = replace(changed, filter=text, accepts=accepts)
        if changed.last_value_key is not None and not changed.last_value:
            changed = replace(changed, last_value=True)
        if "group_first_key" in changes:
            changed = replace(changed, group_first_key=_header_name(changed.group_first_key))
        return changed


def _header_name(given: str | None) -> str | None:
    """The value of ``group-first-key``; None where it is empty. Raises `Refused`."""
    try:
        return message_header((given or "").strip())
    except ValueError as fault:
        raise Refused(f"group-first-key {fault}", status=400) from None


_FROM_CONFIGURATION = [
    each.name for each in fields(QueueAttributes) if each.name in QueueConfiguration.__dataclass_fields__
]
_INHERITED = [(row.name, row.inherits) for row in options_of(QueueConfiguration) if row.inherits]

#: The least value of each number, which may also be -1 for "none". A ring of 0 could never hold a message.
LEAST = {
    row.name: VALUE_TYPES[row.type].least
    for row in options_of(QueueConfiguration)
    if VALUE_TYPES[row.type].kind is int
}


#: The header with the key where ``last-value-key`` names none, and of messages that lack the header it names.
LVQ_NAME = b"_AMQ_LVQ_NAME"

_INDEX_BITS, _PAGE_BITS = 32, 64
_INDEX_MASK, _PAGE_MASK = (1 << _INDEX_BITS) - 1, (1 << _PAGE_BITS) - 1


class LastValueQueue(Queue):
    """A queue with at most one pending message for each key.

    Every message passes `add_pending` or a page: `LAST_VALUE` blocks direct delivery.
    """

    __slots__ = ("_header", "_last", "_numbers_of_pages", "_pages", "_property", "_superseded")

    def __init__(self, name: str, address: Address, attributes: QueueAttributes, broker: Broker) -> None:
        super().__init__(name, address, attributes, broker)
        key = attributes.last_value_key
        self._property = None if key is None else SYSTEM_PROPERTIES.get(key)
        self._header = LVQ_NAME if key is None else key.encode()
        self._last: dict[bytes, Reference | int] = {}
        self._superseded: set[Reference] = set()  # in delivery, with a newer message of their key
        self._pages: list[Pages | None] = []
        self._numbers_of_pages: dict[Pages, int] = {}
        self.dispatcher.set_block(LAST_VALUE, True)

    @property
    def keys(self) -> int:
        """Keys in the index: those of messages that are pending, paged or in delivery."""
        return len(self._last)

    def key_of(self, message: Message) -> bytes | None:
        """The key of a message; None where it has none, and replaces nothing."""
        if self._property is not None:
            value = self._property(message)
            key = None if value is None else str(value).encode()
        else:
            key = message.header(self._header)
        return message.header(LVQ_NAME) if key is None and self._header is not LVQ_NAME else key

    # ---- the index

    def become_last(self, ref: Reference) -> None:
        """A message enters the queue: it is the newest of its key and replaces the one before."""
        key = self.key_of(ref.message)
        if key is None:
            return
        before = self._last.get(key)
        self._last[key] = ref
        if before is not None and before is not ref:
            self._supersede(before)

    def become_last_on_disk(self, pages: Pages, message: Message, position: Position) -> None:
        """The same of a message that enters by way of a page."""
        key = self.key_of(message)
        if key is None:
            return
        before = self._last.get(key)
        self._last[key] = self.encode(pages, position)
        if before is not None:
            self._supersede(before)

    def is_last(self, ref: Reference) -> bool:
        """Whether a message is the newest of its key, or has none."""
        key = self.key_of(ref.message)
        return key is None or self._last.get(key) is ref

    def _supersede(self, before: Reference | int) -> None:
        if isinstance(before, int):
            self._replace_on_disk(before)
        elif before.state == DELIVERING:
            self._superseded.add(before)
        elif before.state in (PENDING, SCHEDULED):
            self.detach(before)
            self._replace_value(before)

    def _replace_value(self, ref: Reference) -> None:
        """Drop a message that is in no list: a newer one has its key. It counts as replaced; no policy is notified."""
        self.messages_replaced += 1
        self.drop(ref, Reason.REPLACED)

    def _replace_on_disk(self, last: int) -> None:
        found = self._decode(last)
        if found is not None and self.paged is not None:
            cursor, page, index = found
            self.messages_replaced += 1
            self.paged.replace(cursor, (page, index))

    # ---- positions in the index

    def encode(self, pages: Pages, position: Position) -> int:
        """A position on disk as one number: 36 bytes instead of the 100 of a tuple."""
        number = self._numbers_of_pages.get(pages)
        if number is None:
            number = self._numbers_of_pages[pages] = len(self._pages)
            self._pages.append(pages)
        page, index = position
        return (number << _PAGE_BITS | page.number) << _INDEX_BITS | index

    def _decode(self, last: int) -> tuple[Cursor, Page, int] | None:
        """Where a message is on disk; None where it is not on disk only any more."""
        pages = self._pages[last >> _INDEX_BITS + _PAGE_BITS]
        if pages is None:
            return None
        page, index = pages.page(last >> _INDEX_BITS & _PAGE_MASK), last & _INDEX_MASK
        cursor = pages.cursors.get(self)
        if page is None or cursor is None or not cursor.is_waiting(page, index):
            return None
        return cursor, page, index

    def forget_pages(self, pages: Pages) -> None:
        """An address has left page mode. The number of its pages is not used again."""
        number = self._numbers_of_pages.pop(pages, None)
        if number is not None:
            self._pages[number] = None

    def forget_settled(self) -> None:
        """Remove keys whose messages were settled on disk, unread: after a purge, by a ring, as unreadable."""
        self.broker.background.run(self._forget_settled(), self)

    def _forget_settled(self) -> Iterator[None]:
        last = self._last
        for key in list(last):
            found = last.get(key)
            if isinstance(found, int) and self._decode(found) is None:
                del last[key]
            yield

    def find_on_disk(
        self, cursor: Cursor, page: Page, index: int, message: Message, numbers: dict[int, int] | None
    ) -> None:
        """A start has found a message in a page: it enters the index, or is replaced by a newer one that is there.

        ``numbers`` has message numbers of positions, where the queue has messages in the pages of several addresses.
        """
        key = self.key_of(message)
        if key is None:
            return
        position, before = self.encode(cursor.pages, (page, index)), self._last.get(key)
        if before == position:
            return  # it has come since the start
        if numbers is not None:
            numbers[position] = message.number
        if before is None:
            newer = True
        elif isinstance(before, int):
            if before >> _INDEX_BITS + _PAGE_BITS == position >> _INDEX_BITS + _PAGE_BITS:
                newer = position > before
            else:  # what has come since the start is newer, and has no number here
                newer = numbers is not None and before in numbers and numbers[before] < message.number
        else:  # what fell due since the start is newer, whatever its number
            newer = 0 < before.sequence and before.message.number < message.number
        if newer:
            self._last[key] = position
            if before is not None:
                self._supersede(before)
        else:
            self._replace_on_disk(position)

    # ---- messages enter

    def add_pending(self, message: Message, matching: list[PendingList] | None = None) -> None:
        """As in any queue; the message before it with its key is replaced before a consumer or a ring sees both."""
        ref = self._add_reference(message, PENDING)
        dispatcher = self.dispatcher
        traits = message.traits
        if traits.durable or traits.retained:
            self._record_arrival(ref)  # before the other is settled: after a crash there is one or both
        self.become_last(ref)
        dispatcher.enlist(ref, True, matching)
        if 0 <= self.ring_size < self.ring_count:
            self.evict()
        if self.ready:
            dispatcher.dispatch()
        if message.expires and ref.state == PENDING:
            self.broker.expiry.watch(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def on_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """A scheduled message replaces what has its key when it falls due, and not before."""
        for ref in refs:
            if self.fall_due(ref):
                super().on_due((ref,), batch)

    def fall_due(self, ref: Reference) -> bool:
        """A scheduled message, in no list, becomes the newest of its key.

        One that waited for its redelivery is dropped if a newer one has entered; returns False then.
        """
        key = self.key_of(ref.message)
        before = None if key is None else self._last.get(key)
        if ref.deliveries and before is not None and before is not ref:
            self.scheduled.pop(ref.message.number, None)
            self._replace_value(ref)
            return False
        self.become_last(ref)
        return True

    def load(self, message: Message, position: Position, counts: tuple[int, int]) -> Reference:
        ref = super().load(message, position, counts)
        key, pages = self.key_of(message), message.address.pages
        if key is not None and pages is not None and self._last.get(key) == self.encode(pages, position):
            self._last[key] = ref
        return ref

    def unload(self, ref: Reference) -> None:
        key, pages = self.key_of(ref.message), ref.message.address.pages
        last = key is not None and self._last.get(key) is ref
        super().unload(ref)
        if last and key is not None and pages is not None and ref.position is not None:
            self._last[key] = self.encode(pages, ref.position)

    def reinstate(self, ref: Reference) -> None:
        """As in any queue, but for a message that a newer one has replaced without a record of it."""
        key = self.key_of(ref.message)
        if key is not None and not (ref.due and not ref.deliveries):
            before = self._last.get(key)
            if isinstance(before, Reference) and before.message.number > ref.message.number:
                self._replace_value(ref)
                return
            self.become_last(ref)
        super().reinstate(ref)

    # ---- messages leave and come back

    def drop(self, ref: Reference, reason: Reason | None) -> None:
        key = self.key_of(ref.message)
        if key is not None:
            if self._last.get(key) is ref:
                del self._last[key]
            elif self._superseded:
                self._superseded.discard(ref)
        super().drop(ref, reason)

    def _requeue(self, ref: Reference, *, delayed: bool) -> None:
        if ref in self._superseded:
            self.detach(ref)
            self._replace_value(ref)
        else:
            super()._requeue(ref, delayed=delayed)

    def _end(self) -> None:
        super()._end()
        self._last, self._superseded = {}, set()
        self._pages, self._numbers_of_pages = [], {}


class NonDestructiveLastValueQueue(LastValueQueue):
    """A table of current values: every consumer gets the newest message of each key, and those that follow."""

    __slots__ = ()

    in_memory_only = True

    def deliver(self, ref: Reference, consumer: Consumer) -> None:
        """See `NonDestructiveQueue.deliver`."""
        deliver_and_keep(self, ref, consumer)

    def settle(self, ref: Reference) -> None:
        """See `NonDestructiveQueue.settle`."""
        settle_and_keep(self, ref)

    def requeue(
        self,
        refs: list[Reference],
        consumer: Consumer | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """See `NonDestructiveQueue.requeue`."""
        offer_again(self, refs, consumer, failed=failed)

    @property
    def message_count(self) -> int:
        """See `NonDestructiveQueue.message_count`."""
        return count_kept(self)
