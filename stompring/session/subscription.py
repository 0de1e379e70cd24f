"""SUBSCRIBE, UNSUBSCRIBE and the subscriptions of a connection.

Subscriptions: consumers that write MESSAGE frames, one class for each way of acknowledging.

Before a message's shared tail a subscription puts its *lead*: the headers that are its own. The lead ends in
``message-id:QUEUE-`` and the tail begins with the message's number, so that nothing is formatted per delivery in
``auto`` mode. Message ids therefore name the message in its queue and stay the same when it comes again.

SUBSCRIBE and UNSUBSCRIBE: from headers to a consumer on the right queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from stompring.broker.directory import subscription_size
from stompring.broker.history import History
from stompring.broker.message import Matches, Message, Traits, decimal, tail_for
from stompring.broker.ports import Entries, Subscriber
from stompring.broker.publish import Undo
from stompring.broker.queue import Consumer, Queue, not_from
from stompring.broker.queue_browser import PageRead, iterate_pending
from stompring.broker.reference import PENDING, Reference
from stompring.errors import LimitReached, NotFound, ProtocolError, Refused
from stompring.selector import InvalidSelector, Selector, compile_selector
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType
from stompring.stomp.frames import Head, header_line

from .destination import Destination, temporary_queue, temporary_topic
from .outbox import Outbox, check_identifier_length, shortened, text_of

if TYPE_CHECKING:
    from .session import Session


#: No window. (Of integers below 2**62 compiled code makes no objects.)
UNLIMITED = 1 << 61

#: Messages that a browser reads between two readings of the clock.
BROWSED_AT_ONCE = 8

#: Messages that one ACK settles at once: some milliseconds. More are settled in slices.
MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a SUBSCRIBE frame asked for, as far as delivery is concerned."""

    id: bytes
    destination: bytes  # as the subscriber wrote it
    wildcard: bool
    version: bytes
    ack: str = "auto"
    window_bytes: int = UNLIMITED
    window_messages: int = UNLIMITED
    durable_name: str | None = None
    browser: bool = False
    priority: int = 0
    selector: str | None = None
    for_replies: bool = False  # made for a reply-to, until the client subscribes there itself


