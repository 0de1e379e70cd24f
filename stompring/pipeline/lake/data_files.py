"""The Parquet files of a lake's tables, and the task of an ingest that writes them from ranges of a broker's files.

Files are partitioned by date and bucket (a hash of the address), and have the statistics that a commit needs. Processes
of Spark's executors write the files, and a commit in the driver adds the files to a table. So this module needs no
Delta library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stompring.pipeline.arrays import (
    TABLES,
    arrow_schema,
    by_group,
    distinct,
    indices,
    integers_of,
    rows_where,
    strings,
)
from stompring.pipeline.files import DataFiles, Range, table_batches
from stompring.pipeline.options import LAST_NUMBER, TableScan
from stompring.pipeline.records import Records
from stompring.pipeline.storage import Folder, sync_path
from stompring.pipeline.workers import error_reporting, reports_errors

#: Partition columns, the last columns of a table.
DATE, BUCKET = "date", "bucket"

#: Column with the name of the broker, between the columns of the data directory and the partition columns.
BROKER = "broker"

#: For each table, the name of the column with the time of a row.
TIME_COLUMNS = {"messages": "timestamp", "events": "time", "samples": "time"}


class NewFile(NamedTuple):
    """A Parquet file in a table's folder, before a commit adds the file to the table. ``stats``: statistics in Delta's
    JSON format. ``date``: empty if the table has no partitions."""

    path: str
    size: int
    rows: int
    date: str
    bucket: int
    stats: str


#: Limits of buffered rows in bytes, for each file (the size of a row group) and for all files of a writer.
ROW_GROUP_BYTES, BUFFERED_BYTES = 32 << 20, 128 << 20

DAY = 86_400_000_000  # microseconds

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC


@dataclass
class TableWriter:
    """Writer of one task's files of one table. The files are not visible to readers before their commit."""

    _folder: Folder
    _table: str
    _buckets: int
    _batch: str
    _broker: str

    def __post_init__(self) -> None:
        self._schema = arrow_schema(self._table).append(pa.field(BROKER, pa.string()))
        # All comparable columns get statistics: if some columns have statistics and another column has none, a reader
        # such as deltalake 1.6 may assume that the other column has no values.
        self._statistics = [
            field.name
            for field in self._schema
            if not (pa.types.is_binary(field.type) or pa.types.is_nested(field.type))
        ]
        self._dictionaries = [
            name for name in DICTIONARY_COLUMNS if name.partition(".")[0] in self._schema.names
        ]
        self._open: dict[int, FileWriter] = {}  # open files by number (day * buckets + bucket)

    def add(self, batch: Any) -> None:
        """Add rows, as a record batch with all columns of the table."""
        days = integers_of(batch.column(TIME_COLUMNS[self._table]), np.int64) // DAY
        addresses = batch.column("address").dictionary_encode(null_encoding="encode")
        buckets = self._buckets_of(addresses.dictionary.to_pylist(), integers_of(addresses.indices, np.int32))
        for code, which in by_group(days * self._buckets + buckets):
            self.add_group(code, rows_where(which, batch))

    def add_group(self, code: int, rows: Any) -> None:
        """Add the rows of one file. ``code`` is the number of the file, from `groups`."""
        if code not in self._open:
            day, bucket = divmod(code, self._buckets)
            date = str(np.datetime64(day, "D"))
            path = f"{DATE}={date}/{BUCKET}={bucket}/part-{self._batch}-{uuid4().hex}.parquet"
            self._open[code] = FileWriter(
                self._folder, path, self._schema, date, bucket, self._statistics, self._dictionaries
            )
        self._open[code].add(rows.append_column(BROKER, _repeated(self._broker, rows.num_rows)))
        if sum(part.waiting for part in self._open.values()) > BUFFERED_BYTES:
            max(self._open.values(), key=lambda part: part.waiting).write()

    def groups(self, times: Any, addresses: Any, names: Mapping[int, str]) -> Any:
        """Return the file number of each row. ``times``: epoch ms. ``addresses``: address numbers. ``names``: address
        by number."""
        ids, which = distinct(addresses)
        return times * 1000 // DAY * self._buckets + self._buckets_of(map(names.get, ids.tolist()), which)

    def _buckets_of(self, addresses: Iterable[str | None], which: Any) -> Any:
        """Return the bucket of each row: the CRC-32 of its address, modulo the number of buckets. ``which`` has the
        index of the address of each row."""
        codes = [crc32((address or "").encode()) % self._buckets for address in addresses]
        return np.array(codes, np.int64)[which]

    def close(self) -> list[NewFile]:
        """Complete the files, and sync them."""
        files = [part.close() for part in self._open.values()]
        self._open = {}
        sync_files(self._folder, files)
        return files


