"""What of a data directory is new since some positions: where its files end now, and the ranges between two ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

from stompring.pipeline.files import DataFiles, Listed, is_sealed
from stompring.pipeline.order import Folder, Piece, in_order
from stompring.pipeline.order import Limit as Limit
from stompring.pipeline.positions import START, Position, Positions, Range
from stompring.pipeline.records import whole_until
from stompring.store.segment import HEADER, Footer, Header

#: Folders whose files are numbered without gaps: those of pages share their numbers.
DENSE = ("journal", "samples")


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
    *,
    table: str | None = None,
    least: int = 0,
) -> dict[str, Position]:
    """Where to read to, from ``since`` on: at most up to ``until``, and about as much as ``limit`` says.

    Where the limit lets something for later, all that is older than some time is before that place, in each folder, and
    nothing else: of rows of ``table`` (None: of any). What is older than ``least`` (epoch ms) is always before it.

    What it names is safe from a power cut when this returns. Raises `Replaced`.
    """
    found = dict(since)
    folders = _pending(files, endings, since, until, table)
    for piece, end in in_order(folders, limit, least):
        files.sync(piece.name)
        found[piece.folder] = end
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


def _folders(
    files: DataFiles, endings: Iterable[str], *, empty: bool = False
) -> Iterator[tuple[str, list[Listed]]]:
    for folder, listed in groupby(files.every(endings, empty=empty), key=lambda one: one.folder):
        yield folder, list(listed)


def _pending(
    files: DataFiles, endings: Iterable[str], since: Positions, until: Positions | None, table: str | None
) -> list[Folder]:
    """What is new in each folder. Another one comes first each time: where times are equal, or nothing has one, a
    folder to which something comes all the time would hold up the others for ever."""
    folders = []
    for folder, listed in _folders(files, endings):
        position = since.get(folder, START)
        _check(position, listed[-1])
        stop = None if until is None else until.get(folder, START)
        folders.append(Folder(_pieces(files, listed, position, stop, table)))
    first = crc32(repr(sorted(since.items())).encode()) % max(len(folders), 1)
    return folders[first:] + folders[:first]


def _pieces(
    files: DataFiles, listed: list[Listed], position: Position, until: Position | None, table: str | None
) -> Iterator[Piece]:
    """What is new in each file of a folder, behind a position."""
    for place, one in enumerate(listed):
        if one.number < position.number:
            continue
        start = position.offset if one.number == position.number else 0
        behind = listed[place + 1] if place + 1 < len(listed) else None
        if until is not None and one.number >= until.number:
            end = until if one.number == until.number and until.offset > start else None
        else:  # a file that another one comes after is complete, be its footer written yet or not
            end = _end(files, one, start, complete=behind is not None or until is not None)
        if end is None:
            return
        yield _piece(files, one, start, end, behind, table)


def _piece(
    files: DataFiles, one: Listed, start: int, end: Position, behind: Listed | None, table: str | None
) -> Piece:
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

    return Piece(
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


def _end(files: DataFiles, one: Listed, start: int, *, complete: bool) -> Position | None:
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
