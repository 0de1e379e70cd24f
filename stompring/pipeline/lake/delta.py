"""The Delta tables of a lake, through delta-rs (commits, versions, compaction), and the brokers of a lake.

Each table has its own versions. A version of the lake is a version of ``messages``: an ingest commits each batch to
``messages`` last, when the other tables already have the batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.exceptions import DeltaError as DeltaError
from deltalake.schema import ArrayType, MapType, StructType
from deltalake.transaction import AddAction, Transaction

from stompring.errors import PipelineError
from stompring.pipeline import arrays
from stompring.pipeline.backlog import DirectoryReplaced
from stompring.pipeline.files import Positions, load_positions
from stompring.pipeline.storage import Folder, sync_path

from .data_files import BROKER, BUCKET, DATE, TIME_COLUMNS, NewFile

#: The default name of a broker.
DEFAULT_BROKER = "main"

#: Valid names of brokers: other characters could break the paths and SQL that contain a name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class UnknownBroker(PipelineError):
    """A lake has no broker with the given name, or it has several brokers and the caller gave no name."""


class Broker(NamedTuple):
    """One broker: an entry of ``brokers`` in ``lake.json``.

    ``identity``: identity of the data directory in hexadecimal, None: unknown. ``data``: path of the directory at the
    last ingest. ``state``: folder of the ingest's state below ``_stompring``. ``writer``: application id of the
    broker's transactions in the Delta tables.
    """

    name: str
    identity: str | None
    data: str | None
    state: str
    writer: str

    def dumped(self) -> dict[str, Any]:
        """Return the entry for ``lake.json``, without the name, which is the key of the entry."""
        return {name: value for name, value in self._asdict().items() if name != "name"}

    @classmethod
    def loaded(cls, name: str, entry: Mapping[str, Any]) -> Broker:
        """Parse an entry of ``lake.json``. Raises `KeyError`, `TypeError`."""
        return cls(name, *(entry[each] for each in ("identity", "data", "state", "writer")))


def identified_broker(
    brokers: Mapping[str, Broker], name: str, identity: str | None, data: str, lake: str
) -> Broker:
    """Return the broker ``name`` for an ingest of the data directory ``data``.

    If the identity of the broker is unknown, it becomes the identity of this directory, and the caller must check the
    contents of the directory. Raises `DirectoryReplaced` if the broker has another identity, or if the directory
    belongs to another broker of the lake; `ValueError` for an invalid name.
    """
    known = brokers.get(name)
    here = f"data directory {data} has {'no identity' if identity is None else f'identity {identity}'}"
    for other in brokers.values():
        same = other.data == data if identity is None else other.identity == identity
        if same and other.name != name:
            raise DirectoryReplaced(
                f"{here}, and the lake {lake} has it as broker {other.name!r} (at {other.data}): ingesting it under a "
                f"second name would duplicate each message; use --as {other.name}"
            )
    if known is None:
        return Broker(check_name(name), identity, data, f"brokers/{name}", f"stompring-ingest-{name}")
    if known.identity is not None and known.identity != identity:
        raise DirectoryReplaced(
            f"{here}, but broker {name!r} of the lake {lake} has identity {known.identity} (at {known.data}): the "
            "directory belongs to another broker or was created anew; to ingest both into this lake, use another "
            "name: --as NAME"
        )
    return known._replace(identity=identity, data=data)


def check_name(name: str) -> str:
    """Return the name of a broker. Raises `ValueError` if it is invalid."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"invalid broker name {name!r}: use letters, digits, dots, dashes and underscores, at most 64 characters"
        )
    return name


#: Default number of buckets. Each address belongs to one bucket, and each bucket is a partition of a table.
BUCKETS = 8

#: Table property with the number of buckets.
BUCKETS_SETTING = "stompring.buckets"

#: Table property of Delta's Change Data Feed: readers can query the changes of rows by version.
CHANGES_SETTING = "delta.enableChangeDataFeed"

#: Metadata of an ingest's commit: batch, broker, rows, and the end positions of the batch (JSON of `dump_positions`).
BATCH_KEY, BROKER_KEY, ROWS_KEY, END_KEY = (
    "stompring.batch",
    "stompring.broker",
    "stompring.rows",
    "stompring.end",
)


