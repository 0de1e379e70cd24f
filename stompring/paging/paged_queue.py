"""The paged queues of a broker: which of their messages are in memory, for which consumers, and when.

A target list names the next messages for the consumers with one selector. Its direct references are in a `PendingList`
of the queue. Its cache references, and the progress of its search, are positions in the pages of each address. A list
with ready consumers is filled to between half of `WINDOW` and all of it, within ``prefetch-page-messages`` and the
memory budget.

Two caches share the memory budget (``dispatch-memory``): blocks of pages (pending cache), and messages at the head
of queues without consumers (head cache). A loader fills both, in time slices.

Messages on disk also expire or fall due. The broker keeps one time in memory for each page, the soonest of its
messages. At that time it reads the page once, and handles all its messages that have expired or are due.

The store does not save the index of a last-value queue. After a start the broker reads each waiting message of its
pages once, in time slices, before the queue delivers its first message.
"""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Final, Protocol

from stompring.broker.address import as_address, leave_if_empty
from stompring.broker.clock import Clock, Seconds, Timer, cancel
from stompring.broker.directory import Services
from stompring.broker.last_value import LastValueQueue
from stompring.broker.message import SYSTEM_PROPERTIES, Account, AddressBase, Matches, Message, Traits
from stompring.broker.ports import TIMED, Block, Cursor, Done, Pages, Reason, on_disk, state_at, waiting_from
from stompring.broker.queue import Consumer, DueBatch, Queue, as_queue
from stompring.broker.reference import PENDING, Page, PendingList, Position, Reference, is_expired

#: Estimated bytes of a remembered selector result: its dictionary entry, and a share of the headers of its messages.
ANSWER_SIZE: Final = 256

#: Divisor of the memory budget: the share that remembered selector results may use.
ANSWERS_SHARE: Final = 16


class MemoryBudget(Account):
    """The bytes used by messages, blocks and selector results, and their common limit. This object is the `Account` of
    every message from a page. The limit is soft: even above the limit, a consumer without messages gets a few, so that
    each consumer makes progress.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0  # bytes in use, also those of messages that a queue holds, pending or in delivery
        self.blocks = 0  # bytes of blocks in the pending cache
        self.answers = 0  # bytes of remembered selector results

    def occupy(self, size: int, messages: int = 1) -> None:
        self.used += size

    def release(self, size: int, messages: int = 1) -> None:
        self.used -= size

    def add_block(self, size: int) -> None:
        """Count a block of the pending cache; ``size`` is negative for an evicted block."""
        self.blocks += size
        self.used += size

    def add_answers(self, number: int) -> None:
        """Count remembered selector results; ``number`` is negative for dropped results."""
        self.answers += number * ANSWER_SIZE
        self.used += number * ANSWER_SIZE

    @property
    def has_room_for_answers(self) -> bool:
        """Whether a selector may remember one more result."""
        return self.answers + ANSWER_SIZE <= self.limit // ANSWERS_SHARE


#: Number of dropped positions at the front of the array above which they are removed from the array.
SLACK: Final = 1024


def key_of(page: Page, index: int) -> int:
    """Return a position as one number. Within one address these numbers ascend in the order of the messages."""
    return page.number << 32 | index


def position_of(cursor: Cursor, key: int) -> Position | None:
    """Return the position with this key, None if its page no longer exists."""
    page = cursor.pages.page(key >> 32)
    return None if page is None else (page, key & 0xFFFFFFFF)


def waiting_at(cursor: Cursor, key: int) -> Position | None:
    """Return the position with this key, None if no message waits there on disk."""
    position = position_of(cursor, key)
    return position if position is not None and cursor.is_waiting(*position) else None


class References:
    """Positions in the pages of one address, ascending and without duplicates."""

    def __init__(self) -> None:
        self._keys = array("Q")
        self._start = 0

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def add(self, key: int) -> int | None:
        """Add a position. Return its index in the array, None if the position was added before."""
        keys = self._keys
        at = len(keys)
        if len(self) and keys[-1] >= key:
            at = bisect_left(keys, key, self._start)
            if keys[at] == key:
                return None
        keys.insert(at, key)
        return at

    def first(self, cursor: Cursor) -> Position | None:
        """Return the first waiting position. Drops the positions before it, which are loaded or settled."""
        while len(self):
            position = waiting_at(cursor, self._keys[self._start])
            if position is not None:
                return position
            self.drop_first()
        return None

    def drop_first(self) -> None:
        """Drop the first position."""
        self._start += 1
        if self._start > SLACK and self._start * 2 > len(self._keys):
            del self._keys[: self._start]
            self._start = 0


class SpilledMessages(References):
    """Positions of spilled messages of one priority in the pages of one address, with their message numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = array("Q")

    def add_message(self, key: int, number: int) -> None:
        """Add the position of a message, unless it was added before."""
        at = self.add(key)
        if at is not None:
            self._numbers.insert(at, number)

    @property
    def number(self) -> int:
        """The message number of the first position."""
        return self._numbers[self._start]

    def drop_first(self) -> None:
        start = self._start + 1
        super().drop_first()
        if not self._start:
            del self._numbers[:start]

    def waiting(self, cursor: Cursor) -> list[Position]:
        """Return the positions of messages that wait on disk."""
        found = [waiting_at(cursor, key) for key in self._keys[self._start :]]
        return [position for position in found if position is not None]


#: Maximum number of results that one header test remembers.
REMEMBERED: Final = 4096

#: Number of remembered results after which a header test stops remembering if it used them fewer times than that.
TRIED: Final = 256

#: System properties that are the same for all messages with the same traits.
SHARED: Final = frozenset(
    {
        "AMQPriority",
        "AMQDurable",
        "AMQGroupID",
        "AMQUserID",
        "_AMQ_INGRESS_TIMESTAMP",
        "_AMQ_VALIDATED_USER",
        "JMSPriority",
        "JMSDeliveryMode",
        "JMSCorrelationID",
        "JMSType",
        "JMSReplyTo",
    }
)

#: Header lines that the broker writes for each message.
OWN_LINES: Final = frozenset({b"content-length", b"timestamp", b"expires"})


class HeaderView(Message):
    """A message with headers only, for a selector. ``beyond`` becomes True when the selector reads anything else."""

    __slots__ = ("beyond",)

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.tail = b"\n" + traits.block
        self.body_at = len(self.tail)
        self.beyond = False  # whether the result may differ for messages with the same headers

    def header(self, name: bytes) -> bytes | None:
        if name in OWN_LINES:
            self.beyond = True
        return super().header(name)

    def headers(self) -> dict[str, str]:
        self.beyond = True
        return super().headers()

    def get_property(self, name: str) -> str | int | float | bool | None:
        if name in SYSTEM_PROPERTIES and name not in SHARED:
            self.beyond = True
            return None
        return super().get_property(name)

    @property
    def body(self) -> bytes:
        self.beyond = True
        return b""

    def __getattr__(self, name: str) -> object:
        self.beyond = True  # the selector reads an attribute that this class does not set
        raise AttributeError(name)


