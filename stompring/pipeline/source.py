"""Spark's data source ``stompring``: the files of a data directory as a table (`StompringReader`) or a stream.

Options select the rows. Filters that Spark pushes down to a source are not supported: in Spark 4.3 the filters of one
query would change the rows of another query. Spark creates, copies and pickles a reader before it uses the reader, so a
reader opens no file until Spark calls a method. The offset of a stream consists of positions in the broker's files, as
JSON. Two offsets determine the rows of a batch, so a batch that Spark repeats after a crash has the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .arrays import ENDINGS, TABLES, TYPES
from .backlog import (
    DataLoss,
    DirectoryReplaced,
    Limit,
    end_positions,
    ranges_between,
    start_positions,
)
from .files import (
    START,
    DataFiles,
    Position,
    Positions,
    Range,
    dump_positions,
    load_positions,
    read_files,
    task_ranges,
)
from .options import LAST_NUMBER, OptionError, Options, TableScan
from .workers import defers_errors, error_reporting, reports_errors

log = logging.getLogger(__name__)

#: Key in an offset: the end of the journal when the query started, constant for a query. Compaction may have written
#: copies before this position, of messages whose original records were deleted before the query started.
COPIES_KEY = "copies"

#: Key in an offset: ``0:N`` until the first batch has read these copies, then ``1:N``. The copied messages have numbers
#: below N.
COPIED_KEY = "copied"

#: Key in an offset: the identity of the data directory, if it has one. Missing in offsets of earlier versions.
IDENTITY_KEY = "identity"

Offset = dict[str, str]


@dataclass
class Partition(InputPartition):
    """Ranges that one task reads, and the rows to return. Files of a directory with another identity are skipped."""

    value: Sequence[Range]
    wanted: TableScan
    identity: bytes | None

    def batches(self, options: Options, gone: Callable[[str], None] | None = None) -> Iterator[Any]:
        """Yield the record batches of the ranges. ``gone`` is called with the name of each deleted file."""
        files = DataFiles(options.root, options.retention, self.identity)
        with error_reporting():
            yield from read_files(files, self.value, self.wanted, gone)


@dataclass
class StompringStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader for ``spark.readStream.format("stompring")``."""

    _options: Options
    _seen: Positions | None = None  # the last result of `latestOffset`
    _until: Positions | None = None  # end position of a query with Trigger.AvailableNow
    _identity: bytes | None = None  # identity of the directory at Spark's last call

    def __post_init__(self) -> None:
        self._endings = ENDINGS[self._options.wanted.table]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_files"}

    # ---- Spark's names

    @reports_errors
    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset at which a query without a checkpoint begins."""
        files = self._files
        self._identity = files.identity()
        if self._options.latest:
            return self._offset(end_positions(files, self._endings, {}))
        begin = start_positions(files, self._endings)
        first, wanted = begin.get("journal", START).number, self._options.wanted
        if wanted.table == "messages" and wanted.copies is None and first > 1:
            # messages of deleted files may exist only as copies
            begin[COPIES_KEY] = end_positions(files, (".journal",), {})["journal"]
            begin[COPIED_KEY] = Position(0, files.header(journal_name(first)).next_number or LAST_NUMBER)
        return self._offset(begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the first limit of the options: Spark accepts only one."""
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.max_files is not None:
            return ReadMaxFiles(options.max_files)
        return ReadAllAvailable() if options.max_rows is None else ReadMaxRows(options.max_rows)

    @reports_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch. Unless ``limit`` is `ReadAllAvailable`, all limits of the options apply.

        The first batch has all messages that exist only as copies. These messages are older than the first file of the
        journal, so the first batch also has all messages in pages that are older than this file.
        """
        options, since, files = self._options, self._since(start), self._files
        most, least = Limit(), 0
        if not isinstance(limit, ReadAllAvailable):
            most = Limit(options.max_bytes, options.max_files, options.max_rows)
        copied = since.get(COPIED_KEY)
        if copied is not None and not copied.number:
            least = files.header(journal_name(since["journal"].number)).created + 1
        self._seen = end_positions(
            files, self._endings, since, most, self._until, table=options.wanted.table, least=least
        )
        if copied is not None:
            self._seen[COPIED_KEY] = copied._replace(number=1)
        return self._offset(self._seen)

    @reports_errors
    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the end of the data, for Spark's progress report."""
        if self._seen is None:
            return None
        return self._offset(end_positions(self._files, self._endings, self._seen))

    @reports_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End the query at the current end of the data."""
        self._until = end_positions(self._files, self._endings, {})

    @reports_errors
    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition]:
        """Return the tasks of a batch. Raises `DataLoss`, `DirectoryReplaced`."""
        since, until = positions_of(start), self._since(end)
        files, wanted = self._files, self._options.wanted
        folders = {name: position for name, position in until.items() if name not in (COPIES_KEY, COPIED_KEY)}
        ranges, lost = ranges_between(files, self._endings, since, folders)
        if lost:
            self._lost(", ".join(map(str, lost)))
        parts = self._parts(ranges, bool(wanted.copies))
        copied = until.get(COPIED_KEY)
        if copied is None or copied == since.get(COPIED_KEY):
            return parts
        # Add tasks that read the messages that exist only as copies. Their numbers are below ``below``.
        ranges, _ = ranges_between(files, (".journal",), since, {"journal": until[COPIES_KEY]})
        below = copied.offset
        found = [
            each
            for each in ranges
            if (footer := files.footer(each[0].name)) is None or footer.least_number < below
        ]
        return self._parts(found, True, below) + parts

    def read(self, partition: Partition) -> Iterator[Any]:
        return partition.batches(self._options, self._lost)

    # ----

    @cached_property
    def _files(self) -> DataFiles:
        return DataFiles(self._options.root, self._options.retention)

    def _parts(
        self, ranges: Sequence[tuple[Range, int]], copies: bool, below: int | None = None
    ) -> list[Partition]:
        files, wanted = self._files, self._options.wanted
        ranges = [each for each in ranges if files.may_contain(each[0].name, wanted)]
        wanted = wanted._replace(copies=copies, below=below)
        return [Partition(part, wanted, self._identity) for part in task_ranges(ranges)]

    def _offset(self, positions: Positions) -> Offset:
        offset = dump_positions(positions)
        return offset if self._identity is None else {**offset, IDENTITY_KEY: self._identity.hex()}

    def _since(self, offset: Offset) -> Positions:
        """Return the positions of an offset. Raises `DirectoryReplaced` if it has the identity of another directory."""
        files = self._files
        self._identity = files.identity()
        was, now = offset.get(IDENTITY_KEY), self._identity and self._identity.hex()
        if was is not None and was != now:
            raise DirectoryReplaced(
                f"data directory {files.root} has {f'identity {now}' if now else 'no identity'}, but the checkpoint "
                f"of the query has identity {was}: the directory belongs to another broker or was recreated; "
                "use the original directory or a new checkpoint"
            )
        return positions_of(offset)

    def _lost(self, what: str) -> None:
        root = self._options.root
        if self._options.fail:
            raise DataLoss(
                f"{root}: {what} deleted before it was read: let the broker retain files for longer "
                "(journal-retention-directory), or set option failOnDataLoss to false to continue without it"
            )
        log.warning("%s: %s deleted before it was read", root, what)


def positions_of(offset: Offset) -> Positions:
    """Return the positions of an offset without the identity."""
    return load_positions({folder: text for folder, text in offset.items() if folder != IDENTITY_KEY})


def journal_name(number: int) -> str:
    """Return the name of a file of the journal."""
    return f"journal/{number:09d}.journal"


class StompringSource(DataSource):
    """``spark.read.format("stompring")``: the files of a data directory as a table."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "stompring"

    @reports_errors
    def schema(self) -> str:
        """Return the schema of the wanted columns in Spark's DDL."""
        return Options.of(self.options).wanted.ddl

    @reports_errors
    def reader(self, schema: StructType) -> StompringReader:
        """Return a reader of the columns in ``schema``: those of the method `schema`, or of ``spark.read.schema``."""
        return StompringReader(_with_schema(Options.of(self.options, batch=True), schema))

    @defers_errors
    def streamReader(self, schema: StructType) -> StompringStreamReader:  # noqa: N802 - Spark's name
        return StompringStreamReader(_with_schema(Options.of(self.options), schema))


