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
#: Waiting or timed: positions that are not in memory.
ON_DISK = re.compile(rb"[\x01-\x0a\x0c]+")
_LEFT_IN_MEMORY = bytes(LOADED if state == LOADED else 0 for state in range(256))


class PendingUpdates:
    """Changes of one queue in one page that are encoded together."""

    __slots__ = ("returned", "settled", "spans", "takers")

    def __init__(self) -> None:
        self.settled: list[int] = []  # index << 3 | 4 if delivered without a record | reason
        self.spans: list[tuple[int, int, int]] = []  # from, to before, reason with `WENT_OUT` where they did
        #: Returned deliveries: index, deliveries, how many of them have no record yet, attempts, due, time.
        self.returned: list[tuple[int, int, int, int, int, int]] = []
        self.takers: dict[int, str] | None = None  # by index, who acknowledged; where that is wanted


class QueuePageState(LiveRecord):
    """One byte for each message of a page, as one queue sees it (see `Cursor.states`), and counts of them.

    ``states`` may be shorter than the page: positions missing at its end are not this queue's. States that were not
    used for a while are compressed (`compress_states`); ``states`` is empty until `expand_states`.
    """

    __slots__ = (
        "_packed",
        "_unlogged",
        "counts",
        "cursor",
        "dues",
        "levels",
        "listed",
        "loaded",
        "logged",
        "mark",
        "updates",
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
        self.updates: PendingUpdates | None = None  # what can be added to
        self.mark: object = None  # the transaction that ``updates`` belongs to
        self.logged: PendingUpdates | None = None  # the same of messages that no restart brings back
        self._packed = b""
        self._unlogged: list[PendingUpdates] = []

    def count_up(self) -> None:
        """Set the counts by what ``states`` has."""
        states = self.states
        self.levels = [states.count(level + 1) for level in range(10)]
        self.timed = states.count(TIMED)
        self.loaded = states.count(LOADED)
        self.remaining = sum(self.levels) + self.timed + self.loaded

    # ---- states

    def compress_states(self) -> None:
        """Keep the states compressed: for a page that nothing is added to, while nothing is loaded."""
        if self.states:
            self._packed = compress(self.states, 1) if self.remaining else b""
            self.states = bytearray()

    def expand_states(self) -> bytearray:
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
        states, settled = self.expand_states(), 0
        for match in ON_DISK.finditer(states):
            start, stop = match.span()
            settled += stop - start
            if retains and not (durable and self.page.contents is None):
                kept = self.page.keeps
                log = self.logged_updates().settled
                log += [index << 3 | reason for index in range(start, stop) if not (durable and kept(index))]
            if durable and self.page.contents is None:
                self.pending_updates().spans.append((start, stop, reason))
            elif durable:
                keeps = self.page.keeps
                positions = [index << 3 | reason for index in range(start, stop) if keeps(index)]
                if positions:
                    self.pending_updates().settled += positions
        self.states = states = states.translate(_LEFT_IN_MEMORY)
        if self.counts is not None:
            self.counts = {index: counts for index, counts in self.counts.items() if states[index]}
        if self.dues is not None:
            self.dues = {index: due for index, due in self.dues.items() if states[index]}
        self.count_up()
        return settled

    # ---- records for the journal

    def pending_updates(self) -> PendingUpdates:
        """Where to add what is new. What happens in a transaction is not mixed with what happened before it."""
        log = self.cursor.pages.log
        updates = self.updates
        if updates is None or self.mark is not log.mark:
            updates = self.updates = PendingUpdates()
            self.mark = log.mark
            self._unlogged.append(updates)
            log.update(self)
        return updates

    def logged_updates(self) -> PendingUpdates:
        """Where to add what became of messages that are retained and that no restart brings back."""
        updates = self.logged
        if updates is None:
            updates = self.logged = PendingUpdates()
            self.cursor.pages.log.log_page(self)
        return updates

    def encode_logged(self, encoder: RecordEncoder) -> None:
        """Records of that."""
        updates, self.logged = self.logged, None
        if updates is not None:
            self._encode(updates, encoder, FOR_READERS)

    def encode(self, encoder: RecordEncoder) -> None:
        """Records of what is new."""
        updates = self._unlogged.pop(0)
        if updates is self.updates:
            self.updates = None
        self._encode(updates, encoder)

    def _encode(self, updates: PendingUpdates, encoder: RecordEncoder, scope: int = 0) -> None:
        address, queue = self._names(encoder)
        page, now = self.page.number, self.cursor.pages.clock.now
        kind, cause = Kind.PAGE_STATE, Cause.RETURNED
        for index, deliveries, unlogged, attempts, due, time in updates.returned:
            counts = (index, deliveries, attempts, due, time)
            encoder.add(PAGE_STATE.pack(kind, cause, unlogged, address, queue, page, *counts), scope)
        by_reason: dict[int, list[int]] = {}
        for settled in updates.settled:
            by_reason.setdefault(settled & 7, []).append(settled >> 3)
        for how, positions in by_reason.items():
            positions.sort()
            reason = how & 3 | (WENT_OUT if how & 4 else 0)
            for consumer, some in by_consumer(encoder, positions, updates.takers if how & 3 == 0 else None):
                head = PAGE_SETTLED.pack(Kind.PAGE_SETTLED, reason, consumer, address, queue, page, now)
                encoder.add(head + pack_runs(some), scope)
        for reason in sorted({span[2] for span in updates.spans}):
            runs = pack_spans(sorted([span[:2] for span in updates.spans if span[2] == reason]))
            head = PAGE_SETTLED.pack(Kind.PAGE_SETTLED, reason, 0, address, queue, page, now)
            encoder.add(head + runs, scope)

    def encode_all(self, encoder: RecordEncoder) -> None:
        """Records of all that this queue is done with in this page, and of the counts of what is left."""
        address, queue = self._names(encoder)
        page = self.page.number
        states = decompress(self._packed) if self._packed else self.states
        spans = [match.span() for match in ZEROS.finditer(states)]
        if len(states) < self.page.count:
            spans.append((len(states), self.page.count))
        encoder.add(PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, address, queue, page) + pack_spans(spans))
        for index, (deliveries, attempts) in (self.counts or {}).items():
            due = 0 if self.dues is None else self.dues.get(index, 0)
            counts = (index, deliveries, attempts, due, 0)
            encoder.add(PAGE_STATE.pack(Kind.PAGE_STATE, Cause.REPEATED, 0, address, queue, page, *counts))

    def _names(self, encoder: RecordEncoder) -> tuple[int, int]:
        cursor = self.cursor
        encoder.name_queue(cursor.queue)
        return encoder.name_address(cursor.pages.address), cursor.queue.number


