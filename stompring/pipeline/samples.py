"""The bytes of a file of samples as record batches: a row for each queue in each sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import arrow_schema, milliseconds, named, numbers, times
from stompring.pipeline.options import Wanted
from stompring.pipeline.records import Records
from stompring.pipeline.schema import COUNTERS, LONG
from stompring.store.record import ADDRESS, QUEUE, SAMPLE, SAMPLE_ROW, Kind

#: The fields of `SAMPLE`, and of `SAMPLE_ROW`.
SAMPLE_FIELDS = np.dtype([("kind", "u1"), ("zero", "u1"), ("zeros", "<u2"), ("rows", "<u4"), ("time", "<u8")])
ROW_FIELDS = np.dtype([("queue", "<u4"), ("address", "<u4"), *((name, "<u8") for name in COUNTERS)])


def sample_batches(records: Records, wanted: Wanted) -> Iterator[Any]:
    """A record batch with the columns that are wanted, of the rows that are; none where there are no rows."""
    begins, ends = records.of(Kind.SAMPLE, SAMPLE.size)
    fixed = records.fields(begins, SAMPLE_FIELDS)
    counts = fixed["rows"].astype(np.int64)
    whole = begins + SAMPLE.size + counts * SAMPLE_ROW.size == ends
    begins, _ = records.only(whole, begins, ends)
    counts, taken = counts[whole], fixed["time"][whole]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = records.fields(np.repeat(begins, counts) + SAMPLE.size + SAMPLE_ROW.size * within, ROW_FIELDS)
    when = np.repeat(taken, counts)
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
        return times(when)
    if name in ("address", "queue"):
        return named(rows[name], records.names[ADDRESS if name == "address" else QUEUE])
    return numbers(rows[name], LONG)
