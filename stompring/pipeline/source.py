"""The data source of Spark. It has options instead of filters that Spark pushes down: those of one query would
change the rows of another (Spark 4.3), which options cannot.

A reader is made, copied and sent about by Spark before anything is read: it opens nothing until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stompring.pipeline.arrays import TYPES
from stompring.pipeline.faults import telling, tells, tells_of_stream
from stompring.pipeline.files import DataFiles, planned
from stompring.pipeline.options import OptionError, Options
from stompring.pipeline.positions import Range
from stompring.pipeline.reading import read_files
from stompring.pipeline.schema import TABLES
from stompring.pipeline.stream import StompringStream


class StompringSource(DataSource):
    """``spark.read.format("stompring")``: the files of a data directory as a table."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "stompring"

    @tells
    def schema(self) -> str:
        """The columns that the options ask for."""
        return Options.of(self.options).wanted.ddl

    @tells
    def reader(self, schema: StructType) -> StompringReader:
        """``schema`` is the one above, or what was given to ``spark.read.schema``."""
        return StompringReader(_with_columns(Options.of_batch(self.options), schema))

    @tells_of_stream
    def streamReader(self, schema: StructType) -> StompringStream:  # noqa: N802 - Spark's name
        """The same for ``spark.readStream``."""
        return StompringStream(_with_columns(Options.of(self.options), schema))


class Ranges(InputPartition):
    """What one task reads. ``identity`` is that of the data directory: files of another one are left out."""

    def __init__(self, ranges: Sequence[Range], identity: bytes | None = None) -> None:
        super().__init__(tuple(ranges))
        self.identity = identity


class StompringReader(DataSourceReader):
    """Reads what some options ask for."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @tells
    def partitions(self) -> Sequence[Ranges]:
        """The files there are now; one task without any where there are none."""
        files = DataFiles.of(self._options)
        files.require()
        identity = files.identity()
        return [Ranges(ranges, identity) for ranges in planned(self._options) or [()]]

    def read(self, partition: Ranges) -> Iterator[Any]:
        """Record batches of one task's files."""
        files = DataFiles.of(self._options, partition.identity)
        return telling(read_files(files, partition.value, self._options.wanted))


def _with_columns(options: Options, schema: StructType) -> Options:
    """With the columns of a schema, which must be of the table."""
    from pyspark.sql.pandas.types import to_arrow_type

    columns = TABLES[options.wanted.table]
    for field in schema.fields:
        if field.name not in columns:
            raise OptionError("columns", f"{options.wanted.table} has no column {field.name!r}")
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[columns[field.name]]:
            raise OptionError("columns", f"{field.name} is {columns[field.name]}, not {field.dataType}")
    return replace(options, wanted=replace(options.wanted, columns=tuple(schema.names)))