class Subscription(Consumer):
    """What all kinds share: the lead, the outbox, and credit as far as the socket goes."""

    __slots__ = (
        "_any_version",
        "_on_cancel",
        "_wildcard",
        "connection_id",
        "created",
        "detached",
        "ended",
        "history",
        "lead",
        "lead_again",
        "outbox",
        "rejected",
        "size",
        "terms",
    )

    def __init__(
        self,
        terms: Terms,
        outbox: Outbox,
        on_cancel: Callable[[Subscription, str], None],
        matches: Matches | None = None,
        matches_key: object = None,
    ) -> None:
        super().__init__(matches, matches_key)
        self.terms = terms
        self.priority = terms.priority
        self.outbox = outbox
        self._any_version = terms.version == b"1.2"
        self._wildcard = terms.wildcard
        self._on_cancel = on_cancel
        self.lead = self.lead_again = b""
        self.ended = False  # returned messages go to the queue, not to the subscription
        self.detached = False  # has left its queue
        self.connection_id = ""  # the session header of its connection
        self.created = 0  # epoch ms
        self.history: History | None = None  # while it is sampled
        self.rejected = 0  # of what is settled: by NACK
        self.size = 0  # bytes that it counts for

    def attach(self, queue: Queue) -> None:
        """Join the queue. Raises `Refused` when it takes no more consumers."""
        terms = self.terms
        opening = b"MESSAGE\n" + header_line(b"subscription", terms.id, terms.version)
        if not terms.wildcard:
            opening += header_line(b"destination", terms.destination, terms.version)
        self.lead = self._complete(opening + b"redelivered:false\n", queue)
        self.lead_again = self._complete(opening + b"redelivered:true\n", queue)
        self.willing = False  # until `room_again`, after the receipt
        queue.add_consumer(self)

    def _complete(self, lead: bytes, queue: Queue) -> bytes:
        return b"%bmessage-id:%b" % (lead, queue.id_prefix)

    def additional_header(self, name: bytes, value: bytes) -> AbstractContextManager[None]:
        """See `Consumer.additional_header`. It precedes headers of that name which the sender has set."""
        return self._with_header(name, value)

    @contextmanager
    def _with_header(self, name: bytes, value: bytes) -> Iterator[None]:
        leads = self.lead, self.lead_again
        line = header_line(name, value, self.terms.version)
        self.lead, self.lead_again = (b"MESSAGE\n%b%b" % (line, lead[len(b"MESSAGE\n") :]) for lead in leads)
        try:
            yield
        finally:
            self.lead, self.lead_again = leads

    def write(self, message: Message, lead: bytes) -> None:
        """Put a MESSAGE frame into the outbox; for a wildcard the sender's destination is added to the lead."""
        self._write(message.traits, message.tail, message.body_at, lead)

    def _write(self, traits: Traits, tail: bytes, body_at: int, lead: bytes) -> None:
        outbox = self.outbox
        if self._wildcard:
            lead = (
                b"MESSAGE\n" + header_line(b"destination", traits.destination, self.terms.version) + lead[8:]
            )
        if traits.escaped and not self._any_version:
            tail = tail_for(self.terms.version, traits, tail, body_at)
        parts = outbox.parts
        parts.append(lead)
        parts.append(tail)
        capacity = outbox.capacity - len(tail)
        outbox.capacity = capacity
        if not outbox.dirty:
            outbox.mark()
        if capacity <= 0:
            outbox.on_full()

    def on_writable(self) -> None:
        """The socket has room: take messages if there is credit."""
        if self.outbox.capacity > 0:
            self.queue.dispatcher.resume_consumer(self)

    def detach(self, returns: list[Reference], *, failed: bool) -> None:
        """Leave the queue and give ``returns`` back; ``failed`` tells that the connection ends with it."""
        self.ended = self.detached = True
        self.queue.remove_consumer(self, returns, failed=failed)

    def take_unsettled(self) -> list[Reference]:
        """What was delivered and not settled, in order; it is the caller's from now on."""
        return []

    def forget_unrecorded(self) -> None:
        """The broker stops: forget unsettled messages that no store knows, without work on each of them."""

    @property
    def remote(self) -> str:
        """See `Consumer.remote`."""
        return self.outbox.wire.peer

    @property
    def unsettled_count(self) -> int:
        """How many messages wait for this client's word."""
        return 0

    @property
    def first_unsettled(self) -> bytes | None:
        """The message id of the one that has waited longest for this client's word; None if none waits."""
        return None

    @property
    def messages_delivered(self) -> int:
        """Messages delivered since it began, each delivery counted."""
        return self.settled + self.unsettled_count

    @property
    def messages_acknowledged(self) -> int:
        """Messages acknowledged since it began, also in transactions that are still open."""
        return self.settled - self.rejected

    @property
    def credit(self) -> int | None:
        """Messages that it may be sent before it acknowledges one; None: no limit in messages."""
        return None

    def cancelled(self, reason: str) -> None:
        """The queue was deleted."""
        self._on_cancel(self, reason)

    @property
    def identifier(self) -> str:
        """See `Consumer.identifier`."""
        return self.terms.id.decode("utf-8", "replace")


class AutoSubscription(Subscription):
    """``ack:auto``: a message is settled by being written."""

    __slots__ = ()

    settles_on_delivery = True

    def attach(self, queue: Queue) -> None:
        """See `Subscription.attach`."""
        self.writes_tails = True
        super().attach(queue)

    def write_tail(self, traits: Traits, tail: bytes, body_at: int) -> None:
        """See `Consumer.write_tail`."""
        self.queue.messages_acknowledged += 1
        self.settled += 1
        lead = self.lead
        if self._wildcard or (traits.escaped and not self._any_version):
            self._write(traits, tail, body_at, lead)
            return
        outbox = self.outbox  # as `Subscription._write`, without a call
        parts = outbox.parts
        parts.append(lead)
        parts.append(tail)
        capacity = outbox.capacity - len(tail)
        outbox.capacity = capacity
        if not outbox.dirty:
            outbox.mark()
        if capacity <= 0:
            outbox.on_full()

    def deliver_message(self, message: Message) -> None:
        """See `Consumer.take`."""
        self.queue.messages_acknowledged += 1
        self.settled += 1
        self.write(message, self.lead)

    def deliver_reference(self, ref: Reference) -> None:
        """See `Consumer.deliver_reference`."""
        self.write(ref.message, self.lead if ref.deliveries < 2 else self.lead_again)
        self.settled += 1
        self.queue.settle(ref)


