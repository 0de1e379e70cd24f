"""What of a data directory is new since some positions: where its files end now, and the ranges between two ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import NamedTuple
from zlib import crc32

from stompring.pipeline.files import DataFiles, Listed
from stompring.pipeline.positions import START, Position, Positions, Range
from stompring.pipeline.records import whole_until
from stompring.store.segment import HEADER, Header

#: Folders whose files are numbered without gaps: those of pages share their numbers.
DENSE = ("journal", "samples")


class Limit(NamedTuple):
    """How much is taken at once, by whole files: the first one is always taken. None: as much as there is."""

    bytes: int | None = None
    files: int | None = None
    rows: int | None = None  # records, of which not all become rows of each table


class Lost(NamedTuple):
    """Files that were deleted before they were read: the numbers of the first and of the last."""

    folder: str
    first: int
    last: int

    def __str__(self) -> str:
        which = f"file {self.first}" if self.first == self.last else f"files {self.first} to {self.last}"
        return f"{which} of {self.folder}"


class DataLoss(Exception):
    """Files of a data directory were deleted before they were read."""

    def __init__(self, root: str, what: str) -> None:
        super().__init__(
            f"{root}: {what} was deleted before it was read. Let the broker keep files for longer than nobody reads "
            "them (journal-retention-directory); with the option failOnDataLoss false the query goes on without"
        )


class Replaced(ValueError):
    """The directory has less than was read of it before: it is another one, or was begun anew."""


def newest(
    files: DataFiles,
    endings: Iterable[str],
    since: Positions,
    limit: Limit = Limit(),  # noqa: B008 - it is a tuple
    until: Positions | None = None,
) -> dict[str, Position]:
    """Where to read to, from ``since`` on: at most up to ``until``, and about as much as ``limit`` says.

    What it names is safe from a power cut when this returns. Raises `Replaced`.
    """
    found, left = dict(since), _Left(limit)
    turns = deque(_in_turn(files, endings, since, until))
    while turns:
        ends = turns.popleft()
        for one, start, end in islice(ends, 1):
            if not left.take(files, one, start, end):
                return found
            found[one.folder] = end
            turns.append(ends)
    return found


def oldest(files: DataFiles, endings: Iterable[str]) -> dict[str, Position]:
    """Where all that is there begins. What is deleted from then on before it is read is told as `Lost`."""
    return {folder: Position(listed[0].number, 0) for folder, listed in _folders(files, endings)}


def ranges_between(
    files: DataFiles, endings: Iterable[str], since: Positions, until: Positions
) -> tuple[list[tuple[Range, int]], list[Lost]]:
    """What is between two positions, with the bytes of each range, and what should be there and is gone.

    Of pages only those are missed that a position is about: which others an address had nobody knows any more.
    """
    ranges: list[tuple[Range, int]] = []
    lost: list[Lost] = []
    there = dict(_folders(files, endings, empty=True))
    for folder in sorted(until):
        begin, end = since.get(folder, START), until[folder]
        if end <= begin:
            continue
        listed = [one for one in there.get(folder, []) if begin.number <= one.number <= end.number]
        missed = _gaps if folder in DENSE else _missed
        lost += missed(folder, [one.number for one in listed], begin, end)
        for one in listed:
            start = begin.offset if one.number == begin.number else 0
            stop = end.offset if one.number == end.number else -1
            if one.size > HEADER.size and (stop < 0 or stop > start):
                size = (one.size if stop < 0 else stop) - start
                ranges.append((Range(one.name, start, stop), max(size, 0)))
    return ranges, lost


#: A file, from where it is to be read, and the position behind what can be.
_End = tuple[Listed, int, Position]


class _Left:
    """What is left of a limit."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.bytes = self.files = self.rows = 0

    def take(self, files: DataFiles, one: Listed, start: int, end: Position) -> bool:
        """Take a file, if that is still allowed."""
        limit = self.limit
        size = (one.size if end.number > one.number else end.offset) - start
        rows = 0
        if limit.rows is not None:
            footer = files.footer(one.name)
            share = 1.0 if footer is None else size / max(one.size, 1)
            rows = int(share * (len(footer.starts) if footer is not None else size // 100))
        for taken, more, most in (
            (self.bytes, size, limit.bytes),
            (self.files, 1, limit.files),
            (self.rows, rows, limit.rows),
        ):
            if most is not None and self.files and taken + more > most:
                return False
        self.bytes += size
        self.files += 1
        self.rows += rows
        return True


def _folders(
    files: DataFiles, endings: Iterable[str], *, empty: bool = False
) -> Iterator[tuple[str, list[Listed]]]:
    for folder, listed in groupby(files.every(endings, empty=empty), key=lambda one: one.folder):
        yield folder, list(listed)


def _in_turn(
    files: DataFiles, endings: Iterable[str], since: Positions, until: Positions | None
) -> list[Iterator[_End]]:
    """What is new in each folder, by file; another one comes first each time.

    Else a folder to which something comes all the time would hold up the others for ever, where little is taken.
    """
    folders = []
    for folder, listed in _folders(files, endings):
        position = since.get(folder, START)
        _check(position, listed[-1])
        stop = None if until is None else until.get(folder, START)
        folders.append(_ends(files, listed, position, stop))
    first = crc32(repr(sorted(since.items())).encode()) % max(len(folders), 1)
    return folders[first:] + folders[:first]


def _ends(
    files: DataFiles, listed: list[Listed], position: Position, until: Position | None
) -> Iterator[_End]:
    """Of each file of a folder that has something behind a position: where that ends now."""
    for one in listed:
        if one.number < position.number:
            continue
        start = position.offset if one.number == position.number else 0
        if until is not None and one.number >= until.number:
            end = until if one.number == until.number and until.offset > start else None
        else:  # a file that another one comes after is complete, be its footer written yet or not
            end = _end(files, one, start, complete=one is not listed[-1] or until is not None)
        if end is None:
            return
        yield one, start, end


def _end(files: DataFiles, one: Listed, start: int, *, complete: bool) -> Position | None:
    """Where a file ends now; None where nothing is behind ``start``."""
    if complete or (one.size > start and files.footer(one.name) is not None):
        files.sync(one.name)
        return Position(one.number + 1, 0)
    data = files.read(one.name, start) if one.size > start else None
    if not data:
        return None
    files.sync(one.name)
    before = 0 if start else Header.read(data).size
    size = whole_until(data[before:])
    return Position(one.number, start + before + size) if size else None


def _check(position: Position, last: Listed) -> None:
    """The newest file must not be older than what was read before."""
    if last.folder not in DENSE:
        return
    if last.number + 1 < position.number or (last.number == position.number and last.size < position.offset):
        raise Replaced(
            f"{last.folder} ends with file {last.number}, and was read up to {position} before: "
            "the data directory is another one, or was begun anew"
        )


def _gaps(folder: str, numbers: list[int], begin: Position, end: Position) -> Iterator[Lost]:
    """Of consecutive numbers those that are not there. Where nothing was read before, it begins with the first."""
    wanted = begin.number if begin != START else (numbers[0] if numbers else end.number)
    stop = end.number + (1 if end.offset else 0)
    for number in [*numbers, stop]:
        if number > stop:
            break
        if number > wanted:
            yield Lost(folder, wanted, number - 1)
        wanted = number + 1


def _missed(folder: str, numbers: list[int], begin: Position, end: Position) -> Iterator[Lost]:
    """Files that positions were taken of and that are not there."""
    was = {end.number if end.offset else end.number - 1} | ({begin.number} if begin.offset else set())
    for number in sorted(was.difference(numbers)):
        yield Lost(folder, number, number)