@dataclass
class StompringReader(DataSourceReader):
    """Reader for ``spark.read.format("stompring")``."""

    _options: Options

    @reports_errors
    def partitions(self) -> Sequence[Partition]:
        """Return tasks for the existing files, or one empty task if there are none."""
        files = DataFiles(self._options.root, self._options.retention)
        identity, wanted = files.identity(), self._options.wanted
        every = files.every(ENDINGS[wanted.table])
        ranges = ((Range(one.name), one.size) for one in every if files.may_contain(one.name, wanted))
        return [Partition(part, wanted, identity) for part in task_ranges(ranges) or [()]]

    def read(self, partition: Partition) -> Iterator[Any]:
        return partition.batches(self._options)


def _with_schema(options: Options, schema: StructType) -> Options:
    """Return ``options`` with the columns of ``schema``. Raises `OptionError` if the table has no such column or the
    column has another type."""
    from pyspark.sql.pandas.types import to_arrow_type

    columns = TABLES[options.wanted.table]
    for field in schema.fields:
        if field.name not in columns:
            raise OptionError("columns", f"{options.wanted.table} has no column {field.name!r}")
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[columns[field.name]]:
            raise OptionError("columns", f"{field.name} is {columns[field.name]}, not {field.dataType}")
    return options._replace(wanted=options.wanted._replace(columns=tuple(schema.names)))
