"""The part of a data directory that has not been read yet, and the batches that it is read in.

A batch ends at a time. All rows before it that were not read yet are in the batch, those of the journal and those of
the pages of each address; where that time is in the middle of a file, the file is cut there. So rows of a later batch
are not older than rows of an earlier one, but for what stands in one file out of its order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from stompring.errors import PipelineError
from stompring.store.segment import HEADER, Footer

from .files import START, DataFiles, FileEntry, Position, Positions, Range, Times, is_sealed
from .records import complete_until

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
        return all(
            most is None or actual <= most + ROUNDING for most, actual in zip(self, amount, strict=True)
        )


class FileSlice:
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
        times: Callable[[], Times],
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
        self.known: Times | None = None  # its times, if it was asked for them before

    def amount(self, limit: Limit) -> Amount:
        """All of it, as far as a limit asks."""
        rows = 0 if limit.rows is None else int(self._share * self._rows())
        return Amount(self.bytes, self._share, rows)

    @property
    def greatest(self) -> int:
        """A time that no row in it is later than: that of the latest row, where that is known."""
        return (
            self._footer_greatest
            if self.known is None and self._footer_greatest is not None
            else self.learn().greatest
        )

    @cached_property
    def _footer_greatest(self) -> int | None:
        return self._greatest() if self.start == 0 else None

    def learn(self) -> Times:
        """Its times, exactly."""
        if self.known is None:
            self.known = self._times()
        return self.known

    def share(self, time: int) -> float:
        """How much of it is before a time: by what is known, else by guess."""
        if time > self.greatest:
            return 1.0
        if self.known is not None:
            return (self.cut(time) - self.start) / self.bytes if self.bytes else 0.0
        least = min(self._begun(), self.greatest)
        return min(max((time - least) / (self.greatest - least + 1), 0.0), 1.0)

    def cut(self, time: int) -> int:
        """Where what is before a time ends; ``start`` where nothing of it is."""
        at = self.learn().cut(time)
        return max(at, self.start) if at >= 0 else self.start + self.bytes

    def until(self, time: int) -> Position | None:
        """The position behind what is before a time; None where nothing of it is."""
        stop = self.start + self.bytes
        at = stop if time > self.greatest else self.cut(time)
        if at >= stop:
            return self.end
        return Position(self.number, at) if at > self.start else None

    def times(self) -> Any:
        """The latest time so far, wherever in it that rises; 0 where no row tells one."""
        learned = self.learn()
        first = max(int(np.searchsorted(learned.at, self.start, side="right")) - 1, 0)
        return learned.latest[first:] if len(learned.at) else np.zeros(1, np.int64)


#: What is new in each folder.
Folders = Sequence[Sequence[FileSlice]]

#: A file that a batch has, and up to where.
Part = tuple[FileSlice, Position]


def slices_before(folder: Sequence[FileSlice], time: int) -> Iterator[FileSlice]:
    """Of what is new in one folder the files that are before a time, and the one that it is in the middle of."""
    for piece in folder:
        yield piece
        if piece.greatest >= time:
            return


def plan_batch(folders: Folders, limit: Limit, least: int) -> list[Part]:
    """What a batch has of the folders: pieces, and up to where.

    All that is before ``least`` (epoch ms) is in it, whatever the limit.
    """
    every = [piece for folder in folders for piece in folder]
    if limit.rows is None:
        total = Amount()
        for piece in every:
            total = total.plus(piece.amount(limit))
        if limit.allows(total):
            return [(piece, piece.end) for piece in every]
    return _BatchEnd(folders, limit).selected(least) if every else []


def _by_greatest(folder: Sequence[FileSlice]) -> Iterator[tuple[int, FileSlice]]:
    """Yield each piece, preceded by the latest time in the folder up to its end."""
    greatest = 0
    for piece in folder:
        greatest = max(greatest, piece.greatest)
        yield greatest, piece


@dataclass
class _BatchEnd:
    """The time at which a batch ends that does not take everything."""

    folders: Folders
    limit: Limit

    def selected(self, least: int) -> list[Part]:
        """See `plan_batch`."""
        time = self._by_pieces()
        if (time is not None or least) and (found := list(self._before(max(time or 0, least)))):
            return found
        time = self._within_pieces()
        found = list(self._before(time))
        # more than the limit allows is all of one moment: any order will do
        return found if self._allows(time) else list(self._some(found, time))

    @cached_property
    def ends(self) -> list[int]:
        """At which times one piece more is whole, up to where those are more than the limit allows."""
        whole, ends = Amount(), set()
        for greatest, piece in merge(*map(_by_greatest, self.folders), key=itemgetter(0)):
            ends.add(greatest + 1)
            whole = whole.plus(piece.amount(self.limit))
            if not self.limit.allows(whole):
                break
        return sorted(ends)

    def _by_pieces(self) -> int | None:
        """The latest time at which a piece ends and that the limit allows; None where not even the first one is."""
        while True:
            index = bisect_right(self.ends, False, key=lambda time: not self._allows(time))
            if not index:
                return None
            if not self._learn(self.ends[index - 1]):
                return self.ends[index - 1]

    def _within_pieces(self) -> int:
        """The same with times within pieces; the first of them, where the limit allows none."""
        steps = np.array([self.ends[0]])
        for folder in self.folders:
            times = [piece.times() for piece in slices_before(folder, self.ends[0])]
            if times:
                steps = np.append(steps, np.maximum.accumulate(np.concatenate(times)) + 1)
        ordered = [step for step in np.unique(steps).tolist() if step <= self.ends[0]]
        first = bisect_right(ordered, False, key=lambda time: any(self._before(time)))
        index = bisect_right(ordered, False, key=lambda time: not self._allows(time))
        return int(ordered[min(max(index - 1, first), len(ordered) - 1)])

    def _some(self, found: list[Part], time: int) -> Iterator[Part]:
        """The first one, and others while the limit allows."""
        total = Amount()
        for index, (piece, end) in enumerate(found):
            total = total.plus(piece.amount(self.limit), piece.share(time))
            if index and not self.limit.allows(total):
                return
            yield piece, end

    def _learn(self, time: int) -> bool:
        """Look into the files that a time is in the middle of; whether there was one that was not known yet."""
        new = [
            piece
            for folder in self.folders
            for piece in slices_before(folder, time)
            if piece.known is None and piece.greatest >= time
        ]
        for piece in new:
            piece.learn()
        return bool(new)

    def _allows(self, time: int) -> bool:
        total = Amount()
        for folder in self.folders:
            for piece in slices_before(folder, time):
                total = total.plus(piece.amount(self.limit), piece.share(time))
        return self.limit.allows(total)

    def _before(self, time: int) -> Iterator[Part]:
        for folder in self.folders:
            for piece in folder:
                end = piece.until(time)
                if end is not None:
                    yield piece, end
                if end != piece.end:
                    break


#: Folders whose files are numbered without gaps: those of pages share their numbers.
DENSE = ("journal", "samples")


class MissingFiles(NamedTuple):
    """Files that were deleted before they were read: the numbers of the first and of the last."""

    folder: str
    first: int
    last: int

    def __str__(self) -> str:
        which = f"file {self.first}" if self.first == self.last else f"files {self.first} to {self.last}"
        return f"{which} of {self.folder}"


class DataLoss(PipelineError):
    """Files of a data directory were deleted before they were read."""


class DirectoryReplaced(PipelineError):
    """The directory has less than was read of it before: it is another one, or was begun anew."""


def end_positions(
    files: DataFiles,
    endings: Iterable[str],
    since: Positions,
    limit: Limit = Limit(),  # noqa: B008 - it is a tuple
    until: Positions | None = None,
    *,
    table: str | None = None,
    least: int = 0,
) -> Positions:
    """Where to read to, from ``since`` on: at most up to ``until``, and about as much as ``limit`` says.

    Where the limit lets something for later, all that is older than some time is before that place, in each folder, and
    nothing else: of rows of ``table`` (None: of any). What is older than ``least`` (epoch ms) is always before it.

    What it names is safe from a power cut when this returns. Raises `DirectoryReplaced`.
    """
    found = dict(since)
    folders = []
    for folder, listed in _folders(files, endings):
        position = since.get(folder, START)
        _check_position(position, listed[-1])
        stop = None if until is None else until.get(folder, START)
        folders.append(list(_slices(files, listed, position, stop, table)))
    # another folder comes first each time: where times are equal, or nothing has one, a folder to which something comes
    # all the time would hold up the others for ever
    first = crc32(repr(sorted(since.items())).encode()) % max(len(folders), 1)
    for piece, end in plan_batch(folders[first:] + folders[:first], limit, least):
        files.sync(piece.name)
        found[piece.folder] = end
    return found


def start_positions(files: DataFiles, endings: Iterable[str]) -> Positions:
    """Where all that is there begins. What is deleted from then on before it is read is told as `MissingFiles`."""
    return {folder: Position(listed[0].number, 0) for folder, listed in _folders(files, endings)}


def ranges_between(
    files: DataFiles, endings: Iterable[str], since: Positions, until: Positions
) -> tuple[list[tuple[Range, int]], list[MissingFiles]]:
    """What is between two positions, with the bytes of each range, and what should be there and is gone.

    Of pages only those are missed that a position is about: which others an address had nobody knows any more.
    """
    ranges: list[tuple[Range, int]] = []
    lost: list[MissingFiles] = []
    there = dict(_folders(files, endings, empty=True))
    for folder in sorted(until):
        begin, end = since.get(folder, START), until[folder]
        if end <= begin:
            continue
        listed = [one for one in there.get(folder, []) if begin.number <= one.number <= end.number]
        missing = _numbering_gaps if folder in DENSE else _missing_pages
        lost += missing(folder, [one.number for one in listed], begin, end)
        for one in listed:
            start = begin.offset if one.number == begin.number else 0
            stop = end.offset if one.number == end.number else -1
            if one.size > HEADER.size and (stop < 0 or stop > start):
                size = max((one.size if stop < 0 else stop) - start, 0)
                ranges.append((Range(one.name, start, stop), size))
    return ranges, lost


def _folders(
    files: DataFiles, endings: Iterable[str], *, empty: bool = False
) -> Iterator[tuple[str, list[FileEntry]]]:
    for folder, listed in groupby(files.every(endings, empty=empty), key=lambda one: one.folder):
        yield folder, list(listed)


def _slices(
    files: DataFiles, listed: list[FileEntry], position: Position, until: Position | None, table: str | None
) -> Iterator[FileSlice]:
    """What is new in each file of a folder, behind a position."""
    for index, one in enumerate(listed):
        if one.number < position.number:
            continue
        start = position.offset if one.number == position.number else 0
        behind = listed[index + 1] if index + 1 < len(listed) else None
        if until is not None and one.number >= until.number:
            end = until if one.number == until.number and until.offset > start else None
        else:  # a file that another one comes after is complete, be its footer written yet or not
            end = _listed_end(files, one, start, complete=behind is not None or until is not None)
        if end is None:
            return
        yield _slice(files, one, start, end, behind, table)


def _slice(
    files: DataFiles, one: FileEntry, start: int, end: Position, behind: FileEntry | None, table: str | None
) -> FileSlice:
    complete = end.number > one.number
    stop = -1 if complete else end.offset

    @cache
    def footer() -> Footer | None:
        return files.footer(one.name) if complete else None

    def greatest() -> int | None:
        found = footer()
        if found is None:
            return None
        if one.folder in DENSE and (table != "messages"):  # a footer tells of messages alone
            return (
                None if behind is None else max(found.greatest_timestamp, files.header(behind.name).created)
            )
        return found.greatest_timestamp

    def rows() -> float:
        found = footer()
        return one.size / 100 if found is None else len(found.starts)

    return FileSlice(
        one.name,
        one.folder,
        one.number,
        start,
        end,
        one.size,
        begun=lambda: files.header(one.name).created,
        greatest=greatest,
        times=lambda: files.times(one.name, stop, table),
        rows=rows,
    )


def _listed_end(files: DataFiles, one: FileEntry, start: int, *, complete: bool) -> Position | None:
    """Where a file ended when it was listed; None where nothing is behind ``start``.

    What has come since is left for the next time: it may be later than what has come to a file that was listed before.
    """
    if complete:
        return Position(one.number + 1, 0)
    data = files.read(one.name, start, one.size - start) if one.size > start else None
    if not data:
        return None
    if is_sealed(data, start):
        return Position(one.number + 1, 0)
    before = 0 if start else HEADER.size
    size = complete_until(data[before:])
    return Position(one.number, start + before + size) if size else None


def _check_position(position: Position, last: FileEntry) -> None:
    """The newest file must not be older than what was read before."""
    if last.folder not in DENSE:
        return
    if last.number + 1 < position.number or (last.number == position.number and last.size < position.offset):
        raise DirectoryReplaced(
            f"{last.folder} ends with file {last.number}, but was read up to {position} before: "
            "the data directory was replaced or created anew"
        )


def _numbering_gaps(
    folder: str, numbers: list[int], begin: Position, end: Position
) -> Iterator[MissingFiles]:
    """Of consecutive numbers those that are not there. Where nothing was read before, it begins with the first."""
    wanted = begin.number if begin != START else (numbers[0] if numbers else end.number)
    stop = end.number + (1 if end.offset else 0)
    for number in [*numbers, stop]:
        if number > stop:
            break
        if number > wanted:
            yield MissingFiles(folder, wanted, number - 1)
        wanted = number + 1


def _missing_pages(folder: str, numbers: list[int], begin: Position, end: Position) -> Iterator[MissingFiles]:
    """Files that positions were taken of and that are not there."""
    was = {end.number if end.offset else end.number - 1, *([begin.number] if begin.offset else [])}
    for number in sorted(was.difference(numbers)):
        yield MissingFiles(folder, number, number)
