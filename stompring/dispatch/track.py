"""How far one target list has got in the pages of one address."""

from __future__ import annotations

from collections.abc import Iterator

from stompring.broker.paging import Block, Cursor, Page, Position, waiting_from

from .header_test import HeaderTest
from .references import References, key_of

LEVELS = range(9, -1, -1)  # priorities, the highest first


class Track:
    """What a selector is known to match, and from where on nothing is known yet; both for each priority.

    Without a test everything matches, and nothing has to be known: what waits is what matches. Only what was parked
    for somebody else is then passed over, as if it were scanned.
    """

    __slots__ = ("cursor", "references", "scanned", "test")

    def __init__(self, cursor: Cursor, test: HeaderTest | None) -> None:
        self.cursor = cursor
        self.test = test
        self.references: list[References | None] = [None] * 10
        self.scanned: list[Position | None] = [None] * 10  # the first position that was not looked at

    # ---- what comes next

    def next(self, level: int) -> tuple[Position, bool] | None:
        """The first position on disk that may be wanted, and whether it is known to match."""
        if not self.cursor.levels[level]:
            return None
        known, unknown = self.next_reference(level), self.next_unscanned(level)
        if known is None:
            return None if unknown is None else (unknown, False)
        if unknown is None or key_of(*known) <= key_of(*unknown):
            return known, True
        return unknown, False

    def next_reference(self, level: int) -> Position | None:
        """The first position that is known to match; those that are no longer on disk only are forgotten."""
        references = self.references[level]
        while references:
            key = references.first
            page = self.cursor.pages.page(key >> 32)
            if page is not None and self.cursor.is_waiting(page, key & 0xFFFFFFFF):
                return page, key & 0xFFFFFFFF
            references.drop_first()
        return None

    def next_unscanned(self, level: int) -> Position | None:
        """The first waiting position that was not looked at."""
        return waiting_from(self.cursor, level, self.scanned[level])

    def use_reference(self, level: int) -> None:
        """The first position that is known to match is loaded: should it wait again, that is said anew."""
        references = self.references[level]
        assert references
        references.drop_first()

    # ---- what becomes known

    def refer(self, level: int, key: int) -> None:
        """A position is known to match."""
        references = self.references[level]
        if references is None:
            references = self.references[level] = References()
        references.add(key)

    def before_scan(self, level: int, key: int) -> bool:
        """Whether a position was looked at, or would have been had it waited then."""
        scanned = self.scanned[level]
        return scanned is not None and key < key_of(*scanned)

    def pass_over(self, level: int, page: Page, index: int) -> None:
        """A position is somebody else's, as all before it that still wait are."""
        if not self.before_scan(level, key_of(page, index)):
            self.scanned[level] = (page, index + 1)

    def look_again(self, level: int, page: Page, index: int) -> None:
        """A position that was passed over may be wanted after all."""
        if self.before_scan(level, key_of(page, index)):
            if self.test is None:
                self.refer(level, key_of(page, index))
            else:
                self.scanned[level] = (page, index)

    def scan(self, block: Block) -> None:
        """Ask the test for whatever of a block was not looked at, of all priorities whose turn has come to it."""
        assert self.test is not None
        cursor, page, test = self.cursor, block.page, self.test
        starts = self._starts(block)
        states = cursor.states(page, block.first, block.stop)
        at = block.first - 1
        for state in states:
            at += 1
            if 0 < state <= 10 and starts[state] <= at and test(block, at):
                self.refer(state - 1, key_of(page, at))
        for level in LEVELS:
            if starts[level + 1] < block.stop:
                self.scanned[level] = (page, block.stop)

    def _starts(self, block: Block) -> list[int]:
        """By state: from which index on a block was not looked at; its end where it is not the next to look at."""
        starts = [block.stop] * 11
        for level in LEVELS:
            position = self.next_unscanned(level)
            if position is not None and position[0] is block.page and block.first <= position[1] < block.stop:
                starts[level + 1] = position[1]
        return starts

    # ---- gauges

    def __len__(self) -> int:
        return sum(len(references) for references in self.references if references is not None)

    def keys(self) -> Iterator[int]:
        """All positions that are known to match, stale ones too."""
        for references in self.references:
            yield from references or ()
