"""Addresses: their queues, page mode, duplicate ids and retroactive messages.

Duplicate detection: a message that is sent twice is routed once (Artemis, "Duplicate Message Detection").

A producer that does not know whether a message has arrived sends it again with the same ``_AMQ_DUPL_ID``. An address
remembers the latest ids sent to it. Messages of the broker itself are not checked.

Page mode: a full address writes new messages to pages, until all of its pages are consumed (Artemis, "Paging").

While an address pages, each new message is written once for all of its queues. A queue that keeps up is still served
from memory: a ready consumer gets a non-durable message without a write, and other messages right after their write, if
no message on disk precedes them.

Retroactive addresses: an address retains its last messages for queues that are created later (Artemis, "Retroactive
Addresses").

An address with ``retroactive-message-count`` has an internal address with two rings: one for messages of multicast
queues, one for messages of anycast queues. A copy of each message enters the ring of its routing type, or both rings if
it has none. The store writes message and copy in one transaction. A new queue gets copies of the messages in the ring
of its routing type, in the order of their sends; the ring keeps its messages. Names of internal addresses and queues
are those of Artemis; clients cannot use them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Protocol

from stompring.settings.match import INTERNAL_PREFIX
from stompring.settings.model import (
    AddressSettings,
    BrokerConfiguration,
    FullPolicy,
    PolicyUse,
    Retain,
    RoutingType,
    TransformerConfiguration,
)

from .clock import Due, Reactor, Recurrence, Seconds
from .history import History
from .limits import GlobalMemoryLimit, MemoryLimit
from .message import (
    EVERYWHERE,
    NOWHERE,
    RETROACTIVE,
    Account,
    AddressBase,
    HeaderTransformer,
    Message,
    Traits,
    Transformer,
    copied,
    header_lines,
)
from .notifications import Notifications
from .ports import Cursor, Hooks, Listener, Pages, Storage
from .queue import PERHAPS, DueBatch, Queue, QueueServices, as_queue
from .reference import PENDING, Position, Reference, changes_expiry, is_expired

log = logging.getLogger(__name__)


class Copier:
    """Base class of `BoundDivert` in `publish`: a divert that copies the messages of one address."""

    def stop(self) -> None:
        """Stop copying: the divert no longer applies to the address, or the address is deleted."""
        raise AssertionError("a derived class has it")


def internal_address(name: str) -> str:
    """Return the name of the internal address of an address."""
    return f"{INTERNAL_PREFIX}{name}.address.retro"


def internal_queue(name: str, routing_type: RoutingType) -> str:
    """Return the name of the ring of an address for a routing type."""
    return f"{INTERNAL_PREFIX}{name}.queue.{routing_type.lower()}.retro"


def address_behind(internal: str) -> str:
    """Return the name of the address to which an internal address belongs."""
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
        """Append messages that are due: they are now the newest."""
        for ref in refs:
            self.scheduled.pop(ref.message.number, None)
            ref.sequence = self.broker.next_message_number()
            ref.state = PENDING
            self.dispatcher.enlist(ref)
            if self.ring_size < self.ring_count:
                self.evict()

    def references(self) -> list[Reference]:
        """Return the references in the ring, the oldest first."""
        return sorted(self.dispatcher.pending.snapshot(), key=attrgetter("sequence"))


@dataclass(eq=False)
class RetroactiveMessages:
    """The last messages of one address."""

    _broker: QueueServices
    _address: AddressBase
    internal: AddressBase
    rings: dict[RoutingType, RetroactiveQueue]
    _cached: tuple[Traits, Traits] | None = None  # traits of the latest message and of its copy

    @property
    def count(self) -> int:
        """Number of retained messages. A message without a routing type is in both rings, and counts once."""
        return self.internal.memory_limit.messages

    def resize(self, count: int) -> None:
        """Set the maximum number of messages for each routing type."""
        for queue in self.rings.values():
            if queue.ring_size != count:
                queue.attributes = replace(queue.attributes, ring_size=count)
                queue.ring_size = count
                self._broker.bind(queue)
            if queue.ring_count > count:
                self._broker.background.run(queue.trim(), queue)

    def add(self, message: Message, due: Due, recurrence: Recurrence | None) -> None:
        """Retain a copy of a message. The copy is scheduled for ``due`` (epoch ms) unless that is 0."""
        wanted = message.traits.routing_type
        shared = self._shared_traits(message.traits)
        traits = shared.with_block(shared.block + b"_AMQ_ORIG_MESSAGE_ID:%d\n" % message.number)
        number = self._broker.next_message_number()
        copy = Message(number, self.internal, traits, message.body, message.timestamp, message.expires)
        for kind, queue in self.rings.items():
            if wanted is None or wanted is kind:
                if due:
                    queue.schedule(copy, due, None if recurrence is None else replace(recurrence))
                else:
                    queue.enqueue(copy)

    def _shared_traits(self, traits: Traits) -> Traits:
        """Return the traits that the copies of messages with these traits share: without the message id."""
        cached = self._cached
        if cached is None or cached[0] is not traits:
            block = traits.block
            # a copy of a copy keeps the headers with the first origin: receivers want to know that one
            if b"\n_AMQ_ORIG_ADDRESS:" not in block:
                address = (b"_AMQ_ORIG_ADDRESS", self._address.name.encode())
                block += header_lines((address, (b"_AMQ_ORIG_REASON", RETROACTIVE.encode())))
            made = copied(traits, block)
            made.retained = NOWHERE
            cached = self._cached = traits, made
        return cached[1]


#: Minimum milliseconds between two log lines about the duplicates of one address.
LOG_INTERVAL: Final = 60_000

#: Maximum number of characters of an id in a log line or an ERROR.
PRINTED_CHARACTERS: Final = 80


class DuplicateIds:
    """The latest duplicate ids of one address, at most ``size``. An id is *persisted* if the store has it, too.
    ``forgotten`` counts the persisted ids dropped from memory: the store drops as many of its oldest ids.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.forgotten = 0
        self.next_log = 0  # earliest time of the next log line (ms of the steady clock)
        self._known: dict[bytes, bool] = {}  # by id, the oldest first: whether the id is persisted
        self._order: deque[bytes] = deque()

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._known

    def __len__(self) -> int:
        return len(self._order)

    @property
    def in_order(self) -> list[bytes]:
        """All ids, the oldest first."""
        return list(self._order)

    def add(self, identifier: bytes, *, persisted: bool) -> None:
        """Add the new id of a routed message."""
        order = self._order
        self._known[identifier] = persisted
        order.append(identifier)
        if len(order) > self.size:
            self._forget()

    def resize(self, size: int) -> None:
        """Set the maximum number of ids, and drop the oldest beyond it."""
        self.size = size
        while len(self._order) > size:
            self._forget()

    def clear(self) -> int:
        """Drop all ids. Return their number."""
        count = len(self._order)
        self.forgotten += sum(self._known.values())
        self._known.clear()
        self._order.clear()
        return count

    def restore(self, identifiers: Iterable[bytes]) -> None:
        """Add the ids that the store has. The caller passes at most ``size`` distinct ids, the oldest first."""
        self._order.extend(identifiers)
        self._known.update(dict.fromkeys(self._order, True))

    def _forget(self) -> None:
        if self._known.pop(self._order.popleft()):
            self.forgotten += 1


