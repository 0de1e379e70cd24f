"""The Parquet files of a lake's tables, and the task of an ingest that writes them from ranges of a broker's files.

Files go by date and bucket, with the statistics that a commit needs. No Delta library is imported: processes of Spark's
executors write files, and a commit in the driver makes them part of a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stompring.pipeline.arrays import TABLES, arrow_schema, distinct, indices, milliseconds, nulls, strings
from stompring.pipeline.events import grouped_event_batches
from stompring.pipeline.files import DataFiles, Range, sample_batches
from stompring.pipeline.messages import Messages, grouped_batches, message_batches
from stompring.pipeline.options import TableScan
from stompring.pipeline.records import Records
from stompring.pipeline.storage import Folder, sync_directory, sync_file
from stompring.pipeline.workers import reporting_errors, reports_errors
from stompring.store.record import ADDRESS

#: Partition columns, behind the others.
DATE, BUCKET = "date", "bucket"

#: Which broker a row is of: behind the columns of the data directory, before the partition columns.
BROKER = "broker"

#: Which column says when.
TIME_COLUMNS = {"messages": "timestamp", "events": "time", "samples": "time"}


class NewFile(NamedTuple):
    """A Parquet file below a table's folder that no commit has named yet. ``stats`` is JSON, as Delta wants it."""

    path: str
    size: int
    rows: int
    date: str
    bucket: int
    stats: str


def stats_of(rows: int, columns: dict[str, tuple[Any, Any, int]]) -> str:
    """Statistics of a file as Delta has them: the least, the greatest and the number of nulls of columns."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: least for name, (least, _, _) in columns.items() if least is not None},
            "maxValues": {name: most for name, (_, most, _) in columns.items() if most is not None},
            "nullCount": {name: nulls for name, (_, _, nulls) in columns.items()},
        }
    )


#: Bytes of rows that wait to be written as one row group, of one file and of all together.
ROW_GROUP_BYTES, BUFFERED_BYTES = 32 << 20, 128 << 20

DAY = 86_400_000_000  # microseconds

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Key = tuple[int, int]  # days since the epoch, bucket


class TableWriter:
    """The files of one task for one table. Nobody sees them until a commit names them."""

    def __init__(self, folder: Folder, table: str, buckets: int, batch: str, broker: str) -> None:
        self._folder = folder
        self._broker = broker
        self._table = table
        self._buckets = buckets
        self._batch = batch
        self._schema = arrow_schema(table, tuple(TABLES[table]))
        self._open: dict[_Key, FileWriter] = {}
        self._crcs: dict[str | None, int] = {}

    def add(self, batch: Any) -> None:
        """Rows, as a record batch with all columns of the table."""
        for code, rows in self.grouped(batch):
            self.add_group(code, rows)

    def grouped(self, batch: Any) -> Iterator[tuple[int, Any]]:
        """The rows of a record batch with all columns of the table, those of each file, and before them its number."""
        days = integers_of(batch.column(TIME_COLUMNS[self._table]), np.int64) // DAY
        codes = days * self._buckets + self._buckets_of(batch.column("address"))
        for code in np.unique(codes).tolist():
            which = np.flatnonzero(codes == code)
            yield code, batch if len(which) == len(codes) else batch.take(indices(which))

    def add_group(self, code: int, rows: Any) -> None:
        """Rows of one file, by what `groups` gave for them."""
        key = (code // self._buckets, code % self._buckets)
        if key not in self._open:
            self._open[key] = FileWriter(self._folder, self._schema, key, self._batch, self._broker)
        self._open[key].add(rows)
        if sum(part.waiting for part in self._open.values()) > BUFFERED_BYTES:
            max(self._open.values(), key=lambda part: part.waiting).write()

    def groups(self, times: Any, addresses: Any, names: dict[int, str]) -> Any:
        """The file of each row as a number, from its time (epoch ms) and the number of its address."""
        days = milliseconds(times) * 1000 // DAY
        ids, which = distinct(addresses)
        return days * self._buckets + np.array([self._bucket(names.get(id_)) for id_ in ids.tolist()])[which]

    def of_messages(self, messages: Messages) -> Any:
        """The same for messages."""
        fixed = messages.fixed
        return self.groups(fixed["timestamp"], fixed["address"], messages.records.names[ADDRESS])

    def _buckets_of(self, addresses: Any) -> Any:
        codes = addresses.dictionary_encode(null_encoding="encode")
        known = [self._bucket(name) for name in codes.dictionary.to_pylist()]
        return np.array(known, np.int64)[integers_of(codes.indices, np.int32)]

    def _bucket(self, address: str | None) -> int:
        if address not in self._crcs:
            self._crcs[address] = bucket_of(address, self._buckets)
        return self._crcs[address]

    def close(self) -> list[NewFile]:
        """Complete the files, and let them be safe from a power cut."""
        files = [part.close() for part in self._open.values()]
        self._open = {}
        sync_files(self._folder, files)
        return files


class FileWriter:
    """One file. ``schema`` is that of the rows that are added; the column ``broker`` is put behind them."""

    def __init__(self, folder: Folder, schema: Any, key: _Key, batch: str, broker: str) -> None:
        self._folder, self._schema = folder, schema
        self._broker = broker
        date = np.datetime64(key[0], "D").astype(str)
        self._date, self._bucket = str(date), key[1]
        name = f"part-{batch}-{uuid4().hex}.parquet"
        self._path = f"{DATE}={self._date}/{BUCKET}={self._bucket}/{name}"
        self._writer: Any = None
        self._rows = 0
        self._batches: list[Any] = []
        self._metadata: list[Any] = []  # of the file, once it is closed
        self.waiting = 0

    def add(self, batch: Any) -> None:
        """Rows of that date and bucket."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting += batch.nbytes
        if self.waiting > ROW_GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Write the rows that wait as one row group."""
        if self._writer is None:
            target = self._folder.path(self._path)
            self._folder.make_directory(self._path.rpartition("/")[0])
            # the compression that costs the least beside reading and decoding
            self._writer = pq.ParquetWriter(
                target,
                self._schema.append(pa.field(BROKER, pa.string())),
                filesystem=self._folder.system,
                compression="zstd",
                compression_level=1,
                use_dictionary=[BROKER, *_dictionaries(self._schema.names)],
                write_statistics=[BROKER, *_statistics_columns(self._schema)],
                metadata_collector=self._metadata,
                coerce_timestamps="us",
            )
        if self._batches:
            rows = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(rows.append_column(BROKER, _repeated(self._broker, rows.num_rows)))
        self._batches, self.waiting = [], 0

    def close(self) -> NewFile:
        """Complete the file. It is safe from a power cut after `sync_files`."""
        self.write()
        self._writer.close()
        size = self._folder.size(self._path) or 0
        shown = {
            name: _range(self._metadata[0], name, self._rows)
            for name in (BROKER, *_statistics_columns(self._schema))
        }
        return NewFile(self._path, size, self._rows, self._date, self._bucket, stats_of(self._rows, shown))


#: Columns of few different values.
DICTIONARY_COLUMNS = (
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

#: What Parquet calls the names within a map.
MAP_KEYS = "key_value.key"


def _dictionaries(names: list[str]) -> list[str]:
    """Columns of a table that have a dictionary: the names of headers too, of which there are few."""
    few = [name for name in DICTIONARY_COLUMNS if name in names]
    return [*few, f"headers.{MAP_KEYS}"] if "headers" in names else few


def bucket_of(address: str | None, buckets: int) -> int:
    """The bucket of an address: the CRC-32 of its name, as zlib has it, modulo the number of buckets."""
    return crc32((address or "").encode()) % buckets


def integers_of(column: Any, type_: Any) -> Any:
    """The values of a column without nulls (times in microseconds), not copied."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(0, type_)
    return np.frombuffer(data, type_)[column.offset : column.offset + len(column)]