class HeaderTest:
    """A selector that remembers its result for equal headers if the result depends only on the headers. It remembers
    nothing if few messages have the same headers, or if the results of all selectors use up their share of memory.
    """

    def __init__(self, matches: Matches, budget: MemoryBudget) -> None:
        self.matches = matches
        self._budget = budget
        self._known: dict[Traits, bool | None] = {}  # None: the selector needs the whole message
        self._hits = 0
        self._remembers = True

    def __call__(self, block: Block, index: int) -> bool:
        """Return whether the message at an index of a block matches."""
        known: object = None
        if self._remembers:
            traits = block.traits(index)
            known = self._known.get(traits, self)
            if known is self:
                known = self._judge(traits)
            else:
                self._hits += 1
        return bool(self.matches(block.message(index))) if known is None else known is True

    def _judge(self, traits: Traits) -> bool | None:
        view = HeaderView(traits)
        try:
            answer: bool | None = bool(self.matches(view))
        except AttributeError:
            answer = None
        if view.beyond:
            answer = None
        known = self._known
        if len(known) >= TRIED and self._hits < len(known):
            self._remembers = False
            self.forget()
            return answer
        budget = self._budget
        if len(known) >= REMEMBERED or not budget.has_room_for_answers:
            self.forget()
            self._hits = 0
        if budget.has_room_for_answers:
            known[traits] = answer
            budget.add_answers(1)
        return answer

    def forget(self) -> None:
        """Drop all results, and return their memory to the budget."""
        self._budget.add_answers(-len(self._known))
        self._known.clear()


LEVELS = range(9, -1, -1)  # priorities, the highest first

#: A function that returns whether the time slice has time left.
InTime = Callable[[], bool]

#: Evaluations of a selector between two readings of the clock.
SCANNED_AT_ONCE: Final = 8


class Track:
    """The progress of a target list through the pages of one address. By priority, ``references``: matches found by the
    scan; ``scanned``: position at which the scan continues.

    In a list without a selector every waiting message matches, so that no scan is needed: ``scanned`` then only skips
    messages that were spilled for another consumer.
    """

    def __init__(self, cursor: Cursor, test: HeaderTest | None) -> None:
        self.cursor = cursor
        self.test = test
        self.references: defaultdict[int, References] = defaultdict(References)
        self.scanned: list[Position | None] = [None] * 10  # the first unscanned position, by priority

    # ---- next position

    def next(self, level: int) -> tuple[Position, bool] | None:
        """Return the first position on disk that may match, and whether it is known to match."""
        if not self.cursor.levels[level]:
            return None
        references = self.references.get(level)
        known = None if references is None else references.first(self.cursor)
        unknown = self.next_unscanned(level)
        if known is not None and (unknown is None or key_of(*known) <= key_of(*unknown)):
            return known, True
        return None if unknown is None else (unknown, False)

    def next_unscanned(self, level: int) -> Position | None:
        """Return the first waiting position that was not scanned."""
        return waiting_from(self.cursor, level, self.scanned[level])

    # ---- scan

    def refer(self, level: int, key: int) -> None:
        """Add the position of a message that matches."""
        self.references[level].add(key)

    def before_scan(self, level: int, key: int) -> bool:
        """Return whether a position is before the unscanned positions, even if it did not wait during the scan."""
        scanned = self.scanned[level]
        return scanned is not None and key < key_of(*scanned)

    def skip(self, level: int, page: Page, index: int) -> None:
        """Mark a position and all positions before it as scanned."""
        if not self.before_scan(level, key_of(page, index)):
            self.scanned[level] = (page, index + 1)

    def rescan(self, level: int, page: Page, index: int) -> None:
        """Consider a position again that was skipped because its message was spilled."""
        key = key_of(page, index)
        if self.before_scan(level, key):
            if self.test is None:
                self.refer(level, key)
            else:
                self.scanned[level] = (page, index)

    def scan(self, block: Block, in_time: InTime) -> None:
        """Test the unscanned messages of a block until the time slice ends, but at least `SCANNED_AT_ONCE` messages.
        Ignores a priority that has unscanned messages before the block.
        """
        assert self.test is not None
        cursor, page, test = self.cursor, block.page, self.test
        starts = self._starts(block)
        first, stop = min(starts), block.stop
        states = cursor.states(page, first, stop)
        at, asked = first - 1, 0
        for state in states:
            at += 1
            if 0 < state <= 10 and starts[state] <= at:
                if test(block, at):
                    self.refer(state - 1, key_of(page, at))
                asked += 1
                if asked % SCANNED_AT_ONCE == 0 and not in_time():
                    stop = at + 1
                    break
        for level in LEVELS:
            if starts[level + 1] < stop:
                self.scanned[level] = (page, stop)

    def _starts(self, block: Block) -> list[int]:
        """Return the first unscanned index in a block for each priority + 1; the end of the block if the first
        unscanned position of the priority is not in the block.
        """
        starts = [block.stop] * 11
        for level in LEVELS:
            position = self.next_unscanned(level)
            if position is not None and position[0] is block.page and block.first <= position[1] < block.stop:
                starts[level + 1] = position[1]
        return starts

    # ---- gauges

    def __len__(self) -> int:
        return sum(map(len, self.references.values()))


NOTHING: Final = -1  # `TargetList.top` if no message on disk may match


def was_straight(ref: Reference) -> bool:
    """Return whether a message was delivered from memory while its address paged, and was requeued."""
    return ref.position is None and ref.message.account is not ref.message.address


class TargetList:
    """The next messages for the consumers with one selector, or without a selector (``matches`` is None)."""

    def __init__(self, matches: Matches | None, budget: MemoryBudget) -> None:
        self.matches = matches
        self.test = None if matches is None else HeaderTest(matches, budget)
        self.tracks: dict[Cursor, Track] = {}
        self.pending: PendingList | None = None  # direct references; None without consumers
        self.version = -1  # `TargetArea.version` at the last search for the watermark
        self.top = NOTHING  # the highest priority with a message on disk that may match
        # key (`key_of`) of the first position of priority ``top`` that may match
        self.firsts: dict[Cursor, int] = {}
        # of those positions whose block was read: key, and number of the message
        self.numbered: dict[Cursor, tuple[int, int]] = {}

    def forget_answers(self) -> None:
        """Free the memory of remembered selector results. Called when the list is dropped."""
        if self.test is not None:
            self.test.forget()

    def track(self, cursor: Cursor) -> Track:
        """Return the track of this list through the pages of one address."""
        track = self.tracks.get(cursor)
        if track is None:
            track = self.tracks[cursor] = Track(cursor, self.test)
        return track

    def find_watermark(self, area: TargetArea) -> None:
        """Find the first positions on disk that may match (``top``, ``firsts``), if the area has changed meanwhile."""
        if area.version == self.version:
            return
        self.version = area.version
        self.top, self.firsts = NOTHING, {}
        for cursor in area.cursors:
            track = self.track(cursor)
            for level in LEVELS:
                if level < self.top:
                    break
                found = track.next(level)
                if found is not None:
                    if level > self.top:
                        self.top, self.firsts = level, {}
                    self.firsts[cursor] = key_of(*found[0])
                    break

    def below_watermark(self, ref: Reference, area: TargetArea) -> bool:
        """Return whether a message in memory comes before all messages of this list on disk."""
        message = ref.message
        level = message.traits.priority
        if level != self.top:
            return level > self.top
        cursor = area.cursor_of(ref)
        first = None if cursor is None or ref.sequence <= 0 else self.firsts.get(cursor)
        if first is None:
            return True
        if ref.position is not None:
            return key_of(*ref.position) < first
        if not was_straight(ref):
            return True
        assert cursor is not None
        key, number = self.numbered.get(cursor, (-1, 0))
        return key == first and message.number < number

    def learn(self, cursor: Cursor, key: int, number: int) -> bool:
        """Store the message number of a position on disk, if the first message in memory must be compared
        with it. Return whether the number is new, so that the caller compares again.
        """
        head = None if self.pending is None else self.pending.head()
        if head is None or not was_straight(head) or self.numbered.get(cursor, (-1, 0))[0] == key:
            return False
        self.numbered[cursor] = key, number
        return True

    def on_returned(self, cursor: Cursor, ref: Reference) -> None:
        """Make an unloaded message a match again, if this list has scanned its position."""
        assert ref.position is not None
        track, level, key = self.track(cursor), ref.message.traits.priority, key_of(*ref.position)
        if track.before_scan(level, key) and (self.matches is None or self.matches(ref.message)):
            track.refer(level, key)


