"""Subscriptions: consumers that write MESSAGE frames, one class for each ack mode.

A MESSAGE frame consists of the *lead*, the headers of its subscription, and the *tail* that all receivers of the
message share. The lead ends in ``message-id:QUEUE-`` and the tail begins with the message's number, so that a delivery
in ``auto`` mode formats nothing. Message ids thus name the message in its queue, and a redelivery has the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final

from stompring.broker.history import History
from stompring.broker.message import Matches, Message, Traits, decimal, tail_for
from stompring.broker.ports import Entries
from stompring.broker.publish import Undo
from stompring.broker.queue import Consumer, Queue
from stompring.broker.queue_browser import PageRead, iterate_pending
from stompring.broker.reference import PENDING, Reference
from stompring.stomp.frames import header_line

from .outbox import Outbox, text_of

#: The credit of a subscription without a window. (Compiled code does not allocate integers below 2**62.)
UNLIMITED: Final = 1 << 61

#: Number of messages that a browser reads between two readings of the clock.
BROWSED_AT_ONCE: Final = 8

#: Maximum number of messages that one ACK settles in one step: some milliseconds. More are settled in time slices.
MOST_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Terms:
    """The parameters of a SUBSCRIBE frame that concern delivery."""

    id: bytes
    destination: bytes  # as in the frame
    wildcard: bool
    version: bytes
    ack: str = "auto"
    window_bytes: int = UNLIMITED
    window_messages: int = UNLIMITED
    durable_name: str | None = None
    browser: bool = False
    priority: int = 0
    selector: str | None = None
    for_replies: bool = False  # whether a reply-to created the subscription, which a SUBSCRIBE may replace


class Subscription(Consumer):
    """Base of the subscriptions: the lead, the outbox, and delivery while the socket accepts data."""

    __slots__ = (
        "_any_version",
        "_on_cancel",
        "_wildcard",
        "connection_id",
        "consumer_name",
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
        "unsettled",
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
        # whether a rollback requeues messages, and does not return them to the subscription
        self.ended = False
        self.detached = False  # whether the subscription has left its queue
        self.consumer_name = ""  # name of the consumer in the records of a store that retains messages
        self.connection_id = ""  # value of the ``session`` header in CONNECTED
        self.created = 0  # when the subscription began (epoch ms)
        # samples of the counters, None while the subscription is not sampled
        self.history: History | None = None
        self.rejected = 0  # number of messages that a NACK settled
        self.size = 0  # bytes that the subscription counts in ``global-max-subscription-size``
        #: unsettled messages by message id, in the order of delivery; a `Message` until its reference is needed
        self.unsettled: dict[bytes, Message | Reference] = {}

    def attach(self, queue: Queue) -> None:
        """Join the queue. Raises `Refused` if the queue accepts no more consumers."""
        terms = self.terms
        opening = b"MESSAGE\n" + header_line(b"subscription", terms.id, terms.version)
        if not terms.wildcard:
            opening += header_line(b"destination", terms.destination, terms.version)
        self.lead = self._complete(opening + b"redelivered:false\n", queue)
        self.lead_again = self._complete(opening + b"redelivered:true\n", queue)
        # whether the subscription takes messages: `on_writable` sets this after the receipt
        self.willing = False
        queue.add_consumer(self)

    def _complete(self, lead: bytes, queue: Queue) -> bytes:
        return b"%bmessage-id:%b" % (lead, queue.id_prefix)

    def additional_header(self, name: bytes, value: bytes) -> AbstractContextManager[None]:
        """Return a context manager: messages that are delivered in its body have one more header. This header
        precedes, and thus overrides, a header of that name in the message.
        """
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
        """Put a MESSAGE frame into the outbox. In a wildcard subscription, the lead gets the sender's destination."""
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
        """Resume deliveries if the outbox has capacity."""
        if self.outbox.capacity > 0:
            self.queue.dispatcher.resume_consumer(self)

    def detach(self, returns: list[Reference], *, failed: bool) -> None:
        """Leave the queue, and requeue ``returns``. ``failed``: whether their deliveries count as failed attempts."""
        self.ended = self.detached = True
        self.queue.remove_consumer(self, returns, failed=failed)

    def _reference(self, delivered: Message | Reference) -> Reference:
        return self.queue.reference_to(delivered) if isinstance(delivered, Message) else delivered

    def take_unsettled(self) -> list[Reference]:
        """Remove and return the unsettled messages, in the order of delivery."""
        unsettled = list(map(self._reference, self.unsettled.values()))
        self.unsettled.clear()
        return unsettled

    def forget_unrecorded(self) -> None:
        """Forget unsettled messages that no store has. A broker that stops thus need not requeue each of them."""
        recorded: dict[bytes, Message | Reference] = {}
        if not self.queue.forgotten_by_restart:
            recorded = {key: each for key, each in self.unsettled.items() if isinstance(each, Reference)}
        self.queue.delivering -= len(self.unsettled) - len(recorded)
        self.unsettled = recorded

    @property
    def remote(self) -> str:
        return self.outbox.wire.peer

    @property
    def unsettled_count(self) -> int:
        """The number of delivered messages that are not settled."""
        return len(self.unsettled)

    @property
    def first_unsettled(self) -> bytes | None:
        """The id of the unsettled message that was delivered first; None without any."""
        return next(iter(self.unsettled), None)

    @property
    def messages_delivered(self) -> int:
        """The number of deliveries since the subscription began."""
        return self.settled + self.unsettled_count

    @property
    def messages_acknowledged(self) -> int:
        """The number of messages acknowledged since the subscription began, also in open transactions."""
        return self.settled - self.rejected

    @property
    def credit(self) -> int | None:
        """The number of messages that may be delivered before the next ACK; None: no limit in messages."""
        return None

    def cancelled(self, reason: str) -> None:
        self._on_cancel(self, reason)

    @property
    def identifier(self) -> str:
        return text_of(self.terms.id)


