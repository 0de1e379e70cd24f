"""Publishing: how messages enter addresses, from producers, transactions, diverts and operators.

Admission: whether a message may enter an address now. Memory, pages or the disk may be full, or the store slow. Only
SEND and COMMIT need admission, because their producer can wait, or be refused.

Publishing: every message enters its address through this module, those of clients and those of the broker.

`publish` is for producers: it checks duplicates and limits before it routes a message. `send` routes an admitted
message to the queues of an address, or to one named queue. The broker's own messages (dead letters, expired messages,
copies for policies, notifications) are always admitted.

Diverts: a divert copies the messages of one address to others, or sends them there instead (Artemis, "Diverting and
Splitting Message Flows").

`Divert` is a divert of broker.xml with its counters; an address has a `BoundDivert` for each divert that applies to it.
`route` calls `divert` before it enqueues a message. A copy is a new message with the headers of its origin. It is
routed like a message sent to its address, with the pages, diverts and dead letters of that address. The limits of
forwarding addresses also block or refuse producers: `divert_rejection`.

Move, copy and retry: an operator sends messages of a queue to another address or queue.

Each message is one transaction of the store: after a crash it is in exactly one of the two queues. A copy is a new
message, with a new number and time and no deliveries. Policies of the target are not evaluated, and duplicate ids are
not checked: the operator decides. If the target is full, the message stays in its queue.

Transactions: the SENDs, ACKs and NACKs between BEGIN and COMMIT, and their quota of bytes.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, cast

from stompring.errors import Refused
from stompring.settings.match import DivertGraph, DivertLoop
from stompring.settings.model import (
    ComponentRoutingType,
    DivertConfiguration,
    FullPolicy,
    PageFullPolicy,
    PermissionType,
    QueueConfiguration,
    RoutingType,
)

from .address import (
    Address,
    Copier,
    add_id,
    as_address,
    count_duplicate,
    distribute,
    enter,
    is_known,
    is_persisted,
    pages_for,
    transformer_for,
)
from .clock import Call, Due, Recurrence, Schedule
from .directory import PermissionCheck, Services, allow_all, check_not_internal, services_of
from .limits import ByteQuota, MemoryLimit
from .message import (
    DIVERT,
    EVERYWHERE,
    EXPIRED,
    INGRESS_TIMESTAMP,
    INGRESS_TIMESTAMP_STOMP,
    MANAGEMENT,
    MAX_DELIVERY_ATTEMPTS,
    MESSAGE_OVERHEAD,
    NO_CHANGES,
    NO_ROUTE,
    NOTIFICATION_PROPERTIES,
    ORIGIN_HEADERS,
    POLICY,
    REFERENCE_OVERHEAD,
    TAIL_END,
    TAIL_OVERHEAD,
    AddressBase,
    HeaderChanges,
    Message,
    MessageOrigin,
    Traits,
    Transfer,
    copied,
    copied_traits,
    copy_for,
    header_lines,
    make_tail,
    origin_headers,
    reply_traits,
    sent_headers,
    without_headers,
)
from .notifications import Event, message_headers
from .ports import FullAnswer, Offer, Reason
from .queue import Consumer, Queue, as_queue
from .queue_browser import OnDisk, PageRead, loaded_reference, seek
from .reference import PENDING, SCHEDULED, QueueBase, Reference, compiled_filter, expiry_time


class Rejection(NamedTuple):
    """The reason why a message may not enter an address now. ``policy`` is BLOCK, DROP or FAIL; with BLOCK the producer
    waits until ``limit`` is no longer full.
    """

    address: "Address"  # noqa: UP037 (in quotes: the compiled build would look it up here)
    policy: FullPolicy
    limit: MemoryLimit | None  # None: the pages have reached their limit
    reason: str | None = None  # error text to use instead of the usual text about the limit

    @property
    def of_memory(self) -> bool:
        """Whether the reason is full memory: that of the address or of the broker."""
        return self.limit in (self.address.memory_limit, self.address.memory)

    def describe(self) -> str:
        """Return the text for an ERROR frame or a log line."""
        address, limit = self.address, self.limit
        if self.reason is not None:
            return self.reason
        if limit is None:
            return describe_page_limit(address)
        if self.of_memory:
            return address.describe_full()
        own, reason = address.memory_limit, limit.fault or "the disk is too slow"
        if own.paging or own.full or address.memory.full:
            return f"Address {address.name} rejects durable messages, and all others while it pages: {reason}"
        if address.retained == EVERYWHERE:
            return f"Address {address.name} rejects durable messages, and all others to retain them: {reason}"
        return f"Address {address.name} rejects durable messages: {reason}"

    @property
    def of_backlog(self) -> bool:
        """Whether the reason is that the store has too much to write. The disk works, so that the limit clears soon."""
        limit = self.limit
        return limit is self.address.broker.storage.write_limit and limit.fault is None


def check_admission(
    address: Address, durable: bool, offer: Offer | None = None, body: bytes = b""
) -> Rejection | None:
    """Return why a message may not enter ``address`` now, None if it may. ``offer``: the message for a policy that
    decides about each message to a full address (`Hooks.full`).
    """
    limit, memory = address.memory_limit, address.memory
    paging = limit.paging
    if not limit.unbounded and (limit.full or memory.full):
        full = limit if limit.full else memory
        policy = address.policy
        if policy is None:
            assert offer is not None
            answer = _answer(address, offer, body)
            if isinstance(answer, Refused):
                return Rejection(address, FullPolicy.FAIL, full, str(answer))
            policy = answer
        if policy is FullPolicy.PAGE:
            paging = limit.paging or memory.should_page(limit)
        elif policy is not None:
            return Rejection(address, policy, full)
    if not (paging or durable or address.retained == EVERYWHERE):
        return None
    if paging and not limit.unbounded and (rejection := _page_limit(address)) is not None:
        return rejection
    broker = address.broker
    if broker.disk.full:
        return Rejection(address, FullPolicy(address.settings.disk_full_policy), broker.disk)
    if broker.storage.write_limit.full:
        return Rejection(address, FullPolicy.BLOCK, broker.storage.write_limit)
    return None


def _answer(address: Address, offer: Offer, body: bytes) -> FullAnswer:
    """Return the answer of the policies of a full address to one message. None: the message may enter."""
    assert address.hooks.full is not None
    address.broker.write_gathered()  # a policy may read the pages: write the messages collected for them
    offer.body = body
    answer = address.hooks.full(offer)
    offer.body = b""
    if isinstance(answer, Refused):
        return answer
    answer = address.without_store(answer)
    if answer is FullPolicy.PAGE and address.memory.should_page(address.memory_limit):
        enter(address)
    return answer


def _page_limit(address: Address) -> Rejection | None:
    settings, pages = address.settings, address.pages
    policy = settings.page_full_policy
    if policy is None or pages is None:
        return None
    if (0 <= settings.page_limit_bytes <= pages.bytes) or (
        0 <= settings.page_limit_messages <= pages.messages
    ):
        return Rejection(address, FullPolicy(policy), None)
    address.pages_not_full()
    return None


def describe_page_limit(address: Address) -> str:
    """Return the text for the limit that the pages of an address have reached."""
    settings, pages = address.settings, address.pages
    if pages is not None and 0 <= settings.page_limit_bytes <= pages.bytes:
        return f"Address {address.name} is full: page-limit-bytes {settings.page_limit_bytes}"
    return f"Address {address.name} is full: page-limit-messages {settings.page_limit_messages}"


def exceeded_by(loads: Mapping[Address, Sequence[int]], acknowledged: Iterable[Reference]) -> str | None:
    """Return the ERROR text for a transaction that exceeds a limit with the policy FAIL, None if it exceeds none.

    ``loads``: for each address, the sizes in bytes of the messages that the transaction sends to it. ``acknowledged``:
    references that the transaction settles. As with single SENDs, the last message may reach a limit, earlier ones may
    not.
    """
    bounded = [address for address in loads if _fails(address)]
    if not bounded:
        return None
    freed, settled = _freed(acknowledged)
    memory = bounded[0].memory
    everything: list[int] = []
    for address in bounded:
        sizes = [size + TAIL_OVERHEAD for size in loads[address]]
        if address.policy is FullPolicy.FAIL:
            grows = address.growth(len(sizes))
            held = [size + MESSAGE_OVERHEAD for size in sizes[len(sizes) - grows :]]
            everything += held
            limit = _exceeded(
                "max-size-bytes", "max-size-messages", address.memory_limit, held, freed[address]
            )
            if limit is not None:
                return _describe_exceeded(address, sizes, limit)
        elif (text := _exceeded_pages(address, sizes, freed[address], settled)) is not None:
            return text
    whole = FreedMemory(sum(f.bytes for f in freed.values()), sum(f.messages for f in freed.values()))
    limit = _exceeded("global-max-size", "global-max-messages", memory, everything, whole)
    return None if limit is None else _describe_exceeded(bounded[0], everything, limit)


@dataclass
class FreedMemory:
    """Bytes and number of an address's messages that acknowledgements remove from memory."""

    bytes: int = 0
    messages: int = 0