def cache_size(address: Address) -> int:
    """Return the ``id-cache-size`` of an address, by default that of ``<core>``. 0: duplicates are not detected."""
    size = address.settings.id_cache_size
    return address.broker.configuration.id_cache_size if size is None else size


def is_known(address: Address, identifier: bytes) -> bool:
    """Return whether a message with this id was routed before."""
    return address.duplicates is not None and identifier in address.duplicates


def is_persisted(address: Address, durable: bool) -> bool:
    """Return whether the store gets the duplicate id of a message (in one transaction with it)."""
    return durable and address.broker.configuration.persist_id_cache


def add_id(address: Address, identifier: bytes, *, persisted: bool) -> None:
    """Add the id of a routed message, and store it if ``persisted``."""
    if address.deleted:  # the address was deleted while the message was routed
        return
    known = address.duplicates
    if known is None:
        known = address.duplicates = DuplicateIds(cache_size(address))
    known.add(identifier, persisted=persisted)
    if persisted:
        address.broker.store.remember(address, identifier)


def apply_cache_size(address: Address) -> None:
    """Apply a changed ``id-cache-size`` to an address."""
    known = address.duplicates
    if known is None:
        return
    size = cache_size(address)
    if size != known.size:
        known.resize(size)
        address.broker.store.forgot(address)


