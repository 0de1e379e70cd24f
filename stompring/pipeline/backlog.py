"""The backlog: the part of a data directory that a reader has not read yet. It is read in batches.

A batch ends at a time. It has all unread rows before that time, from the journal and from the pages of each address. A
file with rows before and after that time is split between two batches. So if the rows of each file are ordered by time,
no row of a later batch is older than a row of an earlier batch.
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

#: Tolerance of comparisons with a limit, for rounding errors in sums of shares of files.
ROUNDING = 1e-6


class Amount(NamedTuple):
    """An amount of data. A file that is read in part counts as a fraction of a file."""

    bytes: float = 0
    files: float = 0
    rows: float = 0

    def plus(self, other: Amount, share: float = 1) -> Amount:
        """Return this amount plus a share (0 to 1) of another amount."""
        return Amount(*(own + share * more for own, more in zip(self, other, strict=True)))


class Limit(NamedTuple):
    """The approximate size of a batch, None for no limit. A batch is never empty if there are unread rows."""

    bytes: int | None = None
    files: int | None = None
    rows: int | None = None  # compared with the number of records, which may be more than a table's rows

    def allows(self, amount: Amount) -> bool:
        """Return whether an amount is within the limit."""
        return all(
            most is None or actual <= most + ROUNDING for most, actual in zip(self, amount, strict=True)
        )


class FileSlice:
    """The unread part of one file, from byte ``start`` to ``end``. Methods read it only for times and row counts."""

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
        """``size``: bytes of the whole file. The functions describe the whole file: ``begun`` returns the approximate
        time of its creation, ``greatest`` an upper bound of the times of its rows (None: unknown), ``times`` the exact
        times of its rows, and ``rows`` its approximate number of records. All times are epoch ms."""
        self.name, self.folder, self.number = name, folder, number
        self.start, self.end = start, end
        stop = size if end.number > number else end.offset
        self.bytes = max(stop - start, 0)
        self._share = self.bytes / size if size else 1.0
        self._begun, self._greatest, self._times, self._rows = begun, greatest, times, rows
        self.known: Times | None = None  # exact times of the rows, once `learn` has read them

    def amount(self, limit: Limit) -> Amount:
        """Return the size of the slice. Its rows are counted only if ``limit`` limits rows."""
        rows = 0 if limit.rows is None else int(self._share * self._rows())
        return Amount(self.bytes, self._share, rows)

    @property
    def greatest(self) -> int:
        """Upper bound of the times of the rows (epoch ms). After `learn` it is the time of the latest row."""
        return (
            self._footer_greatest
            if self.known is None and self._footer_greatest is not None
            else self.learn().greatest
        )

    @cached_property
    def _footer_greatest(self) -> int | None:
        return self._greatest() if self.start == 0 else None

    def learn(self) -> Times:
        """Return the exact times of the rows in the file (epoch ms). The first call reads the file."""
        if self.known is None:
            self.known = self._times()
        return self.known

    def share(self, time: int) -> float:
        """Return the share (0 to 1) of the slice with rows before ``time``: exact after `learn`, else interpolated."""
        if time > self.greatest:
            return 1.0
        if self.known is not None:
            return (self.cut(time) - self.start) / self.bytes if self.bytes else 0.0
        least = min(self._begun(), self.greatest)
        return min(max((time - least) / (self.greatest - least + 1), 0.0), 1.0)

    def cut(self, time: int) -> int:
        """Return the byte behind the rows before ``time``, ``start`` if the slice has no such rows."""
        at = self.learn().cut(time)
        return max(at, self.start) if at >= 0 else self.start + self.bytes

    def until(self, time: int) -> Position | None:
        """Return the position behind the rows before ``time``, None if the slice has no such rows."""
        stop = self.start + self.bytes
        at = stop if time > self.greatest else self.cut(time)
        if at >= stop:
            return self.end
        return Position(self.number, at) if at > self.start else None

    def times(self) -> Any:
        """Return the times (epoch ms, ascending) at which the slice can be split; only 0 if no row has a time."""
        learned = self.learn()
        first = max(int(np.searchsorted(learned.at, self.start, side="right")) - 1, 0)
        return learned.latest[first:] if len(learned.at) else np.zeros(1, np.int64)


#: The unread files of each folder, in order.
Folders = Sequence[Sequence[FileSlice]]

#: A file of a batch, and the end of its part in the batch.
Part = tuple[FileSlice, Position]


def slices_before(folder: Sequence[FileSlice], time: int) -> Iterator[FileSlice]:
    """Yield the slices of a folder with rows before a time: the last one may have later rows too."""
    for piece in folder:
        yield piece
        if piece.greatest >= time:
            return


def plan_batch(folders: Folders, limit: Limit, least: int) -> list[Part]:
    """Return the parts of the next batch. It has all rows before ``least`` (epoch ms), even beyond the limit."""
    every = [piece for folder in folders for piece in folder]
    if limit.rows is None:
        total = Amount()
        for piece in every:
            total = total.plus(piece.amount(limit))
        if limit.allows(total):
            return [(piece, piece.end) for piece in every]
    return _BatchEnd(folders, limit).selected(least) if every else []


def _by_greatest(folder: Sequence[FileSlice]) -> Iterator[tuple[int, FileSlice]]:
    """Yield each slice of a folder, preceded by the latest time of a row in this and earlier slices."""
    greatest = 0
    for piece in folder:
        greatest = max(greatest, piece.greatest)
        yield greatest, piece


@dataclass
class _BatchEnd:
    """The search for the time at which a batch ends, for a backlog that may exceed the limit."""

    folders: Folders
    limit: Limit

    def selected(self, least: int) -> list[Part]:
        time = self._by_pieces()
        if (time is not None or least) and (found := list(self._before(max(time or 0, least)))):
            return found
        time = self._within_pieces()
        found = list(self._before(time))
        # The rows of the first millisecond alone exceed the limit: take some of them.
        return found if self._allows(time) else list(self._some(found, time))

    @cached_property
    def ends(self) -> list[int]:
        """End times of slices (epoch ms), ascending. A batch that ends at the last of them may exceed the limit."""
        whole, ends = Amount(), set()
        for greatest, piece in merge(*map(_by_greatest, self.folders), key=itemgetter(0)):
            ends.add(greatest + 1)
            whole = whole.plus(piece.amount(self.limit))
            if not self.limit.allows(whole):
                break
        return sorted(ends)

    def _by_pieces(self) -> int | None:
        """Return the latest of `ends` at which a batch is within the limit, None if the first one exceeds the limit."""
        while True:
            index = bisect_right(self.ends, False, key=lambda time: not self._allows(time))
            if not index:
                return None
            if not self._learn(self.ends[index - 1]):
                return self.ends[index - 1]

    def _within_pieces(self) -> int:
        """Return the latest time, up to the first of `ends`, at which a batch is within the limit.

        If a batch exceeds the limit at all of these times, return the first time with a row before it.
        """
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
        """Yield the first of the parts ``found``, and the next ones while their total size is within the limit."""
        total = Amount()
        for index, (piece, end) in enumerate(found):
            total = total.plus(piece.amount(self.limit), piece.share(time))
            if index and not self.limit.allows(total):
                return
            yield piece, end

    def _learn(self, time: int) -> bool:
        """Read the exact times of the slices that ``time`` may split. Returns False if all were already known."""
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


#: Folders with consecutively numbered files. Folders of pages have gaps: all addresses share one sequence of numbers.
DENSE = ("journal", "samples")


class MissingFiles(NamedTuple):
    """Files of a folder that were deleted before they were read: the numbers of the first and the last."""

    folder: str
    first: int
    last: int

    def __str__(self) -> str:
        which = f"file {self.first}" if self.first == self.last else f"files {self.first} to {self.last}"
        return f"{which} of {self.folder}"


class DataLoss(PipelineError):
    """Files of a data directory were deleted before they were read."""


class DirectoryReplaced(PipelineError):
    """The data directory ends before a position that was read: it was replaced or recreated."""


def end_positions(
    files: DataFiles,
    endings: Iterable[str],
    since: Positions,
    limit: Limit = Limit(),  # noqa: B008 - a tuple is immutable
    until: Positions | None = None,
    *,
    table: str | None = None,
    least: int = 0,
) -> Positions:
    """Return the end of the batch that begins at ``since``: ``until`` or earlier. The batch is about as large as
    ``limit``.

    If the backlog exceeds the limit, the batch ends at the same time in all folders; only the times of rows of
    ``table`` count (None: of all tables). The batch has all rows before ``least`` (epoch ms), even if they exceed the
    limit. Syncs the files of the batch to disk. Raises `DirectoryReplaced`.
    """
    found = dict(since)
    folders = []
    for folder, listed in _folders(files, endings):
        position = since.get(folder, START)
        _check_position(position, listed[-1])
        stop = None if until is None else until.get(folder, START)
        folders.append(list(_slices(files, listed, position, stop, table)))
    # Begin each batch with another folder. Otherwise, if all times are equal or missing, a busy first folder could
    # fill every batch, and the other folders would not be read.
    first = crc32(repr(sorted(since.items())).encode()) % max(len(folders), 1)
    for piece, end in plan_batch(folders[first:] + folders[:first], limit, least):
        files.sync(piece.name)
        found[piece.folder] = end
    return found


def start_positions(files: DataFiles, endings: Iterable[str]) -> Positions:
    """Return the position of the first existing file of each folder.

    For a reader that starts at these positions, files deleted later are `MissingFiles`.
    """
    return {folder: Position(listed[0].number, 0) for folder, listed in _folders(files, endings)}


def ranges_between(
    files: DataFiles, endings: Iterable[str], since: Positions, until: Positions
) -> tuple[list[tuple[Range, int]], list[MissingFiles]]:
    """Return the ranges between ``since`` and ``until``, each with its size in bytes, and the missing files.

    A missing page is detected only if one of the two positions is in it: page numbers of an address have gaps.
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
    """Yield the part of each file of a folder that is behind ``position``."""
    for index, one in enumerate(listed):
        if one.number < position.number:
            continue
        start = position.offset if one.number == position.number else 0
        behind = listed[index + 1] if index + 1 < len(listed) else None
        if until is not None and one.number >= until.number:
            end = until if one.number == until.number and until.offset > start else None
        else:  # a file is complete if a later one exists, even if its footer is not written yet
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
        # The footer has only the times of messages. Other rows are not later than the creation of the next file.
        if one.folder in DENSE and (table != "messages"):
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
    """Return the end of the complete records that a file had when it was listed, None if none is after ``start``.

    Records written after the listing belong to a later batch, because another file, listed earlier, may have got older
    records that are not in this batch.
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
    """Raises `DirectoryReplaced` if the newest file of a folder ends before a position that was read."""
    if last.folder not in DENSE:
        return
    if last.number + 1 < position.number or (last.number == position.number and last.size < position.offset):
        raise DirectoryReplaced(
            f"{last.folder} ends with file {last.number}, but was read up to {position} before: "
            "the data directory was replaced or recreated"
        )


def _numbering_gaps(
    folder: str, numbers: list[int], begin: Position, end: Position
) -> Iterator[MissingFiles]:
    """Yield the gaps in the numbers of files. For a reader that starts at `START`, files before the first existing one
    are not missing."""
    wanted = begin.number if begin != START else (numbers[0] if numbers else end.number)
    stop = end.number + (1 if end.offset else 0)
    for number in [*numbers, stop]:
        if number > stop:
            break
        if number > wanted:
            yield MissingFiles(folder, wanted, number - 1)
        wanted = number + 1


def _missing_pages(folder: str, numbers: list[int], begin: Position, end: Position) -> Iterator[MissingFiles]:
    """Yield the missing pages among those that contain ``begin`` or ``end``."""
    was = {end.number if end.offset else end.number - 1, *([begin.number] if begin.offset else [])}
    for number in sorted(was.difference(numbers)):
        yield MissingFiles(folder, number, number)
