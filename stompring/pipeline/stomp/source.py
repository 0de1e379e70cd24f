"""The source ``stomp``: the stream reader of Spark, the receiver of messages, and the spool between the two.

The spool is a directory of received messages. A message is written to the spool before the broker gets its ACK, and
stays there until Spark has committed the message. The spool consists of segments: files of records as in the store
(length, CRC-32, payload), each 32 MB or a little more. One process appends to the last segment. Spark reads only synced
records. A crash can leave an incomplete record at the end of the spool, which is truncated when the spool is opened. A
segment is deleted when Spark has committed all of its messages.

Spark creates and copies the reader in several processes. Only the process that plans batches opens the spool and
connects to the broker, when Spark first asks the reader for an offset. This process receives messages into the spool
while the query runs, and tasks read the files of the spool. Delivery is at least once: if the process or the broker
dies after the sync of a message and before its ACK, the broker delivers the message again, and the spool has it twice.
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

#: The first bytes of a segment: magic and format.
HEADER = b"STOMPSPL\1\0\0\0\0\0\0\0"

#: Size in bytes at which a segment is followed by the next one.
SEGMENT = 32 << 20

#: Seconds to wait until another process releases the spool, and between two attempts to lock it.
LOCK_TIMEOUT, LOCK_POLL = 10.0, 0.05

_SUFFIX = ".spool"


class SpoolError(PipelineError):
    """The spool is in use, is damaged, or does not belong to the checkpoint of the query."""


#: An offset of a stream, in the form that Spark stores.
Offset = dict[str, int]


class Position(NamedTuple):
    """A position between two records: the number of a segment, and the byte in it."""

    segment: int
    offset: int

    def to_json(self) -> Offset:
        """Return the position as an offset of Spark."""
        return {"segment": self.segment, "position": self.offset}

    @classmethod
    def of(cls, offset: Offset) -> Position:
        """Return the position of an offset of Spark."""
        return cls(int(offset["segment"]), int(offset["position"]))


class SegmentRange(NamedTuple):
    """A range of bytes in one segment, with complete records."""

    segment: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Size of the range in bytes."""
        return self.end - self.begin


