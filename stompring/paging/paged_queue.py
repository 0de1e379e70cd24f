"""The target area of a paged queue: which of its messages are in memory, for whom, and when.

Messages on disk whose time comes: those that expire, and scheduled ones that fall due.

Each page has one number in memory, the soonest of its times. When it comes, the page is read once and all that is
due in it is handed over.

The target area of a paged queue: which of its messages are in memory, for whom, and what each consumer may take.

The target area of a last-value queue: a paged message replaces another, and a start rebuilds the queue's index.

The index is not stored. After a start every message of the queue that waits in a page is read once, in slices, before
the queue delivers its first message.

The paged queues of a broker: their memory budget, the caches within it, and the loader that fills them.

When messages of a paged queue are read into memory, and how many: the eager loader's part for one queue.

A list with ready consumers is filled to between half of `WINDOW` and all of it, within ``prefetch-page-messages`` and
the memory budget.
"""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stompring.broker.address import leave_if_empty
from stompring.broker.clock import Clock, Seconds, Timer, cancel
from stompring.broker.last_value import LastValueQueue
from stompring.broker.lifetime import is_expired
from stompring.broker.message import AddressBase, Message, Traits
from stompring.broker.ports import TIMED, Block, Cursor, Done, Pages, Reason, on_disk, state_at
from stompring.broker.queue import Consumer, DueBatch, Queue, as_queue
from stompring.broker.reference import PENDING, Page, Position, Reference

from .target_list import (
    LEVELS,
    SLACK,
    InTime,
    MemoryBudget,
    PendingCache,
    TargetList,
    Track,
    key_of,
    position_of,
    waiting_at,
)

if TYPE_CHECKING:
    from stompring.broker.broker import Broker

    Due = dict["TargetArea", tuple[Cursor, array[int]]]


#: Messages that a list has in memory at most.
WINDOW = 1000

#: Messages loaded for a list at a time although the limits leave it none.
MINIMUM = 16

#: Messages loaded between two checks of the limits.
FETCH_BATCH = 16


@dataclass
class DeliveredRun:
    """Positions from ``first`` to before ``stop``: delivered and acknowledged, and not settled yet."""

    _area: TargetArea
    _cursor: Cursor
    _page: Page
    first: int = -1
    stop: int = -1
    durable: bool = False

    def settle(self) -> None:
        """Settle what there is."""
        first, stop = self.first, self.stop
        if first < stop:
            self.first = stop
            self._area.acknowledged(self._cursor, self._page, first, stop, self.durable)


#: Milliseconds between two checks, each of which visits all queues.
CHECK_INTERVAL = 1000


class ActiveQueues:
    """Number of queues that keep up: messages arrived between two checks, and none is on disk."""

    def __init__(self, broker: Broker) -> None:
        self._checked_at = 0
        self._count = 0
        self._broker = broker
        self._added: dict[Queue, int] = {}  # `messages_added` of queues with consumers, at the last check

    def count(self) -> int:
        """As of the last check; 0 until there were two, one soon after the other."""
        now = self._broker.clock.steady.now
        passed = now - self._checked_at
        if passed >= CHECK_INTERVAL:
            before = self._added if passed < 3 * CHECK_INTERVAL else {}
            queues = self._broker.directory.queues.values()
            self._added = {queue: queue.messages_added for queue in queues if queue.consumers}
            self._count = sum(
                added != before.get(queue, added) and not (queue.paged is not None and queue.paged.waiting)
                for queue, added in self._added.items()
            )
            self._checked_at = now
        return self._count


#: Most and least seconds of work at a time, after which the reactor serves everybody else.
SLICE, SHORTEST_SLICE = 0.003, 0.0005

#: The same while no queue keeps up: somebody may come at any time.
ALONE_SLICE = 0.001

#: Seconds of a turn of the reactor in which others do so little that nobody waits for it.
SHORT_TURN = 0.0003

#: What work in the line takes beside a queue that keeps up, as a part of what that takes.
WEIGHT = 0.5


class Work(Protocol):
    """Something that can be done bit by bit."""

    requested: bool  # stands in the loader's line

    def work(self, in_time: InTime) -> None:
        """Do some of it, until it is not ``in_time`` any more; who has more to do says so with `Loader.want`."""


def no_work() -> int:
    """No queue keeps up."""
    return 0


class Loader:
    """A line of work; each gets its turn.

    ``others`` says how many queues keep up without it. While they take most of the reactor's time, each piece of work
    in the line takes half as much of it as each of them: who comes back to a long backlog does not slow down those who
    have none. The time is saved up until it is enough for `SHORTEST_SLICE`.
    """

    def __init__(
        self,
        clock: Clock,
        others: Callable[[], int] = no_work,
        now: Seconds = time.perf_counter,
    ) -> None:
        self._called = False
        self._since = 0.0  # when somebody else had the reactor
        self._end = 0.0
        self._credit = 0.0  # seconds that are saved up
        self.stopped = False
        self._clock = clock
        self._others = others
        self._now = now
        self._line: deque[Work] = deque()

    def request(self, work: Work) -> None:
        """Have something done soon."""
        if work.requested or self.stopped:
            return
        work.requested = True
        self._line.append(work)
        if not self._called:
            self._called = True
            self._since = self._now()
            self._credit = 0.0
            self._clock.soon(self._run)

    def _in_time(self) -> bool:
        return self._now() < self._end

    def _run(self) -> None:
        self._clock.refresh()
        now, others, most = self._now(), self._others(), ALONE_SLICE
        if others:
            taken = now - self._since
            self._credit += taken * WEIGHT * len(self._line) / others
            if self._credit < SHORTEST_SLICE and taken > SHORT_TURN:
                self._since = now
                self._clock.soon(self._run)
                return
            most = min(SLICE, max(SHORTEST_SLICE, self._credit))
        self._credit = 0.0
        self._end = now + most
        try:
            for _ in range(len(self._line)):
                work = self._line.popleft()
                work.requested = False
                work.work(self._in_time)
                if not self._in_time():
                    break
        finally:
            self._called = bool(self._line) and not self.stopped
            if self._called:
                self._since = self._now()
                self._clock.soon(self._run)

    def stop(self) -> None:
        """Do nothing more."""
        self.stopped = True
        self._line.clear()


