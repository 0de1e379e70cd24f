"""Reading the files of a data directory, also while the broker runs: record batches from ranges of files. Spark is not
needed.

The name of a file is its path below the data directory, even after the broker has moved it to ``retention/``. A reader
has a `Position` for each folder of files (``journal``, ``samples``, ``paging/NAME``): the number of a file, and the
byte in the file at which a record begins. The position behind a complete file is the next file number, byte 0.
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
    """The points at which a time can split a file: records with a row later than all rows before it in the file.

    ``at``: byte at which each of these records begins. ``latest``: time of its latest row (epoch ms). Both ascend.
    """

    def __init__(self, records: Records, table: str | None) -> None:
        """``table`` selects the rows; None: the rows of all tables."""
        parts = []
        if table != "samples":
            messages = Messages(records)
            # A copy has the time of its original, which is not later than the rows before the copy.
            own = messages.fixed["flags"] & COPY == 0
            parts.append((messages.begins[own], milliseconds(messages.fixed["timestamp"][own])))
        if table in (None, "events"):
            parts += event_times(records)
        if table in (None, "samples"):
            begins, _, fixed = records.structs(Kind.SAMPLE)
            parts.append((begins, milliseconds(fixed["time"])))
        # one item for each row: byte offset of its record, and its time (epoch ms)
        rows, times = (np.concatenate(each).astype(np.int64) for each in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, times = rows[order], np.maximum.accumulate(times[order])
        if not len(rows):
            self.at = self.latest = np.zeros(0, np.int64)
            return
        rises = np.append(True, times[1:] > times[:-1])
        frames = records.frames  # a transaction is one frame, which may have several rows
        outer = frames[np.searchsorted(frames, rows[rises], side="right") - 1] - PREFIX.size
        last = np.append(outer[:-1] != outer[1:], True)  # keep the latest row of each frame
        self.at, self.latest = outer[last], times[rises][last]

    @property
    def greatest(self) -> int:
        """The time of the latest row (epoch ms), 0 if there are no rows."""
        return int(self.latest[-1]) if len(self.latest) else 0

    def cut(self, time: int) -> int:
        """Return the byte at which the first row of ``time`` (epoch ms) or later begins, -1 if all rows are earlier."""
        index = int(np.searchsorted(self.latest, time))
        return int(self.at[index]) if index < len(self.at) else -1


log = logging.getLogger(__name__)


def table_batches(
    records: Records, wanted: TableScan, group: Grouping = one_group, resolve: PageResolver | None = None
) -> Batches:
    """Yield record batches of a table from the records of a file, each preceded by the number that ``group`` gives its
    rows.
    """
    if wanted.table == "events":
        return event_batches(records, wanted, group, resolve)
    return (message_batches if wanted.table == "messages" else sample_batches)(records, wanted, group)


def read_files(
    files: DataFiles, ranges: Iterable[Range], wanted: TableScan, gone: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Yield the record batches of some ranges, file by file. ``gone`` is called with the name of each deleted file."""
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


#: The position before the first file.
START = Position(0, 0)

#: Positions by folder. A folder without a position is read from the start.
Positions = dict[str, Position]


def dump_positions(positions: Positions) -> dict[str, str]:
    """Return positions as a JSON document: ``NUMBER:OFFSET`` by folder."""
    return {folder: str(positions[folder]) for folder in sorted(positions)}


def load_positions(document: Mapping[str, str]) -> Positions:
    """Return the positions of a JSON document of `dump_positions`. Raises `ValueError`."""
    found = {}
    for folder, text in document.items():
        number, _, offset = str(text).partition(":")
        found[folder] = Position(int(number), int(offset))
    return found


class Range(NamedTuple):
    """The records of a file that begin at byte ``start`` or later, and before ``stop`` (-1: to the end of the file)."""

    name: str
    start: int = 0
    stop: int = -1


#: Directory of retained files, below the data directory unless the ``retention`` option names another one.
RETENTION = "retention"

#: Name of the file that contains the name of the address, in a directory of pages.
ADDRESS_FILE = "address.txt"

#: Minimum size of a task in bytes: the overhead of a task equals the time to decode a few MB.
PARTITION = 32 << 20

_NAME = re.compile(r"(journal|samples|paging/[^/]+)/(\d+)\.(journal|samples|page)")

T = TypeVar("T")

#: Number of cached `PageMessages`.
_CACHED_PAGES = 8

#: Maximum number of points in all cached `Times` together.
_CACHED_POINTS = 1 << 22