def arrow_schema(table: str) -> Any:
    """Return the schema of a lake's table."""
    more = [(BROKER, pa.string()), (DATE, pa.date32()), (BUCKET, pa.int32())]
    return pa.schema([*arrays.arrow_schema(table), *more])


@dataclass(eq=False)
class Table:
    """A Delta table in a folder. Methods raise the exceptions of delta-rs."""

    folder: Folder
    name: str

    def exists(self) -> bool:
        """Return whether the folder has a Delta table."""
        return bool(DeltaTable.is_deltatable(self.folder.where, self.folder.storage_options))

    def _create(self, schema: Any, **more: Any) -> None:
        """Create the table without rows if it does not exist."""
        if self.folder.local is not None:
            self.folder.local.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self.folder.where,
            Schema.from_arrow(schema),
            mode="ignore",
            name=self.name,
            storage_options=self.folder.storage_options,
            **more,
        )

    def open(self, version: int | None = None) -> Any:
        """Open the latest version, or ``version``."""
        return DeltaTable(self.folder.where, version=version, storage_options=self.folder.storage_options)

    def transact(
        self,
        table: Any,
        files: Sequence[NewFile],
        transaction: Transaction,
        mode: str = "append",
        about: Mapping[str, str] | None = None,
    ) -> None:
        """Add files to the opened ``table`` in one commit. ``about``: metadata of the commit."""
        actions = [
            AddAction(
                file.path,
                file.size,
                {DATE: file.date, BUCKET: str(file.bucket)} if file.date else {},
                int(time() * 1000),
                True,
                file.stats,
            )
            for file in files
        ]
        table.create_write_transaction(
            actions,
            mode,
            table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(custom_metadata=about, app_transactions=[transaction]),
        )
        self.sync_log()

    def sync_log(self) -> None:
        """Sync the last two commits to disk, if the folder is local."""
        if self.folder.local is not None:
            log = self.folder.local / "_delta_log"
            for path in sorted(log.glob("*.json"))[-2:]:
                sync_path(path)
            sync_path(log)

    def actions(self, version: int | None = None) -> Any:
        """Return the path, size, partition and statistics of each file of the table, as an Arrow table."""
        return pa.table(self.open(version).get_add_actions(flatten=True))

    # ---- reading

    def files(self, version: int | None = None) -> list[str]:
        """Return the URLs of all Parquet files for Spark."""
        return [spark_url(uri) for uri in self.open(version).file_uris()]

    def _frame(self, spark: Any, schema: Any, version: int | None = None) -> Any:
        """Return a DataFrame of the table with the columns of an Arrow schema."""
        from pyspark.sql.pandas.types import from_arrow_schema

        columns, files = from_arrow_schema(schema), self.files(version)
        if not files:
            return spark.createDataFrame([], columns)
        return spark.read.schema(columns).option("basePath", spark_url(self.folder.where)).parquet(*files)

    def dataset(self, version: int | None = None) -> Any:
        """Return the table as an Arrow data set. A scan with a filter for partition, message id or time skips files.

        `DeltaTable.to_pyarrow_dataset` is not used: in deltalake 1.6 a filter for a column also skips files with
        statistics of other columns only.
        """
        table = self.open(version)
        schema = pa.schema(table.schema().to_arrow())
        options = ds.ParquetFragmentScanOptions(pre_buffer=True)
        file_format = ds.ParquetFileFormat(default_fragment_scan_options=options)
        fragments = [
            file_format.make_fragment(
                self.folder.path(unquote(file["path"])),
                filesystem=self.folder.system,
                partition_expression=_partition_expression(file, schema),
            )
            for file in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        ]
        return ds.FileSystemDataset(fragments, schema, file_format, self.folder.system)

    # ---- upkeep

    def compact(self, target_size: int, date: str | None = None) -> tuple[int, int]:
        """Merge small files of one day, or of all days. Returns the number of added files and of removed files.

        The caller must hold the lock `Lake.rewriting`: delta-rs would accept the commits of two concurrent compactions,
        which would duplicate rows.
        """
        table = self.open()
        result = table.optimize.compact(date and [(DATE, "=", date)], target_size=target_size)
        for path in table.file_uris() if self.folder.local is not None else []:
            sync_path(Path(path))
        self.sync_log()
        return result["numFilesAdded"], result["numFilesRemoved"]

    def vacuum(self, hours: int, *, dry_run: bool, keep: Sequence[int] = ()) -> list[str]:
        """Delete files that left the latest version at least ``hours`` ago, and files that no commit has added.

        Returns the paths of these files. ``dry_run``: do not delete the files. ``keep``: numbers of older versions
        whose files are not deleted.
        """
        found = self.open().vacuum(
            hours, dry_run, enforce_retention_duration=False, full=True, keep_versions=list(keep) or None
        )
        return list(found)


