"""The Parquet files of a lake's tables, and the task of an ingest that writes them from ranges of a broker's files.

Files go by date and bucket, with the statistics that a commit needs. No Delta library is imported: processes of Spark's
executors write files, and a commit in the driver makes them part of a table.
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

#: Partition columns, behind the others.
DATE, BUCKET = "date", "bucket"

#: Which broker a row is of: behind the columns of the data directory, before the partition columns.
BROKER = "broker"

#: Which column says when.
TIME_COLUMNS = {"messages": "timestamp", "events": "time", "samples": "time"}


class NewFile(NamedTuple):
    """A Parquet file below a table's folder that no commit has named yet. ``stats`` is JSON, as Delta wants it.

    ``date`` is empty in a table without partitions.
    """

    path: str
    size: int
    rows: int
    date: str
    bucket: int
    stats: str


#: Bytes of rows that wait to be written as one row group, of one file and of all together.
ROW_GROUP_BYTES, BUFFERED_BYTES = 32 << 20, 128 << 20

DAY = 86_400_000_000  # microseconds

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC


@dataclass
class TableWriter:
    """The files of one task for one table. Nobody sees them until a commit names them."""

    _folder: Folder
    _table: str
    _buckets: int
    _batch: str
    _broker: str

    def __post_init__(self) -> None:
        self._schema = arrow_schema(self._table).append(pa.field(BROKER, pa.string()))
        # all columns that can be compared: a reader may take a column that is left out, while others are there, for one
        # without values (deltalake 1.6 does)
        self._statistics = [
            field.name
            for field in self._schema
            if not (pa.types.is_binary(field.type) or pa.types.is_nested(field.type))
        ]
        self._dictionaries = [
            name for name in DICTIONARY_COLUMNS if name.partition(".")[0] in self._schema.names
        ]
        self._open: dict[int, FileWriter] = {}  # by the number of the file: its day and its bucket

    def add(self, batch: Any) -> None:
        """Rows, as a record batch with all columns of the table."""
        days = integers_of(batch.column(TIME_COLUMNS[self._table]), np.int64) // DAY
        addresses = batch.column("address").dictionary_encode(null_encoding="encode")
        buckets = self._buckets_of(addresses.dictionary.to_pylist(), integers_of(addresses.indices, np.int32))
        for code, which in by_group(days * self._buckets + buckets):
            self.add_group(code, rows_where(which, batch))

    def add_group(self, code: int, rows: Any) -> None:
        """Rows of one file, by what `groups` gave for them."""
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
        """The file of each row as a number, from its time (epoch ms) and the number of its address."""
        ids, which = distinct(addresses)
        return times * 1000 // DAY * self._buckets + self._buckets_of(map(names.get, ids.tolist()), which)

    def _buckets_of(self, addresses: Iterable[str | None], which: Any) -> Any:
        """Return the bucket of each row: the CRC-32 of its address, modulo the number of buckets. ``which`` has the
        index of the address of each row."""
        codes = [crc32((address or "").encode()) % self._buckets for address in addresses]
        return np.array(codes, np.int64)[which]

    def close(self) -> list[NewFile]:
        """Complete the files, and let them be safe from a power cut."""
        files = [part.close() for part in self._open.values()]
        self._open = {}
        sync_files(self._folder, files)
        return files


@dataclass
class FileWriter:
    """A Parquet file. ``statistics`` are the columns whose least and greatest values a commit has, ``dictionaries`` the
    columns of few different values. Without them the defaults of Parquet hold, and a commit has no such values."""

    folder: Folder
    path: str
    schema: Any
    date: str = ""
    bucket: int = 0
    statistics: Sequence[str] | None = None
    dictionaries: Sequence[str] | bool = True
    waiting: int = 0  # bytes of rows that are not written yet
    written: int = 0  # bytes of rows that are
    _rows: int = 0
    _batches: list[Any] = field(default_factory=list)
    _metadata: list[Any] = field(default_factory=list)  # of the file, once it is closed

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
            compression="zstd",  # what costs the least beside reading and decoding
            compression_level=1,
            use_dictionary=self.dictionaries,
            write_statistics=True if self.statistics is None else self.statistics,
            metadata_collector=self._metadata,
            coerce_timestamps="us",
        )

    def write(self) -> None:
        """Write the rows that wait as one row group."""
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self.schema))
        self.written += self.waiting
        self._batches, self.waiting = [], 0

    def close(self) -> NewFile:
        """Complete the file. It is safe from a power cut after `sync_files`."""
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


#: What Parquet calls the names within a map.
MAP_KEYS = "key_value.key"

#: Columns of few different values. Of headers there are few names.
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


#: What stands for the least and the greatest of texts that are too long for Parquet's statistics.
_FIRST, _LAST = "", "\U0010ffff" * 8


def _range(metadata: Any, name: str, rows: int) -> tuple[Any, Any, int]:
    """The least and the greatest value of a column as JSON has them, None without values; and how many are null."""
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
    """What stands for a value in a file's statistics. Not ``told.min``: for times pyarrow imports pandas."""
    kind = statistics_.logical_type.type
    if kind == "TIMESTAMP":
        return f"{(_EPOCH + timedelta(microseconds=raw)).isoformat(timespec='milliseconds')}Z"
    return raw.decode() if kind == "STRING" else raw


