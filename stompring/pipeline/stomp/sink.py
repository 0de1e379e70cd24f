"""The writers of Spark's format ``stomp``. Each task is a connection and, by default, one transaction.

A transaction cannot be handed to the driver, which is another process: what a task has committed stays, whatever
becomes of the other tasks of its job. With duplicate ids a task may be repeated after it was committed: by a batch
that Spark replays, or when a task died between its COMMIT and its report. A broker that knows the ids refuses that
COMMIT. The rows are then sent once more without a transaction: the broker drops the rows that it has and adds the
others.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stompring.pipeline.stomp.connection import BrokerError, Connection
from stompring.pipeline.stomp.options import SinkOptions
from stompring.pipeline.stomp.send_frames import TRANSACTION, SendEncoder, check_columns
from stompring.pipeline.worker_errors import reports_errors

#: Bytes of record batches that are kept in memory; what comes behind them goes to a file.
BUFFER_LIMIT = 64 << 20


class BatchBuffer(AbstractContextManager["BatchBuffer"]):
    """Record batches of one schema, given back in their order. Leaving it deletes the file, which has no name."""

    def __init__(self, most: int = BUFFER_LIMIT) -> None:
        self._most = most
        self._batches: list[Any] = []
        self._size = 0
        self._over = False
        self._file: Any = None
        self._writer: Any = None

    def __exit__(self, *exception: object) -> None:
        self._batches.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def record(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches, each kept before it is handed on."""
        for batch in batches:
            self._append(batch)
            yield batch

    def again(self) -> Iterator[Any]:
        """All that was kept. What goes through after is not."""
        self._over = True
        yield from self._batches
        if self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)

    def _append(self, batch: Any) -> None:
        if self._over:
            return
        self._size += batch.nbytes
        if self._size <= self._most:
            self._batches.append(batch)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)


#: Receipts that may be on their way, so that neither side waits for the other between groups.
IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a task. ``again`` tells that it had been done before, in part at least."""

    rows: int = 0
    again: bool = False


def is_duplicate(refused: BrokerError, header: str) -> bool:
    """Whether an ERROR speaks of a duplicate id: by the name of its header (stompring), or as Artemis has it."""
    text = str(refused)
    return header in text or "duplicate message detected" in text.lower()


def send_rows(
    options: SinkOptions, prefix: str | None, batches: Iterable[Any], memory: int = BUFFER_LIMIT
) -> TaskResult:
    """Send the rows of a task. ``prefix`` begins their duplicate ids, None where none are made.

    Rows that may have to be sent again are kept in so many bytes of ``memory``, and on disk.

    Raises `BrokerError`, `ConnectionFailed`, or `ValueError` for a row that cannot be sent; in a transaction nothing
    has been sent then.
    """
    coming = (batch for batch in batches if len(batch))
    first = next(coming, None)
    if first is None:
        return TaskResult()
    check_columns(first.schema, options)
    sends = SendEncoder(options, prefix)
    every = chain([first], coming)
    has_ids = options.dedup_header is not None and (prefix is not None or "dedup_id" in first.schema.names)
    if not options.transaction:
        return TaskResult(_in_groups(options, sends, every))
    if not has_ids:
        return TaskResult(_in_transaction(options, sends, every))
    with BatchBuffer(memory) as buffer:
        remaining = buffer.record(every)
        try:
            return TaskResult(_in_transaction(options, sends, remaining))
        except BrokerError as refused:
            if not is_duplicate(refused, options.dedup_header or ""):
                raise
        # some brokers say so at the SEND, when rows are still to come
        return TaskResult(_in_groups(options, sends, chain(buffer.again(), remaining)), again=True)


def _in_transaction(options: SinkOptions, sends: SendEncoder, batches: Iterable[Any]) -> int:
    rows = 0
    with Connection(
        options.endpoint
    ) as connection:  # which is dropped when anything fails, and all of it with it
        connection.begin(TRANSACTION)
        for batch in batches:
            for frames, count in sends.pieces(batch, rows, transaction=True):
                connection.send(frames)
                rows += count
        connection.commit(TRANSACTION)
        _disconnect(connection)
    return rows


def _in_groups(options: SinkOptions, sends: SendEncoder, batches: Iterable[Any]) -> int:
    rows = waiting = 0
    with Connection(options.endpoint) as connection:
        for batch in batches:
            for part in _parts(batch, options.receipt_rows - waiting, options.receipt_rows):
                last = waiting + len(part) == options.receipt_rows
                plain = part.slice(0, len(part) - 1) if last else part
                for frames, count in sends.pieces(plain, rows, transaction=False):
                    connection.send(frames)
                    rows += count
                if last:
                    receipt = connection.next_receipt()
                    connection.send(sends.encode(part.slice(len(part) - 1), rows, receipt=receipt))
                    connection.await_receipts(IN_FLIGHT)
                    rows += 1
                waiting = 0 if last else waiting + len(part)
        connection.close()  # whose receipt tells of all that was sent
    return rows


def _parts(batch: Any, first: int, size: int) -> Iterator[Any]:
    """Slices of a batch: ``first`` rows, then ``size`` at a time, then what is left."""
    at = 0
    while at < len(batch):
        part = batch.slice(at, first)
        yield part
        at += len(part)
        first = size


def _disconnect(connection: Connection) -> None:
    """What counts has been done: whether the farewell arrives does not matter."""
    with suppress(OSError, BrokerError):
        connection.say("DISCONNECT")


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task tells the driver."""

    sent: TaskResult


