"""What is kept of a deleted queue: that a page which other queues still need has nothing for it.

Otherwise, once the journal no longer knows that the queue was deleted, its messages would be found in the page again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .holding import pack_spans
from .kept import Kept
from .record import PAGE_CURSOR, Kind
from .tail import Tail

if TYPE_CHECKING:
    from .page import Page


class Ended(Kept):
    """A queue of an address, by their numbers, and a page."""

    __slots__ = ("_address", "_page", "_queue")

    def __init__(self, address: int, queue: int, page: Page) -> None:
        super().__init__()
        self._address = address
        self._queue = queue
        self._page = page

    def tell(self, tail: Tail) -> None:
        """All of the page is settled."""
        page = self._page
        if not self.gone:
            head = PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, self._address, self._queue, page.number)
            tail.add(head + pack_spans([(0, page.count)]))
