"""Queues: how messages enter a queue, are delivered to its consumers, leave, and are requeued.

`Queue.enqueue` delivers a message directly to the next consumer, round robin, if no message is pending. Otherwise the
message is pending in the lists of the queue's `Dispatcher`, which has the consumers, their pending lists and the
delivery loop. `MessageGroups` has the owner of each group.

Invariant between any two calls: no pending message could be delivered to a ready consumer, unless delivery is stopped
(`STOPPED`), or delivery (`Slices`) or the scan for a new selector (`SelectorList.cursor`) continues in a later reactor
turn.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge
from itertools import chain, count, groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, Protocol
from zlib import crc32

from mypy_extensions import mypyc_attr

from stompring.errors import Refused
from stompring.settings.match import is_internal

from .clock import (
    DELIVERIES,
    DELIVERIES_BETWEEN,
    DELIVERY_SLICE,
    FRAME_SLICE,
    NOTICED,
    Background,
    Clock,
    Due,
    Effort,
    FromNow,
    Reactor,
    Recurrence,
    Seconds,
    Slices,
    Timer,
    cancel,
)
from .history import History
from .message import (
    EVERYWHERE,
    IN_DURABLE,
    MESSAGE_OVERHEAD,
    NEVER,
    REFERENCE_OVERHEAD,
    AddressBase,
    Matches,
    Message,
    Numbers,
    Traits,
    repeated,
)
from .ports import (
    DELIVERED,
    POSTPONED,
    RETURNED,
    Block,
    Cursor,
    Done,
    Entries,
    Hooks,
    Listener,
    Reason,
    Storage,
    hooks_with_settled,
)
from .reference import (
    DELIVERING,
    GONE,
    LEVELS,
    PENDING,
    SCHEDULED,
    SLACK,
    ConsumerBase,
    Page,
    PendingList,
    Position,
    QueueAttributes,
    QueueBase,
    Reference,
    ReferenceRun,
    TimerQueue,
    is_expired,
    redelivery_delay,
)

log = logging.getLogger(__name__)


def not_from(origin: object, matches: Matches | None) -> Matches:
    """Return a filter that rejects the messages of ``origin`` (no-local), and those that ``matches`` rejects."""

    def accepts(message: Message) -> bool:
        return message.traits.origin != origin and (matches is None or matches(message))

    return accepts


@mypyc_attr(allow_interpreted_subclasses=True)  # for the subclass in `stompring.policy.testing`
class Consumer(ConsumerBase):
    """Base of the session's subscriptions. Its queue calls the ``deliver`` methods; `Dispatcher` sets the attributes.

    ``willing``: the subscription has credit and the send buffer of its socket is not full. ``ready``: the dispatcher
    serves the consumer. An exclusive queue serves only one of its willing consumers.
    """

    __slots__ = (
        "group_backlog",
        "group_owner",
        "matches",
        "matches_key",
        "priority",
        "queue",
        "ready",
        "settled",
        "source",
        "willing",
        "writes_tails",
    )

    queue: Queue
    settles_on_delivery = False  # whether a delivery settles the message, without a record in the session
    connection_id = ""  # the session header of the consumer's connection

    def __init__(self, matches: Matches | None = None, matches_key: object = None) -> None:
        self.matches = matches
        self.matches_key = matches_key  # consumers with equal keys share one list of matching messages
        self.priority = 0  # the dispatcher serves consumers of the highest priority first
        self.willing = True
        self.ready = False
        self.source = PendingList()  # the list with the next message of this consumer
        self.settled = 0  # number of acknowledged messages, for the detection of slow consumers
        self.writes_tails = False  # whether `write_tail` may be called: writing a message settles the message
        # messages of the consumer's groups, until the consumer has credit
        self.group_backlog: PendingList | None = None
        self.group_owner: GroupOwner | None = None  # None until a group is pinned to this consumer

    def deliver_message(self, message: Message) -> None:
        """Deliver a message on arrival, when the message has no reference yet."""
        raise AssertionError("a derived class has it")

    def write_tail(self, traits: Traits, tail: bytes, body_at: int) -> None:
        """Deliver a message on arrival as encoded bytes, without a `Message`. Called only if ``writes_tails``."""
        raise AssertionError("a derived class has it")

    def deliver_reference(self, ref: Reference) -> None:
        """Deliver a message that was pending, or was requeued."""
        raise AssertionError("a derived class has it")

    def additional_header(self, name: bytes, value: bytes) -> AbstractContextManager[None]:
        """Return a context in which each delivery has an additional header."""
        return nullcontext()

    @property
    def has_waiting(self) -> bool:
        """Whether the queue has a message that this consumer would get if it had credit."""
        source, backlog, paged = self.source, self.group_backlog, self.queue.paged
        if source.head() is not None or (backlog is not None and backlog.head() is not None):
            return True
        return paged is not None and paged.waiting > 0 and self.matches is None

    @property
    def remote(self) -> str:
        """Host and port of the client."""
        return ""

    @property
    def group_count(self) -> int:
        """Number of message groups, or of buckets, that are pinned to this consumer."""
        return 0 if self.group_owner is None else self.group_owner.count

    def cancelled(self, reason: str) -> None:
        """End the subscription: the queue was deleted. ``reason``: a text for the client."""
        raise AssertionError("a derived class has it")

    def unsettled_references(self) -> Iterable[Reference]:
        """Return the delivered messages that the consumer has not settled, in the order of delivery."""
        return ()

    @property
    def identifier(self) -> str:
        """The ``id`` that the client gave the subscription."""
        return ""


#: Number of owners that one step of `MessageGroups.sweep` checks.
SWEPT: Final = 256


@dataclass
class GroupOwner:
    """A consumer as the owner of groups. All its groups share this object, and are unpinned in one step."""

    consumer: Consumer | None  # None once the consumer's groups are unpinned
    count: int = 0
    #: keys of the groups that may have messages in the consumer's backlog
    backlog_keys: set[bytes | int] = field(default_factory=set)


class MessageGroups:
    """The owners of message groups: one consumer gets all messages with one JMSXGroupID, in order, until it leaves.

    ``buckets`` above 0: the hash of a group's id puts the group into one of so many buckets, and each bucket has an
    owner. -1: each group has an owner.

    If the owner of a message has no credit, the message moves to the owner's ``group_backlog`` and does not delay other
    groups. It stays pending, and counts for the ring size.
    """

    def __init__(self, buckets: int = -1) -> None:
        self.buckets = buckets
        self.owners: dict[bytes | int, GroupOwner] = {}
        self.stale = 0  # number of groups in ``owners`` whose owner has left
        self.first = 0  # number of the message that pinned a group last, until that message is delivered

    def _key(self, group: bytes) -> bytes | int:
        return group if self.buckets < 0 else crc32(group) % self.buckets

    def owner_of(self, group: bytes) -> Consumer | None:
        """Return the consumer that owns a group, None if the group has no owner."""
        owner = self.owners.get(self._key(group))
        return None if owner is None else owner.consumer

    def owner(self, ref: Reference) -> Consumer | None:
        """Return the consumer that owns the group of a message, None if there is none."""
        group = ref.message.traits.group
        return None if group is None else self.owner_of(group)

    def claim(self, ref: Reference, consumer: Consumer) -> Consumer:
        """Return the consumer that gets a message: the owner of its group. A group without an owner gets ``consumer``.

        If the owner's selector does not match, ``consumer`` gets the message: otherwise no consumer ever would.
        """
        group = ref.message.traits.group
        if group is None:
            return consumer
        key = self._key(group)
        owner = self.owners.get(key)
        owning = None if owner is None else owner.consumer
        if owning is None:
            if owner is not None:
                self.stale -= 1
            self.owners[key] = pinned = _owner(consumer)
            pinned.count += 1
            self.first = ref.message.number
            return consumer
        refused = owning is not consumer and owning.matches is not None and not owning.matches(ref.message)
        return consumer if refused else owning

    def release(self, group: bytes) -> list[Reference]:
        """Unpin one group, or the bucket that contains it. Return its backlog, in the order of delivery."""
        key = self._key(group)
        owner = self.owners.pop(key, None)
        if owner is None:
            return []
        consumer = owner.consumer
        if consumer is None:
            self.stale -= 1
            return []
        owner.count -= 1
        if consumer.group_backlog is None or key not in owner.backlog_keys:
            return []
        owner.backlog_keys.discard(key)
        freed, others = [], PendingList()
        for ref in consumer.group_backlog:
            group_of_ref = ref.message.traits.group
            if group_of_ref is not None and self._key(group_of_ref) == key:
                freed.append(ref)
            else:
                others.append(ref)
        if freed:
            consumer.group_backlog = others
        return freed

    def add_to_backlog(self, ref: Reference, owner: Consumer) -> None:
        """Add a message to the backlog of its group's owner, who has no credit for it now."""
        if owner.group_backlog is None:
            owner.group_backlog = PendingList()
        owner.group_backlog.insert(ref)
        group = ref.message.traits.group
        if group is not None:
            _owner(owner).backlog_keys.add(self._key(group))

    def remove(self, consumer: Consumer) -> list[Reference]:
        """Unpin all groups of a consumer. Return its backlog, in the order of delivery."""
        owner, consumer.group_owner = consumer.group_owner, None
        if owner is not None:
            owner.consumer = None
            self.stale += owner.count
        backlog, consumer.group_backlog = consumer.group_backlog, None
        return [] if backlog is None else list(backlog)

    def sweep(self) -> Iterator[None]:
        """Remove the groups whose owner has left from ``owners``, in steps."""
        for index, key in enumerate(list(self.owners), 1):
            owner = self.owners.get(key)
            if owner is not None and owner.consumer is None:
                del self.owners[key]
                self.stale -= 1
            if index % SWEPT == 0:
                yield


def _owner(consumer: Consumer) -> GroupOwner:
    owner = consumer.group_owner
    if owner is None:
        owner = consumer.group_owner = GroupOwner(consumer)
    return owner