class AcknowledgedSubscription(Subscription):
    """``ack:client-individual``: a message is settled by its own ACK or NACK, and takes credit until then.

    Credit is soft as in Artemis: a message goes out while there is any, so the last one may exceed the window.
    """

    __slots__ = ("credit_bytes", "credit_messages", "unsettled")

    def attach(self, queue: Queue) -> None:
        """See `Subscription.attach`."""
        #: by message id, in the order of delivery; as a message until its reference is needed
        self.unsettled: dict[bytes, Message | Reference] = {}
        self.credit_bytes = self.terms.window_bytes
        self.credit_messages = self.terms.window_messages
        super().attach(queue)

    def _complete(self, lead: bytes, queue: Queue) -> bytes:
        # 1.2 clients acknowledge by the `ack` header, the others by message-id: both are the same text here
        return lead if self.terms.version == b"1.2" else super()._complete(lead, queue)

    def deliver_message(self, message: Message) -> None:
        """See `Consumer.take`."""
        queue, traits = self.queue, message.traits
        if traits.durable or traits.retained:
            self._deliver(queue.mark_delivering(message), message, self.lead)
        else:
            queue.mark_delivering_unreferenced(message)
            self._deliver(message, message, self.lead)

    def deliver_reference(self, ref: Reference) -> None:
        """See `Consumer.deliver_reference`."""
        self._deliver(ref, ref.message, self.lead if ref.deliveries < 2 else self.lead_again)

    def _deliver(self, delivered: Message | Reference, message: Message, lead: bytes) -> None:
        prefix = self.queue.id_prefix
        key = b"%b%b" % (prefix, decimal(message.number))
        self.unsettled[key] = delivered
        if self._any_version:
            lead = b"%back:%b\nmessage-id:%b" % (lead, key, prefix)
        self.credit_bytes -= len(message.tail)
        self.credit_messages -= 1
        if self.credit_bytes <= 0 or self.credit_messages <= 0:
            self.queue.dispatcher.pause_consumer(self)
        self.write(message, lead)

    def settle(self, key: bytes) -> None:
        """An ACK of ``key``, which is unsettled."""
        delivered = self.unsettled.pop(key)
        self.credit_messages += 1
        self.settled += 1
        if isinstance(delivered, Message):
            self.credit_bytes += len(delivered.tail)
            self.queue.settle_message(delivered)
        else:
            self.credit_bytes += len(delivered.message.tail)
            delivered.queue.settle(delivered)

    def _reference(self, delivered: Message | Reference) -> Reference:
        return self.queue.reference_to(delivered) if isinstance(delivered, Message) else delivered

    def release(self, key: bytes) -> list[Reference]:
        """The references that an ACK or NACK of ``key`` (unsettled) speaks of; their credit is free again."""
        ref = self._reference(self.unsettled.pop(key))
        self.credit_bytes += len(ref.message.tail)
        self.credit_messages += 1
        self.settled += 1
        return [ref]

    def release_revocably(self, key: bytes) -> tuple[list[Reference], Undo]:
        """As `release`, for a transaction, and what is to be called if that is rolled back."""
        refs = self.release(key)
        return refs, partial(self._reclaim, refs)

    def _reclaim(self, refs: list[Reference], places: Sequence[int] = ()) -> list[Reference]:
        """What was released is unsettled again and takes credit; where the subscription has ended it is returned."""
        if self.ended:
            return refs
        self._restore({b"%b%d" % (self.queue.id_prefix, ref.message.number): ref for ref in refs}, places)
        self.credit_bytes -= sum(len(ref.message.tail) for ref in refs)
        self.credit_messages -= len(refs)
        self.settled -= len(refs)
        if self.exhausted:
            self.queue.dispatcher.pause_consumer(self)
        return []

    def _restore(self, refs: dict[bytes, Reference], places: Sequence[int]) -> None:
        self.unsettled.update(refs)  # each is acknowledged by itself, so that their order has no meaning

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is delivered until something is settled."""
        return self.credit_bytes <= 0 or self.credit_messages <= 0

    @property
    def credit(self) -> int | None:
        """See `Subscription.credit`; 0 as well while its window in bytes is used up."""
        if self.exhausted:
            return 0
        return None if self.terms.window_messages == UNLIMITED else self.credit_messages

    def go_on(self) -> None:
        """Credit came back: take more messages."""
        if not self.ready and self.credit_bytes > 0 and self.credit_messages > 0 and self.outbox.capacity > 0:
            self.queue.dispatcher.resume_consumer(self)

    def on_writable(self) -> None:
        """See `Subscription.room_again`."""
        self.go_on()

    def take_unsettled(self) -> list[Reference]:
        """See `Subscription.take_unsettled`."""
        unsettled = list(map(self._reference, self.unsettled.values()))
        self.unsettled.clear()
        return unsettled

    def forget_unrecorded(self) -> None:
        """See `Subscription.forget_unrecorded`."""
        recorded: dict[bytes, Message | Reference] = {}
        if not self.queue.forgotten_by_restart:
            recorded = {key: each for key, each in self.unsettled.items() if isinstance(each, Reference)}
        self.queue.delivering -= len(self.unsettled) - len(recorded)
        self.unsettled = recorded

    @property
    def unsettled_count(self) -> int:
        """See `Subscription.unsettled_count`."""
        return len(self.unsettled)

    @property
    def first_unsettled(self) -> bytes | None:
        """See `Subscription.first_unsettled`."""
        return next(iter(self.unsettled), None)

    def unsettled_references(self) -> Iterable[Reference]:
        """See `Consumer.unsettled_references`."""
        unsettled = self.unsettled
        for key, delivered in unsettled.items():
            if isinstance(delivered, Message):  # the next caller gets the same one
                delivered = unsettled[key] = self.queue.reference_to(delivered)
            yield delivered


class CumulativeSubscription(AcknowledgedSubscription):
    """``ack:client``: an ACK or NACK speaks of its message and of all delivered before it.

    What is released is always what was delivered first. So what transactions have had was delivered before all that
    they have not, and needs a place only among itself, to come back in the order of delivery.
    """

    __slots__ = ("_disordered", "_last_position", "_places")

    def attach(self, queue: Queue) -> None:
        """See `Subscription.attach`."""
        self._places: dict[bytes, int] = {}  # of what is unsettled after the end of a transaction that had it
        self._last_position = 0
        self._disordered = False  # some came back, and are not in the order of delivery yet
        super().attach(queue)

    def settle(self, key: bytes) -> None:
        """See `AcknowledgedSubscription.settle`."""
        queue = self.queue
        released = self._release(key)
        if len(released) > MOST_AT_ONCE:
            queue.settle_all(list(map(self._reference, released)))
            return
        for delivered in released:
            if isinstance(delivered, Message):
                queue.settle_message(delivered)
            else:
                delivered.queue.settle(delivered)

    def release(self, key: bytes) -> list[Reference]:
        """See `AcknowledgedSubscription.release`."""
        return list(map(self._reference, self._release(key)))

    def _release(self, key: bytes) -> list[Message | Reference]:
        keys = self._up_to(key)  # which may put them in order
        unsettled, places = self.unsettled, self._places
        size = 0
        released: list[Message | Reference] = []
        for earlier in keys:
            delivered = unsettled.pop(earlier)
            released.append(delivered)
            size += len(delivered.tail if isinstance(delivered, Message) else delivered.message.tail)
        if places:
            for earlier in keys:
                places.pop(earlier, None)
        self.credit_bytes += size
        self.credit_messages += len(released)
        self.settled += len(released)
        return released

    def _up_to(self, key: bytes) -> list[bytes]:
        if self._disordered:
            self._put_in_order()
        keys = []
        for earlier in self.unsettled:
            keys.append(earlier)
            if earlier == key:
                break
        return keys

    def release_revocably(self, key: bytes) -> tuple[list[Reference], Undo]:
        """See `AcknowledgedSubscription.release_revocably`."""
        places = [self._places.get(earlier) or self._next_position() for earlier in self._up_to(key)]
        refs = self.release(key)
        return refs, partial(self._reclaim, refs, places)

    def _next_position(self) -> int:
        self._last_position += 1
        return self._last_position

    def _restore(self, refs: dict[bytes, Reference], places: Sequence[int]) -> None:
        self._places.update(zip(refs, places, strict=True))
        self.unsettled.update(refs)
        self._disordered = True  # put in order once, however many ACKs the transaction had

    def _put_in_order(self) -> None:
        places, unsettled = self._places, self.unsettled
        self.unsettled = {key: unsettled.pop(key) for key in sorted(places, key=places.__getitem__)}
        self.unsettled.update(unsettled)
        self._disordered = False

    def unsettled_references(self) -> Iterable[Reference]:
        """See `Consumer.unsettled_references`."""
        if self._disordered:
            self._put_in_order()
        return super().unsettled_references()

    def take_unsettled(self) -> list[Reference]:
        """See `Subscription.take_unsettled`."""
        self._places.clear()
        return super().take_unsettled()


class BrowserSubscription(Subscription):
    """``browser:true``: what is pending now is shown and stays, then a frame with ``browser:end`` (ActiveMQ Classic).

    It is no consumer of the queue: nothing is delivered in the sense of the counters, and nothing is ever settled.
    It reads the queue in slices: it may not show a message that leaves the queue meanwhile.
    """

    __slots__ = ("_busy", "_remaining")

    def attach(self, queue: Queue) -> None:
        """Note what is to be shown; `room_again` begins."""
        self.queue = queue
        self._busy = False  # at work, or it waits for something on disk
        self.lead = b"MESSAGE\n" + header_line(b"subscription", self.terms.id, self.terms.version)
        self.lead += header_line(b"destination", self.terms.destination, self.terms.version)
        self.lead += b"redelivered:false\n"
        self._remaining = iterate_pending(queue)

    def on_writable(self) -> None:
        """Show more, as long as the socket takes it."""
        if self.lead and not self._busy:
            self._busy = True
            self.queue.broker.scans.run(self._show(), self.connection_id)

    def _show(self) -> Iterator[None]:
        while self._show_some():
            yield

    def _show_some(self) -> bool:
        """Look at the next few messages; whether to go on at once."""
        matches, lead = self.matches, self._complete(self.lead, self.queue)
        for _ in range(BROWSED_AT_ONCE):
            if self.outbox.capacity <= 0:
                self._busy = False
                return False
            ref = next(self._remaining, None)
            if ref is None:
                self._busy = False
                self._end()
                return False
            if isinstance(ref, PageRead):
                ref.then(self._go_on)
                return False
            if ref.state == PENDING and (matches is None or matches(ref.message)):
                self.write(ref.message, lead)
        return True

    def _go_on(self) -> None:
        self._busy = False
        self.on_writable()

    def _end(self) -> None:
        if self.lead:
            self.outbox.send(self.lead + b"message-id:end\nbrowser:end\ncontent-length:0\n\n\0\n")
            self.lead = b""

    def detach(self, returns: list[Reference], *, failed: bool) -> None:
        """Show no more."""
        self._remaining = iter(())
        self.lead = b""


class RecordingAutoSubscription(AutoSubscription):
    """See `AutoSubscription`."""

    __slots__ = ("_entries", "consumer_name")

    settles_on_delivery = False  # it records who has acknowledged

    def attach(self, queue: Queue) -> None:
        """See `Subscription.attach`."""
        self._entries = Entries(queue, self.consumer_name)
        super().attach(queue)
        self.writes_tails = False  # what was delivered is recorded

    def deliver_message(self, message: Message) -> None:
        """See `Consumer.take`. Where the message is retained, that it came and went is written as one."""
        queue = self.queue
        if message.traits.retained >= queue.retains_from:
            taken = self._entries.messages
            if not taken:
                queue.broker.storage.record(self._entries)
            taken.append(message)
        queue.messages_acknowledged += 1
        self.settled += 1
        self.write(message, self.lead)

    def deliver_reference(self, ref: Reference) -> None:
        """See `Consumer.deliver_reference`."""
        ref.last_rejected_by = self
        super().deliver_reference(ref)


class RecordingAcknowledgedSubscription(AcknowledgedSubscription):
    """See `AcknowledgedSubscription`."""

    __slots__ = ("consumer_name",)

    def settle(self, key: bytes) -> None:
        """See `AcknowledgedSubscription.settle`."""
        ref = self.unsettled[key] = self._reference(self.unsettled[key])
        ref.last_rejected_by = self
        super().settle(key)

    def release(self, key: bytes) -> list[Reference]:
        """See `AcknowledgedSubscription.release`. Whoever gives them back says anew whom they avoid."""
        return _record_acknowledgement(super().release(key), self)


class RecordingCumulativeSubscription(CumulativeSubscription):
    """See `CumulativeSubscription`."""

    __slots__ = ("consumer_name",)

    def _release(self, key: bytes) -> list[Message | Reference]:
        """See `CumulativeSubscription`. What has no reference is not retained."""
        released = super()._release(key)
        _record_acknowledgement([each for each in released if isinstance(each, Reference)], self)
        return released


def _record_acknowledgement(refs: list[Reference], taker: Subscription) -> list[Reference]:
    for ref in refs:
        ref.last_rejected_by = taker
    return refs


#: By how they acknowledge.
RECORDING: dict[
    str, type[RecordingAutoSubscription | RecordingAcknowledgedSubscription | RecordingCumulativeSubscription]
] = {
    "auto": RecordingAutoSubscription,
    "client": RecordingCumulativeSubscription,
    "client-individual": RecordingAcknowledgedSubscription,
}


#: The names a durable subscription goes by, the first found counts.
DURABLE_NAMES = (b"durable-subscription-name", b"durable-subscriber-name", b"activemq.subscriptionName")

#: The names of a consumer's priority, the first found counts.
PRIORITY_NAMES = (b"consumer-priority", b"activemq.priority")

#: The greatest priority of a consumer, as in Artemis; the least is one below its negative.
MOST_PRIORITY = 2**31 - 1

DELETE_DURABLE = PermissionType.DELETE_DURABLE_QUEUE
DELETE_NON_DURABLE = PermissionType.DELETE_NON_DURABLE_QUEUE

KINDS: dict[str, type[Subscription]] = {
    "auto": AutoSubscription,
    "client": CumulativeSubscription,
    "client-individual": AcknowledgedSubscription,
}


def on_SUBSCRIBE(session: Session, head: Head, body: bytes) -> None:
    """Begin a subscription. Messages flow once the receipt was sent; who has it can rely on the queue."""
    subscription = subscribe(session, head)
    if b"receipt" in head.headers and subscription.queue.durable:
        session.broker.storage.when_synced(lambda: _begin(session, head, subscription))
    else:
        _begin(session, head, subscription)


def _begin(session: Session, head: Head, subscription: Subscription) -> None:
    session.receipt(head)
    if (
        session.subscriptions.get(subscription.terms.id) is subscription
    ):  # it may have ended while the disk was busy
        subscription.on_writable()


def subscribe(session: Session, head: Head) -> Subscription:
    """Begin a subscription that is not yet given messages. Raises `ProtocolError`, `Refused`."""
    headers = head.headers
    destination = headers.get(b"destination")
    if destination is None:
        raise ProtocolError("SUBSCRIBE needs a destination header")
    allowed = session.acceptor.subscriptions_allowed
    if 0 <= allowed <= len(session.subscriptions):
        raise LimitReached(
            f"More than {allowed} subscriptions on one connection (subscriptionsAllowed)",
            "subscriptionsAllowed",
        )
    identity = _identity(session, headers, destination)
    selector = _selector(headers)
    requested = text_of(headers.get(b"subscription-type")) or text_of(headers.get(b"destination-type"))
    target = session.parse_destination(destination, requested)
    for known_by in (identity, destination):
        stand_in = session.subscriptions.get(known_by)
        if stand_in is not None and stand_in.terms.for_replies:
            end(session, stand_in)
    wildcard = session.broker.directory.wildcards.is_wildcard(target.address)
    terms = _terms(session, headers, identity, destination, wildcard, selector)
    return _attach(session, terms, target, headers, selector)


def _attach(
    session: Session,
    terms: Terms,
    target: Destination,
    headers: dict[bytes, bytes],
    selector: Selector | None,
) -> Subscription:
    size = subscription_size(terms.selector)
    session.broker.subscription_memory.check(size)
    origin = _no_local(session, headers)
    queue, own_filter = _queue_for(session, terms, target, selector, origin)
    matches: Matches | None = None
    key: object = None
    if not own_filter and (selector is not None or origin is not None):
        matches = selector.matches_lines if selector is not None else None
        matches = matches if origin is None else not_from(origin, matches)
        key = (terms.selector, origin)
    if queue.hooks.subscribed is not None:
        try:
            queue.hooks.subscribed(_subscriber(session, terms, queue, headers))
        except Refused:
            session.broker.consider_deleting(queue)
            raise
    subscription = _make(session, terms, matches, key)
    subscription.size = size
    try:
        subscription.attach(queue)
    except Refused:
        session.broker.consider_deleting(queue)
        raise
    session.register(subscription)
    session.notify_consumer("CONSUMER_CREATED", subscription, "began")
    return subscription


def _make(session: Session, terms: Terms, matches: Matches | None, key: object) -> Subscription:
    """A subscription with the requested ack mode; one with a consumer name if acknowledgements are recorded."""
    if session.broker.storage.keeps_all and not terms.browser:
        subscription = _make_recording(session, terms, matches, key)
    else:
        kind = BrowserSubscription if terms.browser else KINDS[terms.ack]
        subscription = kind(terms, session.outbox, session.cancelled, matches, key)
    subscription.connection_id, subscription.created = session.number, session.broker.clock.now
    return subscription


def _make_recording(session: Session, terms: Terms, matches: Matches | None, key: object) -> Subscription:
    subscription = RECORDING[terms.ack](terms, session.outbox, session.cancelled, matches, key)
    subscription.consumer_name = f"{session.origin}/{text_of(terms.id)}"
    return subscription


def _subscriber(session: Session, terms: Terms, queue: Queue, headers: dict[bytes, bytes]) -> Subscriber:
    return Subscriber(
        queue.name,
        text_of(terms.id),
        session.login.user,
        session.client_id,
        session.number,
        session.peer,
        terms.selector,
        {text_of(name): text_of(value) for name, value in headers.items()},
    )


def _queue_for(
    session: Session, terms: Terms, target: Destination, selector: Selector | None, origin: str | None
) -> tuple[Queue, bool]:
    """The queue to read, and whether the selector is the queue's own filter."""
    auto_create, authorizer, user = session.broker.auto_create, session.login.authorizer, session.login.user
    if target.temporary:
        authorizer.check_consume(None, target.address, browse=terms.browser)
        if target.queue is not None:
            return temporary_queue(session, target), False
        temporary_topic(session, target)
        if terms.durable_name is not None:
            raise Refused(f"Temporary topic {target.address} has no durable subscriptions")
    if target.queue is not None:
        address = auto_create.address_of(target.address, target.queue)
        authorizer.check_consume(target.queue, address, browse=terms.browser)
        queue = auto_create.queue_for(
            target.address, target.queue, target.routing_type, authorizer.check, user
        )
        return queue, False
    routing_type = auto_create.type_for(target.address, target.routing_type)
    if routing_type is RoutingType.ANYCAST:
        found = auto_create.anycast_queue(target.address)
        own = target.address if found is None else found.name
        authorizer.check_consume(own, target.address, browse=terms.browser)
        return auto_create.queue_to_consume(target.address, authorizer.check, user), False
    if terms.browser:
        raise Refused(
            f"browser:true needs a queue, and {target.address} is a MULTICAST address: name one of its queues, as "
            f"{target.address}::QUEUE"
        )
    durable = terms.durable_name
    name = str(uuid4()) if durable is None else f"{session.client_id}.{durable}"
    authorizer.check_consume(None if durable is None else name, target.address)
    queue = auto_create.subscription_queue(
        QueueConfiguration(
            name=name,
            address=target.address,
            routing_type=RoutingType.MULTICAST,
            durable=durable is not None,
            filter=None if selector is None else selector.text,
            user=session.login.user,
            auto_created=True,
            auto_delete=durable is None,
            temporary=durable is None,
        ),
        authorizer.check,
        origin,
    )
    if queue.no_local != origin:
        queue.no_local = origin
        queue.update_filter()
        queue.address.changed()
        session.broker.bind(queue)
    return queue, True


