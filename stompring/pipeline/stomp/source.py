"""The stream reader of Spark's format ``stomp``, and the receiver that fills its spool.

The reader is made and copied in several processes, and opens nothing until the process that plans asks for an offset.
That process receives into the spool for as long as the query runs; tasks read the spool's files. The broker may delete
a message after it is on disk here, and never before. A message that was written and not acknowledged when either side
dies is delivered again and is there twice: at least once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from stompring.pipeline.arrays import TYPES
from stompring.pipeline.options import OptionError
from stompring.pipeline.stomp.connection import BrokerError, Connection, ConnectionFailed
from stompring.pipeline.stomp.options import SourceOptions
from stompring.pipeline.stomp.spool import (
    COLUMNS,
    Position,
    SegmentRange,
    Spool,
    SpoolError,
    read_rows,
    to_record,
)
from stompring.pipeline.worker_errors import reporting_errors, reports_errors
from stompring.stomp.frames import Head

log = logging.getLogger(__name__)

#: Seconds between two tries to connect: the first, and the longest.
FIRST_RETRY, LAST_RETRY = 0.1, 10.0

#: Seconds in which the connection is looked at when nothing comes: for heart-beats.
POLL_SECONDS = 1.0


def is_shutdown(error: BrokerError) -> bool:
    """Whether an ERROR says that the broker stops: in good order that is how it goes away, and it may come back."""
    return "shutting down" in str(error).lower() or "shutdown" in str(error).lower()


class Receiver:
    """Receives from `start` to `stop`. A broker that cannot be reached at first, or refuses, is a ``failure``; one that
    goes away later is waited for."""

    def __init__(self, options: SourceOptions, spool: Spool) -> None:
        self._options = options
        self._spool = spool
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._read_until = spool.head  # what Spark has been told of ends here
        self._last_received = (
            0.0  # when something came last, or receiving began; monotonic seconds, 0 for not yet
        )
        self._stopped = False
        self._connection: Connection | None = None
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
                if isinstance(reason, BrokerError) and not is_shutdown(reason):
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
                    self._store(coming)
                    connection.acknowledge(coming[-1][0])
                    coming = []

    def _store(self, messages: list[tuple[Head, bytes]]) -> None:
        now = time.time_ns() // 1_000_000
        self._spool.append([to_record(head, body, now) for head, body in messages])
        self._mark_received()

    def _mark_received(self) -> None:
        with self._changed:
            self._last_received = time.monotonic()
            self._changed.notify_all()

    def _wait_for_space(self) -> bool:
        """Wait for room, but no longer than the heart-beats of the connection can."""
        with self._changed:
            return (
                self._changed.wait_for(lambda: self._stopped or not self._is_full(), POLL_SECONDS)
                and not self._stopped
            )

    def _is_full(self) -> bool:
        """Whether what Spark has not been told of has reached ``spoolLimit``."""
        spool = self._spool
        return spool.bytes_between(self._read_until, spool.tail) >= self._options.spool_limit

    def _is_stopped(self) -> bool:
        with self._changed:
            return self._stopped


#: Bytes that a task has at least, where there are as many: it costs more than decoding a few MB.
PARTITION = 32 << 20


class SpoolPartition(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[SegmentRange]) -> None:
        super().__init__([tuple(piece) for piece in pieces])


class StompStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("stomp")``. Raises `OptionError`."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self._options = SourceOptions.of(options)
        self._columns = tuple(columns)
        self._spool: Spool | None = None
        self._receiver: Receiver | None = None
        self._until: Position | None = None  # of a query that takes what is available now

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process that plans."""
        return {**self.__dict__, "_spool": None, "_receiver": None}

    # ---- in the process that plans

    @reports_errors
    def initialOffset(self) -> dict[str, int]:
        """Of a new query: all that is in the spool, and what comes."""
        return self._opened().head.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """What one batch may have. Of two limits Spark is told one, and the other holds all the same."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    @reports_errors
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next batch ends. Raises what ended the receiving."""
        spool, begin = self._opened(), Position.of(start)
        spool.check(begin)
        assert self._receiver is not None
        self._receiver.check()
        self._receiver.mark_read(begin)
        end = spool.tail if self._until is None else max(self._until, begin)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return spool.after(begin, end, rows, size).to_json()

    @reports_errors
    def reportLatestOffset(self) -> dict[str, int] | None:
        """For the progress of the query."""
        return None if self._spool is None else self._spool.tail.to_json()

    @reports_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """A broker does not tell how much it has: what has come until nothing comes any more is what is available."""
        spool = self._opened()
        assert self._receiver is not None
        self._receiver.wait_until_idle(self._options.idle, self._options.drain)
        self._receiver.check()
        self._until = spool.tail

    @reports_errors
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[SpoolPartition]:
        """The tasks of a batch; none where it is empty."""
        pieces = self._opened().pieces(Position.of(start), Position.of(end))
        tasks: list[list[SegmentRange]] = []
        size = PARTITION
        for piece in pieces:
            if size >= PARTITION:
                tasks.append([])
                size = 0
            tasks[-1].append(piece)
            size += piece.end - piece.begin
        return [SpoolPartition(task) for task in tasks]

    @reports_errors
    def commit(self, end: dict[str, int]) -> None:
        """What is before this is not asked for again."""
        spool, done = self._opened(), Position.of(end)
        assert self._receiver is not None
        self._receiver.mark_read(done)  # first: it counts from there
        spool.unlink_before(done)

    def stop(self) -> None:
        """End receiving, and let others have the spool."""
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _opened(self) -> Spool:
        if self._spool is None:
            try:
                self._spool = Spool(self._options.spool)
            except (SpoolError, OSError) as reason:
                raise OptionError("spool", str(reason)) from None
            self._receiver = Receiver(self._options, self._spool)
            self._receiver.start()
        return self._spool

    # ---- in tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task."""
        pieces = [SegmentRange(*piece) for piece in partition.value]
        return reporting_errors(read_rows(self._options.spool, pieces, self._columns))


def reader_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, each of which must be one of ours. Raises `ValueError`."""
    from pyspark.sql.pandas.types import to_arrow_type

    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ValueError(f"column {field.name}: unknown column; columns are {', '.join(COLUMNS)}")
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[COLUMNS[field.name]]:
            raise ValueError(f"column {field.name}: is {COLUMNS[field.name]}, not {field.dataType}")
    return tuple(schema.names)
