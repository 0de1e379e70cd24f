"""Scheduled messages of one queue whose time has come while they are still on disk."""

from __future__ import annotations

from array import array
from collections import deque

from stompring.broker.paging import TIMED, Cursor, Page, Position


class Batch:
    """Messages that fell due together: positions in the order of their times, and their places in the queue."""

    __slots__ = ("at", "cursor", "keys", "sequence")

    def __init__(self, cursor: Cursor, keys: array[int], sequence: int) -> None:
        self.cursor = cursor
        self.keys = keys
        self.sequence = sequence  # of the first, before all that was in the queue when they fell due
        self.at = 0


class Overdue:
    """Batches in the order they fell due."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, cursor: Cursor, keys: array[int], sequence: int) -> None:
        """The time of some has come."""
        self._batches.append(Batch(cursor, keys, sequence))

    def next(self) -> tuple[Cursor, Position, int] | None:
        """The first that still waits for its time, and its sequence."""
        while self._batches:
            batch = self._batches[0]
            while batch.at < len(batch.keys):
                key = batch.keys[batch.at]
                page = batch.cursor.pages.page(key >> 32)
                if page is not None and still_timed(batch.cursor, page, key & 0xFFFFFFFF):
                    return batch.cursor, (page, key & 0xFFFFFFFF), batch.sequence + batch.at
                batch.at += 1
            self._batches.popleft()
        return None

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        self._batches = deque(batch for batch in self._batches if batch.cursor is not cursor)


def still_timed(cursor: Cursor, page: Page, index: int) -> bool:
    """Whether a position waits on disk for its time."""
    return cursor.states(page, index, index + 1) == bytes((TIMED,))
