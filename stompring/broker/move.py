"""Move, copy and retry: messages of a queue go to another address or queue because an operator says so.

Each message is one transaction of the store: after a crash it is in one queue or the other, never in both, never in
none. A copy is a message of its own, with a new number and time; it was never delivered. Policies of the target are
not evaluated, and duplicate ids are not checked: the operator decides. Where the target is full,
nothing is lost: the message stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from stompring.errors import Refused
from stompring.settings.model import PermissionType, RoutingType

from . import admission, publish
from .admission import Rejection
from .auto_create import check_not_internal
from .clock import Due
from .expiry import expiry_time
from .message import Message, Traits
from .policy_hooks import Offer
from .queue_browser import OnDisk, PageRead, References, iterate_timed, pending, seek
from .reference import DELIVERING, PENDING, SCHEDULED, Reference
from .storage import Reason
from .transfer import MANAGEMENT, NO_ROUTE, MessageOrigin, retried_traits, traits_for
from .transformer import copied_traits

if TYPE_CHECKING:
    from .address import Address
    from .auto_create import PermissionCheck
    from .broker import Broker
    from .queue import Queue


class Target(NamedTuple):
    """Where messages go: to all queues of an address that accept them, or to the one queue that is named."""

    address: "Address"  # noqa: UP037 (in quotes: the compiled build would look it up here)
    queue: Queue | None

    def describe(self) -> str:
        """For an error."""
        return f"address {self.address.name}" if self.queue is None else f"queue {self.queue.name}"


def move_target(
    source: Queue,
    address: str | None,
    queue: str | None,
    routing_type: RoutingType | None,
    check: PermissionCheck,
    user: str | None,
) -> Target:
    """The target that a move or copy names, created where a SEND would create it. Raises `Refused`, `NotFound`."""
    broker = source.broker
    broker.directory.check_words(address or "")
    if queue is not None:
        name = broker.auto_create.address_of(address or "", queue)
        check(PermissionType.SEND, name, queue)
        found = broker.auto_create.queue_for(name, queue, routing_type, check, user)
        if found is source:
            raise Refused(f"Queue {queue} is the queue of the messages itself: name another one")
        return Target(found.address, found)
    if not address:
        raise Refused("address is missing: name the address or the queue that the messages go to", status=400)
    check(PermissionType.SEND, address)
    if address == source.address.name and list(source.address.queues.values()) == [source]:
        raise Refused(
            f"Address {address} leads back to queue {source.name}: name another address, or one of its queues"
        )
    return Target(broker.auto_create.address_for_send(address, routing_type, check, user), None)


def retry_target(broker: Broker, origin: MessageOrigin, check: PermissionCheck, user: str | None) -> Target:
    """Where a dead letter goes back to: its queue if that still gets what is sent to its address, else its address.

    Raises `Refused`, and `NotFound` where neither exists and the address may not be created.
    """
    directory = broker.directory
    check_not_internal(origin.address)
    queue = directory.queues.get(origin.queue) if origin.reason != NO_ROUTE else None
    if queue is not None and _gets(queue, origin.address):
        check(PermissionType.SEND, origin.address, queue.name)
        return Target(directory.addresses.get(origin.address, queue.address), queue)
    check(PermissionType.SEND, origin.address)
    return Target(broker.auto_create.address_for_send(origin.address, origin.routing_type, check, user), None)


def _gets(queue: Queue, address: str) -> bool:
    """Whether messages sent to an address reach a queue: else its name belongs to a queue of another address now."""
    wildcards = queue.broker.directory.wildcards
    return queue.address.name == address or queue.address.name in wildcards.matching(address)


class Forwarded(NamedTuple):
    """A message as it is about to go to its target, and the queues that accept it there."""

    message: Message
    queues: Sequence[Queue]
    due: Due


class Mover:
    """Sends messages of one queue to targets. ``remove``: they leave the queue; else they are copied.

    ``keep_origin``: what is retried keeps the headers of its origin.
    """

    def __init__(self, source: Queue, *, remove: bool, keep_origin: bool = False) -> None:
        self.source = source
        self.remove = remove
        self.keep_origin = keep_origin
        self._traits: tuple[Traits, Address, bool, Traits] | None = (
            None  # the last ones: mostly the next as well
        )

    def send(self, ref: Reference, target: Target, origin: MessageOrigin | None = None) -> Rejection | bool:
        """Move or copy one message that is pending or scheduled; with its ``origin`` it is retried.

        Returns False where it has left its queue, and a `Rejection` where the target is full: the message stays.
        Raises `Refused` where it cannot go there; it stays as well.
        """
        broker, message = self.source.broker, ref.message
        forwarded = self._forwarded(ref, target, origin)
        rejection = self._rejection(ref, target.address, forwarded.message)
        if rejection is not None:
            return rejection
        recurrence = ref.recurrence if origin is None else None
        broker.storage.begin(len(message.tail))
        try:
            if self.remove and not take(ref):
                return False
            publish.enqueue(forwarded.message, forwarded.queues, forwarded.due, recurrence)
        finally:
            broker.storage.commit()
        return True

    def _forwarded(self, ref: Reference, target: Target, origin: MessageOrigin | None) -> Forwarded:
        address, queue = target
        broker, source = self.source.broker, ref.message
        now = broker.clock.now
        # a dead letter's time of expiry is that of the dead-letter-address
        requested = 0 if origin is not None else source.expires
        expires = expiry_time(address.settings, now, requested)
        message = Message(
            broker.next_message_number(),
            address,
            self._traits_for(source.traits, address, origin),
            source.body,
            now,
            expires,
        )
        queues: Sequence[Queue]
        if queue is None:
            queues = address.choose(message)
        elif queue.open and (queue.accepts is None or queue.accepts(message)):
            queues = (queue,)
        else:
            queues = ()
        if not queues:
            raise Refused(f"No queue accepts message {source.number}: {_why_not(target)}")
        if list(queues) == [self.source]:
            raise Refused(f"Message {source.number} would come back to queue {self.source.name}")
        waits = origin is None and ref.state == SCHEDULED and not ref.deliveries
        return Forwarded(message, queues, ref.due if waits else 0)

    def _traits_for(self, traits: Traits, address: Address, origin: MessageOrigin | None) -> Traits:
        known = self._traits
        if known is not None and known[0] is traits and known[1] is address:
            return known[3]
        if origin is None:
            found = traits_for(traits, address)
        else:
            found = retried_traits(traits, address, origin.routing_type, keep_origin=self.keep_origin)
        self._traits = traits, address, origin is not None, found
        return found

    def _rejection(self, ref: Reference, address: Address, message: Message) -> Rejection | None:
        offer = None
        if address.hooks.full is not None:
            headers = {name.encode(): value.encode() for name, value in message.headers().items()}
            offer = Offer(address.name, message.traits, headers)
        rejection = admission.check(address, message.traits.durable, offer, message.body if offer else b"")
        if rejection is None or rejection.limit is not address.memory:
            return rejection
        # the broker as a whole is full: what is moved within its memory takes no more of it
        source = ref.message
        neutral = self.remove and ref.position is None and source.holders == 1
        return None if neutral and not address.memory_limit.full else rejection


def _why_not(target: Target) -> str:
    queue = target.queue
    if queue is None:
        return f"address {target.address.name} has no queue for it"
    if not queue.attributes.enabled:
        return f"queue {queue.name} is disabled"
    if not queue.open:
        return f"queue {queue.name} has no consumer (purge-on-no-consumers)"
    return f"it does not match the filter of queue {queue.name}"


def take(ref: Reference) -> bool:
    """Remove a pending or scheduled message from its queue; it counts as acknowledged. False where it has left."""
    loaded = loaded_reference(ref)
    if loaded is None:
        return False
    queue = loaded.queue
    queue.detach(loaded)
    queue.messages_acknowledged += 1
    loaded.last_rejected_by = None  # no consumer has taken it
    queue.drop(loaded, Reason.ACKNOWLEDGED)
    return True


def expire(ref: Reference) -> bool:
    """Expire a pending or scheduled message now, whatever its time. False where it has left its queue."""
    loaded = loaded_reference(ref)
    if loaded is None:
        return False
    loaded.queue.broker.expiry.expire(loaded)
    return True


def change_priority(ref: Reference, priority: int) -> bool:
    """Put a pending message with another priority (0 to 9) at the tail of that. False if it has left its queue.

    The message is replaced by a copy with a new number, which was never delivered; all else is as it was.
    """
    queue, message = ref.queue, ref.message
    broker, traits = queue.broker, message.traits
    if traits.priority == priority:
        return ref.present if isinstance(ref, OnDisk) else ref.state == PENDING
    changed = copied_traits(traits, traits.destination, traits.routing_type, {b"priority": b"%d" % priority})
    broker.storage.begin(len(message.tail))
    try:
        if not take(ref):
            return False
        number = broker.next_message_number()
        address, body = message.address, message.body
        copy = Message(number, address, address.mark(changed), body, message.timestamp, message.expires)
        publish.enqueue(copy, (queue,))
    finally:
        broker.storage.commit()
    return True


def dead_letter(ref: Reference) -> bool:
    """Send a pending or scheduled message to the dead-letter-address; it counts as killed. False if it has left.

    Raises `Refused` if no queue takes the dead letter: the message stays.
    """
    if not (ref.present if isinstance(ref, OnDisk) else ref.state in (PENDING, SCHEDULED)):
        return False
    queue = ref.queue
    with queue.broker.together():
        if not publish.send_dead_letter(ref, MANAGEMENT):
            target = queue.address.settings.dead_letter_address
            raise Refused(f"dead-letter-address {target} has no queue for message {ref.message.number}")
        loaded = loaded_reference(ref)
        if loaded is None:
            return True  # its own copy has evicted it
        queue.detach(loaded)
        queue.messages_killed += 1
        if queue.hooks.dead_lettered is not None:
            queue.hooks.dead_lettered(loaded)
        queue.drop(loaded, Reason.KILLED)
    return True


def loaded_reference(ref: Reference) -> Reference | None:
    """The reference of a pending or scheduled message, loaded where it is on disk; None where it has left."""
    if isinstance(ref, OnDisk):
        return ref.load()
    return ref if ref.state in (PENDING, SCHEDULED) else None


def messages_of(queue: Queue, elsewhere: Iterable[Reference] = ()) -> References:
    """All messages of a queue: what is pending, in order of delivery, then what is scheduled, then in delivery."""
    unsettled = [ref for consumer in queue.consumers for ref in consumer.unsettled_references()]
    delivering = [ref for ref in (*unsettled, *elsewhere) if ref.queue is queue and ref.state == DELIVERING]
    return chain(pending(queue), list(queue.scheduled.values()), iterate_timed(queue), delivering)


def numbered(queue: Queue, numbers: set[int]) -> Iterator[Reference | PageRead | None]:
    """The messages with these numbers that are pending, scheduled or in delivery; None where nothing was found yet.

    What is found is removed from ``numbers``.
    """
    for _ in range(2):  # what was on disk may come to memory meanwhile
        in_memory = chain(
            queue.dispatcher.snapshot(),
            list(queue.scheduled.values()),
            [ref for consumer in queue.consumers for ref in consumer.unsettled_references()],
        )
        for ref in in_memory:
            if not numbers:
                return
            if ref.message.number in numbers:
                numbers.discard(ref.message.number)
                yield ref
            else:
                yield None
        if queue.paged is None:
            return
        for number in sorted(numbers):
            found = yield from seek(queue, number)
            if found is not None:
                numbers.discard(number)
                yield found