#: Times further ahead than this (milliseconds) are not listed.
HORIZON = 300_000

#: Milliseconds between two looks at the times of one address, when many follow each other.
PAUSE = 10


class TimesOfPage:
    """The times of one page up to some moment, and the soonest after it."""

    def __init__(self, now: int) -> None:
        self.later = 0
        self.next_index = 0  # up to which the page was read
        self.whole = False
        self.at = 0
        self._base = now
        self._times = array("Q")  # milliseconds from the base << 32 | index, ascending once it is whole
        self.until = now + HORIZON

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
        self.requested = False  # see `Work`
        self._last_blocks: Block | None = None
        self._fetching = False
        self._timer: Timer | None = None
        self._timer_due = 0
        self._sweep = 0  # up to when times are being dealt with; 0 while none are
        self._stopped = False
        self._areas = areas
        self._pages = pages
        self._clock = clock
        self._soonest: dict[Page, int] = {}
        self._times_of_page: dict[Page, TimesOfPage] = {}
        self._batches: dict[TargetArea, DueBatch] = {}  # what falls due in this sweep

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
        if self._soonest:
            self._arm(min(self._soonest.values()))

    def stop(self) -> None:
        """The address pages no more."""
        self._stopped = True
        cancel(self._timer)

    # ---- the timer

    def _arm(self, when: int) -> None:
        if (
            self._stopped
            or self.requested
            or self._fetching
            or (self._timer is not None and self._timer_due <= when)
        ):
            return
        cancel(self._timer)
        self._timer_due = when
        self._timer = self._clock.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._areas.loader.request(self)

    # ---- what has to happen

    def work(self, in_time: InTime) -> None:
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
        if self._stopped or self._fetching:
            return
        if unfinished:
            self._areas.loader.request(self)
            return
        self._sweep, self._batches = 0, {}
        if self._soonest:
            soonest, now = min(self._soonest.values()), self._clock.now
            self._arm(soonest if soonest > now else now + PAUSE)

    def _sweep_on(self, in_time: InTime, due: Due) -> bool:
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
        while soonest.get(page, until + 1) <= until and self._step(page, due) and in_time():
            if soonest.get(page) == until:
                break  # the page with the smaller number comes first
        return True

    def _forget(self, page: Page) -> None:
        self._soonest.pop(page, None)
        self._times_of_page.pop(page, None)

    def _step(self, page: Page, due: Due) -> bool:
        """Read on in a page whose times are not known, or deal with one position; False while a block is read."""
        times = self._times_of_page.get(page)
        if times is None or (times.whole and not times.pending_times):
            times = self._times_of_page[page] = TimesOfPage(self._sweep)
        if not times.whole:
            return self._read_next(page, times)
        if times.pending_times and times.soonest <= self._sweep:
            block = self._block(page, times.index)
            if block is None:
                return False
            index = times.index
            times.at += 1
            self._handle_due(page, index, block, due)
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
                    state = state_at(cursor, page, index)
                    if expires and on_disk(state):
                        times.add(expires, index)
                        expires = 0  # once for all queues
                    if state == TIMED:
                        times.add(cursor.due(block, index), index)
            times.next_index = block.stop
        if times.next_index >= page.count:
            times.complete()
            self._complete_page(page, times)
        return True

    def _handle_due(self, page: Page, index: int, block: Block, due: Due) -> None:
        expires = block.expires(index)
        for queue, cursor in list(self._pages.cursors.items()):
            area: TargetArea | None = as_queue(queue).paged  # type: ignore[assignment]
            state = state_at(cursor, page, index)
            if area is None or not on_disk(state):
                continue
            if expires and expires <= self._sweep:
                area.expire(cursor, page, index, block.message(index))
            elif state == TIMED and cursor.due(block, index) <= self._sweep:
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


@dataclass
class DueMessages:
    """Positions of messages that fell due, in the order of their times; more of the same batch may follow."""

    cursor: Cursor
    keys: array[int]
    batch: DueBatch
    at: int = 0


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
                position = position_of(found.cursor, found.keys[found.at])
                if position is not None and state_at(found.cursor, *position) == TIMED:
                    return found.cursor, position, found.batch
                found.at += 1
            self._found.popleft()
        return None

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        self._found = deque(found for found in self._found if found.cursor is not cursor)


log = logging.getLogger(__name__)

#: Milliseconds between two log lines about a consumer that settles nothing.
LOG_INTERVAL = 60_000

#: Messages from pages that a consumer may always have unsettled, so that each consumer makes progress.
LEAST = 16


@dataclass(slots=True)
class ConsumerCredit:
    """Messages and bytes that one consumer has of what was read from pages."""

    messages: int = 0
    size: int = 0
    blocked: bool = False  # was refused more, and waits