def forget_all(address: Address) -> int:
    """Remove all ids of an address, from the store too. Return the number of ids in memory."""
    known = address.duplicates
    count = 0 if known is None else known.clear()
    address.broker.store.forgot_all(address)
    return count


def count_duplicate(address: Address, identifier: bytes) -> None:
    """Count a duplicate, which is not routed. Logged at most once a minute."""
    address.duplicate_messages += 1
    known, now = address.duplicates, address.broker.clock.steady.now
    if known is None or now < known.next_log:
        return
    known.next_log = now + LOG_INTERVAL
    log.info(
        "address %s: duplicates rejected: %d so far, latest _AMQ_DUPL_ID '%s'",
        address.name,
        address.duplicate_messages,
        printable_id(identifier),
        extra={"address": address.name},
    )


def printable_id(identifier: bytes) -> str:
    """Return an id for a log line or an ERROR, shortened and without control characters."""
    text = identifier[: PRINTED_CHARACTERS + 1].decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= PRINTED_CHARACTERS else text[:PRINTED_CHARACTERS] + "…"


ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


@dataclass
class AnycastGroup:
    """The anycast queues of one address. Each message goes to one of them, round robin."""

    owner: Address  # has the round-robin index: a change of queues creates a new group, and the index remains
    queues: list[Queue]

    def choose(self, message: Message) -> Queue | None:
        """Return the next queue whose filter accepts the message, None if no filter does."""
        queues = self.queues
        for _ in queues:
            turn = self.owner.turn
            self.owner.turn = turn + 1
            queue = queues[turn % len(queues)]
            if queue.accepts is None or queue.accepts(message):
                return queue
        return None


