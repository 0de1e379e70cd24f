"""The Parquet files of a lake's tables, by date and bucket, with the statistics that a commit needs.

It needs no Delta library: processes of Spark's executors write files, and a commit in the driver makes them part of a
table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stompring.pipeline.arrays import TYPES, distinct, indices, milliseconds, strings
from stompring.pipeline.messages import Messages
from stompring.pipeline.schema import TABLES
from stompring.pipeline.storage import Folder, sync_directory, sync_file
from stompring.store.record import ADDRESS

#: Partition columns, behind the others.
DATE, BUCKET = "date", "bucket"

#: Which broker a row is of: behind the columns of the data directory, before the partition columns.
BROKER = "broker"

#: Which column says when.
TIME_COLUMNS = {"messages": "timestamp", "events": "time", "samples": "time"}


class NewFile(NamedTuple):
    """A Parquet file below a table's folder that no commit has named yet. ``stats`` is JSON, as Delta wants it."""

    path: str
    size: int
    rows: int
    date: str
    bucket: int
    stats: str


def stats_of(rows: int, columns: dict[str, tuple[Any, Any, int]]) -> str:
    """Statistics of a file as Delta has them: the least, the greatest and the number of nulls of columns."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: least for name, (least, _, _) in columns.items() if least is not None},
            "maxValues": {name: most for name, (_, most, _) in columns.items() if most is not None},
            "nullCount": {name: nulls for name, (_, _, nulls) in columns.items()},
        }
    )


#: Bytes of rows that wait to be written as one row group, of one file and of all together.
ROW_GROUP_BYTES, BUFFERED_BYTES = 32 << 20, 128 << 20

DAY = 86_400_000_000  # microseconds

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Key = tuple[int, int]  # days since the epoch, bucket


class TableWriter:
    """The files of one task for one table. Nobody sees them until a commit names them."""

    def __init__(self, folder: Folder, table: str, buckets: int, batch: str, broker: str) -> None:
        self._folder = folder
        self._broker = broker
        self._table = table
        self._buckets = buckets
        self._batch = batch
        self._schema = pa.schema([pa.field(name, TYPES[type_]) for name, type_ in TABLES[table].items()])
        self._open: dict[_Key, FileWriter] = {}
        self._crcs: dict[str | None, int] = {}

    def add(self, batch: Any) -> None:
        """Rows, as a record batch with all columns of the table."""
        for code, rows in self.grouped(batch):
            self.add_group(code, rows)

    def grouped(self, batch: Any) -> Iterator[tuple[int, Any]]:
        """The rows of a record batch with all columns of the table, those of each file, and before them its number."""
        days = _integers(batch.column(TIME_COLUMNS[self._table]), np.int64) // DAY
        codes = days * self._buckets + self._buckets_of(batch.column("address"))
        for code in np.unique(codes).tolist():
            which = np.flatnonzero(codes == code)
            yield code, batch if len(which) == len(codes) else batch.take(indices(which))

    def add_group(self, code: int, rows: Any) -> None:
        """Rows of one file, by what `groups` gave for them."""
        key = (code // self._buckets, code % self._buckets)
        if key not in self._open:
            self._open[key] = FileWriter(self._folder, self._schema, key, self._batch, self._broker)
        self._open[key].add(rows)
        if sum(part.waiting for part in self._open.values()) > BUFFERED_BYTES:
            max(self._open.values(), key=lambda part: part.waiting).write()

    def groups(self, times: Any, addresses: Any, names: dict[int, str]) -> Any:
        """The file of each row as a number, from its time (epoch ms) and the number of its address."""
        days = milliseconds(times) * 1000 // DAY
        ids, which = distinct(addresses)
        return days * self._buckets + np.array([self._bucket(names.get(id_)) for id_ in ids.tolist()])[which]

    def of_messages(self, messages: Messages) -> Any:
        """The same for messages."""
        fixed = messages.fixed
        return self.groups(fixed["timestamp"], fixed["address"], messages.records.names[ADDRESS])

    def _buckets_of(self, addresses: Any) -> Any:
        codes = addresses.dictionary_encode(null_encoding="encode")
        known = [self._bucket(name) for name in codes.dictionary.to_pylist()]
        return np.array(known, np.int64)[_integers(codes.indices, np.int32)]

    def _bucket(self, address: str | None) -> int:
        if address not in self._crcs:
            self._crcs[address] = bucket_of(address, self._buckets)
        return self._crcs[address]

    def close(self) -> list[NewFile]:
        """Complete the files, and let them be safe from a power cut."""
        files = [part.close() for part in self._open.values()]
        self._open = {}
        sync_files(self._folder, files)
        return files


class FileWriter:
    """One file. ``schema`` is that of the rows that are added; the column ``broker`` is put behind them."""

    def __init__(self, folder: Folder, schema: Any, key: _Key, batch: str, broker: str) -> None:
        self._folder, self._schema = folder, schema
        self._broker = broker
        date = np.datetime64(key[0], "D").astype(str)
        self._date, self._bucket = str(date), key[1]
        name = f"part-{batch}-{uuid4().hex}.parquet"
        self._path = f"{DATE}={self._date}/{BUCKET}={self._bucket}/{name}"
        self._writer: Any = None
        self._rows = 0
        self._batches: list[Any] = []
        self._metadata: list[Any] = []  # of the file, once it is closed
        self.waiting = 0

    def add(self, batch: Any) -> None:
        """Rows of that date and bucket."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting += batch.nbytes
        if self.waiting > ROW_GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """Write the rows that wait as one row group."""
        if self._writer is None:
            target = self._folder.path(self._path)
            self._folder.make_directory(self._path.rpartition("/")[0])
            # the compression that costs the least beside reading and decoding
            self._writer = pq.ParquetWriter(
                target,
                self._schema.append(pa.field(BROKER, pa.string())),
                filesystem=self._folder.system,
                compression="zstd",
                compression_level=1,
                use_dictionary=[BROKER, *_dictionaries(self._schema.names)],
                write_statistics=[BROKER, *_statistics_columns(self._schema)],
                metadata_collector=self._metadata,
                coerce_timestamps="us",
            )
        if self._batches:
            rows = pa.Table.from_batches(self._batches, self._schema)
            broker = strings([self._broker.encode()]).take(indices(np.zeros(rows.num_rows, np.int64)))
            self._writer.write_table(rows.append_column(BROKER, broker))
        self._batches, self.waiting = [], 0

    def close(self) -> NewFile:
        """Complete the file. It is safe from a power cut after `sync_files`."""
        self.write()
        self._writer.close()
        size = self._folder.size(self._path) or 0
        shown = {
            name: _range(self._metadata[0], name, self._rows)
            for name in (BROKER, *_statistics_columns(self._schema))
        }
        return NewFile(self._path, size, self._rows, self._date, self._bucket, stats_of(self._rows, shown))