def _identity(session: Session, headers: dict[bytes, bytes], destination: bytes) -> bytes:
    identity = headers.get(b"id")
    if identity is None:
        identity = _unnamed(session, destination)
    else:
        check_identifier_length("id", identity)
    existing = session.subscriptions.get(identity)
    if existing is not None and not existing.terms.for_replies:
        raise Refused(
            f"There already is a subscription for id '{shortened(identity)}'. Either use unique subscription ids or "
            "do not create multiple subscriptions for the same destination"
        )
    return identity


def _unnamed(session: Session, destination: bytes) -> bytes:
    """By what a subscription without an id is known: its destination, in 1.0 with Artemis's prefix."""
    return b"subscription/" + destination if session.version == b"1.0" else destination


def _terms(
    session: Session,
    headers: dict[bytes, bytes],
    identity: bytes,
    destination: bytes,
    wildcard: bool,
    selector: Selector | None,
) -> Terms:
    ack = text_of(headers.get(b"ack")) or "auto"
    if ack not in KINDS:
        raise ProtocolError(f"ack must be auto, client or client-individual, not '{ack[:100]}'")
    durable = next((text_of(headers.get(name)) for name in DURABLE_NAMES if headers.get(name)), None)
    if durable is not None and session.client_id is None:
        raise Refused(f"Durable subscription '{durable}' needs a client-id on CONNECT")
    window_bytes, window_messages = _windows(session, headers, ack)
    return Terms(
        id=identity,
        destination=destination,
        wildcard=wildcard,
        version=session.version,
        ack=ack,
        window_bytes=window_bytes,
        window_messages=window_messages,
        durable_name=durable,
        browser=headers.get(b"browser", b"").lower() == b"true",
        priority=_priority(headers),
        selector=None if selector is None else selector.text,
    )