class Address(AddressBase):
    """One address with its own ``queues``. It also routes to the queues of matching wildcard addresses."""

    hooks: Hooks  # hooks of the policies that apply to the address

    __slots__ = (
        "_anycast",
        "_multicast",
        "_logged_full",
        "_logged_pages_full",
        "auto_created",
        "blocked_producers",
        "changes_expiry",
        "configured",
        "copied",
        "deleted",
        "broker",
        "diverts",
        "dropped_messages",
        "duplicate_messages",
        "duplicates",
        "generation",
        "history",
        "hooks",
        "not_for_all",
        "pages",
        "paused",
        "queues",
        "reaches_all",
        "retroactive",
        "routed_messages",
        "routing_types",
        "stamp",
        "temporary",
        "times_paged",
        "turn",
        "unrouted_messages",
        "used",
        "wildcard",
    )

    def __init__(
        self,
        name: str,
        routing_types: frozenset[RoutingType],
        settings: AddressSettings,
        broker: AddressServices,
    ) -> None:
        self.name = name
        self.number = 0
        self.routing_types = routing_types
        self.broker = broker
        self.memory = broker.memory
        self.memory_limit = MemoryLimit()
        self.pages: Pages | None = None  # None outside page mode
        self.times_paged = 0
        self.queues: dict[str, Queue] = {}
        self.diverts: tuple[Copier, ...] = ()  # diverts that copy messages of the address to other addresses
        # latest messages of the address, for queues created later
        self.retroactive: RetroactiveMessages | None = None
        self.copied: bool  # whether diverts or retroactive messages copy messages of the address
        self.auto_created = False
        self.configured = False
        self.deleted = False
        self.paused = False
        self.temporary = False  # whether only the end of its connection deletes the address
        self.used = False  # whether a queue was ever created on the address
        self.wildcard = False  # whether the queues of the address receive messages of matching addresses
        self.routed_messages = 0
        self.unrouted_messages = 0
        self.dropped_messages = 0
        self.duplicate_messages = 0
        self.duplicates: DuplicateIds | None = None  # None until a message with a duplicate id arrives
        self.blocked_producers = 0
        self.history: History | None = None  # None if the address is not sampled
        self.turn = 0  # round-robin index of the anycast queues
        # incremented with each change of queues or permissions, which invalidates plans of SENDs
        self.stamp = 0
        self.generation = -1  # `AddressServices.generation` when the bindings were collected; -1: no bindings
        self._logged_full = False
        # whether the address was full or in page mode: `release` then checks whether it still is
        self.watching = False
        self._logged_pages_full = False
        self._unbind()
        self.apply(settings)

    def apply(self, settings: AddressSettings) -> None:
        """Apply new settings."""
        self.settings = settings
        self.changes_expiry = changes_expiry(settings)
        self.prefetch = settings.prefetch_messages, settings.prefetch_bytes
        retained = {Retain.ALL: EVERYWHERE, Retain.NONE: NOWHERE}
        self.retained = retained.get(settings.retain) if self.broker.storage.keeps_all else None
        self.memory_limit.set_limits(settings.max_size_bytes, settings.max_size_messages)
        broker = self.broker
        self.hooks = broker.notifications.observe(self, broker.policies.hooks_for(self))
        self.stamp += 1  # invalidates the plans of SENDs, which contain the former hooks
        for queue in self.queues.values():
            queue.update_hooks(self.hooks)
            broker.watch(queue)
        apply_cache_size(self)
        self.update_slow_path()

    # ---- memory

    def on_full(self) -> None:
        if self.pages is None:
            pages_for(self)

    def on_release(self) -> None:
        limit, memory = self.memory_limit, self.memory
        if limit.full:
            limit.review()
        if memory.full:
            memory.review()
        if self.watching and self.full is None:
            self._no_longer_full()

    @property
    def full(self) -> MemoryLimit | None:
        """The memory limit that is full: that of the address, else that of the broker; None if neither is full."""
        if self.memory_limit.full:
            return self.memory_limit
        return self.memory if self.memory.full else None

    def update_slow_path(self) -> None:
        """Update the flags of the memory limit after a change of page mode, page settings or copiers."""
        limit, paging = self.memory_limit, self.pages is not None
        limit.copied = self.copied = bool(self.diverts) or self.retroactive is not None
        limit.set_paging(paging)
        limit.unbounded = paging and self.policy is FullPolicy.PAGE and self.settings.page_full_policy is None

    def begin_paging(self, pages: Pages) -> None:
        """Write new messages to ``pages``, until these have no unsettled message and the address is not full."""
        self.pages = pages
        self.update_slow_path()
        self.watching = True

    def set_diverts(self, diverts: tuple[Copier, ...]) -> None:
        """Replace the diverts."""
        self.diverts = diverts
        self.update_slow_path()

    def set_retroactive(self, messages: RetroactiveMessages | None) -> None:
        """Start to retain the last messages of the address in ``messages``; None: stop."""
        self.retroactive = messages
        self.update_slow_path()

    def describe_full(self) -> str:
        """Return the text for the reached limit, for an ERROR frame or a log line."""
        limit, memory = self.memory_limit, self.memory
        if not limit.full:
            if 0 <= memory.max_bytes <= memory.bytes:
                return f"Address {self.name} is full: global-max-size {memory.max_bytes} bytes is used up"
            return f"Address {self.name} is full: global-max-messages {memory.max_messages} is used up"
        if 0 <= limit.max_bytes <= limit.bytes:
            return f"Address {self.name} is full: max-size-bytes {limit.max_bytes}"
        return f"Address {self.name} is full: max-size-messages {limit.max_messages}"

    @property
    def policy(self) -> FullPolicy | None:
        """The address-full-policy. None: a policy plugin decides about each message (`Hooks.full`)."""
        return self.without_store(self.hooks.answer)

    def without_store(self, answer: FullPolicy | None) -> FullPolicy | None:
        """Return ``answer``, or BLOCK if it is PAGE and the broker has no store."""
        if answer is FullPolicy.PAGE and self.broker.paging is None:
            return FullPolicy.BLOCK
        return answer

    def block(self, limit: MemoryLimit | None) -> None:
        """Count a producer that waits until ``limit`` is not full. None: it waits for space in pages, or for a policy.
        Logs that the address is full: one line until it is no longer full.
        """
        self.blocked_producers += 1
        # the store and the disk monitor log when their limits are full
        if limit in (self.memory_limit, self.memory):
            self.log_full("producers are blocked")

    def _no_longer_full(self) -> None:
        if self._logged_full:
            self._logged_full = False
            self.announce("ADDRESS_NOT_FULL", logging.INFO, f"address {self.name} is no longer full")
        if self.pages is not None:
            leave_if_empty(self)
        self.watching = self.pages is not None

    def log_full(self, consequence: str) -> None:
        """Log that the address is full: one line until it is no longer full."""
        if not self._logged_full:
            self._logged_full = self.watching = True
            self.announce("ADDRESS_FULL", logging.WARNING, f"{self.describe_full()}: {consequence}")

    def announce(self, kind: str, level: int, text: str) -> None:
        """Log an event, and send its notification."""
        log.log(level, "%s", text, extra={"address": self.name})
        self.broker.notifications.notify(kind, text, address=self.name)

    def log_pages_full(self, which: str) -> None:
        """Log that the pages have reached their limit: one line until they are below the limit again."""
        if not self._logged_pages_full:
            self._logged_pages_full = True
            log.warning("%s: messages are dropped", which, extra={"address": self.name})

    def pages_not_full(self) -> None:
        """Log that the pages are below their limit again."""
        if self._logged_pages_full:
            self._logged_pages_full = False
            log.info("address %s: pages are no longer full", self.name, extra={"address": self.name})

    # ---- routing

    def changed(self) -> None:
        """Invalidate the bindings after a change of queues or their filters."""
        self._unbind()
        self.stamp += 1
        if self.wildcard:
            self.broker.generation += 1

    def _unbind(self) -> None:
        """Drop the bindings until the next message, so that they do not keep a deleted queue in memory."""
        self.generation = -1
        self._anycast: list[AnycastGroup] = []
        self._multicast: list[Queue] = []
        #: queues that every message reaches; None: messages may reach different queues
        self.reaches_all: list[Queue] | None = None
        #: messages with this routing type do not reach the queues in ``reaches_all``
        self.not_for_all = ANYCAST

    def rebind(self) -> None:
        """Collect the queues that messages of this address reach."""
        self.generation = self.broker.generation
        sources = [self, *self.broker.wildcards_of(self)]
        self._anycast, self._multicast = [], []
        for source in sources:
            queues = [queue for queue in source.queues.values() if queue.open]
            anycast = [queue for queue in queues if queue.attributes.routing_type is ANYCAST]
            if anycast:
                self._anycast.append(AnycastGroup(source, anycast))
            self._multicast += [queue for queue in queues if queue.attributes.routing_type is MULTICAST]
        reached, self.not_for_all = self._multicast, ANYCAST
        if not reached and len(self._anycast) == 1:
            reached, self.not_for_all = self._anycast[0].queues, MULTICAST
        alike = not self._anycast or (self.not_for_all is MULTICAST and len(reached) == 1)
        self.reaches_all = reached if alike and all(queue.accepts is None for queue in reached) else None

    def growth(self, count: int) -> int:
        """Return the maximum number of messages by which ``count`` sends grow the address. A full ring does not grow:
        it evicts a message for each new one.
        """
        if self.generation != self.broker.generation:
            self.rebind()
        queues = {*self._multicast, *(queue for group in self._anycast for queue in group.queues)}
        if any(queue.ring_size < 0 for queue in queues):
            return count
        return min(count, sum(max(0, queue.ring_size - queue.ring_count) for queue in queues))

    def route(self, message: Message) -> int:
        """Enqueue a message in memory, in each queue that accepts it. Return the number of queues."""
        queues = self.choose(message)
        reached = self.count_routed(len(queues))
        for queue in queues:
            queue.enqueue(message)
        return reached

    def choose(self, message: Message) -> Sequence[Queue]:
        """Return the queues that receive a message."""
        if self.generation != self.broker.generation:
            self.rebind()
        wanted = message.traits.routing_type
        if self.reaches_all is not None and wanted is not self.not_for_all:
            return self.reaches_all
        chosen: list[Queue] = []
        if wanted is not ANYCAST:
            chosen += [queue for queue in self._multicast if queue.accepts is None or queue.accepts(message)]
        if wanted is not MULTICAST:
            chosen += [queue for group in self._anycast if (queue := group.choose(message)) is not None]
        return chosen

    def count_routed(self, reached: int) -> int:
        """Count a message that reached this number of queues: as routed, or as unrouted if 0. Return ``reached``."""
        if reached:
            self.routed_messages += 1
        else:
            self.unrouted_messages += 1
        return reached

    @property
    def sent_messages(self) -> int:
        """Number of messages sent to the address: routed, unrouted, dropped and duplicate ones."""
        return self.routed_messages + self.unrouted_messages + self.dropped_messages + self.duplicate_messages

    @property
    def message_count(self) -> int:
        """Number of messages in the queues of the address; a message in two queues counts twice."""
        return sum(queue.message_count for queue in self.queues.values())


