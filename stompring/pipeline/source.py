"""Spark's data source ``stompring``: the files of a data directory as a table (`StompringReader`) or a stream.

It has options instead of filters that Spark pushes down: those of one query would change the rows of another (Spark
4.3), which options cannot. A reader is made, copied and sent about by Spark before anything is read: it opens nothing
until then. The offset of a stream is positions in the broker's files, as JSON, and alone decides what a batch has: a
batch that is repeated after a crash is the same as before.
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

#: In an offset, beside the folders: up to where in the journal a copy may be all that is left of a message. It stays
#: as it is while the query lives.
COPIES_KEY = "copies"

#: Beside that: 0 until those copies are read, then 1; and a number that all their messages are below.
COPIED_KEY = "copied"

#: Beside them too: the identity of the data directory, where it has one. Offsets of earlier versions have none.
IDENTITY_KEY = "identity"

Offset = dict[str, str]


@dataclass
class Partition(InputPartition):
    """The ranges that one task reads. ``wanted`` are its rows: with ``copies`` those too that the broker has written
    once more.

    ``identity`` is that of the data directory: files of another one are left out.
    """

    value: Sequence[Range]
    wanted: TableScan
    identity: bytes | None

    def batches(self, options: Options, gone: Callable[[str], None] | None = None) -> Iterator[Any]:
        """Record batches of the files. ``gone`` is called with those that are not there."""
        files = DataFiles(options.root, options.retention, self.identity)
        with error_reporting():
            yield from read_files(files, self.value, self.wanted, gone)


@dataclass
class StompringStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. Spark makes it, copies it and sends it about: it opens nothing before it is asked something."""

    _options: Options
    _seen: Positions | None = None  # the last positions that Spark asked about
    _until: Positions | None = None  # where Trigger.AvailableNow ends
    _identity: bytes | None = None  # of the directory, as it was when Spark asked last

    def __post_init__(self) -> None:
        self._endings = ENDINGS[self._options.wanted.table]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_files"}

    # ---- Spark's names

    @reports_errors
    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a query begins that has no checkpoint yet."""
        files = self._files
        self._identity = files.identity()
        if self._options.latest:
            return self._offset(end_positions(files, self._endings, {}))
        begin = start_positions(files, self._endings)
        first, wanted = begin.get("journal", START).number, self._options.wanted
        if wanted.table == "messages" and wanted.copies is None and first > 1:
            # what was before it may be in copies alone
            begin[COPIES_KEY] = end_positions(files, (".journal",), {})["journal"]
            begin[COPIED_KEY] = Position(0, files.header(journal_name(first)).next_number or LAST_NUMBER)
        return self._offset(begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of those that the options name, for Spark takes no more than one."""
        options = self._options
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.max_files is not None:
            return ReadMaxFiles(options.max_files)
        return ReadAllAvailable() if options.max_rows is None else ReadMaxRows(options.max_rows)

    @reports_errors
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends. A limit that Spark gives is one of the options', and all of those go with it.

        Messages of which copies alone are left are older than the first file of the journal. They are all in the first
        batch, and so is what pages have of that time.
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
        """Where the data ends, for the progress that Spark tells."""
        if self._seen is None:
            return None
        return self._offset(end_positions(self._files, self._endings, self._seen))

    @reports_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is left for another query."""
        self._until = end_positions(self._files, self._endings, {})

    @reports_errors
    def partitions(self, start: Offset, end: Offset) -> Sequence[Partition]:
        """The tasks of a batch. Raises `DataLoss`."""
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
        # tasks for the messages below a number of which copies alone are left
        ranges, _ = ranges_between(files, (".journal",), since, {"journal": until[COPIES_KEY]})
        below = copied.offset
        found = [
            each
            for each in ranges
            if (footer := files.footer(each[0].name)) is None or footer.least_number < below
        ]
        return self._parts(found, True, below) + parts

    def read(self, partition: Partition) -> Iterator[Any]:
        """Record batches of one task's files."""
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
        """The positions of an offset, if they are of this directory. Raises `DirectoryReplaced`."""
        files = self._files
        self._identity = files.identity()
        was, now = offset.get(IDENTITY_KEY), self._identity and self._identity.hex()
        if was is not None and was != now:
            raise DirectoryReplaced(
                f"data directory {files.root} has {f'identity {now}' if now else 'no identity'}, but the checkpoint "
                f"of the query has identity {was}: the directory belongs to another broker or was created anew; "
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
    """The positions alone."""
    return load_positions({folder: text for folder, text in offset.items() if folder != IDENTITY_KEY})


def journal_name(number: int) -> str:
    """The name of a file of the journal."""
    return f"journal/{number:09d}.journal"


class StompringSource(DataSource):
    """``spark.read.format("stompring")``: the files of a data directory as a table."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "stompring"

    @reports_errors
    def schema(self) -> str:
        """The columns that the options ask for."""
        return Options.of(self.options).wanted.ddl

    @reports_errors
    def reader(self, schema: StructType) -> StompringReader:
        """``schema`` is the one above, or what was given to ``spark.read.schema``."""
        return StompringReader(_with_schema(Options.of(self.options, batch=True), schema))

    @defers_errors
    def streamReader(self, schema: StructType) -> StompringStreamReader:  # noqa: N802 - Spark's name
        """The same for ``spark.readStream``."""
        return StompringStreamReader(_with_schema(Options.of(self.options), schema))


@dataclass
class StompringReader(DataSourceReader):
    """Reads what some options ask for."""

    _options: Options

    @reports_errors
    def partitions(self) -> Sequence[Partition]:
        """The files there are now; one task without any where there are none."""
        files = DataFiles(self._options.root, self._options.retention)
        identity, wanted = files.identity(), self._options.wanted
        every = files.every(ENDINGS[wanted.table])
        ranges = ((Range(one.name), one.size) for one in every if files.may_contain(one.name, wanted))
        return [Partition(part, wanted, identity) for part in task_ranges(ranges) or [()]]

    def read(self, partition: Partition) -> Iterator[Any]:
        """Record batches of one task's files."""
        return partition.batches(self._options)


def _with_schema(options: Options, schema: StructType) -> Options:
    """With the columns of a schema, which must be of the table."""
    from pyspark.sql.pandas.types import to_arrow_type

    columns = TABLES[options.wanted.table]
    for field in schema.fields:
        if field.name not in columns:
            raise OptionError("columns", f"{options.wanted.table} has no column {field.name!r}")
        if to_arrow_type(field.dataType, timezone="UTC") != TYPES[columns[field.name]]:
            raise OptionError("columns", f"{field.name} is {columns[field.name]}, not {field.dataType}")
    return options._replace(wanted=options.wanted._replace(columns=tuple(schema.names)))
