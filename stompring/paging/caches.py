"""The two caches that share the memory budget of paged queues: blocks of pages (pending cache) and messages
at the head of queues without consumers (head cache).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from stompring.broker.paging import Block, Page, Pages

from .budget import MemoryBudget

if TYPE_CHECKING:
    from .paged_queue import TargetArea


Done = Callable[[Block | None], None]

by_first = attrgetter("first")


class PendingCache:
    """Blocks by page and index. One block of a page is read at a time; who asks meanwhile waits for that one first.

    ``free_memory`` is asked to free bytes for a block that comes; ``lost`` is told of pages that had something
    unreadable.
    """

    def __init__(
        self, budget: MemoryBudget, free_memory: Callable[[int], bool], lost: Callable[[Pages], None]
    ) -> None:
        self._budget = budget
        self._free_memory = free_memory
        self._lost = lost
        self._used: OrderedDict[Block, Pages] = OrderedDict()  # the least recently used first
        self._of_page: dict[Page, list[Block]] = {}  # ascending
        self._of_address: dict[Pages, int] = {}  # bytes
        self._asking: dict[Page, list[tuple[int, Done]]] = {}
        self.blocks_read = 0

    def __len__(self) -> int:
        return len(self._used)

    def get(self, page: Page, index: int) -> Block | None:
        """The block with a position, if it is here."""
        blocks = self._of_page.get(page)
        if blocks is None:
            return None
        at = bisect_right(blocks, index, key=by_first) - 1
        if at < 0 or blocks[at].stop <= index:
            return None
        self._used.move_to_end(blocks[at])
        return blocks[at]

    def fetch(self, pages: Pages, page: Page, index: int, done: Done) -> None:
        """Have a block read. ``done`` is called later, with None for what is unreadable."""
        asking = self._asking.get(page)
        if asking is not None:
            asking.append((index, done))
            return
        self._asking[page] = [(index, done)]
        self._read(pages, page, index)

    def is_reading(self, page: Page) -> bool:
        """Whether something of a page is on its way."""
        return page in self._asking

    def _read(self, pages: Pages, page: Page, index: int) -> None:
        self.blocks_read += 1
        pages.fetch(page, index, lambda block: self._on_block(pages, page, index, block))

    def _on_block(self, pages: Pages, page: Page, index: int, block: Block | None) -> None:
        asking = self._asking.pop(page)
        if block is None:
            self._lost(pages)
        else:
            self._insert(pages, block)
        for at, done in asking:
            if at == index or (block is not None and block.first <= at < block.stop):
                done(block)
            elif (other := self.get(page, at)) is not None:
                done(other)
            else:
                self.fetch(pages, page, at, done)

    def _insert(self, pages: Pages, block: Block) -> None:
        settings = pages.address.settings
        limit = settings.page_max_cache_size * settings.page_size_bytes
        if pages.address.pages is not pages:
            return  # it was left while the block was read
        if block.size > limit or not self._free_memory(block.size):
            return
        while self._of_address.get(pages, 0) + block.size > limit:
            self._evict(next(other for other, whose in self._used.items() if whose is pages))
        blocks = self._of_page.setdefault(block.page, [])
        for other in [other for other in blocks if block.first <= other.first < block.stop]:
            self._evict(other)  # of the page's end, which has grown since
        insort(self._of_page.setdefault(block.page, []), block, key=by_first)
        self._used[block] = pages
        self._of_address[pages] = self._of_address.get(pages, 0) + block.size
        self._budget.blocks += block.size

    def _evict(self, block: Block) -> None:
        pages = self._used.pop(block)
        blocks = self._of_page[block.page]
        blocks.remove(block)
        if not blocks:
            del self._of_page[block.page]
        self._of_address[pages] -= block.size
        self._budget.blocks -= block.size

    def shrink(self, size: int) -> None:
        """Give up blocks of together ``size`` bytes or more."""
        end = self._budget.blocks - size
        while self._used and self._budget.blocks > end:
            self._evict(next(iter(self._used)))

    def forget(self, pages: Pages) -> None:
        """An address pages no more."""
        for block in [block for block, whose in self._used.items() if whose is pages]:
            self._evict(block)
        self._of_address.pop(pages, None)


class HeadCache:
    """The areas that have something in memory and nobody to take it, those that were noted last at the end."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._areas: OrderedDict[TargetArea, None] = OrderedDict()

    def add(self, area: TargetArea) -> None:
        """Nobody takes messages from an area."""
        self._areas[area] = None

    def forget(self, area: TargetArea) -> None:
        """An area is closed."""
        self._areas.pop(area, None)

    def shrink(self, size: int) -> None:
        """Send messages of together ``size`` bytes back to disk, or as many as there are."""
        end = self._budget.messages - size
        for area in list(self._areas):
            if self._budget.messages <= end:
                return
            if not area.active:
                area.unload_until(lambda: self._budget.messages <= end)
            if self._budget.messages > end:
                del self._areas[area]  # it comes again when it has something again

    @property
    def bytes(self) -> int:
        """Bytes of messages that could be given up."""
        return sum(area.ready_size for area in self._areas if not area.active)
