"""A queue: messages in order, how they arrive, leave and come back. Who takes them is the business of `Turns`.

A message that arrives while nothing is pending goes straight to the consumer whose turn it is (`Queue.put`);
everything else passes through the lists of `Turns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from .consumer import Consumer, Matches, not_from
from .due import MOST_TOGETHER, DueBatch
from .message import EVERYWHERE, IN_DURABLE, NEVER, Message
from .pending import Pending
from .reference import DELIVERING, GONE, PENDING, SCHEDULED, Reference
from .ring import Ring
from .storage import DELIVERED, POSTPONED, RETURNED, Entries, Reason

if TYPE_CHECKING:
    from .address import Address
    from .attributes import QueueAttributes
    from .broker import Broker
    from .paging import Position
    from .recurrence import Recurrence

#: References of which a part comes back before an area is asked whether it wants to send some to disk again.
STEP = 256

#: References that are sorted in one go: some milliseconds.
MOST_SORTED = 10_000


class Queue(Ring):
    """One queue of an address. Counters are plain integers, named as in management."""

    __slots__ = (
        "_entries",
        "_lowest_sequence",
        "accepts",
        "as_configured",
        "deleted",
        "id_prefix",
        "messages_acknowledged",
        "messages_added",
        "messages_expired",
        "messages_killed",
        "no_local",
        "number",
    )

    keeps_in_memory = False  # whatever page mode its addresses are in

    def __init__(self, name: str, address: Address, attributes: QueueAttributes, broker: Broker) -> None:
        self.name = name
        self.address = address
        self.attributes = attributes
        self.broker = broker
        super().__init__()
        self.renumber(broker.next_queue_number())
        self.durable = attributes.durable
        self.retains_from = (
            (IN_DURABLE if self.durable else EVERYWHERE) if broker.storage.keeps_all else NEVER
        )
        self.no_local: object = None  # whose messages a multicast subscription does not want
        self.accepts: Matches | None = None  # filter and no-local; the address asks it
        self.review_filter()
        self.deleted = False
        self.as_configured: QueueAttributes | None = None  # what broker.xml said when it was last applied

        self._lowest_sequence = 0
        self._entries: Entries | None = (
            None  # made with the first message that is retained while it waits here
        )

        self.messages_added = 0
        self.messages_acknowledged = 0
        self.messages_expired = 0
        self.messages_killed = 0

    def renumber(self, number: int) -> None:
        """Take the number by which message ids and a store know this queue. Not once it has been used."""
        self.number = number
        self.id_prefix = b"%d-" % number  # of the message ids that its consumers see

    # ---- arriving

    def put(self, message: Message) -> None:
        """A message that the address routed here."""
        self.messages_added += 1
        ready = self.ready
        matching = None
        if (
            ready
            and self.simple
            and message.traits.group is None
            and not (message.expires and message.expires <= self.broker.clock.now)
        ):
            consumer: Consumer | None = None
            if self.targets:
                matching = self.matching(message)
                if not 0 <= self.ring_size <= self.count:  # else it pushes something out first
                    consumer = self.taker_of(message, matching)
            elif not self.count:
                consumer = ready[0]
                if len(ready) > 1:
                    ready.rotate(-1)
            if consumer is not None:
                consumer.take(message)
                return
        self.hold(message, matching)

    def hold(self, message: Message, matching: list[Pending] | None = None) -> None:
        """Keep a message until somebody takes it; a ring that is full gives up its head, before anybody takes it."""
        ref = self._reference(message, PENDING)
        self.enlist(ref, matching=matching)
        if 0 <= self.ring_size < self.ring_count:
            self.make_way()
        if self.ready:
            self.dispatch()
        if message.expires and ref.state == PENDING:
            self.broker.watch_expiry(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def lend(self, message: Message) -> Reference:
        """A message goes to a consumer as it arrives, and must be settled."""
        ref = self._reference(message, DELIVERING)
        ref.deliveries = 1
        self.delivering += 1
        return ref

    def schedule(self, message: Message, due: int, recurrence: Recurrence | None = None) -> Reference:
        """A message to be delivered at ``due`` (epoch ms), and again as ``recurrence`` says."""
        self.messages_added += 1
        ref = self._reference(message, SCHEDULED, due)
        ref.recurrence = recurrence
        self.postpone(ref, due)
        if message.expires:
            self.broker.watch_expiry(ref)
        return ref

    def postpone(self, ref: Reference, due: int) -> None:
        """Wait for ``due`` with a message that is in no list now."""
        ref.state = SCHEDULED
        ref.due = due
        self.scheduled[ref.message.number] = ref
        self.broker.enter_schedule(ref)

    def places_at_head(self, count: int) -> int:
        """The first of ``count`` sequences that come before everything that is here now."""
        self._lowest_sequence -= count
        return self._lowest_sequence

    def due_batch(self) -> DueBatch:
        """For what falls due now, however much that is: `fell_due` gets it with each part."""
        return DueBatch(self.places_at_head(MOST_TOGETHER))

    def fell_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """Scheduled messages go to the head, in the order they fell due.

        In a full ring they push out only what was sent before them and fell due in the same ``batch``: else each is
        lost itself.
        """
        for ref in refs:
            self.scheduled.pop(ref.message.number, None)
            place = batch.next_place()
            if not ref.deliveries:  # one that waited for its redelivery keeps its old place
                ref.sequence = place
            if self.has_no_place(ref, batch):
                continue
            ref.state = PENDING
            self.enlist(ref, at_tail=False)
            self.dispatch()
            if self.hooks.enqueued is not None and ref.state == PENDING:
                self.hooks.enqueued(ref)

    def _reference(self, message: Message, state: int, due: int = 0) -> Reference:
        if not message.holders:
            message.account.occupy(message.size)
        message.holders += 1
        self.persistent_size += message.size
        ref = Reference(message, self, message.number, state)
        if message.traits.durable and self.durable:
            if due:
                ref.due = due
                self.broker.storage.append_scheduled(ref)
            else:
                self.broker.storage.append(ref)
        elif message.traits.retained >= self.retains_from:
            ref.due = due
            self._retain(ref)
        return ref

    def _retain(self, ref: Reference) -> None:
        """A message has entered that a restart does not bring back, and that is retained all the same."""
        storage = self.broker.storage
        if self._entries is None:
            self._entries = Entries(self, None)
        if not self._entries.messages:
            storage.record(self._entries)
        self._entries.messages.append(ref.message)
        if ref.state == DELIVERING:
            storage.log(ref, DELIVERED)
        elif ref.due > ref.message.timestamp:
            storage.log(ref, POSTPONED)

    def load(self, message: Message, place: Position, counts: tuple[int, int]) -> Reference:
        """A reference to what was read back from a page, in no list yet; ``counts`` are deliveries and attempts."""
        if not message.holders:
            message.account.occupy(message.size)
        message.holders += 1
        self.persistent_size += message.size
        ref = Reference(message, self, message.number, GONE)
        ref.place = place
        ref.deliveries, ref.attempts = counts
        return ref

    def restore(self, message: Message) -> Reference:
        """A reference to what a store has kept, in no list yet; `reinstate` follows once it has its counts."""
        if not message.holders:
            message.account.occupy(message.size)
        message.holders += 1
        self.messages_added += 1
        self.persistent_size += message.size
        return Reference(message, self, message.number, GONE)

    def reinstate(self, ref: Reference) -> None:
        """Put what `restore` made to its place; a ring that is full gives up its head."""
        if ref.due:
            self.postpone(ref, ref.due)
        elif self.ring_size < 0 and not self.targets and ref.message.traits.group is None:
            ref.state = PENDING  # as below, in a shorter way: there may be millions
            self.count += 1
            self.pending.append(ref)
        else:
            ref.state = PENDING
            self.enlist(ref)
            if 0 <= self.ring_size < self.ring_count:
                self.make_way()
        if ref.message.expires and ref.state != GONE:
            self.broker.watch_expiry(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    # ---- leaving

    def settle(self, ref: Reference) -> None:
        """A consumer has acknowledged a message."""
        self.delivering -= 1
        self.messages_acknowledged += 1
        if self.hooks.settled is not None:
            self.hooks.settled(ref)
        self.drop(ref, Reason.ACKNOWLEDGED)

    def settle_all(self, refs: list[Reference]) -> None:
        """A consumer has acknowledged many messages: in slices. The list is the queue's from now on."""
        self.broker.background.run(self._settle_all(refs), self)

    def _settle_all(self, refs: list[Reference]) -> Iterator[None]:
        refs.reverse()  # the first delivered is the first to be settled
        for ref in used_up(refs):
            self.settle(ref)
            yield
        if not self.consumers:
            self.broker.consider_deleting(self)

    def drop(self, ref: Reference, reason: Reason) -> None:
        """Let go of a reference for good; the counts of the state it was in are the caller's."""
        ref.state = GONE
        message = ref.message
        self.persistent_size -= message.size
        message.holders -= 1
        if not message.holders:
            message.account.release(message.size)
        if ref.watched:
            ref.watched = False
            self.broker.expiry.forget()
        if ref.place is not None:
            if self.area is not None:  # else the queue is deleted, and its pages have forgotten it
                self.area.settled(ref, reason)
        elif message.traits.durable and self.durable:
            self.broker.storage.settle(ref, reason)
        elif message.traits.retained >= self.retains_from:
            self.broker.storage.log(ref, reason)

    def take_out(self, ref: Reference) -> None:
        """Adjust the counts for a reference that is about to be dropped or moved."""
        was, ref.state = ref.state, GONE
        if was == PENDING:
            self.count -= 1
            self.pending.head()  # drops it where it is the first
            self.sweep()
        elif was == SCHEDULED:
            self.scheduled.pop(ref.message.number, None)
            self.broker.forget_schedule(ref)
        elif was == DELIVERING:
            self.delivering -= 1

    def expire(self, ref: Reference) -> None:
        """A message has outlived its time."""
        self.take_out(ref)
        self.messages_expired += 1
        self.broker.expired(ref)

    def kill(self, ref: Reference) -> None:
        """A message is removed by other hands than a consumer's."""
        self.take_out(ref)
        self.messages_killed += 1
        if self.hooks.killed is not None:
            self.hooks.killed(ref)
        self.drop(ref, Reason.KILLED)

    # ---- coming back

    def give_back(
        self,
        refs: list[Reference],
        consumer: Consumer | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """Take back unsettled messages, each to its old place. The list is the queue's from now on.

        ``failed`` counts an attempt against max-delivery-attempts and applies the redelivery-delay; ``consumer``
        refused them and is asked last. The latest come first, so that a ring keeps the newest; nobody is given
        anything until all of them are back.
        """
        self._run(self._return_all(refs, consumer, failed))

    def _return_all(self, refs: list[Reference], consumer: Consumer | None, failed: bool) -> Iterator[None]:
        runs: list[Iterator[Reference]] = []
        while refs:
            run = refs[-MOST_SORTED:]  # what comes back from one consumer is as good as sorted
            del refs[-MOST_SORTED:]
            run.sort(key=attrgetter("sequence"))
            run.sort(key=attrgetter("message.traits.priority"), reverse=True)
            runs.append(used_up(run))
            if refs:
                yield
        newest_first = merge(*runs, key=attrgetter("order"), reverse=True) if len(runs) > 1 else chain(*runs)
        for place, ref in enumerate(newest_first, 1):
            ref.avoid = consumer
            if self.deleted:
                self.kill(ref)
            else:
                if failed:
                    ref.attempts += 1
                if not (failed and self.broker.exhausted(ref)):
                    self._come_back(ref, delayed=failed)
            if place % STEP == 0 and self.area is not None:
                self.area.demand()  # what has no place in memory goes back to disk
            yield
        if not self.consumers:
            self.broker.consider_deleting(self)

    def _run(self, job: Iterator[object]) -> None:
        """Do something about many messages, in slices; until it is done nobody is given any message."""
        self.on_hold += 1
        self.review()
        self.broker.background.run(self._held(job), self)

    def _held(self, job: Iterator[object]) -> Iterator[object]:
        try:
            yield from job
        finally:
            self.on_hold -= 1
            self.review()
            self.dispatch()

    def _come_back(self, ref: Reference, *, delayed: bool) -> None:
        message, now = ref.message, self.broker.clock.now
        if message.expires and message.expires <= now:
            self.expire(ref)
            return
        if self.attributes.purge_on_no_consumers and not self.consumers:
            self.kill(ref)
            return
        self.take_out(ref)
        if self.has_no_place(ref):
            return
        delay = self.broker.redelivery_delay(ref) if delayed else 0
        if delay > 0:
            self.postpone(ref, self.broker.clock.from_now(delay))
        else:
            ref.state = PENDING
            self.enlist(ref, at_tail=False)
        if message.expires:
            self.broker.watch_expiry(ref)
        if ref.place is not None and self.area is not None:
            self.area.returned(ref)
        elif message.traits.durable and self.durable:
            self.broker.storage.returned(ref)
        elif message.traits.retained >= self.retains_from:
            self.broker.storage.log(ref, RETURNED)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    # ---- consumers

    def add(self, consumer: Consumer) -> None:
        """A consumer comes. Raises `Refused` beyond max-consumers."""
        consumer.queue = self
        self.join(consumer)
        self.broker.slow_consumers.watch(self)
        if self.attributes.purge_on_no_consumers:
            self.address.changed()

    def remove(self, consumer: Consumer, unsettled: list[Reference], *, failed: bool = False) -> None:
        """A consumer goes; what it has not settled comes back: see `give_back`."""
        self.leave(consumer)
        if not self.consumers and self.attributes.purge_on_no_consumers:
            self.address.changed()
            self.purge()
        self.give_back(unsettled, failed=failed)

    # ---- the whole queue

    @property
    def open(self) -> bool:
        """Whether messages are routed here: enabled, and with consumers where purge-on-no-consumers wants them."""
        attributes = self.attributes
        return attributes.enabled and (not attributes.purge_on_no_consumers or bool(self.consumers))

    def review_filter(self) -> None:
        """Put filter and no-local together."""
        matches, origin = self.attributes.accepts, self.no_local
        self.accepts = matches if origin is None else not_from(origin, matches)

    def purge(self) -> int:
        """Kill everything that is pending or scheduled; returns how many. Where they are many it takes its time."""
        killed = self.count + self.scheduled_count + self.paged_count
        self._run(self._kill_all(self.snapshot(), list(self.scheduled.values())))
        return killed

    def _kill_all(self, pending: Iterator[Reference], scheduled: list[Reference]) -> Iterator[None]:
        if self.area is not None:
            for paged in self.area.purge(Reason.KILLED):
                self.messages_killed += paged
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

    def pause(self) -> None:
        """Stop dispatch; messages still enter, and a ring still evicts."""
        self.paused = True
        self.review()
        self.broker.storage.bind(self)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        self.review()
        self.broker.storage.bind(self)
        self.dispatch()

    def close(self, reason: str) -> None:
        """The queue is deleted: consumers are told, messages are killed, which may take its time."""
        self.deleted = True
        self.cancel_dispatch_timer()
        self.on_hold += 1  # for ever: nobody is given anything while the others are told
        if self.area is not None:
            self.messages_killed += sum(self.area.purge(Reason.KILLED))
        held = [consumer.held.detach() for consumer in self.consumers if consumer.held is not None]
        self._run(self._kill_all(chain(self.pending.detach(), *held), list(self.scheduled.values())))
        for consumer in list(self.consumers):
            if consumer in self.consumers:  # one who is told may take others along
                consumer.cancelled(reason)
        if self.area is not None:
            self.area.close()
        self.broker.background.run(self._end(), self)

    def _end(self) -> Iterator[None]:
        """All that was in it is gone: break its cycles, so that it is freed by its count and not by the collector."""
        self.view = self.area = self.groups = None
        self._entries = None
        self.pending.clear()
        for target in self.targets.values():
            target.pending.clear()
        self.targets.clear()
        yield


def used_up(refs: list[Reference]) -> Iterator[Reference]:
    """From the end; each is let go of as it is given, so that those which are killed are not freed all at once."""
    while refs:
        yield refs.pop()
