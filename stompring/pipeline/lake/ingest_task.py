"""A task of an ingest, in a process of a Spark executor: ranges of the broker's files to Parquet files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stompring.pipeline.arrays import TABLES, TYPES, nulls, strings
from stompring.pipeline.events import grouped_event_batches
from stompring.pipeline.files import DataFiles, Range, sample_batches
from stompring.pipeline.messages import grouped_batches, message_batches
from stompring.pipeline.options import TableScan
from stompring.pipeline.records import Records
from stompring.pipeline.storage import Folder
from stompring.pipeline.workers import reporting_errors, reports_errors

from .delta import NewFile, TableWriter

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


def ingest_ranges(job: BatchJob, ranges: Sequence[Range]) -> TaskOutput:
    """Write the rows of some ranges to files that no commit names yet."""
    task = _Task(job)
    for one in ranges:
        task.read(one)
    return task.close()


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
        if one.name.endswith(".samples"):
            self.put_samples(records)
        else:
            self.put_messages(records)
            if "messages" in self.parts or "events" in self.parts:  # both need them
                self.copies += message_batches(records, FULL_SCANS["messages"], copies=True)
            self.put_events(records)
        self.done.faults += [(one.name, fault.at, fault.reason) for fault in records.faults]

    def put_messages(self, records: Records) -> None:
        if parts := self.parts.get("messages"):
            self.put(
                "messages", grouped_batches(records, FULL_SCANS["messages"], parts.of_messages, copies=False)
            )

    def put_events(self, records: Records) -> None:
        if parts := self.parts.get("events"):
            resolve = self.files.page_messages
            self.put("events", grouped_event_batches(records, FULL_SCANS["events"], parts.groups, resolve))

    def put_samples(self, records: Records) -> None:
        if parts := self.parts.get("samples"):
            for batch in sample_batches(records, FULL_SCANS["samples"]):
                self.put("samples", parts.grouped(batch))

    def put(self, table: str, batches: Iterable[tuple[int, Any]]) -> None:
        for group, batch in batches:
            self.parts[table].add_group(group, batch)
            self.done.rows[table] = self.done.rows.get(table, 0) + batch.num_rows

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
    schema = pa.schema([pa.field(name, TYPES[type_]) for name, type_ in TABLES["messages"].items()])
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
            columns.append(strings([b"added"]).take(_zeros(count)))
        else:
            columns.append(nulls(type_, count))
    schema = pa.schema([pa.field(name, TYPES[type_]) for name, type_ in TABLES["events"].items()])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _zeros(count: int) -> Any:
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(np.zeros(count, np.int64))])


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


class IngestRanges:
    """Called in tasks."""

    def __init__(self, job: BatchJob, batch_progress: BatchProgress | None) -> None:
        self.job = job
        self.batch_progress = batch_progress

    @reports_errors
    def __call__(self, ranges: Any) -> TaskOutput:
        done = ingest_ranges(self.job, ranges)
        if self.batch_progress is not None:
            self.batch_progress.add(done)
        return done


class WriteCopies:
    """The same, for copies of messages."""

    def __init__(self, job: BatchJob) -> None:
        self.job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for done in reporting_errors(write_copies(self.job, batches)):
            yield pa.RecordBatch.from_arrays([strings([done.dumped()])], ["done"])
