"""The writers of Spark's format ``stomp``. Each task is a connection and, if not told otherwise, one transaction.

A transaction cannot be handed to the driver, which is another process: what a task has committed stays, whatever comes
of the other tasks of its job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stompring.pipeline.faults import tells
from stompring.pipeline.stomp.options import SinkOptions
from stompring.pipeline.stomp.sending import Sent, send_rows
from stompring.pipeline.stomp.sends import check_columns

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskSent(WriterCommitMessage):
    """What a task tells the driver."""

    sent: Sent


class StompWriter(DataSourceArrowWriter):
    """``df.write``: duplicate ids are made where there is a ``jobId``."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @tells
    def write(self, iterator: Iterator[Any]) -> TaskSent:
        """One task."""
        job = self._options.job_id
        prefix = None if job is None else f"{job}-{TaskContext.get().partitionId()}"
        return TaskSent(send_rows(self._options, prefix, iterator))

    def commit(self, messages: Sequence[TaskSent | None]) -> None:
        """All tasks have committed."""
        _tell("job", messages)

    def abort(self, messages: Sequence[TaskSent | None]) -> None:
        """Some task failed for good; the rows of those that did not are with the broker."""
        _warn("job", messages)


class StompStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: duplicate ids are those of the query, the batch, the partition and the row."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @tells
    def write(self, iterator: Iterator[Any]) -> TaskSent:
        """One task of a batch."""
        prefix = None if self._options.dedup_header is None else self._prefix(TaskContext.get())
        return TaskSent(send_rows(self._options, prefix, iterator))

    def _prefix(self, context: TaskContext) -> str:
        query = self._options.job_id or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise ValueError(
                "Spark does not tell which query and batch this is: no duplicate ids can be made"
            )
        return f"{query}-{batch}-{context.partitionId()}"

    def commit(self, messages: Sequence[TaskSent | None], batchId: int) -> None:
        """All tasks have committed."""
        _tell(f"batch {batchId}", messages)

    def abort(self, messages: Sequence[TaskSent | None], batchId: int) -> None:
        """As of a job; Spark will do the batch again."""
        _warn(f"batch {batchId}", messages)


def writer_options(options: Any, schema: StructType) -> SinkOptions:
    """Options that fit the columns of a DataFrame. Raises `OptionError`, `ValueError`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    found = SinkOptions.of(options)
    check_columns(to_arrow_schema(schema, timezone="UTC"), found)
    return found


def _sent(messages: Iterable[TaskSent | None]) -> list[Sent]:
    return [message.sent for message in messages if message is not None]


def _tell(what: str, messages: Sequence[TaskSent | None]) -> None:
    sent = _sent(messages)
    again = sum(one.again for one in sent)
    more = f"; {again} tasks had been done before, and were completed" if again else ""
    log.info("%s: %d rows sent by %d tasks%s", what, sum(one.rows for one in sent), len(sent), more)


def _warn(what: str, messages: Sequence[TaskSent | None]) -> None:
    sent = _sent(messages)
    rows = sum(one.rows for one in sent)
    log.warning("%s failed: %d rows of %d tasks that did not are with the broker", what, rows, len(sent))