class StompWriter(DataSourceArrowWriter):
    """``df.write``: duplicate ids are made where there is a ``jobId``."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @reports_errors
    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """One task."""
        job = self._options.job_id
        prefix = None if job is None else f"{job}-{TaskContext.get().partitionId()}"
        return TaskCommit(send_rows(self._options, prefix, iterator))

    def commit(self, messages: Sequence[TaskCommit | None]) -> None:
        """All tasks have committed."""
        _log_commit("job", messages)

    def abort(self, messages: Sequence[TaskCommit | None]) -> None:
        """Some task failed for good; the rows of those that did not are with the broker."""
        _log_abort("job", messages)


class StompStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: duplicate ids are those of the query, the batch, the partition and the row."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @reports_errors
    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """One task of a batch."""
        prefix = None if self._options.dedup_header is None else self._prefix(TaskContext.get())
        return TaskCommit(send_rows(self._options, prefix, iterator))

    def _prefix(self, context: TaskContext) -> str:
        query = self._options.job_id or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise ValueError("Spark provides no query id and batch id: cannot create duplicate ids")
        return f"{query}-{batch}-{context.partitionId()}"

    def commit(self, messages: Sequence[TaskCommit | None], batchId: int) -> None:
        """All tasks have committed."""
        _log_commit(f"batch {batchId}", messages)

    def abort(self, messages: Sequence[TaskCommit | None], batchId: int) -> None:
        """As of a job; Spark will do the batch again."""
        _log_abort(f"batch {batchId}", messages)


def writer_options(options: Any, schema: StructType) -> SinkOptions:
    """Options that fit the columns of a DataFrame. Raises `OptionError`, `ValueError`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = SinkOptions.of(options)
    check_columns(to_arrow_schema(schema, timezone="UTC"), found)
    return found


def _results(messages: Iterable[TaskCommit | None]) -> list[TaskResult]:
    return [message.sent for message in messages if message is not None]


def _log_commit(what: str, messages: Sequence[TaskCommit | None]) -> None:
    sent = _results(messages)
    again = sum(one.again for one in sent)
    more = f"; {again} tasks were repeated" if again else ""
    log.info("%s: %d rows sent by %d tasks%s", what, sum(one.rows for one in sent), len(sent), more)


def _log_abort(what: str, messages: Sequence[TaskCommit | None]) -> None:
    sent = _results(messages)
    rows = sum(one.rows for one in sent)
    log.warning("%s failed: %d rows of %d successful tasks stay with the broker", what, rows, len(sent))