by_first = attrgetter("first")


class PendingCache:
    """Blocks by page and index. The cache reads one block of a page at a time; further requests for the page wait."""

    def __init__(self, areas: TargetAreas) -> None:
        self.blocks_read = 0
        self._areas = areas
        self._budget = areas.budget
        self._used: OrderedDict[Block, Pages] = OrderedDict()  # blocks; the least recently used one is first
        self._of_page: dict[Page, list[Block]] = {}  # blocks of each page, ascending
        self._of_address: dict[Pages, int] = {}  # bytes by address
        self._asking: dict[Page, list[tuple[int, Done]]] = {}

    def __len__(self) -> int:
        return len(self._used)

    def get(self, page: Page, index: int) -> Block | None:
        """Return the block with a position, None if it is not cached."""
        blocks = self._of_page.get(page)
        if blocks is None:
            return None
        at = bisect_right(blocks, index, key=by_first) - 1
        if at < 0 or blocks[at].stop <= index:
            return None
        self._used.move_to_end(blocks[at])
        return blocks[at]

    def fetch(self, pages: Pages, page: Page, index: int, done: Done) -> None:
        """Read a block. Calls ``done`` later with the block, or with None if it is unreadable."""
        asking = self._asking.get(page)
        if asking is not None:
            asking.append((index, done))
            return
        self._asking[page] = [(index, done)]
        self.blocks_read += 1
        pages.fetch(page, index, lambda block: self._on_block(pages, page, index, block))

    def is_reading(self, page: Page) -> bool:
        """Return whether a block of a page is being read."""
        return page in self._asking

    def _on_block(self, pages: Pages, page: Page, index: int, block: Block | None) -> None:
        asking = self._asking.pop(page)
        if block is None:
            self._areas.lost(pages)
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
        if as_address(pages.address).pages is not pages:
            return  # the address stopped paging while the block was read
        if block.size > limit or not self._areas.free_memory(block.size):
            return
        while self._of_address.get(pages, 0) + block.size > limit:
            self._evict(next(other for other, whose in self._used.items() if whose is pages))
        of_page = self._of_page
        for other in [one for one in of_page.get(block.page, ()) if block.first <= one.first < block.stop]:
            self._evict(other)  # a shorter version of the block, read when the page was shorter
        insort(of_page.setdefault(block.page, []), block, key=by_first)
        self._used[block] = pages
        self._of_address[pages] = self._of_address.get(pages, 0) + block.size
        self._budget.add_block(block.size)

    def _evict(self, block: Block) -> None:
        pages = self._used.pop(block)
        blocks = self._of_page[block.page]
        blocks.remove(block)
        if not blocks:
            del self._of_page[block.page]
        self._of_address[pages] -= block.size
        self._budget.add_block(-block.size)

    def shrink(self, size: int) -> None:
        """Evict the least recently used blocks, in total at least ``size`` bytes."""
        end = self._budget.blocks - size
        while self._used and self._budget.blocks > end:
            self._evict(next(iter(self._used)))

    def forget(self, pages: Pages) -> None:
        """Evict all blocks of an address that stops paging."""
        for block in [block for block, whose in self._used.items() if whose is pages]:
            self._evict(block)
        self._of_address.pop(pages, None)


#: Maximum number of messages that a target list has in memory.
WINDOW: Final = 1000

#: Number of messages that a target list loads if it has none to deliver, even if the limits allow none.
MINIMUM: Final = 16

#: Number of messages loaded between two checks of the limits.
FETCH_BATCH: Final = 16


@dataclass
class DeliveredRun:
    """Positions from ``first`` to before ``stop`` whose messages were delivered and acknowledged, and will be settled
    together.
    """

    _area: TargetArea
    _cursor: Cursor
    _page: Page
    first: int = -1
    stop: int = -1
    durable: bool = False

    def settle(self) -> None:
        """Settle the positions, and begin an empty run."""
        first, stop = self.first, self.stop
        if first < stop:
            self.first = stop
            self._cursor.acknowledge(self._page, first, stop, self.durable)
            self._area.version += 1
            if not self._cursor.remaining:
                leave_if_empty(self._cursor.pages.address)


#: Minimum milliseconds between two counts of the queues that keep up.
CHECK_INTERVAL: Final = 1000


class ActiveQueues:
    """Counts the queues that keep up: they receive messages and have none on disk."""

    def __init__(self, broker: Services) -> None:
        self._checked_at = 0
        self._count = 0
        self._broker = broker
        self._added: dict[Queue, int] = {}  # `messages_added` at the last check, of queues with consumers

    def count(self) -> int:
        """Return the number of queues that keep up: 0 if the last two checks were three intervals or more apart."""
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


#: Longest and shortest time slice of the loader, in seconds. The reactor serves all connections between two slices.
SLICE, SHORTEST_SLICE = 0.003, 0.0005

#: Longest time slice in seconds while a queue keeps up: short, because a client may send at any time.
ALONE_SLICE: Final = 0.001

#: Seconds. After a shorter iteration of the reactor no connection waits, so that the loader works immediately.
SHORT_TURN: Final = 0.0003

#: Share of time for each piece of queued work, relative to the share of each queue that keeps up.
WEIGHT: Final = 0.5


class Work(Protocol):
    """Work that a `Loader` does in time slices."""

    requested: bool  # whether this work is in the queue of the loader

    def work(self, in_time: InTime) -> None:
        """Work until ``in_time`` returns False. Call `Loader.request` if work is left."""


class Loader:
    """Runs queued pieces of work in turn. ``others`` returns the number of queues that keep up.

    While the queues that keep up use most of the reactor's time, each piece of work gets half the time of one such
    queue (`WEIGHT`): consumers of a long backlog must not slow down the other queues. The loader saves this time up
    until it has `SHORTEST_SLICE`.
    """

    def __init__(
        self,
        clock: Clock,
        others: Callable[[], int],
        now: Seconds = time.perf_counter,
    ) -> None:
        self._called = False
        self._since = 0.0  # time at which the loader returned control to the reactor
        self._end = 0.0
        self._credit = 0.0  # seconds of loading that were saved up for the next time slice
        self.stopped = False
        self._clock = clock
        self._others = others
        self._now = now
        self._line: deque[Work] = deque()

    def request(self, work: Work) -> None:
        """Queue work, unless it is queued already."""
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
        """Drop all work."""
        self.stopped = True
        self._line.clear()


#: Milliseconds. Of the times up to this far in the future `TimesOfPage` lists each, of later times only the soonest.
HORIZON: Final = 300_000

