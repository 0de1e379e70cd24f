"""The order of batches: by time across all folders of a data directory, whatever the limits and the sizes of files.

A batch ends at a time. All rows before it that were not read yet are in the batch, those of the journal and those of
the pages of each address; where that time is in the middle of a file, it is cut there. So rows of a later batch are
not older than rows of an earlier one, but for what stands in one file out of its order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol

import numpy as np

from stompring.pipeline.positions import Position

#: Of what is compared with a limit: shares of files add up to whole ones but for this.
ROUNDING = 1e-6


class Amount(NamedTuple):
    """How much a part of a folder is. Files count by the share of them that is read."""

    bytes: float = 0
    files: float = 0
    rows: float = 0

    def plus(self, other: Amount, share: float = 1) -> Amount:
        """With a share of another one."""
        return Amount(*(own + share * more for own, more in zip(self, other, strict=True)))


class Limit(NamedTuple):
    """How much is taken at once, about. Something is always taken. None: as much as there is."""

    bytes: int | None = None
    files: int | None = None
    rows: int | None = None  # records, of which not all become rows of each table

    def allows(self, amount: Amount) -> bool:
        """Whether it is no more than this."""
        return all(most is None or taken <= most + ROUNDING for most, taken in zip(self, amount, strict=True))


class RowTimes(Protocol):
    """See `times.Times`."""

    @property
    def at(self) -> Any:
        """Where the latest time rises."""

    @property
    def latest(self) -> Any:
        """To what."""

    @property
    def greatest(self) -> int:
        """The last of them."""

    def cut(self, time: int) -> int:
        """The first byte behind which a row may not be older; -1 where all of them are."""


class Piece:
    """What is new of one file: from ``start`` to ``end``. What is asked of the file is read when it is needed."""

    def __init__(
        self,
        name: str,
        folder: str,
        number: int,
        start: int,
        end: Position,
        size: int,
        *,
        begun: Callable[[], int],
        greatest: Callable[[], int | None],
        times: Callable[[], RowTimes],
        rows: Callable[[], float],
    ) -> None:
        """``size`` is that of the whole file. ``begun`` is when, about; ``greatest`` a time that no row is later than,
        None where only ``times`` tell that; ``rows`` how many records the whole file has, about."""
        self.name, self.folder, self.number = name, folder, number
        self.start, self.end = start, end
        stop = size if end.number > number else end.offset
        self.bytes = max(stop - start, 0)
        self._share = self.bytes / size if size else 1.0
        self._begun, self._greatest, self._times, self._rows = begun, greatest, times, rows
        self._known: RowTimes | None = None

    def amount(self, limit: Limit) -> Amount:
        """All of it, as far as a limit asks."""
        rows = 0.0 if limit.rows is None else self._share * self._rows()
        return Amount(self.bytes, self._share, int(rows))

    @property
    def greatest(self) -> int:
        """A time that no row in it is later than: that of the latest row, where that is known."""
        return self._told if self._known is None and self._told is not None else self.learn().greatest

    @cached_property
    def _told(self) -> int | None:
        return self._greatest() if self.start == 0 else None

    def learn(self) -> RowTimes:
        """Its times, exactly."""
        if self._known is None:
            self._known = self._times()
        return self._known

    @property
    def is_known(self) -> bool:
        """Whether it was asked for them before."""
        return self._known is not None

    def share(self, time: int) -> float:
        """How much of it is before a time: by what is known, else by guess."""
        if time > self.greatest:
            return 1.0
        if self.is_known:
            return (self.cut(time) - self.start) / self.bytes if self.bytes else 0.0
        least = min(self._begun(), self.greatest)
        return min(max((time - least) / (self.greatest - least + 1), 0.0), 1.0)

    def cut(self, time: int) -> int:
        """Where what is before a time ends; ``start`` where nothing of it is."""
        at = self.learn().cut(time)
        return max(at, self.start) if at >= 0 else self.start + self.bytes

    def until(self, time: int) -> Position | None:
        """The position behind what is before a time; None where nothing of it is."""
        if time > self.greatest:
            return self.end
        at = self.cut(time)
        if at >= self.start + self.bytes:
            return self.end
        return Position(self.number, at) if at > self.start else None

    def times(self) -> Any:
        """The latest time so far, wherever in it that rises; 0 where no row tells one."""
        learned = self.learn()
        first = max(int(np.searchsorted(learned.at, self.start, side="right")) - 1, 0)
        return learned.latest[first:] if len(learned.at) else np.zeros(1, np.int64)


class Folder:
    """The pieces of one folder, in their order."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = list(pieces)

    def before(self, time: int) -> Iterator[Piece]:
        """Those that are before a time, and the one that it is in the middle of."""
        for piece in self.pieces:
            yield piece
            if piece.greatest >= time:
                return