def _windows(session: Session, headers: dict[bytes, bytes], ack: str) -> tuple[int, int]:
    """Credit in bytes (consumer-window-size, as in Artemis) and in messages (prefetch-count and its synonyms).

    If the client sets one of these headers, the defaults of the acceptor do not apply.
    """
    acceptor = session.acceptor
    messages = _window(headers, (b"prefetch-count", b"activemq.prefetchSize"), 1)
    size = _window(headers, (b"consumer-window-size",), 0)
    if messages is None and size is None and ack != "auto":
        messages, size = acceptor.stomp_prefetch_count, acceptor.stomp_consumer_window_size
    messages, size = -1 if messages is None else messages, -1 if size is None else size
    if size == 0:  # one message at a time
        size, messages = -1, 1
    most = acceptor.max_unsettled_messages if ack != "auto" else -1
    if messages > most > 0 or messages < 0:
        messages = most
    return size if size > 0 else UNLIMITED, messages if messages > 0 else UNLIMITED


def _window(headers: dict[bytes, bytes], names: tuple[bytes, ...], least: int) -> int | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            text = value.strip()
            if text == b"-1":
                return -1
            if not text.isdigit() or len(text) > 18 or int(text) < least:
                raise Refused(
                    f"{text_of(name)} must be -1 or a whole number from {least} on, not '{shortened(value)}'"
                )
            return int(text)
    return None