#: What stands for the least and the greatest of texts that are too long for Parquet's statistics.
_FIRST, _LAST = "", "\U0010ffff" * 8


def _statistics_columns(schema: Any) -> list[str]:
    """The columns whose least and greatest values a commit tells: all that can be compared.

    A reader may take a column that is left out, while others are there, for one without values (deltalake 1.6 does).
    """
    return [
        field.name
        for field in schema
        if not (pa.types.is_binary(field.type) or pa.types.is_nested(field.type))
    ]


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
    least, most = min(one for one, _ in ranges), max(one for _, one in ranges)
    if isinstance(least, datetime):
        return _instant(least), _instant(most), nulls
    return least, most, nulls


def _value(statistics_: Any, raw: Any) -> Any:
    """What stands for a value in a file's statistics. Not ``told.min``: for times pyarrow imports pandas."""
    kind = statistics_.logical_type.type
    if kind == "TIMESTAMP":
        return _EPOCH + timedelta(microseconds=raw)
    return raw.decode() if kind == "STRING" else raw


def _instant(time: datetime) -> str:
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def sync_files(folder: Folder, files: list[NewFile]) -> None:
    """Let files be safe from a power cut: their contents, and their names in the directories, each of them once."""
    root = folder.local
    if root is None:
        return
    for file in files:
        sync_file(root / file.path)
    for directory in {parent for file in files for parent in Path(file.path).parents}:
        sync_directory(root / directory)


FULL_SCANS = {name: TableScan(table=name, columns=tuple(columns)) for name, columns in TABLES.items()}


@dataclass(frozen=True, slots=True)
class BatchJob:
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