#: The bits of `Dispatcher.blocks`: why a message that arrives cannot be delivered directly.
PAUSED: Final = 1  # management has paused delivery
AWAITING_CONSUMERS: Final = 2  # waits for consumers-before-dispatch or delay-before-dispatch
SUSPENDED: Final = 4  # background work on many messages of the queue is in progress
GROUPS: Final = 8  # the queue has had messages of groups: the owner of a group gets its messages
NON_DESTRUCTIVE: Final = 16  # every consumer gets every message
OBSERVED: Final = 32  # `Queue.deliver` and `Queue.settle` must notify a policy of each delivery or settlement
SELECTORS: Final = 64  # some consumers have a selector
PAGED: Final = 128  # some messages are in pages
CLOSED: Final = 256  # the queue is deleted
LAST_VALUE: Final = 1024  # last-value queue: each message may replace a pending one
PRIORITIES: Final = 512  # consumers differ in priority: the highest is served first
FIRST_KEY: Final = 4096  # group-first-key: some deliveries have an additional header
REBALANCING: Final = 2048  # group-rebalance-pause-dispatch: waits until all messages in delivery are settled

#: The bits that also stop the delivery of pending messages.
STOPPED: Final = PAUSED | AWAITING_CONSUMERS | SUSPENDED | CLOSED | REBALANCING

#: The bits for which `Dispatcher.dispatch` needs an additional step for each message.
ORDERED: Final = PRIORITIES | FIRST_KEY

#: The bits that block the direct delivery of some messages only: `Queue.deliver_directly` checks the message.
PERHAPS: Final = SELECTORS | PAGED


#: Number of evaluations of a selector between two readings of the clock. One evaluation with XPATH may take long.
SCANNED_AT_ONCE: Final = 8

#: Number of references in a selector's list at which its scan pauses until consumers have taken them. A reference takes
#: 8 bytes: without this limit thousands of selectors would need more memory than the messages.
LISTED: Final = 256

#: Maximum number of consumers that are paused one by one. Each pause takes time linear in the number of ready
#: consumers.
PAUSED_SINGLY: Final = 16

#: Number of groups in ``MessageGroups.owners`` whose owner has left at which `MessageGroups.sweep` removes them, if
#: they are more than half of all groups.
STALE: Final = 1000


@dataclass
class SelectorList:
    """The pending messages that one selector matches. All consumers with the selector share the list."""

    matches: Matches
    pending: PendingList = field(default_factory=PendingList)
    consumers: int = 0
    #: position of the scan of pending messages: the list has none from there on. None: the scan is complete
    cursor: PendingCursor | None = None
    paused: bool = False  # whether the scan waits until the list is empty


#: Number of references that a `PendingCursor` reads in one step.
AHEAD: Final = 512


class PendingCursor:
    """A position among the pending messages of a queue, in the order of delivery. The queue may change meanwhile. The
    cursor begins at the head of a priority. It returns all messages after its position, new ones as well.
    """

    def __init__(self, dispatcher: Dispatcher, level: int = LEVELS - 1) -> None:
        self._dispatcher = dispatcher
        self._chunk: list[Reference] = []  # references after the position, the next one last
        self._version = 0  # `Dispatcher.version` when ``_chunk`` was read
        self.level = level  # priority, -1 at the end
        # first sequence number after the position; None: start of the priority
        self.sequence: int | None = None

    def passed(self, priority: int, sequence: int) -> bool:
        """Return whether a message of this priority and sequence is before the cursor."""
        mine = self.sequence
        return priority > self.level or (priority == self.level and mine is not None and sequence < mine)

    def take(self, most: int) -> list[Reference]:
        """Take up to ``most`` next references, and drop the references that are no longer pending. May be empty before
        the end.
        """
        while not self._read():
            self.level -= 1
            self.sequence = None
            if self.level < 0:
                return []
        chunk = self._chunk
        taken = chunk[-most:]
        del chunk[-most:]
        self.sequence = taken[0].sequence + 1
        return [ref for ref in reversed(taken) if ref.state == PENDING]

    def peek(self) -> Reference | None:
        """Return the next pending reference of this priority, without moving the cursor. None: there is none."""
        while self._read():
            ref = self._chunk[-1]
            if ref.state == PENDING:
                return ref
            self.skip(ref.sequence)
        return None

    def skip(self, sequence: int) -> None:
        """Move the cursor behind the reference with this sequence number, within the present priority."""
        chunk = self._chunk
        while chunk and chunk[-1].sequence <= sequence:
            chunk.pop()
        if self.sequence is None or self.sequence <= sequence:
            self.sequence = sequence + 1

    def _read(self) -> bool:
        """Read the next references if ``_chunk`` is empty, or if new messages may belong between those in it."""
        dispatcher = self._dispatcher
        if not self._chunk or self._version != dispatcher.version:
            self._chunk = dispatcher.read_pending(self.level, self.sequence, AHEAD)
            self._chunk.reverse()
            self._version = dispatcher.version
        return bool(self._chunk)