class Spool:
    """A spool that is open and locked for this process. Use it as a context manager, or `close` it.

    One thread may call `append` while another thread calls the methods that read. The constructor raises `OSError`, and
    `SpoolError` if another process has not closed the spool after ``patience`` seconds, or if the spool is invalid.
    """

    tail: Position  # end of the synced records

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
        """Close and unlock the spool."""
        self._file.close()
        self._lock.close()

    # ---- writing

    def append(self, payloads: Sequence[bytes]) -> Position:
        """Write and sync records, and return the new `tail`.

        After an `OSError` the contents of the file are unknown: the spool must be opened again.
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
        """Open a segment for appending: write the header of a new one, truncate an incomplete record of an old one."""
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

    # ---- reading

    @property
    def head(self) -> Position:
        """The position before the first record in the spool."""
        return Position(segments(self.directory)[0], len(HEADER))

    def check(self, position: Position) -> None:
        """Raises `SpoolError` if the position of a checkpoint is not in this spool."""
        if position > self.tail:
            raise SpoolError(
                f"{self.directory} ends before the position of the checkpoint, segment {position.segment} at "
                f"{position.offset}: it is the spool of another query, or was emptied"
            )
        _size(self.directory, position.segment)

    def bytes_between(self, start: Position, end: Position) -> int:
        """Return the number of bytes between two positions, without the headers of segments."""
        return sum(piece.size for piece in self.pieces(start, end))

    def pieces(self, start: Position, end: Position) -> list[SegmentRange]:
        """Return the ranges between two positions. Raises `SpoolError` if some of their bytes are missing."""
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
        """Return the end of a batch that begins at ``start`` and has at most ``rows`` records and ``size`` bytes (None:
        no limit).

        The batch ends at ``end`` or before, and has at least one record even if this record exceeds ``size``.
        """
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
        """Delete the segments before the one that contains ``position``, but never the last segment."""
        for number in segments(self.directory):
            if number < min(position.segment, self.tail.segment):
                segment_path(self.directory, number).unlink(missing_ok=True)


# ---- files


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:012d}{_SUFFIX}"


def segments(directory: Path) -> list[int]:
    """Return the numbers of the existing segments, ascending."""
    names = (path.stem for path in directory.glob(f"*{_SUFFIX}"))
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def read_range(directory: Path, piece: SegmentRange) -> bytes:
    """Return the bytes of a range. Raises `SpoolError`, `OSError`."""
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
    """Return the bounds of the payloads in the bytes of a range. Raises `SpoolError` if a record is damaged."""
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
    """Return an open file that holds the lock of the spool until it is closed. Raises `SpoolError`."""
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


#: Types of the columns, as in Spark's DDL.
COLUMNS = {
    "destination": STRING,
    "message_id": STRING,
    "timestamp": TIMESTAMP,
    "received": TIMESTAMP,
    "headers": HEADERS,
    "body": BINARY,
}

#: Fixed part of a record's payload: timestamp and time of reception (epoch ms, 0: unknown), and the lengths in bytes of
#: destination, message id, header lines and body. These four parts follow.
RECORD_HEADER = Struct("<QQIIII")

RECORD_FIELDS = layout(RECORD_HEADER, "timestamp", "received", "destination", "message_id", "headers", "body")

#: Maximum number of rows in a batch.
ROWS = 1 << 14

#: Headers that are not in the column ``headers``: they have own columns, or are meaningful to one connection only.
_OMITTED = frozenset({b"destination", b"message-id", b"subscription", b"ack", b"content-length"})


def to_record(head: Head, body: bytes, received: int) -> bytes:
    """Return the payload of a message's record. ``received`` is in epoch ms."""
    headers = head.headers
    destination, identifier, sent = (
        headers.get(name, b"") for name in (b"destination", b"message-id", b"timestamp")
    )
    relevant = [item for item in headers.items() if item[0] not in _OMITTED]
    if head.block:  # the headers of this block have no escapes
        lines = b"".join([b"%b:%b\n" % item for item in relevant])
    else:
        lines = b"".join([header_line(name, value) for name, value in relevant])
    timestamp = int(sent) if sent.isdigit() and len(sent) < 16 else 0
    fixed = RECORD_HEADER.pack(timestamp, received, len(destination), len(identifier), len(lines), len(body))
    return b"".join((fixed, destination, identifier, lines, body))


def read_rows(directory: Path, pieces: Iterable[SegmentRange], columns: Sequence[str]) -> Iterator[Any]:
    """Yield the record batches of some ranges of a spool. Raises `SpoolError`, `OSError`."""
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

#: Seconds before the first attempt to reconnect, and maximum seconds before an attempt.
FIRST_RETRY, LAST_RETRY = 0.1, 10.0

#: Maximum seconds between two reads of an idle connection, so that heart-beats are sent in time.
POLL_SECONDS = 1.0


#: Matches the text of the ERROR that a broker sends when it shuts down. The receiver reconnects after this ERROR.
SHUTDOWN = re.compile("shutting down|shutdown", re.IGNORECASE)


