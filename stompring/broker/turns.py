"""The consumers of a queue and whose turn it is: the half of a queue that hands messages out.

What holds between any two calls: no consumer that is ready could be given a message that is pending, unless the
queue is paused or waits for more consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING

from stompring.errors import Refused

from .consumer import Consumer, Matches
from .groups import Groups
from .pending import Pending
from .reference import DELIVERING, Reference
from .storage import DELIVERED

if TYPE_CHECKING:
    from .address import Address
    from .attributes import QueueAttributes
    from .broker import Broker
    from .clock import Timer
    from .hooks import Hooks
    from .message import Message
    from .paging import PagedQueue


class Target:
    """What is pending for consumers with one selector, shared by all of them."""

    __slots__ = ("consumers", "matches", "pending")

    def __init__(self, matches: Matches) -> None:
        self.matches = matches
        self.pending = Pending()
        self.consumers = 0


class Turns:
    """Base of `Queue`: its consumers, what each may have, and the loop that gives it to them."""

    # more attributes than Python keeps fast in a dictionary
    __slots__ = (
        "__weakref__",
        "_dispatch_timer",
        "_dispatching",
        "address",
        "area",
        "attributes",
        "broker",
        "consumers",
        "count",
        "delivering",
        "groups",
        "hooks",
        "name",
        "on_hold",
        "paused",
        "pending",
        "plain",
        "ready",
        "retains_from",
        "simple",
        "targets",
        "used",
        "waiting",
    )

    name: str
    address: Address
    attributes: QueueAttributes
    broker: Broker
    hooks: Hooks  # of the address
    retains_from: int  # the least ``Traits.retained`` of messages whose way through the queue is retained

    def __init__(self) -> None:
        self.paused = False
        self.used = False  # had a consumer at some time
        self.count = 0  # pending
        self.delivering = 0
        self.consumers: list[Consumer] = []
        self.ready: deque[Consumer] = deque()  # willing consumers, in turn
        self.pending = Pending()
        self.targets: dict[object, Target] = {}
        self.groups: Groups | None = None  # made with the first grouped message
        self.area: PagedQueue | None = None  # what is in pages; None while nothing is
        self.plain = True  # nothing about its consumers stands against handing a message over as it arrives
        self.simple = True  # and nothing is in pages
        self.waiting = self.attributes.consumers_before_dispatch > 0
        self.on_hold = 0  # jobs that must be done before anybody is given anything
        self._dispatch_timer: Timer | None = None
        self._dispatching = False
        self.review()

    # ---- consumers come, go, wake and rest

    def join(self, consumer: Consumer) -> None:
        """A consumer comes. Raises `Refused` beyond max-consumers."""
        limit = self.attributes.max_consumers
        if 0 <= limit <= len(self.consumers):
            raise Refused(f"queue {self.name} has its max-consumers of {limit} already")
        self.used = True
        self.consumers.append(consumer)
        consumer.source = self._source_for(consumer)
        self.review()
        self._await_consumers()
        if consumer.willing:
            self.wake(consumer)

    def leave(self, consumer: Consumer) -> None:
        """A consumer goes; what was set aside for it is anybody's again."""
        self.consumers.remove(consumer)
        self.rest(consumer)
        self._forget_source(consumer)
        consumer.source = (
            Pending()
        )  # of the old one it needs nothing, and who has refused a message is remembered
        self._free_groups(consumer)
        if self.area is not None:
            self.area.left(consumer)
        if not self.consumers:
            self.waiting = self.attributes.consumers_before_dispatch > 0
            self.cancel_dispatch_timer()
        self.review()

    def wake(self, consumer: Consumer) -> None:
        """A consumer can take messages (again)."""
        consumer.willing = True
        if not consumer.ready and (not self.attributes.exclusive or self.consumers[0] is consumer):
            consumer.ready = True
            self.ready.append(consumer)
            if self.count:
                self.dispatch()
            elif self.area is not None:
                self.area.demand()

    def rest(self, consumer: Consumer) -> None:
        """A consumer can take no more for now."""
        consumer.willing = False
        if consumer.ready:
            consumer.ready = False
            self.ready.remove(consumer)

    def review(self) -> None:
        """Set ``plain`` and ``simple`` anew, and let the first consumer of an exclusive queue be the one in turn."""
        attributes = self.attributes
        self.plain = not (
            self.groups is not None
            or self.paused
            or self.waiting
            or self.on_hold
            or attributes.non_destructive
            or self.hooks.delivered
            is not None  # which are called in one place, `hand_over` and `Queue.settle`
            or self.hooks.settled is not None
        )
        self.simple = self.plain and self.area is None
        if attributes.exclusive and self.consumers:
            first, *others = self.consumers
            for other in others:
                if other.ready:
                    other.ready = False
                    self.ready.remove(other)
            if first.willing and not first.ready:
                first.ready = True
                self.ready.append(first)

    def reconsider(self) -> None:
        """Attributes have changed: whoever may go on, goes on."""
        self.waiting = self.waiting and self.attributes.consumers_before_dispatch > 0
        if self.attributes.exclusive:
            for other in self.consumers[1:]:
                self._free_groups(other)
        self.review()
        self._await_consumers()
        for consumer in self.consumers:
            if consumer.willing:
                self.wake(consumer)
        self.dispatch()

    def _source_for(self, consumer: Consumer) -> Pending:
        if consumer.matches is None:
            return self.pending
        target = self.targets.get(consumer.matches_key)
        if target is None:
            target = self._open_target(consumer.matches_key, consumer.matches)
        target.consumers += 1
        return target.pending

    def _open_target(self, key: object, matches: Matches) -> Target:
        target = self.targets[key] = Target(matches)
        for ref in self.everything_pending():
            if matches(ref.message):
                target.pending.append(ref)
        return target

    def _forget_source(self, consumer: Consumer) -> None:
        target = self.targets.get(consumer.matches_key)
        if target is not None and target.pending is consumer.source:
            target.consumers -= 1
            if not target.consumers:
                del self.targets[consumer.matches_key]

    # ---- consumers-before-dispatch and delay-before-dispatch

    def _await_consumers(self) -> None:
        if not self.waiting:
            return
        if len(self.consumers) >= self.attributes.consumers_before_dispatch:
            self._start_dispatch()
        elif self._dispatch_timer is None and self.attributes.delay_before_dispatch >= 0:
            clock = self.broker.clock.steady
            due = clock.now + self.attributes.delay_before_dispatch
            self._dispatch_timer = clock.call_at(due, self._start_dispatch)

    def _start_dispatch(self) -> None:
        self.waiting = False
        self.cancel_dispatch_timer()
        self.review()
        self.dispatch()

    def cancel_dispatch_timer(self) -> None:
        """Wait no longer for consumers."""
        if self._dispatch_timer is not None and self._dispatch_timer.active():
            self._dispatch_timer.cancel()
        self._dispatch_timer = None

    # ---- lists

    def matching(self, message: Message) -> list[Pending]:
        """The lists of the selectors that a message matches."""
        return [target.pending for target in self.targets.values() if target.matches(message)]

    def taker_of(self, message: Message, matching: list[Pending]) -> Consumer | None:
        """Whose turn it is to have a message as it arrives; None where nobody ready may, or something comes first."""
        ready, everything = self.ready, self.pending
        for _ in range(len(ready)):
            consumer = ready[0]
            ready.rotate(-1)
            source = consumer.source
            if source is everything or source in matching:
                # nothing waits for a consumer that is ready, except what it has just refused
                return consumer if source.head() is None else None
        return None

    def enlist(self, ref: Reference, at_tail: bool = True, matching: list[Pending] | None = None) -> None:
        """List a pending reference everywhere its takers look for it; ``matching`` where that is known already."""
        self.count += 1
        if (
            ref.message.traits.group is not None
            and self.groups is None
            and not self.attributes.non_destructive
        ):
            self.groups = Groups()
            self.review()
        self._list(ref, at_tail, matching)

    def _list(self, ref: Reference, at_tail: bool, matching: list[Pending] | None = None) -> None:
        if matching is None:
            matching = self.matching(ref.message) if self.targets else []
        for pending in (self.pending, *matching):
            if not at_tail:
                pending.restore(ref)
                continue
            if ref.place is None:
                pending.append(ref)
            else:
                pending.insert(ref)
            pending.sweep(self.count)

    def _free_groups(self, consumer: Consumer) -> None:
        """What was set aside for ``consumer`` may go to anybody."""
        if self.groups is not None:
            for ref in self.groups.leave(consumer):
                self._list(ref, at_tail=False)
            if self.area is not None:
                self.area.free(consumer)

    def sweep(self) -> None:
        """Forget what has left the lists, where that is more than half of them."""
        self.pending.sweep(self.count)
        for target in self.targets.values():
            target.pending.sweep(self.count)

    def first(self) -> Reference | None:
        """The next message to be delivered, whoever may take it."""
        head = self.pending.head()
        if self.groups is None:
            return head
        heads = [head, *(consumer.held.head() for consumer in self.consumers if consumer.held is not None)]
        return min((ref for ref in heads if ref is not None), key=attrgetter("order"), default=None)

    def snapshot(self) -> Iterator[Reference]:
        """What is pending in memory now, in the order of delivery, whatever happens while it is looked at."""
        held = [consumer.held.snapshot() for consumer in self.consumers if consumer.held is not None]
        if not held:
            return self.pending.snapshot()
        return _distinct(merge(self.pending.snapshot(), *held, key=attrgetter("order")))

    def everything_pending(self) -> Iterator[Reference]:
        """All pending messages in the order of delivery."""
        held = [consumer.held for consumer in self.consumers if consumer.held is not None]
        return _distinct(merge(self.pending, *held, key=attrgetter("order"))) if held else iter(self.pending)

    # ---- dispatch

    def dispatch(self) -> None:
        """Give what is pending to the ready consumers in turn, until nobody can take more."""
        ready = self.ready
        if not ready or not self.count or self.paused or self.waiting or self.on_hold or self._dispatching:
            if self.area is not None and not self._dispatching:
                self.area.demand()
            return
        self._dispatching = True  # what a consumer does with a message may lead back here
        try:
            idle = 0
            while self.count and idle < len(ready):
                consumer = ready[0]
                ready.rotate(-1)
                ref = self._next_for(consumer)
                if ref is None:
                    idle += 1
                else:
                    idle = 0
                    self.hand_over(ref, consumer)
        finally:
            self._dispatching = False
        if self.targets:
            self.sweep()  # what went out through one list is left over in the others
        if self.area is not None:
            self.area.demand()

    def hand_over(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver what `_next_for` found."""
        self.count -= 1
        self.delivering += 1
        ref.state = DELIVERING
        ref.deliveries += 1
        ref.avoid = None
        if self.groups is not None:
            self._end_group(ref)
        if ref.place is not None and self.area is not None:
            self.area.on_delivered(ref, consumer)
        elif ref.message.traits.durable and self.attributes.durable:
            self.broker.storage.delivered(ref)
        elif ref.message.traits.retained >= self.retains_from:
            self.broker.storage.log(ref, DELIVERED)
        if self.hooks.delivered is not None:
            self.hooks.delivered(ref)
        consumer.take_reference(ref)

    def _end_group(self, ref: Reference) -> None:
        """What was set aside for the owner of a group that ends with ``ref`` is anybody's."""
        assert self.groups is not None
        owner = self.groups.owner(ref)
        for freed in self.groups.delivered(ref):
            self._list(freed, at_tail=False)
        if self.area is not None and owner is not None and self.groups.owner(ref) is None:
            self.area.free(owner)

    def _next_for(self, consumer: Consumer) -> Reference | None:
        """The first pending message this consumer may have, taken off its list."""
        while True:
            source = self._sooner(consumer)
            ref = source.head()
            if ref is None:
                return None
            expires = ref.message.expires
            if expires and expires <= self.broker.clock.now:
                self.expire(ref)
                continue
            if self.area is not None and not self.area.may_have(ref, consumer):
                return None
            if ref.avoid is consumer and source is not consumer.held and self._another_wants(ref, consumer):
                return None
            source.pop_head(ref)
            if self.groups is not None:
                owner = self.groups.claim(ref, consumer)
                if owner is not consumer:
                    if ref.place is None or self.area is None or not self.area.spill(ref, owner):
                        self.groups.set_aside(ref, owner)
                    continue
            return ref

    def next_in_memory(self, consumer: Consumer) -> Reference | None:
        """The message that a consumer is offered next, unless one on disk comes before it."""
        return self._sooner(consumer).head()

    def _sooner(self, consumer: Consumer) -> Pending:
        """Where the next message of a consumer is: its source, or what was set aside for it."""
        source, held = consumer.source, consumer.held
        assert source is not None
        if held is None:
            return source
        first, own = source.head(), held.head()
        return held if own is not None and (first is None or own.order <= first.order) else source

    def _another_wants(self, ref: Reference, consumer: Consumer) -> bool:
        if self.groups is not None and self.groups.owner(ref) is consumer:
            return False
        return any(
            other is not consumer
            and (other.matches is None or other.matches(ref.message))
            and (self.area is None or self.area.may_have(ref, other))
            for other in self.ready
        )

    def expire(self, ref: Reference) -> None:
        """A message has outlived its time."""
        raise AssertionError("a queue expires its messages")


def _distinct(refs: Iterable[Reference]) -> Iterator[Reference]:
    last = None
    for ref in refs:
        if ref is not last:  # what was set aside for a group may be listed twice
            yield ref
        last = ref