@dataclass
class FileWriter:
    """Writer of a Parquet file.

    ``statistics``: names of the columns with statistics in the file and in `NewFile.stats`; None: all columns in the
    file, no columns in `NewFile.stats`. ``dictionaries``: names of the columns with dictionary encoding; True: all.
    """

    folder: Folder
    path: str
    schema: Any
    date: str = ""
    bucket: int = 0
    statistics: Sequence[str] | None = None
    dictionaries: Sequence[str] | bool = True
    waiting: int = 0  # bytes of buffered rows
    written: int = 0  # bytes of written rows
    _rows: int = 0
    _batches: list[Any] = field(default_factory=list)
    _metadata: list[Any] = field(default_factory=list)  # metadata of the file, set by `close`

    def add(self, batch: Any) -> None:
        """Add rows, as a record batch of the schema."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting += batch.nbytes
        if self.waiting > ROW_GROUP_BYTES:
            self.write()

    @cached_property
    def _writer(self) -> Any:
        self.folder.make_parent(self.path)
        return pq.ParquetWriter(
            self.folder.path(self.path),
            self.schema,
            filesystem=self.folder.system,
            compression="zstd",  # costs little, compared to reading and decoding
            compression_level=1,
            use_dictionary=self.dictionaries,
            write_statistics=True if self.statistics is None else self.statistics,
            metadata_collector=self._metadata,
            coerce_timestamps="us",
        )

    def write(self) -> None:
        """Write the buffered rows as one row group."""
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self.schema))
        self.written += self.waiting
        self._batches, self.waiting = [], 0

    def close(self) -> NewFile:
        """Complete the file. Until `sync_files` a power failure can destroy it."""
        self.write()
        self._writer.close()
        size = self.folder.size(self.path) or 0
        shown = {name: _range(self._metadata[0], name, self._rows) for name in self.statistics or ()}
        stats = {
            "numRecords": self._rows,
            "minValues": {name: least for name, (least, _, _) in shown.items() if least is not None},
            "maxValues": {name: most for name, (_, most, _) in shown.items() if most is not None},
            "nullCount": {name: nulls for name, (_, _, nulls) in shown.items()},
        }
        return NewFile(self.path, size, self._rows, self.date, self.bucket, json.dumps(stats))


#: Parquet's path of the keys of a map column.
MAP_KEYS = "key_value.key"

#: Columns with few distinct values, among them the names of headers: a dictionary of the values saves space.
DICTIONARY_COLUMNS = (
    BROKER,
    f"headers.{MAP_KEYS}",
    "address",
    "queue",
    "event",
    "user",
    "consumer",
    "priority",
    "durable",
    "due",
    "expires",
)


#: Minimum and maximum of a column whose texts are too long for Parquet's statistics.
_FIRST, _LAST = "", "\U0010ffff" * 8


def _range(metadata: Any, name: str, rows: int) -> tuple[Any, Any, int]:
    """Return minimum and maximum of a column as JSON values, None if all values are null; and the number of nulls."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    index = metadata.schema.names.index(name)
    statistics_ = [group.column(index).statistics for group in groups]
    nulls = sum(one.null_count for one in statistics_)
    if nulls == rows:
        return None, None, nulls
    ranges = [(_value(one, one.min_raw), _value(one, one.max_raw)) for one in statistics_ if one.has_min_max]
    if len(ranges) < sum(
        one.null_count < group.num_rows for one, group in zip(statistics_, groups, strict=True)
    ):
        return _FIRST, _LAST, nulls
    return min(one for one, _ in ranges), max(one for _, one in ranges), nulls


def _value(statistics_: Any, raw: Any) -> Any:
    """Return a raw minimum or maximum as a JSON value. Raw values are used because ``statistics_.min`` of a time
    imports pandas."""
    kind = statistics_.logical_type.type
    if kind == "TIMESTAMP":
        return f"{(_EPOCH + timedelta(microseconds=raw)).isoformat(timespec='milliseconds')}Z"
    return raw.decode() if kind == "STRING" else raw


def sync_files(folder: Folder, files: list[NewFile]) -> None:
    """Sync the contents of local files, and each of their directories once."""
    root = folder.local
    if root is None:
        return
    for file in files:
        folder.sync(file.path)
    for directory in {parent for file in files for parent in Path(file.path).parents}:
        sync_path(root / directory)


#: Scans of all rows of each table except copies of messages, and a scan of the copies alone. A copy is a message that
#: compaction has written a second time.
FULL_SCANS = {name: TableScan(name, tuple(columns), copies=False) for name, columns in TABLES.items()}
_COPIES = TableScan(below=LAST_NUMBER)


class BatchJob(NamedTuple):
    """Parameters common to all tasks of a batch."""

    root: str
    retention: str | None
    lake: str
    buckets: int
    batch: int
    tables: tuple[str, ...]  # tables to which this batch is not committed yet
    copies: str  # folder for copies of messages
    broker: str  # value of the column `BROKER`
    identity: bytes | None = None  # identity of the data directory