def _fails(address: Address) -> bool:
    if address.hooks.full is not None:
        return False  # a policy decides about each message: the result is unknown
    pages_fail = address.settings.page_full_policy is PageFullPolicy.FAIL
    return address.policy is FullPolicy.FAIL or (address.policy is FullPolicy.PAGE and pages_fail)


def _freed(
    acknowledged: Iterable[Reference],
) -> tuple[defaultdict[AddressBase, FreedMemory], Counter[QueueBase]]:
    """Return the freed memory by address, and the number of acknowledged messages from pages by queue."""
    holders: Counter[Message] = Counter()
    paged: Counter[QueueBase] = Counter()
    freed: defaultdict[AddressBase, FreedMemory] = defaultdict(FreedMemory)
    for ref in acknowledged:
        message = ref.message
        if ref.queue.attributes.non_destructive:
            continue
        if ref.position is not None:
            paged[ref.queue] += 1
        holders[message] += 1
        if message.account is not message.address:
            continue
        memory = freed[message.address]
        if holders[message] == message.holders:
            memory.bytes += message.size
            memory.messages += 1
        else:
            memory.bytes += REFERENCE_OVERHEAD
    return freed, paged


def _exceeded(
    of_bytes: str, of_messages: str, limit: MemoryLimit, sizes: Sequence[int], freed: FreedMemory
) -> str | None:
    """Return name and value of the limit that the messages reach before the last message, None if they reach no
    limit.
    """
    if sizes and limit.bytes - freed.bytes + sum(sizes[:-1]) >= limit.threshold_bytes:
        return f"{of_bytes} {limit.max_bytes}"
    if sizes and limit.messages - freed.messages + len(sizes) - 1 >= limit.threshold_messages:
        return f"{of_messages} {limit.max_messages}"
    return None


def _exceeded_pages(
    address: Address, sizes: Sequence[int], freed: FreedMemory, settled: Counter[QueueBase]
) -> str | None:
    """Return the ERROR text if the memory of an address, and then its pages, have no space for the messages."""
    limit, pages, settings = address.memory_limit, address.pages, address.settings
    there = left = 0
    if pages is None:
        held, count = limit.bytes - freed.bytes, limit.messages - freed.messages
        first = 0
        for size in sizes:
            if held >= limit.threshold_bytes or count >= limit.threshold_messages:
                break
            held, count, first = held + size + MESSAGE_OVERHEAD, count + 1, first + 1
        sizes = sizes[first:]
    else:
        there = pages.bytes
        left = max((cursor.remaining - settled[q] for q, cursor in pages.cursors.items()), default=0)
    if not sizes:
        return None
    if 0 <= settings.page_limit_bytes <= there + sum(sizes[:-1]):
        return _describe_exceeded(address, sizes, f"page-limit-bytes {settings.page_limit_bytes}")
    if 0 <= settings.page_limit_messages <= left + len(sizes) - 1:
        return _describe_exceeded(address, sizes, f"page-limit-messages {settings.page_limit_messages}")
    return None


def _describe_exceeded(address: Address, sizes: Sequence[int], limit: str) -> str:
    messages = "one message" if len(sizes) == 1 else f"{len(sizes)} messages"
    return f"Address {address.name} is too full for {messages} of {sum(sizes)} bytes: {limit}"


def drop(rejection: Rejection) -> None:
    """Count a message that the policy DROP rejects. Logged once until the address is no longer full."""
    address = rejection.address
    address.dropped_messages += 1
    if rejection.limit is None:
        address.log_pages_full(rejection.describe())
    elif rejection.of_memory:
        address.log_full("messages are dropped")
    # the disk monitor logs a full disk once for all addresses


log = logging.getLogger(__name__)

#: The offer in a publication to an address without a policy that reads offers.
NO_OFFER = Offer("", Traits(b""), {})


class Publication:
    """Destination and properties of messages that a producer sends with the same headers.

    ``stored``: whether the messages need the disk and the store, not only memory. ``direct``: whether they need only
    routing, because they have no duplicate id, no schedule and no queue name.
    """

    def __init__(
        self,
        address: Address,
        queue: Queue | None,
        traits: Traits,
        schedule: Schedule | None,
    ) -> None:
        self.address = address
        self.queue = queue  # the only receiver, for a fully qualified queue name
        self.traits = address.mark(traits)
        self.schedule = schedule
        self.stored = traits.durable or address.retained == EVERYWHERE
        self.direct = schedule is None and queue is None and not address.settings.enable_ingress_timestamp
        self.identifier: bytes | None = None  # duplicate id of the present message, None without one
        self.offer = NO_OFFER  # the message for the policies of the address


