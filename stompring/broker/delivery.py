"""Delivery of the messages of a queue to its consumers.

A consumer of a queue: what the queue must know of a subscription.

Message groups: which consumer of a queue owns which group.

The dispatcher of a queue: its consumers, the pending lists they are served from, and the delivery loop.

Between any two calls no ready consumer could be given a pending message, unless delivery is stopped (`STOPPED`) or
goes on in a later turn of the reactor (`Slices`), as does a scan for a selector that is new (`SelectorList.cursor`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from heapq import merge
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING
from zlib import crc32

from mypy_extensions import mypyc_attr

from stompring.errors import Refused

from .clock import DELIVERIES, DELIVERIES_BETWEEN
from .lifetime import is_expired
from .reference import SLACK, PendingCursor, PendingList, Reference, ReferenceRun

if TYPE_CHECKING:
    from .clock import Timer
    from .message import Message, Traits
    from .queue import Queue


#: Decides whether a message may go to a consumer or into a queue.
Matches = Callable[["Message"], bool]


def not_from(origin: object, matches: Matches | None) -> Matches:
    """A filter that also rejects what ``origin`` sent (no-local)."""

    def accepts(message: Message) -> bool:
        return message.traits.origin != origin and (matches is None or matches(message))

    return accepts


@mypyc_attr(allow_interpreted_subclasses=True)  # of the kit for tests of policies
class Consumer:
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
    consumer_name = ""  # recorded with what it acknowledges by a store that retains everything

    def __init__(self, matches: Matches | None = None, matches_key: object = None) -> None:
        self.matches = matches
        self.matches_key = matches_key  # consumers with equal keys share one list of what matches
        self.priority = 0  # those with the highest are served first
        self.willing = True
        self.ready = False
        self.source: PendingList | None = None  # of this consumer's next message
        self.settled = 0  # messages that it acknowledged: by which it is known as slow
        self.writes_tails = False  # `write_tail` may be called: a message is settled by being written
        self.group_backlog: PendingList | None = None  # of groups that are pinned here, waiting for credit
        self.group_owner: GroupOwner | None = None  # made with the first group that is pinned here

    def deliver_message(self, message: Message) -> None:
        """A message straight from its sender; no reference to it exists yet."""
        raise AssertionError("a consumer is given messages")

    def write_tail(self, traits: Traits, tail: bytes, body_at: int) -> None:
        """As `deliver_message`, of a message that needs nothing but its bytes. Only where ``writes_tails``."""
        raise AssertionError("a consumer that writes tails is given them")

    def deliver_reference(self, ref: Reference) -> None:
        """A message that waited in the queue, or comes again."""
        raise AssertionError("a consumer is given references")

    def additional_header(self, name: bytes, value: bytes) -> AbstractContextManager[None]:
        """What is delivered in this context has one header more."""
        return nullcontext()

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits that it would be given next, if it could take one."""
        source, backlog, paged = self.source, self.group_backlog, self.queue.paged
        if source is not None and source.head() is not None:
            return True
        if backlog is not None and backlog.head() is not None:
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
        raise AssertionError("a consumer is cancelled with its queue")

    def unsettled_references(self) -> Iterable[Reference]:
        """What it was given and has not settled, in the order of delivery, for management."""
        return ()

    @property
    def identifier(self) -> str:
        """What its client calls it."""
        return ""


#: Owners that one step of `MessageGroups.sweep` looks at.
SWEPT = 256


class GroupOwner:
    """A consumer as the owner of groups. It is shared by all of these, so that they are unpinned in one step."""

    __slots__ = ("backlog_keys", "consumer", "count")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer: Consumer | None = consumer  # None once its groups are unpinned
        self.count = 0
        self.backlog_keys: set[bytes | int] = set()  # of groups that may have messages in its backlog


class MessageGroups:
    """The owner of each message group: all messages with one JMSXGroupID go to one consumer, in order, while it lives.

    ``buckets`` above 0 puts the groups into that number of buckets, by a hash of their ids: a bucket has an owner, and
    the table no more entries than that. -1: each group has an entry.

    A message whose owner has no credit goes to that consumer's ``group_backlog``, so that other groups do not wait
    behind it; it stays pending and counts for the ring.
    """

    __slots__ = ("buckets", "first", "owners", "stale")

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
            self._pin(key, consumer)
            self.first = ref.message.number
            return consumer
        refused = owning is not consumer and owning.matches is not None and not owning.matches(ref.message)
        return consumer if refused else owning

    def _pin(self, key: bytes | int, consumer: Consumer) -> None:
        if key in self.owners:
            self.stale -= 1
        owner = _owner(consumer)
        owner.count += 1
        self.owners[key] = owner

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

    def count(self, consumers: Iterable[Consumer]) -> int:
        """The number of groups, or buckets, that are pinned to one of these consumers."""
        return sum(consumer.group_count for consumer in consumers)

    def pinned(self) -> Iterator[tuple[bytes | int, Consumer]]:
        """Each group, or the number of its bucket, with its owner. They must not change meanwhile."""
        for key, owner in self.owners.items():
            if owner.consumer is not None:
                yield key, owner.consumer


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


