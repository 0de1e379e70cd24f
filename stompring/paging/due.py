"""Messages on disk whose time comes: those that expire, and scheduled ones that fall due.

Each page has one number in memory, the soonest of its times. When it comes, the page is read once and all that is
due in it is handed over.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompring.broker.clock import Clock, Timer
from stompring.broker.paging import TIMED, Block, Cursor, Page, Pages, Position
from stompring.broker.queue import DueBatch

from .target_list import key_of

if TYPE_CHECKING:
    from .paged_queue import TargetArea
    from .paged_queues import TargetAreas

    Due = dict[TargetArea, tuple[Cursor, array[int]]]

#: Times further ahead than this (milliseconds) are not listed.
HORIZON = 300_000

#: Milliseconds between two looks at the times of one address, when many follow each other.
PAUSE = 10


class TimesOfPage:
    """The times of one page up to some moment, and the soonest after it."""

    __slots__ = ("_base", "_times", "at", "later", "next_index", "until", "whole")

    def __init__(self, now: int) -> None:
        self._base = now
        self._times = array("Q")  # milliseconds from the base << 32 | index, ascending once it is whole
        self.until = now + HORIZON
        self.later = 0
        self.next_index = 0  # up to which the page was read
        self.whole = False
        self.at = 0

    def add(self, when: int, index: int) -> None:
        """A position's time."""
        if when > self.until:
            self.later = min(self.later or when, when)
            return
        entry = max(0, when - self._base) << 32 | index
        if self.whole:
            insort(self._times, entry, self.at)
        else:
            self._times.append(entry)

    def complete(self) -> None:
        """The whole page was read."""
        self._times = array("Q", sorted(self._times))
        self.whole = True

    @property
    def soonest(self) -> int:
        """The next time, 0 where there is none. If it is not listed here the page has to be read again."""
        return self._base + (self._times[self.at] >> 32) if self.pending_times else self.later

    @property
    def pending_times(self) -> bool:
        """Whether a listed time is left."""
        return self.at < len(self._times)

    @property
    def index(self) -> int:
        """The position whose time is next."""
        return self._times[self.at] & 0xFFFFFFFF


