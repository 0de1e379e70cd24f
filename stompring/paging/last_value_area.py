"""The target area of a last-value queue: a paged message replaces another, and a start rebuilds the queue's index.

The index is not stored. After a start every message of the queue that waits in a page is read once, in slices, before
the queue delivers its first message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stompring.broker.last_value import LastValueQueue
from stompring.broker.message import Message
from stompring.broker.paging import Block, Cursor, Page, Position
from stompring.broker.reference import Reference
from stompring.broker.storage import Reason

from .paged_queue import TargetArea

if TYPE_CHECKING:
    from stompring.broker.address import Address

    from .paged_queues import TargetAreas

log = logging.getLogger(__name__)

#: Messages evicted unread before the index is searched for their keys, at least.
MOST_EVICTED = 1000

#: Positions of a block that are looked at between two checks of the time.
BATCH = 32


class LastValueArea(TargetArea):
    """See `LastValueQueue`."""

    def __init__(self, queue: LastValueQueue, areas: TargetAreas) -> None:
        super().__init__(queue, areas)
        self.last_values = queue
        self._evicted = 0  # whose keys may still be in the index
        self._rebuild: IndexRebuild | None = None

    def rebuild(self, cursor: Cursor) -> None:
        """Pages were found at the start: deliver nothing until all messages in them are in the index."""
        if self._rebuild is None:
            self._rebuild = IndexRebuild(self)
            self.queue.dispatcher.suspend()
            self.areas.loader.request(self._rebuild)
        self._rebuild.add(cursor)

    def rebuilt(self) -> None:
        """The index is complete."""
        if self._rebuild is not None:
            self._rebuild = None
            self.queue.dispatcher.resume()
            self.demand()

    # ---- messages enter, and leave unread

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        self.last_values.become_last_on_disk(cursor.pages, message, position)
        super().on_paged(cursor, message, position)

    def unload(self, ref: Reference) -> None:
        # what fell due and finds no memory goes back as a pending message
        if self.last_values.is_last(ref) or self.last_values.fall_due(ref):
            super().unload(ref)

    def evict(self, position: Position) -> None:
        super().evict(position)
        self._evicted += 1
        if self._evicted > max(MOST_EVICTED, self.last_values.keys // 2):
            self._evicted = 0
            self.last_values.forget_settled()

    def purge(self, reason: Reason) -> Iterator[int]:
        yield from super().purge(reason)
        self.last_values.forget_settled()

    def forget(self, address: Address) -> None:
        cursor = self._by_address.get(address)
        if cursor is not None:
            self.last_values.forget_pages(cursor.pages)
        super().forget(address)

    # ---- nothing is loaded before the index is complete

    def demand(self) -> None:
        if self._rebuild is None:
            super().demand()

    def work(self, in_time: Callable[[], bool]) -> None:
        if self._rebuild is None:
            super().work(in_time)

    def _end(self) -> None:
        super()._end()
        if self._rebuild is not None:
            self._rebuild.stop()


class IndexRebuild:
    """Reads what waits in the pages of a queue, in slices (`Work`)."""

    def __init__(self, area: LastValueArea) -> None:
        self._area = area
        self._cursors: list[Cursor] = []
        self._steps: Iterator[None] | None = None
        self._block: Block | None = None
        self._reading = False
        self._stopped = False
        self._begun = area.queue.broker.clock.steady.now
        self.requested = False

    def add(self, cursor: Cursor) -> None:
        """One more address has pages with messages of the queue."""
        self._cursors.append(cursor)

    def stop(self) -> None:
        """The pages are empty, or the queue is deleted."""
        self._stopped = True
        self._area.rebuilt()

    def work(self, in_time: Callable[[], bool]) -> None:
        """Read on, until time is up or a block has to be read from disk."""
        if self._steps is None:
            self._steps = self._read_all()
        for _ in self._steps:
            if self._stopped or self._reading:
                return
            if not in_time():
                self._area.areas.loader.request(self)
                return
        if not self._stopped:
            self._finish()

    def _read_all(self) -> Iterator[None]:
        queue = self._area.last_values
        # with one address the order of positions is that of the messages
        numbers: dict[int, int] | None = {} if len(self._cursors) > 1 else None
        done = 0
        for cursor in self._cursors:
            for page in list(cursor.pages.in_order()):
                for index in cursor.waiting_of(page):
                    block = self._block
                    if block is None or block.page is not page or not block.first <= index < block.stop:
                        self._read(cursor, page, index)
                        while self._reading:
                            yield
                        block = self._block
                    if block is not None and cursor.is_waiting(page, index):
                        queue.find_on_disk(cursor, page, index, block.message(index), numbers)
                    done += 1
                    if done % BATCH == 0:
                        yield

    def _read(self, cursor: Cursor, page: Page, index: int) -> None:
        area = self._area
        self._block = area.block(page, index)
        if self._block is None:
            self._reading = True
            area.fetch(cursor, page, index, self._on_block)
            return
        following = self._block.stop
        if following < page.count and area.block(page, following) is None and area.areas.has_spare_memory:
            area.areas.read_ahead(cursor.pages, page, following)

    def _on_block(self, block: Block | None) -> None:
        self._block, self._reading = block, False
        if not self._stopped:
            self._area.areas.loader.request(self)

    def _finish(self) -> None:
        queue = self._area.last_values
        took = queue.broker.clock.steady.now - self._begun
        log.info(
            "last-value queue %s: index of %d keys rebuilt from pages in %d ms",
            queue.name,
            queue.keys,
            took,
            extra={"queue": queue.name, "address": queue.address.name},
        )
        self._area.rebuilt()