class AutoSubscription(Subscription):
    """``ack:auto``: a message is settled when it is written."""

    __slots__ = ()

    settles_on_delivery = True

    def attach(self, queue: Queue) -> None:
        self.writes_tails = True
        super().attach(queue)

    def write_tail(self, traits: Traits, tail: bytes, body_at: int) -> None:
        self.queue.messages_acknowledged += 1
        self.settled += 1
        lead = self.lead
        if self._wildcard or (traits.escaped and not self._any_version):
            self._write(traits, tail, body_at, lead)
            return
        outbox = self.outbox  # inlined from `Subscription._write`
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
        self.queue.messages_acknowledged += 1
        self.settled += 1
        self.write(message, self.lead)

    def deliver_reference(self, ref: Reference) -> None:
        self.write(ref.message, self.lead if ref.deliveries < 2 else self.lead_again)
        self.settled += 1
        self.queue.settle(ref)


class AcknowledgedSubscription(Subscription):
    """``ack:client-individual``: an ACK or NACK settles one message. Each unsettled message uses credit. Credit is a
    soft limit as in Artemis: a delivery needs some credit, so the last message may exceed the window.
    """

    __slots__ = ("credit_bytes", "credit_messages")

    def attach(self, queue: Queue) -> None:
        self.credit_bytes = self.terms.window_bytes
        self.credit_messages = self.terms.window_messages
        super().attach(queue)

    def _complete(self, lead: bytes, queue: Queue) -> bytes:
        # 1.2 clients acknowledge by the `ack` header, others by message-id: both headers have the same value
        return lead if self.terms.version == b"1.2" else super()._complete(lead, queue)

    def deliver_message(self, message: Message) -> None:
        queue, traits = self.queue, message.traits
        if traits.durable or traits.retained:
            self._deliver(queue.mark_delivering(message), message, self.lead)
        else:
            queue.mark_delivering_unreferenced(message)
            self._deliver(message, message, self.lead)

    def deliver_reference(self, ref: Reference) -> None:
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
        """Acknowledge the unsettled message with the id ``key``."""
        delivered = self.unsettled.pop(key)
        self.credit_messages += 1
        self.settled += 1
        if isinstance(delivered, Message):
            self.credit_bytes += len(delivered.tail)
            self.queue.settle_message(delivered)
        else:
            self.credit_bytes += len(delivered.message.tail)
            if self.consumer_name:
                delivered.last_rejected_by = self
            delivered.queue.settle(delivered)

    def release(self, key: bytes) -> list[Reference]:
        """Remove and return the references that an ACK or NACK of ``key`` settles, and free their credit. `requeue`
        later records that this consumer rejected them.
        """
        ref = self._reference(self.unsettled.pop(key))
        if self.consumer_name:
            ref.last_rejected_by = self
        self.credit_bytes += len(ref.message.tail)
        self.credit_messages += 1
        self.settled += 1
        return [ref]

    def release_revocably(self, key: bytes) -> tuple[list[Reference], Undo]:
        """Release references for a transaction. Returns them, and a function that undoes the release at a rollback."""
        refs = self.release(key)
        return refs, partial(self._reclaim, refs)

    def _reclaim(self, refs: list[Reference], positions: Sequence[int] = ()) -> list[Reference]:
        """Make released references unsettled again. Returns the references to requeue: all if the subscription has
        ended, else none.
        """
        if self.ended:
            return refs
        self._restore({b"%b%d" % (self.queue.id_prefix, ref.message.number): ref for ref in refs}, positions)
        self.credit_bytes -= sum(len(ref.message.tail) for ref in refs)
        self.credit_messages -= len(refs)
        self.settled -= len(refs)
        if self.exhausted:
            self.queue.dispatcher.pause_consumer(self)
        return []

    def _restore(self, refs: dict[bytes, Reference], positions: Sequence[int]) -> None:
        self.unsettled.update(refs)  # in any order, because each message is acknowledged separately

    @property
    def exhausted(self) -> bool:
        """Whether deliveries pause until a message is settled."""
        return self.credit_bytes <= 0 or self.credit_messages <= 0

    @property
    def credit(self) -> int | None:
        """The number of messages that may be delivered before the next ACK (None: no limit in messages); 0 if the
        window in bytes is used up.
        """
        if self.exhausted:
            return 0
        return None if self.terms.window_messages == UNLIMITED else self.credit_messages

    def on_writable(self) -> None:
        """Resume deliveries if there is credit and the outbox has capacity."""
        if not self.ready and self.credit_bytes > 0 and self.credit_messages > 0 and self.outbox.capacity > 0:
            self.queue.dispatcher.resume_consumer(self)

    def unsettled_references(self) -> Iterable[Reference]:
        unsettled = self.unsettled
        for key, delivered in unsettled.items():
            if isinstance(delivered, Message):  # create the only reference to the message
                delivered = unsettled[key] = self.queue.reference_to(delivered)
            yield delivered


