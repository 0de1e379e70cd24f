"""The broker: what its queues share, and what happens to messages that leave them otherwise than by a consumer."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count

from stompring.settings.match import SettingsRepository, is_internal
from stompring.settings.model import BrokerConfiguration

from .address import Address
from .clock import (
    DELIVERY_SLICE,
    FRAME_SLICE,
    NOTICED,
    Background,
    Clock,
    Due,
    Effort,
    FromNow,
    Reactor,
    Slices,
)
from .directory import AutoCreate, AutoDelete, Directory, SubscriptionMemory, WildcardAddresses
from .lifetime import Expiry, TimerQueue
from .limits import GlobalMemoryLimit, LogLimit, MemoryLimit, MemoryLimits, RejectionLog, UnfinishedFrames
from .message import Numbers, repeated
from .ports import POSTPONED, NoStorage, PagedQueues, Paging, Policies, Reason, Storage
from .publish import ByteQuota, Diverts, send_dead_letter, send_expired
from .queue import DueBatch, Queue
from .reference import SCHEDULED, Reference
from .retroactive import RetroactiveAddresses
from .watch import Notifications, SlowConsumers


class Broker:
    """Addresses, queues, time and memory of one broker. One thread; nothing here waits or does I/O."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Reactor,
        policies: Policies,
        storage: Storage | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """``now`` measures slices of work, in seconds: a clock that never jumps, where the reactor's may."""
        self.configuration = configuration
        self.clock = Clock(reactor)
        self.started_at = self.clock.now
        self.begun = self.clock.steady.now  # by which its age is told, whatever the wall clock is set to
        self.policies = policies
        self.rejections = RejectionLog(self.clock.steady)
        self.log_limit = LogLimit(self.clock.steady)
        self.transaction_bytes = ByteQuota(
            configuration.global_max_transaction_size
        )  # by all open transactions
        self.subscription_memory = SubscriptionMemory(configuration.global_max_subscription_size)
        self.unfinished = UnfinishedFrames(configuration.global_max_unfinished_size, self.clock)
        self.slow_consumers = SlowConsumers(self)
        self.notifications = Notifications(self)
        self.storage: Storage = storage or NoStorage()
        self.paging: Paging | None = None  # with a store both of these are set, else nothing ever pages
        self.areas: PagedQueues | None = None
        self.memory = GlobalMemoryLimit(
            configuration.global_max_size,
            configuration.global_max_messages,
            self._pageable_addresses,
        )
        self.disk = MemoryLimit()  # shut while the disk is full
        self.delivery_suspended = False
        self.stopping = False  # messages that no store knows are not requeued or killed one by one
        self.durable_limits = MemoryLimits(
            self.memory, self.disk, self.storage.write_limit
        )  # what durable messages need
        self.effort = Effort()
        settings = SettingsRepository.of(configuration)
        self.directory = Directory(self, settings, WildcardAddresses(configuration.wildcard), self.memory)
        #: where requests are sent; it is no address of the directory, and has no queues
        name = configuration.management_address
        self.management = Address(name, frozenset(), settings.lookup(name), self.directory)
        self.diverts = Diverts(self)
        for divert in configuration.diverts:
            self.diverts.add(divert)
        self.retroactive = RetroactiveAddresses(self)
        self.auto_create = AutoCreate(self, self.directory)
        self.auto_delete = AutoDelete(self, self.directory)
        self.background = Background(self.clock, now or reactor.seconds)
        self.scans = Background(self.clock, now or reactor.seconds)  # of queues, for selectors and browsers
        self.delivery_slices = Slices(self.clock, now or reactor.seconds, DELIVERY_SLICE)
        self.frame_slices = Slices(self.clock, now or reactor.seconds, FRAME_SLICE)
        self.schedule = TimerQueue(self.clock, self.background, _still_scheduled, self._fall_due)
        steady = self.clock.steady
        one = steady is self.clock  # then all that falls due at one moment does so in one order
        self.delays = (
            self.schedule if one else TimerQueue(steady, self.background, _still_delayed, self._fall_due)
        )
        self.expiry = Expiry(self, send_expired)
        self.send_dead_letter = send_dead_letter  # the layer of queues calls it
        self.random = random.Random().random  # nosec B311
        self.copying_to: list[str] = []  # addresses that a copy is on its way to
        self.numbers = Numbers(1)  # of messages
        self.next_queue_number = count(1).__next__

    def suspend_delivery(self) -> None:
        """Deliver no message of any queue, in memory or in pages, until `resume_delivery`. All else goes on."""
        if not self.delivery_suspended:
            self.delivery_suspended = True
            for queue in self.directory.queues.values():
                queue.dispatcher.suspend()

    def resume_delivery(self) -> None:
        """Undo `suspend_delivery`."""
        if self.delivery_suspended:
            self.delivery_suspended = False
            for queue in list(self.directory.queues.values()):
                queue.dispatcher.resume()

    def next_message_number(self) -> int:
        """A number that no message has had so far."""
        return self.numbers.next()

    def _pageable_addresses(self) -> Collection[Address]:
        """The addresses of which the largest pages first; internal ones never do."""
        addresses = self.directory.addresses.values()
        if not len(self.retroactive):
            return addresses
        return [address for address in addresses if not is_internal(address.name)]

    # ---- leaving

    def replaced(self, ref: Reference) -> None:
        """A message has left its queue because a ring was full."""
        queue = ref.queue
        if queue.evicted is None:
            queue.drop(ref, Reason.REPLACED)
            return
        with self.together():
            queue.evicted(ref)
            queue.drop(ref, Reason.REPLACED)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is told to the store within takes effect as one: a message that moves is never in both places."""
        self.storage.begin()
        try:
            yield
        finally:
            self.storage.commit()

    def consider_deleting(self, queue: Queue) -> None:
        """A queue lost its last consumer or a message: auto-delete."""
        self.auto_delete.consider(queue)

    def consider_deleting_address(self, address: Address) -> None:
        """An address lost a queue: auto-delete."""
        self.auto_delete.consider_address(address)

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
            queue = ref.queue
            batch = batches.get(queue)
            if batch is None:
                batch = batches[queue] = queue.due_batch()
            queue.on_due(self.recur(ref), batch)

        return falls_due

    def recur(self, ref: Reference) -> list[Reference]:
        """What a scheduled message delivers now; a recurring one stays scheduled and delivers a copy of itself."""
        recurrence, queue, now = ref.recurrence, ref.queue, self.clock.now
        if recurrence is None:
            return [ref]
        series = recurrence.series if recurrence.cron is not None else None
        following = recurrence.advance(self._due(ref), now)
        queue.scheduled.pop(ref.message.number, None)
        if following is None and series is None:
            ref.recurrence = None
            return [ref]
        copy = repeated(ref, self.next_message_number(), now)
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

    def stop(self) -> None:
        """All that was begun is done, no timer is left, and all is safe."""
        self.background.finish()
        self.scans.abandon()
        self.schedule.stop()
        self.delays.stop()
        self.expiry.stop()
        self.auto_delete.stop()
        self.slow_consumers.stop()
        self.rejections.stop()
        self.log_limit.stop()
        self.policies.stop()
        if self.areas is not None:
            self.areas.stop()
        self.storage.close()


def _still_scheduled(ref: Reference, due: int) -> bool:
    return ref.state == SCHEDULED and ref.due == due


def _still_delayed(ref: Reference, due: int) -> bool:
    return ref.state == SCHEDULED and isinstance(ref.due, FromNow) and ref.due.steady == due
