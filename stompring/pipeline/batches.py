"""Ranges of a broker's files to record batches of a table: what a task reads. Needs no Spark.

`Times` tells where in a file the latest time so far rises, so that the file can be cut at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import arrow_schema, integers, milliseconds, names_of, timestamps
from stompring.pipeline.events import PageResolver, event_batches, event_times
from stompring.pipeline.files import DataFiles, Range
from stompring.pipeline.messages import Messages, message_batches
from stompring.pipeline.options import TableScan
from stompring.pipeline.records import Records
from stompring.pipeline.schema import COUNTERS, LONG
from stompring.store.record import ADDRESS, COPY, PREFIX, QUEUE, SAMPLE, SAMPLE_ROW, Kind

#: The fields of `SAMPLE`, and of `SAMPLE_ROW`.
SAMPLE_FIELDS = np.dtype([("kind", "u1"), ("zero", "u1"), ("zeros", "<u2"), ("rows", "<u4"), ("time", "<u8")])
ROW_FIELDS = np.dtype([("queue", "<u4"), ("address", "<u4"), *((name, "<u8") for name in COUNTERS)])


def sample_batches(records: Records, wanted: TableScan) -> Iterator[Any]:
    """A record batch with the columns that are wanted, of the rows that are; none where there are no rows."""
    begins, ends = records.of(Kind.SAMPLE, SAMPLE.size)
    fixed = records.fields(begins, SAMPLE_FIELDS)
    counts = fixed["rows"].astype(np.int64)
    whole = begins + SAMPLE.size + counts * SAMPLE_ROW.size == ends
    begins, _ = records.only(whole, begins, ends)
    counts, written = counts[whole], fixed["time"][whole]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = records.fields(np.repeat(begins, counts) + SAMPLE.size + SAMPLE_ROW.size * within, ROW_FIELDS)
    when = np.repeat(written, counts)
    good, known = np.ones(len(rows), bool), milliseconds(when)
    if wanted.since is not None:
        good &= known >= wanted.since
    if wanted.until is not None:
        good &= known < wanted.until
    if wanted.addresses:
        names = records.names[ADDRESS].items()
        good &= np.isin(
            rows["address"], np.array([at for at, name in names if wanted.matches(name)], np.uint32)
        )
    rows, when = rows[good], when[good]
    if len(rows):
        columns = [_column(name, rows, when, records) for name in wanted.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema("samples", wanted.columns))


def sample_times(records: Records) -> tuple[Any, Any]:
    """Where the records of samples begin, and their times."""
    begins, _ = records.of(Kind.SAMPLE, SAMPLE.size)
    return begins, milliseconds(records.fields(begins, SAMPLE_FIELDS)["time"])


def _column(name: str, rows: Any, when: Any, records: Records) -> Any:
    if name == "time":
        return timestamps(when)
    if name in ("address", "queue"):
        return names_of(rows[name], records.names[ADDRESS if name == "address" else QUEUE])
    return integers(rows[name], LONG)


class Times:
    """``at`` are bytes at which records begin that have a row later than all rows before, ``latest`` its time (epoch
    ms): both ascend. ``begin`` is where the first record begins."""

    __slots__ = ("at", "begin", "latest")

    def __init__(self, records: Records, table: str | None) -> None:
        """Of the rows of one table; None: of all."""
        self.begin = int(records.first)
        rows, times = _row_times(records, table)
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


def _row_times(records: Records, table: str | None) -> tuple[Any, Any]:
    """Where the records of rows begin, and the rows' times, as far as the records tell them."""
    parts = []
    if table != "samples":
        messages = Messages(records)
        own = messages.fixed["flags"] & COPY == 0  # copies are as old as their originals: they move nothing
        parts.append((messages.begins[own], milliseconds(messages.fixed["timestamp"][own])))
    if table in (None, "events"):
        parts += event_times(records)
    if table in (None, "samples"):
        parts.append(sample_times(records))
    rows, times = (np.concatenate(each) for each in zip(*parts, strict=True))
    return rows.astype(np.int64), times.astype(np.int64)


log = logging.getLogger(__name__)


def table_batches(records: Records, wanted: TableScan, resolve: PageResolver | None = None) -> Iterator[Any]:
    """Record batches of one table, from the records of a file."""
    if wanted.table == "messages":
        copies = False if wanted.copies is False else None if wanted.below is None else True
        return message_batches(records, wanted, copies=copies)
    if wanted.table == "events":
        return event_batches(records, wanted, resolve)
    return sample_batches(records, wanted)


def file_batches(
    data: bytes, wanted: TableScan, name: str = "", resolve: PageResolver | None = None
) -> Iterator[Any]:
    """Record batches of a file's bytes. What cannot be read is left out, and told in the log under ``name``."""
    records = Records(data)
    yield from table_batches(records, wanted, resolve)
    log_faults(records, name)


def log_faults(records: Records, name: str) -> None:
    """What of a file could not be read, to the log."""
    for fault in records.faults:
        log.warning("%s at %d: %s; skipped", name, fault.at, fault.reason)
    if records.torn is not None:
        log.info("%s ends at %d: %s", name, records.torn.at, records.torn.reason)


def read_files(
    files: DataFiles, ranges: Iterable[Range], wanted: TableScan, gone: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Record batches of some ranges, one file after the other. ``gone`` is called with files that are not there."""
    for name, start, stop in ranges:
        data = files.read(name)
        if data is not None and (why := files.misplaced(name, data)):
            log.warning("%s/%s: %s; skipped", files.root, name, why)
        elif data is not None:
            records = Records(data, start, stop)
            yield from table_batches(records, wanted, files.page_messages)
            log_faults(records, name)
        elif gone is not None:
            gone(name)
