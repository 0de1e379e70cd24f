"""A queue: its consumers and how messages are delivered to them, and its messages: how they enter, leave and come back.

A message that arrives while nothing is pending is delivered at once to the consumer whose turn it is
(`Queue.enqueue`); everything else waits in the lists of the queue's `Dispatcher`: its consumers, the pending lists they
are served from, and the delivery loop. `MessageGroups` has the owner of each group.

Between any two calls no ready consumer could be given a pending message, unless delivery is stopped (`STOPPED`) or
goes on in a later turn of the reactor (`Slices`), as does a scan for a selector that is new (`SelectorList.cursor`).
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
from typing import Any, Protocol
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
    """A filter that also rejects what ``origin`` sent (no-local)."""

    def accepts(message: Message) -> bool:
        return message.traits.origin != origin and (matches is None or matches(message))

    return accepts


@mypyc_attr(allow_interpreted_subclasses=True)  # of the kit for tests of policies
class Consumer(ConsumerBase):
    """Base of the session's subscriptions. A queue calls the ``deliver`` methods; the attributes are its dispatcher's.

    ``willing``: the subscription has credit and its socket takes more. ``ready``: the consumer is among those that the
    dispatcher serves in turn. The two differ on exclusive queues.
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
    settles_on_delivery = (
        False  # a message that it is given is acknowledged, and it leaves no trace of that elsewhere
    )
    connection_id = ""  # the session header of its connection

    def __init__(self, matches: Matches | None = None, matches_key: object = None) -> None:
        self.matches = matches
        self.matches_key = matches_key  # consumers with equal keys share one list of what matches
        self.priority = 0  # those with the highest are served first
        self.willing = True
        self.ready = False
        self.source = PendingList()  # of this consumer's next message
        self.settled = 0  # messages that it acknowledged: by which it is known as slow
        self.writes_tails = False  # `write_tail` may be called: a message is settled by being written
        self.group_backlog: PendingList | None = None  # of groups that are pinned here, waiting for credit
        self.group_owner: GroupOwner | None = None  # made with the first group that is pinned here

    def deliver_message(self, message: Message) -> None:
        """A message straight from its sender; no reference to it exists yet."""
        raise AssertionError("a derived class has it")

    def write_tail(self, traits: Traits, tail: bytes, body_at: int) -> None:
        """As `deliver_message`, of a message that needs nothing but its bytes. Only where ``writes_tails``."""
        raise AssertionError("a derived class has it")

    def deliver_reference(self, ref: Reference) -> None:
        """A message that waited in the queue, or comes again."""
        raise AssertionError("a derived class has it")

    def additional_header(self, name: bytes, value: bytes) -> AbstractContextManager[None]:
        """What is delivered in this context has one header more."""
        return nullcontext()

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits that it would be given next, if it could take one."""
        source, backlog, paged = self.source, self.group_backlog, self.queue.paged
        if source.head() is not None or (backlog is not None and backlog.head() is not None):
            return True
        return paged is not None and paged.waiting > 0 and self.matches is None

    @property
    def remote(self) -> str:
        """Host and port of its client."""
        return ""

    @property
    def group_count(self) -> int:
        """Message groups, or buckets of them, that are pinned to this consumer."""
        return 0 if self.group_owner is None else self.group_owner.count

    def cancelled(self, reason: str) -> None:
        """The queue is gone; the consumer gets nothing any more."""
        raise AssertionError("a derived class has it")

    def unsettled_references(self) -> Iterable[Reference]:
        """What it was given and has not settled, in the order of delivery, for management."""
        return ()

    @property
    def identifier(self) -> str:
        """What its client calls it."""
        return ""


#: Owners that one step of `MessageGroups.sweep` looks at.
SWEPT = 256


@dataclass
class GroupOwner:
    """A consumer as the owner of groups. It is shared by all of these, so that they are unpinned in one step."""

    consumer: Consumer | None  # None once its groups are unpinned
    count: int = 0
    #: of groups that may have messages in its backlog
    backlog_keys: set[bytes | int] = field(default_factory=set)


class MessageGroups:
    """The owner of each message group: all messages with one JMSXGroupID go to one consumer, in order, while it lives.

    ``buckets`` above 0 puts the groups into that number of buckets, by a hash of their ids: a bucket has an owner, and
    the table no more entries than that. -1: each group has an entry.

    A message whose owner has no credit goes to that consumer's ``group_backlog``, so that other groups do not wait
    behind it; it stays pending and counts for the ring.
    """

    def __init__(self, buckets: int = -1) -> None:
        self.buckets = buckets
        self.owners: dict[bytes | int, GroupOwner] = {}
        self.stale = 0  # entries of consumers that have left
        self.first = 0  # the number of the message with which a group was last pinned, until it is delivered

    def _key(self, group: bytes) -> bytes | int:
        return group if self.buckets < 0 else crc32(group) % self.buckets

    def owner_of(self, group: bytes) -> Consumer | None:
        """The consumer to which a group is pinned, None for nobody."""
        owner = self.owners.get(self._key(group))
        return None if owner is None else owner.consumer

    def owner(self, ref: Reference) -> Consumer | None:
        """The consumer to which the group of a message is pinned, None for nobody."""
        group = ref.message.traits.group
        return None if group is None else self.owner_of(group)

    def claim(self, ref: Reference, consumer: Consumer) -> Consumer:
        """Who gets a message: the owner of its group, which is ``consumer`` from now on where it had none.

        A message that the selector of the owner refuses goes to ``consumer`` too: nobody else would ever get it.
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
        """Unpin one group, or the bucket it is in; returns its backlog, in order: it may be pinned anew."""
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
        """A message waits for an owner that cannot take it now."""
        if owner.group_backlog is None:
            owner.group_backlog = PendingList()
        owner.group_backlog.insert(ref)
        group = ref.message.traits.group
        if group is not None:
            _owner(owner).backlog_keys.add(self._key(group))

    def remove(self, consumer: Consumer) -> list[Reference]:
        """Unpin all groups of a consumer; returns its backlog, in order."""
        owner, consumer.group_owner = consumer.group_owner, None
        if owner is not None:
            owner.consumer = None
            self.stale += owner.count
        backlog, consumer.group_backlog = consumer.group_backlog, None
        return [] if backlog is None else list(backlog)

    def sweep(self) -> Iterator[None]:
        """Remove the entries of consumers that have left, in steps."""
        for index, key in enumerate(list(self.owners), 1):
            owner = self.owners.get(key)
            if owner is not None and owner.consumer is None:
                del self.owners[key]
                self.stale -= 1
            if index % SWEPT == 0:
                yield