def publish(broker: Services, publication: Publication, body: bytes) -> Rejection | None:
    """Admit and route one message of a producer. Return the rejection if it was not routed, else None.

    After BLOCK the producer tries again later, FAIL is an error, and with DROP the message was dropped.
    """
    address = publication.address
    limited = (
        address.memory_limit.slow_path
        or address.memory.full
        or (publication.stored and (broker.disk.full or broker.storage.write_limit.full))
    )
    if limited or not publication.direct:
        return _publish_checked(broker, publication, body, limited)
    traits = publication.traits
    now = broker.clock.now
    expires = 0
    if traits.requested_expiry or address.changes_expiry:
        expires = expiry_time(address.settings, now, traits.requested_expiry)
    number = broker.numbers.next()
    if address.generation != broker.generation:
        address.rebind()
    queues = address.reaches_all
    if queues and traits.routing_type is not address.not_for_all:  # this is `Address.route`, inlined
        address.routed_messages += 1
        tail = make_tail(number, traits.block, body, now, expires)
        body_at = len(tail) - len(body) - TAIL_END
        bytes_suffice = not expires and traits.group is None
        message: Message | None = None  # created when the first queue needs it
        for queue in queues:
            if bytes_suffice and queue.ready and queue.deliver_tail(traits, tail, body_at):
                continue
            if message is None:
                message = Message(number, address, traits, body, now, expires, tail)
            queue.enqueue(message)
        return None
    message = Message(number, address, traits, body, now, expires)
    if not address.route(message):
        unrouted(message)
    return None


def _publish_checked(
    broker: Services, publication: Publication, body: bytes, limited: bool
) -> Rejection | None:
    """Publish a message that needs more than routing, or whose address or broker may be full (``limited``)."""
    address, identifier = publication.address, publication.identifier
    pages, disk, writes = address.pages, broker.disk, broker.storage.write_limit
    if (
        publication.direct
        and pages is not None
        and address.memory_limit.unbounded
        and not (address.copied or pages.empty or disk.full or writes.full)
    ):  # the message only needs routing, and there is no limit of the pages
        traits, now = publication.traits, broker.clock.now
        expires = 0
        if traits.requested_expiry or address.changes_expiry:
            expires = expiry_time(address.settings, now, traits.requested_expiry)
        message = Message(broker.numbers.next(), address, traits, body, now, expires)
        queues = address.choose(message)
        if queues:
            distribute(address, pages, message, queues)
            address.routed_messages += 1
        else:
            address.unrouted_messages += 1
            unrouted(message)
        return None
    if identifier is not None and is_known(address, identifier):
        return _discard_duplicate(address, identifier)
    if limited:
        rejection = check_admission(address, publication.traits.durable, publication.offer, body)
        if rejection is not None:
            if rejection.policy is FullPolicy.DROP:
                drop(rejection)
            return rejection
        if address.diverts:
            rejection = divert_rejection(address, publication.traits, body)
            if rejection is not None:
                return rejection
    publish_admitted(broker, publication, body)
    return None


def _discard_duplicate(address: Address, identifier: bytes) -> Rejection:
    """Count a message that is not routed, because an earlier message had its duplicate id."""
    count_duplicate(address, identifier)
    return Rejection(address, FullPolicy.DROP, None, "its _AMQ_DUPL_ID was sent before")


def publish_committed(
    broker: Services, publication: Publication, body: bytes, rejection: Rejection | None
) -> Rejection | None:
    """Publish a message of a transaction during its commit, when it can no longer wait or fail. ``rejection``: the
    earlier answer of a policy that decides about each message (`Hooks.full`).
    """
    address, identifier = publication.address, publication.identifier
    if address.hooks.full is None:
        rejection = check_admission(address, publication.traits.durable)
    if rejection is not None and rejection.policy is FullPolicy.DROP:
        drop(rejection)
        return rejection
    # another producer has sent a message with this id meanwhile
    if identifier is not None and is_known(address, identifier):
        return _discard_duplicate(address, identifier)
    publish_admitted(broker, publication, body)
    return None


def publish_admitted(broker: Services, publication: Publication, body: bytes) -> None:
    """Route an admitted message, and remember its duplicate id in the same transaction of the store."""
    address, traits, identifier = publication.address, publication.traits, publication.identifier
    schedule = publication.schedule
    persisted = identifier is not None and is_persisted(address, traits.durable)
    # whether the store gets the message in one transaction with its id, or with its copies
    as_one = persisted or (identifier is None and address.copied)
    if as_one:
        broker.write_gathered()  # write earlier messages first: they are not part of this transaction
        broker.storage.begin(len(body) + len(traits.block) + len(identifier or b""))
    try:
        now = broker.clock.now
        if address.settings.enable_ingress_timestamp:
            traits = with_ingress_timestamp(traits, now)
        expires = expiry_time(address.settings, now, traits.requested_expiry)
        message = Message(broker.next_message_number(), address, traits, body, now, expires)
        due: Due = 0
        recurrence = None
        if schedule is not None:  # None: the message has no due time
            due, recurrence = schedule.due_at(broker.clock), schedule.recurrence
        send(message, due, recurrence, publication.queue)
        if identifier is not None:
            add_id(address, identifier, persisted=persisted)
    finally:
        if as_one:
            broker.storage.commit()


def with_ingress_timestamp(traits: Traits, now: int) -> Traits:
    """Return ``traits`` with the arrival time ``now`` (epoch ms), unless an import has set one."""
    block = traits.block
    if b"\n%b:" % INGRESS_TIMESTAMP_STOMP in block:
        return traits
    return traits.with_block(
        b"%b%b:%d\n%b:%d\n" % (block, INGRESS_TIMESTAMP_STOMP, now, INGRESS_TIMESTAMP, now)
    )


# ---- routing


def accepting(address: Address, queue: Queue | None, message: Message) -> Sequence[Queue]:
    """Return the queues of an address that accept a message. If ``queue`` is given, only this queue is considered."""
    if queue is None:
        return address.choose(message)
    return (queue,) if queue.open and (queue.accepts is None or queue.accepts(message)) else ()


def send(
    message: Message, due: Due = 0, recurrence: Recurrence | None = None, queue: Queue | None = None
) -> int:
    """Route a message. If no queue receives it, it may become a dead letter (`unrouted`)."""
    reached = route(message, due, recurrence, queue)
    if not reached:
        unrouted(message)
    return reached


def route(
    message: Message, due: Due = 0, recurrence: Recurrence | None = None, queue: Queue | None = None
) -> int:
    """Put an admitted message into its queues, and its copies into the addresses of diverts. ``due``: epoch ms, 0: now.

    With ``queue`` (a fully qualified queue name) only this queue receives the message. Return the number of queues that
    received it, or 1 if only diverts have copied it.
    """
    address = as_address(message.address)
    diverted = divert(address, message, due, recurrence) if address.copied else None
    if diverted:  # an exclusive divert took the message
        return address.count_routed(1)
    queues = accepting(address, queue, message)
    if not queues:
        return address.count_routed(diverted is not None)
    enqueue(address, message, queues, due, recurrence)
    return len(queues)


