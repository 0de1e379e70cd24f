"""Views of a lake: messages of some addresses with columns made of their headers and bodies.

A view is a file, ``_stompring/views/NAME.json``. The same code (`ViewRows`) computes its rows for Spark (`View.frame`),
DuckDB (`View.source`) and `View.refresh`. A materialized view has a Delta table, ``views/NAME``. Each refresh adds the
rows of new messages in one commit that names the version of ``messages``: an interrupted refresh is repeated, and
nothing is there twice.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import time
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, Transaction

from stompring.pipeline.lake.data_files import BROKER, stats_of
from stompring.pipeline.lake.delta import LakeTable, compact, dataset, spark_url, sync_log, vacuum
from stompring.pipeline.lake.lake import Lake
from stompring.pipeline.lake.selection import SelectableRow
from stompring.pipeline.lake.view_schema import (
    SCALARS,
    Decoder,
    Type,
    TypeMismatch,
    arrow_type,
    avro_decoder,
    check_names,
    convert,
    convert_struct,
    ddl_type,
    decode_json,
)
from stompring.pipeline.options import TableScan
from stompring.pipeline.schema import TABLES
from stompring.pipeline.storage import Folder, sync_directory
from stompring.selector import InvalidSelector, compile_selector
from stompring.store.ingested import ingesting

log = logging.getLogger(__name__)

#: Columns of each view, before the ones of its own.
MESSAGE_COLUMNS = ("message_id", "queue", "address", "timestamp", BROKER)

#: The column of what did not fit.
BAD_COLUMN = "_bad"

_BAD_TYPE = pa.struct([pa.field("body", pa.binary()), pa.field("reason", pa.string())])

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}")

_FOLDER = "views"

#: The name under which a view's table remembers up to which version of ``messages`` it is.
_WRITER = "stompring-view"

#: Rows that are decoded at a time.
_ROWS = 4096

#: Bytes of rows that are one row group, and one file, about.
_GROUP, _FILE = 32 << 20, 512 << 20

_VERSION = 1


class ViewError(ValueError):
    """A view that cannot be, or is not there; the text says why."""


class RefreshResult(NamedTuple):
    """What a refresh added; ``whole``: it made all rows anew."""

    rows: int
    bad: int
    whole: bool


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What a view is made of. ``headers`` are names and types, ``fields`` those of bodies (`types`)."""

    name: str
    addresses: tuple[str, ...]
    where: str | None = None  # a selector, as for a queue
    headers: tuple[tuple[str, str], ...] = ()
    fields: tuple[Mapping[str, Any], ...] = ()
    avro: str | None = None  # the schema of bodies, where they are no JSON
    materialized: bool = False

    def check(self) -> None:
        """Raises `ViewError`, `InvalidSchema`."""
        if not _NAME.fullmatch(self.name) or self.name in TABLES:
            raise ViewError(
                f"invalid view name {self.name!r}: use lower-case letters, digits and _, at most 64 characters, "
                f"and not {', '.join(TABLES)}"
            )
        if not self.fields and not self.headers:
            raise ViewError("a view needs columns, from a schema of bodies or from headers")
        for name, type_ in self.headers:
            if type_ not in HEADER_TYPES.values():
                raise ViewError(f"header {name}: {type_!r} is not one of {', '.join(HEADER_TYPES)}")
        if self.where is not None:
            try:
                compile_selector(self.where)
            except InvalidSelector as reason:
                raise ViewError(f"invalid selector {self.where!r} (--where): {reason}") from None
        self.columns()

    def columns(self) -> list[tuple[str, str, Type]]:
        """Columns of its own: the name, where it is from (``header NAME`` or ``/NAME``), the type.

        A name that is taken already (SQL does not tell capitals from small letters) gets ``header_`` or ``body_``
        before it.
        """
        used = {name.lower() for name in (*MESSAGE_COLUMNS, BAD_COLUMN)}
        found: list[tuple[str, str, Type]] = []
        for prefix, origin, entries in (
            ("header_", "header ", [(name, type_) for name, type_ in self.headers]),
            ("body_", "/", [(one["name"], one["type"]) for one in self.fields]),
        ):
            own = []
            for name, type_ in entries:
                column = f"{prefix}{name}" if name.lower() in used else name
                own.append((column, f"{origin}{name}", type_))
            check_names([{"name": column} for column, _, _ in [*found, *own]], "columns")
            used |= {column.lower() for column, _, _ in own}
            found += own
        return found

    def schema(self) -> Any:
        """All columns, as Arrow has them."""
        types = {**TABLES["messages"], BROKER: "STRING"}
        fields = [pa.field(name, _MESSAGE_TYPES[types[name]]) for name in MESSAGE_COLUMNS]
        fields += [pa.field(name, arrow_type(type_)) for name, _, type_ in self.columns()]
        return pa.schema([*fields, pa.field(BAD_COLUMN, _BAD_TYPE)])

    def shown(self) -> list[tuple[str, str]]:
        """Names and types of all columns, as Spark's DDL has them."""
        types = {**TABLES["messages"], BROKER: "STRING"}
        own = [(name, ddl_type(type_)) for name, _, type_ in self.columns()]
        return [
            *((name, types[name]) for name in MESSAGE_COLUMNS),
            *own,
            (BAD_COLUMN, "STRUCT<body:BINARY,reason:STRING>"),
        ]