def _priority(headers: dict[bytes, bytes]) -> int:
    for name in PRIORITY_NAMES:
        value = headers.get(name)
        if value is not None:
            text = value.strip()
            digits = text.removeprefix(b"-")
            priority = int(text) if digits.isdigit() and len(digits) <= 10 else MOST_PRIORITY + 1
            if not -MOST_PRIORITY - 1 <= priority <= MOST_PRIORITY:
                raise Refused(
                    f"{text_of(name)} must be a whole number from {-MOST_PRIORITY - 1} to {MOST_PRIORITY}, not "
                    f"'{shortened(value)}'"
                )
            return priority
    return 0


def _selector(headers: dict[bytes, bytes]) -> Selector | None:
    text = headers.get(b"selector")
    if text is None:
        return None
    try:
        return compile_selector(text_of(text))
    except InvalidSelector as fault:
        raise Refused(f"Invalid selector '{shortened(text)}': {fault}", status=400) from None


def _no_local(session: Session, headers: dict[bytes, bytes]) -> str | None:
    for name in (b"no-local", b"activemq.noLocal"):
        if headers.get(name, b"").lower() == b"true":
            return session.origin
    return None


def expect_replies(session: Session, reply_to: bytes) -> None:
    """A SEND names a temporary queue or topic in reply-to: replies come without a SUBSCRIBE, as in RabbitMQ.

    Where the client did subscribe, or does so later, that subscription takes the place of this one.
    """
    if any(subscription.terms.destination == reply_to for subscription in session.subscriptions.values()):
        return
    target = session.parse_destination(reply_to, None)
    terms = Terms(
        id=reply_to, destination=reply_to, wildcard=False, version=session.version, for_replies=True
    )
    _attach(session, terms, target, {}, None).on_writable()


