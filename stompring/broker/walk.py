"""A walk over a queue that is partly on disk, for those who look at it or remove something.

What is on disk has to be read, so a walk makes pauses: it gives a `Wait` where its walker has to wait for a block.
The queue may change meanwhile. Within each priority the walk goes up by message number, so that nothing is shown
twice, wherever it is by then; what was sent after the beginning is not shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from .paging import TIMED, Block, Cursor, Page, Position, waiting_from
from .reference import PENDING, SCHEDULED, Reference

if TYPE_CHECKING:
    from .area import Area
    from .queue import Queue

by_sequence = attrgetter("sequence")


class Wait:
    """A block is being read. ``block`` is None where it turned out to be unreadable."""

    __slots__ = ("_call", "block", "over")

    def __init__(self, area: Area, cursor: Cursor, page: Page, index: int) -> None:
        self.block: Block | None = None
        self.over = False
        self._call: Callable[[], object] | None = None
        area.fetch(cursor, page, index, self._came)

    def _came(self, block: Block | None) -> None:
        self.block, self.over = block, True
        if self._call is not None:
            self._call()

    def then(self, call: Callable[[], object]) -> None:
        """Call once the walk can go on; at once where it can already."""
        self._call = call
        if self.over:
            call()


class OnDisk(Reference):
    """A message that is on disk only, looked at as if it were a reference. It is in no list and counts nowhere."""

    __slots__ = ("cursor",)

    def __init__(self, queue: Queue, cursor: Cursor, block: Block, index: int) -> None:
        message = block.message(index)
        super().__init__(message, queue, message.number, PENDING)
        self.cursor = cursor
        self.place = (block.page, index)
        self.deliveries, self.attempts = cursor.counts(block.page, index)
        if cursor.states(block.page, index, index + 1)[0] == TIMED:
            self.state = SCHEDULED
            self.due = cursor.due(block, index)

    def load(self) -> Reference | None:
        """The reference itself, out of all lists; None where it is not on disk any more."""
        assert self.place is not None
        page, index = self.place
        area = self.queue.area
        if area is None or self.cursor not in area.cursors or self.cursor.pages.page(page.number) is not page:
            return None
        state = self.cursor.states(page, index, index + 1)[0]
        if not (0 < state <= 10 or state == TIMED):
            return None
        return area.take_out(self.cursor, page, index, self.message)


Walk = Iterator[Reference | Wait]


def walk_pending(queue: Queue) -> Walk:
    """What is pending, in memory and on disk, in the order of delivery."""
    until = queue.broker.next_message_number()
    return (found for level in range(9, -1, -1) for found in _walk_level(queue, level, until))


def _walk_level(queue: Queue, level: int, until: int) -> Walk:
    blocks: dict[Cursor, Block] = {}
    places: dict[Cursor, Position] = {}
    seen: int | None = None
    version: int | None = -1
    memory: deque[Reference] = deque()
    while True:
        area = queue.area
        now = None if area is None else area.version
        if now != version:
            version, memory = now, deque(_in_memory(queue, level, seen, until))
        nearest, number = None, until
        for cursor in () if area is None else area.cursors:
            position = waiting_from(cursor, level, places.get(cursor))
            if position is None:
                continue
            page, index = position
            block = blocks.get(cursor)
            if block is None or block.page is not page or not block.first <= index < block.stop:
                assert area is not None
                block = area.block(page, index)
                if block is None:
                    wait = Wait(area, cursor, page, index)
                    yield wait
                    if wait.block is not None:
                        blocks[cursor] = wait.block
                    break
                blocks[cursor] = block
            if block.number_of(index) < number:
                nearest, number = (cursor, block, index), block.number_of(index)
        else:
            if memory and (nearest is None or memory[0].sequence < number):
                ref = memory.popleft()
                seen = ref.sequence
                if ref.state == PENDING:
                    yield ref
            elif nearest is not None:
                cursor, block, index = nearest
                places[cursor] = (block.page, index + 1)
                seen = number
                yield OnDisk(queue, cursor, block, index)
            else:
                return


def _in_memory(queue: Queue, level: int, seen: int | None, until: int) -> list[Reference]:
    """What is pending in memory with a priority, after the sequence that was seen last, in order."""
    held = [consumer.held for consumer in queue.consumers if consumer.held is not None]
    found = {
        ref
        for pending in (queue.pending, *held)
        for ref in pending.levels[level] or ()
        if ref.state == PENDING and ref.message.number < until and (seen is None or ref.sequence > seen)
    }
    return sorted(found, key=by_sequence)


def walk_timed(queue: Queue) -> Walk:
    """What is on disk for its time, in the order it was sent within each address."""
    area = queue.area
    for cursor in [] if area is None else list(area.cursors):
        for page in list(cursor.pages.in_order()):
            block: Block | None = None
            for index in cursor.timed_of(page):
                if block is None or not block.first <= index < block.stop:
                    block = yield from _block(queue, cursor, page, index)
                if block is not None and cursor.states(page, index, index + 1)[0] == TIMED:
                    yield OnDisk(queue, cursor, block, index)


def _block(queue: Queue, cursor: Cursor, page: Page, index: int) -> Generator[Wait, None, Block | None]:
    area = queue.area
    if area is None or cursor not in area.cursors:
        return None
    block = area.block(page, index)
    if block is None:
        wait = Wait(area, cursor, page, index)
        yield wait
        block = wait.block
    return block


def seek(queue: Queue, number: int) -> Generator[Wait, None, OnDisk | None]:
    """The message of that number, where it is on disk."""
    area = queue.area
    for cursor in [] if area is None else list(area.cursors):
        pages = cursor.pages.in_order()
        at = bisect_right(pages, number, key=_first_number) - 1
        if at < 0:
            continue
        page = pages[at]
        low, high = 0, page.count  # where it must be, if it is here
        while low < high:
            block = yield from _block(queue, cursor, page, (low + high) // 2)
            if block is None:
                break
            if number < block.number_of(block.first):
                high = block.first
            elif number > block.number_of(block.stop - 1):
                low = block.stop
            else:
                index = bisect_right(range(block.stop), number, block.first, key=block.number_of) - 1
                state = cursor.states(page, index, index + 1)[0]
                if block.number_of(index) == number and (0 < state <= 10 or state == TIMED):
                    return OnDisk(queue, cursor, block, index)
                break
    return None


def _first_number(page: Page) -> int:
    return page.first_number