class Dispatcher:
    """Delivers the pending messages of one queue to its consumers, round robin.

    ``blocks`` has a bit for each reason against the direct delivery of a message on arrival.
    """

    __deletable__ = ("queue",)  # `close` deletes it; the compiled build requires the declaration

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._effort = queue.broker.effort
        self.count = 0  # number of pending messages in memory
        self.consumers: list[Consumer] = []
        #: consumers that can take messages, the next one first; with `PRIORITIES` the highest priority first
        self.ready: deque[Consumer] = deque()
        self.pending = PendingList()
        self.selector_lists: dict[object, SelectorList] = {}  # lists by ``Consumer.matches_key``
        self.scanning = 0  # number of selector lists whose scan is not complete
        self.version = 0  # changes when messages become pending elsewhere than at the tail
        self.groups: MessageGroups | None = None  # None until the first message of a group
        self.exclusive: Consumer | None = None  # the only consumer of an exclusive queue that is served
        self._buckets = queue.attributes.group_buckets
        self._delivered_before = 0  # ``messages_delivered`` of the queue when ``exclusive`` was selected
        self.blocks = NON_DESTRUCTIVE if queue.attributes.non_destructive else 0
        self.set_block(FIRST_KEY, queue.attributes.group_first_key is not None)
        self._suspensions = 0
        if queue.broker.delivery_suspended:
            self.suspend()
        self._timer: Timer | None = None  # delay-before-dispatch
        self._dispatching = False
        self._deferred = False  # whether delivery continues in a later reactor turn
        self._await_consumers_again()

    # ---- whether messages are delivered

    def set_block(self, reason: int, on: bool) -> None:
        """Set or clear a bit of ``blocks``."""
        self.blocks = self.blocks | reason if on else self.blocks & ~reason

    def suspend(self) -> None:
        """Stop delivery until each call of `suspend` is undone by one of `resume`."""
        self._suspensions += 1
        self.blocks |= SUSPENDED

    def resume(self) -> None:
        """Undo one `suspend`."""
        self._suspensions -= 1
        if not self._suspensions:
            self.blocks &= ~SUSPENDED
        if self.blocks & REBALANCING and not self.queue.delivering:
            self.blocks &= ~REBALANCING
        self.dispatch()

    @property
    def active(self) -> bool:
        """Whether delivery of pending messages is possible: the queue has a ready consumer and is not stopped."""
        return bool(self.ready) and not self.blocks & STOPPED

    # ---- consumers

    def add(self, consumer: Consumer) -> None:
        """Add a consumer. Raises `Refused` beyond max-consumers."""
        queue = self.queue
        limit = queue.attributes.max_consumers
        if 0 <= limit <= len(self.consumers):
            raise Refused(f"Queue {queue.name} has reached its max-consumers of {limit}")
        self.consumers.append(consumer)
        consumer.source = self._source_for(consumer)
        if consumer.priority != self.consumers[0].priority and not self.blocks & PRIORITIES:
            self.blocks |= PRIORITIES
            self._serve(sorted(self.ready, key=attrgetter("priority"), reverse=True))
        self._apply_exclusive()
        self._check_consumers()
        rebalanced = queue.attributes.group_rebalance and self._rebalance()
        if consumer.willing:
            self.resume_consumer(consumer)
        if rebalanced or queue.attributes.exclusive:
            self.dispatch()

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer, and release its groups and their backlog to the other consumers."""
        self.consumers.remove(consumer)
        self.pause_consumer(consumer)
        self._forget_source(consumer)
        # free the list: references that this consumer rejected still refer to the consumer
        consumer.source = PendingList()
        self._free_groups(consumer)
        if self.queue.paged is not None:
            self.queue.paged.on_consumer_removed(consumer)
        if not self.consumers:
            self._await_consumers_again()
            self.cancel_timer()
        if self.blocks & PRIORITIES:
            self.set_block(PRIORITIES, len({other.priority for other in self.consumers}) > 1)
        if self.exclusive is consumer:
            self.exclusive = None
        self._apply_exclusive()

    def resume_consumer(self, consumer: Consumer) -> None:
        """Serve a consumer that can take messages."""
        consumer.willing = True
        if consumer.ready or self.blocks & CLOSED:
            return
        if not self.queue.attributes.exclusive or self.exclusive is consumer:
            self._make_ready(consumer)
            # the other ready consumers may not receive this pending message
            if self.count and self.next_in_memory(consumer) is not None:
                self.dispatch()
            elif self.blocks & PAGED:
                self._demand()

    def pause_consumer(self, consumer: Consumer) -> None:
        """Stop serving a consumer: it has no credit, or the send buffer of its socket is full."""
        consumer.willing = False
        if consumer.ready:
            consumer.ready = False
            self.ready.remove(consumer)

    def pause_consumers(self, consumers: list[Consumer]) -> None:
        """Pause consumers of one connection, which may be thousands."""
        if len(consumers) < PAUSED_SINGLY:
            for consumer in consumers:
                self.pause_consumer(consumer)
            return
        for consumer in consumers:
            consumer.willing = consumer.ready = False
        self._serve([consumer for consumer in self.ready if consumer.ready])

    def _serve(self, consumers: list[Consumer]) -> None:
        self.ready.clear()
        self.ready.extend(consumers)

    def on_attributes_changed(self) -> None:
        """Apply changed attributes of the queue, and resume delivery to the consumers that may now receive."""
        attributes = self.queue.attributes
        if attributes.consumers_before_dispatch <= 0:
            self.blocks &= ~AWAITING_CONSUMERS
        self.set_block(FIRST_KEY, attributes.group_first_key is not None)
        if not (attributes.group_rebalance and attributes.group_rebalance_pause_dispatch):
            self.blocks &= ~REBALANCING
        if self._buckets != attributes.group_buckets:
            self._buckets = attributes.group_buckets
            self._free_all_groups()
            self.groups = None
            self.blocks &= ~GROUPS
            if self.count:
                self._begin_groups()  # some pending messages may belong to groups
        self._apply_exclusive()
        if attributes.exclusive:
            for other in self.consumers:
                if other is not self.exclusive:
                    self._free_groups(other)
        self._check_consumers()
        for consumer in self.consumers:
            if consumer.willing:
                self.resume_consumer(consumer)
        self.dispatch()

    def stands_by(self, consumer: Consumer) -> bool:
        """Return whether a willing consumer has no messages because the queue serves another consumer first."""
        if not consumer.willing or any(consumer.unsettled_references()):
            return False
        if self.queue.attributes.exclusive:
            return consumer is not self.exclusive
        return any(other.priority > consumer.priority for other in self.consumers)

    def _apply_exclusive(self) -> None:
        """Select the only consumer that an exclusive queue serves: the oldest of those with the highest priority.

        The selection lasts until this consumer leaves. Before its first delivery, a consumer of a higher priority can
        still replace it.
        """
        queue = self.queue
        if not queue.attributes.exclusive:
            self.exclusive = None
            return
        if not self.consumers:
            return
        chosen = self.exclusive
        if chosen is None or queue.messages_delivered == self._delivered_before:
            best = max(self.consumers, key=attrgetter("priority"))
            if chosen is None or best.priority > chosen.priority:
                chosen = self.exclusive = best
                self._delivered_before = queue.messages_delivered
        for other in self.consumers:
            if other.ready and other is not chosen:
                other.ready = False
                self.ready.remove(other)
        if chosen.willing and not chosen.ready:
            self._make_ready(chosen)

    def _make_ready(self, consumer: Consumer) -> None:
        """Add a consumer to the ready consumers, after all others of its priority."""
        consumer.ready = True
        ready = self.ready
        if not self.blocks & PRIORITIES or not ready or ready[-1].priority >= consumer.priority:
            ready.append(consumer)
            return
        lower = next(at for at, other in enumerate(ready) if other.priority < consumer.priority)
        ready.insert(lower, consumer)

    def next_consumer(self) -> Consumer:
        """Return the next ready consumer, round robin. Callers with a single ready consumer skip this call."""
        ready = self.ready
        consumer = ready[0]
        ready.rotate(-1)
        return consumer

    def consumer_for(self, matching: list[PendingList]) -> Consumer | None:
        """Return the consumer that gets a message on arrival. ``matching``: the selector lists for the message. None if
        no ready consumer may receive it, or if another message precedes it.
        """
        ready, everything = self.ready, self.pending
        for _ in range(len(ready)):
            consumer = ready[0] if len(ready) == 1 else self.next_consumer()
            source = consumer.source
            if source is everything or source in matching:
                # a consumer is ready only if it has no pending message, or has just rejected one
                return consumer if source.head() is None else None
        return None

    def consumer_for_any(self) -> Consumer | None:
        """Return the consumer that receives any message read from a page, None if the choice depends on the message."""
        if self.count or not self.ready or self.blocks & ~PAGED or self._dispatching:
            return None
        return self.next_consumer()

    def _source_for(self, consumer: Consumer) -> PendingList:
        matches = consumer.matches
        if self.blocks & NON_DESTRUCTIVE:
            # a list of messages for each consumer; the consumer itself as the key would be a reference cycle
            consumer.matches_key, matches = object(), matches or _everything
        if matches is None:
            return self.pending
        found = self.selector_lists.get(consumer.matches_key)
        if found is None:
            found = self.selector_lists[consumer.matches_key] = SelectorList(matches)
            self.blocks |= SELECTORS
            if self.count:
                found.cursor = PendingCursor(self)
                self.scanning += 1
        found.consumers += 1
        if found.cursor is not None and found.consumers == 1:
            self.queue.broker.scans.run(self._scan(found), consumer.connection_id)
        return found.pending

    def _scan(self, target: SelectorList) -> Iterator[None]:
        """List the pending messages that a new selector matches, in the order of delivery, and deliver them."""
        matches, pending = target.matches, target.pending
        while (cursor := target.cursor) is not None:
            waited = pending.head() is not None
            for ref in cursor.take(SCANNED_AT_ONCE):
                if matches(ref.message):
                    pending.append(ref)
            over = cursor.level < 0
            if over:
                self._end_scan(target)
                # a queue with groups dispatches in any case: their messages may have waited for the end of the scan
                waited = waited and self.groups is None
            if not waited and (pending.size or self.groups is not None):
                self.dispatch()
            elif over and self.blocks & PAGED:
                self._demand()
            if pending.size >= LISTED and target.cursor is not None and pending.head() is not None:
                target.paused = True
                return
            yield

    def _resume_scan(self, consumer: Consumer) -> bool:
        """Continue a scan that paused until its list is empty. Return whether the list has references again."""
        target = self.selector_lists.get(consumer.matches_key)
        if target is None or not target.paused or target.pending is not consumer.source:
            return False
        target.paused = False
        self.queue.broker.scans.run(self._scan(target), consumer.connection_id)
        return target.pending.head() is not None

    def _end_scan(self, target: SelectorList) -> None:
        if target.cursor is not None:
            target.cursor = None
            self.scanning -= 1

    def _passed(self, target: SelectorList, ref: Reference) -> bool:
        cursor = target.cursor
        return cursor is None or cursor.passed(ref.message.traits.priority, ref.sequence)

    def is_scanning(self, consumer: Consumer) -> bool:
        """Return whether the scan for the selector of a consumer is incomplete."""
        target = self.selector_lists.get(consumer.matches_key) if self.scanning else None
        return target is not None and target.cursor is not None and target.pending is consumer.source

    def _forget_source(self, consumer: Consumer) -> None:
        found = self.selector_lists.get(consumer.matches_key)
        if found is not None and found.pending is consumer.source:
            found.consumers -= 1
            if not found.consumers:
                del self.selector_lists[consumer.matches_key]
                self._end_scan(found)
                self.set_block(SELECTORS, bool(self.selector_lists))

    # ---- consumers-before-dispatch and delay-before-dispatch

    def _await_consumers_again(self) -> None:
        self.set_block(AWAITING_CONSUMERS, self.queue.attributes.consumers_before_dispatch > 0)

    def _check_consumers(self) -> None:
        if not self.blocks & AWAITING_CONSUMERS:
            return
        queue = self.queue
        if len(self.consumers) >= queue.attributes.consumers_before_dispatch:
            self._start()
        elif self._timer is None and queue.attributes.delay_before_dispatch >= 0:
            clock = queue.broker.clock.steady
            self._timer = clock.call_at(clock.now + queue.attributes.delay_before_dispatch, self._start)

    def _start(self) -> None:
        self.blocks &= ~AWAITING_CONSUMERS
        self.cancel_timer()
        self.dispatch()

    def cancel_timer(self) -> None:
        """Cancel delay-before-dispatch."""
        cancel(self._timer)
        self._timer = None

    # ---- pending lists

    def matching(self, message: Message, sequence: int) -> list[PendingList]:
        """Return the lists of the selectors that match a message, if their scan has passed its position."""
        lists = self.selector_lists
        self._effort.steps += len(lists)
        priority = message.traits.priority
        return [
            each.pending
            for each in lists.values()
            if (each.cursor is None or each.cursor.passed(priority, sequence)) and each.matches(message)
        ]

    def enlist(self, ref: Reference, at_tail: bool = True, matching: list[PendingList] | None = None) -> None:
        """Add a pending reference to the lists of consumers that may receive it. ``matching``: the lists of selectors
        that match it, if known.
        """
        self.count = count = self.count + 1
        if ref.message.traits.group is not None and not self.blocks & (GROUPS | NON_DESTRUCTIVE):
            self._begin_groups()
        if at_tail and ref.position is None and not self.selector_lists:
            pending = self.pending
            pending.append(ref)
            if pending.size > 2 * count + SLACK:
                pending.sweep(count)
            return
        if matching is None:
            matching = self.matching(ref.message, ref.sequence) if self.selector_lists else []
        if not at_tail or ref.position is not None:
            self.version += 1
        for pending in (self.pending, *matching):
            if not at_tail:
                pending.restore(ref)
                continue
            if ref.position is None:
                pending.append(ref)
            else:
                pending.insert(ref)
            pending.sweep(count)

    def _list_again(self, refs: list[Reference]) -> None:
        """Return references of a group backlog, in the order of delivery, to the lists of all consumers."""
        if refs:
            self.pending.restore_all(refs)
            for each in self.selector_lists.values():
                each.pending.restore_all(
                    [ref for ref in refs if self._passed(each, ref) and each.matches(ref.message)]
                )

    def _begin_groups(self) -> None:
        """Deliver messages of groups to their owners from now on, unless ``group-buckets`` is 0."""
        buckets = self.queue.attributes.group_buckets
        if buckets and not self.blocks & NON_DESTRUCTIVE:
            self.groups = MessageGroups(buckets)
            self.blocks |= GROUPS

    def enlist_for_group(self, ref: Reference, consumer: Consumer) -> None:
        """Add a pending reference to the backlog of its group's owner. A group without an owner gets ``consumer``."""
        assert self.groups is not None
        self.count += 1
        self.version += 1
        self.groups.add_to_backlog(ref, self.groups.claim(ref, consumer))

    def delist(self) -> None:
        """Count one pending reference less. The caller has changed its state; the lists remove it lazily."""
        self.count = count = self.count - 1
        pending = self.pending
        pending.head()  # drops the reference if it is the first one
        if pending.size > 2 * count + SLACK:
            pending.sweep(count)
        if self.selector_lists:
            self._sweep_selector_lists()

    def _sweep_selector_lists(self) -> None:
        for each in self.selector_lists.values():
            each.pending.sweep(self.count)

    def first(self) -> Reference | None:
        """Return the first pending message in memory in the order of delivery, for any consumer."""
        if self.groups is None:
            return self.pending.head()
        heads = [each.head() for each in self.lists()]
        return min((ref for ref in heads if ref is not None), key=attrgetter("order"), default=None)

    def lists(self) -> list[PendingList]:
        """Return the lists of all pending messages in memory: ``pending``, then group backlogs. One message may be in
        several lists.
        """
        backlogs = [
            consumer.group_backlog for consumer in self.consumers if consumer.group_backlog is not None
        ]
        return [self.pending, *backlogs]

    def in_order(self) -> Iterator[Reference]:
        """Iterate over the pending messages in memory, in the order of delivery. The lists must not change during the
        iteration.
        """
        return _merged([iter(each) for each in self.lists()])

    def read_pending(self, priority: int, sequence: int | None, most: int) -> list[Reference]:
        """Return up to ``most`` references of a priority from a sequence on, in order; some may not be pending now."""
        found = self.pending.read(priority, sequence, most)
        backlogs = self.lists()[1:] if self.groups is not None else []
        if not backlogs:
            return found
        parts = [found, *[backlog.read(priority, sequence, most) for backlog in backlogs]]
        # up to this sequence no part lacks a reference; beyond it, a part may have been cut at ``most``
        end = min((part[-1].sequence for part in parts if part), default=0)
        each = {ref for part in parts for ref in part if ref.sequence <= end}
        return sorted(each, key=attrgetter("sequence"))

    def snapshot(self) -> Iterator[Reference]:
        """Iterate over a copy of the pending messages, in the order of delivery. The queue may change meanwhile."""
        return _merged([each.snapshot() for each in self.lists()])

    def detach(self) -> Iterator[Reference]:
        """Remove the pending messages from the lists, and iterate over them. For a deleted queue."""
        return chain(*[each.detach() for each in self.lists()])

    def close(self) -> None:
        """Break the reference cycles of a deleted, empty queue: Python frees it without a garbage collection."""
        self.groups = None
        self.pending.clear()
        for each in self.selector_lists.values():
            each.pending.clear()
        self.selector_lists.clear()
        del self.queue

    # ---- message groups

    def _free_groups(self, consumer: Consumer) -> None:
        """Release the groups of a consumer, and their backlog, to all consumers."""
        groups = self.groups
        if groups is not None:
            self._list_again(groups.remove(consumer))
            if groups.stale > STALE and 2 * groups.stale > len(groups.owners):
                self.queue.broker.background.run(groups.sweep(), groups)
            if self.queue.paged is not None:
                self.queue.paged.release_spilled(consumer)

    def _free_all_groups(self) -> None:
        for consumer in self.consumers:
            self._free_groups(consumer)

    def _rebalance(self) -> bool:
        """Release all groups after a new consumer was added (group-rebalance). Return whether the queue has groups."""
        queue = self.queue
        if self.groups is None:
            return False
        if queue.attributes.group_rebalance_pause_dispatch and queue.delivering:
            self.blocks |= REBALANCING
        self._free_all_groups()
        return True

    def on_settled(self, _: Reference) -> None:
        """Resume delivery after the last settlement, on a queue with ``group-rebalance-pause-dispatch``."""
        if self.blocks & REBALANCING and not self.queue.delivering:
            self.blocks &= ~REBALANCING
            self.dispatch()

    @property
    def group_count(self) -> int:
        """Number of message groups, or of buckets, that are pinned to a consumer."""
        return sum(consumer.group_count for consumer in self.consumers)

    @property
    def rebalancing(self) -> bool:
        """Whether delivery waits until all delivered messages are settled (group-rebalance-pause-dispatch)."""
        return bool(self.blocks & REBALANCING)

    def reset_groups(self, group: bytes | None = None) -> int:
        """Unpin one group, or all. Return how many groups, or buckets, were pinned to a consumer."""
        groups = self.groups
        if groups is None:
            return 0
        if group is None:
            freed = self.group_count
            self._free_all_groups()
        else:
            freed = int(self._release_group(groups, group))
        self.dispatch()
        return freed

    def _release_group(self, groups: MessageGroups, group: bytes) -> bool:
        owner = groups.owner_of(group)
        self._list_again(groups.release(group))
        if self.queue.paged is not None and owner is not None:
            self.queue.paged.release_spilled(owner)
        return owner is not None

    def end_group(self, ref: Reference) -> None:
        """Unpin the group of a delivered message that ends it: JMSXGroupSeq (or _AMQ_GROUP_SEQUENCE) is -1."""
        traits = ref.message.traits
        if traits.group_sequence < 0 and traits.group is not None and self.groups is not None:
            self._release_group(self.groups, traits.group)

    # ---- the delivery loop

    def dispatch(self) -> None:
        """Deliver pending messages to the ready consumers, round robin, until none can take more."""
        ready, blocks = self.ready, self.blocks
        if not ready or not self.count or blocks & STOPPED or self._dispatching:
            if blocks & PAGED and not self._dispatching:
                self._demand()
            return
        queue = self.queue
        slices = queue.broker.delivery_slices
        if slices.exhausted and self.count > DELIVERIES:
            self._defer()
        left = DELIVERIES_BETWEEN if self._deferred else DELIVERIES
        self._dispatching = True  # a consumer that receives a message may call this method again
        idle = 0
        try:
            while self.count and idle < len(ready):
                if blocks & ORDERED:
                    if not self._deliver_in_order():
                        break
                else:
                    consumer = ready[0] if len(ready) == 1 else self.next_consumer()
                    ref = self._next_message(consumer)
                    if ref is None:
                        idle += 1
                        continue
                    idle = 0
                    queue.deliver(ref, consumer)
                left -= 1
                if not left:
                    if self._deferred or slices.is_over():
                        self._defer()
                        break
                    left = DELIVERIES
        finally:
            self._dispatching = False
        if idle > DELIVERIES:
            self._effort.steps += idle
        if self.selector_lists:
            # each list may still have messages that were delivered through another list
            self.pending.sweep(self.count)
            self._sweep_selector_lists()
        if self.blocks & PAGED:
            self._demand()

    def _defer(self) -> None:
        """Continue delivery in a later reactor turn: the time slice of this turn is used up."""
        if self.count and self.ready and not self._deferred:
            self._deferred = True
            self.queue.broker.delivery_slices.defer(self.resume_delivery)

    def dispatch_soon(self) -> None:
        """Call `dispatch`; if there are many consumers, in a later reactor turn and once for many of these calls."""
        if self.count and len(self.ready) > DELIVERIES:
            self._defer()
        else:
            self.dispatch()

    def resume_delivery(self) -> None:
        """Continue the delivery that `_defer` has postponed."""
        self._deferred = False
        self.dispatch()

    def _deliver_in_order(self) -> bool:
        """Deliver a message to the first ready consumer, by priority, that has one. Return False if none has."""
        ready = self.ready
        for consumer in tuple(ready):
            ref = self._next_message(consumer)
            if ref is not None:
                if consumer.ready and len(ready) > 1:
                    ready.remove(consumer)
                    self._make_ready(consumer)
                self._deliver(ref, consumer)
                return True
        return False

    def _deliver(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver a message. The header ``group-first-key`` marks the first message of a group for its owner. On an
        exclusive queue the header marks the first message for the exclusive consumer.
        """
        queue, groups = self.queue, self.groups
        key = queue.attributes.group_first_key
        if queue.attributes.exclusive:
            first = queue.messages_delivered == self._delivered_before
        else:
            first = groups is not None and groups.first == ref.message.number
            if groups is not None:
                groups.first = 0
        if key is None or not first:
            queue.deliver(ref, consumer)
            return
        with consumer.additional_header(key.encode(), b"true"):
            queue.deliver(ref, consumer)

    def _demand(self) -> None:
        paged = self.queue.paged
        if paged is not None:
            paged.demand()

    def _next_message(self, consumer: Consumer) -> Reference | None:
        """Remove the first pending message that this consumer may receive from its list, and return it."""
        while True:
            source = consumer.source
            ref = source.head()
            backlog = consumer.group_backlog
            if backlog is not None:
                own = backlog.head()
                if (
                    own is not None
                    and (ref is None or own.order <= ref.order)
                    and not (self.scanning and self._is_ahead(own, consumer))
                ):
                    source, ref = backlog, own
            if ref is None:
                if self.scanning and self._resume_scan(consumer):
                    continue
                return None
            message = ref.message
            if message.expires and is_expired(message, self.queue.broker.clock.now):
                self.queue.expire(ref)
                continue
            paged = self.queue.paged if self.blocks & PAGED else None
            if paged is not None and not paged.may_deliver(ref, consumer):
                return None
            if (
                ref.last_rejected_by is consumer
                and source is not backlog
                and self._another_wants(ref, consumer)
            ):
                return None
            source.pop_head(ref)
            if self.groups is not None:
                owner = self.groups.claim(ref, consumer)
                if owner is not consumer:
                    if ref.position is None or paged is None or not paged.spill(ref, owner):
                        self.groups.add_to_backlog(ref, owner)
                    continue
            if not self.blocks & NON_DESTRUCTIVE:
                self.count -= 1
            return ref

    def _is_ahead(self, ref: Reference, consumer: Consumer) -> bool:
        """Return whether the unfinished scan for a consumer may still find a message that precedes ``ref``."""
        return self.is_scanning(consumer) and not self._passed(self.selector_lists[consumer.matches_key], ref)

    def next_in_memory(self, consumer: Consumer) -> Reference | None:
        """Return the next message for a consumer in memory. A message on disk may precede it."""
        source, backlog = consumer.source, consumer.group_backlog
        first, own = source.head(), None if backlog is None else backlog.head()
        if first is None and self.scanning and self._resume_scan(consumer):
            first = source.head()
        return own if own is not None and (first is None or own.order <= first.order) else first

    def _another_wants(self, ref: Reference, consumer: Consumer) -> bool:
        if self.groups is not None and self.groups.owner(ref) is consumer:
            return False
        paged = self.queue.paged
        return any(
            other is not consumer
            and (other.matches is None or other.matches(ref.message))
            and (paged is None or paged.may_deliver(ref, other))
            for other in self.ready
        )


def _merged(lists: list[Iterator[Reference]]) -> Iterator[Reference]:
    """Merge lists in the order of delivery. A reference in two lists is yielded once."""
    return (
        lists[0] if len(lists) == 1 else map(itemgetter(0), groupby(merge(*lists, key=attrgetter("order"))))
    )


def _everything(message: Message) -> bool:
    return True


class PagedQueue(Protocol):
    """The messages of one queue in the pages of all its addresses."""

    cursors: list[Cursor]  # one cursor for each address that has paged messages for this queue

    @property
    def waiting(self) -> int:
        """Number of messages on disk only, ready for delivery (Artemis: pagedCount)."""

    @property
    def timed(self) -> int:
        """Number of scheduled messages on disk only."""

    @property
    def oldest(self) -> int | None:
        """Timestamp (epoch ms) of the first message on disk. None without one, or until the message was read."""

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        """Process a message that was just paged: load it if no message precedes it and the memory budget allows it."""

    def on_growth(self) -> None:
        """Process several messages that were just paged. Each new message has waiting messages of its priority before
        it.
        """

    def may_deliver(self, ref: Reference, consumer: Consumer) -> bool:
        """Return whether ``ref`` precedes the consumer's messages on disk, and the consumer has page credit."""

    def position_before(self, ref: Reference | None) -> Position | None:
        """Return the first position on disk if it precedes ``ref`` for consumers without a selector, else None."""

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """Process the delivery of a message from a page."""

    def on_requeued(self, ref: Reference) -> None:
        """Record that a delivered message from a page was requeued."""

    def settled(self, ref: Reference, reason: Reason) -> None:
        """Record that a message from a page was settled."""

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        """Unload a message to disk, if earlier messages of its group's owner were spilled, or if memory is used up.
        Return whether the message was spilled. The first message in the backlog of an owner stays in memory.
        """

    def release_spilled(self, consumer: Consumer) -> None:
        """Allow all consumers to receive the messages that were spilled because ``consumer`` owned their groups."""

    def on_consumer_removed(self, consumer: Consumer) -> None:
        """Forget a consumer that has left the queue."""

    def demand(self) -> None:
        """Load messages if the consumers can take more than the messages in memory."""

    def evict(self, position: Position) -> None:
        """Evict the message at a position that `position_before` returned (rings that count paged messages)."""

    def replace(self, cursor: Cursor, position: Position) -> None:
        """Settle a waiting message without reading it, and count it as replaced."""

    def purge(self) -> Iterator[int]:
        """Kill all messages that are on disk only. Yields their number in each page; the caller may pause between."""

    def forget(self, address: AddressBase) -> None:
        """Drop the cursor for an address that has left page mode; its pages are empty."""

    def close(self) -> None:
        """End paging for a deleted queue."""

    def block(self, page: Page, index: int) -> Block | None:
        """Return the block that contains a position, None if it is not in memory."""

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Done) -> None:
        """Read the block that contains a position, as `Pages.fetch` does."""

    def load_reference(self, cursor: Cursor, position: Position, message: Message) -> Reference:
        """Load a message that is on disk. Its new reference is GONE, and in none of the queue's lists."""

    def deliver_now(self, cursor: Cursor, position: Position, message: Message) -> None:
        """Make a scheduled message that is on disk due now."""


