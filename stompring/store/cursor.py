"""A cursor: the position of one queue in the pages of one address, and its state in each page."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING
from zlib import compress, decompress

from stompring.broker.paging import LOADED, TIMED, Position
from stompring.broker.reference import SCHEDULED, Reference
from stompring.broker.storage import Reason

from .encoder import RecordEncoder
from .record import FOR_READERS, PAGE_CURSOR, PAGE_SETTLED, PAGE_STATE, WENT_OUT, Cause, Kind, pack_runs
from .segment import LiveRecord

if TYPE_CHECKING:
    from stompring.broker.paging import Page as AnyPage
    from stompring.broker.queue import Queue

    from .page_reader import Block
    from .pages import Page, Pages

_RUN = Struct("<II")
ZEROS = re.compile(rb"\0+")
#: Waiting or timed: what nobody has in memory.
ON_DISK = re.compile(rb"[\x01-\x0a\x0c]+")
_LEFT_IN_MEMORY = bytes(LOADED if state == LOADED else 0 for state in range(256))


class PendingUpdates:
    """What the journal will be told at one place: after it nothing is added."""

    __slots__ = ("returned", "settled", "spans", "takers")

    def __init__(self) -> None:
        self.settled: list[int] = []  # index << 3 | 4 if it had gone out, of which nothing is told | reason
        self.spans: list[tuple[int, int, Reason]] = []  # from, to before
        #: What came back: index, deliveries, of which that many are not told yet, attempts, due, time.
        self.returned: list[tuple[int, int, int, int, int, int]] = []
        self.takers: dict[int, str] | None = None  # by index, who acknowledged; where that is wanted


class QueuePageState(LiveRecord):
    """One byte for each message of a page, as one queue sees it (see `Cursor.states`), and counts of them.

    ``states`` may be shorter than the page: what is missing at its end is not this queue's. Where nobody has
    looked for a while they are kept compressed (`cool`), and empty here; they come back with `thaw`.
    """

    __slots__ = (
        "_packed",
        "_untold",
        "counts",
        "cursor",
        "dues",
        "levels",
        "listed",
        "loaded",
        "logged",
        "mark",
        "news",
        "page",
        "remaining",
        "states",
        "timed",
    )

    whole = False

    def __init__(self, cursor: Cursor, page: Page, states: bytearray | None = None) -> None:
        super().__init__()
        self.cursor = cursor
        self.page = page
        self.states = bytearray() if states is None else states
        self.remaining = 0
        self.loaded = 0
        self.timed = 0
        self.levels = [0] * 10  # waiting, by priority
        self.counts: dict[int, tuple[int, int]] | None = None  # deliveries and attempts, where there were any
        self.dues: dict[int, int] | None = None  # of deliveries that came back, where they have one
        self.listed = False  # among those of its cursor that may be cooled
        self.news: PendingUpdates | None = None  # what can be added to
        self.mark: object = None  # the transaction that ``news`` belongs to
        self.logged: PendingUpdates | None = None  # the same of messages that no restart brings back
        self._packed = b""
        self._untold: list[PendingUpdates] = []

    def count_up(self) -> None:
        """Set the counts by what ``states`` has."""
        states = self.states
        self.levels = [states.count(level + 1) for level in range(10)]
        self.timed = states.count(TIMED)
        self.loaded = states.count(LOADED)
        self.remaining = sum(self.levels) + self.timed + self.loaded

    # ---- states

    def cool(self) -> None:
        """Keep the states compressed: for a page that nothing is added to, while nothing is loaded."""
        if self.states:
            self._packed = compress(self.states, 1) if self.remaining else b""
            self.states = bytearray()

    def thaw(self) -> bytearray:
        """The states, for reading and writing."""
        packed = self._packed
        if packed:
            self._packed = b""
            self.states = bytearray(decompress(packed))
        return self.states

    def purge(self, reason: Reason, durable: bool, retains: bool = False) -> int:
        """Everything that is waiting or timed is done with; returns how many.

        ``retains``: what becomes of messages that no restart brings back is written too.
        """
        states, settled = self.thaw(), 0
        for match in ON_DISK.finditer(states):
            start, stop = match.span()
            settled += stop - start
            if retains and not (durable and self.page.contents is None):
                kept = self.page.keeps
                log = self.log_of().settled
                log += [index << 3 | reason for index in range(start, stop) if not (durable and kept(index))]
            if durable and self.page.contents is None:
                self.tell_of().spans.append((start, stop, reason))
            elif durable:
                keeps = self.page.keeps
                positions = [index << 3 | reason for index in range(start, stop) if keeps(index)]
                if positions:
                    self.tell_of().settled += positions
        self.states = states = states.translate(_LEFT_IN_MEMORY)
        if self.counts is not None:
            self.counts = {index: counts for index, counts in self.counts.items() if states[index]}
        self.dues = None
        self.count_up()
        return settled

    # ---- what the journal is told

    def tell_of(self) -> PendingUpdates:
        """Where to add what is new. What happens in a transaction is not mixed with what happened before it."""
        log = self.cursor.pages.log
        news = self.news
        if news is None or self.mark is not log.mark:
            news = self.news = PendingUpdates()
            self.mark = log.mark
            self._untold.append(news)
            log.tell(self)
        return news

    def log_of(self) -> PendingUpdates:
        """Where to add what became of messages that are retained and that no restart brings back."""
        news = self.logged
        if news is None:
            news = self.logged = PendingUpdates()
            self.cursor.pages.log.log_page(self)
        return news

    def tell_logged(self, tail: RecordEncoder) -> None:
        """Records of that."""
        news, self.logged = self.logged, None
        if news is not None:
            self._tell(news, tail, FOR_READERS)

    def tell(self, tail: RecordEncoder) -> None:
        """Records of what is new."""
        news = self._untold.pop(0)
        if news is self.news:
            self.news = None
        self._tell(news, tail)

    def _tell(self, news: PendingUpdates, tail: RecordEncoder, scope: int = 0) -> None:
        address, queue = self._names(tail)
        page, now = self.page.number, self.cursor.pages.clock.now
        kind, cause = Kind.PAGE_STATE, Cause.RETURNED
        for index, deliveries, untold, attempts, due, time in news.returned:
            counts = (index, deliveries, attempts, due, time)
            tail.add(PAGE_STATE.pack(kind, cause, untold, address, queue, page, *counts), scope)
        by_reason: dict[int, list[int]] = {}
        for settled in news.settled:
            by_reason.setdefault(settled & 7, []).append(settled >> 3)
        for how, positions in by_reason.items():
            positions.sort()
            reason = how & 3 | (WENT_OUT if how & 4 else 0)
            for consumer, some in by_consumer(tail, positions, news.takers if how & 3 == 0 else None):
                told = PAGE_SETTLED.pack(Kind.PAGE_SETTLED, reason, consumer, address, queue, page, now)
                tail.add(told + pack_runs(some), scope)
        for reason in {span[2] for span in news.spans}:
            runs = pack_spans(span[:2] for span in news.spans if span[2] is reason)
            told = PAGE_SETTLED.pack(Kind.PAGE_SETTLED, reason, 0, address, queue, page, now)
            tail.add(told + runs, scope)

    def repeat(self, tail: RecordEncoder) -> None:
        """Records of all that this queue is done with in this page, and of the counts of what is left."""
        address, queue = self._names(tail)
        page = self.page.number
        states = decompress(self._packed) if self._packed else self.states
        spans = [match.span() for match in ZEROS.finditer(states)]
        if len(states) < self.page.count:
            spans.append((len(states), self.page.count))
        tail.add(PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, address, queue, page) + pack_spans(spans))
        for index, (deliveries, attempts) in (self.counts or {}).items():
            due = 0 if self.dues is None else self.dues.get(index, 0)
            counts = (index, deliveries, attempts, due, 0)
            tail.add(PAGE_STATE.pack(Kind.PAGE_STATE, Cause.REPEATED, 0, address, queue, page, *counts))

    def _names(self, tail: RecordEncoder) -> tuple[int, int]:
        cursor = self.cursor
        tail.name_queue(cursor.queue)
        return tail.name_address(cursor.pages.address), cursor.queue.number


def by_consumer(
    tail: RecordEncoder, positions: list[int], takers: dict[int, str] | None
) -> Iterable[tuple[int, list[int]]]:
    """Numbers of consumers, and what of the positions each of them took; 0 for those of whom it is not known."""
    if not takers:
        return ((0, positions),)
    found: dict[int, list[int]] = {}
    for position in positions:
        taker = takers.get(position)
        found.setdefault(0 if taker is None else tail.name_consumer(taker), []).append(position)
    return found.items()


def pack_spans(spans: Iterable[tuple[int, int]]) -> bytes:
    """Ascending spans, from and to before, as runs of u32 first, u32 count."""
    return b"".join([_RUN.pack(start, stop - start) for start, stop in spans])


#: Holdings of complete pages that a cursor keeps at hand beside those with loaded messages.
EXPANDED_STATES = 2

NEVER_DELIVERED = (0, 0)


class Cursor:
    """See `broker.paging.Cursor`. Holdings with something left stand in ``_order``, ascending by page."""

    __slots__ = (
        "_at_hand",
        "_holdings",
        "_lowest",
        "_numbers",
        "_order",
        "durable",
        "levels",
        "pages",
        "queue",
        "remaining",
        "timed",
        "waiting",
    )

    def __init__(self, pages: Pages, queue: Queue) -> None:
        self.pages = pages
        self.queue = queue
        self.durable = queue.durable and not queue.attributes.temporary
        self.remaining = 0
        self.waiting = 0
        self.timed = 0
        self.levels = [0] * 10
        self._holdings: dict[AnyPage, QueuePageState] = {}
        self._order: list[QueuePageState] = []
        self._numbers: list[int] = []  # of their pages
        self._lowest = [0] * 10  # by priority: no page before that number has anything waiting
        self._at_hand: list[QueuePageState] = []

    # ---- finding

    def first(self, level: int) -> Position | None:
        """The first waiting position of a priority."""
        if not self.levels[level]:
            return None
        order = self._order
        for place in range(bisect_left(self._numbers, self._lowest[level]), len(order)):
            holding = order[place]
            if holding.levels[level]:
                page = holding.page
                self._lowest[level] = page.number
                return page, (holding.states or self._thaw(holding)).find(level + 1)
        raise AssertionError("something waits, and no page has it")

    def following(self, level: int, page: Page, index: int) -> Position | None:
        """The first waiting position of a priority at or after ``(page, index)``; ``index`` may be behind its end."""
        if not self.levels[level]:
            return None
        order, number = self._order, page.number
        for place in range(bisect_left(self._numbers, number), len(order)):
            holding = order[place]
            if holding.levels[level]:
                first = index if holding.page is page else 0
                found = (holding.states or self._thaw(holding)).find(level + 1, first)
                if found >= 0:
                    return holding.page, found
        return None

    def is_waiting(self, page: Page, index: int) -> bool:
        """Whether a position is on disk only, and not timed."""
        holding = self._holdings.get(page)
        if holding is None or not holding.remaining:
            return False
        states = holding.states or self._thaw(holding)
        return index < len(states) and 0 < states[index] < LOADED

    def states(self, page: Page, first: int, stop: int) -> bytes:
        """One byte a position: priority + 1 where it is waiting, `LOADED`, `TIMED`, or 0 (settled, or not its own)."""
        holding = self._holdings.get(page)
        if holding is None or not holding.remaining:
            return bytes(stop - first)
        return bytes((holding.states or self._thaw(holding))[first:stop]).ljust(stop - first, b"\0")

    def timed_of(self, page: Page) -> list[int]:
        """The timed positions of a page, ascending."""
        holding = self._holdings.get(page)
        if holding is None or not holding.timed:
            return []
        states = holding.states or self._thaw(holding)
        return [index for index, state in enumerate(states) if state == TIMED]

    def waiting_of(self, page: Page) -> list[int]:
        """The waiting positions of a page, ascending."""
        holding = self._holdings.get(page)
        if holding is None or not any(holding.levels):
            return []
        states = holding.states or self._thaw(holding)
        return [index for index, state in enumerate(states) if 0 < state < LOADED]

    def counts(self, page: Page, index: int) -> tuple[int, int]:
        """Deliveries and failed attempts of a position so far."""
        holding = self._holdings.get(page)
        return (
            NEVER_DELIVERED
            if holding is None or holding.counts is None
            else holding.counts.get(index, NEVER_DELIVERED)
        )

    def due(self, block: Block, index: int) -> int:
        """When a position is to be delivered (epoch ms), 0 for at once: as it was sent, or as it came back."""
        holding = self._holdings.get(block.page)
        if holding is not None and holding.dues is not None and index in holding.dues:
            return holding.dues[index]
        return block.due(index)

    # ---- loading

    def take(self, page: Page, index: int) -> tuple[int, int]:
        """A waiting or timed position is loaded from now on; gives its deliveries and failed attempts so far."""
        holding = self._holdings[page]
        states = holding.states or self._thaw(holding)
        state = states[index]
        if state == TIMED:
            holding.timed -= 1
            self.timed -= 1
            if holding.dues is not None:
                holding.dues.pop(index, None)
        else:
            assert 0 < state < LOADED, "this position does not wait"
            state -= 1
            holding.levels[state] -= 1
            self.levels[state] -= 1
            self.waiting -= 1
        states[index] = LOADED
        holding.loaded += 1
        counts = holding.counts
        return NEVER_DELIVERED if counts is None else counts.get(index, NEVER_DELIVERED)

    def put_back(self, ref: Reference) -> None:
        """A loaded reference is given up by memory: its position is waiting again, its counts are kept."""
        assert ref.position is not None
        page, index = ref.position
        holding = self._holdings.get(page)
        if holding is None:
            return
        states = holding.states
        if states[index] != LOADED:
            return
        if ref.deliveries or ref.attempts:
            self._keep_counts(holding, index, ref)
        if ref.state == SCHEDULED:
            if holding.dues is None:
                holding.dues = {}
            holding.dues[index] = ref.due
            states[index] = TIMED
            if not 0 < page.soonest_due <= ref.due:
                page.soonest_due = ref.due
            holding.timed += 1
            self.timed += 1
        else:
            level = ref.message.traits.priority
            states[index] = level + 1
            holding.levels[level] += 1
            self.levels[level] += 1
            self.waiting += 1
            if page.number < self._lowest[level]:
                self._lowest[level] = page.number
        holding.loaded -= 1
        if not holding.loaded:
            self._keep_at_hand(holding)

    def returned(self, ref: Reference) -> None:
        """A delivery of a loaded position came back: its counts are new."""
        assert ref.position is not None
        page, index = ref.position
        holding = self._holdings.get(page)
        if holding is None or holding.states[index] != LOADED:
            return
        told = (holding.counts or {}).get(index, NEVER_DELIVERED)[0]
        self._keep_counts(holding, index, ref)
        if self.durable and ref.message.traits.durable:
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - told, ref.attempts, due)
            holding.tell_of().returned.append((index, *counts, self.pages.clock.now))

    @staticmethod
    def _keep_counts(holding: QueuePageState, index: int, ref: Reference) -> None:
        if holding.counts is None:
            holding.counts = {}
        holding.counts[index] = (ref.deliveries, ref.attempts)

    # ---- settling

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A loaded position is done with."""
        place = ref.position
        assert place is not None
        page, index = place
        holding = self._holdings.get(page)
        if holding is None:
            return  # the queue was deleted
        states = holding.states
        if states[index] != LOADED:
            return
        states[index] = 0
        holding.loaded -= 1
        told = holding.counts.pop(index, NEVER_DELIVERED)[0] if holding.counts else 0
        if self.durable and ref.message.traits.durable:
            out = 4 if ref.deliveries > told else 0
            holding.tell_of().settled.append(index << 3 | out | reason)
        self.remaining -= 1
        holding.remaining = left = holding.remaining - 1
        if not left:
            self._finished(holding)
        elif not holding.loaded:
            self._keep_at_hand(holding)

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """A waiting or timed position is done with unread (rings that count paged messages)."""
        self.take(page, index)
        holding = self._holdings[page]
        states = holding.states
        states[index] = 0
        holding.loaded -= 1
        if holding.counts:
            holding.counts.pop(index, None)
        if self.durable and page.keeps(index):
            holding.tell_of().settled.append(index << 3 | reason)
        self.remaining -= 1
        holding.remaining -= 1
        if not holding.remaining:
            self._finished(holding)

    def purge(self, reason: Reason) -> Iterator[int]:
        """See `broker.paging.Cursor.purge`. What is written meanwhile stays."""
        for holding in self._order[::-1]:
            if holding.remaining and self._holdings.get(holding.page) is holding:
                yield self._purge(holding, reason)

    def _purge(self, holding: QueuePageState, reason: Reason) -> int:
        self._count(holding, -1)
        settled = holding.purge(reason, self.durable, self.retains(holding.page))
        self._count(holding, 1)
        if not holding.remaining:
            self._finished(holding)
        elif not holding.loaded:
            self._keep_at_hand(holding)
        return settled

    def retains(self, page: Page) -> bool:
        """Whether what becomes of messages of a page is written for those too that no restart brings back."""
        return False

    def lose(self, page: Page, indexes: Sequence[int]) -> int:
        """Positions that nobody has in memory cannot be read: they are killed. Returns how many of them there were."""
        holding = self._holdings.get(page)
        if holding is None or not holding.remaining:
            return 0
        states = holding.states or self._thaw(holding)
        count = len(states)
        lost = [index for index in indexes if index < count and states[index] and states[index] != LOADED]
        for index in lost:
            self.settle_waiting(page, index, Reason.KILLED)
        return len(lost)

    def _count(self, holding: QueuePageState, sign: int) -> None:
        self.remaining += sign * holding.remaining
        self.timed += sign * holding.timed
        for level, waiting in enumerate(holding.levels):
            if waiting:
                self.levels[level] += sign * waiting
                self.waiting += sign * waiting

    # ---- holdings

    def holding(self, page: Page) -> QueuePageState:
        """What it has in a page, made when first asked for."""
        holding = self._holdings.get(page)
        if holding is None:
            holding = self._holdings[page] = QueuePageState(self, page)
            page.holdings.append(holding)
        return holding

    def adopt(self, holding: QueuePageState) -> None:
        """A holding as recovery found it, in ascending order of pages."""
        self._holdings[holding.page] = holding
        holding.page.holdings.append(holding)
        if holding.remaining:
            self._count(holding, 1)
            self.enlist(holding)

    def enlist(self, holding: QueuePageState) -> None:
        """A holding of the last page has its first message."""
        self._order.append(holding)
        self._numbers.append(holding.page.number)
        self.pages.held(holding.page)

    def _finished(self, holding: QueuePageState) -> None:
        """Nothing is left in it. Its page keeps it: what was settled must be known while there is a file."""
        place = bisect_left(self._numbers, holding.page.number)
        del self._order[place], self._numbers[place]
        holding.counts = holding.dues = None
        self.pages.let_go(holding.page)

    def drop(self, page: Page) -> None:
        """A page is gone."""
        self._holdings.pop(page, None)

    def end(self) -> None:
        """The queue is deleted: nothing here is its own any more."""
        order, self._order, self._numbers = self._order, [], []
        self._holdings, self._at_hand = {}, []
        self.remaining = self.waiting = self.timed = 0
        self.levels = [0] * 10
        for holding in order:
            self.pages.let_go(holding.page)

    def _thaw(self, holding: QueuePageState) -> bytearray:
        states = holding.thaw()
        self._keep_at_hand(holding)
        return states

    def _keep_at_hand(self, holding: QueuePageState) -> None:
        """Something was done with a holding; the one for which that is the longest ago is cooled."""
        if holding.listed or holding.page.contents is not None:
            return
        at_hand = self._at_hand
        holding.listed = True
        at_hand.append(holding)
        if len(at_hand) > EXPANDED_STATES:
            oldest = at_hand.pop(0)
            oldest.listed = False
            if not oldest.loaded and oldest.page.contents is None:
                oldest.cool()

    def complete(self, holding: QueuePageState) -> None:
        """Nothing will be added to the page of a holding."""
        if not holding.loaded:
            self._keep_at_hand(holding)


