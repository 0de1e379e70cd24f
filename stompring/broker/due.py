"""Scheduled messages of one queue that fall due together."""

from __future__ import annotations

from heapq import heappop, heappush

from .reference import PENDING, Reference

#: Places that are kept at the head of a queue for what falls due together: numbers, of which there are enough.
MOST_TOGETHER = 1 << 40


class DueBatch:
    """Their places at the head of the queue and, in a ring, those of them that wait: the newest sent stay."""

    __slots__ = ("_place", "_waiting")

    def __init__(self, first_place: int) -> None:
        self._place = first_place
        self._waiting: list[tuple[int, Reference]] = []  # a heap, by message number

    def next_place(self) -> int:
        """The sequence of the next one."""
        place = self._place
        self._place = place + 1
        return place

    def waits(self, ref: Reference) -> None:
        """One has found a place in a ring."""
        heappush(self._waiting, (ref.message.number, ref))

    def older_than(self, ref: Reference) -> Reference | None:
        """The oldest that waits, where that was sent before ``ref``; it is forgotten here."""
        waiting = self._waiting
        while waiting and waiting[0][1].state != PENDING:
            heappop(waiting)
        if waiting and waiting[0][0] < ref.message.number:
            return heappop(waiting)[1]
        return None
