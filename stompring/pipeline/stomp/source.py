"""The stream reader of Spark's format ``stomp``.

It is made and copied in several processes, and opens nothing until the one that plans asks for an offset. That one
receives into the spool for as long as the query runs; tasks read what it says from the spool's files.
"""

from __future__ import annotations

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
from stompring.pipeline.faults import telling, tells
from stompring.pipeline.options import OptionError
from stompring.pipeline.stomp.options import SourceOptions
from stompring.pipeline.stomp.receiver import Receiver
from stompring.pipeline.stomp.rows import COLUMNS, read_rows
from stompring.pipeline.stomp.spool import Piece, Position, Spool, SpoolError

#: Bytes that a task has at least, where there are as many: it costs more than decoding a few MB.
PARTITION = 32 << 20


class Pieces(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
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

    @tells
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

    @tells
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Where the next batch ends. Raises what ended the receiving."""
        spool, begin = self._opened(), Position.of(start)
        spool.check(begin)
        assert self._receiver is not None
        self._receiver.check()
        self._receiver.taken(begin)
        end = spool.tail if self._until is None else max(self._until, begin)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return spool.after(begin, end, rows, size).to_json()

    @tells
    def reportLatestOffset(self) -> dict[str, int] | None:
        """For the progress of the query."""
        return None if self._spool is None else self._spool.tail.to_json()

    @tells
    def prepareForTriggerAvailableNow(self) -> None:
        """A broker does not tell how much it has: what has come until nothing comes any more is what is available."""
        spool = self._opened()
        assert self._receiver is not None
        self._receiver.wait_until_idle(self._options.idle, self._options.drain)
        self._receiver.check()
        self._until = spool.tail

    @tells
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Pieces]:
        """The tasks of a batch; none where it is empty."""
        pieces = self._opened().pieces(Position.of(start), Position.of(end))
        tasks: list[list[Piece]] = []
        size = PARTITION
        for piece in pieces:
            if size >= PARTITION:
                tasks.append([])
                size = 0
            tasks[-1].append(piece)
            size += piece.end - piece.begin
        return [Pieces(task) for task in tasks]

    @tells
    def commit(self, end: dict[str, int]) -> None:
        """What is before this is not asked for again."""
        spool, done = self._opened(), Position.of(end)
        assert self._receiver is not None
        self._receiver.taken(done)  # first: it counts from there
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
        pieces = [Piece(*piece) for piece in partition.value]
        return telling(read_rows(self._options.spool, pieces, self._columns))


def reader_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema, each of which must be one of ours. Raises `ValueError`."""
    from pyspark.sql.pandas.types import to_arrow_type

    for field in schema.fields:
        if field.name not in COLUMNS:
            raise ValueError(
                f"column {field.name}: there is none of this name; there are {', '.join(COLUMNS)}"
            )
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[COLUMNS[field.name]]:
            raise ValueError(f"column {field.name}: is {COLUMNS[field.name]}, not {field.dataType}")
    return tuple(schema.names)