def _owner(consumer: Consumer) -> GroupOwner:
    """The consumer as an owner, made where it is none yet."""
    owner = consumer.group_owner
    if owner is None:
        owner = consumer.group_owner = GroupOwner(consumer)
    return owner


#: The bits of `Dispatcher.blocks`: why a message that arrives cannot be delivered directly.
PAUSED = 1  # by management
AWAITING_CONSUMERS = 2  # consumers-before-dispatch, delay-before-dispatch
SUSPENDED = 4  # work on many of its messages is in progress
GROUPS = 8  # messages of groups have come: each goes to the owner of its group
NON_DESTRUCTIVE = 16  # every consumer gets every message
OBSERVED = (
    32  # a policy is notified of each delivery or settlement, which `Queue.deliver` and `Queue.settle` do
)
SELECTORS = 64  # some consumers have a selector
PAGED = 128  # some messages are in pages
CLOSED = 256  # the queue is deleted
LAST_VALUE = 1024  # a message may replace another
PRIORITIES = 512  # consumers differ in priority: the highest comes first
FIRST_KEY = 4096  # group-first-key: some deliveries have one more header
REBALANCING = 2048  # group-rebalance-pause-dispatch: until everything in delivery is settled

#: Of these, what stops the delivery of pending messages too.
STOPPED = PAUSED | AWAITING_CONSUMERS | SUSPENDED | CLOSED | REBALANCING

#: Of these, what `Dispatcher.dispatch` does with one step more for each message.
ORDERED = PRIORITIES | FIRST_KEY

#: Of these, what depends on the message: `Queue.deliver_directly` may still do it.
PERHAPS = SELECTORS | PAGED


#: Evaluations of a selector between two readings of the clock: one may take long, as XPATH does.
SCANNED_AT_ONCE = 8

#: References in the list of a selector at which its scan waits until consumers take them. A list takes 8 bytes for
#: each: without a limit thousands of selectors would take more memory than the messages that they match.
LISTED = 256

#: Consumers that are paused one by one; each takes time linear in the number of ready consumers.
PAUSED_SINGLY = 16

#: Groups of consumers that have left which may stay among the owners; with more, and more than half, they are removed.
STALE = 1000


@dataclass
class SelectorList:
    """What is pending for the consumers with one selector, which share it."""

    matches: Matches
    pending: PendingList = field(default_factory=PendingList)
    consumers: int = 0
    #: the position of the scan of older messages: the list has none after it. None: the scan is over
    cursor: PendingCursor | None = None
    paused: bool = False  # the scan waits until the list is empty


#: References that a `PendingCursor` reads ahead.
AHEAD = 512


class PendingCursor:
    """A position among the pending messages of a queue, in the order of delivery, while others change the queue.

    The cursor gives each message after its position, new ones too, and none before it.
    """

    def __init__(self, dispatcher: Dispatcher, level: int = LEVELS - 1) -> None:
        """Begins at the head of a priority."""
        self._dispatcher = dispatcher
        self._chunk: list[Reference] = []  # the next few, the last first
        self._version = 0  # of the dispatcher when they were read
        self.level = level  # -1 at the end
        self.sequence: int | None = None  # the first after the cursor; None: the whole level

    def passed(self, priority: int, sequence: int) -> bool:
        """Whether a message of this priority and sequence comes before the cursor."""
        mine = self.sequence
        return priority > self.level or (priority == self.level and mine is not None and sequence < mine)

    def take(self, most: int) -> list[Reference]:
        """The pending ones of the next ``most`` references, perhaps none before the end."""
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
        """The next of this priority that is pending, left in place."""
        while self._read():
            ref = self._chunk[-1]
            if ref.state == PENDING:
                return ref
            self.skip(ref.sequence)
        return None

    def skip(self, sequence: int) -> None:
        """Move the cursor after a sequence of this level."""
        chunk = self._chunk
        while chunk and chunk[-1].sequence <= sequence:
            chunk.pop()
        if self.sequence is None or self.sequence <= sequence:
            self.sequence = sequence + 1

    def _read(self) -> bool:
        """Read the next references if the cursor has none, or the queue has new ones among them."""
        dispatcher = self._dispatcher
        if not self._chunk or self._version != dispatcher.version:
            self._chunk = dispatcher.read_pending(self.level, self.sequence, AHEAD)
            self._chunk.reverse()
            self._version = dispatcher.version
        return bool(self._chunk)


