"""The files of a data directory, and record batches from ranges of them.

Ranges of a broker's files to record batches of a table: what a task reads. Needs no Spark.

`Times` tells where in a file the latest time so far rises, so that the file can be cut at a time.

The files of a broker's data directory: listing and reading them while the broker works, and positions in them.

A file is named by its path below the directory; a file that the broker moved to ``retention/`` is found there. How far
a directory has been read is a `Position` for each folder of files (``journal``, ``samples``, ``paging/NAME``): the
number of a file, and a byte in it at which a record begins. A file that is complete and read to its end is left for
the next number, byte 0.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from stompring.errors import StoreError
from stompring.store.datadir import IDENTITY, VERSION, parse_identity
from stompring.store.datadir import Position as Position
from stompring.store.record import ADDRESS, COPY, PREFIX, QUEUE, SAMPLE, SAMPLE_ROW, Kind
from stompring.store.segment import HEADER, NO_IDENTITY, Footer, Header, read_footer

from .arrays import (
    ALL_ENDINGS,
    COUNTERS,
    LONG,
    Batches,
    Grouping,
    arrow_schema,
    by_group,
    integers,
    layout,
    milliseconds,
    names_of,
    one_group,
    rows_at,
    timestamps,
)
from .events import PageResolver, event_batches, event_times
from .messages import Messages, PageMessages, message_batches, wanted_rows
from .options import OptionError, TableScan
from .records import Records
from .storage import Entry, Folder

#: The fields of `SAMPLE_ROW`.
ROW_FIELDS = layout(SAMPLE_ROW, "queue", "address", *COUNTERS)


def sample_batches(records: Records, wanted: TableScan, group: Grouping) -> Batches:
    """Yield the number of each group, and a record batch of its rows with the wanted columns."""
    begins, ends, fixed = records.structs(Kind.SAMPLE)
    at, counts = begins + SAMPLE.size, fixed["rows"].astype(np.int64)
    _, at, counts, fixed = records.only(at + counts * SAMPLE_ROW.size == ends, begins, at, counts, fixed)
    which, rows = records.items(at, counts, ROW_FIELDS)
    when, names = milliseconds(fixed["time"])[which], records.names[ADDRESS]
    good = wanted_rows(wanted, when, rows["address"], names)
    rows, when = rows_at(rows, good), when[good]
    schema = arrow_schema("samples", wanted.columns)
    for number, which in by_group(group(when, rows["address"], names)):
        some, times = rows_at(rows, which), when[which]
        made = [_column(name, some, times, records) for name in wanted.columns]
        yield number, pa.RecordBatch.from_arrays(made, schema=schema)


def _column(name: str, rows: Any, when: Any, records: Records) -> Any:
    if name == "time":
        return timestamps(when)
    if name in ("address", "queue"):
        return names_of(rows[name], records.names[ADDRESS if name == "address" else QUEUE])
    return integers(rows[name], LONG)


class Times:
    """``at`` are bytes at which records begin that have a row later than all rows before, ``latest`` its time (epoch
    ms): both ascend."""

    def __init__(self, records: Records, table: str | None) -> None:
        """Of the rows of one table; None: of all."""
        parts = []
        if table != "samples":
            messages = Messages(records)
            own = (
                messages.fixed["flags"] & COPY == 0
            )  # copies are as old as their originals: they move nothing
            parts.append((messages.begins[own], milliseconds(messages.fixed["timestamp"][own])))
        if table in (None, "events"):
            parts += event_times(records)
        if table in (None, "samples"):
            begins, _, fixed = records.structs(Kind.SAMPLE)
            parts.append((begins, milliseconds(fixed["time"])))
        # where the records of rows begin, and the rows' times, as far as the records tell them
        rows, times = (np.concatenate(each).astype(np.int64) for each in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, times = rows[order], np.maximum.accumulate(times[order])
        if not len(rows):
            self.at = self.latest = np.zeros(0, np.int64)
            return
        rises = np.append(True, times[1:] > times[:-1])
        frames = records.frames  # a row of a transaction stands within its record
        outer = frames[np.searchsorted(frames, rows[rises], side="right") - 1] - PREFIX.size
        last = np.append(outer[:-1] != outer[1:], True)  # of the rows of one record the latest
        self.at, self.latest = outer[last], times[rises][last]

    @property
    def greatest(self) -> int:
        """The latest of all, 0 where there is no row."""
        return int(self.latest[-1]) if len(self.latest) else 0

    def cut(self, time: int) -> int:
        """The first byte behind which a row may not be older; -1 where all of them are."""
        index = int(np.searchsorted(self.latest, time))
        return int(self.at[index]) if index < len(self.at) else -1


log = logging.getLogger(__name__)


def table_batches(
    records: Records, wanted: TableScan, group: Grouping = one_group, resolve: PageResolver | None = None
) -> Batches:
    """Record batches of one table, from the records of a file, and before each the number of its group."""
    if wanted.table == "events":
        return event_batches(records, wanted, group, resolve)
    return (message_batches if wanted.table == "messages" else sample_batches)(records, wanted, group)


def read_files(
    files: DataFiles, ranges: Iterable[Range], wanted: TableScan, gone: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Record batches of some ranges, one file after the other. ``gone`` is called with files that are not there."""
    for name, start, stop in ranges:
        data = files.read(name)
        if data is None:
            if gone is not None:
                gone(name)
        elif why := files.misplaced(name, data):
            log.warning("%s/%s: %s; skipped", files.root, name, why)
        else:
            records = Records(data, start, stop)
            for _, batch in table_batches(records, wanted, resolve=files.page_messages):
                yield batch
            for fault in records.faults:
                log.warning("%s at %d: %s; skipped", name, fault.at, fault.reason)
            if records.torn is not None:
                log.info("%s ends at %d: %s", name, records.torn.at, records.torn.reason)