def by_consumer(
    encoder: RecordEncoder, positions: list[int], takers: dict[int, str] | None
) -> Iterable[tuple[int, list[int]]]:
    """Numbers of consumers, and what of the positions each of them took; 0 for those of whom it is not known."""
    if not takers:
        return ((0, positions),)
    found: dict[int, list[int]] = {}
    for position in positions:
        taker = takers.get(position)
        found.setdefault(0 if taker is None else encoder.name_consumer(taker), []).append(position)
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
        "_expanded",
        "_lowest",
        "_numbers",
        "_order",
        "_page_states",
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
        self._page_states: dict[AnyPage, QueuePageState] = {}
        self._order: list[QueuePageState] = []
        self._numbers: list[int] = []  # of their pages
        self._lowest = [0] * 10  # by priority: no page before that number has anything waiting
        self._expanded: list[QueuePageState] = []

    # ---- finding

    def first(self, level: int) -> Position | None:
        """The first waiting position of a priority."""
        if not self.levels[level]:
            return None
        order = self._order
        for place in range(bisect_left(self._numbers, self._lowest[level]), len(order)):
            page_state = order[place]
            if page_state.levels[level]:
                page = page_state.page
                self._lowest[level] = page.number
                return page, (page_state.states or self._expand(page_state)).find(level + 1)
        raise AssertionError("something waits, and no page has it")

    def following(self, level: int, page: Page, index: int) -> Position | None:
        """The first waiting position of a priority at or after ``(page, index)``; ``index`` may be behind its end."""
        if not self.levels[level]:
            return None
        order, number = self._order, page.number
        for place in range(bisect_left(self._numbers, number), len(order)):
            page_state = order[place]
            if page_state.levels[level]:
                first = index if page_state.page is page else 0
                found = (page_state.states or self._expand(page_state)).find(level + 1, first)
                if found >= 0:
                    return page_state.page, found
        return None

    def is_waiting(self, page: Page, index: int) -> bool:
        """Whether a position is on disk only, and not timed."""
        page_state = self._page_states.get(page)
        if page_state is None or not page_state.remaining:
            return False
        states = page_state.states or self._expand(page_state)
        return index < len(states) and 0 < states[index] < LOADED

    def states(self, page: Page, first: int, stop: int) -> bytes:
        """One byte a position: priority + 1 where it is waiting, `LOADED`, `TIMED`, or 0 (settled, or not its own)."""
        page_state = self._page_states.get(page)
        if page_state is None or not page_state.remaining:
            return bytes(stop - first)
        return bytes((page_state.states or self._expand(page_state))[first:stop]).ljust(stop - first, b"\0")

    def timed_of(self, page: Page) -> list[int]:
        """The timed positions of a page, ascending."""
        page_state = self._page_states.get(page)
        if page_state is None or not page_state.timed:
            return []
        states = page_state.states or self._expand(page_state)
        return [index for index, state in enumerate(bytes(states)) if state == TIMED]

    def waiting_of(self, page: Page) -> list[int]:
        """The waiting positions of a page, ascending."""
        page_state = self._page_states.get(page)
        if page_state is None or not any(page_state.levels):
            return []
        states = page_state.states or self._expand(page_state)
        return [index for index, state in enumerate(bytes(states)) if 0 < state < LOADED]

    def counts(self, page: Page, index: int) -> tuple[int, int]:
        """Deliveries and failed attempts of a position so far."""
        page_state = self._page_states.get(page)
        return (
            NEVER_DELIVERED
            if page_state is None or page_state.counts is None
            else page_state.counts.get(index, NEVER_DELIVERED)
        )

    def due(self, block: Block, index: int) -> int:
        """When a position is to be delivered (epoch ms), 0 for at once: as it was sent, or as it came back."""
        page_state = self._page_states.get(block.page)
        if page_state is not None and page_state.dues is not None and index in page_state.dues:
            return page_state.dues[index]
        return block.due(index)

    # ---- loading

    def take(self, page: Page, index: int) -> tuple[int, int]:
        """A waiting or timed position is loaded from now on; gives its deliveries and failed attempts so far."""
        page_state = self._page_states[page]
        states = page_state.states or self._expand(page_state)
        state = states[index]
        if state == TIMED:
            page_state.timed -= 1
            self.timed -= 1
        else:
            assert 0 < state < LOADED, "this position does not wait"
            state -= 1
            page_state.levels[state] -= 1
            self.levels[state] -= 1
            self.waiting -= 1
        states[index] = LOADED
        page_state.loaded += 1
        counts = page_state.counts
        return NEVER_DELIVERED if counts is None else counts.get(index, NEVER_DELIVERED)

    def put_back(self, ref: Reference) -> None:
        """A loaded reference is given up by memory: its position is waiting again, with its counts."""
        assert ref.position is not None
        page, index = ref.position
        page_state = self._page_states.get(page)
        if page_state is None:
            return
        states = page_state.states
        if states[index] != LOADED:
            return
        if ref.deliveries or ref.attempts:
            self._set_counts(page_state, index, ref)
        self._set_due(page_state, index, ref)
        if ref.state == SCHEDULED:
            states[index] = TIMED
            if not 0 < page.soonest_due <= ref.due:
                page.soonest_due = ref.due
            page_state.timed += 1
            self.timed += 1
        else:
            level = ref.message.traits.priority
            states[index] = level + 1
            page_state.levels[level] += 1
            self.levels[level] += 1
            self.waiting += 1
            if page.number < self._lowest[level]:
                self._lowest[level] = page.number
        page_state.loaded -= 1
        if not page_state.loaded:
            self._keep_expanded(page_state)

    def returned(self, ref: Reference) -> None:
        """A delivery of a loaded position came back: its counts are new."""
        assert ref.position is not None
        page, index = ref.position
        page_state = self._page_states.get(page)
        if page_state is None or page_state.states[index] != LOADED:
            return
        logged = (page_state.counts or {}).get(index, NEVER_DELIVERED)[0]
        self._set_counts(page_state, index, ref)
        self._set_due(page_state, index, ref)
        if self.durable and ref.message.traits.durable:
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - logged, ref.attempts, due)
            page_state.pending_updates().returned.append((index, *counts, self.pages.clock.now))

    @staticmethod
    def _set_counts(page_state: QueuePageState, index: int, ref: Reference) -> None:
        if page_state.counts is None:
            page_state.counts = {}
        page_state.counts[index] = (ref.deliveries, ref.attempts)

    @staticmethod
    def _set_due(page_state: QueuePageState, index: int, ref: Reference) -> None:
        """It stays while the position is in memory: compaction may repeat it (`QueuePageState.encode_all`)."""
        if ref.state == SCHEDULED:
            if page_state.dues is None:
                page_state.dues = {}
            page_state.dues[index] = ref.due
        elif page_state.dues is not None:
            page_state.dues.pop(index, None)

    # ---- settling

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A loaded position is done with."""
        place = ref.position
        assert place is not None
        page, index = place
        page_state = self._page_states.get(page)
        if page_state is None:
            return  # the queue was deleted
        states = page_state.states
        if states[index] != LOADED:
            return
        states[index] = 0
        page_state.loaded -= 1
        logged = page_state.counts.pop(index, NEVER_DELIVERED)[0] if page_state.counts else 0
        if page_state.dues is not None:
            page_state.dues.pop(index, None)
        if self.durable and ref.message.traits.durable:
            out = 4 if ref.deliveries > logged else 0
            page_state.pending_updates().settled.append(index << 3 | out | reason)
        self.remaining -= 1
        page_state.remaining = left = page_state.remaining - 1
        if not left:
            self._finished(page_state)
        elif not page_state.loaded:
            self._keep_expanded(page_state)

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """A waiting or timed position is done with unread (rings that count paged messages)."""
        self.take(page, index)
        page_state = self._page_states[page]
        states = page_state.states
        states[index] = 0
        page_state.loaded -= 1
        if page_state.counts:
            page_state.counts.pop(index, None)
        if page_state.dues is not None:
            page_state.dues.pop(index, None)
        if self.durable and page.keeps(index):
            page_state.pending_updates().settled.append(index << 3 | reason)
        self.remaining -= 1
        page_state.remaining -= 1
        if not page_state.remaining:
            self._finished(page_state)

    def untouched(self, page: Page) -> bool:
        """Whether `acknowledge` may be used: nothing in a page was delivered and came back."""
        page_state = self._page_states.get(page)
        return page_state is not None and not page_state.counts

    def acknowledge(self, page: Page, first: int, stop: int, durable: bool) -> None:
        """See `broker.paging.Cursor.acknowledge`: as `take` and `settle` of each."""
        page_state = self._page_states[page]
        states = page_state.states or self._expand(page_state)
        number, level = stop - first, states[first] - 1
        states[first:stop] = bytes(number)
        page_state.levels[level] -= number
        self.levels[level] -= number
        self.waiting -= number
        if durable and self.durable:
            page_state.pending_updates().spans.append((first, stop, WENT_OUT | Reason.ACKNOWLEDGED))
        self.remaining -= number
        page_state.remaining = left = page_state.remaining - number
        if not left:
            self._finished(page_state)
        elif not page_state.loaded:
            self._keep_expanded(page_state)

    def purge(self, reason: Reason) -> Iterator[int]:
        """See `broker.paging.Cursor.purge`. What is written meanwhile stays."""
        for page_state in self._order[::-1]:
            if page_state.remaining and self._page_states.get(page_state.page) is page_state:
                yield self._purge(page_state, reason)

    def _purge(self, page_state: QueuePageState, reason: Reason) -> int:
        self._count(page_state, -1)
        settled = page_state.purge(reason, self.durable, self.retains(page_state.page))
        self._count(page_state, 1)
        if not page_state.remaining:
            self._finished(page_state)
        elif not page_state.loaded:
            self._keep_expanded(page_state)
        return settled

    def retains(self, page: Page) -> bool:
        """Whether what becomes of messages of a page is written for those too that no restart brings back."""
        return False

    def lose(self, page: Page, indexes: Sequence[int]) -> int:
        """Kill unreadable positions that are not in memory; returns how many there were."""
        page_state = self._page_states.get(page)
        if page_state is None or not page_state.remaining:
            return 0
        states = page_state.states or self._expand(page_state)
        count = len(states)
        lost = [index for index in indexes if index < count and states[index] and states[index] != LOADED]
        for index in lost:
            self.settle_waiting(page, index, Reason.KILLED)
        return len(lost)

    def _count(self, page_state: QueuePageState, sign: int) -> None:
        self.remaining += sign * page_state.remaining
        self.timed += sign * page_state.timed
        for level, waiting in enumerate(page_state.levels):
            if waiting:
                self.levels[level] += sign * waiting
                self.waiting += sign * waiting

    # ---- holdings

    def page_state(self, page: Page) -> QueuePageState:
        """Its state in a page, created on first use."""
        page_state = self._page_states.get(page)
        if page_state is None:
            page_state = self._page_states[page] = QueuePageState(self, page)
            page.page_states[page_state] = None
        return page_state

    def known_state(self, page: Page) -> QueuePageState | None:
        """Its state in a page, None if it has none."""
        return self._page_states.get(page)

    def adopt(self, page_state: QueuePageState) -> None:
        """A holding as recovery found it, in ascending order of pages."""
        self._page_states[page_state.page] = page_state
        page_state.page.page_states[page_state] = None
        if page_state.remaining:
            self._count(page_state, 1)
            self.enlist(page_state)

    def enlist(self, page_state: QueuePageState) -> None:
        """A holding of the last page has its first message."""
        self._order.append(page_state)
        self._numbers.append(page_state.page.number)
        self.pages.queue_entered(page_state.page)

    def _finished(self, page_state: QueuePageState) -> None:
        """Nothing is left in it. Its page keeps it: what was settled must be known while there is a file."""
        place = bisect_left(self._numbers, page_state.page.number)
        del self._order[place], self._numbers[place]
        page_state.counts = page_state.dues = None
        self.pages.queue_left(page_state.page)

    def drop(self, page: Page) -> None:
        """A page is gone."""
        self._page_states.pop(page, None)

    def end(self) -> None:
        """The queue is deleted: nothing here is its own any more."""
        order, self._order, self._numbers = self._order, [], []
        self._page_states, self._expanded = {}, []
        self.remaining = self.waiting = self.timed = 0
        self.levels = [0] * 10
        for page_state in order:
            self.pages.queue_left(page_state.page)

    def _expand(self, page_state: QueuePageState) -> bytearray:
        states = page_state.expand_states()
        self._keep_expanded(page_state)
        return states

    def _keep_expanded(self, page_state: QueuePageState) -> None:
        """Something was done with a holding; the one for which that is the longest ago is cooled."""
        if page_state.listed or page_state.page.contents is not None:
            return
        at_hand = self._expanded
        page_state.listed = True
        at_hand.append(page_state)
        if len(at_hand) > EXPANDED_STATES:
            oldest = at_hand.pop(0)
            oldest.listed = False
            if not oldest.loaded and oldest.page.contents is None:
                oldest.compress_states()

    def complete(self, page_state: QueuePageState) -> None:
        """Nothing will be added to the page of a holding."""
        if not page_state.loaded:
            self._keep_expanded(page_state)


class RetainingCursor(Cursor):
    """The same where messages are retained: it notes who has acknowledged, and what becomes of messages that no restart
    brings back. No other cursor needs to ask for that.
    """

    __slots__ = ()

    def retains(self, page: Page) -> bool:
        return page.retains

    def untouched(self, page: Page) -> bool:
        return False  # each is recorded by itself

    def _is_logged(self, ref: Reference) -> bool:
        """Whether a loaded position is retained, and no restart brings it back."""
        traits = ref.message.traits
        return not (self.durable and traits.durable) and traits.retained >= self.queue.retains_from

    def returned(self, ref: Reference) -> None:
        assert ref.position is not None
        page, index = ref.position
        page_state = self._page_states.get(page)
        if page_state is not None and page_state.states[index] == LOADED and self._is_logged(ref):
            logged = (page_state.counts or {}).get(index, NEVER_DELIVERED)[0]
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - logged, ref.attempts, due)
            page_state.logged_updates().returned.append((index, *counts, self.pages.clock.now))
        super().returned(ref)

    def settle(self, ref: Reference, reason: Reason) -> None:
        assert ref.position is not None
        page, index = ref.position
        page_state, taker = self._page_states.get(page), ref.last_rejected_by
        updates = None
        if page_state is not None and page_state.states[index] == LOADED and self._is_logged(ref):
            logged = (page_state.counts or {}).get(index, NEVER_DELIVERED)[0]
            out = 4 if ref.deliveries > logged else 0
            updates = page_state.logged_updates()
            updates.settled.append(index << 3 | out | reason)
        super().settle(ref, reason)
        if page_state is None or taker is None or reason is not Reason.ACKNOWLEDGED:
            return
        updates = updates or page_state.updates
        if updates is not None and taker.consumer_name:
            if updates.takers is None:
                updates.takers = {}
            updates.takers[index] = taker.consumer_name

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        if page.retains and not (self.durable and page.keeps(index)):
            self._page_states[page].logged_updates().settled.append(index << 3 | reason)
        super().settle_waiting(page, index, reason)


class QueueRemoved(LiveRecord):
    """A queue of an address, by their numbers, and a page."""

    __slots__ = ("_address", "_page", "_queue")

    def __init__(self, address: int, queue: int, page: Page) -> None:
        super().__init__()
        self._address = address
        self._queue = queue
        self._page = page

    def encode(self, encoder: RecordEncoder) -> None:
        """All of the page is settled."""
        page = self._page
        if not self.gone:
            head = PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, self._address, self._queue, page.number)
            encoder.add(head + pack_spans([(0, page.count)]))