#: Types of headers, by the names that the command takes.
HEADER_TYPES = {
    "string": "string",
    "int": "int",
    "long": "long",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
}
_MESSAGE_TYPES = {"STRING": SCALARS["string"], "BIGINT": SCALARS["long"], "TIMESTAMP": SCALARS["timestamp"]}

#: What rows are made of; headers cost a scan more than all the rest, and are read where a column needs them.
_READ = (*MESSAGE_COLUMNS, "body")
_READ_BY_HEADERS = (*_READ, "headers")
_READ_BY_SELECTOR = (*_READ_BY_HEADERS, "expires", "priority", "durable", "user")


@dataclass(slots=True)
class ViewRows:
    """Makes rows of a view from messages. Sent to Spark's tasks, and called there."""

    definition: ViewDefinition
    _parts: Any = field(default=None, init=False, repr=False)

    def __getstate__(self) -> Any:
        return self.definition

    def __setstate__(self, state: Any) -> None:
        self.definition, self._parts = state, None

    @property
    def columns(self) -> tuple[str, ...]:
        """Of ``messages``: those that are needed."""
        if self.definition.where is not None:
            return _READ_BY_SELECTOR
        return _READ_BY_HEADERS if self.definition.headers else _READ

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """From batches of messages, with `columns`, to batches of the view."""
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                rows = self._of(batch.slice(start, _ROWS))
                if rows.num_rows:
                    yield rows

    def _of(self, batch: Any) -> Any:
        if self._parts is None:
            self._parts = _CompiledView(self.definition)
        return self._parts.rows(batch)