#: Number of references requeued between two checks whether paging must return some of them to disk.
STEP: Final = 256

#: Number of references that one step sorts, in some milliseconds.
MOST_SORTED: Final = 10_000

#: Sequence numbers reserved at the head of a queue for messages that become due at the same time.
MOST_TOGETHER: Final = 1 << 40


class DueBatch:
    """Scheduled messages of one queue that become due together. If a ring has no space for all of them, those that
    were sent last remain.
    """

    def __init__(self, first_sequence: int) -> None:
        self.sequence = first_sequence  # sequence number for the next message
        self._pending: list[tuple[int, int, Reference]] = []  # heap of messages, by number and sequence

    def add(self, ref: Reference) -> None:
        """Add a message that entered a ring."""
        heappush(self._pending, (ref.message.number, self.sequence, ref))

    def pop_older(self, ref: Reference) -> Reference | None:
        """Remove and return the oldest pending message if it was sent before ``ref``, else return None."""
        pending = self._pending
        while pending and pending[0][2].state != PENDING:
            heappop(pending)
        if pending and pending[0][0] < ref.message.number:
            return heappop(pending)[2]
        return None


class Queue(QueueBase):
    """One queue of an address. Counters have the names that they have in management."""

    # slots, because Python is slow with so many attributes in a dictionary
    __slots__ = (
        "_entries",
        "_lowest_sequence",
        "accepts",
        "as_configured",
        "broker",
        "consumers",
        "delivering",
        "dispatcher",
        "evicted",
        "history",
        "hooks",
        "id_prefix",
        "in_memory_only",
        "messages_acknowledged",
        "messages_added",
        "messages_expired",
        "messages_killed",
        "messages_removed",
        "messages_replaced",
        "messages_requeued",
        "no_local",
        "non_destructive",
        "paged",
        "persistent_size",
        "ready",
        "ring_size",
        "scheduled",
        "used",
        "view",
    )

    def __init__(
        self,
        name: str,
        address: AddressBase,
        attributes: QueueAttributes,
        broker: QueueServices,
        hooks: Hooks,
    ) -> None:
        self.name = name
        self.address = address
        self.attributes = attributes
        self.broker = broker
        self.set_number(broker.next_queue_number())
        self.durable = attributes.durable
        self.non_destructive = attributes.non_destructive
        # whether the queue never pages, even while its addresses are in page mode
        self.in_memory_only = attributes.non_destructive or is_internal(address.name)
        self.retains_from = (
            (IN_DURABLE if self.durable else EVERYWHERE) if broker.storage.keeps_all else NEVER
        )
        self.dispatcher = Dispatcher(self)
        self.consumers: list[Consumer] = (
            self.dispatcher.consumers
        )  # the dispatcher's list of consumers, for hot paths
        self.ready = self.dispatcher.ready
        self.paged: PagedQueue | None = None  # the messages in pages, None without any
        self.scheduled: dict[int, Reference] = {}  # scheduled messages in memory, by message number
        self.ring_size = attributes.ring_size
        self.no_local: object = None  # sender whose messages a multicast subscription rejects (no-local)
        self.accepts: Matches | None = None  # predicate of filter and no-local, for routing by the address
        self.update_filter()
        self.view: object = None  # the view that policies get of the queue, None until a policy needs it
        self.evicted: Listener | None = None  # called with each message that the ring evicts
        self.update_hooks(hooks)
        self.used = False  # whether the queue has ever had a consumer
        self.deleted = False
        self.as_configured: QueueAttributes | None = None  # attributes in the last applied broker.xml

        self._lowest_sequence = 0
        self._entries: Entries | None = None  # retained messages for the store; None until the first one

        self.delivering = 0  # number of delivered, unsettled messages
        self.persistent_size = 0  # bytes of the messages in memory
        self.messages_added = 0
        self.messages_acknowledged = 0
        self.messages_expired = 0
        self.messages_killed = 0
        self.messages_replaced = 0
        self.messages_requeued = 0  # requeued deliveries: rejected, or their consumer was removed
        self.messages_removed = 0  # messages that management removed; also counted as acknowledged
        self.history: History | None = None  # samples of the counters, None while the queue is not sampled

    def set_number(self, number: int) -> None:
        """Set the number of the queue in message ids and in the store, before its first message."""
        self.number = number
        self.id_prefix = b"%d-" % number  # prefix of the message ids that the queue's consumers get

    def update_filter(self) -> None:
        """Apply a changed filter or no-local."""
        matches, origin = self.attributes.accepts, self.no_local
        self.accepts = matches if origin is None else not_from(origin, matches)

    def update_hooks(self, hooks: Hooks) -> None:
        """Apply changed policies of the address, or a changed ring-policy."""
        self.hooks = hooks
        self.evicted = self.broker.evicted(self)
        self.dispatcher.set_block(OBSERVED, hooks.delivered is not None or hooks.settled is not None)
        attributes = self.attributes
        if attributes.group_rebalance and attributes.group_rebalance_pause_dispatch:
            self.hooks = hooks_with_settled(hooks, self.dispatcher.on_settled)

    def set_pages(self, paged: PagedQueue | None) -> None:
        """Set the object for the queue's messages in pages, None if the queue has none."""
        self.paged = paged
        self.dispatcher.set_block(PAGED, paged is not None)

    # ---- counters

    @property
    def count(self) -> int:
        """Number of pending messages that are in memory."""
        return self.dispatcher.count

    @property
    def message_count(self) -> int:
        """Number of pending, scheduled, delivered and paged messages (Artemis: messageCount).

        A non-destructive queue counts a delivered message once: it is still pending.
        """
        in_memory = self.dispatcher.count + len(self.scheduled)
        if not self.non_destructive:
            in_memory += self.delivering
        return in_memory if self.paged is None else in_memory + self.paged.waiting + self.paged.timed

    @property
    def keys(self) -> int:
        """Number of keys in the index of a last-value queue."""
        return 0

    @property
    def messages_delivered(self) -> int:
        """Number of deliveries to consumers."""
        settled = self.messages_acknowledged - self.messages_removed
        return settled + self.messages_requeued + self.delivering

    @property
    def scheduled_count(self) -> int:
        """Number of scheduled messages, in memory or in pages (Artemis: scheduledCount)."""
        return len(self.scheduled) + (0 if self.paged is None else self.paged.timed)

    @property
    def paged_count(self) -> int:
        """Number of pending messages on disk only (Artemis: pagedCount)."""
        return 0 if self.paged is None else self.paged.waiting

    # ---- messages enter

    def enqueue(self, message: Message) -> None:
        """Deliver a message from the address directly, or if that is blocked add it to the pending messages. A full
        ring evicts its head before delivery continues.
        """
        self.messages_added += 1
        dispatcher, ready = self.dispatcher, self.ready
        matching: list[PendingList] | None = None
        if (
            ready
            and message.traits.group is None
            and not (message.expires and is_expired(message, self.broker.clock.now))
        ):
            if not dispatcher.blocks:
                if not dispatcher.count:
                    consumer = ready[0] if len(ready) == 1 else dispatcher.next_consumer()
                    consumer.deliver_message(message)
                    return
            elif dispatcher.blocks == SELECTORS:
                matching = dispatcher.matching(message, message.number)
                if not 0 <= self.ring_size <= dispatcher.count:  # a full ring must evict a message first
                    found = dispatcher.consumer_for(matching)
                    if found is not None:
                        found.deliver_message(message)
                        return
        ref = Reference(message, self, PENDING)
        self._hold(message, ref)
        if dispatcher.blocks & LAST_VALUE:
            # the former message of its key is replaced before a consumer or the ring sees both
            self.become_last(message, ref)
        dispatcher.enlist(ref, True, matching)
        if 0 <= self.ring_size < self.ring_count:
            self.evict()
        if ready:
            dispatcher.dispatch()
        if message.expires and ref.state == PENDING:
            self.broker.expiry.watch(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def deliver_tail(self, traits: Traits, tail: bytes, body_at: int) -> bool:
        """Deliver a message by its bytes, without a `Message`. Return False if the caller must `enqueue` it.

        The message has no group and has not expired, and a consumer is ready.
        """
        dispatcher, ready = self.dispatcher, self.ready
        if dispatcher.blocks or dispatcher.count:
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
        """Deliver a message of a paging address on arrival. Return False if the message must wait.

        The queue has ready consumers, no message on disk, and no ``blocks`` except `PERHAPS`. The message is not
        durable in the queue: a durable one is written first.
        """
        dispatcher, ready = self.dispatcher, self.ready
        consumer: Consumer | None = None
        if dispatcher.blocks & SELECTORS:
            if self.attributes.ring_counts_paged and 0 <= self.ring_size <= self.ring_count:
                return False  # a full ring must evict a message first
            consumer = dispatcher.consumer_for(dispatcher.matching(message, message.number))
        elif not dispatcher.count:
            consumer = ready[0] if len(ready) == 1 else dispatcher.next_consumer()
        if consumer is None:
            return False
        consumer.deliver_message(message)
        return True

    def become_last(self, message: Message, last: Reference | int) -> None:
        """Make a message that enters a last-value queue the last of its key."""
        raise AssertionError("a derived class has it")

    def enqueue_earlier(self, message: Message) -> None:
        """Add a message before those with higher numbers that have arrived earlier. A full ring drops the message."""
        self.messages_added += 1
        ref = self.mark_delivering(message)
        ref.deliveries = 0
        self._requeue(ref, delayed=False)

    def mark_delivering(self, message: Message) -> Reference:
        """Return the reference to a message that is delivered on arrival, and must be settled."""
        ref = Reference(message, self, DELIVERING)
        self._hold(message, ref)
        ref.deliveries = 1
        self.delivering += 1
        return ref

    def mark_delivering_unreferenced(self, message: Message) -> None:
        """Count a message that is delivered on arrival and that no store records. See `reference_to`."""
        self._hold(message)
        self.delivering += 1

    def reference_to(self, message: Message) -> Reference:
        """Return the reference to a message that was delivered with `mark_delivering_unreferenced`."""
        ref = Reference(message, self, DELIVERING)
        ref.deliveries = 1
        return ref

    def schedule(self, message: Message, due: Due, recurrence: Recurrence | None = None) -> Reference:
        """Schedule a new message for ``due`` (epoch ms), and for the repetitions of ``recurrence``."""
        self.messages_added += 1
        ref = Reference(message, self, SCHEDULED)
        ref.due = due
        self._hold(message, ref)
        ref.recurrence = recurrence
        self.postpone(ref, due)
        self.broker.expiry.watch(ref)
        return ref

    def postpone(self, ref: Reference, due: Due) -> None:
        """Schedule a message for ``due`` (epoch ms). Its reference is in none of the queue's lists."""
        ref.state = SCHEDULED
        ref.due = due
        self.scheduled[ref.message.number] = ref
        self.broker.enter_schedule(ref)

    def due_batch(self) -> DueBatch:
        """Return a batch for messages that become due now. The caller passes it to each call of `on_due`."""
        self._lowest_sequence -= MOST_TOGETHER
        return DueBatch(self._lowest_sequence)

    def on_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """Add scheduled messages to the head of the queue, in the order they became due.

        In a full ring a message evicts only messages of the same ``batch`` that were sent before it; otherwise the ring
        drops the message.
        """
        for ref in refs:
            self.scheduled.pop(ref.message.number, None)
            if not ref.deliveries:  # a redelivered message keeps its former position
                ref.sequence = batch.sequence
            batch.sequence += 1
            if self.drop_if_full(ref, batch):
                continue
            ref.state = PENDING
            self.dispatcher.enlist(ref, at_tail=False)
            self.dispatcher.dispatch()
            self._notify_enqueued(ref)

    def _notify_enqueued(self, ref: Reference) -> None:
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def load(self, message: Message, position: Position, counts: tuple[int, int]) -> Reference:
        """Return a reference to a message read from a page; the queue has not listed it. ``counts``: deliveries and
        attempts.
        """
        self._hold(message)
        ref = Reference(message, self, GONE)
        ref.position = position
        ref.deliveries, ref.attempts = counts
        return ref

    def restore(self, message: Message) -> Reference:
        """Return a reference to a recovered message. The store sets its delivery counts, then calls `reinstate`."""
        self.messages_added += 1
        self._hold(message)
        return Reference(message, self, GONE)

    def reinstate(self, ref: Reference) -> None:
        """Enqueue or schedule a reference of `restore`. A ring evicts nothing until recovery calls `trim`."""
        if ref.due:
            self.postpone(ref, ref.due)
        else:
            ref.state = PENDING
            self.dispatcher.enlist(ref)
        self.broker.expiry.watch(ref)
        self._notify_enqueued(ref)

    def reinstate_run(self, run: ReferenceRun, priority: int, size: int) -> None:
        """Enqueue recovered messages of one priority, without their references. ``size``: their bytes of memory.

        The queue has no consumers and no policy with an ``enqueued`` hook. No message belongs to a group.
        """
        self.messages_added += run.length
        self.persistent_size += size
        self.dispatcher.count += run.length
        self.dispatcher.pending.append_run(run, priority)

    def on_run_made(self, run: ReferenceRun, refs: list[Reference]) -> None:
        """Process the creation of the references of a run."""

    # ---- a reference is made, and undone

    def _hold(self, message: Message, arrived: Reference | None = None) -> None:
        """Count a message in memory, for this queue and for the account of the message, until `_release`. ``arrived``:
        its new reference, for the store; None: the store has the message already, or does not record it.
        """
        size, holders = len(message.tail) + MESSAGE_OVERHEAD, message.holders
        if not holders:
            address = message.address
            if message.account is address:  # compiled code makes this call faster than the one below
                address.occupy(size)
            else:
                message.account.occupy(size)
        else:
            message.account.occupy(REFERENCE_OVERHEAD, 0)
        message.holders = holders + 1
        self.persistent_size += size
        traits = message.traits
        if arrived is None or not (traits.durable or traits.retained):
            return
        storage = self.broker.storage
        waits = arrived.due > message.timestamp
        if traits.durable and self.durable:
            storage.append(arrived)
            if waits:
                storage.postponed(arrived)
        elif traits.retained >= self.retains_from:  # retained only: a restart does not recover it
            if self._entries is None:
                self._entries = Entries(self, None)
            if not self._entries.messages:
                storage.record(self._entries)
            self._entries.messages.append(message)
            if arrived.state == DELIVERING:
                storage.log(arrived, DELIVERED)
            elif waits:
                storage.log(arrived, POSTPONED)

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
            message.account.release(REFERENCE_OVERHEAD, 0)

    def drop(self, ref: Reference, reason: Reason | None) -> None:
        """Drop a reference, and store the reason why its message left the queue. If ``reason`` is None, the message
        stays in its page, and nothing is stored. The caller adjusts the counts for the former state of the reference,
        with `detach`.
        """
        ref.state = GONE
        message = ref.message
        self._release(message)
        if ref.watched:
            self.broker.expiry.unwatch(ref)
        if reason is None:
            return
        if ref.position is not None:
            if self.paged is not None:  # None: the queue is deleted, and has no cursor any longer
                self.paged.settled(ref, reason)
        elif message.traits.durable and self.durable:
            self.broker.storage.settle(ref, reason)
        elif message.traits.retained >= self.retains_from:
            self.broker.storage.log(ref, reason)

    # ---- messages leave

    def deliver(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver a reference that the caller took from its list. A non-destructive queue keeps the message pending."""
        self.delivering += 1
        if self.non_destructive:
            # each consumer has its own delivery of the message, which takes memory
            ref.message.account.occupy(REFERENCE_OVERHEAD, 0)
        else:
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
        """Settle a message that a consumer acknowledged. In a non-destructive queue the message stays pending."""
        self.delivering -= 1
        self.messages_acknowledged += 1
        if self.non_destructive:
            ref.message.account.release(REFERENCE_OVERHEAD, 0)
        if self.hooks.settled is not None:
            self.hooks.settled(ref)
        if not self.non_destructive:
            self.drop(ref, Reason.ACKNOWLEDGED)

    def settle_message(self, message: Message) -> None:
        """Settle a message without a reference: see `mark_delivering_unreferenced`."""
        if self.hooks.settled is not None:
            self.settle(self.reference_to(message))
            return
        self.delivering -= 1
        self.messages_acknowledged += 1
        self._release(message)

    def settle_all(self, refs: list[Reference]) -> None:
        """Settle many messages in time slices. Empties the list of references."""
        self.broker.background.run(self._settle_all(refs), self)

    def _settle_all(self, refs: list[Reference]) -> Iterator[None]:
        refs.reverse()  # settle them in the order of their delivery: the job takes from the end
        for ref in _consume(refs):
            self.settle(ref)
            yield
        self.delete_if_unused()

    def remove(self, ref: Reference) -> None:
        """Remove a message for management. It counts as acknowledged, without a consumer."""
        self.detach(ref)
        self.messages_acknowledged += 1
        ref.last_rejected_by = None
        self.drop(ref, Reason.ACKNOWLEDGED)

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
        """Drop a pending reference; its message stays in its page."""
        self.detach(ref)
        self.drop(ref, None)

    def expire(self, ref: Reference) -> None:
        """Remove an expired message, and send a copy to the expiry-address, if one is set."""
        self.detach(ref)
        self.messages_expired += 1
        with self.broker.together():
            self.broker.send_expired(ref)
            if self.hooks.expired is not None:
                self.hooks.expired(ref)
            self.drop(ref, Reason.EXPIRED)
        self.broker.consider_deleting(self)

    def remove_if_exhausted(self, ref: Reference) -> bool:
        """Remove a message that has reached max-delivery-attempts, and send a copy to the dead-letter-address. Return
        whether the message was removed. A message in a queue of the dead-letter-address itself stays.
        """
        address, settings = self.address, self.address.settings
        limit = settings.max_delivery_attempts
        if limit <= 0 or ref.attempts < limit or settings.dead_letter_address == address.name:
            return False
        self.detach(ref)
        self.messages_killed += 1
        with self.broker.together():
            if self.broker.send_dead_letter(ref):
                hook = self.hooks.dead_lettered
            else:
                hook = self.hooks.killed
                log.warning(
                    "message %d of queue %s dropped after %d failed deliveries: %s",
                    ref.message.number,
                    self.name,
                    ref.attempts,
                    "no dead-letter-address is set"
                    if settings.dead_letter_address is None
                    else f"dead-letter-address {settings.dead_letter_address} has no queue for it",
                    extra={"queue": self.name, "address": address.name},
                )
            if hook is not None:
                hook(ref)
            self.drop(ref, Reason.KILLED)
        return True

    def kill(self, ref: Reference) -> None:
        """Remove a message, and count it in ``messages_killed``."""
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
        """Requeue unsettled messages to their former positions. The queue delivers nothing until all are requeued.

        ``failed``: count an attempt against max-delivery-attempts, and apply redelivery-delay. ``consumer`` rejected
        the messages: other consumers have precedence. A full ring retains the newest. The queue may empty ``refs``.
        """
        if self.non_destructive:
            self._offer_again(refs, consumer, failed)
            return
        if not refs and self not in self.broker.background:
            self.dispatcher.dispatch_soon()  # other consumers may get messages that a removed one rejected
            self.delete_if_unused()
            return
        self.messages_requeued += len(refs)
        self.run_suspended(self._requeue_all(refs, consumer, failed))

    def _offer_again(self, refs: list[Reference], consumer: Consumer | None, failed: bool) -> None:
        """Offer messages of a non-destructive queue again to the consumer that rejected them (None: it was removed)."""
        self.messages_requeued += len(refs)
        self.delivering -= len(refs)
        for ref in refs:
            ref.message.account.release(REFERENCE_OVERHEAD, 0)
            if ref.state != PENDING:
                continue
            # the consumer sent a NACK; the attempts of a removed consumer do not count
            if failed and consumer is not None:
                ref.attempts += 1
                ref.deliveries = max(ref.deliveries, 1) + 1  # the next delivery is a redelivery
                if self.remove_if_exhausted(ref):
                    continue
                self._record_requeue(ref)
            if consumer is not None and not self.deleted:
                consumer.source.restore(ref)
        self.dispatcher.dispatch()

    def _requeue_all(self, refs: list[Reference], consumer: Consumer | None, failed: bool) -> Iterator[None]:
        runs: list[Iterator[Reference]] = []
        while refs:
            run = refs[-MOST_SORTED:]  # the references of one consumer are almost sorted already
            del refs[-MOST_SORTED:]
            run.sort(key=attrgetter("sequence"))
            run.sort(key=attrgetter("message.traits.priority"), reverse=True)
            runs.append(_consume(run))
            if refs:
                yield
        newest_first = merge(*runs, key=attrgetter("order"), reverse=True)
        for number, ref in enumerate(newest_first, 1):
            ref.last_rejected_by = consumer
            if self.deleted:
                self.kill(ref)
            else:
                if failed:
                    ref.attempts += 1
                if not (failed and self.remove_if_exhausted(ref)):
                    self._requeue(ref, delayed=failed)
            if number % STEP == 0 and self.paged is not None:
                self.paged.demand()  # returns messages to disk that do not fit into memory
            yield
        self.delete_if_unused()

    def delete_if_unused(self) -> None:
        """Delete the queue if auto-delete applies: after a message has left, and if there is no consumer."""
        if not self.consumers:
            self.broker.consider_deleting(self)

    def _requeue(self, ref: Reference, *, delayed: bool) -> None:
        message = ref.message
        if is_expired(message, self.broker.clock.now):
            self.expire(ref)
            return
        if self.attributes.purge_on_no_consumers and not self.consumers:
            self.kill(ref)
            return
        self.detach(ref)
        if self.drop_if_full(ref):
            return
        delay = redelivery_delay(self.address.settings, ref.attempts, self.broker.random) if delayed else 0
        if delay > 0:
            self.postpone(ref, self.broker.clock.from_now(delay))
        else:
            ref.state = PENDING
            self.dispatcher.enlist(ref, at_tail=False)
        self.broker.expiry.watch(ref)
        if ref.position is not None and self.paged is not None:
            self.paged.on_requeued(ref)
        else:
            self._record_requeue(ref)
        self._notify_enqueued(ref)

    def _record_requeue(self, ref: Reference) -> None:
        traits, storage = ref.message.traits, self.broker.storage
        if traits.durable and self.durable:
            storage.returned(ref)
        elif traits.retained >= self.retains_from:
            storage.log(ref, RETURNED)

    def run_suspended(self, job: Iterator[object]) -> None:
        """Run a job on many messages in time slices. The queue delivers no message until the job is complete."""
        self.dispatcher.suspend()
        self.broker.background.run(self._suspended(job), self)

    def _suspended(self, job: Iterator[object]) -> Iterator[object]:
        try:
            yield from job
        finally:
            self.dispatcher.resume()

    # ---- the ring: eviction from a queue with a ring-size; only pending messages count

    @property
    def ring_count(self) -> int:
        """Number of messages that ``ring-size`` limits: pending ones; with ``ring-counts-paged`` also paged ones."""
        if self.paged is None or not self.attributes.ring_counts_paged:
            return self.dispatcher.count
        return self.dispatcher.count + self.paged.waiting

    def evict(self, requeued: bool = False) -> None:
        """Call `Hooks.overflow` if the ring is too large, or if it is full and a message is requeued."""
        self.hooks.overflow(self.view or self.broker.view_of(self), requeued)

    def drop_if_full(self, ref: Reference, batch: DueBatch | None = None) -> bool:
        """Drop a message that is to be requeued, or is due, if the ring is full. Return whether it was dropped.

        ``batch`` (for a due message): if it has a pending message sent before ``ref``, the ring evicts that instead.
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
        """Evict the first message in the order of delivery. Return False if there is none."""
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
        """Evict a pending message."""
        self.detach(ref)
        self.replace(ref)

    def replace(self, ref: Reference) -> None:
        """Drop a message that is in none of the queue's lists, because the ring is full (Artemis: reason REPLACED)."""
        ref.state = GONE
        self.messages_replaced += 1
        if self.evicted is None:
            self.drop(ref, Reason.REPLACED)
            return
        with self.broker.together():
            self.evicted(ref)
            self.drop(ref, Reason.REPLACED)

    def trim(self) -> Iterator[int]:
        """Enforce a lowered ring-size, or that of a recovered ring. Yields 1 after each eviction; the caller may pause
        between.
        """
        while 0 <= self.ring_size < self.ring_count:
            self.evict()
            yield 1

    # ---- consumers

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer. Raises `Refused` beyond max-consumers."""
        consumer.queue = self
        self.dispatcher.add(consumer)
        self.used = True
        self.broker.watch(self)
        if self.attributes.purge_on_no_consumers:
            self.address.changed()

    def remove_consumer(
        self, consumer: Consumer, unsettled: list[Reference], *, failed: bool = False
    ) -> None:
        """Remove a consumer, and `requeue` its unsettled messages."""
        self.dispatcher.remove(consumer)
        if not self.consumers and self.attributes.purge_on_no_consumers:
            self.address.changed()
            self.purge()
        self.requeue(unsettled, failed=failed)

    def unsettled_references(self) -> list[Reference]:
        """Return the delivered messages that the consumers have not settled."""
        return [ref for consumer in self.consumers for ref in consumer.unsettled_references()]

    # ---- the whole queue

    @property
    def open(self) -> bool:
        """Whether messages are routed here: the queue is enabled, and has consumers if purge-on-no-consumers is set."""
        attributes = self.attributes
        return attributes.enabled and (not attributes.purge_on_no_consumers or bool(self.consumers))

    def purge(self) -> int:
        """Kill all pending and scheduled messages, many of them in time slices. Return their number."""
        killed = self.count + self.scheduled_count + self.paged_count
        self.run_suspended(self.kill_all(self.dispatcher.snapshot(), list(self.scheduled.values())))
        return killed

    def kill_all(self, pending: Iterator[Reference], scheduled: list[Reference]) -> Iterator[int]:
        """Kill all messages on disk only, and the given messages. Yields the number of messages killed in each step.
        Empties ``scheduled``. Paging must not load messages meanwhile.
        """
        yield from self.kill_on_disk()
        yield from self.kill_each(pending, scheduled)

    def kill_on_disk(self) -> Iterator[int]:
        """Kill all messages that are on disk only. Yields the number of messages killed since the last yield."""
        if self.paged is not None:
            for purged in self.paged.purge():
                self.messages_killed += purged
                yield purged

    def kill_each(self, pending: Iterator[Reference], scheduled: list[Reference]) -> Iterator[int]:
        """Kill the messages that are still pending or scheduled. Yields 1 or 0 for each. Empties ``scheduled``."""
        scheduled.reverse()
        for ref in chain(pending, _consume(scheduled)):
            found = ref.state == PENDING or ref.state == SCHEDULED
            if found:
                self.kill(ref)
            yield int(found)

    @property
    def paused(self) -> bool:
        """Whether management has paused delivery. Messages still enter, and a ring still evicts."""
        return bool(self.dispatcher.blocks & PAUSED)

    @paused.setter
    def paused(self, paused: bool) -> None:
        self.dispatcher.set_block(PAUSED, paused)

    def pause(self) -> None:
        """Pause delivery, and store that."""
        self.paused = True
        self.broker.bind(self)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        self.broker.bind(self)
        self.dispatcher.dispatch()

    def close(self) -> None:
        """End a deleted queue: cancel its consumers, and kill its messages, many of them in time slices."""
        self.deleted = True
        dispatcher = self.dispatcher
        dispatcher.cancel_timer()
        dispatcher.set_block(CLOSED, True)
        if self.paged is not None:
            self.messages_killed += sum(self.paged.purge())
        if (self.count or self.scheduled) and not (self.broker.stopping and self.forgotten_by_restart):
            self.run_suspended(self.kill_all(dispatcher.detach(), list(self.scheduled.values())))
        for consumer in list(self.consumers):
            # the cancellation of one consumer may have removed other consumers
            if consumer in self.consumers:
                consumer.cancelled(f"Queue {self.name} was deleted")
        if self.paged is not None:
            self.paged.close()
        if self in self.broker.background:
            self.broker.background.after(self, self._end)
        else:
            self._end()

    @property
    def forgotten_by_restart(self) -> bool:
        """Whether a restart loses the queue, no store retains its messages, and no policy has the hook ``killed``."""
        return not self.durable and self.retains_from == NEVER and self.hooks.killed is None

    def _end(self) -> None:
        self.set_pages(None)
        self.view = None
        self._entries = None
        self.dispatcher.close()


def _consume(refs: list[Reference]) -> Iterator[Reference]:
    """Pop the references from the end: Python frees each killed message in its step, not all of them at the end."""
    while refs:
        yield refs.pop()


def as_queue(queue: QueueBase) -> Queue:
    """Return a queue as a `Queue`: references and pages refer to it as a `QueueBase`."""
    assert isinstance(queue, Queue)
    return queue


class Expiry(TimerQueue):
    """Expires messages in memory at their expiry time. `stompring.paging.paged_queue` expires those in pages."""

    def watch(self, ref: Reference) -> None:
        """Expire a message in memory at its expiry time, if it has one."""
        if ref.message.expires and not ref.watched:
            ref.watched = True
            self.enter(ref, ref.message.expires)

    def unwatch(self, ref: Reference) -> None:
        """Stop watching a message that has left its queue, or memory."""
        ref.watched = False
        self.forget()


def _expire(ref: Reference) -> None:
    ref.watched = False
    as_queue(ref.queue).expire(ref)


def _still_watched(ref: Reference, due: int) -> bool:
    """Return whether to expire a message. A message in delivery stays, and is watched again if requeued."""
    ref.watched = ref.watched and ref.state != DELIVERING
    return ref.watched


class QueueServices:
    """The services of the broker for queues. The broker derives from this class, and sets its calls before recovery."""

    #: deletes a queue that lost its last consumer or a message, if auto-delete applies
    consider_deleting: Callable[[Queue], None]
    #: sends a copy to the dead-letter-address; returns False if there is none, or none of its queues accepts the copy
    send_dead_letter: Callable[[Reference], bool]
    #: sends a copy to the expiry-address; returns False if there is none, or none of its queues accepts the copy
    send_expired: Callable[[Reference], bool]
    #: returns the listener of the policies for evictions of a ring, None without one
    evicted: Callable[[Queue], Listener | None]
    #: returns the view of a queue for ``Hooks.overflow``
    view_of: Callable[[Queue], Any]
    #: stores a queue and its attributes
    bind: Callable[[Queue], None]
    #: watches a queue for slow consumers; called for a new consumer and for changed settings
    watch: Callable[[Queue], None]

    def __init__(self, reactor: Reactor, now: Seconds | None, storage: Storage) -> None:
        """``now``: a clock in seconds that never jumps, for time slices. None: the reactor's, which may jump."""
        now = now or reactor.seconds
        self.clock = clock = Clock(reactor)
        self.background = Background(clock, now)
        self.scans = Background(clock, now)  # scans of queues, for selectors and browsers
        self.delivery_slices = Slices(clock, now, DELIVERY_SLICE)
        self.frame_slices = Slices(clock, now, FRAME_SLICE)
        self.effort = Effort()
        self.storage = storage
        self.delivery_suspended = False
        # whether the broker stops: messages outside the store are then not requeued or killed one by one
        self.stopping = False
        self.schedule = TimerQueue(clock, self.background, _still_scheduled, self._fall_due)
        self.delays = (
            self.schedule  # with one clock, one timer queue: messages with equal due times keep their order
            if clock.steady is clock
            else TimerQueue(clock.steady, self.background, _still_scheduled, self._fall_due)
        )
        self.expiry = Expiry(clock, self.background, _still_watched, lambda: _expire)
        self.random = random.random  # nosec B311
        self.numbers = Numbers(1)  # generates message numbers
        self.next_queue_number = count(1).__next__

    def next_message_number(self) -> int:
        """Return the next message number."""
        return self.numbers.next()

    @contextmanager
    def together(self, size: int = 0) -> Iterator[None]:
        """Return a context manager: all changes in its body are one transaction. ``size``: see `Storage.begin`."""
        self.storage.begin(size)
        try:
            yield
        finally:
            self.storage.commit()

    # ---- time

    def enter_schedule(self, ref: Reference) -> None:
        """Add a message to the timers for ``ref.due``."""
        due = ref.due
        if isinstance(due, FromNow):
            self.delays.enter(ref, due.steady)
        else:
            self.schedule.enter(ref, due)

    def forget_schedule(self, ref: Reference) -> None:
        """Remove a message from the timers, because it is not scheduled for ``ref.due`` any longer."""
        (self.delays if isinstance(ref.due, FromNow) else self.schedule).forget()

    def _due(self, ref: Reference) -> int:
        """Return the time (epoch ms) at which a message became due, by the present wall clock."""
        due, clock = ref.due, self.clock
        if not isinstance(due, FromNow):
            return int(due)
        came = clock.now - (clock.steady.now - due.steady)
        return (
            came if abs(came - due) > NOTICED else int(due)
        )  # a small difference is an inaccuracy of the clocks, not a jump

    def _fall_due(self) -> Callable[[Reference], None]:
        """Return a function that enqueues scheduled messages which become due at the same time, one per call."""
        batches: dict[Queue, DueBatch] = {}

        def falls_due(ref: Reference) -> None:
            queue = as_queue(ref.queue)
            batch = batches.get(queue)
            if batch is None:
                batch = batches[queue] = queue.due_batch()
            queue.on_due(self.recur(ref), batch)

        return falls_due

    def recur(self, ref: Reference) -> list[Reference]:
        """Return the references to enqueue for a scheduled message that is due: itself, or a copy if it recurs.

        A recurring message is scheduled again. The list is empty if the copy is scheduled for a series
        (`Recurrence.series`).
        """
        recurrence, queue, now = ref.recurrence, as_queue(ref.queue), self.clock.now
        if recurrence is None:
            return [ref]
        series = recurrence.series
        following = recurrence.advance(self._due(ref), now)
        queue.scheduled.pop(ref.message.number, None)
        if following is None and series is None:
            ref.recurrence = None
            return [ref]
        copy = repeated(ref.message, self.next_message_number(), now)
        with self.together():
            if following is None:
                ref.last_rejected_by = None  # no consumer has acknowledged the message
                queue.drop(ref, Reason.ACKNOWLEDGED)
            else:
                due: Due = following
                if recurrence.cron is None:
                    due = self.clock.from_now(following - now)
                queue.postpone(ref, due)
                if ref.message.traits.durable and queue.durable:
                    self.storage.postponed(ref)
                elif ref.message.traits.retained >= queue.retains_from:
                    self.storage.log(ref, POSTPONED)
            if series is not None:
                queue.schedule(copy, self.clock.from_now(max(0, recurrence.delay)), series)
                return []
            return [queue.schedule(copy, now)]


def _still_scheduled(ref: Reference, due: int) -> bool:
    if ref.state != SCHEDULED:
        return False
    return bool(due == (ref.due.steady if isinstance(ref.due, FromNow) else ref.due))
