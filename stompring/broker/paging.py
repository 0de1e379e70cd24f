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
        """The message at a position of this block; the same object for all who ask while anybody holds it."""

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
        """As `append`, for a queue in which something waits before it, but all that is gathered at once, and soon.

        False where that cannot be: where `Paging.gathering` is not, or more is to be done than to write it.
        """

    def cursor(self, queue: Queue) -> Cursor:
        """The cursor of a queue, made when first asked for."""

    def forget(self, queue: Queue) -> None:
        """A queue is deleted: nothing here waits for it any more."""

    def fetch(self, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        """Read the block with a position. ``done`` is called later, never within; with None for what is unreadable.

        What is unreadable has been reported, and is settled as lost for all queues before ``done`` is called.
        """


class Paging(Protocol):
    """The door to all pages.

    Who sets ``gathering`` has to `write_gathered` before anybody may look at a cursor: a session does while it takes
    the SENDs that came together.
    """

    gathering: bool
    gathered: list[Any]  # whose pages hold something back

    def write_gathered(self) -> None:
        """Append what was gathered."""

    def open(self, address: Address) -> Pages:
        """Pages for an address that has none. Raises `StoreError`."""

    def close(self, pages: Pages) -> None:
        """Nothing is left there: remove what is on disk."""


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

    def on_growth(self) -> None:
        """As `arrived`, of some messages behind others of their priority, which whoever is ready gets first."""

    def may_have(self, ref: Reference, consumer: Consumer) -> bool:
        """Whether nothing on disk comes before ``ref`` for this consumer, and it may have more of what was paged."""

    def leads(self, ref: Reference | None) -> Position | None:
        """The position on disk that is delivered before ``ref`` whoever may take it; None when ``ref`` is first."""

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """A message that came from a page was handed over."""

    def on_requeued(self, ref: Reference) -> None:
        """It was given back."""

    def settled(self, ref: Reference, reason: Reason) -> None:
        """It is done with."""

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        """Whether a message was sent back to disk because too many are set aside for the owner of its group."""

    def free(self, consumer: Consumer) -> None:
        """What was parked for a consumer may go to anybody."""

    def on_consumer_removed(self, consumer: Consumer) -> None:
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


class PagedQueues(Protocol):
    """The door to dispatch."""

    @property
    def budget(self) -> Account:
        """The account of what was paged and is in memory."""

    def open(self, queue: Queue) -> PagedQueue:
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
