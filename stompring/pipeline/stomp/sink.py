"""The sink ``stomp``: record batches become SEND frames. Each task has a connection and, by default, one transaction.

Arrow computes each part of the frames (destination, headers, length, body) as a column, and joins the parts row by row.
The buffer of the result is sent to the socket, without a Python object for a row. A column is escaped only if it
contains a character that must be escaped.

A task commits its own transaction, because the driver, another process, cannot commit it. So the rows of a task stay
with the broker even if other tasks of the job fail. A committed task may run again: in a batch that Spark repeats, or
if the task died between its COMMIT and its report to the driver. If the rows have duplicate ids, the broker refuses the
second COMMIT. The task then sends its rows again without a transaction: the broker drops the rows that it already has,
and adds the others.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stompring.pipeline.arrays import INT, LONG, as_strings, integers, integers_of, offsets_of, strings
from stompring.pipeline.options import OptionError
from stompring.pipeline.workers import reports_errors
from stompring.stomp.frames import header_line

from .connection import BrokerError, Connection
from .options import SinkOptions

#: Approximate size in bytes of the bodies that are encoded together.
PIECE_BYTES = 4 << 20

TRANSACTION = "1"

_ESCAPES = ((b"\\", b"\\\\"), (b":", b"\\c"), (b"\n", b"\\n"), (b"\r", b"\\r"))

#: Headers in the column ``headers`` that are not sent: the sink sets them itself, or only brokers set them.
OMITTED_HEADERS = (
    *("destination", "content-length", "receipt", "transaction", "persistent"),
    *("message-id", "subscription", "ack", "redelivered", "timestamp"),
)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


#: For each column name: the required type as text, and a function that checks the Arrow type of a column.
COLUMNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "body": (
        "binary or string",
        lambda kind: _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    ),
    "headers": (
        "map<string,string>",
        lambda kind: pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type),
    ),
    "destination": ("string", _is_text),
    "priority": ("an integer", pa.types.is_integer),
    "expires": (
        "timestamp or bigint (milliseconds since the epoch)",
        lambda kind: pa.types.is_timestamp(kind) or pa.types.is_int64(kind),
    ),
    "dedup_id": ("string", _is_text),
}


def check_columns(schema: Any, options: SinkOptions) -> None:
    """Raise `ValueError` if rows with an Arrow schema cannot be sent, `OptionError` if the schema requires a missing
    option."""
    for field in schema:
        if field.name not in COLUMNS:
            raise ValueError(f"column {field.name}: unknown column; columns are {', '.join(COLUMNS)}")
        what, fits = COLUMNS[field.name]
        if not fits(field.type):
            raise ValueError(f"column {field.name}: must be {what}, not {field.type}")
    names = set(schema.names)
    if "body" not in names:
        raise ValueError("column body: is required")
    if len(names) < len(schema.names):
        raise ValueError("two columns have the same name")
    if "destination" not in names and options.destination is None:
        raise OptionError("destination", "is required without a column destination")
    if "dedup_id" in names and options.dedup_header is None:
        raise OptionError("dedupHeader", "must name a header with a column dedup_id")


def pieces_of(batch: Any) -> Iterator[Any]:
    """Yield slices of a batch with about `PIECE_BYTES` of bodies each."""
    while len(batch):
        ends = np.cumsum(integers_of(_sizes(batch.column("body").slice(0, 1 << 16)), np.int32))
        count = max(1, int(np.searchsorted(ends, PIECE_BYTES)))
        yield batch.slice(0, count)
        batch = batch.slice(count)


class SendEncoder:
    """Encoder of the rows of one task. Duplicate ids are ``prefix-ROW``, none if ``prefix`` is None.

    ``omitted`` are headers of rows that are not sent, in addition to `OMITTED_HEADERS`.
    """

    def __init__(self, options: SinkOptions, prefix: str | None, omitted: Iterable[str] = ()) -> None:
        self._options = options
        self._prefix = prefix
        self._omitted = frozenset({*OMITTED_HEADERS, *omitted, *filter(None, [options.dedup_header])})

    def pieces(self, batch: Any, first: int, transaction: bool) -> Iterator[tuple[Any, int]]:
        """Yield pairs of a buffer with frames and the number of these frames. ``first``: number of the batch's first
        row in the task."""
        for rows in pieces_of(batch):
            yield data_of(self.frames(rows, first, transaction=transaction)), len(rows)
            first += len(rows)

    def frames(
        self,
        batch: Any,
        first: int,
        *,
        transaction: bool = False,
        receipt: str | None = None,
        lines: Iterable[Any] = (),
    ) -> Any:
        """Return a frame for each row, as binary values. ``lines``: columns with additional header lines, which may be
        null.

        ``receipt``: value of the header ``receipt`` for every frame. With it, ``batch`` must have a single row.
        """
        lead = b"SEND\n"
        if transaction:
            lead += header_line(b"transaction", TRANSACTION.encode())
        if receipt is not None:
            lead += header_line(b"receipt", receipt.encode())
        if self._options.persistent:
            lead += b"persistent:true\n"
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        body = _as_binary(columns["body"])
        parts: list[Any] = [lead, self._destination(columns.get("destination"), first)]
        if "priority" in columns:
            parts.append(header_lines(b"priority", digits(columns["priority"])))
        if "expires" in columns:
            parts.append(header_lines(b"expires", _milliseconds(columns["expires"])))
        parts.append(self._identifier(columns.get("dedup_id"), first, len(batch)))
        if "headers" in columns:
            parts.append(self._headers(columns["headers"], columns))
        parts += [*lines, b"content-length:", digits(_sizes(body)), b"\n\n", body, b"\0\n"]
        return _concatenated(*[part for part in parts if part is not None], nulls="replace")

    # ---- parts

    def _destination(self, column: Any, first: int) -> Any:
        option = self._options.destination
        constant = None if option is None else header_line(b"destination", option.encode())
        if column is None:
            return constant
        if column.null_count and constant is None:
            row = first + pc.index(column.is_null(), True).as_py()
            raise ValueError(f"column destination: is null in row {row}, and option destination is not given")
        line = header_lines(b"destination", _escaped(_as_binary(column), "destination"))
        return line if constant is None else _coalesce(line, constant)

    def _identifier(self, column: Any, first: int, count: int) -> Any:
        header = self._options.dedup_header
        if header is None:
            return None
        made = None
        if self._prefix is not None:
            lead = header_line(header.encode(), f"{self._prefix}-".encode())[:-1]
            made = _concatenated(lead, digits(integers(np.arange(first, first + count), LONG)), b"\n")
        if column is None:
            return made
        line = header_lines(header.encode(), _escaped(_as_binary(column), "dedup_id"))
        return line if made is None else _coalesce(line, made)

    def _headers(self, column: Any, columns: dict[str, Any]) -> Any:
        """Return the header lines of each row's map."""
        offsets = offsets_of(column)
        low, count = int(offsets[0]), int(offsets[-1] - offsets[0])
        names, values = (_as_binary(each.slice(low, count)) for each in (column.keys, column.items))
        omitted = self._omitted | {"priority", "expires"} & columns.keys()
        known = strings([name.encode() for name in sorted(omitted)])
        keep = pc.and_not(values.is_valid(), pc.is_in(as_strings(names), value_set=known))
        lines = _concatenated(
            _escaped(names, "headers"), b":", _escaped(values, "headers"), b"\n", nulls="replace"
        )
        if keep.false_count:
            lines = pc.if_else(keep, lines, _constant(b""))
        return pc.binary_join(pa.ListArray.from_arrays(integers(offsets - low, INT), lines), _constant(b""))