# ---- page mode


def pages_for(address: Address) -> Pages | None:
    """Return the pages for the next message of an address, None if the message stays in memory."""
    pages = address.pages
    if pages is None:
        limit, memory = address.memory_limit, address.memory
        if (limit.full or memory.full) and address.policy is FullPolicy.PAGE and memory.should_page(limit):
            return enter(address)
    elif pages.empty and address.full is None:
        leave(address)
        return None
    return pages


def enter(address: Address) -> Pages | None:
    """Enter page mode, if the broker has a store. Logged and counted."""
    broker = address.broker
    if address.pages is not None or broker.paging is None:
        return address.pages
    address.announce(
        "ADDRESS_PAGING", logging.WARNING, f"{address.describe_full()}: new messages go to pages"
    )
    address.times_paged += 1
    pages = broker.paging.open(address)
    address.begin_paging(pages)
    return pages


def resume_paging(address: Address, pages: Pages) -> None:
    """Enter page mode with the pages and cursors that the store recovered when the broker started."""
    broker, opened = address.broker, address.pages
    areas = broker.areas
    assert areas is not None and broker.paging is not None
    if opened is not None and opened is not pages:  # recovered messages filled the address: it pages already
        areas.closed(opened)
        broker.paging.close(opened)
    address.begin_paging(pages)
    for queue, cursor in pages.cursors.items():
        as_queue(queue).messages_added += cursor.remaining
    areas.adopt(pages)
    for queue in map(as_queue, list(pages.cursors)):
        if queue.attributes.ring_counts_paged:
            sum(queue.trim())  # the ring may be too large now: it also has messages that were in delivery


