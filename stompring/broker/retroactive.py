"""Retroactive addresses: the last messages of an address are kept for queues that are created later (Artemis,
"Retroactive Addresses").

An address with ``retroactive-message-count`` has an internal address with two rings: one for messages that multicast
queues receive, one for those of anycast queues. A message enters them as a copy, which is written with the message. A
queue that is created gets copies of what is in the ring of its routing type, in the order they were sent; the ring
keeps them. Names of internal addresses and queues are those of Artemis; clients cannot use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from stompring.settings.match import INTERNAL_PREFIX, Pattern, is_internal
from stompring.settings.model import RoutingType
from stompring.stomp.frames import header_line

from .clock import Due
from .lifetime import expiry_time
from .message import NOWHERE, RETROACTIVE, CopiedTraits, Message, Traits, Transfer
from .ports import NoStorage
from .queue import DueBatch, Queue, QueueAttributes
from .reference import PENDING, Reference

if TYPE_CHECKING:
    from .address import Address
    from .broker import Broker
    from .clock import Recurrence


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

    in_memory_only = True

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
        refs = [ref for ref in self.dispatcher.pending.snapshot() if ref.state == PENDING]
        return sorted(refs, key=attrgetter("sequence"))


class RetroactiveMessages:
    """The last messages of one address."""

    __slots__ = ("_address", "_broker", "_cached", "_rings", "internal")

    def __init__(self, broker: Broker, address: Address, count: int) -> None:
        """Find the rings where a store has restored them, else create them."""
        self._broker = broker
        self._address = address
        self._cached: tuple[Traits, Traits] | None = None
        directory = broker.directory
        name = internal_address(address.name)
        self.internal = directory.addresses.get(name) or directory.create_internal_address(name)
        self._rings: dict[RoutingType, RetroactiveQueue] = {}
        for kind in RoutingType:
            queue = directory.queues.get(internal_queue(address.name, kind))
            if queue is None:
                queue = directory.create_internal_queue(
                    internal_queue(address.name, kind), self.internal, QueueAttributes(kind, ring_size=count)
                )
            assert isinstance(queue, RetroactiveQueue)
            self._rings[kind] = queue
        self.resize(count)

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
                self._broker.storage.bind(queue)
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
            origin = (
                (b"_AMQ_ORIG_ADDRESS", self._address.name.encode()),
                (b"_AMQ_ORIG_REASON", RETROACTIVE.encode()),
            )
            known = (
                b"\n_AMQ_ORIG_ADDRESS:" in traits.block
            )  # a copy itself: its origin is more to its receivers
            lines = b"" if known else b"".join(header_line(*line) for line in origin)
            made = copied(traits, traits.block + lines)
            made.retained = NOWHERE
            cached = self._cached = traits, made
        return cached[1]

    def references(self, routing_type: RoutingType) -> list[Reference]:
        """What a new queue of that type gets, the oldest first."""
        return self._rings[routing_type].references()


def copied(traits: Traits, block: bytes) -> Traits:
    """The same traits for a copy that the broker makes, with another block."""
    made = CopiedTraits(
        block,
        traits.destination,
        traits.routing_type,
        traits.priority,
        traits.durable,
        traits.requested_expiry,
        traits.group,
        traits.group_sequence,
        traits.origin,
        traits.user,
    )
    made.transfer = Transfer.POLICY
    return made


class RetroactiveAddresses:
    """The retroactive addresses of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: False until a store has restored what it has, and broker.xml is applied
        self._started = isinstance(broker.storage, NoStorage)
        self._by_name: dict[str, RetroactiveMessages] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def apply(self) -> None:
        """Settings are in force, at the start or by a reload: begin, resize or end keeping messages."""
        self._started = True
        directory = self._broker.directory
        for address in list(directory.addresses.values()):
            if is_internal(address.name):
                if address_behind(address.name) not in directory.addresses:
                    directory.delete_address(address.name, force=True)
            else:
                self.update(address)

    def update(self, address: Address) -> None:
        """An address was created, or its settings have changed."""
        if not self._started or is_internal(address.name):
            return
        count = address.settings.retroactive_message_count
        if self._broker.directory.wildcards.is_wildcard(address.name):
            count = 0  # nothing is sent there
        messages = address.retroactive
        if count <= 0:
            self.remove(address)
        elif messages is None:
            messages = self._by_name[address.name] = RetroactiveMessages(self._broker, address, count)
            address.set_retroactive(messages)
        else:
            messages.resize(count)

    def remove(self, address: Address) -> None:
        """Keep none of its messages any more: it is deleted, or its settings say so."""
        address.set_retroactive(None)
        self._by_name.pop(address.name, None)
        internal = internal_address(address.name)
        if internal in self._broker.directory.addresses:
            self._broker.directory.delete_address(internal, force=True)
            if address.name in self._broker.directory.addresses:
                self._broker.consider_deleting_address(address)

    def keeps(self, address: Address) -> bool:
        """Whether messages of an address are kept, also those that a store has restored before `apply`."""
        if not address.settings.retroactive_message_count:
            return False
        internal = self._broker.directory.addresses.get(internal_address(address.name))
        return internal is not None and internal.memory_limit.messages > 0

    def replay(self, queue: Queue) -> None:
        """Copy to a new queue what its address has kept, or all addresses that its wildcard address matches."""
        if not self._by_name or not queue.attributes.enabled:
            return
        kept = [
            (ref.sequence, address, ref.message)
            for address in self._sources(queue.address)
            if address.retroactive is not None
            for ref in address.retroactive.references(queue.attributes.routing_type)
        ]
        if kept:
            kept.sort(key=itemgetter(0))
            queue.run_suspended(self._copy(queue, [(address, message) for _, address, message in kept]))

    def _sources(self, address: Address) -> Iterator[Address]:
        if not self._broker.directory.wildcards.is_wildcard(address.name):
            yield address
            return
        pattern = Pattern(address.name, self._broker.configuration.wildcard)
        for name in self._by_name:
            if pattern.matches(name):
                yield self._broker.directory.addresses[name]

    def _copy(self, queue: Queue, kept: list[tuple[Address, Message]]) -> Iterator[None]:
        """In slices. Messages that are sent meanwhile come after these: the numbers are given at once."""
        broker = self._broker
        numbers = [broker.next_message_number() for _ in kept]
        present = queue.messages_added
        if broker.paging is not None and broker.paging.gathered:
            broker.paging.write_gathered()  # no part of what follows as one for the store
        broker.storage.begin()
        try:
            for number, (address, message) in zip(numbers, kept, strict=True):
                if queue.deleted:
                    return
                requested = message.expires
                expires = requested and expiry_time(address.settings, broker.clock.now, requested)
                traits = address.mark(copied(message.traits, message.traits.block))
                copy = Message(number, address, traits, message.body, message.timestamp, expires)
                if queue.accepts is None or queue.accepts(copy):
                    if queue.messages_added == present:
                        queue.enqueue(copy)
                    else:
                        queue.enqueue_earlier(copy)
                    present += 1
                yield
        finally:
            broker.storage.commit()