class Dispatcher:
    """Delivers the pending messages of one queue to its consumers, round robin.

    ``blocks`` has a bit for each reason against handing a message over as it arrives: direct delivery iff it is 0.
    """

    __deletable__ = ("queue",)  # see `close`; for the compiled build

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._effort = queue.broker.effort
        self.count = 0  # pending in memory
        self.consumers: list[Consumer] = []
        #: consumers that can take messages, the next in turn first; with `PRIORITIES` the highest priority first
        self.ready: deque[Consumer] = deque()
        self.pending = PendingList()
        self.selector_lists: dict[object, SelectorList] = {}  # by ``Consumer.matches_key``
        self.scanning = 0  # selector lists with a scan that is not over
        self.version = 0  # goes up when a message becomes pending elsewhere than at the tail
        self.groups: MessageGroups | None = None  # made with the first grouped message
        self.exclusive: Consumer | None = None  # the one consumer of an exclusive queue that is served
        self._buckets = queue.attributes.group_buckets
        self._delivered_before = 0  # messages_delivered of the queue when that was chosen
        self.blocks = NON_DESTRUCTIVE if queue.attributes.non_destructive else 0
        self.set_block(FIRST_KEY, queue.attributes.group_first_key is not None)
        self._suspensions = 0
        if queue.broker.delivery_suspended:
            self.suspend()
        self._timer: Timer | None = None  # delay-before-dispatch
        self._dispatching = False
        self._deferred = False  # delivery goes on in a later turn of the reactor
        self._await_consumers_again()

    # ---- whether messages are delivered

    def set_block(self, reason: int, on: bool) -> None:
        """Set or clear a bit of ``blocks``."""
        self.blocks = self.blocks | reason if on else self.blocks & ~reason

    def suspend(self) -> None:
        """Deliver nothing until `resume` was called as often as this."""
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
        """Whether some consumer would be given a pending message now."""
        return bool(self.ready) and not self.blocks & STOPPED

    # ---- consumers

    def add(self, consumer: Consumer) -> None:
        """A new consumer. Raises `Refused` beyond max-consumers."""
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
        """A consumer is gone; its group backlog is anybody's again."""
        self.consumers.remove(consumer)
        self.pause_consumer(consumer)
        self._forget_source(consumer)
        consumer.source = (
            PendingList()
        )  # a reference that it rejected refers to it, and must not keep the old list alive
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
        """A consumer can take messages (again)."""
        consumer.willing = True
        if consumer.ready or self.blocks & CLOSED:
            return
        if not self.queue.attributes.exclusive or self.exclusive is consumer:
            self._make_ready(consumer)
            if self.count and self.next_in_memory(consumer) is not None:  # the others had their turn
                self.dispatch()
            elif self.blocks & PAGED:
                self._demand()

    def pause_consumer(self, consumer: Consumer) -> None:
        """A consumer can take no more for now."""
        consumer.willing = False
        if consumer.ready:
            consumer.ready = False
            self.ready.remove(consumer)

    def pause_consumers(self, consumers: list[Consumer]) -> None:
        """Pause the consumers of one connection; a connection may have thousands on one queue."""
        if len(consumers) < PAUSED_SINGLY:
            for consumer in consumers:
                self.pause_consumer(consumer)
            return
        for consumer in consumers:
            consumer.willing = consumer.ready = False
        self._serve([consumer for consumer in self.ready if consumer.ready])

    def _serve(self, consumers: list[Consumer]) -> None:
        """Serve these ready consumers, in this order."""
        self.ready.clear()
        self.ready.extend(consumers)

    def on_attributes_changed(self) -> None:
        """The attributes of the queue are others: go on with whoever may go on."""
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
                self._begin_groups()  # some of what is pending may belong to groups
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
        """Whether a consumer could take messages and has none, because another of the queue comes first."""
        if not consumer.willing or any(consumer.unsettled_references()):
            return False
        if self.queue.attributes.exclusive:
            return consumer is not self.exclusive
        return any(other.priority > consumer.priority for other in self.consumers)

    def _apply_exclusive(self) -> None:
        """Only one consumer of an exclusive queue is ever ready: the oldest of those with the highest priority.

        It stays that until it leaves. One of higher priority takes its place only while it was delivered nothing.
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
        """Add a consumer to those that are served; with priorities behind all that have the same one."""
        consumer.ready = True
        ready = self.ready
        if not self.blocks & PRIORITIES or not ready or ready[-1].priority >= consumer.priority:
            ready.append(consumer)
            return
        lower = next(at for at, other in enumerate(ready) if other.priority < consumer.priority)
        ready.insert(lower, consumer)

    def next_consumer(self) -> Consumer:
        """The next ready consumer, round robin. Where there is only one, callers take it without this call."""
        ready = self.ready
        consumer = ready[0]
        ready.rotate(-1)
        return consumer

    def consumer_for(self, matching: list[PendingList]) -> Consumer | None:
        """Who gets a message as it arrives that belongs to the lists ``matching`` of selectors.

        None where no ready consumer may have it, or another message comes first.
        """
        ready, everything = self.ready, self.pending
        for _ in range(len(ready)):
            consumer = ready[0] if len(ready) == 1 else self.next_consumer()
            source = consumer.source
            if source is everything or source in matching:
                # nothing waits for a consumer that is ready, except what it has just refused
                return consumer if source.head() is None else None
        return None

    def consumer_for_any(self) -> Consumer | None:
        """Who gets a message that was just read from a page, whatever it is; None where that depends on something."""
        if self.count or not self.ready or self.blocks & ~PAGED or self._dispatching:
            return None
        return self.next_consumer()

    def _source_for(self, consumer: Consumer) -> PendingList:
        matches = consumer.matches
        if self.blocks & NON_DESTRUCTIVE:
            # each has its own list; the key is not the consumer itself, which would be a cycle
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
                waited = waited and self.groups is None  # a group's backlog may have waited for the scan
            if not waited and (pending.size or self.groups is not None):
                self.dispatch()
            elif over and self.blocks & PAGED:
                self._demand()
            if pending.size >= LISTED and target.cursor is not None and pending.head() is not None:
                target.paused = True
                return
            yield

    def _resume_scan(self, consumer: Consumer) -> bool:
        """Continue a scan that waits for its list to be empty, as it is now; whether the list has references again."""
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
        """Whether the scan for a list is past a reference."""
        cursor = target.cursor
        return cursor is None or cursor.passed(ref.message.traits.priority, ref.sequence)

    def is_scanning(self, consumer: Consumer) -> bool:
        """Whether the scan for the selector of a consumer is not over."""
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
        """The lists of the selectors that a message matches, of those whose scan is past its position."""
        lists = self.selector_lists
        self._effort.steps += len(lists)
        priority = message.traits.priority
        return [
            each.pending
            for each in lists.values()
            if (each.cursor is None or each.cursor.passed(priority, sequence)) and each.matches(message)
        ]

    def enlist(self, ref: Reference, at_tail: bool = True, matching: list[PendingList] | None = None) -> None:
        """List a pending reference wherever its consumers look for it; ``matching`` where that is known already."""
        self.count = count = self.count + 1
        if ref.message.traits.group is not None and not self.blocks & (GROUPS | NON_DESTRUCTIVE):
            self._begin_groups()
        if at_tail and ref.position is None and not self.selector_lists:
            pending = self.pending
            pending.append(ref)
            if pending.size > 2 * count + SLACK:
                pending.sweep(count)
        else:
            self._list(ref, at_tail, matching)

    def _list(self, ref: Reference, at_tail: bool, matching: list[PendingList] | None = None) -> None:
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
            pending.sweep(self.count)

    def _list_again(self, refs: list[Reference]) -> None:
        """List what leaves a group backlog, in the order of delivery, wherever its consumers look for it."""
        if refs:
            self.pending.restore_all(refs)
            for each in self.selector_lists.values():
                each.pending.restore_all(
                    [ref for ref in refs if self._passed(each, ref) and each.matches(ref.message)]
                )

    def _begin_groups(self) -> None:
        """Messages of groups go to the owners of these from now on, unless ``group-buckets`` is 0."""
        buckets = self.queue.attributes.group_buckets
        if buckets and not self.blocks & NON_DESTRUCTIVE:
            self.groups = MessageGroups(buckets)
            self.blocks |= GROUPS

    def enlist_for_group(self, ref: Reference, consumer: Consumer) -> None:
        """Add a pending reference to the backlog of its group's owner, which is ``consumer`` where it had none."""
        assert self.groups is not None
        self.count += 1
        self.version += 1
        self.groups.add_to_backlog(ref, self.groups.claim(ref, consumer))

    def delist(self) -> None:
        """One reference is pending no more; its state says so already, and its lists drop it by and by."""
        self.count = count = self.count - 1
        pending = self.pending
        pending.head()  # drops it where it is the first
        if pending.size > 2 * count + SLACK:
            pending.sweep(count)
        if self.selector_lists:
            self._sweep_selector_lists()

    def _sweep_selector_lists(self) -> None:
        for each in self.selector_lists.values():
            each.pending.sweep(self.count)

    def first(self) -> Reference | None:
        """The message in memory that is delivered next, whoever may take it."""
        if self.groups is None:
            return self.pending.head()
        heads = [each.head() for each in self.lists()]
        return min((ref for ref in heads if ref is not None), key=attrgetter("order"), default=None)

    def lists(self) -> list[PendingList]:
        """Where all that is pending in memory is: first `pending`, then the backlogs. A reference may be in two."""
        backlogs = [
            consumer.group_backlog for consumer in self.consumers if consumer.group_backlog is not None
        ]
        return [self.pending, *backlogs]

    def in_order(self) -> Iterator[Reference]:
        """What is pending in memory, in the order of delivery. It must not change meanwhile."""
        return _merged([iter(each) for each in self.lists()])

    def read_pending(self, priority: int, sequence: int | None, most: int) -> list[Reference]:
        """The next references of a priority from a sequence on, in order, leftovers included; see `PendingCursor`."""
        found = self.pending.read(priority, sequence, most)
        backlogs = self.lists()[1:] if self.groups is not None else []
        if not backlogs:
            return found
        parts = [found, *[backlog.read(priority, sequence, most) for backlog in backlogs]]
        # the lists may contain later references
        end = min((part[-1].sequence for part in parts if part), default=0)
        each = {ref for part in parts for ref in part if ref.sequence <= end}
        return sorted(each, key=attrgetter("sequence"))

    def snapshot(self) -> Iterator[Reference]:
        """As `in_order`, of what is pending now, whatever happens while it is read."""
        return _merged([each.snapshot() for each in self.lists()])

    def detach(self) -> Iterator[Reference]:
        """What is pending, out of lists that are taken away from here. The queue is deleted."""
        return chain(*[each.detach() for each in self.lists()])

    def close(self) -> None:
        """The queue is deleted and empty: break the cycles, so that it is freed by its count, not by the collector."""
        self.groups = None
        self.pending.clear()
        for each in self.selector_lists.values():
            each.pending.clear()
        self.selector_lists.clear()
        del self.queue

    # ---- message groups

    def _free_groups(self, consumer: Consumer) -> None:
        """The groups of a consumer, and its backlog, may go to anybody."""
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
        """A consumer has come: all groups may go to anybody again (group-rebalance). Returns whether there were any."""
        queue = self.queue
        if self.groups is None:
            return False
        if queue.attributes.group_rebalance_pause_dispatch and queue.delivering:
            self.blocks |= REBALANCING
        self._free_all_groups()
        return True

    def on_settled(self, _: Reference) -> None:
        """A message was settled, on a queue with ``group-rebalance-pause-dispatch``."""
        if self.blocks & REBALANCING and not self.queue.delivering:
            self.blocks &= ~REBALANCING
            self.dispatch()

    @property
    def group_count(self) -> int:
        """Message groups, or buckets of them, that are pinned to a consumer."""
        return sum(consumer.group_count for consumer in self.consumers)

    @property
    def rebalancing(self) -> bool:
        """Whether nothing is delivered until everything in delivery is settled (group-rebalance-pause-dispatch)."""
        return bool(self.blocks & REBALANCING)

    def reset_groups(self, group: bytes | None = None) -> int:
        """Unpin one group, or all; returns how many (or how many buckets) were pinned to a consumer."""
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
        """Unpin a group; returns whether it was pinned."""
        owner = groups.owner_of(group)
        self._list_again(groups.release(group))
        if self.queue.paged is not None and owner is not None:
            self.queue.paged.release_spilled(owner)
        return owner is not None

    def end_group(self, ref: Reference) -> None:
        """A message is delivered: where its group ends with it, the backlog of that group may go to anybody.

        A group ends where its sequence is -1 (JMSXGroupSeq, _AMQ_GROUP_SEQUENCE).
        """
        traits = ref.message.traits
        if traits.group_sequence < 0 and traits.group is not None and self.groups is not None:
            self._release_group(self.groups, traits.group)

    # ---- the delivery loop

    def dispatch(self) -> None:
        """Deliver what is pending to the ready consumers in turn, until nobody can take more."""
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
        self._dispatching = True  # what a consumer does with a message may lead back here
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
            # what was delivered through one list is left over in the others
            self.pending.sweep(self.count)
            self._sweep_selector_lists()
        if self.blocks & PAGED:
            self._demand()

    def _defer(self) -> None:
        """The slice of this turn is used up: go on in a later turn, where anybody can take more then."""
        if self.count and self.ready and not self._deferred:
            self._deferred = True
            self.queue.broker.delivery_slices.defer(self.resume_delivery)

    def dispatch_soon(self) -> None:
        """Call `dispatch`, in a later turn if there are many consumers: many calls then become one."""
        if self.count and len(self.ready) > DELIVERIES:
            self._defer()
        else:
            self.dispatch()

    def resume_delivery(self) -> None:
        """A turn has come in which delivery goes on."""
        self._deferred = False
        self.dispatch()

    def _deliver_in_order(self) -> bool:
        """Deliver to the consumer of the highest priority in turn that may have a message; False where none may."""
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
        """Deliver a message; the first of its group that a consumer gets has the header of ``group-first-key``.

        So has the first message that a consumer of an exclusive queue gets.
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
        """The first pending message this consumer may have, taken off its list."""
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
        """Whether the scan for a consumer may still find a message before a reference."""
        return self.is_scanning(consumer) and not self._passed(self.selector_lists[consumer.matches_key], ref)

    def next_in_memory(self, consumer: Consumer) -> Reference | None:
        """The message that a consumer is offered next, unless one on disk comes before it."""
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
    """What is in these lists, in the order of delivery, each once: a reference may be in two of them."""
    return (
        lists[0] if len(lists) == 1 else map(itemgetter(0), groupby(merge(*lists, key=attrgetter("order"))))
    )


def _everything(message: Message) -> bool:
    return True


class PagedQueue(Protocol):
    """Messages of one queue in the pages of all its addresses."""

    cursors: list[Cursor]  # one for each address that paged messages for this queue

    @property
    def waiting(self) -> int:
        """Messages on disk only, ready for delivery (Artemis: pagedCount)."""

    @property
    def timed(self) -> int:
        """Messages on disk only that are scheduled."""

    @property
    def oldest(self) -> int | None:
        """Timestamp (epoch ms) of the first message on disk; None where there is none, or until it has been read."""

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        """A message was paged for this queue. It stays in memory where nothing precedes it and memory allows."""

    def on_growth(self) -> None:
        """Several messages were paged, each behind others of its priority."""

    def may_deliver(self, ref: Reference, consumer: Consumer) -> bool:
        """Whether no message on disk precedes ``ref`` for this consumer, and its page credit is not used up."""

    def position_before(self, ref: Reference | None) -> Position | None:
        """The first position on disk if it precedes ``ref`` for a consumer without a selector, else None."""

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """A message from a page was delivered."""

    def on_requeued(self, ref: Reference) -> None:
        """A delivered message from a page was requeued."""

    def settled(self, ref: Reference, reason: Reason) -> None:
        """A message from a page was settled."""

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        """Send a message back to disk if its group owner's backlog is full; returns whether that was done."""

    def release_spilled(self, consumer: Consumer) -> None:
        """Messages spilled for a consumer may go to any consumer."""

    def on_consumer_removed(self, consumer: Consumer) -> None:
        """A consumer has left the queue."""

    def demand(self) -> None:
        """Load messages if consumers can take more than is in memory."""

    def evict(self, position: Position) -> None:
        """Evict the message at a position that `position_before` returned (rings that count paged messages)."""

    def replace(self, cursor: Cursor, position: Position) -> None:
        """Settle a waiting message unread, and count it as replaced."""

    def purge(self) -> Iterator[int]:
        """Kill all that is on disk only; yields the count of each page, so that the caller may pause."""

    def forget(self, address: AddressBase) -> None:
        """An address has left page mode; its pages are empty."""

    def close(self) -> None:
        """The queue was deleted."""

    def block(self, page: Page, index: int) -> Block | None:
        """The block with a position if it is in memory."""

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Done) -> None:
        """Read the block with a position; ``done`` is called later, with None for an unreadable block."""

    def load_reference(self, cursor: Cursor, position: Position, message: Message) -> Reference:
        """The reference of a message on disk: in no list, with state GONE."""

    def deliver_now(self, cursor: Cursor, position: Position, message: Message) -> None:
        """A scheduled message on disk falls due at once."""