#: Minimum milliseconds between two sweeps of `PageTimes` through the pages of one address.
PAUSE: Final = 10


class TimesOfPage:
    """The expiry and due times (epoch ms) of one page: all times within `HORIZON`, and the soonest later one."""

    def __init__(self, now: int) -> None:
        self.later = 0
        self.next_index = 0  # index of the first message that was not read
        self.whole = False
        self.at = 0
        self._base = now
        self._times = array("Q")  # (milliseconds after the base time) << 32 | index; sorted if ``whole``

    def add(self, when: int, index: int) -> None:
        """Add an expiry or due time (epoch ms) of the message at an index."""
        if when > self._base + HORIZON:
            self.later = min(self.later or when, when)
            return
        entry = max(0, when - self._base) << 32 | index
        if self.whole:
            insort(self._times, entry, self.at)
        else:
            self._times.append(entry)

    def complete(self) -> None:
        """Sort the times after the whole page was read."""
        self._times = array("Q", sorted(self._times))
        self.whole = True

    @property
    def soonest(self) -> int:
        """The next time (epoch ms), 0 if none is left. At a time after `HORIZON`, the page must be read again."""
        return self._base + (self._times[self.at] >> 32) if self.pending_times else self.later

    @property
    def pending_times(self) -> bool:
        """Whether a time within `HORIZON` is left."""
        return self.at < len(self._times)

    @property
    def index(self) -> int:
        """The index of the message with the next time."""
        return self._times[self.at] & 0xFFFFFFFF


class PageTimes:
    """Expires messages in the pages of one address, and passes due messages to their queues, by a timer."""

    def __init__(self, areas: TargetAreas, pages: Pages, clock: Clock) -> None:
        self.requested = False  # whether this work is in the queue of the loader
        self._last_blocks: Block | None = None
        self._fetching = False
        self._timer: Timer | None = None
        self._timer_due = 0
        self._sweep = 0  # end (epoch ms) of the times in the current sweep, 0 without a sweep
        self._stopped = False
        self._areas = areas
        self._pages = pages
        self._clock = clock
        self._soonest: dict[Page, int] = {}
        self._times_of_page: dict[Page, TimesOfPage] = {}
        self._batches: dict[TargetArea, DueBatch] = {}  # batches of due messages in this sweep
        # keys of due messages that were not yet passed to their area
        self._due: dict[TargetArea, tuple[Cursor, array[int]]] = {}

    def paged(self, position: Position, expires: int, due: int) -> None:
        """Watch the expiry and the due time (epoch ms, 0: none) of a message that was just paged."""
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
        """Set the timer for pages that recovery has found."""
        for page in self._pages.in_order():
            times = [when for when in (page.soonest_expiry, page.soonest_due) if when]
            if times:
                self._soonest[page] = min(times)
        if self._soonest:
            self._arm(min(self._soonest.values()))

    def stop(self) -> None:
        """Cancel the timer."""
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

    # ---- sweep

    def work(self, in_time: InTime) -> None:
        """Expire messages, and collect those that are due, in the order of their times."""
        if not self._sweep:
            self._sweep, self._batches = self._clock.now, {}
        unfinished = True
        while unfinished and in_time() and not self._stopped and not self._fetching:
            unfinished = self._sweep_on(in_time)
        due, self._due = self._due, {}
        for area, (cursor, keys) in due.items():
            if not area.closed:
                batch = self._batches.get(area)
                if batch is None:
                    batch = self._batches[area] = area.queue.due_batch()
                area.due_on_disk.append(DueMessages(cursor, keys, batch))
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

    def _sweep_on(self, in_time: InTime) -> bool:
        """Handle times of the page with the soonest time, until another page has a sooner one. Return False at the end
        of the sweep.
        """
        soonest = self._soonest
        page = min(soonest, key=lambda one: (soonest[one], one.number), default=None)
        if page is None or soonest[page] > self._sweep:
            return False
        if self._pages.page(page.number) is not page:
            self._forget(page)
            return True
        others = [when for one, when in soonest.items() if one is not page]
        until = min(self._sweep, min(others, default=self._sweep))
        while soonest.get(page, until + 1) <= until and self._step(page) and in_time():
            if soonest.get(page) == until:
                break  # with equal due times the page with the smaller number comes first
        return True

    def _forget(self, page: Page) -> None:
        self._soonest.pop(page, None)
        self._times_of_page.pop(page, None)

    def _step(self, page: Page) -> bool:
        """Read more times of a page, or handle its next time. Return False while a block must be read first."""
        times = self._times_of_page.get(page)
        if times is None or (times.whole and not times.pending_times):
            times = self._times_of_page[page] = TimesOfPage(self._sweep)
        if not times.whole:
            return self._read_next(page, times)
        if times.soonest <= self._sweep:
            block = self._block(page, times.index)
            if block is None:
                return False
            index = times.index
            times.at += 1
            self._handle_due(page, index, block)
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
                        # add the time once, not for each queue: `_handle_due` expires the message in all queues
                        expires = 0
                    if state == TIMED:
                        times.add(cursor.due(block, index), index)
            times.next_index = block.stop
        if times.next_index >= page.count:
            times.complete()
            self._complete_page(page, times)
        return True

    def _handle_due(self, page: Page, index: int, block: Block) -> None:
        expires = block.expires(index)
        for queue, cursor in list(self._pages.cursors.items()):
            area: TargetArea | None = as_queue(queue).paged  # type: ignore[assignment]
            state = state_at(cursor, page, index)
            if area is None or not on_disk(state):
                continue
            if expires and expires <= self._sweep:
                area.queue.expire(area.load_reference(cursor, (page, index), block.message(index)))
            elif state == TIMED and cursor.due(block, index) <= self._sweep:
                self._due.setdefault(area, (cursor, array("Q")))[1].append(key_of(page, index))

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
            self._forget(page)  # the store has settled the unreadable messages
        if not self._stopped:
            self._areas.loader.request(self)


@dataclass
class DueMessages:
    """Positions of due messages on disk, in the order of their times. ``batch``: batch that the messages join, in one
    step or in several.
    """

    cursor: Cursor
    keys: array[int]
    batch: DueBatch
    at: int = 0


log = logging.getLogger(__name__)

#: Milliseconds between two log lines about a consumer that settles nothing.
LOG_INTERVAL: Final = 60_000

#: Number of messages from pages that a consumer may have unsettled even if the memory budget is used up.
LEAST: Final = 16


@dataclass(slots=True)
class ConsumerCredit:
    """Number and bytes of the messages from pages that one consumer has not settled."""

    messages: int = 0
    size: int = 0
    blocked: bool = False  # whether the limit has stopped the consumer


