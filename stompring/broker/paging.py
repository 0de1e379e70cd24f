"""Paging as the broker sees it: pages of addresses on disk (`Pages`, `Cursor`) and queues with messages in them
(`PagedQueue`).

A paged message is a *position*: a page and its index there. What one queue has in the pages of one address is its
*cursor*. A queue has a `PagedQueue` while an address that it gets messages from is in page mode.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .address import Address
    from .consumer import Consumer
    from .message import Account, Message, Traits
    from .queue import Queue
    from .reference import Reference
    from .storage import Reason


class Page(Protocol):
    """One page file of an address. Pages of one address are ordered by ``number``."""

    number: int
    first_number: int  # no message in it has a smaller one; they ascend within an address
    count: int  # messages written to it so far
    soonest_expiry: int  # epoch ms; 0 when nothing in it expires
    soonest_due: int  # epoch ms; 0 when nothing in it is scheduled


Position = tuple[Page, int]

LOADED, TIMED = 11, 12  # in `Cursor.states`


class Block(Protocol):
    """Consecutive messages of one page in memory: ``first`` to before ``stop``."""

    page: Page
    first: int
    stop: int
    size: int  # bytes that it holds in memory

    def message(self, index: int) -> Message:
        """The message at a position of this block; the same object for all queues while any of them holds it."""

    def decode(self, index: int) -> Message:
        """As `message`, for a caller that is done with it at once: an object of its own."""

    def due(self, index: int) -> int:
        """When its sender wants it to be delivered (epoch ms), 0 for at once."""

    # what a scan asks of each position without having a message made of it

    def number_of(self, index: int) -> int:
        """Its message's number."""

    def expires(self, index: int) -> int:
        """When it expires (epoch ms), 0 for never."""

    def traits(self, index: int) -> Traits:
        """Its traits; mostly the same object for messages that were sent with the same headers."""


class Cursor(Protocol):
    """What one queue has in the pages of one address. Priorities are 0 to 9; none of the methods reads a file."""

    pages: Pages
    queue: Queue
    remaining: int  # not settled: waiting, timed and loaded
    waiting: int  # on disk only, and not timed
    timed: int  # on disk only, for their due time
    levels: list[int]  # ``waiting`` by priority

    def first(self, level: int) -> Position | None:
        """The first waiting position of a priority."""

    def following(self, level: int, page: Page, index: int) -> Position | None:
        """The first waiting position of a priority at or after ``(page, index)``; ``index`` may be behind its end."""

    def is_waiting(self, page: Page, index: int) -> bool:
        """Whether a position is on disk only, and not timed."""

    def counts(self, page: Page, index: int) -> tuple[int, int]:
        """Deliveries and failed attempts of a position so far."""

    def due(self, block: Block, index: int) -> int:
        """When a timed position falls due (epoch ms): that of its message, or of its redelivery."""

    def take(self, page: Page, index: int) -> tuple[int, int]:
        """A waiting or timed position is loaded from now on; gives its deliveries and failed attempts so far."""

    def put_back(self, ref: Reference) -> None:
        """A loaded reference is given up by memory: its position is waiting again, its counts are kept."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A loaded position is done with."""

    def acknowledge(self, page: Page, first: int, stop: int, durable: bool) -> None:
        """Waiting positions from ``first`` to before ``stop``, all of one priority, were delivered and acknowledged.

        None of them was delivered before (`untouched`); all of them are durable, or none is.
        """

    def untouched(self, page: Page) -> bool:
        """Whether `acknowledge` may be used: nothing in a page was delivered and came back."""

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """A waiting position is done with unread (rings that count paged messages)."""

    def returned(self, ref: Reference) -> None:
        """A delivery of a loaded position came back: its counts are new."""

    def states(self, page: Page, first: int, stop: int) -> bytes:
        """One byte a position: priority + 1 where it is waiting, `LOADED`, `TIMED`, or 0 (settled, or not its own)."""

    def timed_of(self, page: Page) -> list[int]:
        """The timed positions of a page, ascending."""

    def waiting_of(self, page: Page) -> list[int]:
        """The waiting positions of a page, ascending."""

    def purge(self, reason: Reason) -> Iterator[int]:
        """Settle all that is waiting or timed, the last page first; gives how many for each page."""