def in_order(folders: Sequence[Folder], limit: Limit, least: int = 0) -> Iterator[tuple[Piece, Position]]:
    """What a batch has of the folders: pieces, and up to where.

    All that is before ``least`` (epoch ms) is in it, whatever the limit.
    """
    every = [piece for folder in folders for piece in folder.pieces]
    if limit.rows is None:
        total = Amount()
        for piece in every:
            total = total.plus(piece.amount(limit))
        if limit.allows(total):
            yield from ((piece, piece.end) for piece in every)
            return
    if not every:
        return
    yield from _Boundary(folders, limit).chosen(least)


class _Boundary:
    """The time at which a batch ends that does not take everything."""

    def __init__(self, folders: Sequence[Folder], limit: Limit) -> None:
        self.folders = folders
        self.limit = limit
        self.ends = self._ends()

    def chosen(self, least: int) -> Iterator[tuple[Piece, Position]]:
        """See `in_order`."""
        time = self._by_pieces()
        if (time is not None or least) and (found := list(self._before(max(time or 0, least)))):
            return iter(found)
        time = self._within_pieces()
        found = list(self._before(time))
        # more than the limit allows is all of one moment: any order will do
        return iter(found if self._allows(time) else list(self._some(found, time)))

    def _ends(self) -> list[int]:
        """At which times one piece more is whole, up to where those are more than the limit allows."""
        heap = [(folder.pieces[0].greatest, at, 0) for at, folder in enumerate(self.folders) if folder.pieces]
        heapify(heap)
        whole, ends = Amount(), []
        while heap:
            greatest, at, place = heappop(heap)
            pieces = self.folders[at].pieces
            ends.append(greatest + 1)
            whole = whole.plus(pieces[place].amount(self.limit))
            if not self.limit.allows(whole):
                break
            if place + 1 < len(pieces):
                heappush(heap, (max(pieces[place + 1].greatest, greatest), at, place + 1))
        return sorted(set(ends))

    def _by_pieces(self) -> int | None:
        """The latest time at which a piece ends and that the limit allows; None where not even the first one is."""
        while True:
            place = bisect_right(self.ends, False, key=lambda time: not self._allows(time))
            if not place:
                return None
            if not self._learn(self.ends[place - 1]):
                return self.ends[place - 1]

    def _within_pieces(self) -> int:
        """The same with times within pieces; the first of them, where the limit allows none."""
        steps = np.array([self.ends[0]])
        for folder in self.folders:
            times = [piece.times() for piece in folder.before(self.ends[0])]
            if times:
                steps = np.append(steps, np.maximum.accumulate(np.concatenate(times)) + 1)
        ordered = [step for step in np.unique(steps).tolist() if step <= self.ends[0]]
        first = bisect_right(ordered, False, key=lambda time: any(self._before(time)))
        place = bisect_right(ordered, False, key=lambda time: not self._allows(time))
        return int(ordered[min(max(place - 1, first), len(ordered) - 1)])

    def _some(self, found: list[tuple[Piece, Position]], time: int) -> Iterator[tuple[Piece, Position]]:
        """The first one, and others while the limit allows."""
        total = Amount()
        for place, (piece, end) in enumerate(found):
            total = total.plus(piece.amount(self.limit), piece.share(time))
            if place and not self.limit.allows(total):
                return
            yield piece, end

    def _learn(self, time: int) -> bool:
        """Look into the files that a time is in the middle of; whether there was one that was not known yet."""
        new = [
            piece
            for folder in self.folders
            for piece in folder.before(time)
            if not piece.is_known and piece.greatest >= time
        ]
        for piece in new:
            piece.learn()
        return bool(new)

    def _allows(self, time: int) -> bool:
        total = Amount()
        for folder in self.folders:
            for piece in folder.before(time):
                total = total.plus(piece.amount(self.limit), piece.share(time))
        return self.limit.allows(total)

    def _before(self, time: int) -> Iterator[tuple[Piece, Position]]:
        for folder in self.folders:
            for piece in folder.pieces:
                end = piece.until(time)
                if end is not None:
                    yield piece, end
                if end != piece.end:
                    break
