"""The paged queues of a broker: their memory budget, the caches within it, and the loader that fills them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker import page_mode
from stompring.broker.last_value import LastValueQueue
from stompring.broker.paging import Block, Cursor, Page, Pages, Position

from .budget import MemoryBudget
from .caches import HeadCache, PendingCache
from .due import PageTimes
from .last_value_area import LastValueArea
from .paged_queue import TargetArea
from .prefetch import ActiveQueues, Loader

if TYPE_CHECKING:
    from stompring.broker.broker import Broker
    from stompring.broker.queue import Queue

#: Fraction of the budget (one part in so many) that is freed beyond what is needed.
EXTRA_FREED = 16

#: Milliseconds before memory is searched again after a search has found none.
RETRY_AFTER = 20

#: Parts of the budget that queues without consumers may fill, all together and one alone.
IDLE, ONE_IDLE = 2, 8

#: Part of the budget up to which the head of a queue is read before anybody asks for it.
AHEAD = 4


class TargetAreas:
    """All target areas and what they share (`PagedQueues`). Gauges are plain attributes and properties."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.budget = MemoryBudget(broker.configuration.dispatch_memory)
        self.active_queues = ActiveQueues(broker)
        self.loader = Loader(broker.clock, self.active_queues.count)
        self.cache = PendingCache(self.budget, self.free_memory, self._lost)
        self.head_cache = HeadCache(self.budget)
        self.areas: set[TargetArea] = set()
        self._times: dict[Pages, PageTimes] = {}
        self._full_until = 0
        broker.areas = self

    # ---- PagedQueues, for the broker

    def open(self, queue: Queue) -> TargetArea:
        area = LastValueArea(queue, self) if isinstance(queue, LastValueQueue) else TargetArea(queue, self)
        self.areas.add(area)
        queue.attach_pages(area)
        return area

    def cursor(self, queue: Queue, pages: Pages) -> Cursor:
        cursor = pages.cursor(queue)
        area = queue.paged if isinstance(queue.paged, TargetArea) else self.open(queue)
        if cursor not in area.cursors:
            area.open(cursor)
        return cursor

    def paged(self, pages: Pages, position: Position, expires: int, due: int) -> None:
        self._times_of(pages).paged(position, expires, due)

    def adopt(self, pages: Pages) -> None:
        for queue in list(pages.cursors):
            cursor = self.cursor(queue, pages)
            if isinstance(queue.paged, LastValueArea):
                queue.paged.rebuild(cursor)
        self._times_of(pages).adopt()
        for queue in list(pages.cursors):
            if queue.paged is not None:
                queue.paged.demand()

    def closed(self, pages: Pages) -> None:
        times = self._times.pop(pages, None)
        if times is not None:
            times.stop()
        for queue in list(pages.cursors):
            if queue.paged is not None:
                queue.paged.forget(pages.address)
        self.cache.forget(pages)

    def stop(self) -> None:
        self.loader.stop()
        for times in self._times.values():
            times.stop()

    # ---- for target areas

    def forget(self, area: TargetArea) -> None:
        """An area is closed."""
        self.areas.discard(area)
        self.head_cache.forget(area)

    def idle(self, area: TargetArea) -> None:
        """An area without consumers has messages in memory, which may be unloaded."""
        self.head_cache.add(area)
        if self.budget.used > self.budget.limit:
            self._full_until = 0
            self.free_memory(0)

    def free_memory(self, size: int) -> bool:
        """Make the caches release memory; returns whether ``size`` more bytes fit into the budget."""
        budget = self.budget
        if budget.used + size <= budget.limit:
            return True
        now = self._broker.clock.steady.now
        if now < self._full_until:
            return False
        excess = budget.used + size - budget.limit + budget.limit // EXTRA_FREED
        used = budget.used
        self.head_cache.shrink(excess)
        self.cache.shrink(max(0, excess - (used - budget.used)))
        if budget.used + size <= budget.limit:
            return True
        self._full_until = now + RETRY_AFTER
        return False

    def within_budget(self) -> bool:
        """Whether memory use is within the budget."""
        return self.budget.used <= self.budget.limit

    def idle_capacity(self, size: int) -> bool:
        """Whether a queue without consumers may keep messages of ``size`` bytes in memory that were just written."""
        budget = self.budget
        return budget.used <= budget.limit // IDLE and size <= budget.limit // ONE_IDLE

    def head_capacity(self, size: int) -> bool:
        """Whether a queue without consumers that has ``size`` bytes in memory may read more of its head."""
        budget = self.budget
        return budget.used <= budget.limit // AHEAD and size < budget.limit // ONE_IDLE

    @property
    def has_spare_memory(self) -> bool:
        """Whether there is memory to read ahead into."""
        return self.budget.used * 2 <= self.budget.limit

    def read_ahead(self, pages: Pages, page: Page, index: int) -> None:
        """Have a block in the pending cache before it is asked for."""
        if not self.cache.is_reading(page):
            self.cache.fetch(pages, page, index, _ignore)

    def _times_of(self, pages: Pages) -> PageTimes:
        times = self._times.get(pages)
        if times is None:
            times = self._times[pages] = PageTimes(self, pages, self._broker.clock)
        return times

    def _lost(self, pages: Pages) -> None:
        """Something in the pages of an address was unreadable, and is settled."""
        for queue in list(pages.cursors):
            area = queue.paged
            if isinstance(area, TargetArea):
                area.version += 1
                self.loader.request(area)
        self._broker.clock.soon(lambda: self._leave_if_empty(pages))

    def _leave_if_empty(self, pages: Pages) -> None:
        if pages.address.pages is pages:
            page_mode.leave_if_empty(pages.address)

    # ---- gauges

    @property
    def pending_cache_bytes(self) -> int:
        """Bytes of blocks of pages in memory."""
        return self.budget.blocks

    @property
    def head_cache_bytes(self) -> int:
        """Messages in memory of queues that nobody takes from."""
        return self.head_cache.bytes

    @property
    def direct_entries(self) -> int:
        """Messages from pages that are in memory and not in delivery."""
        return sum(area.ready_messages for area in self.areas)

    @property
    def reference_entries(self) -> int:
        """Positions on disk that are known to be wanted by a selector."""
        return sum(one.references for area in self.areas for one in area.lists.values())

    @property
    def watermark_lag(self) -> int:
        """Messages on disk of queues that have consumers."""
        return sum(area.waiting for area in self.areas if area.queue.consumers)

    @property
    def blocks_read(self) -> int:
        """Blocks read from pages since the start."""
        return self.cache.blocks_read


def _ignore(block: Block | None) -> None:
    """It is in the cache now."""
