"""The source ``stomp``: a receiver, and the spool of what it received.

The spool: a directory of received messages, from the broker's acknowledgement until Spark has committed them.

It is a sequence of segments, files of records as those of the store (length, CRC-32, payload), each 32 MB or a little
more. One process appends to the last segment. Spark reads up to a position before which everything is synced. An
incomplete record can only stand at the end, behind that position: it is cut off when the spool is opened. A segment is
deleted when Spark has committed everything in it.

The stream reader of Spark's format ``stomp``, and the receiver that fills its spool.

The reader is made and copied in several processes, and opens nothing until the process that plans asks for an offset.
That process receives into the spool for as long as the query runs; tasks read the spool's files. The broker may delete
a message after it is on disk here, and never before. A message that was written and not acknowledged when either side
dies is delivered again and is there twice: at least once.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from stompring.errors import PipelineError
from stompring.pipeline.arrays import (
    BINARY,
    HEADERS,
    STRING,
    TIMESTAMP,
    TYPES,
    as_strings,
    fixed_rows,
    header_maps,
    layout,
    slices,
    timestamps,
)
from stompring.pipeline.files import task_ranges
from stompring.pipeline.options import OptionError
from stompring.pipeline.records import Span, whole_records
from stompring.pipeline.storage import sync_path
from stompring.pipeline.workers import error_reporting, reports_errors
from stompring.stomp.frames import Head, header_line
from stompring.store.record import framed

from .connection import BrokerError, Connection, ConnectionFailed
from .options import SourceOptions

#: The first bytes of a segment: what it is, and of which format.
HEADER = b"STOMPSPL\1\0\0\0\0\0\0\0"

#: Bytes after which the next segment is begun.
SEGMENT = 32 << 20

#: Seconds to wait for another process to leave the spool, and between two looks: a lock tells nobody that it is free.
LOCK_TIMEOUT, LOCK_POLL = 10.0, 0.05

_SUFFIX = ".spool"


class SpoolError(PipelineError):
    """The spool is in use, is damaged, or is not the one that a checkpoint speaks of."""


#: An offset of Spark.
Offset = dict[str, int]


class Position(NamedTuple):
    """A place between two records: the number of a segment, and bytes from its beginning."""

    segment: int
    offset: int

    def to_json(self) -> Offset:
        """As Spark keeps it."""
        return {"segment": self.segment, "position": self.offset}

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """From an offset of Spark."""
        return cls(int(offset["segment"]), int(offset["position"]))


class SegmentRange(NamedTuple):
    """Some bytes of one segment, whole records all."""

    segment: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return self.end - self.begin


class Spool:
    """An open spool, which no other process may have open. Use as a context manager, or `close` it.

    One thread may `append` while another one asks. Raises `SpoolError` where it is in use for longer than ``patience``
    seconds or cannot be used; `OSError` where the file system does not do what it should.
    """

    tail: Position  # all before it is synced

    def __init__(self, directory: Path, patience: float = LOCK_TIMEOUT, segment: int = SEGMENT) -> None:
        self.directory = directory
        self._limit = segment
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(directory, patience)
        try:
            numbers = segments(directory)
            self._file = self._open(numbers[-1] if numbers else 1)
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others have it."""
        self._file.close()
        self._lock.close()

    # ---- writing

    def append(self, payloads: Sequence[bytes]) -> Position:
        """Write records and sync them; returns where they end, which is `tail` from now on.

        After an `OSError` the spool is of no use until it is opened again: what the file holds then is not known.
        """
        number, offset = self.tail
        left = memoryview(b"".join(map(framed, payloads)))
        offset += len(left)
        while left:
            left = left[self._file.write(left) :]
        os.fdatasync(self._file.fileno())
        if offset >= self._limit:
            self._file.close()
            self._file = self._open(number + 1)
        else:
            self.tail = Position(number, offset)
        return self.tail

    def _open(self, number: int) -> Any:
        """The segment that is written to: new ones get a header, others lose what is not whole at their end."""
        path = segment_path(self.directory, number)
        file = open(path, "a+b", buffering=0)
        file.seek(0)
        data = file.read()
        end = len(HEADER)
        if len(data) < end:
            file.truncate(0)
            file.write(HEADER)
        elif not data.startswith(HEADER):
            raise SpoolError(f"{path} is not a spool segment of this format")
        else:
            end = max((stop for _, stop in whole_records(data, end, len(data))), default=end)
            if end < len(data):
                file.truncate(end)
        os.fsync(file.fileno())
        sync_path(self.directory)
        self.tail = Position(number, end)
        return file

    # ---- asking

    @property
    def head(self) -> Position:
        """Where what is kept begins."""
        return Position(segments(self.directory)[0], len(HEADER))

    def check(self, position: Position) -> None:
        """Raises `SpoolError` where a position that a checkpoint has is not in this spool."""
        if position > self.tail:
            raise SpoolError(
                f"{self.directory} ends before the position of the checkpoint, segment {position.segment} at "
                f"{position.offset}: it is the spool of another query, or was emptied"
            )
        _size(self.directory, position.segment)

    def bytes_between(self, start: Position, end: Position) -> int:
        """Bytes of records from one position to another."""
        return sum(piece.size for piece in self.pieces(start, end))

    def pieces(self, start: Position, end: Position) -> list[SegmentRange]:
        """What stands between two positions. Raises `SpoolError` where some of it is missing."""
        found = []
        for number in range(start.segment, end.segment + 1):
            size = _size(self.directory, number)
            begin = start.offset if number == start.segment else len(HEADER)
            stop = end.offset if number == end.segment else size
            if stop > size:
                raise _missing(self.directory, number, f"ends at {size}, before {stop}")
            if begin < stop:
                found.append(SegmentRange(number, begin, stop))
        return found

    def after(self, start: Position, end: Position, rows: int | None, size: int | None) -> Position:
        """The position behind so many records or bytes from ``start`` on, not beyond ``end``; one record at least."""
        if rows is None and (size is None or self.bytes_between(start, end) <= size):
            return end
        left, at = inf if rows is None else rows, start
        bytes_left = inf if size is None else size
        for piece in self.pieces(start, end):
            data, begin = read_range(self.directory, piece), 0
            for _, stop in whole_records(data, 0, len(data)):
                if left == 0 or (bytes_left < stop - begin and at != start):
                    return at
                at = Position(piece.segment, piece.begin + stop)
                left -= 1
                bytes_left -= stop - begin
                begin = stop
        return end

    def unlink_before(self, position: Position) -> None:
        """Delete the segments in which there is nothing from a position on."""
        for number in segments(self.directory):
            if number < min(position.segment, self.tail.segment):
                segment_path(self.directory, number).unlink(missing_ok=True)