def enqueue(
    address: Address,
    message: Message,
    queues: Sequence[Queue],
    due: Due = 0,
    recurrence: Recurrence | None = None,
) -> None:
    """Put an admitted message into these queues of its address, in memory or pages. ``due``: epoch ms, 0: now."""
    address.count_routed(len(queues))
    pages = pages_for(address) if recurrence is None else None
    if pages is not None:
        distribute(address, pages, message, queues, due)
    elif due:
        for queue in queues:  # each queue counts the repetitions of a recurring message separately
            queue.schedule(message, due, None if recurrence is None else replace(recurrence))
    else:
        for queue in queues:
            queue.enqueue(message)


def unrouted(message: Message) -> None:
    """Drop a message that no queue accepted, or send it as a dead letter (``send-to-dla-on-no-route``)."""
    address = as_address(message.address)
    if address.settings.send_to_dla_on_no_route:
        _send_dead_letter(message, address.name, address, NO_ROUTE)


# ---- copies that the broker makes


def send_dead_letter(ref: Reference, reason: str = MAX_DELIVERY_ATTEMPTS) -> bool:
    """Send a copy of a message to the dead-letter-address. Return False if the address is not set, or if no queue
    accepts the copy. The copy has ``reason`` in ``_AMQ_ORIG_REASON``.
    """
    return _send_dead_letter(ref.message, ref.queue.name, ref.queue.address, reason)


def _send_dead_letter(message: Message, queue: str, address: AddressBase, reason: str) -> bool:
    settings, target = address.settings, address.settings.dead_letter_address
    if target is None or target == address.name:
        return False
    if settings.auto_create_dead_letter_resources:
        prefix, suffix = settings.dead_letter_queue_prefix, settings.dead_letter_queue_suffix
        _create_resource(message, target, prefix, suffix)
    return _send_copy(message, queue, target, Transfer.DEAD_LETTER, reason)


def send_expired(ref: Reference) -> bool:
    """Send a copy of a message to the expiry-address. Return False without one, or if no queue accepts the copy."""
    address, message = ref.queue.address, ref.message
    settings, target = address.settings, address.settings.expiry_address
    if target is None or target == address.name:
        return False
    if settings.auto_create_expiry_resources:
        _create_resource(message, target, settings.expiry_queue_prefix, settings.expiry_queue_suffix)
    return _send_copy(message, ref.queue.name, target, Transfer.EXPIRED, EXPIRED)


def send_copy(message: Message, queue: str, target: str, keep_expiry: bool) -> bool:
    """Send a copy of a message of ``queue`` to the address ``target``, which is created if auto-create allows it.

    The expiry of the copy comes from the settings of ``target``; with ``keep_expiry`` the copy requests the expiry of
    the message. Return False if no queue accepts the copy.
    """
    address = as_address(message.address)
    try:
        services_of(address).auto_create.address_for_send(target, None, allow_all)
    except Refused as reason:
        log.warning(
            "message %d of queue %s not copied to address %s: %s",
            message.number,
            queue,
            target,
            reason,
            extra={"queue": queue, "address": address.name},
        )
        return False
    requested = message.expires if keep_expiry else 0
    return _send_copy(message, queue, target, Transfer.POLICY, POLICY, requested)


def send_entered(address: Address, traits: Traits, body: bytes, target: str, keep_expiry: bool) -> bool:
    """Send a copy of a message that has just entered ``address``; see `send_copy`. The copy has no header
    ``_AMQ_ORIG_MESSAGE_ID``.
    """
    message = Message(0, address, traits, body, address.broker.clock.now, traits.requested_expiry)
    return send_copy(message, address.name, target, keep_expiry)


def send_notification(broker: Services, event: Event) -> bool:
    """Send a notification to the management-notification-address. Return False if no queue accepts it.

    Nothing is sent if that address is missing, has no queues of its own, or is full.
    """
    address = broker.directory.addresses.get(broker.notifications.address)
    if address is None or not address.queues or address.full is not None:
        return False
    headers = {
        "_AMQ_NotifType": event.type,
        "_AMQ_NotifTimestamp": str(event.time),
        **message_headers(event),
    }
    assert all(name in NOTIFICATION_PROPERTIES for name in headers)
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    traits = address.mark(reply_traits(address.name.encode(), RoutingType.MULTICAST, encoded))
    body = event.text.encode(errors="replace")
    return route(Message(broker.next_message_number(), address, traits, body, event.time)) > 0


class ReplyTo(NamedTuple):
    """Target of a reply: an address, or one queue of it, and the destination as the client wrote it."""

    address: str
    queue: str | None
    routing_type: RoutingType | None
    destination: bytes


def send_reply(broker: Services, reply_to: ReplyTo, headers: Mapping[bytes, bytes], body: bytes) -> bool:
    """Send the reply to a management request. Return False if its target is missing, or no queue accepts the reply."""
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
    send(message, queue=queue)
    return True


def _send_copy(
    message: Message, queue: str, target: str, transfer: Transfer, reason: str, requested: int = 0
) -> bool:
    broker = services_of(as_address(message.address))
    address = broker.directory.addresses.get(target)
    if address is None or target in broker.copying_to:
        return False  # a loop: for example, two rings that evict messages into each other
    now = broker.clock.now
    expires = expiry_time(address.settings, now, requested)
    copy = copy_for(message, queue, address, broker.next_message_number(), now, expires, transfer, reason)
    broker.copying_to.append(target)
    try:
        return route(copy) > 0
    finally:
        broker.copying_to.pop()