# ---- columns


def _constant(data: bytes) -> Any:
    """Return bytes as an Arrow scalar. For Python's bytes, Arrow's functions would import pandas to find the type."""
    return strings([data]).cast(pa.binary())[0]


def _concatenated(*parts: Any, nulls: str = "emit_null") -> Any:
    """Join arrays and constants row by row. ``nulls``: ``replace`` if a null counts as empty; by default a null makes
    the whole row null."""
    values = [_constant(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*values, _constant(b""), null_handling=nulls)


def _as_binary(column: Any) -> Any:
    """Return a column as binary with 32-bit offsets."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def digits(numbers: Any) -> Any:
    """Return numbers in decimal as binary values."""
    return numbers.cast(pa.string()).cast(pa.binary())


def header_lines(name: bytes, values: Any) -> Any:
    """Return a header line for each value (binary, already escaped), null for null."""
    return _concatenated(header_line(name, b"")[:-1], values, b"\n")


def _escaped(values: Any, column: str) -> Any:
    data = data_of(values).to_pybytes()
    if b"\0" in data:
        raise ValueError(f"column {column}: NUL is not allowed in a header")
    for plain, escape in _ESCAPES:
        if plain in data:
            values = pc.replace_substring(values, plain, escape)
    return values


def _coalesce(values: Any, other: Any) -> Any:
    """Replace null by ``other``, an array or bytes."""
    if not values.null_count:
        return values
    return pc.if_else(values.is_valid(), values, _constant(other) if isinstance(other, bytes) else other)


def _milliseconds(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return digits(column)


def _sizes(body: Any) -> Any:
    """Return the size of each value in bytes, 0 for null."""
    return pc.fill_null(pc.binary_length(_as_binary(body)), integers(np.zeros(1), INT)[0])


# ---- buffers


def data_of(values: Any) -> Any:
    """Return the bytes of all binary values as one buffer."""
    offsets, buffer = offsets_of(values), values.buffers()[2]
    if buffer is None:
        return pa.py_buffer(b"")
    return buffer.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


#: If a `BatchBuffer` has more bytes of record batches in memory, it moves them to a file.
BUFFER_LIMIT = 64 << 20


class BatchBuffer:
    """A recording of record batches with one schema. `close` deletes its temporary file."""

    def __init__(self, schema: Any) -> None:
        self._over = False
        self._file = tempfile.SpooledTemporaryFile(BUFFER_LIMIT)
        self._writer = pa.ipc.new_stream(self._file, schema)

    def close(self) -> None:
        self._file.close()

    def record(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record each of the given batches, then yield it. After a call of `again`, batches are yielded without
        recording.
        """
        for batch in batches:
            if not self._over:
                self._writer.write_batch(batch)
            yield batch

    def again(self) -> Iterator[Any]:
        """End the recording, and yield the recorded batches in order."""
        self._over = True
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)


