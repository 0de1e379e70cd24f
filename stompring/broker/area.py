"""The seam to dispatch: what of a queue is in pages, and what of that is in memory just now.

A queue has an area while some address it gets messages from is in page mode and paged messages for it; one that is
all in memory has none, and pays nothing. What is in memory is in the queue's ordinary lists; the area says who may
be given it before what still is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .address import Address
    from .consumer import Consumer
    from .message import Account, Message
    from .paging import Block, Cursor, Page, Pages, Position
    from .queue import Queue
    from .reference import Reference
    from .storage import Reason


class Area(Protocol):
    """What one queue has in the pages of all its addresses."""

    @property
    def version(self) -> int:
        """Another one after every change of what is on disk."""

    @property
    def cursors(self) -> list[Cursor]:
        """One for each address that paged messages for this queue."""

    @property
    def waiting(self) -> int:
        """Messages on disk only that are to be delivered as soon as may be (``pagedCount``)."""

    @property
    def timed(self) -> int:
        """Messages on disk only that wait for their time."""

    @property
    def oldest(self) -> int | None:
        """Timestamp (epoch ms) of the first message on disk, None where nothing waits or it is not known yet."""

    def arrived(self, cursor: Cursor, message: Message, position: Position) -> None:
        """A message was paged for this queue; it is served from memory at once where there is room."""

    def grown(self) -> None:
        """As `arrived`, of some messages behind others of their priority, which whoever is ready gets first."""

    def may_have(self, ref: Reference, consumer: Consumer) -> bool:
        """Whether nothing on disk comes before ``ref`` for this consumer, and it may have more of what was paged."""

    def leads(self, ref: Reference | None) -> Position | None:
        """The position on disk that is delivered before ``ref`` whoever may take it; None when ``ref`` is first."""

    def gave(self, ref: Reference, consumer: Consumer) -> None:
        """A message that came from a page was handed over."""

    def returned(self, ref: Reference) -> None:
        """It was given back."""

    def settled(self, ref: Reference, reason: Reason) -> None:
        """It is done with."""

    def park(self, ref: Reference, owner: Consumer) -> bool:
        """Whether a message was sent back to disk because too many are set aside for the owner of its group."""

    def free(self, consumer: Consumer) -> None:
        """What was parked for a consumer may go to anybody."""

    def left(self, consumer: Consumer) -> None:
        """A consumer left the queue."""

    def demand(self) -> None:
        """Consumers may want more than there is in memory."""

    def evict(self, position: Position) -> None:
        """A ring that counts paged messages gives up what is at ``position``, which `leads` returned."""

    def purge(self, reason: Reason) -> Iterator[int]:
        """Settle all that is on disk only; gives how many for each page, so that the caller may pause between."""

    def forget(self, address: Address) -> None:
        """An address has left page mode, with nothing left in its pages."""

    def close(self) -> None:
        """The queue is deleted: nothing in any page waits for it any more."""

    def block(self, page: Page, index: int) -> Block | None:
        """The block with a position, where it is in memory."""

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        """Read the block with a position; ``done`` is called later, with None for what is unreadable."""

    def take_out(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference:
        """A message on disk becomes a reference in no list, GONE as far as the queue's counts go."""

    def deliver_now(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """A scheduled message on disk falls due at once."""


class Areas(Protocol):
    """The door to dispatch."""

    @property
    def budget(self) -> Account:
        """The account of what was paged and is in memory."""

    def open(self, queue: Queue) -> Area:
        """An area for a queue that has none."""

    def cursor(self, queue: Queue, pages: Pages) -> Cursor:
        """What a queue has in ``pages``; its area is made where it has none."""

    def paged(self, pages: Pages, position: Position, expires: int, due: int) -> None:
        """A message with an expiry or a due time (epoch ms, 0 for none) was paged."""

    def adopt(self, pages: Pages) -> None:
        """Pages were found at the start: their queues and times are to be looked after."""

    def closed(self, pages: Pages) -> None:
        """An address has left page mode."""

    def stop(self) -> None:
        """No timer is left behind."""