class PageCredit:
    """Limits the messages from pages that a consumer has in delivery.

    A consumer with ``max-read-page-messages`` unsettled messages or ``max-read-page-bytes`` of them gets no more until
    it settles some. In Artemis all consumers of a queue share this limit, so that a consumer that settles nothing stops
    the others. While the memory budget is used up, the limit is `LEAST` messages.
    """

    def __init__(self, queue: Queue, areas: TargetAreas) -> None:
        self._logged_at = 0
        self.size = 0  # bytes of messages from pages in delivery
        self.freed = False  # whether a blocked consumer has settled a message
        self._queue = queue
        self._areas = areas
        self.shares: defaultdict[Consumer, ConsumerCredit] = defaultdict(ConsumerCredit)
        self.out: dict[Reference, ConsumerCredit] = {}  # messages in delivery

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """Count a message that is delivered to a consumer."""
        share = self.shares[consumer]
        size = ref.message.size
        share.messages += 1
        share.size += size
        self.size += size
        self.out[ref] = share

    def release(self, ref: Reference) -> None:
        """Subtract a settled or requeued message, if it was in delivery."""
        share = self.out.pop(ref, None)
        if share is not None:
            size = ref.message.size
            share.messages -= 1
            share.size -= size
            self.size -= size
            if share.blocked:
                share.blocked = False
                self.freed = True

    def exhausted(self, consumer: Consumer) -> bool:
        """Return whether a consumer must settle messages before it gets more. If so, mark the consumer as blocked."""
        share = self.shares.get(consumer)
        if share is None or not share.messages:
            return False
        settings = self._queue.address.settings
        limited = (
            0 <= settings.max_read_page_messages <= share.messages or 0 <= settings.read_bytes <= share.size
        )
        if not limited and (share.messages < LEAST or self._areas.free_memory(0)):
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


#: Maximum number of messages in the group backlog of one owner; further messages are spilled.
HELD: Final = 100


class GroupSpill:
    """Messages that were spilled: unloaded to disk for the consumer that owns their message group. By owner."""

    def __init__(self) -> None:
        #: by owner: spilled messages by priority and cursor
        self._of: dict[Consumer, defaultdict[tuple[int, Cursor], SpilledMessages]] = {}

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._of

    def wants(self, owner: Consumer) -> bool:
        """Return whether to spill a message of an owner: messages were spilled before, or `HELD` are in memory."""
        return owner in self._of or (owner.group_backlog is not None and owner.group_backlog.size >= HELD)

    def add(self, owner: Consumer, cursor: Cursor, ref: Reference) -> None:
        """Add a message of a group that ``owner`` owns."""
        assert ref.position is not None
        kinds = self._of.setdefault(owner, defaultdict(SpilledMessages))
        kinds[ref.message.traits.priority, cursor].add_message(key_of(*ref.position), ref.message.number)

    def next(self, owner: Consumer) -> tuple[tuple[int, int], Cursor, Position] | None:
        """Return the owner's first spilled message: its sort key in the order of the queue, its cursor and position."""
        found = [
            ((-level, parked.number), cursor, position)
            for (level, cursor), parked in self._of.get(owner, {}).items()
            if (position := parked.first(cursor)) is not None
        ]
        if not found:
            self._of.pop(owner, None)
        return min(found, key=itemgetter(0), default=None)

    def before(self, owner: Consumer, ref: Reference) -> bool:
        """Return whether a spilled message of an owner comes before a message in memory."""
        first = self.next(owner)
        return first is not None and first[0] < ref.order

    def release_spilled(self, owner: Consumer) -> list[tuple[Cursor, int, Page, int]]:
        """Remove the spilled messages of an owner. Return their cursors, priorities and positions."""
        return [
            (cursor, level, page, index)
            for (level, cursor), parked in self._of.pop(owner, {}).items()
            for page, index in parked.waiting(cursor)
        ]

    def forget(self, cursor: Cursor) -> None:
        """Drop the positions of an address that stops paging."""
        for owner, kinds in list(self._of.items()):
            for level in LEVELS:
                kinds.pop((level, cursor), None)
            if not kinds:
                del self._of[owner]


#: Requester of blocks for due messages, see `TargetArea._block`. Other requesters are a list, a consumer or a cursor.
DUE: Final = "due"

#: Number of selectors without consumers whose matches stay in memory: a returning consumer needs no second scan.
REMEMBERED_SELECTORS: Final = 16

#: Maximum number of messages that a search for messages to unload may skip.
MOST_SKIPPED: Final = 1000