def leave_if_empty(of: AddressBase) -> None:
    """Leave page mode if the pages are empty and the address is not full. Called after a message has left."""
    address = as_address(of)
    pages = address.pages
    if pages is not None and pages.empty and address.full is None:
        leave(address)


def leave(address: Address) -> None:
    """Leave page mode: new messages stay in memory."""
    pages, broker = address.pages, address.broker
    assert pages is not None and broker.paging is not None and broker.areas is not None
    address.pages = None
    address.update_slow_path()
    broker.areas.closed(pages)
    broker.paging.close(pages)
    address.announce("ADDRESS_NOT_PAGING", logging.INFO, f"address {address.name}: stopped paging")
    broker.consider_deleting_address(address)


def distribute(
    address: Address, pages: Pages, message: Message, queues: Sequence[Queue], due: Due = 0
) -> None:
    """Route a message of a paging address to its queues, directly or through a page. ``due``: epoch ms, 0 for now."""
    traits, broker = message.traits, address.broker
    areas = broker.areas
    assert areas is not None
    message.account = areas.budget
    durable = traits.durable
    direct = not due and traits.group is None
    direct = direct and not (message.expires and is_expired(message, broker.clock.now))
    unwritten = direct and not durable
    tail, body_at = message.tail, message.body_at
    members = []
    for queue in queues:
        dispatcher, ready = queue.dispatcher, queue.ready
        if unwritten and ready and queue.deliver_tail(traits, tail, body_at):
            continue  # the usual case: the queue keeps up
        # without free memory, a message bypasses the page only if its delivery also settles it
        may_wait = bool(ready) and (ready[0].settles_on_delivery or areas.free_memory(0))
        if (
            unwritten and ready and may_wait and not dispatcher.blocks and not dispatcher.count
        ):  # the fast path of a queue whose consumers keep up, and have to acknowledge
            queue.messages_added += 1
            consumer = ready[0] if len(ready) == 1 else dispatcher.next_consumer()
            consumer.deliver_message(message)
            continue
        if queue.in_memory_only:
            _keep(queue, message, due)
            continue
        queue.messages_added += 1
        if (
            direct
            and ready
            and may_wait
            and not dispatcher.blocks & ~PERHAPS
            and not (durable and queue.durable)
            and (queue.paged is None or not queue.paged.waiting)
            and queue.deliver_directly(message)
        ):
            continue
        members.append(queue)
    if not members:
        return
    if len(members) > 1 or due or durable or not pages.gather(message, members[0]):
        _page(areas, pages, message, members, due)


