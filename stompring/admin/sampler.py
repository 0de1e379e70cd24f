"""Samples the counters of queues, addresses, connections and consumers once a second, for rates and history.

A round skips unchanged things after a comparison of a few numbers, and runs in time slices of the reactor. Sampling
adds no work per message: the broker maintains the counters even without samples.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import add
from typing import Any, NamedTuple, Protocol

from stompring.broker.address import Address
from stompring.broker.clock import Timer, cancel
from stompring.broker.history import RATE_PERIOD, History, HistoryMemory
from stompring.broker.message import AddressBase
from stompring.broker.queue import Queue
from stompring.session.session import Session
from stompring.session.subscription import Subscription

from .context import AdminContext
from .json_schema import Fields, Thing, number

log = logging.getLogger(__name__)

#: Seconds of one time slice of a round of samples.
TIME_SLICE = 0.002

#: Number of queues, addresses, connections or consumers sampled between two checks whether the time slice is over.
ITEMS_PER_STEP = 20

#: Maximum share of time for sampling: after a round that took longer the sampler skips rounds, at most ``MAX_SKIPPED``.
#: The next round divides the changes evenly among the seconds since the last one.
MAX_SHARE, MAX_SKIPPED = 0.05, 4

#: Seconds after which a consumer is stalled: it has not settled its oldest message, it has rejected no message, and its
#: queue has further messages for it.
STALLED = 60

#: Seconds between two checks for stalled consumers.
STALL_CHECK_INTERVAL = 5

#: Seconds between two rounds that remove old samples.
SWEEP_INTERVAL = 60

QUEUE_RATES = ("added", "delivered", "acknowledged", "redelivered", "evicted", "expired", "killed", "paged")
QUEUE_GAUGES = ("messageCount", "deliveringCount", "scheduledCount", "pagedCount")
ADDRESS_RATES = (*QUEUE_RATES, "unrouted", "dropped")
BROKER_RATES = QUEUE_RATES
BROKER_GAUGES = (*QUEUE_GAUGES, "connectionCount", "memoryUsage", "diskUsage")
CONNECTION_RATES = ("sent", "delivered", "acknowledged")
CONNECTION_GAUGES = ("deliveringCount", "outgoingBytes")
CONSUMER_RATES = ("delivered", "acknowledged")

#: The number of rates in the values of a queue. The gauges follow the rates.
RATES = len(QUEUE_RATES)

#: The values of a new queue: no messages, and all counters are 0.
NOTHING = (0,) * (RATES + len(QUEUE_GAUGES))

#: Positions of these values in the result of `queue_values`.
DELIVERED, TO_DISK, DELIVERING, SCHEDULED, PAGED = 1, 7, 9, 10, 11

#: Samples of diskUsage are integers: the used share (0 to 1) times `DISK_UNIT`.
DISK_UNIT = 10_000


class OldestUnsettled(NamedTuple):
    """The oldest unsettled message of a consumer, and the number of messages that the consumer has rejected.

    The consumer counts as active if one of both changes.
    """

    message: bytes
    rejected: int
    since: int  # epoch second of the first check with this message and number


class Sampled(Protocol):
    """A thing with a history."""

    @property
    def history(self) -> History | None: ...


def rate_fields(rates: Sequence[str], meanings: Mapping[str, str]) -> Fields[Any]:
    """Return a field ``…Rate`` for each rate in ``meanings``. ``rates``: names of the rates in a history, in order."""
    return {
        f"{name}Rate": number(
            f"{meaning} Per second, mean of the last 10 seconds.",
            partial(_rate, rates.index(name)),
            null=True,
        )
        for name, meaning in meanings.items()
    }


def _rate(index: int, thing: Sampled) -> float | None:
    history = thing.history
    return None if history is None else history.rate(index)


class Sampler:
    """Samples the histories of the broker and its queues, addresses, connections and consumers."""

    # the clock that measures each slice of sampling
    seconds: Callable[[], float] = staticmethod(time.perf_counter)
    history: History | None = None  # history of the broker as a whole
    _begun = 0  # start of sampling: ms of the steady clock
    _base = 0  # start of sampling: epoch second of the wall clock
    _timer: Timer | None = None
    _round: Iterator[None] | None = None
    _late = 1  # seconds between the last round and the current one
    _spent = 0.0  # seconds of work in the current round
    _skipped = 0  # number of rounds to skip
    _swept = 0  # second of the last removal of old samples
    _checked = 0  # second of the last check for stalled consumers

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._broker = context.broker
        self.memory = HistoryMemory()
        self._recent = HistoryMemory(((1, RATE_PERIOD + 1),))  # samples of consumers, only for their rates
        self._totals = list(NOTHING)  # sums over all queues; rates include those of deleted queues
        self._by_address: dict[AddressBase, list[int]] = {}  # changes of an address's queues in this round
        #: oldest unsettled message of each consumer with a backlog at the last check
        self._oldest_unsettled: dict[Subscription, OldestUnsettled] = {}

    # ---- time

    def start(self) -> None:
        """Start sampling. The first rates count the changes since this call."""
        clock = self._broker.clock
        clock.refresh()
        self._begun, self._base = clock.steady.now, clock.now // 1000
        for memory in (self.memory, self._recent):
            memory.second = memory.sampling = self._base
        self._swept = self._base
        self._broker.directory.on_queue_deleted = self._queue_deleted
        self._set_timer()
        self._run(self._first_round())

    def stop(self) -> None:
        """Stop sampling."""
        cancel(self._timer)
        self._timer = None
        self._round = None
        self._broker.directory.on_queue_deleted = None

    def stalled(self) -> Mapping[Subscription, int]:
        """Map stalled consumers (see `STALLED`) to the age in seconds of their oldest unacknowledged message."""
        until = self.memory.second - STALLED
        return {
            consumer: STALLED + until - oldest.since
            for consumer, oldest in self._oldest_unsettled.items()
            if oldest.since <= until and not consumer.ended
        }

    def shift(self) -> int:
        """Milliseconds by which the wall clock was adjusted since the start; less than 2 seconds count as 0."""
        clock = self._broker.clock
        clock.refresh()
        expected = self._base * 1000 + clock.steady.now - self._begun
        seconds = round((clock.now - expected) / 1000)
        return seconds * 1000 if abs(seconds) > 1 else 0

    def _set_timer(self) -> None:
        steady = self._broker.clock.steady
        elapsed = (steady.now - self._begun) // 1000
        self._timer = steady.call_at(self._begun + (elapsed + 1) * 1000, self._on_timer)

    def _on_timer(self) -> None:
        clock = self._broker.clock
        clock.refresh()
        self._set_timer()
        if self._skipped:
            self._skipped -= 1
            return
        memory = self.memory
        second = self._base + (clock.steady.now - self._begun) // 1000
        if self._round is None and second > memory.second:  # skip this second while the last round runs
            self._late = second - memory.second
            memory.sampling = self._recent.sampling = second
            self._run(self._sample_all())

    def _run(self, work: Iterator[None] | None = None) -> None:
        work = self._round = work or self._round
        if work is None:
            return
        begun = now = self.seconds()
        try:
            for _ in work:
                now = self.seconds()
                if now >= begun + TIME_SLICE:
                    self._spent += now - begun
                    self._broker.clock.soon(self._run)
                    return
        except Exception:
            log.exception("sampling of counters failed: rates and history have a gap")
        self._round = None
        self._skipped = min(MAX_SKIPPED, int((self._spent + now - begun) / MAX_SHARE))
        self._spent = 0.0

    # ---- a round

    def _first_round(self) -> Iterator[None]:
        directory = self._broker.directory
        yield from _in_steps(directory.queues.values(), self._new_queue)
        yield from _in_steps(directory.addresses.values(), self._new_address)
        self._finish()

    def _sample_all(self) -> Iterator[None]:
        directory = self._broker.directory
        yield from _in_steps(directory.queues.values(), self._sample_queue)
        by_address, self._by_address = self._by_address, {}
        yield from _in_steps(
            directory.addresses.values(), lambda each: self._sample_address(each, by_address.get(each))
        )
        yield from _in_steps(self._context.connections.open.values(), self._sample_session)
        if self.memory.sampling - self._checked >= STALL_CHECK_INTERVAL:
            yield from self._check_consumers()
        self._finish()
        memory = self.memory
        if memory.second - self._swept >= SWEEP_INTERVAL or memory.used > memory.max_bytes:
            yield from self._sweep()

    def _finish(self) -> None:
        context, memory = self._context, self.memory
        monitor = context.disk_monitor
        reading = None if monitor is None else monitor.reading
        values = (
            *self._totals,
            len(context.connections),
            self._broker.memory.bytes,
            0 if reading is None else round(reading.usage * DISK_UNIT),
        )
        if self.history is None:
            self.history = History(memory, values, len(BROKER_RATES), memory.sampling)
        else:
            self.history.record(values, self._late)
        memory.second = self._recent.second = memory.sampling

    def _new(self, memory: HistoryMemory, rates: Sequence[str], gauges: Sequence[str]) -> History:
        """Start the history of an object that was created since the last round."""
        return History(memory, (0,) * (len(rates) + len(gauges)), len(rates), memory.sampling - self._late)

    def _new_address(self, address: Address) -> None:
        address.history = History(
            self.memory, _of_address(address, NOTHING), len(ADDRESS_RATES), self.memory.sampling
        )

    def _new_queue(self, queue: Queue) -> None:
        """Start the history of a queue with its present counters."""
        if queue.deleted:
            return
        values = queue_values(queue, 0, 0)
        queue.history = history = History(
            self.memory, NOTHING if values == NOTHING else values, RATES, self.memory.sampling
        )
        history.changes = _changes(queue)
        self._count(queue.address, [*NOTHING[:RATES], *values[RATES:]])

    def _sample_queue(self, queue: Queue) -> None:
        if queue.deleted:
            return
        history = queue.history
        changes = _changes(queue)
        if history is None:  # the queue was created since the last round
            history = queue.history = self._new(self.memory, QUEUE_RATES, QUEUE_GAUGES)
        last = history.last
        if (
            changes == history.changes
            and queue.delivering == last[DELIVERING]
            and queue.scheduled_count == last[SCHEDULED]
            and queue.paged_count == last[PAGED]
        ):
            return
        history.changes = changes
        values = queue_values(queue, last[DELIVERED], last[TO_DISK] + max(0, queue.paged_count - last[PAGED]))
        rises = history.record(values, self._late)
        for value, before in zip(values[RATES:], last[RATES:], strict=True):
            rises.append(value - before)
        self._count(queue.address, rises)

    def _count(self, address: AddressBase, changes: list[int]) -> None:
        """Add the changes of a queue to the changes of its address and to the sums of the broker."""
        self._totals = list(map(add, self._totals, changes))
        known = self._by_address.get(address)
        self._by_address[address] = changes if known is None else list(map(add, known, changes))

    def _queue_deleted(self, queue: Queue) -> None:
        """Count the last changes of a deleted queue, and remove its messages from the sums."""
        history, queue.history = queue.history, None
        last = NOTHING if history is None else history.last
        changes = [
            max(0, value - before)
            for value, before in zip(
                queue_values(queue, last[DELIVERED], last[TO_DISK])[:RATES], last[:RATES], strict=True
            )
        ]
        self._count(queue.address, [*changes, *[-before for before in last[RATES:]]])

    def _sample_address(self, address: Address, of_queues: list[int] | None) -> None:
        """Sample an address. ``of_queues`` are the changes of its queues in this round."""
        history = address.history
        own = address.routed_messages + address.unrouted_messages + address.dropped_messages
        if history is None:
            history = address.history = self._new(self.memory, ADDRESS_RATES, QUEUE_GAUGES)
        elif of_queues is None and own == history.changes:
            return
        history.changes = own
        last = history.last
        before = [*last[:RATES], *last[len(ADDRESS_RATES) :]]
        values = _of_address(address, before if of_queues is None else list(map(add, before, of_queues)))
        if values != last:
            history.record(values, self._late)

    def _sample_session(self, session: Session) -> None:
        if session.closed:
            return
        delivering = 0
        delivered, acknowledged = session.delivered_before, session.acknowledged_before
        for subscription in session.subscriptions.values():
            unsettled = subscription.unsettled_count
            received = subscription.settled + unsettled
            delivering += unsettled
            delivered += received
            settled = subscription.messages_acknowledged
            acknowledged += settled
            own = subscription.history
            if own is None:
                own = subscription.history = self._new(self._recent, CONSUMER_RATES, ())
            if received != own.last[0] or settled != own.last[1]:
                own.record((received, settled), self._late)
        history = session.history
        if history is None:
            history = session.history = self._new(self.memory, CONNECTION_RATES, CONNECTION_GAUGES)
        values = (
            session.messages_in,
            delivered,
            acknowledged,
            delivering,
            max(0, session.outbox.size - session.outbox.capacity),
        )
        if values != history.last:
            history.record(values, self._late)

    def _check_consumers(self) -> Iterator[None]:
        """Note the oldest unsettled message of each consumer whose queue has further messages for it."""
        oldest: dict[Subscription, OldestUnsettled] = {}
        self._checked = now = self.memory.sampling
        examined = 0
        for session in list(self._context.connections.open.values()):
            for subscription in list(session.subscriptions.values()):
                examined += 1
                if examined % ITEMS_PER_STEP == 0:
                    yield
                first = subscription.first_unsettled
                if first is None or subscription.queue.paused or not subscription.has_waiting:
                    continue
                before = self._oldest_unsettled.get(subscription)
                if before is None or before.message != first or before.rejected != subscription.rejected:
                    before = OldestUnsettled(first, subscription.rejected, now)
                oldest[subscription] = before
        self._oldest_unsettled = oldest

    def _sweep(self) -> Iterator[None]:
        """Remove old samples, and count the memory in use."""
        self._swept = self.memory.second
        directory = self._broker.directory
        used = 0
        histories: Iterable[History | None] = [
            self.history,
            *[queue.history for queue in directory.queues.values()],
            *[address.history for address in directory.addresses.values()],
            *[session.history for session in self._context.connections],
            *[
                subscription.history
                for session in self._context.connections
                for subscription in session.subscriptions.values()
            ],
        ]
        for index, history in enumerate(histories):
            if history is not None:
                used += history.sweep()
            if index % ITEMS_PER_STEP == 0:
                yield
        self.memory.review(used)


def _in_steps(things: Iterable[Thing], sample: Callable[[Thing], object]) -> Iterator[None]:
    """Sample all things, `ITEMS_PER_STEP` between two checks of the time slice."""
    listed = list(things)
    for start in range(0, len(listed), ITEMS_PER_STEP):
        for thing in listed[start : start + ITEMS_PER_STEP]:
            sample(thing)
        yield


def _changes(queue: Queue) -> int:
    """A number that rises with each change of a queue, except for deliveries and due messages."""
    return (
        queue.messages_added
        + queue.messages_acknowledged
        + queue.messages_requeued
        + queue.messages_replaced
        + queue.messages_expired
        + queue.messages_killed
    )


def queue_values(queue: Queue, delivered: int, paged: int) -> tuple[int, ...]:
    """The values of a queue's history: `QUEUE_RATES`, `QUEUE_GAUGES`.

    ``delivered``: lower bound for the number of deliveries, because `Queue.messages_delivered` falls for a moment while
    the broker requeues messages in slices. ``paged``: number of messages paged so far, which a queue does not count.
    """
    return (
        queue.messages_added,
        max(delivered, queue.messages_delivered),
        queue.messages_acknowledged,
        queue.messages_requeued,
        queue.messages_replaced,
        queue.messages_expired,
        queue.messages_killed,
        paged,
        queue.message_count,
        queue.delivering,
        queue.scheduled_count,
        queue.paged_count,
    )


def _of_address(address: Address, of_queues: Sequence[int]) -> tuple[int, ...]:
    """The values of an address's history. ``of_queues``: the values of its queues, summed."""
    return (
        address.routed_messages,
        *of_queues[1:RATES],
        address.unrouted_messages,
        address.dropped_messages,
        *of_queues[RATES:],
    )