#: Nothing was read yet.
START = Position(0, 0)

#: By folder. A folder that is not there is to be read from the start.
Positions = dict[str, Position]


def dump_positions(positions: Positions) -> dict[str, str]:
    """As it goes into JSON."""
    return {folder: str(positions[folder]) for folder in sorted(positions)}


def load_positions(document: Mapping[str, str]) -> Positions:
    """From JSON. Raises `ValueError`."""
    found = {}
    for folder, text in document.items():
        number, _, offset = str(text).partition(":")
        found[folder] = Position(int(number), int(offset))
    return found


class Range(NamedTuple):
    """Records of a file that begin at ``start`` or behind it, and before ``stop`` (-1: up to the end of the file)."""

    name: str
    start: int = 0
    stop: int = -1


#: Where files are kept after the broker is done with them, below the data directory or by option.
RETENTION = "retention"

#: In a directory of pages: the name of their address.
ADDRESS_FILE = "address.txt"

#: Bytes of files that a task has at least: it costs more than decoding a few MB.
PARTITION = 32 << 20

_NAME = re.compile(r"(journal|samples|paging/[^/]+)/(\d+)\.(journal|samples|page)")

T = TypeVar("T")

#: Pages whose message numbers are kept at hand.
_CACHED_PAGES = 8

#: Times of files that are kept at hand, in points of all of them together.
_CACHED_POINTS = 1 << 22


class FileEntry(NamedTuple):
    """A file: where it would be if it were not kept in ``retention/``, its folder and number, how large it was."""

    name: str
    folder: str
    number: int
    size: int