class PageTimes:
    """The timer of one address that pages."""

    def __init__(self, areas: TargetAreas, pages: Pages, clock: Clock) -> None:
        self._areas = areas
        self._pages = pages
        self._clock = clock
        self.requested = False  # see `Work`
        self._soonest: dict[Page, int] = {}
        self._times_of_page: dict[Page, TimesOfPage] = {}
        self._last_blocks: Block | None = None
        self._fetching = False
        self._timer: Timer | None = None
        self._timer_due = 0
        self._sweep = 0  # up to when times are being dealt with; 0 while none are
        self._batches: dict[TargetArea, DueBatch] = {}  # what falls due in this sweep
        self._stopped = False

    def paged(self, position: Position, expires: int, due: int) -> None:
        """A message with an expiry or a due time is in a page."""
        page, index = position
        times = self._times_of_page.get(page)
        for when in (expires, due):
            if not when:
                continue
            if times is not None and index < (page.count if times.whole else times.next_index):
                times.add(when, index)
            soonest = self._soonest.get(page)
            if soonest is None or when < soonest:
                self._soonest[page] = when
                self._arm(when)

    def adopt(self) -> None:
        """The pages were found at the start."""
        for page in self._pages.in_order():
            times = [when for when in (page.soonest_expiry, page.soonest_due) if when]
            if times:
                self._soonest[page] = min(times)
        self._arm_soonest()

    def stop(self) -> None:
        """The address pages no more."""
        self._stopped = True
        self._cancel()

    # ---- the timer

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _arm(self, when: int) -> None:
        if (
            self._stopped
            or self.requested
            or self._fetching
            or (self._timer is not None and self._timer_due <= when)
        ):
            return
        self._cancel()
        self._timer_due = when
        self._timer = self._clock.call_at(when, self._on_timer)

    def _arm_soonest(self) -> None:
        if self._soonest:
            self._arm(min(self._soonest.values()))

    def _on_timer(self) -> None:
        self._timer = None
        self._areas.loader.request(self)

    # ---- what has to happen

    def work(self, in_time: Callable[[], bool]) -> None:
        """See `Work.work`: what is over expires, what is due falls due; both in the order of their times."""
        if not self._sweep:
            self._sweep, self._batches = self._clock.now, {}
        due: Due = {}
        unfinished = True
        while unfinished and in_time() and not self._stopped and not self._fetching:
            unfinished = self._sweep_on(in_time, due)
        for area, (cursor, keys) in due.items():
            if not area.closed:
                batch = self._batches.get(area)
                if batch is None:
                    batch = self._batches[area] = area.queue.due_batch()
                area.due_on_disk.add(cursor, keys, batch)
                self._areas.loader.request(area)
        if not self._stopped and not self._fetching:
            self._continue(unfinished)

    def _continue(self, unfinished: bool) -> None:
        if unfinished:
            self._areas.loader.request(self)
            return
        self._sweep, self._batches = 0, {}
        if self._soonest:
            soonest, now = min(self._soonest.values()), self._clock.now
            self._arm(soonest if soonest > now else now + PAUSE)

    def _sweep_on(self, in_time: Callable[[], bool], due: Due) -> bool:
        """Deal with the page whose time is first, while it is; False when no time up to that of the sweep is left."""
        soonest = self._soonest
        page = min(soonest, key=lambda one: (soonest[one], one.number), default=None)
        if page is None or soonest[page] > self._sweep:
            return False
        if self._pages.page(page.number) is not page:
            self._forget(page)
            return True
        others = [when for one, when in soonest.items() if one is not page]
        until = min(self._sweep, min(others, default=self._sweep))
        while soonest.get(page, until + 1) <= until and self._step(page, self._sweep, due) and in_time():
            if soonest.get(page) == until:
                break  # the page with the smaller number comes first
        return True

    def _forget(self, page: Page) -> None:
        self._soonest.pop(page, None)
        self._times_of_page.pop(page, None)

    def _step(self, page: Page, now: int, due: Due) -> bool:
        """Read on in a page whose times are not known, or deal with one position; False while a block is read."""
        times = self._times_of_page.get(page)
        if times is None or (times.whole and not times.pending_times):
            times = self._times_of_page[page] = TimesOfPage(now)
        if not times.whole:
            return self._read_next(page, times)
        if times.pending_times and times.soonest <= now:
            block = self._block(page, times.index)
            if block is None:
                return False
            index = times.index
            times.at += 1
            self._handle_due(page, index, block, now, due)
        self._complete_page(page, times)
        return True

    def _complete_page(self, page: Page, times: TimesOfPage) -> None:
        if times.soonest:
            self._soonest[page] = times.soonest
        else:
            self._forget(page)

    def _read_next(self, page: Page, times: TimesOfPage) -> bool:
        if times.next_index < page.count:
            block = self._block(page, times.next_index)
            if block is None:
                return False
            cursors = list(self._pages.cursors.values())
            for index in range(times.next_index, block.stop):
                expires = block.expires(index)
                for cursor in cursors:
                    state = cursor.states(page, index, index + 1)[0]
                    if expires and _on_disk(state):
                        times.add(expires, index)
                        expires = 0  # once for all queues
                    if state == TIMED:
                        times.add(cursor.due(block, index), index)
            times.next_index = block.stop
        if times.next_index >= page.count:
            times.complete()
            self._complete_page(page, times)
        return True

    def _handle_due(self, page: Page, index: int, block: Block, now: int, due: Due) -> None:
        expires = block.expires(index)
        for queue, cursor in list(self._pages.cursors.items()):
            area: TargetArea | None = queue.paged  # type: ignore[assignment]
            state = cursor.states(page, index, index + 1)[0]
            if area is None or not _on_disk(state):
                continue
            if expires and expires <= now:
                area.expire(cursor, page, index, block.message(index))
            elif state == TIMED and cursor.due(block, index) <= now:
                due.setdefault(area, (cursor, array("Q")))[1].append(key_of(page, index))

    def _block(self, page: Page, index: int) -> Block | None:
        block = self._last_blocks
        if block is not None and block.page is page and block.first <= index < block.stop:
            return block
        block = self._last_blocks = self._areas.cache.get(page, index)
        if block is None:
            self._fetching = True
            self._areas.cache.fetch(self._pages, page, index, lambda came: self._on_block(page, came))
        return block

    def _on_block(self, page: Page, block: Block | None) -> None:
        self._fetching = False
        self._last_blocks = block
        if block is None:
            self._forget(page)  # nothing behind what is unreadable is there any more
        if not self._stopped:
            self._areas.loader.request(self)


def _on_disk(state: int) -> bool:
    return 0 < state <= 10 or state == TIMED


class DueMessages:
    """Positions of messages that fell due, in the order of their times; more of the same batch may follow."""

    __slots__ = ("at", "batch", "cursor", "keys")

    def __init__(self, cursor: Cursor, keys: array[int], batch: DueBatch) -> None:
        self.cursor = cursor
        self.keys = keys
        self.batch = batch
        self.at = 0


class DueOnDisk:
    """What was found, in the order it fell due."""

    def __init__(self) -> None:
        self._found: deque[DueMessages] = deque()

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, cursor: Cursor, keys: array[int], batch: DueBatch) -> None:
        """The time of some has come."""
        self._found.append(DueMessages(cursor, keys, batch))

    def next(self) -> tuple[Cursor, Position, DueBatch] | None:
        """The first that still waits for its time, and with what it fell due."""
        while self._found:
            found = self._found[0]
            while found.at < len(found.keys):
                key = found.keys[found.at]
                page = found.cursor.pages.page(key >> 32)
                if page is not None and still_timed(found.cursor, page, key & 0xFFFFFFFF):
                    return found.cursor, (page, key & 0xFFFFFFFF), found.batch
                found.at += 1
            self._found.popleft()
        return None

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        self._found = deque(found for found in self._found if found.cursor is not cursor)


def still_timed(cursor: Cursor, page: Page, index: int) -> bool:
    """Whether a position waits on disk for its time."""
    return cursor.states(page, index, index + 1) == bytes((TIMED,))