class TargetArea:
    """The messages of one paged queue in memory, by selector. Implements `PagedQueue`."""

    def __init__(self, queue: Queue, areas: TargetAreas) -> None:
        self.queue = queue
        self.areas = areas
        self.cursors: list[Cursor] = []
        self.requested = False  # whether this work is in the queue of the loader
        self.closed = False
        self.unloaded = False  # whether messages were unloaded since a consumer was last active
        self.version = 0  # incremented when the messages on disk change
        self.messages = 0  # number of messages from pages in memory, also those in delivery
        self.size = 0  # bytes of these ``messages``
        self.unfiltered = TargetList(None, areas.budget)
        self.unfiltered.pending = queue.dispatcher.pending
        #: target lists by selector; the least recently used list is first
        self.lists: OrderedDict[object, TargetList] = OrderedDict()
        self.page_credit = PageCredit(queue, areas)
        self.group_spill = GroupSpill()
        # the due messages in pages, in the order of their due times
        self.due_on_disk: deque[DueMessages] = deque()
        self._by_address: dict[AddressBase, Cursor] = {}
        self._oldest = (-1, 0)  # key (-1: unknown) and timestamp (epoch ms) of the oldest message on disk
        self._reading_oldest = False
        self._returned = False  # whether messages were requeued since the last `demand`
        self._last_blocks: dict[object, Block] = {}  # by requester: the block that it read last
        self._fetching: set[object] = set()
        self._turn = 0  # index of the ready list that is filled next

    # ---- cursors

    def open(self, cursor: Cursor) -> None:
        """Add the cursor of one more address."""
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
        self.due_on_disk = deque(found for found in self.due_on_disk if found.cursor is not cursor)
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
        if len(cursors) == 1:  # the usual case: messages in the pages of a single address
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
        """Number of messages from pages that are in memory and not in delivery."""
        return self.messages - len(self.page_credit.out)

    @property
    def ready_size(self) -> int:
        """Total size in bytes of the `ready_messages`."""
        return self.size - self.page_credit.size

    def cursor_of(self, ref: Reference) -> Cursor | None:
        """Return the cursor for the address of a message, None if the queue has no message in pages of that address."""
        return self._by_address.get(ref.message.address)

    # ---- target lists

    def list_of(self, consumer: Consumer) -> TargetList:
        """Return the target list from which a consumer receives its messages."""
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
        """Yield the list of each ready consumer that has page credit, each list once."""
        seen: set[TargetList] = set()
        dispatcher = self.queue.dispatcher
        self.queue.broker.effort.steps += len(self.queue.ready)
        for consumer in list(self.queue.ready):
            if dispatcher.scanning and dispatcher.is_scanning(consumer):
                continue  # its scan of the messages in memory, which may find a match, must end first
            one = self.list_of(consumer)
            if one not in seen and not self.page_credit.exhausted(consumer):
                seen.add(one)
                yield one

    def may_deliver(self, ref: Reference, consumer: Consumer) -> bool:
        if ref.position is not None and self.page_credit.exhausted(consumer):
            return False
        if not self.waiting:
            return True
        one = self.list_of(consumer)
        one.find_watermark(self)
        if not one.below_watermark(ref, self):
            return False
        return consumer not in self.group_spill or not self.group_spill.before(consumer, ref)

    def position_before(self, ref: Reference | None) -> Position | None:
        unfiltered = self.unfiltered
        unfiltered.find_watermark(self)
        if not unfiltered.firsts or (ref is not None and unfiltered.below_watermark(ref, self)):
            return None
        cursor, key = next(iter(unfiltered.firsts.items()))
        return position_of(cursor, key)

    # ---- loading

    def on_growth(self) -> None:
        self.version += 1
        if self.queue.ready:
            self.demand()

    def load_reference(self, cursor: Cursor, position: Position, message: Message) -> Reference:
        counts = cursor.take(*position)
        self.version += 1
        self.messages += 1
        self.size += message.size
        return self.queue.load(message, position, counts)

    def load(self, cursor: Cursor, position: Position, message: Message) -> Reference | None:
        """Load a message. Return None if it has expired."""
        ref = self.load_reference(cursor, position, message)
        if message.expires and is_expired(message, self.queue.broker.clock.now):
            self.queue.expire(ref)
            return None
        ref.state = PENDING
        if message.expires:
            self.queue.broker.expiry.watch(ref)
        return ref

    def evict(self, position: Position) -> None:
        """Evict the message at a position. Reads the message only if a policy listens to evictions."""
        page, index = position
        queue = self.queue
        cursor = self._cursor_at(page)
        if queue.evicted is None:
            self.replace(cursor, position)
            return
        counts = cursor.take(page, index)  # the message no longer waits, even if its block is unreadable
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
        self.queue.messages_replaced += 1
        self.version += 1
        cursor.settle_waiting(*position, Reason.REPLACED)

    def deliver_now(self, cursor: Cursor, position: Position, message: Message) -> None:
        ref = self.load_reference(cursor, position, message)
        self.queue.broker.expiry.watch(ref)
        self.queue.on_due([ref], self.queue.due_batch())

    # ---- unloading and settling

    def unload(self, ref: Reference) -> None:
        """Remove a pending message from memory. It waits on disk again."""
        cursor = self._unload(ref)
        for one in (self.unfiltered, *self.lists.values()):
            one.on_returned(cursor, ref)

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
        """Unload the newest pending messages until ``enough`` returns True."""
        pending = self.queue.dispatcher.pending
        # references that are not unloaded: without a page, or moved to the head because they were due
        skipped: list[Reference] = []
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

    def _subtract(self, ref: Reference) -> None:
        self.messages -= 1
        self.size -= ref.message.size

    def _continue(self) -> None:
        if self.page_credit.freed and not self.closed:
            self.page_credit.freed = False
            self.areas.loader.request(self)

    def purge(self) -> Iterator[int]:
        for cursor in list(self.cursors):
            for purged in cursor.purge(Reason.KILLED):
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
        self.group_spill.add(owner, cursor, ref)
        track, level = self.unfiltered.track(cursor), ref.message.traits.priority
        # otherwise `skip` would also hide waiting messages before this one
        if track.next_unscanned(level) == ref.position:
            track.skip(level, *ref.position)
        self.version += 1
        return True

    def release_spilled(self, consumer: Consumer) -> None:
        for cursor, level, page, index in self.group_spill.release_spilled(consumer):
            for one in (self.unfiltered, *self.lists.values()):
                one.track(cursor).rescan(level, page, index)
        self.version += 1
        if not self.areas.free_memory(0):
            self.unload_until(self.areas.within_budget)  # the group backlog of the consumer may be large
        self.demand()

    def on_consumer_removed(self, consumer: Consumer) -> None:
        # the unsettled messages of the consumer are requeued later
        self.page_credit.shares.pop(consumer, None)
        self._last_blocks.pop(consumer, None)
        key, targets = consumer.matches_key, self.queue.dispatcher.selector_lists
        if key in self.lists:
            self.lists.move_to_end(key)
        for other in [other for other in self.lists if other not in targets][:-REMEMBERED_SELECTORS]:
            self.lists.pop(other).forget_answers()

    # ---- reading

    def block(self, page: Page, index: int) -> Block | None:
        return self.areas.cache.get(page, index)

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Done) -> None:
        self.areas.cache.fetch(cursor.pages, page, index, done)

    @property
    def oldest(self) -> int | None:
        """Timestamp (epoch ms) of the first message on disk; None if there is none, or its block was not read yet."""
        position = self.position_before(None)
        if position is None:
            return None
        key = key_of(*position)
        if self._oldest[0] != key:
            self._read_oldest(key, position)
        found, timestamp = self._oldest
        return timestamp if found == key else None

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
        """Call ``call`` with the block of a position: immediately if it is cached, else after a read; with None if the
        block is unreadable.
        """
        block = self.block(page, index)
        if block is None:
            self.fetch(cursor, page, index, call)
        else:
            call(block)

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
        """Load a message that was just paged, if no message on disk precedes it and the limits allow it."""
        level = message.traits.priority
        if cursor.levels[level] == 1 and not self.due_on_disk:
            for other in self.cursors:
                if other is not cursor and other.levels[level]:
                    break
            else:
                if self._may_serve_from_memory(message):
                    self._serve_from_memory(cursor, position, message)
                    return
        if not self.lists or not self.queue.dispatcher.active:
            return
        for one in self.ready_lists():
            track = one.track(cursor)
            if one.matches is None or track.next(level) != (position, False):
                continue
            track.skip(level, *position)
            if not one.matches(message):
                continue
            if self._needs_more(one, 0):
                self._serve_from_memory(cursor, position, message)
                return
            track.refer(level, key_of(*position))

    def _serve_from_memory(self, cursor: Cursor, position: Position, message: Message) -> None:
        queue = self.queue
        ref = self.load(cursor, position, message)
        if ref is not None:
            queue.dispatcher.enlist(ref)
            if queue.ready:
                queue.dispatcher.dispatch()
                self._unload_ring()

    def _may_serve_from_memory(self, message: Message) -> bool:
        queue, size = self.queue, message.size
        active = queue.dispatcher.active
        if self._is_ring():
            return active and queue.count < queue.ring_size
        if active and not queue.count:
            return True
        if not queue.consumers and not self.areas.idle_capacity(self.ready_size + size):
            return False
        return self._has_memory(size)

    # ---- limits

    def _is_ring(self) -> bool:
        """Return whether the queue is a ring whose size counts only messages in memory."""
        queue = self.queue
        return queue.ring_size >= 0 and not queue.attributes.ring_counts_paged

    def _has_memory(self, size: int) -> bool:
        messages, most = self.queue.address.prefetch
        if 0 <= messages <= self.ready_messages or 0 <= most < self.ready_size + size:
            return False
        return self.areas.free_memory(size)

    def _needs_more(self, one: TargetList, loaded: int, window: int = WINDOW) -> bool:
        """Return whether to load more messages for a list that has loaded ``loaded`` messages in this time slice."""
        pending = one.pending
        assert pending is not None
        if one in self._fetching:
            return False
        head = pending.head()
        if head is None or not one.below_watermark(head, self):
            return loaded < MINIMUM
        if self._is_ring():
            return self.queue.count < self.queue.ring_size and bool(loaded)
        return pending.size < window and self._has_memory(0)

    def _wants_spilled(self, consumer: Consumer) -> bool:
        """Return whether to load more of the spilled messages of a consumer.

        True for a message that precedes all messages of the consumer in memory, even if the budget is used up: delivery
        waits for that message (`TargetArea.may_deliver`). Such a message was requeued and then spilled.
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
            if not self.areas.free_memory(0):  # memory is used up: requeued messages can be unloaded
                self.unload_until(self.areas.within_budget)
        if not self.requested and not self.closed and self._needed():
            self.areas.loader.request(self)

    def _needed(self) -> bool:
        """Return whether the loader must load messages: due ones, ones for ready consumers, or the head of a queue
        without active consumers. Adds the area of such a queue to the head cache.
        """
        due = bool(self.due_on_disk) and DUE not in self._fetching
        if not self.queue.dispatcher.active:
            if self.ready_messages:
                self.areas.idle(self)
            return self._head_needed() or due
        self.unloaded = False
        if due or not self.waiting:
            return due
        for one in self.ready_lists():
            one.find_watermark(self)
            if one.firsts and self._needs_more(one, 0, WINDOW // 2):
                return True
        return any(self._wants_spilled(consumer) for consumer in self.queue.ready)

    def _head_needed(self) -> bool:
        unfiltered = self.unfiltered
        if not self.waiting or self.unloaded or self._is_ring() or unfiltered in self._fetching:
            return False
        if not self.areas.head_capacity(self.ready_size) or not self._has_memory(0):
            return False
        unfiltered.find_watermark(self)
        return bool(unfiltered.firsts)

    # ---- loading

    def work(self, in_time: InTime) -> None:
        """Load messages until the target lists are full, the time slice ends, or a page must be read."""
        if self.closed:
            return
        queue = self.queue
        if self.due_on_disk:
            self._load_due(in_time)
        if queue.dispatcher.active:
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
            one.find_watermark(self)
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
                # if the message is unloaded later, `on_returned` adds its position again
                track.references[one.top].drop_first()
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
        """Return the first position on disk that may match: its track, the position, and whether it is known to match.
        If several addresses have one, the smallest message number decides. Return None while a block is read.
        """
        numbered: dict[Cursor, int] = {}
        if len(one.firsts) > 1:
            for cursor, key in one.firsts.items():
                position = position_of(cursor, key)
                block = None if position is None else self._block(cursor, cursor, *position)
                if block is None:
                    return None
                numbered[cursor] = block.number_of(key & 0xFFFFFFFF)
        track = one.track(min(one.firsts, key=lambda cursor: numbered.get(cursor, -1)))
        found = track.next(one.top)
        return None if found is None else (track, *found)

    def _deliver_run(
        self,
        one: TargetList,
        cursor: Cursor,
        page: Page,
        index: int,
        block: Block,
        in_time: InTime,
    ) -> int:
        """Deliver messages of a block to consumers without selectors: `_load_run` and `dispatch` in one step.

        A message that is settled by its delivery gets no reference: such messages are settled in runs. Returns the
        number of positions that were delivered.
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
                if untouched and consumer.writes_tails:
                    traits, tail, body_at, expires = block.tail(at)
                    if traits.group is not None:
                        break
                    if not expires:
                        if at != run.stop or traits.durable is not run.durable:
                            run.settle()
                            run.first, run.durable = at, traits.durable
                        run.stop = at + 1
                        consumer.write_tail(traits, tail, body_at)
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
                ref = self.load(cursor, (page, at), message)
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
        """Load the messages of one priority among the next ``most`` positions of a block. Return their number."""
        queue = self.queue
        wanted = one.top + 1
        states = track.cursor.states(page, index, min(block.stop, index + most))
        taken = 0
        for at, state in enumerate(states, index):
            if state == wanted:
                ref = self.load(track.cursor, (page, at), block.message(at))
                taken += 1
                if self.closed:
                    break
                if ref is not None:
                    queue.dispatcher.enlist(ref)
        return taken

    def _next_due(self) -> tuple[Cursor, Position, DueBatch] | None:
        """Return the first due position that is still on disk, with its batch."""
        while self.due_on_disk:
            found = self.due_on_disk[0]
            while found.at < len(found.keys):
                position = position_of(found.cursor, found.keys[found.at])
                if position is not None and state_at(found.cursor, *position) == TIMED:
                    return found.cursor, position, found.batch
                found.at += 1
            self.due_on_disk.popleft()
        return None

    def _load_due(self, in_time: InTime) -> None:
        """Move due messages to the head of the queue, in order. Messages that exceed the memory budget wait on disk."""
        queue = self.queue
        while not self.closed and DUE not in self._fetching:
            found = self._next_due()
            if found is None:
                return
            cursor, (page, index), due = found
            block = self._block(DUE, cursor, page, index)
            if block is None:
                return
            ref = self.load_reference(cursor, (page, index), block.message(index))
            queue.broker.expiry.watch(ref)
            # a ring chooses the messages to evict within the batch, so that these must be in memory
            if queue.ring_size >= 0 or not queue.count or self._has_memory(0):
                queue.on_due([ref], due)
            else:
                self.unload(ref)
            if not in_time():
                return

    def _unspill(self, consumer: Consumer) -> None:
        """Load the spilled messages of a consumer that is ready again."""
        queue = self.queue
        while not self.closed and self._wants_spilled(consumer):
            found = self.group_spill.next(consumer)
            if found is None or queue.dispatcher.groups is None:
                return
            _, cursor, (page, index) = found
            block = self._block(consumer, cursor, page, index)
            if block is None:
                return
            ref = self.load(cursor, (page, index), block.message(index))
            if ref is not None:
                queue.dispatcher.enlist_for_group(ref, consumer)

    def _unload_ring(self) -> None:
        """Unload undelivered messages of a ring: in memory they would count towards the ring's size, and requeued
        messages could be evicted.
        """
        if self._is_ring() and not self.closed:
            self.unload_until(lambda: False)

    # ---- blocks

    def _block(self, requester: object, cursor: Cursor, page: Page, index: int) -> Block | None:
        """Return the block with a position; None if it must be read first: the loader calls `work` after the read."""
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
        """Read the next block of the page while this one is processed, if half of the budget is free."""
        page, stop, areas = block.page, block.stop, self.areas
        spare = areas.budget.used * 2 <= areas.budget.limit
        if (
            stop < page.count
            and self.block(page, stop) is None
            and spare
            and not areas.cache.is_reading(page)
        ):
            areas.cache.fetch(cursor.pages, page, stop, lambda came: None)