class _CompiledView:
    """A definition, compiled."""

    def __init__(self, definition: ViewDefinition) -> None:
        self._schema = definition.schema()
        self._wanted = TableScan(addresses=definition.addresses)
        self._known: dict[str | None, bool] = {}
        self._matches: Callable[[Any], bool] | None = None
        if definition.where is not None:
            self._matches = compile_selector(definition.where).matches
        columns = definition.columns()
        self._headers = [
            (column, name, type_)
            for (column, _, _), (name, type_) in zip(columns, definition.headers, strict=False)
        ]
        self._fields = definition.fields
        self._names = [
            (column, one["name"])
            for (column, _, _), one in zip(columns[len(definition.headers) :], definition.fields, strict=True)
        ]
        self._decode: Decoder = (
            decode_json if definition.avro is None else avro_decoder(definition.avro.encode())
        )

    def rows(self, batch: Any) -> Any:
        which = [
            at for at, address in enumerate(batch.column("address").to_pylist()) if self._is_selected(address)
        ]
        if len(which) < batch.num_rows:
            batch = batch.take(pa.array(which, pa.int64()))
        if self._matches is not None:
            rows = batch.to_pylist()
            batch = batch.take(
                pa.array([at for at, row in enumerate(rows) if self._matches(SelectableRow(row))], pa.int64())
            )
        count = batch.num_rows
        found: dict[str, list[Any]] = {
            column: [None] * count for column, *_ in (*self._headers, *self._names)
        }
        bad: list[Any] = [None] * count
        headers = batch.column("headers").to_pylist() if self._headers else []
        bodies = batch.column("body").to_pylist()
        for at in range(count):
            reasons = self._of_headers(dict(headers[at] or ()), found, at) if self._headers else []
            if self._fields:
                try:
                    value = convert_struct(self._fields, self._decode(bodies[at] or b""), "")
                    for column, name in self._names:
                        found[column][at] = value[name]
                except TypeMismatch as reason:
                    reasons.append(str(reason))
            if reasons:
                bad[at] = {"body": bodies[at], "reason": "; ".join(reasons)}
        arrays = [batch.column(name).cast(self._schema.field(name).type) for name in MESSAGE_COLUMNS]
        arrays += [pa.array(values, self._schema.field(column).type) for column, values in found.items()]
        arrays.append(pa.array(bad, _BAD_TYPE))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _is_selected(self, address: str | None) -> bool:
        if address not in self._known:
            self._known[address] = address is not None and self._wanted.matches(address)
        return self._known[address]

    def _of_headers(self, headers: Mapping[str, str], found: dict[str, list[Any]], at: int) -> list[str]:
        reasons = []
        for column, name, type_ in self._headers:
            text = headers.get(name)
            if text is None:
                continue
            try:
                found[column][at] = _header_value(type_, text, f"header {name}")
            except TypeMismatch as reason:
                reasons.append(str(reason))
        return reasons


def _header_value(type_: str, text: str, pointer: str) -> Any:
    """A header's value. Raises `TypeMismatch`."""
    if type_ in ("int", "long"):
        value: Any = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else text
    elif type_ == "double":
        value = (
            float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) else text
        )
    elif type_ == "boolean":
        value = {"true": True, "false": False}.get(text.lower(), text)
    else:
        value = text
    return convert(type_, value, pointer)


