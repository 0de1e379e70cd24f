"""The seam to the store. The broker tells it facts about durable messages; in memory nobody listens.

A store keeps *messages* (once, with the queues that hold them), *facts* about them (settled and why, delivery
attempts, due times) and *bindings* (addresses and queues that must survive). Facts of one transaction stand between
`begin` and `commit`. Nothing here waits: `when_synced` calls back once all that was said before is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from .memory import MemoryLimit

if TYPE_CHECKING:
    from .address import Address
    from .broker import Broker
    from .message import Message
    from .queue import Queue
    from .reference import Reference


class Reason(IntEnum):
    """Why a queue no longer holds a message. The name of the counter that goes up."""

    ACKNOWLEDGED = 0
    EXPIRED = 1
    KILLED = 2
    REPLACED = 3


#: What else becomes of a message in a queue: it goes out to a consumer, comes back, waits for its due time.
DELIVERED, RETURNED, POSTPONED = range(len(Reason), len(Reason) + 3)


class Entries:
    """Messages that entered ``queue`` and that no restart has to bring back, until a store writes them.

    ``taker`` is the name of the consumer that took and acknowledged each as it came. None: they wait, and what becomes
    of them is told of each.
    """

    __slots__ = ("messages", "queue", "taker")

    def __init__(self, queue: Queue, taker: str | None) -> None:
        self.queue = queue
        self.taker = taker
        self.messages: list[Message] = []


class Storage(Protocol):
    """What the broker needs of a store."""

    keeps_all: bool  # retains messages: wants to hear of those too that are consumed as they come
    write_limit: (
        MemoryLimit  # full while durable messages must wait: too much is unwritten, or the disk fails
    )

    def append(self, ref: Reference) -> None:
        """A durable message entered a durable queue.

        A message that enters several queues comes once for each, one after the other.
        """

    def append_scheduled(self, ref: Reference) -> None:
        """The same of a scheduled one, which carries its due time."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A queue gave up its reference; the message goes when the last one does."""

    def returned(self, ref: Reference) -> None:
        """A delivery came back: its counts, and its due time when it has one, are new."""

    def postponed(self, ref: Reference) -> None:
        """The schedule of a recurring message goes on: its due time is new."""

    def delivered(self, ref: Reference) -> None:
        """A message that had waited went out to a consumer. It need not be safe before anything else is."""

    def log(self, ref: Reference, event: int) -> None:
        """Something has become of a message that is retained and that no restart brings back.

        ``event`` is a `Reason`, or DELIVERED, RETURNED or POSTPONED.
        """

    def record(self, entries: Entries) -> None:
        """``entries`` is about to get its first message; the store takes what is in it when the turn is over."""

    def remember(self, address: Address, identifier: bytes) -> None:
        """A durable message with this duplicate id was routed; both stand between the same `begin` and `commit`."""

    def forgot(self, address: Address) -> None:
        """Others than the next one to be remembered made ids go: see `Duplicates.forgotten`."""

    def forgot_all(self, address: Address) -> None:
        """No id that was told of an address so far counts any more, not even one that it did not know."""

    def bind(self, queue: Queue) -> None:
        """A durable queue was made, or its attributes changed."""

    def unbind(self, queue: Queue) -> None:
        """A durable queue was deleted."""

    def bind_address(self, address: Address) -> None:
        """An address was made, or its routing types changed."""

    def unbind_address(self, address: Address) -> None:
        """An address was deleted."""

    def begin(self, size: int = 0) -> None:
        """What follows, up to `commit`, takes effect as one.

        ``size``, in bytes, is given where it may as well do so together with what was told right before in that way.
        """

    def commit(self) -> None:
        """End of what `begin` opened."""

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        """Call once everything told so far would survive a crash; ``transactional`` for the end of a transaction."""

    def recover(self, broker: Broker) -> None:
        """Rebuild what was kept, before the configuration is applied and the first connection is made."""

    def drain(self) -> bool:
        """Write everything told so far and wait for it; False where that cannot be done."""

    def close(self) -> None:
        """Everything told so far is safe when this returns."""


class NoStorage:
    """Keeps nothing: everything told is as safe at once as it will ever be."""

    def __init__(self) -> None:
        self.keeps_all = False
        self.write_limit = MemoryLimit()

    def append(self, ref: Reference) -> None:
        """Memory is all there is."""

    def append_scheduled(self, ref: Reference) -> None:
        """The same."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """Nothing was kept."""

    def returned(self, ref: Reference) -> None:
        """Counts live in the reference."""

    def postponed(self, ref: Reference) -> None:
        """The due time too."""

    def delivered(self, ref: Reference) -> None:
        """The same."""

    def log(self, ref: Reference, event: int) -> None:
        """Never asked: nothing is retained."""

    def record(self, entries: Entries) -> None:
        """Never asked: nothing is retained."""

    def remember(self, address: Address, identifier: bytes) -> None:
        """The address knows it, as long as there is one."""

    def forgot(self, address: Address) -> None:
        """Nothing was kept."""

    def forgot_all(self, address: Address) -> None:
        """Nothing was kept."""

    def bind(self, queue: Queue) -> None:
        """Queues live as long as the process."""

    def unbind(self, queue: Queue) -> None:
        """Nothing was kept."""

    def bind_address(self, address: Address) -> None:
        """Addresses live as long as the process."""

    def unbind_address(self, address: Address) -> None:
        """Nothing was kept."""

    def begin(self, size: int = 0) -> None:
        """A process that dies takes all of it along, so all is atomic."""

    def commit(self) -> None:
        """See `begin`."""

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        """At once."""
        call()

    def recover(self, broker: Broker) -> None:
        """Nothing was kept."""

    def drain(self) -> bool:
        """Nothing waits."""
        return True

    def close(self) -> None:
        """Nothing to sync."""
