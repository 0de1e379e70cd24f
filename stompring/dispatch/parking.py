"""Messages of groups whose owner cannot take them: sent back to disk, so that they do not fill the memory of others."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from stompring.broker.paging import Cursor, Page, Position
from stompring.broker.reference import Reference

from .references import SLACK, key_of
from .track import LEVELS

if TYPE_CHECKING:
    from stompring.broker.consumer import Consumer

#: Messages of groups that are kept in memory for one owner; more are parked.
HELD = 100


class Parked:
    """Positions of one priority in the pages of one address, ascending, each once, with their messages' numbers."""

    __slots__ = ("_keys", "_numbers", "_start")

    def __init__(self) -> None:
        self._keys = array("Q")
        self._numbers = array("Q")
        self._start = 0

    def add(self, key: int, number: int) -> None:
        """Add a position; nothing happens where it is known."""
        at = bisect_left(self._keys, key, self._start)
        if at == len(self._keys) or self._keys[at] != key:
            self._keys.insert(at, key)
            self._numbers.insert(at, number)

    def first(self, cursor: Cursor) -> tuple[int, Position] | None:
        """Number and position of the first message; those that are no longer on disk only are forgotten."""
        while self._start < len(self._keys):
            key = self._keys[self._start]
            page = cursor.pages.page(key >> 32)
            if page is not None and cursor.is_waiting(page, key & 0xFFFFFFFF):
                return self._numbers[self._start], (page, key & 0xFFFFFFFF)
            self._start += 1
            if self._start > SLACK and self._start * 2 > len(self._keys):
                del self._keys[: self._start], self._numbers[: self._start]
                self._start = 0
        return None

    def waiting(self, cursor: Cursor) -> list[Position]:
        """The positions that are on disk only."""
        found = []
        for key in self._keys[self._start :]:
            page = cursor.pages.page(key >> 32)
            if page is not None and cursor.is_waiting(page, key & 0xFFFFFFFF):
                found.append((page, key & 0xFFFFFFFF))
        return found


class Parking:
    """Positions that belong to one consumer, the owner of their groups. They are waiting on disk."""

    def __init__(self) -> None:
        self._of: dict[Consumer, dict[tuple[int, Cursor], Parked]] = {}  # by priority and cursor

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._of

    def wants(self, owner: Consumer) -> bool:
        """Whether a message is to be parked: there are others already, or too many in memory."""
        return owner in self._of or (owner.held is not None and owner.held.size >= HELD)

    @staticmethod
    def runs_low(owner: Consumer) -> bool:
        """Whether so few are in memory for a consumer that more may be brought back."""
        return owner.held is None or owner.held.size < HELD // 2

    def add(self, owner: Consumer, cursor: Cursor, ref: Reference) -> None:
        """Park a message."""
        assert ref.place is not None
        kinds = self._of.setdefault(owner, {})
        kind = ref.message.traits.priority, cursor
        parked = kinds.get(kind)
        if parked is None:
            parked = kinds[kind] = Parked()
        parked.add(key_of(*ref.place), ref.message.number)

    def next(self, owner: Consumer) -> tuple[tuple[int, int], Cursor, Position] | None:
        """The first message that is parked for a consumer: its place in the queue's order, cursor and position."""
        first: tuple[tuple[int, int], Cursor, Position] | None = None
        for (level, cursor), parked in self._of.get(owner, {}).items():
            if first is not None and -level > first[0][0]:
                continue
            found = parked.first(cursor)
            if found is not None and (first is None or (-level, found[0]) < first[0]):
                first = (-level, found[0]), cursor, found[1]
        if first is None:
            self._of.pop(owner, None)
        return first

    def before(self, owner: Consumer, ref: Reference) -> bool:
        """Whether something that is parked for a consumer comes before a message in memory."""
        first = self.next(owner)
        return first is not None and first[0] < ref.order

    def free(self, owner: Consumer) -> list[tuple[Cursor, int, Page, int]]:
        """Nothing is parked for a consumer any more: cursor, priority and position of what was."""
        return [
            (cursor, level, page, index)
            for (level, cursor), parked in self._of.pop(owner, {}).items()
            for page, index in parked.waiting(cursor)
        ]

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        for owner, kinds in list(self._of.items()):
            for level in LEVELS:
                kinds.pop((level, cursor), None)
            if not kinds:
                del self._of[owner]