class LakeTable(Table):
    """A Delta table of a lake. ``name`` is one of `TABLES`."""

    def __init__(self, lake: Folder, name: str) -> None:
        super().__init__(lake.folder(name), name)

    def create(self, buckets: int = BUCKETS) -> None:
        """Create the table without rows if it does not exist."""
        try:
            self._create(
                arrow_schema(self.name),
                partition_by=[DATE, BUCKET],
                configuration={BUCKETS_SETTING: str(buckets), CHANGES_SETTING: "true"},
                raise_if_key_not_exists=False,
            )
        except CommitFailedError:  # another process has created the table in the meantime
            if not self.exists():
                raise
        self.sync_log()

    @property
    def buckets(self) -> int:
        """Number of buckets of the table."""
        return int(self.open().metadata().configuration.get(BUCKETS_SETTING, BUCKETS))

    def committed(self, writer: str) -> int:
        """Return the number of the last batch that a writer has committed, -1 if it has committed none."""
        return _committed(self.open(), writer)

    def commit(self, files: Sequence[NewFile], writer: str, batch: int, broker: str, end: str = "{}") -> bool:
        """Add files to the table as one batch of a writer. Returns False if the table already has the batch.

        ``end``: end positions of the batch as JSON.
        """
        table = self.open()
        if _committed(table, writer) >= batch:
            return False
        rows = str(sum(file.rows for file in files))
        about = {BATCH_KEY: str(batch), BROKER_KEY: broker, ROWS_KEY: rows, END_KEY: end}
        try:
            self.transact(table, files, Transaction(writer, batch), about=about)
        except CommitFailedError:  # another process of this writer may have committed the batch meanwhile
            if self.committed(writer) < batch:
                raise
            return False
        return True

    def frame(self, spark: Any, version: int | None = None) -> Any:
        """Return a DataFrame of the latest version, or of ``version``."""
        return self._frame(spark, arrow_schema(self.name), version)

    def batches(self, columns: Sequence[str], version: int | None = None) -> Iterator[Any]:
        """Iterate over record batches with some columns."""
        yield from self.dataset(version).to_batches(columns=list(columns))

    def bytes(self) -> int:
        """Return the total size of the table's files in bytes."""
        return int(sum(self.actions().column("size_bytes").to_pylist()))

    # ---- versions

    def has_missing_files(self, version: int) -> bool:
        """Return whether files of a version were deleted."""
        paths = self.actions(version).column("path").to_pylist()
        return not {*map(unquote, paths)} <= {entry.name for entry in self.folder.entries(deep=True)}

    def restore(self, version: int) -> None:
        """Restore a version by a new commit."""
        self.open().restore(version)
        self.sync_log()

    def about(self, version: int | None = None) -> dict[str, Any]:
        """Return rows, files, bytes, version, buckets and columns of the latest version, or of ``version``."""
        table = self.open(version)
        actions = pa.table(table.get_add_actions(flatten=True))
        return {
            "rows": sum(actions.column("num_records").to_pylist()),
            "files": actions.num_rows,
            "bytes": sum(actions.column("size_bytes").to_pylist()),
            "version": table.version(),
            "buckets": self.buckets,
            "columns": {field.name: ddl_name(field.type) for field in table.schema().fields},
        }


def _committed(table: Any, writer: str) -> int:
    version = table.transaction_version(writer)
    return -1 if version is None else int(version)


