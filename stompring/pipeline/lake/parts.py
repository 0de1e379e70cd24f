"""Rows to Parquet files by date and bucket, in the process of a task: what Spark's executors write."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stompring.pipeline.arrays import TYPES, distinct, indices, milliseconds
from stompring.pipeline.columns import Messages
from stompring.pipeline.folder import Folder, sync_directory, sync_file
from stompring.pipeline.lake.delta import BROKER, BUCKET, DATE, TIME, NewFile, stats_of
from stompring.pipeline.schema import LONG, TABLES, TIMESTAMP
from stompring.store.record import ADDRESS

#: Bytes of rows that wait to be written as one row group, of one file and of all together.
GROUP, WAITING = 32 << 20, 128 << 20

DAY = 86_400_000_000  # microseconds

_Key = tuple[int, int]  # days since the epoch, bucket


class Parts:
    """The files of one task for one table. Nobody sees them until a commit names them."""

    def __init__(self, folder: Folder, table: str, buckets: int, batch: str, broker: str) -> None:
        self._folder = folder
        self._broker = broker
        self._table = table
        self._buckets = buckets
        self._batch = batch
        self._schema = pa.schema([pa.field(name, TYPES[type_]) for name, type_ in TABLES[table].items()])
        self._open: dict[_Key, Part] = {}
        self._crcs: dict[str | None, int] = {}

    def add(self, batch: Any) -> None:
        """Rows, as a record batch with all columns of the table."""
        days = _integers(batch.column(TIME[self._table]), np.int64) // DAY
        codes = days * self._buckets + self._buckets_of(batch.column("address"))
        for code in np.unique(codes).tolist():
            which = np.flatnonzero(codes == code)
            self.add_group(code, batch if len(which) == len(codes) else batch.take(indices(which)))

    def add_group(self, code: int, rows: Any) -> None:
        """Rows of one file, by what `groups` gave for them."""
        key = (code // self._buckets, code % self._buckets)
        if key not in self._open:
            self._open[key] = Part(self._folder, self._schema, key, self._batch, self._broker)
        self._open[key].add(rows)
        if sum(part.waiting for part in self._open.values()) > WAITING:
            max(self._open.values(), key=lambda part: part.waiting).write()

    def groups(self, messages: Messages) -> Any:
        """The file of each message, as a number: of its day and its bucket."""
        days = milliseconds(messages.fixed["timestamp"]) * 1000 // DAY
        ids, which = distinct(messages.fixed["address"])
        names = messages.records.names[ADDRESS]
        return days * self._buckets + np.array([self._bucket(names.get(id_)) for id_ in ids.tolist()])[which]

    def _buckets_of(self, addresses: Any) -> Any:
        codes = addresses.dictionary_encode()
        known = [self._bucket(name) for name in codes.dictionary.to_pylist()]
        known.append(self._bucket(None))
        which = codes.indices.fill_null(len(known) - 1)
        return np.array(known, np.int64)[_integers(which, np.int32)]

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


class Part:
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
        self._ranges: dict[str, tuple[int, int, int]] = {}
        self.waiting = 0

    def add(self, batch: Any) -> None:
        """Rows of that date and bucket."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.waiting += batch.nbytes
        for name in ("timestamp", "time", "message_id"):
            if name in self._schema.names:
                self._note(name, batch.column(name))
        if self.waiting > GROUP:
            self.write()

    def _note(self, name: str, column: Any) -> None:
        """The least and the greatest value, by which files are left out of queries."""
        valid = column.drop_null() if column.null_count else column
        values = _integers(valid, np.int64)
        least, most, nulls = self._ranges.get(name, (2**63 - 1, -(2**63), 0))
        if len(values):
            least, most = min(least, int(values.min())), max(most, int(values.max()))
        self._ranges[name] = (least, most, nulls + column.null_count)

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
                write_statistics=[BROKER, *(n for n, _ in TABLES_DICTIONARY if n in self._schema.names)],
                coerce_timestamps="us",
            )
        if self._batches:
            rows = pa.Table.from_batches(self._batches, self._schema)
            broker = pa.repeat(pa.scalar(self._broker, pa.string()), rows.num_rows)
            self._writer.write_table(rows.append_column(BROKER, broker))
        self._batches, self.waiting = [], 0

    def close(self) -> NewFile:
        """Complete the file. It is safe from a power cut after `sync_files`."""
        self.write()
        self._writer.close()
        size = self._folder.size(self._path) or 0
        shown = {name: _shown(self._schema, name, told) for name, told in self._ranges.items()}
        shown[BROKER] = (self._broker, self._broker, 0)
        return NewFile(self._path, size, self._rows, self._date, self._bucket, stats_of(self._rows, shown))


#: Columns of few different values, and others that queries choose rows by.
TABLES_DICTIONARY = (
    *(
        (name, True)
        for name in ("address", "queue", "event", "user", "consumer", "priority", "durable", "due", "expires")
    ),
    *((name, False) for name in ("timestamp", "time", "message_id", "page")),
)

#: What Parquet calls the names within a map.
MAP_KEYS = "key_value.key"


def _dictionaries(names: list[str]) -> list[str]:
    """Columns of a table that have a dictionary: the names of headers too, of which there are few."""
    few = [name for name, is_few in TABLES_DICTIONARY if is_few and name in names]
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


def _shown(schema: Any, name: str, told: tuple[int, int, int]) -> tuple[Any, Any, int]:
    """Least and greatest as JSON has them."""
    least, most, nulls = told
    if least > most:
        return None, None, nulls
    if schema.field(name).type == TYPES[TIMESTAMP]:
        texts = [f"{np.datetime64(value // 1000, 'ms')}Z" for value in (least, most)]
        return texts[0], texts[1], nulls
    assert schema.field(name).type == TYPES[LONG]
    return least, most, nulls


def sync_files(folder: Folder, files: list[NewFile]) -> None:
    """Let files be safe from a power cut: their contents, and their names in the directories, each of them once."""
    root = folder.local
    if root is None:
        return
    for file in files:
        sync_file(root / file.path)
    for directory in {parent for file in files for parent in Path(file.path).parents}:
        sync_directory(root / directory)