@dataclass
class Receiver:
    """A thread that receives messages and appends them to the spool. `start` and `stop` start and stop the thread.

    If the broker cannot be reached at the start, or sends an ERROR other than `SHUTDOWN`, the thread ends, and `check`
    raises the error. If an established connection is lost, the thread reconnects.
    """

    _options: SourceOptions
    _spool: Spool
    _failure: Exception | None = None
    _last_received: float = 0.0  # monotonic seconds of the last messages or SUBSCRIBE; 0: not subscribed yet
    _stopped: bool = False
    _connection: Connection | None = None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._read_until = self._spool.head  # end of the records that batches of Spark already contain
        self._thread = threading.Thread(target=self._run, name="STOMP receiver", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. The broker redelivers received messages that are not in the spool."""
        with self._changed:
            self._stopped = True
            connection = self._connection
            self._changed.notify_all()
        if connection is not None:
            connection.interrupt()
        self._thread.join()

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def mark_read(self, position: Position) -> None:
        """Free space in the spool: records before ``position`` no longer count against ``spoolLimit``."""
        with self._changed:
            self._read_until = max(self._read_until, position)
            self._changed.notify_all()

    def wait_until_idle(self, idle: float, longest: float) -> None:
        """Wait until no message has arrived for ``idle`` seconds, the spool is full, or ``longest`` seconds have passed
        since receiving began."""
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
        except Exception as reason:  # `check` raises it at Spark's next call
            with self._changed:
                self._failure = reason
                self._changed.notify_all()

    def _receive(self) -> None:
        """Receive messages, and reconnect after failures. Before the first success, give up after ``timeout``
        seconds."""
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
        """Wait until the spool is not full, but at most `POLL_SECONDS`, so that heart-beats are sent in time. Returns
        whether the caller may append to the spool."""
        with self._changed:
            space = self._changed.wait_for(lambda: self._stopped or not self._is_full(), POLL_SECONDS)
            return space and not self._stopped

    def _is_full(self) -> bool:
        """Return whether the records that no batch of Spark contains yet have reached ``spoolLimit``."""
        spool = self._spool
        return spool.bytes_between(self._read_until, spool.tail) >= self._options.spool_limit

    def _is_stopped(self) -> bool:
        with self._changed:
            return self._stopped


class StompStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader for ``spark.readStream.format("stomp")``. The constructor raises `OptionError`."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._options = SourceOptions.of(options)
        self._columns = columns
        self._open: tuple[Spool, Receiver] | None = None
        self._until: Position | None = None  # end position of a query with Trigger.AvailableNow

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}  # only the process that plans batches opens the spool

    # ---- in the process that plans batches

    @reports_errors
    def initialOffset(self) -> Offset:
        """Return the start of a new query: the beginning of the spool."""
        spool, _ = self._opened()
        return spool.head.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit of the options: Spark accepts only one. `latestOffset` applies both."""
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    @reports_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch. Raises the error that ended the receiver, and `SpoolError`."""
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
        """Return the end of the spool, for the progress report of the query."""
        return None if self._open is None else self._open[0].tail.to_json()

    @reports_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Receive until no message has arrived for ``idle`` seconds, and set the end of the query there. In STOMP a
        client cannot ask for the number of messages in a queue."""
        spool, receiver = self._opened()
        receiver.wait_until_idle(self._options.idle, self._options.drain)
        receiver.check()
        self._until = spool.tail

    @reports_errors
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a batch, none if it is empty. Raises `SpoolError`."""
        spool, _ = self._opened()
        pieces = spool.pieces(Position.of(start), Position.of(end))
        tasks = task_ranges((piece, piece.size) for piece in pieces)
        return [InputPartition(task) for task in tasks]

    @reports_errors
    def commit(self, end: Offset) -> None:
        """Delete the segments before ``end``: Spark does not read them again."""
        (spool, receiver), done = self._opened(), Position.of(end)
        receiver.mark_read(done)  # first: the receiver must not count bytes of deleted segments
        spool.unlink_before(done)

    def stop(self) -> None:
        """Stop the receiver, and close the spool."""
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
        """Yield the record batches of one task."""
        with error_reporting():
            yield from read_rows(self._options.spool, partition.value, self._columns)


def reader_columns(schema: StructType) -> tuple[str, ...]:
    """Return the names of a schema's columns. Raises `ValueError` if a name or type is not in `COLUMNS`."""
    from pyspark.sql.pandas.types import to_arrow_type

    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ValueError(f"column {field.name}: unknown column; columns are {', '.join(COLUMNS)}")
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[COLUMNS[field.name]]:
            raise ValueError(f"column {field.name}: is {COLUMNS[field.name]}, not {field.dataType}")
    return tuple(schema.names)
