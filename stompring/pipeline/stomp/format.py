"""Spark's format ``stomp``: one name for writing, and for reading as a stream."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from stompring.pipeline.workers import defers_errors, reports_errors

from .sink import StompStreamWriter, StompWriter, writer_options
from .source import COLUMNS, StompStreamReader, reader_columns


class StompFormat(DataSource):
    """Any broker that speaks STOMP 1.2."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "stomp"

    @reports_errors
    def schema(self) -> str:
        """The columns of what is received."""
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    @reports_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Refused: taking messages from a broker and forgetting which is no table."""
        raise ValueError(
            "format stomp: spark.read is not supported, for reading consumes messages: "
            "use spark.readStream, with trigger(availableNow=True) for the messages available now"
        )

    @defers_errors
    def streamReader(self, schema: StructType) -> StompStreamReader:
        """``schema`` is the one above, or what was given to ``readStream.schema``."""
        return StompStreamReader(self.options, reader_columns(schema))

    @reports_errors
    def writer(self, schema: StructType, overwrite: bool) -> StompWriter:
        """``overwrite`` is refused: what was sent stays sent."""
        if overwrite:
            raise ValueError("format stomp: mode('overwrite') is not supported: use mode('append')")
        return StompWriter(writer_options(self.options, schema))

    @reports_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StompStreamWriter:
        """``overwrite`` is the output mode complete: each batch sends all of its rows."""
        return StompStreamWriter(writer_options(self.options, schema))