#: Columns of few different values.
DICTIONARY_COLUMNS = (
    "address",
    "queue",
    "event",
    "user",
    "consumer",
    "priority",
    "durable",
    "due",
    "expires",
)

#: What Parquet calls the names within a map.
MAP_KEYS = "key_value.key"


def _dictionaries(names: list[str]) -> list[str]:
    """Columns of a table that have a dictionary: the names of headers too, of which there are few."""
    few = [name for name in DICTIONARY_COLUMNS if name in names]
    return [*few, f"headers.{MAP_KEYS}"] if "headers" in names else few


def bucket_of(address: str | None, buckets: int) -> int:
    """The bucket of an address: the CRC-32 of its name, as zlib has it, modulo the number of buckets."""
    return crc32((address or "").encode()) % buckets


def _integers(column: Any, type_: Any) -> Any:
    """The values of a column without nulls (times in microseconds), not copied."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(0, type_)
    return np.frombuffer(data, type_)[column.offset : column.offset + len(column)]


#: What stands for the least and the greatest of texts that are too long for Parquet's statistics.
_FIRST, _LAST = "", "\U0010ffff" * 8


def _statistics_columns(schema: Any) -> list[str]:
    """The columns whose least and greatest values a commit tells: all that can be compared.

    A reader may take a column that is left out, while others are there, for one without values (deltalake 1.6 does).
    """
    return [
        field.name
        for field in schema
        if not (pa.types.is_binary(field.type) or pa.types.is_nested(field.type))
    ]


def _range(metadata: Any, name: str, rows: int) -> tuple[Any, Any, int]:
    """The least and the greatest value of a column as JSON has them, None without values; and how many are null."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    index = metadata.schema.names.index(name)
    statistics_ = [group.column(index).statistics for group in groups]
    nulls = sum(one.null_count for one in statistics_)
    if nulls == rows:
        return None, None, nulls
    ranges = [(_value(one, one.min_raw), _value(one, one.max_raw)) for one in statistics_ if one.has_min_max]
    if len(ranges) < sum(
        one.null_count < group.num_rows for one, group in zip(statistics_, groups, strict=True)
    ):
        return _FIRST, _LAST, nulls
    least, most = min(one for one, _ in ranges), max(one for _, one in ranges)
    if isinstance(least, datetime):
        return _instant(least), _instant(most), nulls
    return least, most, nulls


def _value(statistics_: Any, raw: Any) -> Any:
    """What stands for a value in a file's statistics. Not ``told.min``: for times pyarrow imports pandas."""
    kind = statistics_.logical_type.type
    if kind == "TIMESTAMP":
        return _EPOCH + timedelta(microseconds=raw)
    return raw.decode() if kind == "STRING" else raw


def _instant(time: datetime) -> str:
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def sync_files(folder: Folder, files: list[NewFile]) -> None:
    """Let files be safe from a power cut: their contents, and their names in the directories, each of them once."""
    root = folder.local
    if root is None:
        return
    for file in files:
        sync_file(root / file.path)
    for directory in {parent for file in files for parent in Path(file.path).parents}:
        sync_directory(root / directory)
