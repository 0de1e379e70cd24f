"""Retroactive addresses: the last messages of an address are kept for queues that are created later (Artemis,
"Retroactive Addresses").

An address with ``retroactive-message-count`` has an internal address with two rings: one for messages that multicast
queues receive, one for those of anycast queues. A message enters them as a copy, which is written with the message. A
queue that is created gets copies of what is in the ring of its routing type, in the order they were sent; the ring
keeps them. Names of internal addresses and queues are those of Artemis; clients cannot use them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from stompring.settings.match import INTERNAL_PREFIX
from stompring.settings.model import RoutingType

from .clock import Due, Recurrence
from .message import NOWHERE, RETROACTIVE, AddressBase, Message, Traits, copied, header_lines
from .queue import DueBatch, Queue, QueueServices
from .reference import PENDING, Reference


def internal_address(name: str) -> str:
    """The name of the internal address for an address."""
    return f"{INTERNAL_PREFIX}{name}.address.retro"


def internal_queue(name: str, routing_type: RoutingType) -> str:
    """The name of the ring for an address."""
    return f"{INTERNAL_PREFIX}{name}.queue.{routing_type.lower()}.retro"


def address_behind(internal: str) -> str:
    """The name of the address that an internal address is for."""
    return internal.removeprefix(INTERNAL_PREFIX).removesuffix(".address.retro")


class RetroactiveQueue(Queue):
    """A ring with the last messages of an address, whatever their priorities. It has no consumers and never pages."""

    __slots__ = ()

    def evict(self, requeued: bool = False) -> None:
        """Evict the oldest message."""
        oldest = min(self.dispatcher.pending.heads(), key=attrgetter("sequence"), default=None)
        if oldest is not None:
            self.evict_message(oldest)

    def on_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """A scheduled message is the newest when it falls due."""
        for ref in refs:
            self.scheduled.pop(ref.message.number, None)
            ref.sequence = self.broker.next_message_number()
            ref.state = PENDING
            self.dispatcher.enlist(ref)
            if self.ring_size < self.ring_count:
                self.evict()

    def references(self) -> list[Reference]:
        """What is in the ring, the oldest first."""
        return sorted(self.dispatcher.pending.snapshot(), key=attrgetter("sequence"))


class RetroactiveMessages:
    """The last messages of one address."""

    def __init__(
        self,
        broker: QueueServices,
        address: AddressBase,
        internal: AddressBase,
        rings: dict[RoutingType, RetroactiveQueue],
    ) -> None:
        self._cached: tuple[Traits, Traits] | None = None
        self._broker = broker
        self._address = address
        self.internal = internal
        self._rings = rings

    @property
    def count(self) -> int:
        """Messages that are kept; one without a routing type is in both rings and counts once."""
        return self.internal.memory_limit.messages

    def resize(self, count: int) -> None:
        """Keep so many messages of each routing type from now on."""
        for queue in self._rings.values():
            if queue.ring_size != count:
                queue.attributes = replace(queue.attributes, ring_size=count)
                queue.ring_size = count
                self._broker.bind(queue)
            if queue.ring_count > count:
                self._broker.background.run(queue.trim(), queue)

    def add(self, message: Message, due: Due, recurrence: Recurrence | None) -> None:
        """Keep a copy of a message, from ``due`` on where it is scheduled."""
        wanted = message.traits.routing_type
        shared = self._shared_traits(message.traits)
        traits = shared.with_block(shared.block + b"_AMQ_ORIG_MESSAGE_ID:%d\n" % message.number)
        number = self._broker.next_message_number()
        copy = Message(number, self.internal, traits, message.body, message.timestamp, message.expires)
        for kind, queue in self._rings.items():
            if wanted is None or wanted is kind:
                if due:
                    queue.schedule(copy, due, None if recurrence is None else replace(recurrence))
                else:
                    queue.enqueue(copy)

    def _shared_traits(self, traits: Traits) -> Traits:
        """What copies of messages with the same traits share."""
        cached = self._cached
        if cached is None or cached[0] is not traits:
            block = traits.block
            # a message that is a copy itself keeps its origin, which is more to its receivers
            if b"\n_AMQ_ORIG_ADDRESS:" not in block:
                address = (b"_AMQ_ORIG_ADDRESS", self._address.name.encode())
                block += header_lines((address, (b"_AMQ_ORIG_REASON", RETROACTIVE.encode())))
            made = copied(traits, block)
            made.retained = NOWHERE
            cached = self._cached = traits, made
        return cached[1]

    def references(self, routing_type: RoutingType) -> list[Reference]:
        """What a new queue of that type gets, the oldest first."""
        return self._rings[routing_type].references()