# ---- files


def segment_path(directory: Path, number: int) -> Path:
    """Where a segment is."""
    return directory / f"{number:012d}{_SUFFIX}"


def segments(directory: Path) -> list[int]:
    """The numbers of the segments that are there."""
    names = (path.stem for path in directory.glob(f"*{_SUFFIX}"))
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def read_range(directory: Path, piece: SegmentRange) -> bytes:
    """The bytes of a piece. Raises `SpoolError`, `OSError`."""
    path = segment_path(directory, piece.segment)
    try:
        with open(path, "rb") as file:
            file.seek(piece.begin)
            data = file.read(piece.size)
    except FileNotFoundError:
        raise _missing(directory, piece.segment, "is missing") from None
    if len(data) < piece.size:
        raise _missing(directory, piece.segment, f"ends before {piece.end}")
    return data


def payload_spans(data: bytes, piece: SegmentRange, directory: Path) -> list[Span]:
    """Where the payloads in a piece's bytes begin and end. Raises `SpoolError` where one is damaged."""
    found = list(whole_records(data, 0, len(data)))
    at = found[-1][1] if found else 0
    if at != len(data):
        raise SpoolError(
            f"{segment_path(directory, piece.segment)} is damaged at {piece.begin + at}: messages in it are lost"
        )
    return found


def _size(directory: Path, number: int) -> int:
    try:
        return segment_path(directory, number).stat().st_size
    except FileNotFoundError:
        raise _missing(directory, number, "is missing") from None


def _missing(directory: Path, number: int, what: str) -> SpoolError:
    return SpoolError(
        f"segment {number} of the spool {directory} {what}, but the checkpoint needs it: "
        "messages are lost, or it is the spool of another query"
    )


def _locked(directory: Path, patience: float) -> Any:
    """A file that is locked as long as it is open."""
    opened = open(directory / "lock", "ab")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
        except BlockingIOError:
            if time.monotonic() >= deadline:
                opened.close()
                raise SpoolError(
                    f"{directory} is in use by another query, or by one that is still stopping"
                ) from None
        except BaseException:
            opened.close()
            raise
        time.sleep(LOCK_POLL)


#: Column and type, as Spark's DDL names it.
COLUMNS = {
    "destination": STRING,
    "message_id": STRING,
    "timestamp": TIMESTAMP,
    "received": TIMESTAMP,
    "headers": HEADERS,
    "body": BINARY,
}

#: timestamp, received (epoch ms, 0 for none), then the lengths of destination, message id, header lines and body
RECORD_HEADER = Struct("<QQIIII")

RECORD_FIELDS = layout(RECORD_HEADER, "timestamp", "received", "destination", "message_id", "headers", "body")

#: Rows of a batch.
ROWS = 1 << 14

#: Columns of their own, or of meaning to one connection only.
_OMITTED = frozenset({b"destination", b"message-id", b"subscription", b"ack", b"content-length"})