class CumulativeSubscription(AcknowledgedSubscription):
    """``ack:client``: an ACK or NACK settles its message and all messages delivered before it.

    So a transaction releases the oldest deliveries. A rollback restores them to their places before all later
    deliveries: the subscription keeps a position for each released message.
    """

    __slots__ = ("_disordered", "_next_position", "_positions")

    def attach(self, queue: Queue) -> None:
        self._positions: dict[bytes, int] = {}  # positions of restored messages, by message id
        self._next_position = count(1)
        self._disordered = False  # whether restored messages are not in the order of delivery yet
        super().attach(queue)

    def settle(self, key: bytes) -> None:
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
        return list(map(self._reference, self._release(key)))

    def _release(self, key: bytes) -> list[Message | Reference]:
        keys = self._up_to(key)  # call this first: it may replace the dict `unsettled`
        unsettled, positions = self.unsettled, self._positions
        size = 0
        released: list[Message | Reference] = []
        for earlier in keys:
            delivered = unsettled.pop(earlier)
            released.append(delivered)
            # a `Message` has no record in the store that names its consumer
            if isinstance(delivered, Message):
                size += len(delivered.tail)
                continue
            size += len(delivered.message.tail)
            if self.consumer_name:
                delivered.last_rejected_by = self
        if positions:
            for earlier in keys:
                positions.pop(earlier, None)
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
        positions = [
            self._positions.get(earlier) or next(self._next_position) for earlier in self._up_to(key)
        ]
        refs = self.release(key)
        return refs, partial(self._reclaim, refs, positions)

    def _restore(self, refs: dict[bytes, Reference], positions: Sequence[int]) -> None:
        self._positions.update(zip(refs, positions, strict=True))
        self.unsettled.update(refs)
        self._disordered = True  # sort later: once, even if the transaction has many ACKs

    def _put_in_order(self) -> None:
        positions, unsettled = self._positions, self.unsettled
        self.unsettled = {key: unsettled.pop(key) for key in sorted(positions, key=positions.__getitem__)}
        self.unsettled.update(unsettled)
        self._disordered = False

    def unsettled_references(self) -> Iterable[Reference]:
        if self._disordered:
            self._put_in_order()
        return super().unsettled_references()

    def take_unsettled(self) -> list[Reference]:
        self._positions.clear()
        return super().take_unsettled()