def _keep(queue: Queue, message: Message, due: Due) -> None:
    if not message.holders:
        message.account = message.address
    if due:
        queue.schedule(message, due)
    else:
        queue.enqueue(message)


def _page(areas: PagedQueues, pages: Pages, message: Message, members: Sequence[Queue], due: Due) -> None:
    position = pages.append(message, members, due)
    if due or message.expires:
        areas.paged(pages, position, message.expires, due)
    if due:
        for queue in members:
            areas.cursor(queue, pages)
        return
    cursors = pages.cursors
    for queue in members:
        area = queue.paged
        cursor = cursors.get(queue)
        if area is None or cursor is None or cursor not in area.cursors:
            cursor = areas.cursor(queue, pages)
            area = queue.paged
            assert area is not None
        area.on_paged(cursor, message, position)


def as_address(address: AddressBase) -> Address:
    """Return an address as an `Address`: messages and pages refer to it as an `AddressBase`."""
    assert isinstance(address, Address)
    return address


def transformer_for(configuration: TransformerConfiguration | None, address: Address) -> Transformer | None:
    """Return the transformer for messages of ``address``, None if the configuration has none."""
    if configuration is None:
        return None
    if configuration.policy is not None:
        return address.broker.policies.transformer(configuration.policy, address)
    return HeaderTransformer(configuration)


# ---- interfaces


class Store(Storage, Protocol):
    """The interface of a store for addresses and the directory."""

    def remember(self, address: Address, identifier: bytes) -> None:
        """Store the duplicate id of a durable message, between the same `begin` and `commit` as the message."""

    def forgot(self, address: Address) -> None:
        """Drop the ids that a smaller ``id-cache-size`` removed: see `DuplicateIds.forgotten`."""

    def forgot_all(self, address: Address) -> None:
        """Drop all ids of an address, including those that the address no longer has in memory."""

    def bind(self, queue: Queue) -> None:
        """Store a new durable queue, or its changed attributes."""

    def unbind(self, queue: Queue) -> None:
        """Remove a deleted durable queue."""

    def bind_address(self, address: Address) -> None:
        """Store a new address, or its changed routing types."""

    def unbind_address(self, address: Address) -> None:
        """Remove a deleted address."""