def to_record(head: Head, body: bytes, received: int) -> bytes:
    """The payload of a record. ``received`` is epoch ms."""
    headers = head.headers
    destination, identifier, sent = (
        headers.get(name, b"") for name in (b"destination", b"message-id", b"timestamp")
    )
    relevant = [item for item in headers.items() if item[0] not in _OMITTED]
    if head.block:  # nothing in it is escaped
        lines = b"".join([b"%b:%b\n" % item for item in relevant])
    else:
        lines = b"".join([header_line(name, value) for name, value in relevant])
    timestamp = int(sent) if sent.isdigit() and len(sent) < 16 else 0
    fixed = RECORD_HEADER.pack(timestamp, received, len(destination), len(identifier), len(lines), len(body))
    return b"".join((fixed, destination, identifier, lines, body))


def read_rows(directory: Path, pieces: Iterable[SegmentRange], columns: Sequence[str]) -> Iterator[Any]:
    """Record batches of some pieces of a spool. Raises `SpoolError`, `OSError`."""
    for piece in pieces:
        data = read_range(directory, piece)
        spans = payload_spans(data, piece, directory)
        for at in range(0, len(spans), ROWS):
            yield _batch(data, spans[at : at + ROWS], columns)


def _batch(data: bytes, spans: list[Span], columns: Sequence[str]) -> Any:
    begins, buffer = np.array(spans, np.int64)[:, 0], pa.py_buffer(data)
    rows = fixed_rows(np.frombuffer(data, np.uint8), RECORD_FIELDS.itemsize, begins)
    fixed, every = rows.view(RECORD_FIELDS)[:, 0], np.arange(len(begins))
    found = {name: timestamps(fixed[name]) for name in ("timestamp", "received") if name in columns}
    at = begins + RECORD_HEADER.size
    for name in ("destination", "message_id", "headers", "body"):
        part = buffer, at, at + fixed[name], every
        at = part[2]
        if name in columns:
            found[name] = header_maps(*part) if name == "headers" else slices(*part)
            if COLUMNS[name] == STRING:
                found[name] = as_strings(found[name], null_if_empty=True)
    schema = pa.schema([(name, TYPES[COLUMNS[name]]) for name in columns])
    return pa.RecordBatch.from_arrays([found[name] for name in columns], schema=schema)


log = logging.getLogger(__name__)

#: Seconds between two tries to connect: the first, and the longest.
FIRST_RETRY, LAST_RETRY = 0.1, 10.0

#: Seconds in which the connection is looked at when nothing comes: for heart-beats.
POLL_SECONDS = 1.0


#: What an ERROR says when the broker stops: in good order that is how it goes away, and it may come back.
SHUTDOWN = re.compile("shutting down|shutdown", re.IGNORECASE)


@dataclass
class Receiver:
    """Receives from `start` to `stop`. A broker that cannot be reached at first, or refuses, is a ``failure``; one that
    goes away later is waited for."""

    _options: SourceOptions
    _spool: Spool
    _failure: Exception | None = None
    _last_received: float = (
        0.0  # when something came last, or receiving began; monotonic seconds, 0 for not yet
    )
    _stopped: bool = False
    _connection: Connection | None = None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._read_until = self._spool.head  # what Spark has been told of ends here
        self._thread = threading.Thread(target=self._run, name="STOMP receiver", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait until it has. What was received and not written is not acknowledged, and comes again."""
        with self._changed:
            self._stopped = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.interrupt()
        self._thread.join()

    def check(self) -> None:
        """Raises what ended the receiving."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def mark_read(self, position: Position) -> None:
        """Spark has everything before this: there is room for more."""
        with self._changed:
            self._read_until = max(self._read_until, position)
            self._changed.notify_all()

    def wait_until_idle(self, idle: float, longest: float) -> None:
        """Return when nothing has come for ``idle`` seconds, or when the spool is full; after ``longest`` seconds of
        receiving anyway."""
        with self._changed:
            deadline = 0.0
            while self._failure is None and not self._stopped and not self._is_full():
                now = time.monotonic()
                if self._last_received:
                    deadline = deadline or now + longest
                    end = min(self._last_received + idle, deadline)
                    if now >= end:
                        return
                    self._changed.wait(end - now)
                else:
                    self._changed.wait()

    # ---- the thread

    def _run(self) -> None:
        try:
            self._receive()
        except Exception as reason:  # told where Spark asks next
            with self._changed:
                self._failure = reason
                self._changed.notify_all()

    def _receive(self) -> None:
        """Connect again and again, without end once that has worked, and before for as long as ``timeout`` says."""
        pause, until = FIRST_RETRY, time.monotonic() + self._options.endpoint.timeout
        while not self._is_stopped():
            begun = self._last_received
            try:
                self._receive_once()
            except (BrokerError, ConnectionFailed) as reason:
                if self._is_stopped():
                    return
                if isinstance(reason, BrokerError) and not SHUTDOWN.search(str(reason)):
                    raise
                if not self._last_received and time.monotonic() >= until:
                    raise
                pause = FIRST_RETRY if self._last_received > begun else min(2 * pause, LAST_RETRY)
                log.warning("%s; reconnecting in %.1f s", reason, pause)
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, pause)

    def _receive_once(self) -> None:
        with Connection(self._options.endpoint) as connection:
            with self._changed:
                self._connection = connection
            connection.subscribe(self._options.destination, self._options.headers)
            log.info("receiving %s from %s", self._options.destination, self._options.endpoint.address)
            self._mark_received()
            coming: list[tuple[Head, bytes]] = []
            while not self._is_stopped():
                coming += connection.receive(0 if coming else POLL_SECONDS)
                if coming and self._wait_for_space():
                    now = time.time_ns() // 1_000_000
                    self._spool.append([to_record(head, body, now) for head, body in coming])
                    self._mark_received()
                    connection.acknowledge(coming[-1][0])
                    coming = []

    def _mark_received(self) -> None:
        with self._changed:
            self._last_received = time.monotonic()
            self._changed.notify_all()

    def _wait_for_space(self) -> bool:
        """Wait for room, but no longer than the heart-beats of the connection can."""
        with self._changed:
            space = self._changed.wait_for(lambda: self._stopped or not self._is_full(), POLL_SECONDS)
            return space and not self._stopped

    def _is_full(self) -> bool:
        """Whether what Spark has not been told of has reached ``spoolLimit``."""
        spool = self._spool
        return spool.bytes_between(self._read_until, spool.tail) >= self._options.spool_limit

    def _is_stopped(self) -> bool:
        with self._changed:
            return self._stopped


class StompStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("stomp")``. Raises `OptionError`."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._options = SourceOptions.of(options)
        self._columns = columns
        self._open: tuple[Spool, Receiver] | None = None
        self._until: Position | None = None  # of a query that takes what is available now

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process that plans."""
        return {**self.__dict__, "_open": None}

    # ---- in the process that plans

    @reports_errors
    def initialOffset(self) -> Offset:
        """Of a new query: all that is in the spool, and what comes."""
        spool, _ = self._opened()
        return spool.head.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What one batch may have. Of two limits Spark is told one, and the other holds all the same."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    @reports_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Where the next batch ends. Raises what ended the receiving."""
        (spool, receiver), begin = self._opened(), Position.of(start)
        spool.check(begin)
        receiver.check()
        receiver.mark_read(begin)
        end = spool.tail if self._until is None else max(self._until, begin)
        rows, size = self._options.max_rows, self._options.max_bytes
        if isinstance(limit, ReadAllAvailable):
            rows = size = None
        return spool.after(begin, end, rows, size).to_json()

    @reports_errors
    def reportLatestOffset(self) -> Offset | None:
        """For the progress of the query."""
        return None if self._open is None else self._open[0].tail.to_json()

    @reports_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """A broker does not tell how much it has: what has come until nothing comes any more is what is available."""
        spool, receiver = self._opened()
        receiver.wait_until_idle(self._options.idle, self._options.drain)
        receiver.check()
        self._until = spool.tail

    @reports_errors
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a batch; none where it is empty."""
        spool, _ = self._opened()
        pieces = spool.pieces(Position.of(start), Position.of(end))
        tasks = task_ranges((piece, piece.size) for piece in pieces)
        return [InputPartition(task) for task in tasks]

    @reports_errors
    def commit(self, end: Offset) -> None:
        """What is before this is not asked for again."""
        (spool, receiver), done = self._opened(), Position.of(end)
        receiver.mark_read(done)  # first: it counts from there
        spool.unlink_before(done)

    def stop(self) -> None:
        """End receiving, and let others have the spool."""
        if self._open is not None:
            spool, receiver = self._open
            receiver.stop()
            spool.close()
            self._open = None

    def _opened(self) -> tuple[Spool, Receiver]:
        if self._open is None:
            try:
                spool = Spool(self._options.spool)
            except (SpoolError, OSError) as reason:
                raise OptionError("spool", str(reason)) from None
            self._open = spool, Receiver(self._options, spool)
            self._open[1].start()
        return self._open

    # ---- in tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task."""
        with error_reporting():
            yield from read_rows(self._options.spool, partition.value, self._columns)


def reader_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, each of which must be one of ours. Raises `ValueError`."""
    from pyspark.sql.pandas.types import to_arrow_type

    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ValueError(f"column {field.name}: unknown column; columns are {', '.join(COLUMNS)}")
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[COLUMNS[field.name]]:
            raise ValueError(f"column {field.name}: is {COLUMNS[field.name]}, not {field.dataType}")
    return tuple(schema.names)