def sync_files(folder: Folder, files: list[NewFile]) -> None:
    """Let files be safe from a power cut: their contents, and their names in the directories, each of them once."""
    root = folder.local
    if root is None:
        return
    for file in files:
        folder.sync(file.path)
    for directory in {parent for file in files for parent in Path(file.path).parents}:
        sync_path(root / directory)


#: Scans of all rows of each table without copies of messages, and of the copies alone.
FULL_SCANS = {name: TableScan(name, tuple(columns), copies=False) for name, columns in TABLES.items()}
_COPIES = TableScan(below=LAST_NUMBER)


class BatchJob(NamedTuple):
    """What all tasks of a batch are told."""

    root: str
    retention: str | None
    lake: str
    buckets: int
    batch: int
    tables: tuple[str, ...]  # those that this batch was not committed to yet
    copies: str  # the folder for messages that the broker has written once more
    broker: str  # the name of the broker, in each row
    identity: bytes | None = None  # of the data directory


@dataclass
class TaskOutput:
    """What a task tells: files by table, and what could not be read."""

    files: dict[str, list[NewFile]] = field(default_factory=dict)
    faults: list[tuple[str, int, str]] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)  # names of the files with copies, in the job's folder
    read: int = 0

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each table has in the files."""
        return {name: sum(file.rows for file in files) for name, files in self.files.items() if files}

    def add(self, other: TaskOutput) -> None:
        """What another one has done too."""
        for name, files in other.files.items():
            self.files.setdefault(name, []).extend(files)
        self.copied += other.copied
        self.read += other.read
        self.faults += other.faults

    @classmethod
    def loaded(cls, text: str) -> TaskOutput:
        """From JSON."""
        document = json.loads(text)
        files = {name: [NewFile(*file) for file in files] for name, files in document["files"].items()}
        return cls(**document | {"files": files})


class _Task:
    """The tables' files that are open, and what is to be told of them."""

    def __init__(self, job: BatchJob, ending: str = "") -> None:
        """``ending`` is that of the batch in the names of files."""
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
        if "samples" not in tables and ("messages" in self.parts or "events" in self.parts):  # both need them
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
    """Write copies whose originals the lake has not, with the events that they were added. Called in tasks; the row is
    the `TaskOutput` as JSON."""
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
    """Events that durable messages entered their queues."""
    messages = messages.filter(messages.column("durable"))
    count = messages.num_rows
    given = {name: messages.column(name) for name in ("address", "queue", "message_id")}
    given |= {"time": messages.column("timestamp"), "event": _repeated("added", count)}
    schema = arrow_schema("events")
    columns = [given[each.name] if each.name in given else pa.nulls(count, each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(text: str, count: int) -> Any:
    """A column of one text."""
    return strings([text.encode()]).take(indices(np.zeros(count, np.int64)))


# ---- what Spark calls. Here, so that a process of its executors imports no more than it needs


class BatchProgress:
    """How far a batch is, as far as tasks have come to their end."""

    def __init__(self, spark: Any, number: int, size: int) -> None:
        context = spark.sparkContext
        self.number = number
        self.bytes = size  # of all of it
        self._read, self._rows = context.accumulator(0), context.accumulator(0)

    def add(self, done: TaskOutput) -> None:
        """Called in tasks."""
        self._read += done.read
        self._rows += sum(done.rows.values())

    @property
    def read(self) -> int:
        """Bytes that are read."""
        return int(self._read.value)

    @property
    def rows(self) -> int:
        """Rows of all tables that are written."""
        return int(self._rows.value)


@reports_errors
def ingest_ranges(job: BatchJob, batch_progress: BatchProgress | None, ranges: Iterable[Range]) -> TaskOutput:
    """Write the rows of some ranges to files that no commit names yet. Called in tasks."""
    task = _Task(job)
    for one in ranges:
        task.read(one)
    done = task.close()
    if batch_progress is not None:
        batch_progress.add(done)
    return done