class PageCredit:
    """References in delivery that came from pages.

    A consumer with ``max-read-page-messages`` or ``-bytes`` of them unsettled gets no more until it settles some.
    In Artemis all consumers of a queue have that limit together, so that one who settles nothing stops the others.
    While the memory budget is used up it is `LEAST` messages.
    """

    def __init__(self, queue: Queue, free_memory: Callable[[int], bool]) -> None:
        self._logged_at = 0
        self.size = 0  # bytes in delivery
        self.freed = False  # somebody who was refused more may have some now
        self._queue = queue
        self._free_memory = free_memory
        self._of: dict[Consumer, ConsumerCredit] = {}
        self._out: dict[Reference, ConsumerCredit] = {}

    def __len__(self) -> int:
        return len(self._out)

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """A message was handed over."""
        share = self._of.get(consumer)
        if share is None:
            share = self._of[consumer] = ConsumerCredit()
        size = ref.message.size
        share.messages += 1
        share.size += size
        self.size += size
        self._out[ref] = share

    def release(self, ref: Reference) -> None:
        """It was settled or given back, if it was in delivery at all."""
        share = self._out.pop(ref, None)
        if share is not None:
            size = ref.message.size
            share.messages -= 1
            share.size -= size
            self.size -= size
            if share.blocked:
                share.blocked = False
                self.freed = True

    def exhausted(self, consumer: Consumer) -> bool:
        """Whether a consumer must settle something first."""
        share = self._of.get(consumer)
        if share is None or not share.messages:
            return False
        settings = self._queue.address.settings
        limited = (
            0 <= settings.max_read_page_messages <= share.messages or 0 <= settings.read_bytes <= share.size
        )
        if not limited and (share.messages < LEAST or self._free_memory(0)):
            return False
        share.blocked = True
        if limited:
            self._log(share)
        return True

    def _log(self, share: ConsumerCredit) -> None:
        now = self._queue.broker.clock.steady.now
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            log.warning(
                "queue %s: a consumer has %d unacknowledged paged messages (%d bytes): no further delivery until it "
                "acknowledges some (max-read-page-messages, max-read-page-bytes)",
                self._queue.name,
                share.messages,
                share.size,
                extra={"queue": self._queue.name, "address": self._queue.address.name},
            )

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer has left; its unsettled messages are requeued later."""
        self._of.pop(consumer, None)


#: Messages of groups in the backlog of one owner; further ones are spilled.
HELD = 100


class SpilledMessages:
    """Positions of one priority in the pages of one address, ascending, each once, with their messages' numbers."""

    def __init__(self) -> None:
        self._keys = array("Q")
        self._numbers = array("Q")
        self._start = 0

    def add(self, key: int, number: int) -> None:
        """Add a position; nothing happens where it is known."""
        at = bisect_left(self._keys, key, self._start)
        if at == len(self._keys) or self._keys[at] != key:
            self._keys.insert(at, key)
            self._numbers.insert(at, number)

    def first(self, cursor: Cursor) -> tuple[int, Position] | None:
        """Number and position of the first message; those that are no longer on disk only are forgotten."""
        while self._start < len(self._keys):
            position = waiting_at(cursor, self._keys[self._start])
            if position is not None:
                return self._numbers[self._start], position
            self._start += 1
            if self._start > SLACK and self._start * 2 > len(self._keys):
                del self._keys[: self._start], self._numbers[: self._start]
                self._start = 0
        return None

    def waiting(self, cursor: Cursor) -> list[Position]:
        """The positions that are on disk only."""
        found = [waiting_at(cursor, key) for key in self._keys[self._start :]]
        return [position for position in found if position is not None]


class GroupSpill:
    """Positions that belong to one consumer, the owner of their groups. They are waiting on disk."""

    def __init__(self) -> None:
        #: by priority and cursor
        self._of: dict[Consumer, defaultdict[tuple[int, Cursor], SpilledMessages]] = {}

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._of

    def wants(self, owner: Consumer) -> bool:
        """Whether a message is to be parked: there are others already, or too many in memory."""
        return owner in self._of or (owner.group_backlog is not None and owner.group_backlog.size >= HELD)

    def add(self, owner: Consumer, cursor: Cursor, ref: Reference) -> None:
        """Park a message."""
        assert ref.position is not None
        kinds = self._of.setdefault(owner, defaultdict(SpilledMessages))
        kinds[ref.message.traits.priority, cursor].add(key_of(*ref.position), ref.message.number)

    def next(self, owner: Consumer) -> tuple[tuple[int, int], Cursor, Position] | None:
        """The first message that is parked for a consumer: its place in the queue's order, cursor and position."""
        first: tuple[tuple[int, int], Cursor, Position] | None = None
        for (level, cursor), parked in self._of.get(owner, {}).items():
            if first is not None and -level > first[0][0]:
                continue
            found = parked.first(cursor)
            if found is not None and (first is None or (-level, found[0]) < first[0]):
                first = (-level, found[0]), cursor, found[1]
        if first is None:
            self._of.pop(owner, None)
        return first

    def before(self, owner: Consumer, ref: Reference) -> bool:
        """Whether something that is parked for a consumer comes before a message in memory."""
        first = self.next(owner)
        return first is not None and first[0] < ref.order

    def release_spilled(self, owner: Consumer) -> list[tuple[Cursor, int, Page, int]]:
        """Nothing is parked for a consumer any more: cursor, priority and position of what was."""
        return [
            (cursor, level, page, index)
            for (level, cursor), parked in self._of.pop(owner, {}).items()
            for page, index in parked.waiting(cursor)
        ]

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        for owner, kinds in list(self._of.items()):
            for level in LEVELS:
                kinds.pop((level, cursor), None)
            if not kinds:
                del self._of[owner]


#: Selectors without consumers whose matches a queue remembers, so that a returning consumer needs no second scan.
REMEMBERED_SELECTORS = 16

#: Messages that cannot be unloaded and are skipped in the search for others.
MOST_SKIPPED = 1000