class Pages(Protocol):
    """The pages of one address."""

    address: Address
    bytes: int  # of all its page files

    @property
    def messages(self) -> int:
        """The most that any one queue has not settled."""

    @property
    def cursors(self) -> Mapping[Queue, Cursor]:
        """By queue, of those that have something here."""

    def roll(self) -> None:
        """Begin a new page file now."""

    @property
    def count(self) -> int:
        """Page files."""

    @property
    def empty(self) -> bool:
        """No queue has anything left here."""

    def in_order(self) -> Sequence[Page]:
        """All pages, ascending."""

    def page(self, number: int) -> Page | None:
        """The page of that number, None when it is gone."""

    def append(self, message: Message, members: Sequence[Queue], due: int = 0) -> Position:
        """Write a message once for all ``members``; it waits for each of them (timed when ``due`` is given)."""

    def gather(self, message: Message, queue: Queue) -> bool:
        """As `append`, for a queue with waiting messages before this one; gathered messages are appended together.

        Returns False where `Paging.gathering` is not set or the message needs more than being written.
        """

    def cursor(self, queue: Queue) -> Cursor:
        """The cursor of a queue, made when first asked for."""

    def forget(self, queue: Queue) -> None:
        """A queue was deleted: drop its cursor."""

    def fetch(self, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        """Read the block with a position. ``done`` is called later, never within; with None for what is unreadable.

        An unreadable block was logged, and its messages were settled as lost for all queues, before ``done`` is called.
        """


class Paging(Protocol):
    """All pages of the broker.

    Whoever sets ``gathering`` calls `write_gathered` before any cursor is read: a session sets it while it handles the
    SENDs of one read.
    """

    gathering: bool
    gathered: list[Any]  # pages with messages that are not appended yet

    def write_gathered(self) -> None:
        """Append what was gathered."""

    def open(self, address: Address) -> Pages:
        """Pages for an address that has none. Raises `StoreError`."""

    def close(self, pages: Pages) -> None:
        """Remove the files: nothing is left in them."""


def waiting_from(cursor: Cursor, level: int, place: Position | None) -> Position | None:
    """The first waiting position of a priority at or after ``place``, from the start when that is None.

    The page of ``place`` may be gone: then it is the first one in what comes after it.
    """
    if place is None:
        return cursor.first(level)
    if not cursor.levels[level]:
        return None
    page, index = place
    if cursor.pages.page(page.number) is not page:
        pages = cursor.pages.in_order()
        at = bisect_right(pages, page.number, key=_number)
        if at >= len(pages):
            return None
        page, index = pages[at], 0
    return cursor.following(level, page, index)


def _number(page: Page) -> int:
    return page.number


class PagedQueue(Protocol):
    """Messages of one queue in the pages of all its addresses."""

    @property
    def version(self) -> int:
        """Rises with every change of what is on disk."""

    @property
    def cursors(self) -> list[Cursor]:
        """One for each address that paged messages for this queue."""

    @property
    def waiting(self) -> int:
        """Messages on disk only, ready for delivery (Artemis: pagedCount)."""

    @property
    def timed(self) -> int:
        """Messages on disk only that are scheduled."""

    @property
    def oldest(self) -> int | None:
        """Timestamp (epoch ms) of the first message on disk; None where there is none, or until it has been read."""

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        """A message was paged for this queue. It stays in memory where nothing precedes it and memory allows."""

    def on_growth(self) -> None:
        """Several messages were paged, each behind others of its priority."""

    def may_deliver(self, ref: Reference, consumer: Consumer) -> bool:
        """Whether no message on disk precedes ``ref`` for this consumer, and its page credit is not used up."""

    def position_before(self, ref: Reference | None) -> Position | None:
        """The first position on disk if it precedes ``ref`` for a consumer without a selector, else None."""

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """A message from a page was delivered."""

    def on_requeued(self, ref: Reference) -> None:
        """A delivered message from a page was requeued."""

    def settled(self, ref: Reference, reason: Reason) -> None:
        """A message from a page was settled."""

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        """Send a message back to disk if its group owner's backlog is full; returns whether that was done."""

    def release_spilled(self, consumer: Consumer) -> None:
        """Messages spilled for a consumer may go to any consumer."""

    def on_consumer_removed(self, consumer: Consumer) -> None:
        """A consumer has left the queue."""

    def demand(self) -> None:
        """Load messages if consumers can take more than is in memory."""

    def evict(self, position: Position) -> None:
        """Evict the message at a position that `position_before` returned (rings that count paged messages)."""

    def replace(self, cursor: Cursor, position: Position) -> None:
        """Settle a waiting message unread: a newer one has its key (last-value queues)."""

    def purge(self, reason: Reason) -> Iterator[int]:
        """Settle all that is on disk only; yields the count of each page, so that the caller may pause."""

    def forget(self, address: Address) -> None:
        """An address has left page mode; its pages are empty."""

    def close(self) -> None:
        """The queue was deleted."""

    def block(self, page: Page, index: int) -> Block | None:
        """The block with a position if it is in memory."""

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        """Read the block with a position; ``done`` is called later, with None for an unreadable block."""

    def load_reference(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference:
        """The reference of a message on disk: in no list, with state GONE."""

    def deliver_now(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """A scheduled message on disk falls due at once."""


class PagedQueues(Protocol):
    """All paged queues of a broker."""

    @property
    def budget(self) -> Account:
        """Memory account of messages read from pages."""

    def free_memory(self, size: int) -> bool:
        """Whether ``size`` more bytes fit into the budget, once the caches have given up what they can."""

    def open(self, queue: Queue) -> PagedQueue:
        """The paged queue of a queue that has none."""

    def cursor(self, queue: Queue, pages: Pages) -> Cursor:
        """The cursor of a queue in ``pages``; creates its paged queue where it has none."""

    def paged(self, pages: Pages, position: Position, expires: int, due: int) -> None:
        """A message with an expiry or a due time (epoch ms, 0 for none) was paged."""

    def adopt(self, pages: Pages) -> None:
        """Pages were recovered at start: watch their times and serve their queues."""

    def closed(self, pages: Pages) -> None:
        """An address has left page mode."""

    def stop(self) -> None:
        """Cancel all timers."""
