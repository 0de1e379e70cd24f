"""A cursor: what one queue has in the pages of one address."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stompring.broker.paging import LOADED, TIMED, Position
from stompring.broker.reference import SCHEDULED, Reference
from stompring.broker.storage import Reason

from .holding import Holding

if TYPE_CHECKING:
    from stompring.broker.paging import Page as AnyPage
    from stompring.broker.queue import Queue

    from .block import Block
    from .page import Page
    from .pages import Pages

#: Holdings of complete pages that a cursor keeps at hand beside those with loaded messages.
AT_HAND = 2

NEVER_OUT = (0, 0)


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
        self._holdings: dict[AnyPage, Holding] = {}
        self._order: list[Holding] = []
        self._numbers: list[int] = []  # of their pages
        self._lowest = [0] * 10  # by priority: no page before that number has anything waiting
        self._at_hand: list[Holding] = []

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
            NEVER_OUT if holding is None or holding.counts is None else holding.counts.get(index, NEVER_OUT)
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
        return NEVER_OUT if counts is None else counts.get(index, NEVER_OUT)

    def put_back(self, ref: Reference) -> None:
        """A loaded reference is given up by memory: its position is waiting again, its counts are kept."""
        assert ref.place is not None
        page, index = ref.place
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
        assert ref.place is not None
        page, index = ref.place
        holding = self._holdings.get(page)
        if holding is None or holding.states[index] != LOADED:
            return
        told = (holding.counts or {}).get(index, NEVER_OUT)[0]
        self._keep_counts(holding, index, ref)
        if self.durable and ref.message.traits.durable:
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - told, ref.attempts, due)
            holding.tell_of().returned.append((index, *counts, self.pages.clock.now))

    @staticmethod
    def _keep_counts(holding: Holding, index: int, ref: Reference) -> None:
        if holding.counts is None:
            holding.counts = {}
        holding.counts[index] = (ref.deliveries, ref.attempts)

    # ---- settling

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A loaded position is done with."""
        place = ref.place
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
        told = holding.counts.pop(index, NEVER_OUT)[0] if holding.counts else 0
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

    def _purge(self, holding: Holding, reason: Reason) -> int:
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

    def _count(self, holding: Holding, sign: int) -> None:
        self.remaining += sign * holding.remaining
        self.timed += sign * holding.timed
        for level, waiting in enumerate(holding.levels):
            if waiting:
                self.levels[level] += sign * waiting
                self.waiting += sign * waiting

    # ---- holdings

    def holding(self, page: Page) -> Holding:
        """What it has in a page, made when first asked for."""
        holding = self._holdings.get(page)
        if holding is None:
            holding = self._holdings[page] = Holding(self, page)
            page.holdings.append(holding)
        return holding

    def adopt(self, holding: Holding) -> None:
        """A holding as recovery found it, in ascending order of pages."""
        self._holdings[holding.page] = holding
        holding.page.holdings.append(holding)
        if holding.remaining:
            self._count(holding, 1)
            self.enlist(holding)

    def enlist(self, holding: Holding) -> None:
        """A holding of the last page has its first message."""
        self._order.append(holding)
        self._numbers.append(holding.page.number)
        self.pages.held(holding.page)

    def _finished(self, holding: Holding) -> None:
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

    def _thaw(self, holding: Holding) -> bytearray:
        states = holding.thaw()
        self._keep_at_hand(holding)
        return states

    def _keep_at_hand(self, holding: Holding) -> None:
        """Something was done with a holding; the one for which that is the longest ago is cooled."""
        if holding.listed or holding.page.contents is not None:
            return
        at_hand = self._at_hand
        holding.listed = True
        at_hand.append(holding)
        if len(at_hand) > AT_HAND:
            oldest = at_hand.pop(0)
            oldest.listed = False
            if not oldest.loaded and oldest.page.contents is None:
                oldest.cool()

    def complete(self, holding: Holding) -> None:
        """Nothing will be added to the page of a holding."""
        if not holding.loaded:
            self._keep_at_hand(holding)


class NotingCursor(Cursor):
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
        assert ref.place is not None
        page, index = ref.place
        holding = self._holdings.get(page)
        if holding is not None and holding.states[index] == LOADED and self._is_logged(ref):
            told = (holding.counts or {}).get(index, NEVER_OUT)[0]
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - told, ref.attempts, due)
            holding.log_of().returned.append((index, *counts, self.pages.clock.now))
        super().returned(ref)

    def settle(self, ref: Reference, reason: Reason) -> None:
        """See `Cursor.settle`."""
        assert ref.place is not None
        page, index = ref.place
        holding, taker = self._holdings.get(page), ref.avoid
        news = None
        if holding is not None and holding.states[index] == LOADED and self._is_logged(ref):
            told = (holding.counts or {}).get(index, NEVER_OUT)[0]
            out = 4 if ref.deliveries > told else 0
            news = holding.log_of()
            news.settled.append(index << 3 | out | reason)
        super().settle(ref, reason)
        if holding is None or taker is None or reason is not Reason.ACKNOWLEDGED:
            return
        news = news or holding.news
        if news is not None and taker.taker_name:
            if news.takers is None:
                news.takers = {}
            news.takers[index] = taker.taker_name

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """See `Cursor.settle_waiting`."""
        if page.retains and not (self.durable and page.keeps(index)):
            self._holdings[page].log_of().settled.append(index << 3 | reason)
        super().settle_waiting(page, index, reason)