class View:
    """One view of a lake."""

    def __init__(self, lake: Lake, definition: ViewDefinition) -> None:
        self.lake = lake
        self.definition = definition
        self.folder: Folder = lake.folder.folder(_FOLDER).folder(definition.name)

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    # ---- for engines

    def frame(self, spark: Any, version: int | None = None) -> Any:
        """It as a DataFrame of Spark, as it is at this moment, or of a version of ``messages``."""
        from pyspark.sql.functions import col, concat, lit
        from pyspark.sql.pandas.types import from_arrow_schema

        from stompring.pipeline.lake.selection import address_regex

        schema = from_arrow_schema(self.definition.schema())
        if self.definition.materialized and version is None:
            files = [spark_url(uri) for uri in self.open().file_uris()]
            return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)
        messages = self.lake.tables["messages"].frame(spark, version=version)
        messages = messages.where(
            concat(col("address"), lit(".")).rlike(address_regex(self.definition.addresses))
        )
        rows = ViewRows(self.definition)
        return messages.select(*rows.columns).mapInArrow(rows, schema)

    def source(self, version: int | None = None) -> Any:
        """The same for DuckDB and others, which scan it any number of times, by Arrow's stream interface."""
        if self.definition.materialized and version is None:
            return dataset(self.open(), self.folder)
        return _Stream(self.definition, self.lake.tables["messages"], version)

    # ---- its table

    def open(self) -> Any:
        """The table of a materialized one, as it is now."""
        return DeltaTable(self.folder.where, storage_options=self.folder.storage_options)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        directory = self.lake.state.folder(_FOLDER).local
        if directory is None:
            yield  # one of two commits there fails
            return
        directory.mkdir(parents=True, exist_ok=True)
        with ingesting(directory, self.name):
            yield

    def refresh(self) -> RefreshResult:
        """Add the rows of messages that came since. Raises `Busy` where another process does so."""
        with self._locked():
            return self._refresh()

    def _refresh(self) -> RefreshResult:
        messages = self.lake.tables["messages"].open()
        version = int(messages.version())
        if not DeltaTable.is_deltatable(self.folder.where, self.folder.storage_options):
            if self.folder.local is not None:
                self.folder.local.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                self.folder.where,
                Schema.from_arrow(self.definition.schema()),
                mode="ignore",
                name=self.name,
                storage_options=self.folder.storage_options,
            )
        table = self.open()
        before = table.transaction_version(_WRITER)
        if before == version:
            return RefreshResult(0, 0, False)
        files = None if before is None or before > version else self._added(int(before), version)
        counted = _RowCounter()
        rows = ViewRows(self.definition)
        if files is None:
            batches = self.lake.tables["messages"].batches(rows.columns, version)
        else:
            batches = _batches_of(self.lake.tables["messages"].folder, files, rows.columns)
        written = self._write(counted.count(rows(batches)))
        table.create_write_transaction(
            written,
            "overwrite" if files is None else "append",
            table.schema(),
            partition_by=[],
            commit_properties=CommitProperties(app_transactions=[Transaction(_WRITER, version)]),
        )
        sync_log(self.folder)
        return RefreshResult(counted.rows, counted.bad, files is None and before is not None)

    def _write(self, batches: Iterable[Any]) -> list[Any]:
        """Files that no commit names yet, and are safe from a power cut."""
        schema, added = self.definition.schema(), []
        self.folder.make_directory()
        more: Iterator[Any] = iter(batches)
        batch = next(more, None)
        while batch is not None:
            name, rows, size = f"part-{uuid4().hex}.parquet", 0, 0
            target = self.folder.path(name)
            with pq.ParquetWriter(
                target, schema, filesystem=self.folder.system, compression="zstd", compression_level=1
            ) as file:
                while batch is not None and size < _FILE:
                    group, filled = [], 0
                    while batch is not None and filled < _GROUP:
                        group.append(batch)
                        filled += batch.nbytes
                        batch = next(more, None)
                    table = pa.Table.from_batches(group, schema)
                    file.write_table(table)
                    rows, size = rows + table.num_rows, size + filled
            self.folder.sync(name)
            bytes_ = self.folder.size(name) or 0
            added.append(AddAction(name, bytes_, {}, int(time() * 1000), True, stats_of(rows, {})))
        if self.folder.local is not None:
            sync_directory(self.folder.local)
        return added

    def _added(self, before: int, version: int) -> list[str] | None:
        """Files that commits after one added to ``messages``; None where it takes all rows to say what changed."""
        folder, found = self.lake.tables["messages"].folder, []
        for number in range(before + 1, version + 1):
            try:
                lines = folder.read(f"_delta_log/{number:020d}.json").splitlines()
            except OSError:
                return None  # the log before a checkpoint was cleaned up
            for line in lines:
                action = json.loads(line)
                if "metaData" in action or action.get("remove", {}).get("dataChange"):
                    return None
                if action.get("add", {}).get("dataChange"):
                    found.append(action["add"]["path"])
        return found if all(folder.exists(path) for path in found) else None

    # ---- upkeep of its table

    def small_files(self, size: int) -> int:
        """How many files it has below so many bytes."""
        actions = pa.table(self.open().get_add_actions())
        return sum(one < size for one in actions.column("size_bytes").to_pylist())

    def compact(self, target_size: int) -> tuple[int, int]:
        """Put small files together: how many were made, and how many are of no use any more. Raises `Busy`."""
        with self._locked(), self.lake.rewriting():
            return compact(self.open(), self.folder, target_size)

    def vacuum(self, hours: int, *, dry_run: bool) -> list[str]:
        """Delete files that are of no use for so many hours, and those that no commit ever named. Raises `Busy`."""
        with self._locked():
            return vacuum(self.open(), hours, dry_run=dry_run)

    def counts(self) -> tuple[int, int]:
        """Rows of its table, and those that did not fit."""
        rows = dataset(self.open(), self.folder)
        return int(rows.count_rows()), int(rows.count_rows(filter=ds.field(BAD_COLUMN, "reason").is_valid()))