class TargetArea:
    """The messages of one paged queue in memory, by selector (`PagedQueue`)."""

    def __init__(self, queue: Queue, areas: TargetAreas) -> None:
        self.queue = queue
        self.areas = areas
        self.cursors: list[Cursor] = []
        self.requested = False  # see `Work`
        self.closed = False
        self.unloaded = False  # messages were unloaded, and no consumer has wanted any since
        self.version = 0  # goes up with every change of what is on disk
        self.messages = 0  # that came from pages and are in memory, in delivery too
        self.size = 0  # their bytes
        self.unfiltered = TargetList(None, areas.budget)
        self.unfiltered.pending = queue.dispatcher.pending
        self.lists: OrderedDict[object, TargetList] = OrderedDict()  # by selector, the last used last
        self.page_credit = PageCredit(queue, areas.free_memory)
        self.group_spill = GroupSpill()
        self.due_on_disk = DueOnDisk()
        self._by_address: dict[AddressBase, Cursor] = {}
        self._oldest: tuple[int, int] | None = None  # key and timestamp of what was on disk first
        self._reading_oldest = False
        self._returned = False  # something came back since the last demand

    # ---- cursors

    def open(self, cursor: Cursor) -> None:
        """The queue has something in the pages of one more address."""
        self.cursors.append(cursor)
        self._by_address[cursor.pages.address] = cursor
        self.version += 1

    def forget(self, address: AddressBase) -> None:
        cursor = self._by_address.pop(address, None)
        if cursor is None:
            return
        self.cursors.remove(cursor)
        for one in (self.unfiltered, *self.lists.values()):
            one.tracks.pop(cursor, None)
        self.group_spill.forget(cursor)
        self.due_on_disk.forget(cursor)
        self.version += 1
        if not self.cursors:
            self._end()
            self.queue.set_pages(None)

    def close(self) -> None:
        cursors, self.cursors = self.cursors, []
        self._by_address.clear()
        self._end()
        for cursor in cursors:
            cursor.pages.forget(self.queue)
            leave_if_empty(cursor.pages.address)

    def _end(self) -> None:
        self.closed = True
        for one in self.lists.values():
            one.forget_answers()
        self.areas.forget(self)

    @property
    def waiting(self) -> int:
        cursors = self.cursors
        if len(cursors) == 1:  # as good as always
            return cursors[0].waiting
        waiting = 0
        for cursor in cursors:
            waiting += cursor.waiting
        return waiting

    @property
    def timed(self) -> int:
        return sum(cursor.timed for cursor in self.cursors)

    @property
    def ready_messages(self) -> int:
        """Messages from pages in memory that are not in delivery."""
        return self.messages - len(self.page_credit)

    @property
    def ready_size(self) -> int:
        """Their bytes."""
        return self.size - self.page_credit.size

    @property
    def active(self) -> bool:
        """Whether there is anybody who would take messages now."""
        return self.queue.dispatcher.active

    def cursor_of(self, ref: Reference) -> Cursor | None:
        """The cursor of the address a message was sent to, None where that has paged nothing for this queue."""
        return self._by_address.get(ref.message.address)

    # ---- target lists

    def list_of(self, consumer: Consumer) -> TargetList:
        """The list that a consumer is served from."""
        source = consumer.source
        if source is self.queue.dispatcher.pending:
            return self.unfiltered
        key = consumer.matches_key
        found = self.lists.get(key)
        if found is None:
            found = self.lists[key] = TargetList(consumer.matches, self.areas.budget)
        found.pending = source
        return found

    def ready_lists(self) -> Iterator[TargetList]:
        """The lists of all consumers who may have more, each once."""
        seen: set[TargetList] = set()
        dispatcher = self.queue.dispatcher
        self.queue.broker.effort.steps += len(self.queue.ready)
        for consumer in list(self.queue.ready):
            if dispatcher.scanning and dispatcher.is_scanning(consumer):
                continue  # what is in memory may come first
            one = self.list_of(consumer)
            if one not in seen and not self.page_credit.exhausted(consumer):
                seen.add(one)
                yield one

    def may_deliver(self, ref: Reference, consumer: Consumer) -> bool:
        if ref.position is not None and self.page_credit.exhausted(consumer):
            return False
        if not self.waiting:
            return True
        cursor = self.cursor_of(ref)
        one = self.list_of(consumer)
        one.find_watermark(self.cursors, self.version)
        if not one.below_watermark(ref, cursor):
            return False
        return consumer not in self.group_spill or not self.group_spill.before(consumer, ref)

    def position_before(self, ref: Reference | None) -> Position | None:
        unfiltered = self.unfiltered
        unfiltered.find_watermark(self.cursors, self.version)
        if not unfiltered.firsts or (
            ref is not None and unfiltered.below_watermark(ref, self.cursor_of(ref))
        ):
            return None
        cursor, key = next(iter(unfiltered.firsts.items()))
        return position_of(cursor, key)

    # ---- loading

    def on_growth(self) -> None:
        self.version += 1
        if self.queue.ready:
            self.demand()

    def load_reference(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference:
        counts = cursor.take(page, index)
        self.version += 1
        self.messages += 1
        self.size += message.size
        return self.queue.load(message, (page, index), counts)

    def load(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference | None:
        """Load a message; None if it has expired."""
        ref = self.load_reference(cursor, page, index, message)
        if not message.expires:
            ref.state = PENDING
            return ref
        if is_expired(message, self.queue.broker.clock.now):
            self.queue.expire(ref)
            return None
        ref.state = PENDING
        self.queue.broker.expiry.watch(ref)
        return ref

    def expire(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """Expire a message on disk."""
        self.queue.expire(self.load_reference(cursor, page, index, message))

    def evict(self, position: Position) -> None:
        """Evict the message at a position, unread unless a policy is notified of evictions."""
        page, index = position
        queue = self.queue
        cursor = self._cursor_at(page)
        if queue.evicted is None:
            queue.messages_replaced += 1
            self.version += 1
            cursor.settle_waiting(page, index, Reason.REPLACED)
            return
        counts = cursor.take(page, index)  # it no longer counts, whether or not its block can be read
        self.version += 1

        def on_block(block: Block | None) -> None:
            if self.closed:
                return
            unreadable = Message(0, cursor.pages.address, Traits(b""), b"", 0)
            message = unreadable if block is None else block.message(index)
            ref = queue.load(message, position, counts)
            self.messages += 1
            self.size += message.size
            if block is None:
                queue.drop(ref, Reason.KILLED)
            else:
                queue.replace(ref)

        self._call_with_block(cursor, page, index, on_block)

    def replace(self, cursor: Cursor, position: Position) -> None:
        self.version += 1
        cursor.settle_waiting(*position, Reason.REPLACED)

    def deliver_now(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        ref = self.load_reference(cursor, page, index, message)
        self.queue.broker.expiry.watch(ref)
        self.queue.on_due([ref], self.queue.due_batch())

    # ---- unloading and settling

    def unload(self, ref: Reference) -> None:
        """Drop the reference of a pending message, which stays on disk."""
        cursor = self._unload(ref)
        assert ref.position is not None
        page, index = ref.position
        for one in (self.unfiltered, *self.lists.values()):
            one.on_returned(cursor, page, index, ref.message)

    def _unload(self, ref: Reference) -> Cursor:
        cursor, message = self.cursor_of(ref), ref.message
        assert cursor is not None and ref.position is not None
        self.queue.unload(ref)
        cursor.put_back(ref)
        self._subtract(ref)
        self.version += 1
        if message.expires:
            self.areas.paged(cursor.pages, ref.position, message.expires, 0)
        return cursor

    def unload_until(self, enough: Callable[[], bool]) -> None:
        """Unload the newest pending messages until ``enough``."""
        pending = self.queue.dispatcher.pending
        skipped: list[Reference] = []  # not on disk, or at the head because they fell due
        while not enough() and len(skipped) < MOST_SKIPPED:
            ref = pending.newest()
            if ref is None:
                break
            if ref.position is None or ref.sequence <= 0:
                skipped.append(ref)
            else:
                self.unloaded = True
                self.unload(ref)
        for ref in skipped:
            pending.restore(ref)

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        self.page_credit.on_delivered(ref, consumer)

    def on_requeued(self, ref: Reference) -> None:
        self.page_credit.release(ref)
        cursor = self.cursor_of(ref)
        if cursor is not None:
            cursor.returned(ref)
        self._returned = True
        self._continue()

    def settled(self, ref: Reference, reason: Reason) -> None:
        self.page_credit.release(ref)
        self._subtract(ref)
        cursor = self.cursor_of(ref)
        if cursor is None:
            return  # the queue is deleted
        cursor.settle(ref, reason)
        if not cursor.remaining:
            leave_if_empty(cursor.pages.address)
        self._continue()

    def acknowledged(self, cursor: Cursor, page: Page, first: int, stop: int, durable: bool) -> None:
        """Positions that no reference was made of were delivered and acknowledged."""
        cursor.acknowledge(page, first, stop, durable)
        self.version += 1
        if not cursor.remaining:
            leave_if_empty(cursor.pages.address)

    def _subtract(self, ref: Reference) -> None:
        self.messages -= 1
        self.size -= ref.message.size

    def _continue(self) -> None:
        if self.page_credit.freed and not self.closed:
            self.page_credit.freed = False
            self.areas.loader.request(self)

    def purge(self, reason: Reason) -> Iterator[int]:
        for cursor in list(self.cursors):
            for purged in cursor.purge(reason):
                self.version += 1
                yield purged
            leave_if_empty(cursor.pages.address)

    # ---- groups

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        cursor = self.cursor_of(ref)
        if cursor is None or ref.position is None or ref.sequence <= 0:
            return False
        if not self.group_spill.wants(owner) and (owner.group_backlog is None or self.areas.free_memory(0)):
            return False
        self._unload(ref)
        page, index = ref.position
        self.group_spill.add(owner, cursor, ref)
        track, level = self.unfiltered.track(cursor), ref.message.traits.priority
        if track.next_unscanned(level) == ref.position:  # unless a selector's scan is further
            track.skip(level, page, index)
        self.version += 1
        return True

    def release_spilled(self, consumer: Consumer) -> None:
        for cursor, level, page, index in self.group_spill.release_spilled(consumer):
            for one in (self.unfiltered, *self.lists.values()):
                one.track(cursor).rescan(level, page, index)
        self.version += 1
        if not self.areas.free_memory(0):
            self.unload_until(self.areas.within_budget)  # a backlog may be many messages
        self.demand()

    def on_consumer_removed(self, consumer: Consumer) -> None:
        self.page_credit.remove_consumer(consumer)
        key, targets = consumer.matches_key, self.queue.dispatcher.selector_lists
        if key in self.lists:
            self.lists.move_to_end(key)
        for other in [other for other in self.lists if other not in targets][:-REMEMBERED_SELECTORS]:
            self.lists.pop(other).forget_answers()

    # ---- reading

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        raise AssertionError("a derived class has it")

    def demand(self) -> None:
        raise AssertionError("a derived class has it")

    def work(self, in_time: InTime) -> None:
        """See `Work.work`."""
        raise AssertionError("a derived class has it")

    def block(self, page: Page, index: int) -> Block | None:
        return self.areas.cache.get(page, index)

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Done) -> None:
        self.areas.cache.fetch(cursor.pages, page, index, done)

    @property
    def oldest(self) -> int | None:
        """Reading its block may take a while: the next call has the result."""
        position = self.position_before(None)
        if position is None:
            return None
        key = key_of(*position)
        if self._oldest is None or self._oldest[0] != key:
            self._read_oldest(key, position)
        return None if self._oldest is None or self._oldest[0] != key else self._oldest[1]

    def _read_oldest(self, key: int, position: Position) -> None:
        page, index = position

        def on_block(block: Block | None) -> None:
            self._reading_oldest = False
            if block is not None:
                self._oldest = (key, block.message(index).timestamp)

        if not self._reading_oldest:
            self._reading_oldest = True
            self._call_with_block(self._cursor_at(page), page, index, on_block)

    def _cursor_at(self, page: Page) -> Cursor:
        return next(one for one in self.cursors if one.pages.page(page.number) is page)

    def _call_with_block(self, cursor: Cursor, page: Page, index: int, call: Done) -> None:
        """Call with a block: at once if it is in memory, else after it was read; with None if it is unreadable."""
        block = self.block(page, index)
        if block is None:
            self.fetch(cursor, page, index, call)
        else:
            call(block)


class PrefetchingArea(TargetArea):
    """Fills the lists of one queue."""

    def __init__(self, queue: Queue, areas: TargetAreas) -> None:
        super().__init__(queue, areas)
        self._last_blocks: dict[object, Block] = {}  # the block read last, by its requester
        self._fetching: set[object] = set()
        self._turn = 0  # index of the list that is filled next

    # ---- messages that were just paged

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        self.version += 1
        queue = self.queue
        if queue.ring_size >= 0 and queue.attributes.ring_counts_paged and queue.ring_size < queue.ring_count:
            queue.evict()
            if not cursor.is_waiting(*position):
                return
        if queue.ready or cursor.levels[message.traits.priority] == 1:
            self._keep_in_memory(cursor, message, position)
            if not self.closed:
                self.demand()

    def _keep_in_memory(self, cursor: Cursor, message: Message, position: Position) -> None:
        """Keep the message in memory where nothing on disk precedes it and memory allows."""
        level = message.traits.priority
        if cursor.levels[level] == 1 and not self.due_on_disk and self._is_first(cursor, level):
            if self._may_serve_from_memory(message):
                self._serve_from_memory(cursor, position, message)
                return
        if not self.lists or not self.active:
            return
        for one in self.ready_lists():
            if one.matches is None or not self._caught_up(one, cursor, level, position):
                continue
            track = one.track(cursor)
            track.skip(level, *position)
            if not one.matches(message):
                continue
            if self._needs_more(one, 0):
                self._serve_from_memory(cursor, position, message)
                return
            track.refer(level, key_of(*position))

    def _is_first(self, cursor: Cursor, level: int) -> bool:
        return all(other is cursor or not other.levels[level] for other in self.cursors)

    @staticmethod
    def _caught_up(one: TargetList, cursor: Cursor, level: int, position: Position) -> bool:
        found = one.track(cursor).next(level)
        return found is not None and not found[1] and found[0] == position

    def _serve_from_memory(self, cursor: Cursor, position: Position, message: Message) -> None:
        queue = self.queue
        ref = self.load(cursor, *position, message)
        if ref is not None:
            queue.dispatcher.enlist(ref)
            if queue.ready:
                queue.dispatcher.dispatch()
                self._unload_ring()

    def _may_serve_from_memory(self, message: Message) -> bool:
        queue = self.queue
        if self._is_ring():
            return self.active and queue.count < queue.ring_size
        if self.active and not queue.count:
            return True
        if not queue.consumers and not self.areas.idle_capacity(self.ready_size + message.size):
            return False
        return self._has_memory(message.size)

    # ---- limits

    def _is_ring(self) -> bool:
        """Whether loaded messages would count for a ring."""
        queue = self.queue
        return queue.ring_size >= 0 and not queue.attributes.ring_counts_paged

    def _has_memory(self, size: int) -> bool:
        settings = self.queue.address.settings
        messages, most = settings.prefetch_messages, settings.prefetch_bytes
        if 0 <= messages <= self.ready_messages or 0 <= most < self.ready_size + size:
            return False
        return self.areas.free_memory(size)

    def _needs_more(self, one: TargetList, loaded: int, window: int = WINDOW) -> bool:
        """Whether more should be loaded for a list, after ``loaded`` messages in one go."""
        pending = one.pending
        assert pending is not None
        if one in self._fetching:
            return False
        head = pending.head()
        if head is None or not one.below_watermark(head, self.cursor_of(head)):
            return loaded < MINIMUM
        if self._is_ring():
            return self.queue.count < self.queue.ring_size and bool(loaded)
        return pending.size < window and self._has_memory(0)

    def _wants_spilled(self, consumer: Consumer) -> bool:
        """Whether to load more of what was spilled for a consumer.

        Always a message that precedes all that it has in memory, even without memory for it: delivery waits for that
        message (`TargetArea.may_deliver`). A requeued message of its groups may have been spilled before its backlog.
        """
        parking = self.group_spill
        if consumer not in parking or consumer in self._fetching:
            return False
        head = self.queue.dispatcher.next_in_memory(consumer)
        if head is None or parking.before(consumer, head):
            return True
        backlog = consumer.group_backlog
        return (backlog is None or backlog.size < HELD // 2) and self._has_memory(0)

    def demand(self) -> None:
        if self._returned:
            self._returned = False
            if not self.areas.free_memory(0):  # messages in delivery have become pending
                self.unload_until(self.areas.within_budget)
        if not self.requested and not self.closed and self._needed():
            self.areas.loader.request(self)

    def _needed(self) -> bool:
        """Whether there is anything to load now."""
        due = bool(self.due_on_disk) and self.due_on_disk not in self._fetching
        if not self.active:
            if self.ready_messages:
                self.areas.idle(self)
            return self._head_needed() or due
        self.unloaded = False
        if due or not self.waiting:
            return due
        for one in self.ready_lists():
            one.find_watermark(self.cursors, self.version)
            if one.firsts and self._needs_more(one, 0, WINDOW // 2):
                return True
        return any(self._wants_spilled(consumer) for consumer in self.queue.ready)

    def _head_needed(self) -> bool:
        unfiltered = self.unfiltered
        if not self.waiting or self.unloaded or self._is_ring() or unfiltered in self._fetching:
            return False
        if not self.areas.head_capacity(self.ready_size) or not self._has_memory(0):
            return False
        unfiltered.find_watermark(self.cursors, self.version)
        return bool(unfiltered.firsts)

    # ---- loading

    def work(self, in_time: InTime) -> None:
        """Load what is needed, until time is up or a page has to be read."""
        if self.closed:
            return
        queue = self.queue
        if self.due_on_disk:
            self._load_due(in_time)
        if self.active:
            lists = list(self.ready_lists())
            self._turn = turn = self._turn % len(lists) if lists else 0
            for one in (*lists[turn:], *lists[:turn]):
                self._turn += 1
                self._fill(one, in_time)
                if not in_time():
                    break
            for consumer in list(queue.ready):
                self._unspill(consumer)
            queue.dispatcher.dispatch()
            self._unload_ring()
        elif not self.closed:
            self._fill(self.unfiltered, in_time, idle=True)
        if not self.closed:
            self.demand()

    def _fill(self, one: TargetList, in_time: InTime, *, idle: bool = False) -> None:
        loaded = 0
        while True:
            one.find_watermark(self.cursors, self.version)
            if one in self._fetching or not one.firsts:
                return
            wanted = self._head_needed() if idle else self._needs_more(one, loaded)
            if not wanted or (loaded and not in_time()):
                return
            found = self._next(one)
            if found is None:
                return
            track, (page, index), known = found
            block = self._block(one, track.cursor, page, index)
            if block is None:
                return
            if one.learn(track.cursor, key_of(page, index), block.number_of(index)):
                continue
            if known:
                track.use_reference(one.top)
            if one.test is None or known:
                most = 1 if idle or known or len(one.firsts) > 1 else FETCH_BATCH
                passed = self._deliver_run(one, track.cursor, page, index, block, in_time) if most > 1 else 0
                loaded += passed or self._load_run(one, track, page, index, block, most)
            else:
                track.scan(block, in_time)
                self.version += 1
                if not in_time():
                    return
            self._read_ahead(track.cursor, block)

    def _next(self, one: TargetList) -> tuple[Track, Position, bool] | None:
        """The first message on disk; among several addresses that which was sent first."""
        numbered: dict[Cursor, int] = {}
        if len(one.firsts) > 1:
            for cursor, key in one.firsts.items():
                position = position_of(cursor, key)
                block = None if position is None else self._block(cursor, cursor, *position)
                if block is None:
                    return None
                numbered[cursor] = block.number_of(key & 0xFFFFFFFF)
        return one.next(numbered)

    def _deliver_run(
        self,
        one: TargetList,
        cursor: Cursor,
        page: Page,
        index: int,
        block: Block,
        in_time: InTime,
    ) -> int:
        """Deliver what is read, as `_load_run` and `Dispatcher.dispatch` do in two steps; no consumer has a selector.

        What is acknowledged by being delivered is settled in runs, and no reference is made of it. Returns how many
        positions were taken.
        """
        queue = self.queue
        dispatcher = queue.dispatcher
        states = cursor.states(page, index, block.stop)
        untouched = cursor.untouched(page)
        run = DeliveredRun(self, cursor, page)
        wanted, passed = one.top + 1, 0
        try:
            for place in range(len(states)):
                if states[place] != wanted:
                    continue
                at = index + place
                consumer = dispatcher.consumer_for_any()
                if consumer is None:
                    break
                if untouched and consumer.settles_on_delivery:
                    message = block.decode(at)
                    traits = message.traits
                    if traits.group is not None:
                        break
                    if not message.expires:
                        if at != run.stop or traits.durable is not run.durable:
                            run.settle()
                            run.first, run.durable = at, traits.durable
                        run.stop = at + 1
                        consumer.deliver_message(message)
                        passed += 1
                        if passed % FETCH_BATCH == 0 and not in_time():
                            break
                        continue
                run.settle()
                if self.closed or self.page_credit.exhausted(consumer):
                    break
                message = block.message(at)
                if message.traits.group is not None:
                    break
                ref = self.load(cursor, page, at, message)
                passed += 1
                if ref is not None:
                    queue.deliver(ref, consumer)
                if self.closed or (passed % FETCH_BATCH == 0 and not in_time()):
                    break
        finally:
            run.settle()
        return passed

    def _load_run(
        self, one: TargetList, track: Track, page: Page, index: int, block: Block, most: int
    ) -> int:
        """Load up to ``most`` messages of the same priority from one block; returns how many positions were taken."""
        queue = self.queue
        wanted = one.top + 1
        states = track.cursor.states(page, index, min(block.stop, index + most))
        taken = 0
        for at, state in enumerate(states, index):
            if state == wanted:
                ref = self.load(track.cursor, page, at, block.message(at))
                taken += 1
                if self.closed:
                    break
                if ref is not None:
                    queue.dispatcher.enlist(ref)
        return taken

    def _load_due(self, in_time: InTime) -> None:
        """Move scheduled messages that fall due to the head, in order.

        Those that memory has no space for stay in their pages, as ordinary messages.
        """
        queue = self.queue
        while not self.closed and self.due_on_disk not in self._fetching:
            found = self.due_on_disk.next()
            if found is None:
                return
            cursor, (page, index), due = found
            block = self._block(self.due_on_disk, cursor, page, index)
            if block is None:
                return
            ref = self.load_reference(cursor, page, index, block.message(index))
            queue.broker.expiry.watch(ref)
            # a ring decides about each, and finds those of the same batch in memory only
            if queue.ring_size >= 0 or not queue.count or self._has_memory(0):
                queue.on_due([ref], due)
            else:
                self.unload(ref)
            if not in_time():
                return

    def _unspill(self, consumer: Consumer) -> None:
        """Load messages spilled for a consumer that is ready again."""
        queue = self.queue
        while not self.closed and self._wants_spilled(consumer):
            found = self.group_spill.next(consumer)
            if found is None or queue.dispatcher.groups is None:
                return
            _, cursor, (page, index) = found
            block = self._block(consumer, cursor, page, index)
            if block is None:
                return
            ref = self.load(cursor, page, index, block.message(index))
            if ref is not None:
                queue.dispatcher.enlist_for_group(ref, consumer)

    def _unload_ring(self) -> None:
        """Unload what no consumer has taken: in a ring it would count against requeued messages."""
        if self._is_ring() and not self.closed:
            self.unload_until(lambda: False)

    # ---- blocks

    def _block(self, requester: object, cursor: Cursor, page: Page, index: int) -> Block | None:
        """The block with a position; None while it is being read, after which `request` is called."""
        block = self._last_blocks.get(requester)
        if block is not None and block.page is page and block.first <= index < block.stop:
            return block
        block = self.block(page, index)
        if block is not None:
            self._last_blocks[requester] = block
            return block
        if requester in self._fetching:
            return None
        self._last_blocks.pop(requester, None)
        self._fetching.add(requester)

        def on_block(block: Block | None) -> None:
            self._fetching.discard(requester)
            if block is not None:
                self._last_blocks[requester] = block
            if not self.closed:
                self.areas.loader.request(self)

        self.fetch(cursor, page, index, on_block)
        return None

    def _read_ahead(self, cursor: Cursor, block: Block) -> None:
        """Read the next block while this one is processed."""
        page = block.page
        if block.stop < page.count and self.block(page, block.stop) is None and self.areas.has_spare_memory:
            self.areas.read_ahead(cursor.pages, page, block.stop)

    def on_consumer_removed(self, consumer: Consumer) -> None:
        super().on_consumer_removed(consumer)
        self._last_blocks.pop(consumer, None)


#: Messages evicted unread before the index is searched for their keys, at least.
MOST_EVICTED = 1000

#: Positions of a block that are looked at between two checks of the time.
BATCH = 32


class LastValueArea(PrefetchingArea):
    """See `LastValueQueue`."""

    def __init__(self, queue: LastValueQueue, areas: TargetAreas) -> None:
        super().__init__(queue, areas)
        self._evicted = 0  # whose keys may still be in the index
        self._rebuild: IndexRebuild | None = None
        self.last_values = queue

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

    def forget(self, address: AddressBase) -> None:
        cursor = self._by_address.get(address)
        if cursor is not None:
            self.last_values.forget_pages(cursor.pages)
        super().forget(address)

    # ---- nothing is loaded before the index is complete

    def demand(self) -> None:
        if self._rebuild is None:
            super().demand()

    def work(self, in_time: InTime) -> None:
        if self._rebuild is None:
            super().work(in_time)

    def _end(self) -> None:
        super()._end()
        if self._rebuild is not None:
            self._rebuild.stop()


class IndexRebuild:
    """Reads what waits in the pages of a queue, in slices (`Work`)."""

    def __init__(self, area: LastValueArea) -> None:
        self._steps: Iterator[None] | None = None
        self._block: Block | None = None
        self._reading = False
        self._stopped = False
        self.requested = False
        self._area = area
        self._cursors: list[Cursor] = []
        self._begun = area.queue.broker.clock.steady.now

    def add(self, cursor: Cursor) -> None:
        """One more address has pages with messages of the queue."""
        self._cursors.append(cursor)

    def stop(self) -> None:
        """The pages are empty, or the queue is deleted."""
        self._stopped = True
        self._area.rebuilt()

    def work(self, in_time: InTime) -> None:
        """Read on, until time is up or a block has to be read from disk."""
        if self._steps is None:
            self._steps = self._read_all()
        for _ in self._steps:
            if self._stopped or self._reading:
                return
            if not in_time():
                self._area.areas.loader.request(self)
                return
        if self._stopped:
            return
        queue = self._area.last_values
        log.info(
            "last-value queue %s: index of %d keys rebuilt from pages in %d ms",
            queue.name,
            queue.keys,
            queue.broker.clock.steady.now - self._begun,
            extra={"queue": queue.name, "address": queue.address.name},
        )
        self._area.rebuilt()

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


#: Fraction of the budget (one part in so many) that is freed beyond what is needed.
EXTRA_FREED = 16

#: Milliseconds before memory is searched again after a search has found none.
RETRY_AFTER = 20

#: Parts of the budget that queues without consumers may fill, all together and one alone.
IDLE, ONE_IDLE = 2, 8

#: Part of the budget up to which the head of a queue is read before anybody asks for it.
AHEAD = 4


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


class TargetAreas:
    """All target areas and what they share (`PagedQueues`). Gauges are plain attributes and properties."""

    def __init__(self, broker: Broker) -> None:
        self._full_until = 0
        self._broker = broker
        self.budget = MemoryBudget(broker.configuration.dispatch_memory)
        self.active_queues = ActiveQueues(broker)
        self.loader = Loader(broker.clock, self.active_queues.count)
        self.cache = PendingCache(self.budget, self.free_memory, self._lost)
        self.head_cache = HeadCache(self.budget)
        self.areas: set[TargetArea] = set()
        self._times: dict[Pages, PageTimes] = {}
        broker.areas = self

    # ---- PagedQueues, for the broker

    def open(self, queue: Queue) -> TargetArea:
        area = (
            LastValueArea(queue, self) if isinstance(queue, LastValueQueue) else PrefetchingArea(queue, self)
        )
        self.areas.add(area)
        queue.set_pages(area)
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
        for queue in map(as_queue, list(pages.cursors)):
            cursor = self.cursor(queue, pages)
            if isinstance(queue.paged, LastValueArea):
                queue.paged.rebuild(cursor)
        self._times_of(pages).adopt()
        for queue in map(as_queue, list(pages.cursors)):
            if queue.paged is not None:
                queue.paged.demand()

    def closed(self, pages: Pages) -> None:
        times = self._times.pop(pages, None)
        if times is not None:
            times.stop()
        for queue in map(as_queue, list(pages.cursors)):
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
            self.cache.fetch(pages, page, index, lambda block: None)

    def _times_of(self, pages: Pages) -> PageTimes:
        times = self._times.get(pages)
        if times is None:
            times = self._times[pages] = PageTimes(self, pages, self._broker.clock)
        return times

    def _lost(self, pages: Pages) -> None:
        """Something in the pages of an address was unreadable, and is settled."""
        for queue in map(as_queue, list(pages.cursors)):
            area = queue.paged
            if isinstance(area, TargetArea):
                area.version += 1
                self.loader.request(area)
        self._broker.clock.soon(lambda: leave_if_empty(pages.address))

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