def _create_resource(message: Message, target: str, prefix: str, suffix: str) -> None:
    """Create the queue for dead letters or expired messages of one address, unless it exists."""
    origin, directory = message.address.name, services_of(as_address(message.address)).directory
    queue = f"{prefix}{origin}{suffix}"
    if queue in directory.queues:
        return
    literal = origin.replace("'", "''")
    try:
        directory.create_queue(
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


class Divert:
    """One divert. Counters are plain integers, named as in management."""

    def __init__(self, broker: Services, configuration: DivertConfiguration) -> None:
        self.copied_messages = 0  # copies that entered a queue, or were copied by another divert
        self.unrouted_messages = 0  # copies that no queue accepted
        self.dropped_messages = 0  # copies that a full address or a policy dropped
        self.loops = 0  # copies not sent: their message had already passed the forwarding address
        self.broker = broker
        self.name = configuration.name
        self.position = 0  # position among the diverts of the broker
        self.logged: set[str] = set()  # forwarding addresses with a logged warning
        self.configure(configuration)

    def configure(self, configuration: DivertConfiguration) -> None:
        """Apply a configuration."""
        self.configuration = configuration
        kind = configuration.routing_type
        self.passes = kind is ComponentRoutingType.PASS  # copies have the routing type of their message
        self.routing_type = RoutingType(kind) if kind in RoutingType.__members__ else None
        self.logged.clear()

    def warn(self, target: str, text: str, *values: object) -> None:
        """Log a warning about a forwarding address, once until the divert is changed."""
        if target not in self.logged:
            self.logged.add(target)
            log.warning(text, *values, extra={"divert": self.name, "address": target})


class BoundDivert(Copier):
    """A divert at one of its addresses, with its transformer for that address."""

    def __init__(self, divert: Divert, address: Address) -> None:
        self.divert = divert
        self.configuration = divert.configuration  # configuration of the divert when this object was created
        # the filter is only compiled for an existing address: there may be many diverts
        self.accepts = compiled_filter(divert.configuration.filter)
        # whether copied messages do not enter the address's queues
        self.exclusive = divert.configuration.exclusive
        self.transformer = transformer_for(divert.configuration.transformer, address)
        self.targets = [ForwardingAddress(divert, name) for name in divert.configuration.forwarding_address]

    def copy(self, message: Message, due: Due, recurrence: Recurrence | None) -> None:
        """Send the copies of a message, with its schedule."""
        changes = NO_CHANGES if self.transformer is None else self.transformer.changes(message)
        if changes is None:
            self.divert.dropped_messages += len(self.targets)
            return
        for target in self.targets:
            target.send(message, changes, due, recurrence)

    def forwarding_addresses(self) -> list[Address]:
        """Return the existing addresses that get copies."""
        addresses = self.divert.broker.directory.addresses
        return [addresses[target.name] for target in self.targets if target.name in addresses]

    def stop(self) -> None:
        """Stop the transformer: the divert no longer applies to the address, or the address is deleted."""
        if self.transformer is not None:
            self.transformer.stop()


@dataclass(eq=False)
class ForwardingAddress:
    """An address that a divert copies messages to."""

    _divert: Divert
    name: str
    _address: Address | None = None
    _stamp: int = -1
    #: traits and changes of the latest message, and the traits of its copies. Most next messages have the same traits
    #: and changes.
    _cached: tuple[Traits, HeaderChanges, Traits] | None = None

    def address(self, routing_type: RoutingType | None) -> Address | None:
        """Return the address, created as for a SEND. If its creation is refused, log this and return None."""
        address = self._address
        if address is not None and address.stamp == self._stamp and not address.deleted:
            return address
        divert = self._divert
        self._cached = None
        try:
            address = divert.broker.auto_create.address_for_send(self.name, routing_type, allow_all)
        except Refused as reason:
            divert.warn(self.name, "divert %s: no copy to address %s: %s", divert.name, self.name, reason)
            return None
        self._address, self._stamp = address, address.stamp
        return address

    def send(self, message: Message, changes: HeaderChanges, due: Due, recurrence: Recurrence | None) -> None:
        """Send a copy, unless a limit rejects it. Counts the result."""
        divert = self._divert
        broker = divert.broker
        if self.name in broker.copying_to:
            divert.loops += 1
            divert.warn(
                self.name,
                "divert %s: no copy to address %s: the message came from there (by way of %s)",
                divert.name,
                self.name,
                ", ".join(broker.copying_to),
            )
            return
        routing_type = message.traits.routing_type if divert.passes else divert.routing_type
        address = self.address(routing_type)
        if address is None:
            divert.unrouted_messages += 1
            return
        traits = self._traits(message, address, routing_type, changes)
        body = message.body
        refused = check_admission(address, traits.durable, offer_of(address, traits, message), body)
        if refused is not None and refused.policy is FullPolicy.DROP:
            drop(refused)
            divert.dropped_messages += 1
            return
        requested = traits.requested_expiry if b"expires" in changes else message.expires
        expires = expiry_time(address.settings, broker.clock.now, requested)
        copy = Message(broker.next_message_number(), address, traits, body, message.timestamp, expires)
        broker.copying_to.append(self.name)
        try:
            if send(copy, due, recurrence):
                divert.copied_messages += 1
            else:
                divert.unrouted_messages += 1
        finally:
            broker.copying_to.pop()

    def _traits(
        self, message: Message, address: Address, routing_type: RoutingType | None, changes: HeaderChanges
    ) -> Traits:
        """Return the traits of one copy. Copies of messages with the same traits share all but the message id."""
        traits, cached = message.traits, self._cached
        if cached is not None and cached[0] is traits and cached[1] is changes:
            shared = cached[2]
        else:
            changed = copied_traits(traits, self.name.encode(), routing_type, changes)
            divert = self._divert
            names = ORIGIN_HEADERS if divert.passes else (*ORIGIN_HEADERS, b"destination-type")
            added = origin_headers(message, divert.name, DIVERT)
            if divert.routing_type is not None:
                added.append((b"destination-type", divert.routing_type.encode()))
            shared = copied(changed, without_headers(changed.block, names) + header_lines(added))
            self._cached = traits, changes, address.mark(shared)
        return shared.with_block(shared.block + b"_AMQ_ORIG_MESSAGE_ID:%d\n" % message.number)


def offer_of(address: Address, traits: Traits, message: Message) -> Offer | None:
    """Return the offer of a copy, for `Hooks.full` of ``address``. None: the address has no such hook."""
    return None if address.hooks.full is None else Offer(address.name, traits, sent_headers(message))


def diverts_of(address: Address) -> tuple[BoundDivert, ...]:
    """Return the diverts of an address as `BoundDivert`: the address has them as `Copier`."""
    return cast("tuple[BoundDivert, ...]", address.diverts)


def matching(address: Address, message: Message) -> list[BoundDivert]:
    """Return the diverts that copy a message: if exclusive diverts match, only these."""
    found = [bound for bound in diverts_of(address) if bound.accepts is None or bound.accepts(message)]
    exclusive = [bound for bound in found if bound.exclusive]
    return exclusive or found


def divert(address: Address, message: Message, due: Due, recurrence: Recurrence | None) -> bool | None:
    """Copy a message of an address with diverts or retroactive messages. Copies have the schedule of the message.

    Return True if an exclusive divert took the message, False if it was only copied, None without a copy.
    """
    bound = matching(address, message)
    exclusive = bool(bound) and bound[0].exclusive
    if address.retroactive is not None and not exclusive:
        address.retroactive.add(message, due, recurrence)
    if not bound:
        return None if address.retroactive is None else False
    copying_to = services_of(address).copying_to
    copying_to.append(address.name)
    try:
        for one in bound:
            one.copy(message, due, recurrence)
    finally:
        copying_to.pop()
    return exclusive


# ---- limits of the forwarding addresses


def divert_rejection(address: Address, traits: Traits, body: bytes) -> Rejection | None:
    """Return the rejection of a message by the limits of the forwarding addresses, None if they allow it.

    Only BLOCK and FAIL reject the message itself. All filters are evaluated with the headers of this message, even
    those of diverts that apply to its copies.
    """
    if next(_rejections(address, traits, None), None) is None:
        return None
    message = Message(0, address, traits, body, address.broker.clock.now, traits.requested_expiry)
    return next(_rejections(address, traits, message), None)


def forwarding_addresses(address: Address, message: Message | None) -> Iterator[Address]:
    """Yield the existing addresses to which diverts copy ``message``, also through other diverts. If ``message`` is
    None: to which they may copy any message.
    """
    seen = {address}
    waiting = [address]
    while waiting:
        source = waiting.pop()
        for bound in diverts_of(source) if message is None else matching(source, message):
            for found in bound.forwarding_addresses():
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
                    yield found


def depends_on_message(address: Address) -> bool:
    """Return whether the forwarding addresses of ``address`` differ from message to message."""
    return any(
        bound.exclusive or bound.accepts is not None
        for source in (address, *forwarding_addresses(address, None))
        for bound in diverts_of(source)
    )


def _rejections(address: Address, traits: Traits, message: Message | None) -> Iterator[Rejection]:
    for target in forwarding_addresses(address, message):
        if target.hooks.full is not None and message is None:
            if target.full is not None:
                yield Rejection(target, FullPolicy.BLOCK, target.full)
            continue
        offer = None if message is None else offer_of(target, traits, message)
        found = check_admission(target, traits.durable, offer, b"" if message is None else message.body)
        if found is not None and found.policy is not FullPolicy.DROP:
            yield found


# ---- the diverts of a broker


class Diverts:
    """The diverts of a broker, by name. ``graph``: their configurations by address."""

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._next_position = 0
        self.by_name: dict[str, Divert] = {}
        self.graph = DivertGraph((), broker.configuration.wildcard)

    def bind(self, address: Address) -> None:
        """Update the diverts of an address. Unchanged ones keep their `BoundDivert`."""
        before = {bound.divert: bound for bound in diverts_of(address)}
        applying = [self.by_name[each.name] for each in self.graph.of(address.name)]
        applying.sort(key=lambda one: one.position)
        found: list[BoundDivert] = []
        for one in applying:
            former = before.get(one)
            if former is not None and former.configuration is one.configuration:
                found.append(before.pop(one))
            else:
                found.append(BoundDivert(one, address))
        if before or len(found) != len(address.diverts):
            address.set_diverts(tuple(found))
        for bound in before.values():
            bound.stop()

    def put(self, configuration: DivertConfiguration) -> None:
        """Add or change a divert. The caller calls `bind_all` or `bind_to` after its changes."""
        self.graph.put(configuration)
        live = self.by_name.get(configuration.name)
        if live is not None:
            live.configure(configuration)
            return
        live = self.by_name[configuration.name] = Divert(self._broker, configuration)
        live.position = self._next_position
        self._next_position += 1

    def remove(self, name: str) -> None:
        """Remove a divert. The caller calls `bind_all` or `bind_to` after its changes."""
        del self.by_name[name]
        self.graph.remove(name)

    def find_loop(
        self, changed: Sequence[DivertConfiguration], removed: Sequence[str] = ()
    ) -> DivertLoop | None:
        """Return a loop that these changes would cause among the diverts, None without one. Changes nothing."""
        for name in removed:
            self.graph.remove(name)
        for one in changed:
            self.graph.put(one)
        loop = next(self.graph.loops(changed), None)
        for one in changed:
            self.graph.remove(one.name)
        for name in (*removed, *[one.name for one in changed]):
            live = self.by_name.get(name)
            if live is not None:
                self.graph.put(live.configuration)
        return loop

    def bind_all(self) -> None:
        """Update all addresses after a change of diverts, or of policies that are their transformers."""
        for address in self._broker.directory.addresses.values():
            self.bind(address)

    def bind_to(self, configuration: DivertConfiguration) -> None:
        """Update the addresses of one divert, which was changed or removed."""
        addresses = self._broker.directory.addresses
        pattern = self.graph.pattern_of(configuration)
        if pattern is None:
            address = addresses.get(configuration.address)
            if address is not None:
                self.bind(address)
            return
        for address in addresses.values():
            if pattern.matches(address.name):
                self.bind(address)


class Target(NamedTuple):
    """Target of messages: all queues of an address that accept them, or one named queue."""

    address: "Address"  # noqa: UP037 (in quotes: the compiled build would look it up here)
    queue: Queue | None

    def describe(self) -> str:
        """Return the text for an error."""
        return f"address {self.address.name}" if self.queue is None else f"queue {self.queue.name}"


def move_target(
    source: Queue,
    address: str | None,
    queue: str | None,
    routing_type: RoutingType | None,
    check: PermissionCheck,
    user: str | None,
) -> Target:
    """Return the target of a move or copy, created if a SEND would create it. Raises `Refused`, `NotFound`."""
    broker = services_of(source)
    broker.directory.check_words(address or "")
    if queue is not None:
        name = broker.auto_create.address_of(address or "", queue)
        check(PermissionType.SEND, name, queue)
        found = broker.auto_create.queue_for(name, queue, routing_type, check, user)
        if found is source:
            raise Refused(f"Queue {queue} is the queue of the messages itself: name another one")
        return Target(broker.directory.address(found.address.name), found)
    if not address:
        raise Refused("address is missing: name the address or the queue that the messages go to", status=400)
    check(PermissionType.SEND, address)
    if address == source.address.name and list(broker.directory.address(address).queues.values()) == [source]:
        raise Refused(
            f"Address {address} leads back to queue {source.name}: name another address, or one of its queues"
        )
    return Target(broker.auto_create.address_for_send(address, routing_type, check, user), None)


def retry_target(broker: Services, origin: MessageOrigin, check: PermissionCheck, user: str | None) -> Target:
    """Return the target of a retry: the original queue if messages to the original address reach it, else the address.

    Raises `Refused`, and `NotFound` if neither exists and the address may not be created.
    """
    directory = broker.directory
    check_not_internal(origin.address)
    queue = directory.queues.get(origin.queue) if origin.reason != NO_ROUTE else None
    if queue is not None and _gets(queue, origin.address):
        check(PermissionType.SEND, origin.address, queue.name)
        address = directory.addresses.get(origin.address) or directory.address(queue.address.name)
        return Target(address, queue)
    check(PermissionType.SEND, origin.address)
    return Target(broker.auto_create.address_for_send(origin.address, origin.routing_type, check, user), None)


def _gets(queue: Queue, address: str) -> bool:
    """Return whether messages sent to ``address`` reach a queue: a queue of this or of a matching wildcard address."""
    name, wildcards = queue.address.name, services_of(queue).directory.wildcards
    return name == address or name in wildcards.matching(address)


@dataclass(eq=False)
class Mover:
    """Moves or copies messages of one queue to targets."""

    source: Queue
    remove: bool  # whether to move the messages; False: copy them
    keep_origin: bool = False  # whether retried messages keep the headers of their origin
    #: cache: traits of a message, target address, traits of the moved message
    _traits: tuple[Traits, Address, Traits] | None = None

    def send(self, ref: Reference, target: Target, origin: MessageOrigin | None = None) -> Rejection | bool:
        """Move or copy one pending or scheduled message. If its ``origin`` is given, retry the message.

        Return False if the message has left its queue, a `Rejection` if the target is full. Raises `Refused` if the
        target does not accept it. A rejected or refused message stays in its queue.
        """
        broker, message = self.source.broker, ref.message
        forwarded, queues, due = self._forwarded(ref, target, origin)
        rejection = self._rejection(ref, target.address, forwarded)
        if rejection is not None:
            return rejection
        recurrence = ref.recurrence if origin is None else None
        with broker.together(len(message.tail)):
            if self.remove and not take(ref):
                return False
            enqueue(target.address, forwarded, queues, due, recurrence)
        return True

    def _forwarded(
        self, ref: Reference, target: Target, origin: MessageOrigin | None
    ) -> tuple[Message, Sequence[Queue], Due]:
        """Return the message for the target, the queues that accept it, and its due time."""
        address, queue = target
        broker, source = self.source.broker, ref.message
        now = broker.clock.now
        # the expiry of a dead letter comes from the settings of the dead-letter-address
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
        queues = accepting(address, queue, message)
        if not queues:
            raise Refused(f"No queue accepts message {source.number}: {_why_not(target)}")
        if list(queues) == [self.source]:
            raise Refused(f"Message {source.number} would come back to queue {self.source.name}")
        waits = origin is None and ref.state == SCHEDULED and not ref.deliveries
        return message, queues, ref.due if waits else 0

    def _traits_for(self, traits: Traits, address: Address, origin: MessageOrigin | None) -> Traits:
        known = self._traits
        if known is not None and known[0] is traits and known[1] is address:
            return known[2]
        of_origin = () if origin is None or self.keep_origin else ORIGIN_HEADERS
        block = without_headers(traits.block, (*of_origin, b"destination-type"))
        found = traits.sent_to(
            block,
            address.name.encode(),
            None if origin is None else origin.routing_type,
            origin=traits.origin,
        )
        self._traits = traits, address, address.mark(found)
        return found

    def _rejection(self, ref: Reference, address: Address, message: Message) -> Rejection | None:
        offer = None
        if address.hooks.full is not None:
            headers = {name.encode(): value.encode() for name, value in message.headers().items()}
            offer = Offer(address.name, message.traits, headers)
        rejection = check_admission(address, message.traits.durable, offer, message.body if offer else b"")
        if rejection is None or rejection.limit is not address.memory:
            return rejection
        # the broker's memory is full, but a move to another queue in memory adds nothing to it
        neutral = self.remove and ref.position is None and ref.message.holders == 1
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
    """Remove a pending or scheduled message, as acknowledged. Return False if it has left its queue."""
    loaded = loaded_reference(ref)
    if loaded is None:
        return False
    as_queue(loaded.queue).remove(loaded)
    return True


def expire(ref: Reference) -> bool:
    """Expire a pending or scheduled message now, whatever its expiry. Return False if it has left its queue."""
    loaded = loaded_reference(ref)
    if loaded is None:
        return False
    as_queue(loaded.queue).expire(loaded)
    return True


def change_priority(ref: Reference, priority: int) -> bool:
    """Move a pending message to the end of another priority (0 to 9). Return False if it has left its queue. A copy
    with a new number and no deliveries replaces the message.
    """
    queue, message = as_queue(ref.queue), ref.message
    broker, traits = queue.broker, message.traits
    if traits.priority == priority:
        return ref.present if isinstance(ref, OnDisk) else ref.state == PENDING
    changed = copied_traits(traits, traits.destination, traits.routing_type, {b"priority": b"%d" % priority})
    with broker.together(len(message.tail)):
        if not take(ref):
            return False
        number = broker.next_message_number()
        address, body = as_address(message.address), message.body
        copy = Message(number, address, address.mark(changed), body, message.timestamp, message.expires)
        enqueue(address, copy, (queue,))
    return True


def dead_letter(ref: Reference) -> bool:
    """Move a pending or scheduled message to the dead-letter-address, as killed. Return False if it has left its queue.
    Raises `Refused` if no queue accepts the dead letter: the message then stays.
    """
    if not (ref.present if isinstance(ref, OnDisk) else ref.state in (PENDING, SCHEDULED)):
        return False
    queue = as_queue(ref.queue)
    with queue.broker.together():
        if not send_dead_letter(ref, MANAGEMENT):
            target = queue.address.settings.dead_letter_address
            raise Refused(f"dead-letter-address {target} has no queue for message {ref.message.number}")
        loaded = loaded_reference(ref)
        if loaded is None:
            return True  # the dead letter entered the same ring, and evicted the message
        queue.detach(loaded)
        queue.messages_killed += 1
        if queue.hooks.dead_lettered is not None:
            queue.hooks.dead_lettered(loaded)
        queue.drop(loaded, Reason.KILLED)
    return True


def numbered(queue: Queue, numbers: set[int]) -> Iterator[Reference | PageRead | None]:
    """Yield pending, scheduled or delivering messages with these numbers, and None for each other message in memory.

    Removes the numbers of the found messages from ``numbers``.
    """
    for _ in range(2):  # twice: meanwhile messages from disk may enter the lists that were already searched
        in_memory = chain(
            queue.dispatcher.snapshot(),
            list(queue.scheduled.values()),
            queue.unsettled_references(),
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


#: Bytes that a SEND in a transaction counts in addition to its body and headers, for its objects. Measured
#: (benchmarks.micro.sizes): 300 if all SENDs have the same headers, else more.
STEP_OVERHEAD: Final = 400


#: A step of a commit: acts immediately, or returns an iterator that acts on many messages in time slices.
Step = Call
Undo = Callable[[], "list[Reference]"]
Question = Callable[[], "Rejection | None"]
Claim = Callable[[], "tuple[Address, bytes | None]"]

#: Key of the `Background` jobs that execute commits: they run one after the other.
COMMITS: Final = "commits"


class Transaction:
    """The SENDs, ACKs and NACKs of an open transaction, in order. They take effect with `commit`.

    Acknowledged messages stay in delivery until then. After `rollback` the messages are delivered and unacknowledged,
    as before; if the connection is lost, they return to their queues.
    """

    def __init__(self, broker: Services, held: ByteQuota | None = None) -> None:
        """``held``: quota of the connection's transactions. None: only the quota of all transactions applies."""
        self.durable = False  # whether the transaction sends a durable message
        self._broker = broker
        self._quota = held or broker.transaction_bytes
        self.bytes = 0
        self._steps: list[Step] = []
        #: acknowledged or refused messages, which stay in delivery until the commit; requeued if the connection is lost
        self.returns: list[Reference] = []
        self._undo: list[Undo] = []
        #: for each message: a function that returns its address, and its bytes
        self._sends: list[tuple[Callable[[], Address], int]] = []
        #: for each message: a function that returns the addresses to which diverts copy it, and its bytes
        self._diverted: list[tuple[Callable[[], Iterable[Address]], int]] = []
        self.acknowledged: list[Reference] = []
        self.questions: list[Question] = []  # checks of policies that decide about each message
        # for each message: a function that returns its address and duplicate id
        self.claims: list[Claim] = []
        self._cancels: list[Callable[[str], None]] = []  # callbacks for sends that will not happen

    def send(
        self,
        size: int,
        address: Callable[[], Address],
        step: Step,
        *,
        durable: bool,
        ask: Question | None = None,
        claim: Claim | None = None,
        cancel: Callable[[str], None] | None = None,
        diverted: Callable[[], Iterable[Address]] | None = None,
    ) -> None:
        """Add a SEND. At the commit ``step`` sends a message of ``size`` bytes to the address that ``address`` returns.

        Before the commit, ``ask`` returns a rejection if a limit stops the message, ``claim`` returns its address and
        duplicate id, and ``diverted`` the addresses that diverts copy it to. ``cancel`` is called with the reason if
        the message will not be sent.

        Raises `LimitReached` if the transactions of the connection, or all transactions, hold too many bytes.
        """
        held = size + STEP_OVERHEAD
        self._quota.reserve(held)
        self.bytes += held
        self.durable = self.durable or durable
        self._sends.append((address, size))
        self._steps.append(step)
        if ask is not None:
            self.questions.append(ask)
        if claim is not None:
            self.claims.append(claim)
        if cancel is not None:
            self._cancels.append(cancel)
        if diverted is not None:
            self._diverted.append((diverted, size))

    def loads(self) -> dict[Address, list[int]]:
        """Return the bytes of each message that `commit` will send, in order, by address.

        Raises `Refused` if an address no longer accepts messages.
        """
        loads: dict[Address, list[int]] = {}
        last: Address | None = None
        for named, size in self._sends:
            address = named()
            if address is not last:  # consecutive messages mostly have the same address
                last, add = address, loads.setdefault(address, []).append
            add(size)
        for diverted, size in self._diverted:
            for address in diverted():
                loads.setdefault(address, []).append(size)
        return loads

    def duplicate(self) -> tuple[Address, bytes] | None:
        """Return address and duplicate id of the first message whose id was routed before, or that has the id of an
        earlier message in the transaction; None if there is no duplicate. Raises `Refused` like `loads`.
        """
        claimed: set[tuple[Address, bytes]] = set()
        for claim in self.claims:
            address, identifier = claim()
            if identifier is None:
                continue
            if (address, identifier) in claimed or is_known(address, identifier):
                return address, identifier
            claimed.add((address, identifier))
        return None

    def acknowledge(self, refs: list[Reference], undo: Undo) -> None:
        """Add an ACK. ``undo`` makes its messages unacknowledged; it returns the messages whose consumer has left."""
        self.returns += refs
        self.acknowledged += refs
        self._steps.append(lambda: settling(refs))
        self._undo.append(undo)

    def refuse(self, refs: list[Reference], consumer: Consumer, undo: Undo) -> None:
        """Add a NACK. For ``undo`` see `acknowledge`."""
        self.returns += refs
        self._steps.append(lambda: self._returning(refs, consumer))
        self._undo.append(undo)

    def commit(self) -> None:
        """Execute all SENDs, ACKs and NACKs as one transaction of the store.

        A long commit runs in time slices, after earlier commits.
        """
        # Release the bytes before the commit, not after it: if the connection is lost meanwhile, it releases its whole
        # quota, and a later release would subtract these bytes again.
        self._let_go()
        self._broker.background.run(self._commit(), COMMITS)

    def when_done(self, call: Call) -> None:
        """Call ``call`` when the earlier `commit` or `rollback` has ended."""
        self._broker.background.after(COMMITS, call)

    def _commit(self) -> Iterator[None]:
        with self._broker.together():
            for step in self._steps:
                steps = step()
                if isinstance(steps, Iterator):
                    yield from steps
                yield
        returns, self.returns = self.returns, []
        self._forget()
        for queue in {as_queue(ref.queue) for ref in returns}:
            queue.delete_if_unused()  # the last consumer may have left before the commit

    def cancel(self, reason: str) -> None:
        """Call the ``cancel`` callbacks of all SENDs, once: they will not be sent."""
        for _ in self._cancelling(reason):
            pass

    def _cancelling(self, reason: str) -> Iterator[None]:
        cancels, self._cancels = self._cancels, []
        for call in cancels:
            call(reason)
            yield

    def rollback(self) -> None:
        """Drop all SENDs, ACKs and NACKs.

        Acknowledged messages stay with their consumer, or are requeued if the consumer has left. Long rollbacks
        run in time slices, like `commit`.
        """
        self._let_go()
        self._broker.background.run(self._rollback(), COMMITS)

    def _rollback(self) -> Iterator[None]:
        undo, self._undo, self.returns = self._undo, [], []
        yield from self._cancelling("ABORT")
        self._forget()
        left: list[Reference] = []
        for restore in undo:
            left += restore()
            yield
        requeue(left, None, failed=False)

    def _returning(self, refs: list[Reference], consumer: Consumer) -> Iterator[None]:
        """Requeue refused messages. Waits until all are in their queues: a commit is one transaction of the store."""
        waiting = {ref.queue for ref in refs}
        requeue(refs, consumer, failed=True)
        for queue in list(waiting):
            self._broker.background.after(queue, partial(waiting.discard, queue))
        while waiting:
            yield

    def forget(self) -> None:
        """Drop all SENDs, ACKs and NACKs: the connection is lost, and its acknowledged messages are requeued."""
        self.returns = []
        self._forget()

    def _forget(self) -> None:
        for things in (
            self._steps,
            self._sends,
            self._diverted,
            self._undo,
            self._cancels,
            self.acknowledged,
            self.questions,
            self.claims,
        ):
            if things:
                self._broker.background.discard(things)

    def _let_go(self) -> None:
        self._quota.release(self.bytes)
        self.bytes = 0


def settling(refs: list[Reference]) -> Iterator[None]:
    """Settle references of any queues. Yields after each."""
    for ref in refs:
        ref.queue.settle(ref)
        yield


def requeue(refs: list[Reference], consumer: Consumer | None, *, failed: bool) -> None:
    """Requeue references of any queues."""
    for queue in dict.fromkeys([as_queue(ref.queue) for ref in refs]):
        queue.requeue([ref for ref in refs if ref.queue is queue], consumer, failed=failed)
