"""What one queue has in one page, and what the journal is told of that."""

from __future__ import annotations

import re
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING
from zlib import compress, decompress

from stompring.broker.paging import LOADED, TIMED
from stompring.broker.storage import Reason

from .kept import Kept
from .record import FOR_READERS, PAGE_CURSOR, PAGE_SETTLED, PAGE_STATE, WENT_OUT, Cause, Kind, pack_runs
from .tail import Tail

if TYPE_CHECKING:
    from .cursor import Cursor
    from .page import Page

_RUN = Struct("<II")
ZEROS = re.compile(rb"\0+")
#: Waiting or timed: what nobody has in memory.
ON_DISK = re.compile(rb"[\x01-\x0a\x0c]+")
_LEFT_IN_MEMORY = bytes(LOADED if state == LOADED else 0 for state in range(256))


class News:
    """What the journal will be told at one place: after it nothing is added."""

    __slots__ = ("returned", "settled", "spans", "takers")

    def __init__(self) -> None:
        self.settled: list[int] = []  # index << 3 | 4 if it had gone out, of which nothing is told | reason
        self.spans: list[tuple[int, int, Reason]] = []  # from, to before
        #: What came back: index, deliveries, of which that many are not told yet, attempts, due, time.
        self.returned: list[tuple[int, int, int, int, int, int]] = []
        self.takers: dict[int, str] | None = None  # by index, who acknowledged; where that is wanted


class Holding(Kept):
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
        self.news: News | None = None  # what can be added to
        self.mark: object = None  # the transaction that ``news`` belongs to
        self.logged: News | None = None  # the same of messages that no restart brings back
        self._packed = b""
        self._untold: list[News] = []

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

    def tell_of(self) -> News:
        """Where to add what is new. What happens in a transaction is not mixed with what happened before it."""
        log = self.cursor.pages.log
        news = self.news
        if news is None or self.mark is not log.mark:
            news = self.news = News()
            self.mark = log.mark
            self._untold.append(news)
            log.tell(self)
        return news

    def log_of(self) -> News:
        """Where to add what became of messages that are retained and that no restart brings back."""
        news = self.logged
        if news is None:
            news = self.logged = News()
            self.cursor.pages.log.log_page(self)
        return news

    def tell_logged(self, tail: Tail) -> None:
        """Records of that."""
        news, self.logged = self.logged, None
        if news is not None:
            self._tell(news, tail, FOR_READERS)

    def tell(self, tail: Tail) -> None:
        """Records of what is new."""
        news = self._untold.pop(0)
        if news is self.news:
            self.news = None
        self._tell(news, tail)

    def _tell(self, news: News, tail: Tail, scope: int = 0) -> None:
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

    def repeat(self, tail: Tail) -> None:
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

    def _names(self, tail: Tail) -> tuple[int, int]:
        cursor = self.cursor
        tail.name_queue(cursor.queue)
        return tail.name_address(cursor.pages.address), cursor.queue.number


def by_consumer(
    tail: Tail, positions: list[int], takers: dict[int, str] | None
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
