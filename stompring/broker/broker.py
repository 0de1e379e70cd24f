"""The broker: what its queues share, and what happens to messages that leave them otherwise than by a consumer."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from stompring.errors import Refused
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    AddressSettings,
    BrokerConfiguration,
    QueueConfiguration,
    RoutingType,
)

from . import page_mode
from .address import Address
from .background import Background
from .clock import NOTICED, Clock, FromNow, Reactor
from .directory import Directory
from .disposal import Disposal
from .hooks import Policies
from .log_limit import LogLimit
from .memory import Room, Rooms, SharedRoom
from .message import Message
from .paging import PagedQueues, Paging
from .provision import Provision
from .queue import DueBatch, Queue
from .recurrence import Recurrence
from .redelivery import lifetime, redelivery_delay
from .reference import DELIVERING, SCHEDULED, Reference
from .refusals import Refusals
from .slow_consumers import SlowConsumers
from .storage import POSTPONED, NoStorage, Reason, Storage
from .timers import TimerQueue
from .transaction import ByteQuota
from .transfer import Transfer, copy_for, repeated
from .wildcards import WildcardAddresses

log = logging.getLogger(__name__)


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
        self.refusals = Refusals(self.clock.steady)
        self.log_limit = LogLimit(self.clock.steady)
        self.held = ByteQuota(configuration.global_max_transaction_size)  # by all open transactions
        self.slow_consumers = SlowConsumers(self)
        self.storage: Storage = storage or NoStorage()
        self.paging: Paging | None = None  # with a store both of these are set, else nothing ever pages
        self.areas: PagedQueues | None = None
        self.memory = SharedRoom(
            configuration.global_max_size,
            configuration.global_max_messages,
            lambda: self.directory.addresses.values(),
        )
        self.disk = Room()  # shut while the disk is full
        self.durable_rooms = Rooms(self.memory, self.disk, self.storage.room)  # what durable messages need
        settings = SettingsRepository.of(configuration)
        self.directory = Directory(self, settings, WildcardAddresses(configuration.wildcard), self.memory)
        self.provision = Provision(self, self.directory)
        self.disposal = Disposal(self, self.directory)
        self.background = Background(self.clock, now or reactor.seconds)
        self.schedule = TimerQueue(self.clock, self.background, _still_scheduled, self._fall_due)
        steady = self.clock.steady
        one = steady is self.clock  # then all that falls due at one moment does so in one order
        self.delays = (
            self.schedule if one else TimerQueue(steady, self.background, _still_delayed, self._fall_due)
        )
        self.expiry = TimerQueue(self.clock, self.background, _may_expire, lambda: self._expire)
        self.random = random.Random().random  # nosec B311
        self._transfers: list[str] = []  # addresses that a copy is on its way to
        self.next_message_number = count(1).__next__
        self.next_queue_number = count(1).__next__

    # ---- sending

    def send(self, message: Message, due: int = 0, recurrence: Recurrence | None = None) -> None:
        """Route a message that its address admitted; at ``due`` (epoch ms) when that is given."""
        address = message.address
        if due:
            queues = address.choose(message)
            pages = page_mode.pages_of(address) if recurrence is None else None
            if pages is not None:
                page_mode.spread(pages, message, queues, due)
            else:
                for queue in queues:  # each counts its own repeats
                    queue.schedule(message, due, None if recurrence is None else replace(recurrence))
            reached = address.count_routed(len(queues))
        else:
            reached = page_mode.route(address, message)
        if not reached:
            self.unrouted(message)

    def send_to_queue(
        self, queue: Queue, message: Message, due: int = 0, recurrence: Recurrence | None = None
    ) -> None:
        """Put a message into one queue of its address (a fully qualified queue name)."""
        accepted = queue.open and (queue.accepts is None or queue.accepts(message))
        message.address.count_routed(int(accepted))
        if not accepted:
            self.unrouted(message)
        elif recurrence is None and (pages := page_mode.pages_of(message.address)) is not None:
            page_mode.spread(pages, message, [queue], due)
        elif due:
            queue.schedule(message, due, recurrence)
        else:
            queue.enqueue(message)

    def unrouted(self, message: Message) -> None:
        """No queue wanted a message: gone, unless send-to-dla-on-no-route."""
        address, settings = message.address, message.address.settings
        if settings.send_to_dla_on_no_route and settings.dead_letter_address != address.name:
            self._transfer(message, address.name, settings, settings.dead_letter_address)

    # ---- leaving

    def exhausted(self, ref: Reference) -> bool:
        """After a failed attempt: move the message to the dead-letter address if it was the last one allowed.

        In a queue of the dead-letter address itself messages stay, whatever the number of attempts.
        """
        settings = ref.queue.address.settings
        limit = settings.max_delivery_attempts
        if (
            limit < 0
            or ref.attempts < max(limit, 1)
            or settings.dead_letter_address == ref.queue.address.name
        ):
            return False
        queue = ref.queue
        queue.detach(ref)
        queue.messages_killed += 1
        with self.together():
            if self._transfer(ref.message, queue.name, settings, settings.dead_letter_address):
                heard = queue.hooks.dead_lettered
            else:
                heard = queue.hooks.killed
                log.warning(
                    "message %d of queue %s is dropped after %d failed deliveries: %s",
                    ref.message.number,
                    queue.name,
                    ref.attempts,
                    "no dead-letter-address"
                    if settings.dead_letter_address is None
                    else "no queue at its address",
                    extra={"queue": queue.name, "address": queue.address.name},
                )
            if heard is not None:
                heard(ref)
            queue.drop(ref, Reason.KILLED)
        return True

    def expired(self, ref: Reference) -> None:
        """A message has left its queue because its time is over."""
        settings = ref.queue.address.settings
        with self.together():
            if settings.expiry_address != ref.queue.address.name:
                self._transfer(ref.message, ref.queue.name, settings, settings.expiry_address, expired=True)
            if ref.queue.hooks.expired is not None:
                ref.queue.hooks.expired(ref)
            ref.queue.drop(ref, Reason.EXPIRED)
        self.consider_deleting(ref.queue)

    def replaced(self, ref: Reference) -> None:
        """A message has left its queue because a ring was full."""
        queue = ref.queue
        if queue.evicted is None:
            queue.drop(ref, Reason.REPLACED)
            return
        with self.together():
            queue.evicted(ref)
            queue.drop(ref, Reason.REPLACED)

    def dead_letter(self, ref: Reference) -> bool:
        """Send a copy of a message to the dead-letter address; False where no queue took it."""
        settings = ref.queue.address.settings
        if settings.dead_letter_address == ref.queue.address.name:
            return False
        return self._transfer(ref.message, ref.queue.name, settings, settings.dead_letter_address)

    def copy(self, ref: Reference, target: str, *, keep_expiry: bool = False) -> bool:
        """Send a copy of a message to an address, made where that is allowed; False where no queue took it."""
        try:
            self.provision.address_for_send(target, None)
        except Refused as reason:
            log.warning(
                "message %d of queue %s is not copied: %s",
                ref.message.number,
                ref.queue.name,
                reason,
                extra={"queue": ref.queue.name, "address": ref.queue.address.name},
            )
            return False
        asked = ref.message.expires if keep_expiry else 0
        return self._send_copy(ref.message, ref.queue.name, target, asked, Transfer.POLICY)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is told to the store within takes effect as one: a message that moves is never in both places."""
        self.storage.begin()
        try:
            yield
        finally:
            self.storage.commit()

    def _transfer(
        self,
        message: Message,
        queue: str,
        settings: AddressSettings,
        target: str | None,
        *,
        expired: bool = False,
    ) -> bool:
        """Send a copy of a message to a dead-letter or expiry address; False where no queue took it."""
        if target is None:
            return False
        origin = message.address.name
        if expired and settings.auto_create_expiry_resources:
            self._create_resource(
                target, origin, f"{settings.expiry_queue_prefix}{origin}{settings.expiry_queue_suffix}"
            )
        if not expired and settings.auto_create_dead_letter_resources:
            self._create_resource(
                target,
                origin,
                f"{settings.dead_letter_queue_prefix}{origin}{settings.dead_letter_queue_suffix}",
            )
        transfer = Transfer.EXPIRED if expired else Transfer.DEAD_LETTER
        return self._send_copy(message, queue, target, 0, transfer)

    def _send_copy(self, message: Message, queue: str, target: str, asked: int, transfer: Transfer) -> bool:
        address = self.directory.addresses.get(target)
        if address is None or target in self._transfers:
            return False  # rings that give up their messages to each other would do so for ever
        now = self.clock.now
        expires = lifetime(address.settings, now, asked)
        copy = copy_for(message, queue, address, self.next_message_number(), now, expires, transfer)
        self._transfers.append(target)
        try:
            return page_mode.route(address, copy) > 0
        finally:
            self._transfers.pop()

    def _create_resource(self, target: str, origin: str, queue: str) -> None:
        """auto-create-dead-letter-resources and its like for expiry: one queue for each address of origin."""
        if queue in self.directory.queues:
            return
        literal = origin.replace("'", "''")
        try:
            self.directory.create_queue(
                QueueConfiguration(
                    name=queue,
                    address=target,
                    routing_type=RoutingType.MULTICAST,
                    filter=f"_AMQ_ORIG_ADDRESS = '{literal}'",
                    auto_created=True,
                )
            )
        except Refused as reason:
            log.warning(
                "cannot create %s for messages of %s: %s",
                queue,
                origin,
                reason,
                extra={"queue": queue, "address": target},
            )

    def redelivery_delay(self, ref: Reference) -> int:
        """Milliseconds until a message that came back may be delivered again."""
        return redelivery_delay(ref.queue.address.settings, ref.attempts, self.random)

    def consider_deleting(self, queue: Queue) -> None:
        """A queue lost its last consumer or a message: auto-delete."""
        self.disposal.consider(queue)

    def consider_deleting_address(self, address: Address) -> None:
        """An address lost a queue: auto-delete."""
        self.disposal.consider_address(address)

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
            return due
        came = clock.now - (clock.steady.now - due.steady)
        return came if abs(came - due) > NOTICED else due  # that the two clocks differ a little is no jump

    def watch_expiry(self, ref: Reference) -> None:
        """Expire a held message when its time comes."""
        if not ref.watched:
            ref.watched = True
            self.expiry.enter(ref, ref.message.expires)

    @staticmethod
    def _expire(ref: Reference) -> None:
        ref.watched = False
        ref.queue.expire(ref)

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
                queue.postpone(
                    ref, following if recurrence.cron is not None else self.clock.from_now(following - now)
                )
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
        self.schedule.stop()
        self.delays.stop()
        self.expiry.stop()
        self.disposal.stop()
        self.slow_consumers.stop()
        self.refusals.stop()
        self.log_limit.stop()
        self.policies.stop()
        if self.areas is not None:
            self.areas.stop()
        self.storage.close()


def _still_scheduled(ref: Reference, due: int) -> bool:
    return ref.state == SCHEDULED and ref.due == due


def _still_delayed(ref: Reference, due: int) -> bool:
    return ref.state == SCHEDULED and isinstance(ref.due, FromNow) and ref.due.steady == due


def _may_expire(ref: Reference, due: int) -> bool:
    """A message in delivery is its consumer's; it is watched again when it comes back."""
    if ref.state == DELIVERING:
        ref.watched = False
        return False
    return ref.watched