class _RowCounter:
    def __init__(self) -> None:
        self.rows = self.bad = 0

    def count(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            self.rows += batch.num_rows
            self.bad += batch.num_rows - batch.column(BAD_COLUMN).null_count
            yield batch


class _Stream:
    """What a view is, for who reads Arrow: made anew by each scan."""

    def __init__(self, definition: ViewDefinition, messages: LakeTable, version: int | None) -> None:
        self._definition = definition
        self._version = version
        self._messages = messages

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        rows = ViewRows(self._definition)
        batches = self._messages.batches(rows.columns, self._version)
        reader = pa.RecordBatchReader.from_batches(self._definition.schema(), rows(batches))
        return reader.__arrow_c_stream__(requested_schema)


def _batches_of(folder: Folder, files: Iterable[str], columns: tuple[str, ...]) -> Iterator[Any]:
    for name in files:
        with folder.system.open_input_file(folder.path(name)) as source:
            yield from pq.ParquetFile(source).iter_batches(_ROWS, columns=list(columns))


class Views:
    """The views of a lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._folder = lake.state.folder(_FOLDER)

    def every(self) -> list[View]:
        """By their names. Raises `ViewError` for a file that cannot be read."""
        return [self.get(name) for name in self._names()]

    def _names(self) -> list[str]:
        files = (one.name for one in self._folder.entries() if one.name.endswith(".json"))
        return sorted(name.removesuffix(".json") for name in files)

    def get(self, name: str) -> View:
        """The one of a name. Raises `ViewError`."""
        location = f"{self._folder}/{name}.json"
        try:
            document = json.loads(self._folder.read(f"{name}.json"))
            if document["version"] != _VERSION:
                raise ViewError(f"{location} has version {document['version']}: use a newer stompring")
            known = document["view"]
            definition = ViewDefinition(
                known["name"],
                tuple(known["addresses"]),
                known["where"],
                tuple((each, type_) for each, type_ in known["headers"]),
                tuple(known["fields"]),
                known["avro"],
                bool(known["materialized"]),
            )
            definition.check()
            return View(self._lake, definition)
        except FileNotFoundError:
            names = ", ".join(self._names())
            raise ViewError(f"the lake {self._lake} has no view {name!r}; it has {names or 'none'}") from None
        except ViewError:
            raise
        except (ValueError, KeyError, TypeError) as fault:
            raise ViewError(f"{location} is damaged: {fault!r}") from None

    def create(self, definition: ViewDefinition) -> View:
        """Remember a new one. Raises `ViewError`, and what `ViewDefinition.check` raises."""
        definition.check()
        if self._folder.exists(f"{definition.name}.json"):
            raise ViewError(f"view {definition.name} already exists: delete it with --drop")
        view = View(self._lake, definition)
        self._lake.folder.remove_all(f"{_FOLDER}/{definition.name}")  # of a drop that was killed
        document = {"version": _VERSION, "view": asdict(definition)}
        if definition.materialized:
            view.refresh()
        self._folder.write(f"{definition.name}.json", json.dumps(document, indent=1).encode())
        return view

    def drop(self, name: str) -> None:
        """Forget one, and delete its table. Raises `ViewError`."""
        self.get(name)
        self._folder.remove(f"{name}.json")
        self._lake.folder.remove_all(f"{_FOLDER}/{name}")

    def materialized(self) -> list[View]:
        """Those that have a table."""
        return [view for view in self.every() if view.definition.materialized]

    def refresh(self) -> None:
        """Add to the tables of all. What does not work is logged, and done by the next call."""
        for view in self.materialized():
            try:
                view.refresh()
            except Exception as fault:  # the messages are in the lake all the same
                log.warning("view %s: refresh failed: %s", view.name, fault)


def bodies(messages: LakeTable, addresses: tuple[str, ...]) -> Iterator[bytes]:
    """Bodies of messages, for `Inference`."""
    wanted = TableScan(addresses=addresses)
    known: dict[str | None, bool] = {}
    for batch in messages.batches(("address", "body")):
        for address, body in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if address not in known:
                known[address] = address is not None and wanted.matches(address)
            if known[address]:
                yield body or b""