#: SQL names of the Delta types that have another name in SQL.
_SQL = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}


def ddl_name(kind: Any) -> str:
    """Return the SQL name of a Delta type."""
    if isinstance(kind, MapType):
        return f"MAP<{ddl_name(kind.key_type)},{ddl_name(kind.value_type)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{ddl_name(kind.element_type)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{','.join(f'{field.name}:{ddl_name(field.type)}' for field in kind.fields)}>"
    return _SQL.get(kind.type) or str(kind.type).upper()


def _partition_expression(file: Mapping[str, Any], schema: Any) -> Any:
    """Return a condition that all rows of a file meet, by the partitions and statistics in its commit."""
    found = ds.scalar(True)
    for name in (DATE, BUCKET):
        if f"partition.{name}" in file:
            found &= ds.field(name) == pa.scalar(file[f"partition.{name}"], schema.field(name).type)
    for name in ("message_id", *set(TIME_COLUMNS.values())):
        least, most = file.get(f"min.{name}"), file.get(f"max.{name}")
        if name not in schema.names or least is None or most is None or file.get(f"null_count.{name}") != 0:
            continue
        if isinstance(most, datetime):
            most += timedelta(milliseconds=1)  # statistics truncate times to milliseconds
        type_ = schema.field(name).type
        found &= (ds.field(name) >= pa.scalar(least, type_)) & (ds.field(name) <= pa.scalar(most, type_))
    return found


def spark_url(uri: str) -> str:
    """Return the URL of a file for Spark: with the scheme that Hadoop uses, or with ``file://`` before a local path."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return f"file://{uri}"  # not percent-encoded: Hadoop would not decode it
    hadoop = {"s3": "s3a", "gcs": "gs"}.get(scheme, scheme)
    return f"{hadoop}://{path}"


#: Operations in Delta's log, and their names in the output of commands.
_OPERATIONS = {
    "CREATE TABLE": "create",
    "OPTIMIZE": "compact",
    "RESTORE": "restore",
    "SET TBLPROPERTIES": "settings",
    "VACUUM START": "vacuum",
    "VACUUM END": "vacuum",
}


class VersionNotFound(PipelineError):
    """The requested version of a lake never existed, or its log or files are deleted."""


class Commit(NamedTuple):
    """A version of a table. ``time``: epoch ms. Only an ingest sets ``batch``, ``rows``, ``broker`` and ``end``."""

    table: str
    version: int
    time: int
    operation: str
    batch: int | None = None
    rows: int | None = None
    broker: str | None = None
    restored: int | None = None  # number of the version that this version restored
    end: Positions | None = None  # end positions of the batch in the broker's files


def commits(table: LakeTable) -> dict[int, Commit]:
    """Return the versions in the table's log by number, the oldest first."""
    found = (_commit(table.name, entry) for entry in reversed(table.open().history()))
    return {one.version: one for one in found}


def _commit(table: str, entry: Mapping[str, Any]) -> Commit:
    common = table, entry["version"], entry["timestamp"]
    if BATCH_KEY in entry:
        end = load_positions(json.loads(entry[END_KEY]))
        batch, rows = int(entry[BATCH_KEY]), int(entry[ROWS_KEY])
        return Commit(*common, "ingest", batch, rows, entry[BROKER_KEY], end=end)
    operation = str(entry.get("operation", ""))
    restored = int(entry["operationParameters"]["version"]) if operation == "RESTORE" else None
    return Commit(*common, _OPERATIONS.get(operation, operation.lower()), restored=restored)


def iso_time(time: int) -> str:
    """Return epoch ms as ISO 8601 in UTC."""
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ingested_until(messages: LakeTable, version: int) -> dict[str, Positions]:
    """Return for each broker the end positions of its last batch in a version of ``messages``. Raises
    `VersionNotFound`."""
    known = commits(messages)
    found: dict[str, Positions] = {}
    while version > 0:
        one = known.get(version)
        if one is None:
            raise VersionNotFound(f"the log of {messages.folder} does not reach back to version {version}")
        if one.restored is not None:
            version = one.restored
            continue
        if one.broker is not None and one.end is not None:
            found.setdefault(one.broker, one.end)
        version -= 1
    return found