class SelectorList:
    """What is pending for the consumers with one selector, which share it."""

    __slots__ = ("consumers", "cursor", "matches", "paused", "pending")

    def __init__(self, matches: Matches) -> None:
        self.matches = matches
        self.pending = PendingList()
        self.consumers = 0
        #: the position of the scan of older messages: the list has none after it. None: the scan is over
        self.cursor: PendingCursor | None = None
        self.paused = False  # the scan waits until the list is empty


class Dispatcher:
    """Delivers the pending messages of one queue to its consumers, round robin.

    ``blocks`` has a bit for each reason against handing a message over as it arrives: direct delivery iff it is 0.
    """

    __deletable__ = ("queue",)  # see `close`; for the compiled build

    # more attributes than Python keeps fast in a dictionary
    __slots__ = (
        "_buckets",
        "_deferred",
        "_delivered_before",
        "_dispatching",
        "_effort",
        "_suspensions",
        "_timer",
        "blocks",
        "consumers",
        "count",
        "exclusive",
        "groups",
        "pending",
        "queue",
        "ready",
        "scanning",
        "selector_lists",
        "version",
    )

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
            self._order_by_priority()
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
        still_ready = [consumer for consumer in self.ready if consumer.ready]
        self.ready.clear()
        self.ready.extend(still_ready)

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
        if not consumer.willing or any(True for _ in consumer.unsettled_references()):
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

    def _order_by_priority(self) -> None:
        """The first two priorities differ: from now on ``ready`` is sorted."""
        self.blocks |= PRIORITIES
        in_order = sorted(self.ready, key=attrgetter("priority"), reverse=True)
        self.ready.clear()
        self.ready.extend(in_order)

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
        if self.blocks & NON_DESTRUCTIVE:
            consumer.matches_key = (
                object()
            )  # each has its own list; not the consumer itself, which would be a cycle
            found = self._add_selector_list(consumer.matches_key, consumer.matches or _everything)
        elif consumer.matches is None:
            return self.pending
        else:
            found = self.selector_lists.get(consumer.matches_key) or self._add_selector_list(
                consumer.matches_key, consumer.matches
            )
        found.consumers += 1
        if found.cursor is not None and found.consumers == 1:
            self.queue.broker.scans.run(self._scan(found), consumer.connection_id)
        return found.pending

    def _add_selector_list(self, key: object, matches: Matches) -> SelectorList:
        made = self.selector_lists[key] = SelectorList(matches)
        self.blocks |= SELECTORS
        if self.count:
            made.cursor = PendingCursor(self)
            self.scanning += 1
        return made

    def _scan(self, target: SelectorList) -> Iterator[None]:
        """List the pending messages that a new selector matches, in the order of delivery, and deliver them."""
        matches, pending = target.matches, target.pending
        while (cursor := target.cursor) is not None:
            waited = pending.head() is not None
            for ref in cursor.take(SCANNED_AT_ONCE):
                if matches(ref.message):
                    pending.append(ref)
            if cursor.over:
                self._end_scan(target)
                waited = waited and self.groups is None  # a group's backlog may have waited for the scan
            if not waited and (pending.size or self.groups is not None):
                self.dispatch()
            elif cursor.over and self.blocks & PAGED:
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
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    # ---- pending lists

    def matching(self, message: Message) -> list[PendingList]:
        """The lists of the selectors that a message matches which arrives now."""
        lists = self.selector_lists
        self._effort.steps += len(lists)
        if self.scanning:
            return self._matching_scanned(message, message.number)
        return [each.pending for each in lists.values() if each.matches(message)]

    def _matching_scanned(self, message: Message, sequence: int) -> list[PendingList]:
        """The lists of the selectors that a message matches, of those whose scan is past its position."""
        priority = message.traits.priority
        return [
            each.pending
            for each in self.selector_lists.values()
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

    def enlist_run(self, run: ReferenceRun, priority: int) -> None:
        """List references that a start has found, before there are consumers. None of them belongs to a group."""
        self.count += run.length
        self.pending.append_run(run, priority)

    def _list(self, ref: Reference, at_tail: bool, matching: list[PendingList] | None = None) -> None:
        if matching is None:
            if self.scanning:
                matching = self._matching_scanned(ref.message, ref.sequence)
            else:
                matching = self.matching(ref.message) if self.selector_lists else []
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
        head = self.pending.head()
        if self.groups is None:
            return head
        heads = [head, *(backlog.head() for backlog in self.group_backlogs())]
        return min((ref for ref in heads if ref is not None), key=attrgetter("order"), default=None)

    def group_backlogs(self) -> list[PendingList]:
        """The backlogs of all consumers that have one."""
        return [consumer.group_backlog for consumer in self.consumers if consumer.group_backlog is not None]

    def lists(self) -> list[PendingList]:
        """Where all that is pending in memory is: a reference may be in two of them."""
        return [self.pending, *self.group_backlogs()]

    def in_order(self) -> Iterator[Reference]:
        """What is pending in memory, in the order of delivery. It must not change meanwhile."""
        backlogs = self.group_backlogs()
        return (
            _distinct(merge(self.pending, *backlogs, key=attrgetter("order")))
            if backlogs
            else iter(self.pending)
        )

    def read_pending(self, priority: int, sequence: int | None, most: int) -> list[Reference]:
        """The next references of a priority from a sequence on, in order, leftovers included; see `PendingCursor`."""
        found = self.pending.read(priority, sequence, most)
        backlogs = self.group_backlogs() if self.groups is not None else []
        if not backlogs:
            return found
        parts = [found, *[backlog.read(priority, sequence, most) for backlog in backlogs]]
        # the lists may contain later references
        end = min((part[-1].sequence for part in parts if part), default=0)
        each = {ref for part in parts for ref in part if ref.sequence <= end}
        return sorted(each, key=attrgetter("sequence"))

    def snapshot(self) -> Iterator[Reference]:
        """As `in_order`, of what is pending now, whatever happens while it is read."""
        backlogs = [backlog.snapshot() for backlog in self.group_backlogs()]
        if not backlogs:
            return self.pending.snapshot()
        return _distinct(merge(self.pending.snapshot(), *backlogs, key=attrgetter("order")))

    def detach(self) -> Iterator[Reference]:
        """What is pending, out of lists that are taken away from here. The queue is deleted."""
        return chain(self.pending.detach(), *[backlog.detach() for backlog in self.group_backlogs()])

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
        return 0 if self.groups is None else self.groups.count(self.consumers)

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
            owner = groups.owner_of(group)
            freed = int(owner is not None)
            self._release_group(group, owner)
        self.dispatch()
        return freed

    def _release_group(self, group: bytes, owner: Consumer | None) -> None:
        assert self.groups is not None
        self._list_again(self.groups.release(group))
        if self.queue.paged is not None and owner is not None:
            self.queue.paged.release_spilled(owner)

    def end_group(self, ref: Reference) -> None:
        """A message is delivered: where its group ends with it, the backlog of that group may go to anybody.

        A group ends where its sequence is -1 (JMSXGroupSeq, _AMQ_GROUP_SEQUENCE).
        """
        traits = ref.message.traits
        if traits.group_sequence < 0 and traits.group is not None and self.groups is not None:
            self._release_group(traits.group, self.groups.owner_of(traits.group))

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
            if blocks & ORDERED:
                self._dispatch_in_order(left)
            else:
                while self.count and idle < len(ready):
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

    def _dispatch_in_order(self, left: int) -> None:
        """Deliver to the consumers of the highest priority in turn, to others what none of those may have."""
        ready, slices = self.ready, self.queue.broker.delivery_slices
        while self.count:
            for consumer in tuple(ready):
                ref = self._next_message(consumer)
                if ref is not None:
                    if consumer.ready and len(ready) > 1:
                        ready.remove(consumer)
                        self._make_ready(consumer)
                    self._deliver(ref, consumer)
                    break
            else:
                return
            left -= 1
            if not left:
                if self._deferred or slices.is_over():
                    self._defer()
                    return
                left = DELIVERIES

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
            assert source is not None
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
                self.queue.broker.expiry.expire(ref)
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
        assert source is not None
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


def _distinct(refs: Iterable[Reference]) -> Iterator[Reference]:
    last = None
    for ref in refs:
        if ref is not last:  # what is in a group backlog may be listed twice
            yield ref
        last = ref


def _everything(message: Message) -> bool:
    return True