class Paging(Protocol):
    """All pages of the broker.

    A session sets ``gathering`` while it processes the SENDs of one socket read. The broker calls `write_gathered`
    before it reads a cursor.
    """

    gathering: bool
    gathered: list[Any]  # pages with gathered messages that are not written yet

    def write_gathered(self) -> None:
        """Append the gathered messages to their pages."""

    def open(self, address: Address) -> Pages:
        """Return new pages for an address without pages. Raises `StoreError`."""

    def close(self, pages: Pages) -> None:
        """Delete the files of consumed pages."""


class PagedQueues(Protocol):
    """All paged queues of a broker."""

    @property
    def budget(self) -> Account:
        """Memory account of messages read from pages."""

    def free_memory(self, size: int) -> bool:
        """Return whether ``size`` more bytes fit into the budget, after the caches have released memory."""

    def cursor(self, queue: Queue, pages: Pages) -> Cursor:
        """Return the cursor of a queue in ``pages``. The first call for a queue creates its `PagedQueue`."""

    def paged(self, pages: Pages, position: Position, expires: int, due: int) -> None:
        """Set timers to expire a paged message at ``expires``, and to make it due at ``due`` (epoch ms, 0: never)."""

    def adopt(self, pages: Pages) -> None:
        """Serve the queues of pages that were recovered, and watch the expiry and due times of their messages."""

    def closed(self, pages: Pages) -> None:
        """Drop the pages of an address that has left page mode."""

    def stop(self) -> None:
        """Cancel all timers."""


class Policies(Protocol):
    """The policies of all addresses."""

    @property
    def errors(self) -> Mapping[tuple[str, str], int]:
        """Number of exceptions of policies, by policy and hook."""

    @property
    def slow_hooks(self) -> Mapping[tuple[str, str], int]:
        """Number of calls longer than `SLOW_HOOK`, by policy and hook."""

    def names_for(self, address: Address) -> list[str]:
        """Return the names of the policies of an address, without built-in policies, in the order of their calls."""

    def hooks_for(self, address: Address) -> Hooks:
        """Return the hooks of the policies in the settings of an address."""

    def evicted(self, queue: Queue) -> Listener | None:
        """Return the listener of policies for messages that a ring evicts, None if no policy has one."""

    def view_of(self, queue: Queue) -> Any:
        """Return the view of a queue for ``Hooks.overflow``."""

    def transformer(self, use: PolicyUse, address: Address) -> Transformer:
        """Return a transformer that calls a policy for each copy of a message of the address."""

    def stop(self) -> None:
        """Stop all policies and cancel their timers."""


class AddressServices(QueueServices):
    """The services of the broker for addresses; see `QueueServices`."""

    #: returns the wildcard addresses whose queues also receive messages of an address
    wildcards_of: Callable[[Address], list[Address]]
    #: called after an address lost a queue, for auto-delete
    consider_deleting_address: Callable[[Address], None]

    def __init__(
        self,
        configuration: BrokerConfiguration,
        reactor: Reactor,
        now: Seconds | None,
        policies: Policies,
        store: Store,
        pageable_addresses: Callable[[], Collection[Address]],
    ) -> None:
        """``pageable_addresses`` returns the addresses that may page when the memory of the broker is full."""
        super().__init__(reactor, now, store)
        self.configuration = configuration
        self.policies = policies
        self.store = store
        self.paging: Paging | None = None  # a store sets this and ``areas``; None: the broker cannot page
        self.areas: PagedQueues | None = None
        self.memory = GlobalMemoryLimit(
            configuration.global_max_size, configuration.global_max_messages, pageable_addresses
        )
        self.disk = MemoryLimit()  # full while a disk is full
        #: incremented when the queues of a wildcard address change, which invalidates all bindings
        self.generation = 0
        self.notifications = Notifications(lambda: self.configuration, self.clock)

    def write_gathered(self) -> None:
        """Append the gathered messages to their pages. Called before changes that must follow these messages."""
        paging = self.paging
        if paging is not None and paging.gathered:
            paging.write_gathered()