class DataFiles:
    """The files below a data directory."""

    def __init__(self, root: str, retention: str | None = None, identity: bytes | None = None) -> None:
        """``retention`` is where retained files are, where that is not in the data directory.

        ``identity`` is that of the directory, where that is known already: files of another one are not read.
        """
        self.root = Folder(root)
        self._given = retention is not None
        self._expected = identity or NO_IDENTITY
        self.retention = Folder(retention or f"{root}/{RETENTION}")
        self._pages: dict[int, str] = {}
        #: The messages of a page by their place (`messages.PageMessages`); None where the page cannot be read.
        self.page_messages = lru_cache(_CACHED_PAGES)(self._page_messages)
        self._times: OrderedDict[tuple[str, int, str | None], Times] = OrderedDict()  # the latest used last
        self._points = 0  # in them

    def every(self, endings: Iterable[str], *, empty: bool = False) -> list[FileEntry]:
        """All files with these endings, by folder and number; ``empty``: those too that have no record yet."""
        if not self.root.is_directory():
            raise OptionError("path", f"{self.root} is not a directory")
        found: dict[str, FileEntry] = {}
        for entry in self._entries():
            match = _NAME.fullmatch(entry.name)
            if match is None or f".{match[3]}" not in endings or (entry.size <= HEADER.size and not empty):
                continue
            if entry.name not in found or found[entry.name].size < entry.size:
                found[entry.name] = FileEntry(entry.name, match[1], int(match[2]), entry.size)
        return sorted(found.values(), key=lambda one: (one.folder, one.number))

    # ---- which directory it is

    def require(self) -> None:
        """Raises `OptionError` where this is no data directory of a broker; an empty one is one."""
        if self._given and not any(map(self.retention.exists, (IDENTITY, "journal", "paging", "samples"))):
            raise OptionError(
                "retention",
                f"{self.retention} has no retained files of a broker "
                f"(looked for {IDENTITY}, journal, paging, samples)",
            )
        if not any(map(self.root.exists, (VERSION, IDENTITY))) and not self.every(ALL_ENDINGS, empty=True):
            raise OptionError(
                "path",
                f"{self.root} is not a data directory of a broker "
                f"(looked for {VERSION}, {IDENTITY}, and files as journal/000000001.journal)",
            )

    def identity(self) -> bytes | None:
        """The identity of the data directory as it is now, None where it has none.

        Where the file is lost the newest segment tells it, as it does to the broker. Raises what `require` raises, and
        `StoreError` where the retained files are those of another directory.
        """
        self.require()
        known = []
        for root in (self.root, self.retention):
            with suppress(FileNotFoundError):
                known.append(parse_identity(_read_in(root, IDENTITY), f"{root}/{IDENTITY}"))
        if len(set(known)) > 1:
            here, there = (identity.hex() for identity in known)
            raise StoreError(
                f"retained files have identity {there}, but data directory {self.root} has identity {here}",
                f"{self.retention}/{IDENTITY}",
                0,
            )
        if known:
            return known[0]
        for one in reversed(self.every({".journal"})):
            header = self.header(one.name)
            if header.fault is None:
                return None if header.directory == NO_IDENTITY else header.directory
        return None

    def misplaced(self, name: str, data: bytes) -> str:
        """Why the bytes of a file are none of this directory's, empty where they may be: by the header.

        Raises `StoreError` for a file of an older format.
        """
        header = Header.read(data)
        header.refuse_older(f"{self.root}/{name}")
        return header.misplaced(int(PurePosixPath(name).stem), self._expected)

    def _entries(self) -> Iterator[Entry]:
        """What is moved meanwhile is in the second of the folders, if not in the first."""
        for root in (self.root, self.retention):
            for folder in ("journal", "samples", "paging"):
                yield from root.entries(folder, deep=folder == "paging")

    def may_contain(self, name: str, wanted: TableScan) -> bool:
        """Return whether a file may have wanted rows. Reads no more of it than the footer and the address."""
        path = PurePosixPath(name)
        if path.suffix == ".page" and wanted.addresses:
            with suppress(OSError, UnicodeDecodeError):
                address = self.root.read(f"{path.parent}/{ADDRESS_FILE}").decode("utf-8").removesuffix("\n")
                if address and not wanted.matches(address):
                    return False
        if wanted.table == "events" or (wanted.since is None and wanted.until is None):
            return True
        footer = self.footer(name)
        return footer is None or wanted.within(footer.least_timestamp, footer.greatest_timestamp)

    # ---- reading

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """All of a file as it is now, or a part; None, and a word in the log, where it is gone. Raises `StoreError`."""
        data = self._find(lambda root: _read_in(root, name, start, size))
        if data is None:
            log.warning("%s/%s: deleted after the files were listed", self.root, name)
        return data

    def _find(self, use: Callable[[Folder], T]) -> T | None:
        """Return the result of ``use`` for the folder that has a file, also while the broker moves the file; None if
        the file is gone."""
        for root in (self.root, self.retention, self.root):
            with suppress(FileNotFoundError):
                return use(root)
        return None

    def sync(self, name: str) -> None:
        """Let what can be read of a file be there after a power cut too."""
        self._find(lambda root: root.sync(name))

    def footer(self, name: str) -> Footer | None:
        """The footer of a sealed file, without reading what is before it; None where there is none to be read."""
        with suppress(OSError):
            return self._find(lambda root: _footer_in(root, name))
        return None

    def header(self, name: str) -> Header:
        """What stands at the beginning of a file; zeros where that cannot be read."""
        return Header.read(self.read(name, 0, HEADER.size) or b"")

    def times(self, name: str, stop: int, table: str | None) -> Times:
        """When the rows of a table are from in a file before a byte; -1: in all of it. Of a file that is gone none.

        They are cached; the cache drops the oldest if it has too many points.
        """
        key, known = (name, stop, table), self._times
        if key not in known:
            known[key] = Times(Records(self.read(name, 0, None if stop < 0 else stop) or b""), table)
            self._points += len(known[key].at)
            while self._points > _CACHED_POINTS and len(known) > 1:
                self._points -= len(known.popitem(last=False)[1].at)
        known.move_to_end(key)
        return known[key]

    def _page_messages(self, page: int) -> PageMessages | None:
        if page not in self._pages:
            self._pages = {one.number: one.name for one in self.every({".page"})}
        name = self._pages.get(page)
        if name is None or (data := self.read(name)) is None or self.misplaced(name, data):
            return None
        records = Records(data)
        return None if records.faults else PageMessages(records)


def _read_in(root: Folder, name: str, start: int = 0, size: int | None = None) -> bytes:
    """A part of a file. Raises `FileNotFoundError`, and `StoreError` for any other `OSError`."""
    try:
        return root.read(name, start, size)
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise StoreError(fault.strerror or str(fault), f"{root}/{name}", 0) from None


def _footer_in(root: Folder, name: str) -> Footer | None:
    size = root.size(name) or 0
    if size <= HEADER.size:
        raise FileNotFoundError
    return read_footer(lambda start, stop: root.read(name, start, stop - start), size)


def is_sealed(ending: bytes, start: int) -> bool:
    """Whether the bytes of a file from ``start`` on end with a footer and a trailer."""
    found = read_footer(lambda begin, stop: ending[begin - start : stop - start], start + len(ending))
    return found is not None


def task_ranges(ranges: Iterable[tuple[T, int]], least: int = PARTITION) -> list[tuple[T, ...]]:
    """Ranges of files, put together until their sizes in bytes add up to ``least``."""
    parts: list[list[T]] = []
    total = least
    for each, size in ranges:
        if total >= least:
            parts.append([])
            total = 0
        parts[-1].append(each)
        total += size
    return list(map(tuple, parts))