@dataclass
class TaskOutput:
    """Result of a task. ``files``: new files by table. ``faults``: file, offset and reason of each unreadable part of
    the broker's files. ``read``: number of bytes read from these files."""

    files: dict[str, list[NewFile]] = field(default_factory=dict)
    faults: list[tuple[str, int, str]] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)  # names of files in `BatchJob.copies`
    read: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows in the files by table. Tables without files are missing."""
        return {name: sum(file.rows for file in files) for name, files in self.files.items() if files}

    def add(self, other: TaskOutput) -> None:
        """Add the result of another task."""
        for name, files in other.files.items():
            self.files.setdefault(name, []).extend(files)
        self.copied += other.copied
        self.read += other.read
        self.faults += other.faults

    @classmethod
    def loaded(cls, text: str) -> TaskOutput:
        """Return the result that a JSON text contains."""
        document = json.loads(text)
        files = {name: [NewFile(*file) for file in files] for name, files in document["files"].items()}
        return cls(**document | {"files": files})


class _Task:
    """A task in progress: its open files and its result so far."""

    def __init__(self, job: BatchJob, ending: str = "") -> None:
        """``ending`` follows the number of the batch in the names of files."""
        self.job = job
        self.done = TaskOutput()
        self.files = DataFiles(job.root, job.retention, job.identity)
        lake, batch = Folder(job.lake), f"{job.batch:06d}{ending}"
        self.parts = {
            name: TableWriter(lake.folder(name), name, job.buckets, batch, job.broker) for name in job.tables
        }
        self.copies: list[Any] = []

    def read(self, one: Range) -> None:
        data = self.files.read(one.name)
        why = "deleted before it was read" if data is None else self.files.misplaced(one.name, data)
        if data is None or why:
            self.done.faults.append((one.name, one.start, why))
            return
        self.done.read += (len(data) if one.stop < 0 else one.stop) - one.start
        records = Records(data, one.start, one.stop)
        tables = ("samples",) if one.name.endswith(".samples") else ("messages", "events")
        for table in filter(self.parts.__contains__, tables):
            part = self.parts[table]
            for code, batch in table_batches(
                records, FULL_SCANS[table], part.groups, self.files.page_messages
            ):
                part.add_group(code, batch)
        # Keep the copies: a copy whose original is not in the lake adds rows to ``messages`` and ``events``.
        if "samples" not in tables and ("messages" in self.parts or "events" in self.parts):
            self.copies += [batch for _, batch in table_batches(records, _COPIES)]
        self.done.faults += [(one.name, fault.at, fault.reason) for fault in records.faults]

    def close(self) -> TaskOutput:
        self.done.files = {name: part.close() for name, part in self.parts.items()}
        if self.copies:
            table = pa.Table.from_batches(self.copies)
            folder = Folder(self.job.copies)
            name = f"{uuid4().hex}.parquet"
            folder.make_parent(name)
            pq.write_table(table, folder.path(name), filesystem=folder.system, coerce_timestamps="us")
            self.done.copied.append(name)
        return self.done


def write_copies(job: BatchJob, batches: Iterable[Any]) -> Iterator[Any]:
    """Write copies of messages whose originals are not in the lake, and an ``added`` event for each durable one. Tasks
    call this function. Yields one row with the `TaskOutput` as JSON."""
    schema = arrow_schema("messages")
    with error_reporting():
        task = _Task(job, "-copies")
        for batch in batches:
            for rows in pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches():
                for name, new in (("messages", rows), ("events", _added(rows))):
                    if name in task.parts:
                        task.parts[name].add(new)
        done = strings([json.dumps(asdict(task.close())).encode()])
        yield pa.RecordBatch.from_arrays([done], ["done"])


def _added(messages: Any) -> Any:
    """Return the ``added`` events of durable messages."""
    messages = messages.filter(messages.column("durable"))
    count = messages.num_rows
    given = {name: messages.column(name) for name in ("address", "queue", "message_id")}
    given |= {"time": messages.column("timestamp"), "event": _repeated("added", count)}
    schema = arrow_schema("events")
    columns = [given[each.name] if each.name in given else pa.nulls(count, each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(text: str, count: int) -> Any:
    """Return a column with one text in each row."""
    return strings([text.encode()]).take(indices(np.zeros(count, np.int64)))


# ---- functions that Spark calls. They are in this module, so that executors import few modules


class BatchProgress:
    """Progress of a batch: the sum over its completed tasks."""

    def __init__(self, spark: Any, number: int, size: int) -> None:
        context = spark.sparkContext
        self.number = number
        self.bytes = size  # size of the whole batch
        self._read, self._rows = context.accumulator(0), context.accumulator(0)

    def add(self, done: TaskOutput) -> None:
        """Count the result of a task. Called in tasks."""
        self._read += done.read
        self._rows += sum(done.rows.values())

    @property
    def read(self) -> int:
        """Number of bytes read so far."""
        return int(self._read.value)

    @property
    def rows(self) -> int:
        """Number of rows written to all tables so far."""
        return int(self._rows.value)


@reports_errors
def ingest_ranges(job: BatchJob, batch_progress: BatchProgress | None, ranges: Iterable[Range]) -> TaskOutput:
    """Write the rows of ranges of the broker's files to new Parquet files. Called in tasks; a commit follows."""
    task = _Task(job)
    for one in ranges:
        task.read(one)
    done = task.close()
    if batch_progress is not None:
        batch_progress.add(done)
    return done
