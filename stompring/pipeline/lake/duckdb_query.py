"""Queries over a lake with DuckDB: in this process, without Java, with the same columns and types as in Spark.

delta-rs lists the files. DuckDB reads local files itself, and remote files through an Arrow data set, so that it needs
no extension.
"""

from __future__ import annotations

import base64
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from stompring.errors import PipelineError

from .data_files import BUCKET, DATE
from .delta import Table
from .lake import Lake

#: Number of rows of a result in one record batch.
ROWS = 8192


class QueryError(PipelineError):
    """DuckDB rejected a query or failed to execute it. The text is DuckDB's message."""


class Result:
    """The rows of a query, read in batches."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._types = [field.type for field in reader.schema]
        self.columns: list[str] = list(reader.schema.names)

    def rows(self) -> Iterator[list[Any]]:
        """Iterate over rows of Python values. Times are in UTC without an offset. Raises `QueryError`."""
        try:
            for batch in self._reader:
                columns = [
                    [_value(type_, value) for value in _naive(column).to_pylist()]
                    for type_, column in zip(self._types, batch.columns, strict=True)
                ]
                yield from map(list, zip(*columns, strict=True))
        except (duckdb.Error, pa.ArrowInvalid) as reason:
            raise QueryError(_error_text(reason)) from None

    def objects(self) -> Iterator[dict[str, Any]]:
        """Iterate over rows as JSON objects like Spark's ``to_json``: no nulls, bytes in Base64, times in ISO 8601."""
        for row in self.rows():
            cells = zip(self.columns, self._types, row, strict=True)
            yield {name: _json(type_, value) for name, type_, value in cells if value is not None}


@contextmanager
def query(
    lake: Lake, text: str, limit: int | None = None, versions: Mapping[str, int] | None = None
) -> Iterator[Result]:
    """Context manager: execute a query over ``messages``, ``events``, ``samples`` and the views of a lake.

    ``limit``: maximum number of rows. ``versions``: versions of tables by name, by default the latest. Raises
    `LakeNotFound`, and `QueryError`, for example for a statement that is not a query.
    """
    lake.require()
    with tempfile.TemporaryDirectory(prefix="stompring-duckdb-") as directory:
        settings: dict[str, Any] = {
            "temp_directory": directory,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            connection.execute("set TimeZone = 'UTC'")
            at = versions or {}
            try:
                for name, table in lake.tables.items():
                    _add_table(connection, table, at.get(name))
                for view in lake.views.every():
                    if view.is_stored(at.get("messages")):
                        _add_table(connection, view, None)
                    else:
                        connection.register(view.name, view.stream(at.get("messages")))
                relation = connection.sql(text)
                if relation is None:
                    raise QueryError("the statement returns no rows: only queries are supported")
                if limit is not None:
                    relation = relation.limit(limit)
                new = hasattr(relation, "to_arrow_reader")  # DuckDB 1.5 and later
                reader = (relation.to_arrow_reader if new else relation.fetch_arrow_reader)(ROWS)
            except duckdb.Error as reason:
                raise QueryError(_error_text(reason)) from None
            result = Result(reader)
            try:
                yield result
            finally:
                del relation, reader, result._reader


#: DuckDB types of the partition columns.
_PARTITION_TYPES = {DATE: "date", BUCKET: "integer"}

#: Characters of a path that DuckDB would interpret as a pattern or as a partition column.
_UNSUPPORTED_CHARACTERS = "*?[="


def _add_table(connection: Any, known: Table, version: int | None) -> None:
    """Create a DuckDB view that has the rows and the name of a Delta table."""
    folder, table = known.folder, known.open(version)
    partitions = table.metadata().partition_columns
    paths = known.actions(version).column("path").to_pylist()
    if not paths or folder.local is None or set(_UNSUPPORTED_CHARACTERS) & set(str(folder.local)):
        source = f"files of {known.name}"
        connection.register(source, known.dataset(version))
        rows = _quoted(source)
    else:
        files = ", ".join(_literal(folder.path(unquote(path))) for path in paths)
        types = ", ".join(f"{_literal(each)}: {_PARTITION_TYPES[each]}" for each in partitions)
        hive = f", hive_partitioning = true, hive_types = {{{types}}}" if partitions else ""
        rows = f"read_parquet([{files}]{hive})"
    shown = [_quoted(field.name) for field in table.schema().fields]
    connection.execute(f"create view {_quoted(known.name)} as select {', '.join(shown)} from {rows}")  # nosec B608


def _quoted(text: str) -> str:
    """Quote an SQL identifier."""
    return '"' + text.replace('"', '""') + '"'


def _literal(text: str) -> str:
    """Quote an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def _error_text(reason: Exception) -> str:
    return str(reason).strip().partition("\n\n")[0]


def _naive(column: Any) -> Any:
    """Return a column of times with an offset as UTC times without an offset. Other columns do not change."""
    if pa.types.is_timestamp(column.type):
        if column.type.unit == "ns":
            column = pc.cast(column, pa.timestamp("us", column.type.tz), safe=False)
        return column.cast(pa.timestamp("us"))
    return column


def _value(type_: Any, value: Any) -> Any:
    """Convert maps to dictionaries, and decimals without fraction to ``int``: DuckDB makes decimals of large
    integers."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return {_value(type_.key_type, key): _value(type_.item_type, each) for key, each in value}
    if pa.types.is_struct(type_):
        return {field.name: _value(field.type, value[field.name]) for field in type_}
    if isinstance(value, list):
        return [_value(type_.value_type, each) for each in value]
    if isinstance(value, Decimal) and type_.scale == 0:
        return int(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _json(type_: Any, value: Any) -> Any:
    if pa.types.is_map(type_):
        return {str(key): _json(type_.item_type, each) for key, each in value.items()}
    if pa.types.is_struct(type_):
        members = ((field.name, field.type, value[field.name]) for field in type_)
        return {name: _json(inner, each) for name, inner, each in members if each is not None}
    if isinstance(value, list):
        return [_json(type_.value_type, each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        zone = "" if pa.types.is_timestamp(type_) and type_.tz is None else "Z"
        return f"{value.isoformat(timespec='milliseconds')}{zone}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("inf", "Infinity")
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, (str, int, float)) or value is None else str(value)
