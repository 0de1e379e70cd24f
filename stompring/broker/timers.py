"""Things that fall due: a heap of times and one ``callLater`` for the soonest of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from .background import Background
from .clock import Clock, Timer
from .reference import Reference

Entry = tuple[int, int, Reference]


class TimerQueue:
    """References by due time (epoch ms); those due at the same time keep the order in which they were entered.

    Nothing is searched for when an entry is no longer wanted: ``wanted(ref, due)`` is asked when its time comes, and
    `forget` only counts, so that a heap of mostly unwanted entries is rebuilt. ``fall_due()`` gives what is called
    with each reference that is due now; where those are many it is done in slices (`Background`).
    """

    def __init__(
        self,
        clock: Clock,
        background: Background,
        wanted: Callable[[Reference, int], bool],
        fall_due: Callable[[], Callable[[Reference], None]],
    ) -> None:
        self._clock = clock
        self._background = background
        self._wanted = wanted
        self._fall_due = fall_due
        self._heap: list[Entry] = []
        self._former: list[Entry] = []  # while the heap is rebuilt: what was not looked at, a heap as well
        self._busy = False  # with what is due
        self._order = count()
        self._unwanted = 0
        self._timer: Timer | None = None
        self._timer_due = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._former)

    def enter(self, ref: Reference, due: int) -> None:
        """``ref`` falls due at ``due``; never earlier."""
        heappush(self._heap, (due, next(self._order), ref))
        if self._timer is None or due < self._timer_due:
            self._arm()

    def forget(self) -> None:
        """One of the entries is no longer wanted."""
        self._unwanted += 1
        if self._unwanted > 64 and self._unwanted * 2 > len(self._heap) and not self._former:
            self._former, self._heap = self._heap, []
            self._unwanted = 0
            self._background.run(self._rebuild())

    def _rebuild(self) -> Iterator[None]:
        """What is still wanted goes over, from the end: what is left is a heap at any time."""
        while self._former:
            entry = self._former.pop()
            if self._wanted(entry[2], entry[0]):
                heappush(self._heap, entry)
            yield

    def stop(self) -> None:
        """No timer is left behind."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _first(self) -> list[Entry]:
        """The heap that has the soonest entry."""
        heap, former = self._heap, self._former
        return former if former and (not heap or former[0] < heap[0]) else heap

    def _arm(self) -> None:
        if self._busy:
            return
        self.stop()
        heap = self._first()
        if heap:
            self._timer_due = heap[0][0]
            self._timer = self._clock.call_at(self._timer_due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._busy = True
        self._background.run(self._sweep())

    def _sweep(self) -> Iterator[None]:
        """All that is due by the time at which this begins."""
        now = self._clock.refresh()
        try:
            fall_due = self._fall_due()
            while (heap := self._first()) and heap[0][0] <= now:
                when, _, ref = heappop(heap)
                if self._wanted(ref, when):
                    fall_due(ref)
                elif self._unwanted:
                    self._unwanted -= 1
                yield
        finally:
            self._busy = False
            self._arm()