class BrowserSubscription(Subscription):
    """``browser:true``: sends copies of the pending messages, then a frame with ``browser:end`` (ActiveMQ Classic).

    A browser is not a consumer of the queue: it does not change counters and settles nothing. It reads the queue in
    time slices, and may miss a message that leaves the queue meanwhile.
    """

    __slots__ = ("_busy", "_remaining")

    def attach(self, queue: Queue) -> None:
        self.queue = queue
        self._busy = False  # whether a time slice is scheduled, or a page is being read
        self.lead = b"MESSAGE\n" + header_line(b"subscription", self.terms.id, self.terms.version)
        self.lead += header_line(b"destination", self.terms.destination, self.terms.version)
        self.lead += b"redelivered:false\n"
        self._remaining = iterate_pending(queue)

    def on_writable(self) -> None:
        """Send more messages while the outbox has capacity."""
        if self.lead and not self._busy:
            self._busy = True
            self.queue.broker.scans.run(self._show(), self.connection_id)

    def _show(self) -> Iterator[None]:
        """Send messages, `BROWSED_AT_ONCE` between two yields."""
        matches, lead = self.matches, self._complete(self.lead, self.queue)
        while True:
            for _ in range(BROWSED_AT_ONCE):
                if self.outbox.capacity <= 0:
                    self._busy = False
                    return
                ref = next(self._remaining, None)
                if ref is None:
                    self._busy = False
                    if self.lead:
                        self.outbox.send(self.lead + b"message-id:end\nbrowser:end\ncontent-length:0\n\n\0\n")
                        self.lead = b""
                    return
                if isinstance(ref, PageRead):
                    ref.then(self._go_on)
                    return
                if ref.state == PENDING and (matches is None or matches(ref.message)):
                    self.write(ref.message, lead)
            yield

    def _go_on(self) -> None:
        self._busy = False
        self.on_writable()

    def detach(self, returns: list[Reference], *, failed: bool) -> None:
        self._remaining = iter(())
        self.lead = b""


class RecordingAutoSubscription(AutoSubscription):
    """``ack:auto`` if the store records the consumer of each message."""

    __slots__ = ("_entries",)

    settles_on_delivery = False  # False: the store must record the consumer of each settlement

    def attach(self, queue: Queue) -> None:
        self._entries = Entries(queue, self.consumer_name)
        super().attach(queue)
        self.writes_tails = False  # False: a record needs a `Message`, which `write_tail` does not get

    def deliver_message(self, message: Message) -> None:
        """Deliver a message. The arrival and the settlement of a retained message become one record."""
        queue = self.queue
        if message.traits.retained >= queue.retains_from:
            taken = self._entries.messages
            if not taken:
                queue.broker.storage.record(self._entries)
            taken.append(message)
        super().deliver_message(message)

    def deliver_reference(self, ref: Reference) -> None:
        ref.last_rejected_by = self
        super().deliver_reference(ref)
