"""Spark's format ``stomp``, for writing and for streaming reads."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from stompring.pipeline.workers import defers_errors, reports_errors

from .sink import StompStreamWriter, StompWriter, writer_options
from .source import COLUMNS, StompStreamReader, reader_columns


class StompFormat(DataSource):
    """The data source ``stomp``, for any broker with STOMP 1.2."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "stomp"

    @reports_errors
    def schema(self) -> str:
        """Return the columns of received messages in Spark's DDL."""
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    @reports_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Always raise `ValueError`: a batch query would consume messages without recording which ones."""
        raise ValueError(
            "format stomp: spark.read is not supported, for reading consumes messages: "
            "use spark.readStream, with trigger(availableNow=True) for the messages available now"
        )

    @defers_errors
    def streamReader(self, schema: StructType) -> StompStreamReader:
        """Return a reader of the columns in ``schema``: those of the method `schema`, or of ``readStream.schema``."""
        return StompStreamReader(self.options, reader_columns(schema))

    @reports_errors
    def writer(self, schema: StructType, overwrite: bool) -> StompWriter:
        """Return a writer. Raises `ValueError` for ``overwrite``: sent messages cannot be replaced."""
        if overwrite:
            raise ValueError("format stomp: mode('overwrite') is not supported: use mode('append')")
        return StompWriter(writer_options(self.options, schema))

    @reports_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StompStreamWriter:
        """Return a writer. ``overwrite`` (output mode complete) is ignored: each batch sends all of its rows."""
        return StompStreamWriter(writer_options(self.options, schema))