@dataclass(slots=True)
class TaskOutput:
    """What a task tells: files by table, rows by table, and what could not be read."""

    files: dict[str, list[NewFile]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[str, int, str]] = field(default_factory=list)
    copies: int = 0
    copied: list[str] = field(default_factory=list)  # names of the files with them, in the job's folder
    read: int = 0

    def add(self, other: TaskOutput) -> None:
        """What another one has done too."""
        for name, files in other.files.items():
            self.files.setdefault(name, []).extend(files)
        for name, rows in other.rows.items():
            self.rows[name] = self.rows.get(name, 0) + rows
        self.copies += other.copies
        self.copied += other.copied
        self.read += other.read
        self.faults += other.faults

    def dumped(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def loaded(cls, text: str) -> TaskOutput:
        """From what `dump_positions` gives."""
        document = json.loads(text)
        files = {name: [NewFile(*file) for file in files] for name, files in document["files"].items()}
        faults = [(name, at, reason) for name, at, reason in document["faults"]]
        return cls(files, document["rows"], faults, document["copies"], document["copied"], document["read"])


class _Task:
    """The tables' files that are open, and what is to be told of them."""

    def __init__(self, job: BatchJob) -> None:
        self.job = job
        self.done = TaskOutput()
        self.files = DataFiles(job.root, job.retention, job.identity)
        lake = Folder(job.lake)
        self.parts = {
            name: TableWriter(lake.folder(name), name, job.buckets, f"{job.batch:06d}", job.broker)
            for name in job.tables
        }
        self.copies: list[Any] = []

    def read(self, one: Range) -> None:
        data = self.files.read(one.name)
        if data is None:
            self.done.faults.append((one.name, one.start, "deleted before it was read"))
            return
        if why := self.files.misplaced(one.name, data):
            self.done.faults.append((one.name, one.start, why))
            return
        self.done.read += (len(data) if one.stop < 0 else one.stop) - one.start
        records = Records(data, one.start, one.stop)
        tables = ("samples",) if one.name.endswith(".samples") else ("messages", "events")
        for table in filter(self.parts.__contains__, tables):
            for group, batch in self.batches(table, records):
                self.parts[table].add_group(group, batch)
                self.done.rows[table] = self.done.rows.get(table, 0) + batch.num_rows
        if "samples" not in tables and ("messages" in self.parts or "events" in self.parts):  # both need them
            self.copies += message_batches(records, FULL_SCANS["messages"], copies=True)
        self.done.faults += [(one.name, fault.at, fault.reason) for fault in records.faults]

    def batches(self, table: str, records: Records) -> Iterator[tuple[int, Any]]:
        """Rows of a table, and before them the number of their file."""
        parts, wanted = self.parts[table], FULL_SCANS[table]
        if table == "messages":
            yield from grouped_batches(records, wanted, parts.of_messages, copies=False)
        elif table == "events":
            yield from grouped_event_batches(records, wanted, parts.groups, self.files.page_messages)
        else:
            for batch in sample_batches(records, wanted):
                yield from parts.grouped(batch)

    def close(self) -> TaskOutput:
        self.done.files = {name: part.close() for name, part in self.parts.items()}
        if self.copies:
            table = pa.Table.from_batches(self.copies)
            self.done.copies = table.num_rows
            folder = Folder(self.job.copies)
            folder.make_directory()
            name = f"{uuid4().hex}.parquet"
            pq.write_table(table, folder.path(name), filesystem=folder.system, coerce_timestamps="us")
            self.done.copied.append(name)
        return self.done


def write_copies(job: BatchJob, batches: Iterable[Any]) -> Iterator[TaskOutput]:
    """The messages of copies whose originals the lake has not, with the events that they were added."""
    done = TaskOutput()
    lake = Folder(job.lake)
    parts = {
        name: TableWriter(lake.folder(name), name, job.buckets, f"{job.batch:06d}-copies", job.broker)
        for name in job.tables
        if name != "samples"
    }
    schema = arrow_schema("messages", tuple(TABLES["messages"]))
    for batch in batches:
        for rows in pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches():
            for name, part in parts.items():
                new = rows if name == "messages" else _added(rows)
                part.add(new)
                done.rows[name] = done.rows.get(name, 0) + new.num_rows
    done.files = {name: part.close() for name, part in parts.items()}
    yield done


def _added(messages: Any) -> Any:
    """Events that durable messages entered their queues."""
    messages = messages.filter(messages.column("durable"))
    count = messages.num_rows
    same = {"time": "timestamp", "address": "address", "queue": "queue", "message_id": "message_id"}
    columns = []
    for name, type_ in TABLES["events"].items():
        if name in same:
            columns.append(messages.column(same[name]))
        elif name == "event":
            columns.append(_repeated("added", count))
        else:
            columns.append(nulls(type_, count))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema("events", tuple(TABLES["events"])))


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


class WriteCopies:
    """Called in tasks, with copies of messages."""

    def __init__(self, job: BatchJob) -> None:
        self.job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for done in reporting_errors(write_copies(self.job, batches)):
            yield pa.RecordBatch.from_arrays([strings([done.dumped()])], ["done"])
