"""Scheduled messages of one queue whose time has come while they are still on disk."""

from __future__ import annotations

from array import array
from collections import deque

from stompring.broker.due import DueBatch
from stompring.broker.paging import TIMED, Cursor, Page, Position


class Found:
    """Positions of messages that fell due, in the order of their times; more of the same batch may follow."""

    __slots__ = ("at", "batch", "cursor", "keys")

    def __init__(self, cursor: Cursor, keys: array[int], batch: DueBatch) -> None:
        self.cursor = cursor
        self.keys = keys
        self.batch = batch
        self.at = 0


class Overdue:
    """What was found, in the order it fell due."""

    def __init__(self) -> None:
        self._found: deque[Found] = deque()

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, cursor: Cursor, keys: array[int], batch: DueBatch) -> None:
        """The time of some has come."""
        self._found.append(Found(cursor, keys, batch))

    def next(self) -> tuple[Cursor, Position, DueBatch] | None:
        """The first that still waits for its time, and with what it fell due."""
        while self._found:
            found = self._found[0]
            while found.at < len(found.keys):
                key = found.keys[found.at]
                page = found.cursor.pages.page(key >> 32)
                if page is not None and still_timed(found.cursor, page, key & 0xFFFFFFFF):
                    return found.cursor, (page, key & 0xFFFFFFFF), found.batch
                found.at += 1
            self._found.popleft()
        return None

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        self._found = deque(found for found in self._found if found.cursor is not cursor)


def still_timed(cursor: Cursor, page: Page, index: int) -> bool:
    """Whether a position waits on disk for its time."""
    return cursor.states(page, index, index + 1) == bytes((TIMED,))