#: Minimum number of messages that a ring evicts unread before their keys are removed from the index.
MOST_EVICTED: Final = 1000

#: Number of positions that the rebuild of the index reads between two checks of the time.
BATCH: Final = 32


class LastValueArea(TargetArea):
    """The target area of a `LastValueQueue`."""

    def __init__(self, queue: LastValueQueue, areas: TargetAreas) -> None:
        super().__init__(queue, areas)
        self._evicted = 0  # number of evicted messages whose keys may still be in the index
        self._rebuild: Iterator[bool] | None = None
        self._rebuild_begun = 0
        self._unread: list[Cursor] = []  # cursors that the rebuild has yet to read
        self.last_values = queue

    def rebuild(self, cursor: Cursor) -> None:
        """Suspend the delivery of a queue that has pages when the broker starts, until the index has all messages of
        the pages.
        """
        self._unread.append(cursor)
        if self._rebuild is None:
            self._rebuild = self._read_all()
            self._rebuild_begun = self.queue.broker.clock.steady.now
            self.queue.dispatcher.suspend()
            self.areas.loader.request(self)

    def _end_rebuild(self) -> None:
        """Resume delivery: the index is complete, the pages are empty, or the queue is deleted."""
        if self._rebuild is not None:
            self._rebuild = None
            self._unread = []
            self._last_blocks.clear()
            self.queue.dispatcher.resume()
            self.demand()

    def _read_all(self) -> Iterator[bool]:
        """Add the messages that wait in the pages to the index. Yields True to wait for a block, False for a pause."""
        queue = self.last_values
        # message numbers are needed only to compare the pages of several addresses
        numbers: dict[int, int] | None = {} if len(self._unread) > 1 else None
        last: Block | None = None
        done = 0
        for cursor in self._unread:
            for page in list(cursor.pages.in_order()):
                for index in cursor.waiting_of(page):
                    while cursor.is_waiting(page, index):
                        block = self._block(cursor, cursor, page, index)
                        if block is not None:
                            if block is not last:
                                last = block
                                self._read_ahead(cursor, block)
                            queue.find_on_disk(cursor, page, index, block.message(index), numbers)
                            break
                        yield True
                    done += 1
                    if done % BATCH == 0:
                        yield False

    # ---- messages enter, and leave unread

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        self.last_values.become_last(message, self.last_values.encode(cursor.pages, position))
        super().on_paged(cursor, message, position)

    def unload(self, ref: Reference) -> None:
        # the message is due, but exceeds the memory budget: it returns to its page unless a newer value replaces it
        if self.last_values.fall_due(ref):
            super().unload(ref)

    def evict(self, position: Position) -> None:
        super().evict(position)
        self._evicted += 1
        if self._evicted > max(MOST_EVICTED, self.last_values.keys // 2):
            self._evicted = 0
            self.last_values.forget_settled()

    def purge(self) -> Iterator[int]:
        yield from super().purge()
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
            return
        for reads in self._rebuild:
            if self.closed or reads:
                return
            if not in_time():
                self.areas.loader.request(self)
                return
        if self.closed:
            return
        queue = self.last_values
        log.info(
            "last-value queue %s: index of %d keys rebuilt from pages in %d ms",
            queue.name,
            queue.keys,
            queue.broker.clock.steady.now - self._rebuild_begun,
            extra={"queue": queue.name, "address": queue.address.name},
        )
        self._end_rebuild()

    def _end(self) -> None:
        super()._end()
        self._end_rebuild()


#: Divisor of the memory budget: the share that an attempt to free memory frees in addition to the required bytes.
EXTRA_FREED: Final = 16

#: Milliseconds between an unsuccessful attempt to free memory and the next attempt.
RETRY_AFTER: Final = 20

#: Divisors of the memory budget. A new message of a queue without consumers stays in memory if at most 1/`IDLE` of the
#: budget is in use, and this queue's messages use at most 1/`ONE_IDLE` of it.
IDLE, ONE_IDLE = 2, 8

#: Divisor of the memory budget: share in use above which the head of a queue without consumers is not read.
AHEAD: Final = 4


class HeadCache:
    """The target areas with messages in memory and without active consumers, in the order of `TargetAreas.idle`."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.areas: OrderedDict[TargetArea, None] = OrderedDict()

    def shrink(self, size: int) -> None:
        """Unload messages, in total at least ``size`` bytes, or all if they have less."""
        end = self._budget.used - size
        for area in list(self.areas):
            if self._budget.used <= end:
                return
            if not area.queue.dispatcher.active:
                area.unload_until(lambda: self._budget.used <= end)
            if self._budget.used > end:
                del self.areas[area]  # `TargetAreas.idle` adds the area again

    @property
    def bytes(self) -> int:
        """Total size in bytes of the messages that can be unloaded."""
        return sum(area.ready_size for area in self.areas if not area.queue.dispatcher.active)


class TargetAreas:
    """All target areas and their shared loader, caches and budget. Implements `PagedQueues`."""

    def __init__(self, broker: Services) -> None:
        self._full_until = 0
        self._broker = broker
        self.budget = MemoryBudget(broker.configuration.dispatch_memory)
        self.active_queues = ActiveQueues(broker)
        self.loader = Loader(broker.clock, self.active_queues.count)
        self.cache = PendingCache(self)
        self.head_cache = HeadCache(self.budget)
        self.areas: set[TargetArea] = set()
        self._times: dict[Pages, PageTimes] = {}
        broker.areas = self

    # ---- PagedQueues, for the broker

    def cursor(self, queue: Queue, pages: Pages) -> Cursor:
        cursor, area = pages.cursor(queue), queue.paged
        if not isinstance(area, TargetArea):
            area = (
                LastValueArea(queue, self) if isinstance(queue, LastValueQueue) else TargetArea(queue, self)
            )
            self.areas.add(area)
            queue.set_pages(area)
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
        """Remove a closed area."""
        self.areas.discard(area)
        self.head_cache.areas.pop(area, None)

    def idle(self, area: TargetArea) -> None:
        """Add an area without active consumers to the head cache."""
        self.head_cache.areas[area] = None
        if self.budget.used > self.budget.limit:
            self._full_until = 0
            self.free_memory(0)

    def free_memory(self, size: int) -> bool:
        """Return whether the budget has space for ``size`` more bytes. Shrinks the caches to make space."""
        budget = self.budget
        if budget.used + size <= budget.limit:
            return True
        now = self._broker.clock.steady.now
        if now < self._full_until:
            return False
        end = budget.limit - budget.limit // EXTRA_FREED - size
        self.head_cache.shrink(budget.used - end)
        self.cache.shrink(max(0, budget.used - end))
        if budget.used + size <= budget.limit:
            return True
        self._full_until = now + RETRY_AFTER
        return False

    def within_budget(self) -> bool:
        """Whether memory use is within the budget."""
        return self.budget.used <= self.budget.limit

    def idle_capacity(self, size: int) -> bool:
        """Return whether a queue without consumers may have ``size`` bytes of new messages in memory."""
        budget = self.budget
        return budget.used <= budget.limit // IDLE and size <= budget.limit // ONE_IDLE

    def head_capacity(self, size: int) -> bool:
        """Return whether a queue without consumers that has ``size`` bytes in memory may load more of its head."""
        budget = self.budget
        return budget.used <= budget.limit // AHEAD and size < budget.limit // ONE_IDLE

    def _times_of(self, pages: Pages) -> PageTimes:
        times = self._times.get(pages)
        if times is None:
            times = self._times[pages] = PageTimes(self, pages, self._broker.clock)
        return times

    def lost(self, pages: Pages) -> None:
        """Continue after an unreadable block, whose messages the store has settled."""
        for queue in map(as_queue, list(pages.cursors)):
            area = queue.paged
            if isinstance(area, TargetArea):
                area.version += 1
                self.loader.request(area)
        self._broker.clock.soon(lambda: leave_if_empty(pages.address))

    # ---- gauges

    @property
    def pending_cache_bytes(self) -> int:
        """Total size in bytes of the cached blocks."""
        return self.budget.blocks

    @property
    def head_cache_bytes(self) -> int:
        """Bytes of the messages in memory that belong to queues without active consumers."""
        return self.head_cache.bytes

    @property
    def direct_entries(self) -> int:
        """Number of messages from pages that are in memory and not in delivery."""
        return sum(area.ready_messages for area in self.areas)

    @property
    def reference_entries(self) -> int:
        """Number of positions on disk that are known to match a selector."""
        return sum(
            len(track) for area in self.areas for one in area.lists.values() for track in one.tracks.values()
        )

    @property
    def watermark_lag(self) -> int:
        """Number of messages on disk that belong to queues with consumers."""
        return sum(area.waiting for area in self.areas if area.queue.consumers)

    @property
    def blocks_read(self) -> int:
        """Number of blocks read from pages since the start."""
        return self.cache.blocks_read
