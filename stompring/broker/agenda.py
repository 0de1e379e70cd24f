"""Things that fall due: a heap of times and one ``callLater`` for the soonest of them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from .clock import Clock, Timer
from .reference import Reference


class Agenda:
    """References by due time (epoch ms); those due at the same time keep the order in which they were entered.

    Nothing is searched for when an entry is no longer wanted: ``wanted(ref, due)`` is asked when its time comes, and
    `forget` only counts, so that a heap of mostly unwanted entries is rebuilt.
    """

    def __init__(
        self,
        clock: Clock,
        wanted: Callable[[Reference, int], bool],
        fall_due: Callable[[list[Reference]], None],
    ) -> None:
        self._clock = clock
        self._wanted = wanted
        self._fall_due = fall_due
        self._heap: list[tuple[int, int, Reference]] = []
        self._order = count()
        self._unwanted = 0
        self._timer: Timer | None = None
        self._timer_due = 0

    def __len__(self) -> int:
        return len(self._heap)

    def enter(self, ref: Reference, due: int) -> None:
        """``ref`` falls due at ``due``; never earlier."""
        heappush(self._heap, (due, next(self._order), ref))
        if self._timer is None or due < self._timer_due:
            self._arm()

    def forget(self) -> None:
        """One of the entries is no longer wanted."""
        self._unwanted += 1
        if self._unwanted > 64 and self._unwanted * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if self._wanted(entry[2], entry[0])]
            heapify(self._heap)
            self._unwanted = 0

    def stop(self) -> None:
        """No timer is left behind."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _arm(self) -> None:
        self.stop()
        if self._heap:
            self._timer_due = self._heap[0][0]
            self._timer = self._clock.call_at(self._timer_due, self._ring)

    def _ring(self) -> None:
        now = self._clock.refresh()
        due = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, ref = heappop(heap)
            if self._wanted(ref, when):
                due.append(ref)
            elif self._unwanted:
                self._unwanted -= 1
        try:
            if due:
                self._fall_due(due)
        finally:
            self._arm()