#: References of which a part comes back before paging is asked whether some are to be sent to disk again.
STEP = 256

#: References that are sorted in one go: some milliseconds.
MOST_SORTED = 10_000

#: Sequences that are reserved at the head of a queue for what falls due together: numbers, of which there are enough.
MOST_TOGETHER = 1 << 40


class DueBatch:
    """Scheduled messages of one queue that fall due together: their sequences at its head and, in a ring, those that
    are pending: the newest sent stay."""

    def __init__(self, first_sequence: int) -> None:
        self.sequence = first_sequence  # of the next one
        self._pending: list[tuple[int, int, Reference]] = []  # a heap, by message number, then as they came

    def add(self, ref: Reference) -> None:
        """One has entered a ring."""
        heappush(self._pending, (ref.message.number, self.sequence, ref))

    def pop_older(self, ref: Reference) -> Reference | None:
        """The oldest that is pending, where that was sent before ``ref``."""
        pending = self._pending
        while pending and pending[0][2].state != PENDING:
            heappop(pending)
        if pending and pending[0][0] < ref.message.number:
            return heappop(pending)[2]
        return None


class Queue(QueueBase):
    """One queue of an address. Counters are plain integers, named as in management."""

    # more attributes than Python keeps fast in a dictionary
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
        self.in_memory_only = attributes.non_destructive or is_internal(
            address.name
        )  # whatever page mode its addresses are in
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
        self.update_hooks(hooks)
        self.used = False  # had a consumer at some time
        self.deleted = False
        self.as_configured: QueueAttributes | None = None  # what broker.xml said when it was last applied

        self._lowest_sequence = 0
        self._entries: Entries | None = (
            None  # made with the first message that is retained while pending here
        )

        self.delivering = 0
        self.persistent_size = 0  # bytes of the messages in memory
        self.messages_added = 0
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

    def update_hooks(self, hooks: Hooks) -> None:
        """The policies of its address are others, or what becomes of what its ring evicts."""
        self.hooks = hooks
        self.evicted = self.broker.evicted(self)
        self.dispatcher.set_block(OBSERVED, hooks.delivered is not None or hooks.settled is not None)
        attributes = self.attributes
        if attributes.group_rebalance and attributes.group_rebalance_pause_dispatch:
            self.hooks = hooks_with_settled(hooks, self.dispatcher.on_settled)

    def set_pages(self, paged: PagedQueue | None) -> None:
        """Messages of this queue are in pages; None: they no longer are."""
        self.paged = paged
        self.dispatcher.set_block(PAGED, paged is not None)

    # ---- counters

    @property
    def count(self) -> int:
        """Pending in memory."""
        return self.dispatcher.count

    @property
    def message_count(self) -> int:
        """Pending, scheduled, in delivery and paged (Artemis: messageCount). What is in delivery may be pending too."""
        in_memory = self.dispatcher.count + len(self.scheduled)
        if not self.non_destructive:
            in_memory += self.delivering
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
                matching = dispatcher.matching(message, message.number)
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

        The message has no group and does not expire, and some consumer is ready.
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
        """Deliver a message of a paging address as it arrives, where nothing comes before it; else False.

        There are ready consumers, nothing waits on disk, and nothing but `PERHAPS` blocks. A message that must survive
        a crash never comes here: it is written first.
        """
        dispatcher, ready = self.dispatcher, self.ready
        consumer: Consumer | None = None
        if dispatcher.blocks & SELECTORS:
            if self.attributes.ring_counts_paged and 0 <= self.ring_size <= self.ring_count:
                return False  # it evicts a message first
            consumer = dispatcher.consumer_for(dispatcher.matching(message, message.number))
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
        if dispatcher.blocks & LAST_VALUE:
            self.become_last(
                message, ref
            )  # the message before it with its key goes before a consumer or a ring sees both
        dispatcher.enlist(ref, True, matching)
        if 0 <= self.ring_size < self.ring_count:
            self.evict()
        if self.ready:
            dispatcher.dispatch()
        if message.expires and ref.state == PENDING:
            self.broker.expiry.watch(ref)
        if self.hooks.enqueued is not None and ref.state == PENDING:
            self.hooks.enqueued(ref)

    def become_last(self, message: Message, last: Reference | int) -> None:
        """A message enters a last-value queue."""
        raise AssertionError("a derived class has it")

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
        ref = self._add_reference(message, SCHEDULED, due)
        ref.recurrence = recurrence
        self.postpone(ref, due)
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
            if not ref.deliveries:  # one that waited for its redelivery comes back to its old position
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
        if ref.state != GONE:
            self.broker.expiry.watch(ref)
        self._notify_enqueued(ref)

    def reinstate_run(self, run: ReferenceRun, priority: int, size: int) -> None:
        """As `restore` and `reinstate` of each reference of a run, whose messages take ``size`` bytes of memory.

        The queue has no ring and no consumers, none of them belongs to a group, and no policy is notified of what is
        enqueued.
        """
        self.messages_added += run.length
        self.persistent_size += size
        self.dispatcher.count += run.length
        self.dispatcher.pending.append_run(run, priority)

    # ---- a reference is made, and undone

    def _add_reference(self, message: Message, state: int, due: Due = 0) -> Reference:
        """One more queue, this one, has a message in memory. `drop` undoes it.

        GONE: the message was recorded already. Another state: a store is told of a durable or retained message.
        """
        self._hold(message)
        ref = Reference(message, self, message.number, state)
        traits = message.traits
        if (traits.durable or traits.retained) and state != GONE:
            self._record_arrival(ref, due)
        return ref

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
            message.account.occupy(REFERENCE_OVERHEAD, 0)
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
            message.account.release(REFERENCE_OVERHEAD, 0)

    def drop(self, ref: Reference, reason: Reason | None) -> None:
        """Drop a reference for good; the counts of the state it was in are the caller's.

        ``reason`` is recorded, None where the message stays in its page.
        """
        ref.state = GONE
        message = ref.message
        self._release(message)
        if ref.watched:
            self.broker.expiry.unwatch(ref)
        if reason is None:
            return
        if ref.position is not None:
            if self.paged is not None:  # None: deleted, and its pages have forgotten it
                self.paged.settled(ref, reason)
        elif message.traits.durable and self.durable:
            self.broker.storage.settle(ref, reason)
        elif message.traits.retained >= self.retains_from:
            self.broker.storage.log(ref, reason)

    def _record_arrival(self, ref: Reference, due: Due) -> None:
        """A message has entered that is durable or retained."""
        traits, storage = ref.message.traits, self.broker.storage
        ref.due = due
        waits = due > ref.message.timestamp
        if traits.durable and self.durable:
            storage.append(ref)
            if waits:
                storage.postponed(ref)
        elif traits.retained >= self.retains_from:  # a restart does not bring it back
            if self._entries is None:
                self._entries = Entries(self, None)
            if not self._entries.messages:
                storage.record(self._entries)
            self._entries.messages.append(ref.message)
            if ref.state == DELIVERING:
                storage.log(ref, DELIVERED)
            elif waits:
                storage.log(ref, POSTPONED)

    # ---- messages leave

    def deliver(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver a reference that is in no list; in a non-destructive queue it stays pending."""
        self.delivering += 1
        if self.non_destructive:
            ref.message.account.occupy(REFERENCE_OVERHEAD, 0)  # each reader has a delivery of its own
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
        """A consumer has acknowledged a message; in a non-destructive queue it stays."""
        self.delivering -= 1
        self.messages_acknowledged += 1
        if self.non_destructive:
            ref.message.account.release(REFERENCE_OVERHEAD, 0)
        if self.hooks.settled is not None:
            self.hooks.settled(ref)
        if not self.non_destructive:
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
        self.delete_if_unused()

    def remove(self, ref: Reference) -> None:
        """Remove a message that no consumer has taken; it counts as acknowledged."""
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
        """Forget a pending reference, whose message stays in its page."""
        self.detach(ref)
        self.drop(ref, None)

    def expire(self, ref: Reference) -> None:
        """Remove an expired message; a copy goes to the expiry-address, if one is set."""
        self.detach(ref)
        self.messages_expired += 1
        with self.broker.together():
            self.broker.send_expired(ref)
            if self.hooks.expired is not None:
                self.hooks.expired(ref)
            self.drop(ref, Reason.EXPIRED)
        self.broker.consider_deleting(self)

    def remove_if_exhausted(self, ref: Reference) -> bool:
        """Remove a message if its last allowed attempt has failed; a copy goes to the dead-letter-address.

        In a queue of the dead-letter address itself messages stay, whatever the number of attempts.
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
        if self.non_destructive:
            self._offer_again(refs, consumer, failed)
            return
        if not refs and self not in self.broker.background:
            self.dispatcher.dispatch_soon()  # others may have messages that a consumer which has left refused
            self.delete_if_unused()
            return
        self.messages_requeued += len(refs)
        self.run_suspended(self._requeue_all(refs, consumer, failed))

    def _offer_again(self, refs: list[Reference], consumer: Consumer | None, failed: bool) -> None:
        """Offer a consumer of a non-destructive queue again what it rejected; one that is gone returns nothing."""
        self.messages_requeued += len(refs)
        self.delivering -= len(refs)
        for ref in refs:
            ref.message.account.release(REFERENCE_OVERHEAD, 0)
            if ref.state != PENDING:
                continue
            if failed and consumer is not None:  # NACK; one that leaves has not tried for the others
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
            run = refs[-MOST_SORTED:]  # what comes back from one consumer is as good as sorted
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
                self.paged.demand()  # what does not fit into memory goes back to disk
            yield
        self.delete_if_unused()

    def delete_if_unused(self) -> None:
        """A message has left: auto-delete, where there is no consumer."""
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
        self.hooks.overflow(self.view or self.broker.view_of(self), requeued)

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
        if self.evicted is None:
            self.drop(ref, Reason.REPLACED)
            return
        with self.broker.together():
            self.evicted(ref)
            self.drop(ref, Reason.REPLACED)

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
        self.broker.watch(self)
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

    def unsettled_references(self) -> list[Reference]:
        """What its consumers have not settled, for management."""
        return [ref for consumer in self.consumers for ref in consumer.unsettled_references()]

    # ---- the whole queue

    @property
    def open(self) -> bool:
        """Whether messages are routed here: enabled, and with consumers where purge-on-no-consumers wants them."""
        attributes = self.attributes
        return attributes.enabled and (not attributes.purge_on_no_consumers or bool(self.consumers))

    def purge(self) -> int:
        """Kill everything that is pending or scheduled; returns how many. Where they are many it takes its time."""
        killed = self.count + self.scheduled_count + self.paged_count
        self.run_suspended(self.kill_all(self.dispatcher.snapshot(), list(self.scheduled.values())))
        return killed

    def kill_all(self, pending: Iterator[Reference], scheduled: list[Reference]) -> Iterator[int]:
        """Kill what is on disk only, and these; yields the number killed in each step.

        Nothing may be read from pages meanwhile. The list is the queue's from now on.
        """
        yield from self.kill_on_disk()
        yield from self.kill_each(pending, scheduled)

    def kill_on_disk(self) -> Iterator[int]:
        """Kill what is on disk only; yields the number killed in each step."""
        if self.paged is not None:
            for purged in self.paged.purge():
                self.messages_killed += purged
                yield purged

    def kill_each(self, pending: Iterator[Reference], scheduled: list[Reference]) -> Iterator[int]:
        """Kill those that are still pending or scheduled; yields 1 or 0 for each. The list is the queue's then."""
        scheduled.reverse()
        for ref in chain(pending, _consume(scheduled)):
            found = ref.state == PENDING or ref.state == SCHEDULED
            if found:
                self.kill(ref)
            yield int(found)

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
        self.broker.bind(self)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        self.broker.bind(self)
        self.dispatcher.dispatch()

    def close(self) -> None:
        """The queue is deleted: its consumers are cancelled, its messages killed, which may take its time."""
        self.deleted = True
        dispatcher = self.dispatcher
        dispatcher.cancel_timer()
        dispatcher.set_block(CLOSED, True)
        if self.paged is not None:
            self.messages_killed += sum(self.paged.purge())
        if (self.count or self.scheduled) and not (self.broker.stopping and self.forgotten_by_restart):
            self.run_suspended(self.kill_all(dispatcher.detach(), list(self.scheduled.values())))
        for consumer in list(self.consumers):
            if consumer in self.consumers:  # one that is cancelled may take others along
                consumer.cancelled(f"Queue {self.name} was deleted")
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
        self.set_pages(None)
        self.view = None
        self._entries = None
        self.dispatcher.close()


def _consume(refs: list[Reference]) -> Iterator[Reference]:
    """From the end; each is let go of as it is given, so that those which are killed are not freed all at once."""
    while refs:
        yield refs.pop()


def as_queue(queue: QueueBase) -> Queue:
    """What references and pages name by its base only."""
    assert isinstance(queue, Queue)
    return queue


class Expiry(TimerQueue):
    """Watches messages in memory that expire, and expires them at their time.

    `stompring.paging.paged_queue` does it for pages.
    """

    def watch(self, ref: Reference) -> None:
        """Expire a message that is kept in memory when its time comes. One that never expires is not watched."""
        if ref.message.expires and not ref.watched:
            ref.watched = True
            self.enter(ref, ref.message.expires)

    def unwatch(self, ref: Reference) -> None:
        """A watched message has left its queue, or memory."""
        ref.watched = False
        self.forget()


def _expire(ref: Reference) -> None:
    ref.watched = False
    as_queue(ref.queue).expire(ref)


def _still_watched(ref: Reference, due: int) -> bool:
    """A message in delivery belongs to its consumer; it is watched again when it comes back."""
    ref.watched = ref.watched and ref.state != DELIVERING
    return ref.watched


class QueueServices:
    """What queues take from the broker, which extends this class and sets the calls before it recovers anything."""

    #: a queue lost its last consumer or a message: auto-delete
    consider_deleting: Callable[[Queue], None]
    #: sends a copy to the dead-letter-address; False where there is none, or none of its queues took it
    send_dead_letter: Callable[[Reference], bool]
    #: the same for the expiry-address
    send_expired: Callable[[Reference], bool]
    #: the listener of the policies for evictions of a ring, None without one
    evicted: Callable[[Queue], Listener | None]
    #: the view of a queue for ``Hooks.overflow``
    view_of: Callable[[Queue], Any]
    #: the store is to know a queue as it is now
    bind: Callable[[Queue], None]
    #: a queue has a consumer, or other settings: slow consumers
    watch: Callable[[Queue], None]

    def __init__(self, reactor: Reactor, now: Seconds | None, storage: Storage) -> None:
        """``now`` measures slices of work, in seconds: a clock that never jumps, where the reactor's may."""
        now = now or reactor.seconds
        self.clock = clock = Clock(reactor)
        self.background = Background(clock, now)
        self.scans = Background(clock, now)  # of queues, for selectors and browsers
        self.delivery_slices = Slices(clock, now, DELIVERY_SLICE)
        self.frame_slices = Slices(clock, now, FRAME_SLICE)
        self.effort = Effort()
        self.storage = storage
        self.delivery_suspended = False
        self.stopping = False  # messages that no store knows are not requeued or killed one by one
        self.schedule = TimerQueue(clock, self.background, _still_scheduled, self._fall_due)
        self.delays = (
            self.schedule  # with one clock all that falls due at one moment does so in one order
            if clock.steady is clock
            else TimerQueue(clock.steady, self.background, _still_scheduled, self._fall_due)
        )
        self.expiry = Expiry(clock, self.background, _still_watched, lambda: _expire)
        self.random = random.random  # nosec B311
        self.numbers = Numbers(1)  # of messages
        self.next_queue_number = count(1).__next__

    def next_message_number(self) -> int:
        """A number that no message has had so far."""
        return self.numbers.next()

    @contextmanager
    def together(self, size: int = 0) -> Iterator[None]:
        """What the store is told within takes effect as one: a message that moves is never in both places.

        ``size``: see `Storage.begin`.
        """
        self.storage.begin(size)
        try:
            yield
        finally:
            self.storage.commit()

    # ---- time

    def enter_schedule(self, ref: Reference) -> None:
        """A message is scheduled for ``ref.due``."""
        due = ref.due
        if isinstance(due, FromNow):
            self.delays.enter(ref, due.steady)
        else:
            self.schedule.enter(ref, due)

    def forget_schedule(self, ref: Reference) -> None:
        """A message that was scheduled for ``ref.due`` is not any more."""
        (self.delays if isinstance(ref.due, FromNow) else self.schedule).forget()

    def _due(self, ref: Reference) -> int:
        """When a message fell due, on the wall clock as it is now."""
        due, clock = ref.due, self.clock
        if not isinstance(due, FromNow):
            return int(due)
        came = clock.now - (clock.steady.now - due.steady)
        return (
            came if abs(came - due) > NOTICED else int(due)
        )  # that the two clocks differ a little is no jump

    def _fall_due(self) -> Callable[[Reference], None]:
        """For scheduled messages that come due together, in order; those that recur send a copy of themselves ahead."""
        batches: dict[Queue, DueBatch] = {}

        def falls_due(ref: Reference) -> None:
            queue = as_queue(ref.queue)
            batch = batches.get(queue)
            if batch is None:
                batch = batches[queue] = queue.due_batch()
            queue.on_due(self.recur(ref), batch)

        return falls_due

    def recur(self, ref: Reference) -> list[Reference]:
        """What a scheduled message delivers now; a recurring one stays scheduled and delivers a copy of itself."""
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
                ref.last_rejected_by = None  # no consumer has taken it
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
