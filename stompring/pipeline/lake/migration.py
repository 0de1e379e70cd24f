"""Tables of earlier versions, brought to the columns of this one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Schema

from stompring.pipeline.arrays import TYPES
from stompring.pipeline.events import UNCERTAIN
from stompring.pipeline.lake.brokers import MAIN
from stompring.pipeline.lake.data_file import BROKER, BUCKET, DATE, NewFile
from stompring.pipeline.lake.delta import OPERATION, LakeTable, arrow_schema
from stompring.pipeline.lake.parts import Part, sync_files
from stompring.pipeline.schema import TABLES

#: Bytes of rows that are decoded at once.
DECODED = 16 << 20

#: The part of a file's name that says which batch it is of, and that it has copies.
_BATCH = re.compile(r"part-(\d{6,}(?:-copies)?)-[0-9a-f]{32}\.parquet")


def migrate(table: LakeTable) -> bool:
    """Add the columns that a table of an earlier version lacks; False where it lacks none.

    Rows get `MAIN` as their broker: each file is written anew with that column, and one commit puts all of them in
    place of the old ones, so that every reader finds the value. Other columns are null in the rows that are there, and
    for that the schema is enough.
    """
    delta = table.open()
    schema = arrow_schema(table.name)
    there = {field.name for field in delta.schema().fields}
    missing = [field for field in schema if field.name not in there]
    if not missing:
        return False
    if BROKER in there:
        delta.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
        table.sync_log()
        return True
    files = [_written_anew(table, *each) for each in _files(delta)]
    sync_files(table.folder, files)
    table.put(files, "overwrite", {OPERATION: "migration"}, schema=Schema.from_arrow(schema))
    return True


def _files(delta: Any) -> Iterator[tuple[str, date, int]]:
    """Path, date and bucket of each file of a table."""
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    for action in actions:
        yield unquote(action["path"]), action[f"partition.{DATE}"], int(action[f"partition.{BUCKET}"])


def _written_anew(table: LakeTable, path: str, day: date, bucket: int) -> NewFile:
    named = _BATCH.fullmatch(path.rpartition("/")[2])
    key = ((day - date(1970, 1, 1)).days, bucket)
    schema = pa.schema([pa.field(name, TYPES[type_]) for name, type_ in TABLES[table.name].items()])
    part = Part(table.folder, schema, key, "migrated" if named is None else named[1], MAIN)
    with pq.ParquetFile(table.folder.path(path), filesystem=table.folder.system) as file:
        about = file.metadata
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        most = max(1, DECODED * about.num_rows // max(size, 1))
        for batch in file.iter_batches(min(most, 1 << 16)):
            for rows in _with_columns(pa.Table.from_batches([batch]), schema).to_batches():
                part.add(rows)
    return part.close()


def _with_columns(rows: Any, schema: Any) -> Any:
    """Rows with the columns of a schema, null where they had none of a name.

    Events were read from records that do not tell some of them for sure.
    """
    if "certain" in schema.names and "certain" not in rows.schema.names:
        doubtful = pc.is_in(rows["event"], pa.array(UNCERTAIN))
        rows = rows.append_column("certain", pc.invert(doubtful))
    for field in schema:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)
