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
        self.floor = 0  # the latest time in files before it
        self.known: RowTimes | None = None

    def amount(self, limit: Limit) -> Amount:
        """All of it, as far as a limit asks."""
        rows = 0.0 if limit.rows is None else self._share * self._rows()
        return Amount(self.bytes, self._share, int(rows))

    @cached_property
    def greatest(self) -> int:
        """No row in it is later, and none of the files before it."""
        told = self._greatest() if self.start == 0 else None
        return max(self.floor, self.learn().greatest if told is None else told)

    def learn(self) -> RowTimes:
        """Its times, exactly."""
        if self.known is None:
            self.known = self._times()
        return self.known

    def share(self, time: int) -> float:
        """How much of it is before a time: by what is known, else by guess."""
        if time > self.greatest:
            return 1.0
        if time <= self.floor:
            return 0.0
        if self.known is not None or self.start:
            return (self.cut(time) - self.start) / self.bytes if self.bytes else 0.0
        least = min(max(self._begun(), self.floor), self.greatest)
        return min(max((time - least) / (self.greatest - least + 1), 0.0), 1.0)

    def cut(self, time: int) -> int:
        """Where what is before a time ends; ``start`` where nothing of it is."""
        if time <= self.floor:
            return self.start
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

    def steps(self) -> Any:
        """The times at which something of it comes to be before them."""
        learned = self.learn()
        first = max(int(np.searchsorted(learned.at, self.start, side="right")) - 1, 0)
        times = np.maximum(learned.latest[first:], self.floor)
        return (times if len(times) else np.array([self.greatest])) + 1


class Folder:
    """The pieces of one folder, in their order, and how many of them were looked at."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = list(pieces)
        self.looked: list[Piece] = []

    def look(self) -> Piece | None:
        """The next piece."""
        if len(self.looked) == len(self.pieces):
            return None
        piece = self.pieces[len(self.looked)]
        piece.floor = self.looked[-1].greatest if self.looked else 0
        self.looked.append(piece)
        return piece

    def reach(self, time: int) -> None:
        """Look at all that has something before a time."""
        while not self.looked or self.looked[-1].greatest < time:
            if self.look() is None:
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
        self.times: list[int] = []  # at which one more piece is whole before them

    def chosen(self, least: int) -> Iterator[tuple[Piece, Position]]:
        """See `in_order`."""
        self._look()
        time = self._by_pieces()
        if time is not None or least:
            time = max(time or 0, least)
            for folder in self.folders:
                folder.reach(time)
        if time is None or not (found := list(self._before(time))):
            time = self._within_pieces()
            found = list(self._before(time))
            if not self.limit.allows(self._amount(time)):  # all of it is of one moment, and any order will do
                found = list(self._some(found, time))
        yield from found

    def _look(self) -> None:
        """Look at pieces in the order in which they end, until those are more than the limit allows."""
        heap: list[tuple[int, int]] = []
        for place, folder in enumerate(self.folders):
            if (piece := folder.look()) is not None:
                heap.append((piece.greatest, place))
        heapify(heap)
        whole = Amount()
        while heap:
            greatest, place = heappop(heap)
            folder = self.folders[place]
            self.times.append(greatest + 1)
            whole = whole.plus(folder.looked[-1].amount(self.limit))
            if not self.limit.allows(whole):
                break
            if (piece := folder.look()) is not None:
                heappush(heap, (piece.greatest, place))
        self.times = sorted(set(self.times))

    def _by_pieces(self) -> int | None:
        """The latest time at which a piece ends and that the limit allows; None where not even the first one is."""
        while True:
            place = bisect_right(
                self.times, False, key=lambda time: not self.limit.allows(self._amount(time))
            )
            if not place:
                return None
            time = self.times[place - 1]
            if not self._learn(time):
                return time

    def _within_pieces(self) -> int:
        """The same with times within pieces; the first of them, where the limit allows none."""
        first = self.times[0]
        pieces = [piece for folder in self.folders for piece in folder.looked if piece.floor < first]
        steps = np.unique(np.concatenate([piece.steps() for piece in pieces]))
        steps = steps[steps <= first].tolist() or [first]
        place = bisect_right(steps, False, key=lambda time: not self.limit.allows(self._amount(time)))
        return int(steps[max(place - 1, 0)])

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
            for piece in folder.looked
            if piece.known is None and piece.floor < time <= piece.greatest
        ]
        for piece in new:
            piece.learn()
        return bool(new)

    def _amount(self, time: int) -> Amount:
        total = Amount()
        for folder in self.folders:
            for piece in folder.looked:
                if share := piece.share(time):
                    total = total.plus(piece.amount(self.limit), share)
        return total

    def _before(self, time: int) -> Iterator[tuple[Piece, Position]]:
        for folder in self.folders:
            for piece in folder.looked:
                end = piece.until(time)
                if end is not None:
                    yield piece, end
                if end != piece.end:
                    break