#: Maximum number of outstanding receipts. Several groups of rows are in flight, so that neither the broker nor the task
#: waits between two groups.
IN_FLIGHT = 4


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """The report of a task to the driver. ``again``: an earlier run of the task had committed rows."""

    rows: int = 0
    again: bool = False


def send_rows(options: SinkOptions, prefix: str | None, batches: Iterable[Any]) -> TaskResult:
    """Send the rows of a task. ``prefix``: beginning of their duplicate ids; None: rows get no ids.

    Raises `BrokerError`, `ConnectionFailed`, or `ValueError` for an invalid row. After an error the broker aborts the
    transaction.
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
    with closing(BatchBuffer(first.schema)) as buffer:
        remaining = buffer.record(every)
        try:
            return TaskResult(_in_transaction(options, sends, remaining))
        except BrokerError as refused:
            text = str(refused)
            if (options.dedup_header or "") not in text and "duplicate message detected" not in text.lower():
                # Not about a duplicate id: stompring would name the header of the id, Artemis would write these words.
                raise
        # If the broker refused a SEND, not the COMMIT, ``remaining`` yields the rows that were not sent yet.
        return TaskResult(_in_groups(options, sends, chain(buffer.again(), remaining)), again=True)


def _in_transaction(options: SinkOptions, sends: SendEncoder, batches: Iterable[Any]) -> int:
    rows = 0
    # an error closes the connection, and the broker aborts the transaction
    with Connection(options.endpoint) as connection:
        connection.say("BEGIN", [("transaction", TRANSACTION)])
        for batch in batches:
            for frames, count in sends.pieces(batch, rows, transaction=True):
                connection.send(frames)
                rows += count
        connection.ask("COMMIT", [("transaction", TRANSACTION)])
        with suppress(OSError, BrokerError):  # the rows are committed, even if DISCONNECT fails
            connection.say("DISCONNECT")
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
                    connection.send(data_of(sends.frames(part.slice(len(part) - 1), rows, receipt=receipt)))
                    connection.await_receipts(IN_FLIGHT)
                    rows += 1
                waiting = 0 if last else waiting + len(part)
        connection.close()  # waits for the receipt of a DISCONNECT, which confirms all frames
    return rows


def _parts(batch: Any, first: int, size: int) -> Iterator[Any]:
    """Yield slices of a batch: ``first`` rows, then ``size`` rows each, then the remaining rows."""
    at = 0
    while at < len(batch):
        part = batch.slice(at, first)
        yield part
        at += len(part)
        first = size


log = logging.getLogger(__name__)


@dataclass
class _Writer:
    """Base of the batch writer and the stream writer."""

    _options: SinkOptions

    def _prefix(self, context: TaskContext) -> str | None:
        """Return the beginning of the task's duplicate ids, None if rows get no ids."""
        raise AssertionError("a derived class has it")

    @reports_errors
    def write(self, iterator: Iterator[Any]) -> TaskResult:
        """Send the rows of one task."""
        return send_rows(self._options, self._prefix(TaskContext.get()), iterator)

    def commit(self, messages: Sequence[TaskResult | None], batchId: int | None = None) -> None:
        """Log the number of rows. Spark calls this after all tasks have succeeded. ``batchId``: None for a batch
        query."""
        sent = [message for message in messages if message is not None]
        rows, again = sum(one.rows for one in sent), sum(one.again for one in sent)
        more = f"; {again} tasks were repeated" if again else ""
        log.info("%s: %d rows sent by %d tasks%s", _what(batchId), rows, len(sent), more)

    def abort(self, messages: Sequence[TaskResult | None], batchId: int | None = None) -> None:
        """Log how many rows of successful tasks stay with the broker. Spark calls this if a task has failed after all
        retries. Spark will repeat the batch of a stream."""
        sent = [message.rows for message in messages if message is not None]
        text = "%s failed: %d rows of %d successful tasks stay with the broker"
        log.warning(text, _what(batchId), sum(sent), len(sent))


def _what(batch: int | None) -> str:
    return "job" if batch is None else f"batch {batch}"


class StompWriter(_Writer, DataSourceArrowWriter):
    """Writer for ``df.write``. Rows get duplicate ids if the option ``jobId`` is set."""

    def _prefix(self, context: TaskContext) -> str | None:
        job = self._options.job_id
        return None if job is None else f"{job}-{context.partitionId()}"


class StompStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writer for ``df.writeStream``. A duplicate id consists of query id (or option ``jobId``), batch, partition and
    row."""

    def _prefix(self, context: TaskContext) -> str | None:
        if self._options.dedup_header is None:
            return None
        query = self._options.job_id or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise ValueError("Spark provides no query id and batch id: cannot create duplicate ids")
        return f"{query}-{batch}-{context.partitionId()}"


def writer_options(options: Any, schema: StructType) -> SinkOptions:
    """Parse the options, and check the columns of a DataFrame. Raises `OptionError`, `ValueError`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = SinkOptions.of(options)
    check_columns(to_arrow_schema(schema, timezone="UTC"), found)
    return found
