"""Publishing: the one entrance for messages to addresses, whoever sends them.

`publish` is for producers, who can be made to wait or refused: it checks for duplicates and limits before it routes.
`send` and `send_to_queue` route what is admitted already. The broker's own messages (dead letters, expired messages,
copies for policies, notifications) are always admitted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from stompring.errors import Refused
from stompring.settings.model import AddressSettings, FullPolicy, QueueConfiguration, RoutingType

from . import admission, divert, page_mode
from .admission import Rejection
from .auto_create import allow_all
from .clock import Due
from .duplicates import add_id, count_duplicate, is_known, is_persisted
from .expiry import expiry_time
from .message import INGRESS_TIMESTAMP, INGRESS_TIMESTAMP_STOMP, TAIL_END, Message, Traits, make_tail
from .policy_hooks import Offer
from .transfer import (
    EXPIRED,
    MAX_DELIVERY_ATTEMPTS,
    NO_ROUTE,
    POLICY,
    Transfer,
    copy_for,
    notification,
    reply_traits,
)

if TYPE_CHECKING:
    from .address import Address
    from .broker import Broker
    from .memory import MemoryLimit, MemoryLimits
    from .paging import Pages
    from .queue import Queue
    from .recurrence import Recurrence, Schedule
    from .reference import Reference

log = logging.getLogger(__name__)

#: The offer of publications whose address has no policy that wants to see one.
NO_OFFER = Offer("", Traits(b""), {})


class Publication:
    """What messages sent with the same headers have in common: where they go and what they carry.

    ``limits`` is what must not be full, besides the address. ``direct`` messages need nothing but routing: they have
    no duplicate id, no schedule, and name no queue.
    """

    __slots__ = ("address", "direct", "identifier", "limits", "offer", "queue", "schedule", "traits")

    def __init__(
        self,
        address: Address,
        queue: Queue | None,
        traits: Traits,
        schedule: Schedule | None,
        limits: MemoryLimit | MemoryLimits,
    ) -> None:
        self.address = address
        self.queue = queue  # the one queue it is for (a fully qualified queue name)
        self.traits = address.mark(traits)
        self.schedule = schedule
        self.limits = limits
        self.direct = schedule is None and queue is None and not address.settings.enable_ingress_timestamp
        self.identifier: bytes | None = None  # of duplicate detection, where the address does that
        self.offer = NO_OFFER  # as the policies of the address see its messages, where one wants to


def publish(broker: Broker, publication: Publication, body: bytes) -> Rejection | None:
    """Admit one message of a producer and route it. Returns why it was not routed, None where it was.

    A rejection by BLOCK asks the producer to try again later, one by FAIL is an error; what DROP says has happened.
    """
    address = publication.address
    if address.memory_limit.slow_path or publication.limits.full or not publication.direct:
        return _publish_checked(broker, publication, body)
    traits = publication.traits
    now = broker.clock.now
    expires = 0
    if traits.requested_expiry or address.changes_expiry:
        expires = expiry_time(address.settings, now, traits.requested_expiry)
    number = broker.numbers.next()
    if address.generation != address.directory.generation:
        address.rebind()
    queues = address.reaches_all
    if queues and traits.routing_type is not address.not_for_all:  # as `Address.route`, without a call
        address.routed_messages += 1
        tail = make_tail(number, traits.block, body, now, expires)
        body_at = len(tail) - len(body) - TAIL_END
        bytes_suffice = not expires and traits.group is None
        message: Message | None = None  # made with the first queue that needs one
        for queue in queues:
            if bytes_suffice and queue.deliver_tail(traits, tail, body_at):
                continue
            if message is None:
                message = Message(number, address, traits, body, now, expires, tail)
            queue.enqueue(message)
        return None
    message = Message(number, address, traits, body, now, expires)
    if not address.route(message):
        unrouted(message)
    return None


def _publish_checked(broker: Broker, publication: Publication, body: bytes) -> Rejection | None:
    """As `publish`, where something may be full, or the message needs more than routing."""
    address, identifier = publication.address, publication.identifier
    pages = address.pages
    if (
        publication.direct
        and pages is not None
        and address.memory_limit.unbounded
        and not (address.copied or pages.empty)
    ):
        disk, writes = broker.disk, broker.storage.write_limit
        if not (disk.full or writes.full):
            _publish_paged(broker, publication, body, pages)
            return None
    if identifier is not None and is_known(address, identifier):
        return _discard_duplicate(address, identifier)
    if address.memory_limit.slow_path or publication.limits.full:
        rejection = admission.check(address, publication.traits.durable, publication.offer, body)
        if rejection is not None:
            if rejection.policy is FullPolicy.DROP:
                admission.drop(rejection)
            return rejection
        if address.diverts:
            rejection = divert.rejection(address, publication.traits, body)
            if rejection is not None:
                return rejection
    publish_admitted(broker, publication, body)
    return None


def _publish_paged(broker: Broker, publication: Publication, body: bytes, pages: Pages) -> None:
    """Route a message that needs nothing but routing, while its address pages without a limit."""
    address, traits = publication.address, publication.traits
    now = broker.clock.now
    expires = 0
    if traits.requested_expiry or address.changes_expiry:
        expires = expiry_time(address.settings, now, traits.requested_expiry)
    message = Message(broker.next_message_number(), address, traits, body, now, expires)
    queues = address.choose(message)
    if queues:
        page_mode.distribute(pages, message, queues)
        address.routed_messages += 1
    else:
        address.unrouted_messages += 1
        unrouted(message)


def _discard_duplicate(address: Address, identifier: bytes) -> Rejection:
    """Count a message whose duplicate id is known; it is not routed."""
    count_duplicate(address, identifier)
    return Rejection(address, FullPolicy.DROP, None, "its _AMQ_DUPL_ID was sent before")


def publish_committed(
    broker: Broker, publication: Publication, body: bytes, rejection: Rejection | None
) -> Rejection | None:
    """As `publish`, for a message of a transaction that is being committed: it neither waits nor fails any more.

    ``rejection`` is what a policy that decides about each message has answered before the commit began.
    """
    address, identifier = publication.address, publication.identifier
    if address.hooks.full is None:
        rejection = admission.check(address, publication.traits.durable)
    if rejection is not None and rejection.policy is FullPolicy.DROP:
        admission.drop(rejection)
        return rejection
    if identifier is not None and is_known(address, identifier):  # sent by another during the commit
        return _discard_duplicate(address, identifier)
    publish_admitted(broker, publication, body)
    return None


def publish_admitted(broker: Broker, publication: Publication, body: bytes) -> None:
    """Route a message that was admitted, and remember its duplicate id, both as one for the store."""
    address, traits, identifier = publication.address, publication.traits, publication.identifier
    if identifier is None and not address.copied:
        _send_one(broker, publication, body)
    elif identifier is None:
        paging = broker.paging
        if paging is not None and paging.gathered:
            paging.write_gathered()
        broker.storage.begin(len(body) + len(traits.block))
        try:  # the message and its copies
            _send_one(broker, publication, body)
        finally:
            broker.storage.commit()
    elif is_persisted(address, traits.durable):
        paging, storage = broker.paging, broker.storage
        if paging is not None and paging.gathered:
            paging.write_gathered()  # what came before is no part of what follows
        storage.begin(len(body) + len(traits.block) + len(identifier))
        try:
            _send_one(broker, publication, body)
            add_id(address, identifier, persisted=True)
        finally:
            storage.commit()
    else:
        _send_one(broker, publication, body)
        add_id(address, identifier, persisted=False)


def _send_one(broker: Broker, publication: Publication, body: bytes) -> None:
    """Send at once or at the scheduled time, to the address or to the one queue that is named."""
    address, traits, schedule = publication.address, publication.traits, publication.schedule
    now = broker.clock.now
    if address.settings.enable_ingress_timestamp:
        traits = with_ingress_timestamp(traits, now)
    expires = expiry_time(address.settings, now, traits.requested_expiry)
    message = Message(broker.next_message_number(), address, traits, body, now, expires)
    due: Due = 0
    recurrence = None
    if schedule is not None:
        due, recurrence = schedule.due_at(now), schedule.new_recurrence()
        if due and schedule.is_delay:
            due = broker.clock.from_now(due - now)
    if publication.queue is not None:
        send_to_queue(publication.queue, message, due, recurrence)
    else:
        send(message, due, recurrence)


def with_ingress_timestamp(traits: Traits, now: int) -> Traits:
    """``traits`` with the time at which the message came (epoch ms); an imported message has it already."""
    block = traits.block
    if b"\n%b:" % INGRESS_TIMESTAMP_STOMP in block:
        return traits
    return traits.with_block(
        b"%b%b:%d\n%b:%d\n" % (block, INGRESS_TIMESTAMP_STOMP, now, INGRESS_TIMESTAMP, now)
    )


# ---- routing


def send(message: Message, due: Due = 0, recurrence: Recurrence | None = None) -> int:
    """Route an admitted message; at ``due`` (epoch ms) when that is given.

    Returns how many queues it has reached, or 1 where only diverts have copied it.
    """
    address = message.address
    if due and not address.copied:
        queues = address.choose(message)
        reached = len(queues)
        enqueue(message, queues, due, recurrence)
    else:
        reached = route(message, due, recurrence)
    if not reached:
        unrouted(message)
    return reached


def send_to_queue(queue: Queue, message: Message, due: Due = 0, recurrence: Recurrence | None = None) -> None:
    """Put an admitted message into one queue of its address (a fully qualified queue name)."""
    diverted = divert.divert(message, due, recurrence) if message.address.copied else None
    if diverted:
        message.address.count_routed(1)
        return
    accepted = queue.open and (queue.accepts is None or queue.accepts(message))
    if accepted:
        enqueue(message, (queue,), due, recurrence)
    else:
        message.address.count_routed(diverted is not None)
        if diverted is None:
            unrouted(message)


def enqueue(
    message: Message, queues: Sequence[Queue], due: Due = 0, recurrence: Recurrence | None = None
) -> None:
    """Put an admitted message into these queues of its address, each of which accepts it; at ``due`` if given."""
    message.address.count_routed(len(queues))
    pages = page_mode.pages_for(message.address) if recurrence is None else None
    if pages is not None:
        page_mode.distribute(pages, message, queues, due)
    elif due:
        for queue in queues:  # each counts its own repeats
            queue.schedule(message, due, None if recurrence is None else replace(recurrence))
    else:
        for queue in queues:
            queue.enqueue(message)


def route(message: Message, due: Due = 0, recurrence: Recurrence | None = None) -> int:
    """Put a message into the queues it belongs to, in memory or by way of pages, and its copies where diverts say.

    Returns how many queues, or 1 where only diverts have copied it. ``due`` is for addresses whose messages are copied.
    """
    address = message.address
    if address.copied:
        return _route_copied(message, due, recurrence)
    pages = page_mode.pages_for(address)
    if pages is None:
        return address.route(message)
    queues = address.choose(message)
    if queues:
        page_mode.distribute(pages, message, queues)
    return address.count_routed(len(queues))


def _route_copied(message: Message, due: Due, recurrence: Recurrence | None) -> int:
    """As `route`, for an address whose messages are copied."""
    address = message.address
    diverted = divert.divert(message, due, recurrence)
    if diverted:  # by an exclusive one
        return address.count_routed(1)
    queues = address.choose(message)
    if not queues:
        return address.count_routed(diverted is not None)
    enqueue(message, queues, due, recurrence)
    return len(queues)


def unrouted(message: Message) -> None:
    """No queue accepted a message: it is lost, or a dead letter (``send-to-dla-on-no-route``)."""
    address, settings = message.address, message.address.settings
    if settings.send_to_dla_on_no_route and settings.dead_letter_address != address.name:
        _send_dead_letter(message, address.name, settings, NO_ROUTE)


# ---- copies that the broker makes


def send_dead_letter(ref: Reference, reason: str = MAX_DELIVERY_ATTEMPTS) -> bool:
    """Send a copy of a message to the dead-letter-address. False where there is none, or none of its queues took it.

    The copy carries the ``reason`` in ``_AMQ_ORIG_REASON``.
    """
    address = ref.queue.address
    if address.settings.dead_letter_address == address.name:
        return False
    return _send_dead_letter(ref.message, ref.queue.name, address.settings, reason)


def send_expired(ref: Reference) -> bool:
    """Send a copy of a message to the expiry-address. False where there is none, or none of its queues took it."""
    settings, target = ref.queue.address.settings, ref.queue.address.settings.expiry_address
    if target is None or target == ref.queue.address.name:
        return False
    origin = ref.message.address.name
    if settings.auto_create_expiry_resources:
        queue = f"{settings.expiry_queue_prefix}{origin}{settings.expiry_queue_suffix}"
        _create_resource(ref.queue.broker, target, origin, queue)
    return _send_copy(ref.message, ref.queue.name, target, Transfer.EXPIRED, EXPIRED)


def send_copy(ref: Reference, target: str, *, keep_expiry: bool = False) -> bool:
    """Send a copy of a message to the address ``target``, which is created where that is allowed.

    The copy expires as the settings of ``target`` say, with ``keep_expiry`` also when the message would have. False
    where no queue took it.
    """
    message, queue = ref.message, ref.queue
    try:
        queue.broker.auto_create.address_for_send(target, None, allow_all)
    except Refused as reason:
        log.warning(
            "message %d of queue %s not copied to address %s: %s",
            message.number,
            queue.name,
            target,
            reason,
            extra={"queue": queue.name, "address": queue.address.name},
        )
        return False
    requested = message.expires if keep_expiry else 0
    return _send_copy(message, queue.name, target, Transfer.POLICY, POLICY, requested)


def send_notification(broker: Broker, kind: str, time: int, text: str, properties: Mapping[str, str]) -> bool:
    """Send a notification to whoever subscribes to the management-notification-address. False where no queue took it.

    Nothing happens without that address, without a subscription of its own on it, or while it is full.
    """
    address = broker.directory.addresses.get(broker.notifications.address)
    if address is None or not address.queues or address.full is not None:
        return False
    return route(notification(address, broker.next_message_number(), time, kind, text, properties)) > 0


class ReplyTo(NamedTuple):
    """Where a reply goes: an address, or one queue of it, and the destination as the client wrote it."""

    address: str
    queue: str | None
    routing_type: RoutingType | None
    destination: bytes


def send_reply(broker: Broker, reply_to: ReplyTo, headers: Mapping[bytes, bytes], body: bytes) -> bool:
    """Send the reply to a management request. False where its address or queue is gone, or no queue took it."""
    address = broker.directory.addresses.get(reply_to.address)
    if address is None:
        return False
    traits = reply_traits(reply_to.destination, reply_to.routing_type, headers)
    message = Message(broker.next_message_number(), address, address.mark(traits), body, broker.clock.now)
    if reply_to.queue is None:
        return route(message) > 0
    queue = broker.directory.queues.get(reply_to.queue)
    if queue is None:
        return False
    send_to_queue(queue, message)
    return True


def _send_dead_letter(message: Message, queue: str, settings: AddressSettings, reason: str) -> bool:
    target, origin = settings.dead_letter_address, message.address.name
    if target is None:
        return False
    if settings.auto_create_dead_letter_resources:
        created = f"{settings.dead_letter_queue_prefix}{origin}{settings.dead_letter_queue_suffix}"
        _create_resource(message.address.directory.broker, target, origin, created)
    return _send_copy(message, queue, target, Transfer.DEAD_LETTER, reason)


def _send_copy(
    message: Message, queue: str, target: str, transfer: Transfer, reason: str, requested: int = 0
) -> bool:
    broker = message.address.directory.broker
    address = broker.directory.addresses.get(target)
    if address is None or target in broker.copying_to:
        return False  # rings that evict into each other would do so for ever
    now = broker.clock.now
    expires = expiry_time(address.settings, now, requested)
    copy = copy_for(message, queue, address, broker.next_message_number(), now, expires, transfer, reason)
    broker.copying_to.append(target)
    try:
        return route(copy) > 0
    finally:
        broker.copying_to.pop()


def _create_resource(broker: Broker, target: str, origin: str, queue: str) -> None:
    """auto-create-dead-letter-resources and its like for expiry: one queue for each address of origin."""
    if queue in broker.directory.queues:
        return
    literal = origin.replace("'", "''")
    try:
        broker.directory.create_queue(
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
            "cannot create queue %s for messages of address %s: %s",
            queue,
            origin,
            reason,
            extra={"queue": queue, "address": target},
        )