class FileEntry(NamedTuple):
    """A file: its name (see the module), its folder and number, and its size in bytes when it was listed."""

    name: str
    folder: str
    number: int
    size: int


class DataFiles:
    """The files of a data directory."""

    def __init__(self, root: str, retention: str | None = None, identity: bytes | None = None) -> None:
        """``retention``: directory of retained files; None: ``retention`` in the data directory.

        ``identity``: identity of the data directory if it is known. Files with another identity are not read.
        """
        self.root = Folder(root)
        self._given = retention is not None
        self._expected = identity or NO_IDENTITY
        self.retention = Folder(retention or f"{root}/{RETENTION}")
        self._pages: dict[int, str] = {}
        #: Returns the `messages.PageMessages` of a page number, None if the page cannot be read.
        self.page_messages = lru_cache(_CACHED_PAGES)(self._page_messages)
        self._times: OrderedDict[tuple[str, int, str | None], Times] = OrderedDict()  # ordered by last use
        self._points = 0  # number of points in all cached `Times`

    def every(self, endings: Iterable[str], *, empty: bool = False) -> list[FileEntry]:
        """Return all files with these name endings, ordered by folder and number. ``empty``: include files without
        records."""
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

    # ---- the identity of the directory

    def require(self) -> None:
        """Raises `OptionError` if this is not a data directory of a broker. The directory may be without messages."""
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
        """Return the identity of the data directory, None if it has none.

        If the identity file is lost, the newest segment has the identity: the broker reads it there, too. Raises the
        errors of `require`, and `StoreError` if the retained files belong to another directory.
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
        """Return why a file, by its header, cannot have this name in this directory; empty if it can.

        Raises `StoreError` for a file of an older format.
        """
        header = Header.read(data)
        header.refuse_older(f"{self.root}/{name}")
        return header.misplaced(int(PurePosixPath(name).stem), self._expected)

    def _entries(self) -> Iterator[Entry]:
        # The data directory first: so a file that the broker moves to the retention directory is listed at least once.
        for root in (self.root, self.retention):
            for folder in ("journal", "samples", "paging"):
                yield from root.entries(folder, deep=folder == "paging")

    def may_contain(self, name: str, wanted: TableScan) -> bool:
        """Return whether a file may have wanted rows. Reads only the footer, and the address of a page."""
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
        """Return ``size`` bytes of a file (None: to its end) from ``start``. Log a warning and return None if the file
        was deleted. Raises `StoreError`."""
        data = self._find(lambda root: _read_in(root, name, start, size))
        if data is None:
            log.warning("%s/%s: deleted after the files were listed", self.root, name)
        return data

    def _find(self, use: Callable[[Folder], T]) -> T | None:
        """Return the result of ``use`` for the directory that has a file, even if the broker moves the file meanwhile.
        Returns None if the file was deleted."""
        for root in (self.root, self.retention, self.root):
            with suppress(FileNotFoundError):
                return use(root)
        return None

    def sync(self, name: str) -> None:
        """Sync the data of a file to disk."""
        self._find(lambda root: root.sync(name))

    def footer(self, name: str) -> Footer | None:
        """Return the footer of a file, read without the records before it; None if it is missing or unreadable."""
        with suppress(OSError):
            return self._find(lambda root: _footer_in(root, name))
        return None

    def header(self, name: str) -> Header:
        """Return the header of a file. If the file was deleted, the header has a ``fault``, and its other fields are
        0."""
        return Header.read(self.read(name, 0, HEADER.size) or b"")

    def times(self, name: str, stop: int, table: str | None) -> Times:
        """Return the times of a table's rows in a file before byte ``stop`` (-1: to its end), from a cache.

        Empty if the file was deleted. The cache evicts the least recently used times beyond its size.
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
    """Read a part of a file. Raises `FileNotFoundError`, and `StoreError` for any other `OSError`."""
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
    """Return whether the end of a file, ``ending`` from byte ``start`` on, has a complete footer and trailer."""
    found = read_footer(lambda begin, stop: ending[begin - start : stop - start], start + len(ending))
    return found is not None


def task_ranges(ranges: Iterable[tuple[T, int]], least: int = PARTITION) -> list[tuple[T, ...]]:
    """Group consecutive ranges into tasks of at least ``least`` bytes each, except for the last task."""
    parts: list[list[T]] = []
    total = least
    for each, size in ranges:
        if total >= least:
            parts.append([])
            total = 0
        parts[-1].append(each)
        total += size
    return list(map(tuple, parts))