class RetainingCursor(Cursor):
    """The same where messages are retained: it notes who has acknowledged, and what becomes of messages that no restart
    brings back. No other cursor needs to ask for that.
    """

    __slots__ = ()

    def retains(self, page: Page) -> bool:
        """See `Cursor.retains`."""
        return page.retains

    def _is_logged(self, ref: Reference) -> bool:
        """Whether a loaded position is retained, and no restart brings it back."""
        traits = ref.message.traits
        return not (self.durable and traits.durable) and traits.retained >= self.queue.retains_from

    def returned(self, ref: Reference) -> None:
        """See `Cursor.returned`."""
        assert ref.position is not None
        page, index = ref.position
        holding = self._holdings.get(page)
        if holding is not None and holding.states[index] == LOADED and self._is_logged(ref):
            told = (holding.counts or {}).get(index, NEVER_DELIVERED)[0]
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - told, ref.attempts, due)
            holding.log_of().returned.append((index, *counts, self.pages.clock.now))
        super().returned(ref)

    def settle(self, ref: Reference, reason: Reason) -> None:
        """See `Cursor.settle`."""
        assert ref.position is not None
        page, index = ref.position
        holding, taker = self._holdings.get(page), ref.last_rejected_by
        news = None
        if holding is not None and holding.states[index] == LOADED and self._is_logged(ref):
            told = (holding.counts or {}).get(index, NEVER_DELIVERED)[0]
            out = 4 if ref.deliveries > told else 0
            news = holding.log_of()
            news.settled.append(index << 3 | out | reason)
        super().settle(ref, reason)
        if holding is None or taker is None or reason is not Reason.ACKNOWLEDGED:
            return
        news = news or holding.news
        if news is not None and taker.consumer_name:
            if news.takers is None:
                news.takers = {}
            news.takers[index] = taker.consumer_name

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """See `Cursor.settle_waiting`."""
        if page.retains and not (self.durable and page.keeps(index)):
            self._holdings[page].log_of().settled.append(index << 3 | reason)
        super().settle_waiting(page, index, reason)


class QueueRemoved(LiveRecord):
    """A queue of an address, by their numbers, and a page."""

    __slots__ = ("_address", "_page", "_queue")

    def __init__(self, address: int, queue: int, page: Page) -> None:
        super().__init__()
        self._address = address
        self._queue = queue
        self._page = page

    def tell(self, tail: RecordEncoder) -> None:
        """All of the page is settled."""
        page = self._page
        if not self.gone:
            head = PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, self._address, self._queue, page.number)
            tail.add(head + pack_spans([(0, page.count)]))