def on_UNSUBSCRIBE(session: Session, head: Head, body: bytes) -> None:
    """End a subscription by id, durable name, or, where it has no id, destination; what was unsettled goes back."""
    _unsubscribe(session, head)
    session.receipt(head, durable=True)


def _unsubscribe(session: Session, head: Head) -> None:
    headers = head.headers
    durable = next((text_of(headers.get(name)) for name in DURABLE_NAMES if headers.get(name)), None)
    identity = headers.get(b"id")
    if identity is None and b"destination" in headers:
        identity = _unnamed(session, headers[b"destination"])
    subscription = session.subscriptions.get(identity) if identity is not None else None
    if subscription is None and durable is not None:
        matching = [s for s in session.subscriptions.values() if s.terms.durable_name == durable]
        subscription = matching[0] if matching else None
    if subscription is not None:
        attributes = subscription.queue.attributes
        if attributes.temporary and attributes.routing_type is RoutingType.MULTICAST:
            session.login.authorizer.check(DELETE_NON_DURABLE, subscription.queue.address.name)
        end(session, subscription)
    if durable is not None:
        _delete_durable(session, durable)
    elif identity is None:
        raise ProtocolError("UNSUBSCRIBE needs the header id or destination")
    elif subscription is None:
        raise NotFound(f"Cannot unsubscribe as no subscription exists for id '{shortened(identity)}'")


def end(session: Session, subscription: Subscription) -> None:
    """Leave the queue; what was not settled goes back."""
    session.forget(subscription)
    session.notify_consumer("CONSUMER_CLOSED", subscription, "ended")
    subscription.detach(subscription.take_unsettled(), failed=False)


def _delete_durable(session: Session, durable: str) -> None:
    if session.client_id is None:
        raise Refused(f"Durable subscription '{durable}' needs a client-id on CONNECT")
    name = f"{session.client_id}.{durable}"
    queue = session.broker.directory.queue(name)
    session.login.authorizer.check(DELETE_DURABLE, queue.address.name, queue.name)
    if queue.attributes.routing_type is not RoutingType.MULTICAST:
        raise Refused(f"{name} is not a durable subscription but a queue of address {queue.address.name}")
    if queue.consumers:
        raise Refused(f"Durable subscription {name} is in use by another consumer")
    session.broker.directory.delete_queue(name)
