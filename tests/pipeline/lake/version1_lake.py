"""A lake as version 1 of it was: no columns `LATER`, no brokers in ``lake.json``, batches below ``_stompring``."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, Transaction

from stompring.pipeline.arrays import TABLES
from stompring.pipeline.backlog import end_positions, ranges_between
from stompring.pipeline.files import DataFiles, dump_positions
from stompring.pipeline.lake.delta import arrow_schema
from stompring.pipeline.lake.ingest import FILES
from stompring.pipeline.lake.ingest_task import BatchJob, ingest_ranges

WRITER = "stompring-ingest"

#: Columns that came with version 2.
LATER = ("broker", "certain")


def first_version(data, lake, committed=tuple(TABLES)):
    """A lake with one batch: all of a data directory. ``committed`` are the tables that have it already."""
    files = DataFiles(str(data))
    end = end_positions(files, FILES, {})
    ranges, _ = ranges_between(files, FILES, {}, end)
    job = BatchJob(str(data), None, str(lake), 4, 0, tuple(TABLES), str(lake / "copies"), "nobody")
    done = ingest_ranges(job, [one for one, _ in ranges])
    shutil.rmtree(lake / "copies", ignore_errors=True)
    for table in TABLES:
        where = lake / table
        where.mkdir(parents=True, exist_ok=True)
        fields = [field for field in arrow_schema(table) if field.name not in LATER]
        schema = Schema.from_arrow(pa.schema(fields))
        DeltaTable.create(
            str(where),
            schema,
            partition_by=["date", "bucket"],
            name=table,
            configuration={"stompring.buckets": "4"},
            raise_if_key_not_exists=False,
        )
        actions = []
        for file in done.files.get(table, []):
            path = where / file.path
            rows = pq.ParquetFile(path).read()
            rows = rows.drop_columns([name for name in LATER if name in rows.schema.names])
            pq.write_table(rows, path, compression="zstd", coerce_timestamps="us")
            partition: dict[str, str | None] = {"date": file.date, "bucket": str(file.bucket)}
            actions.append(AddAction(file.path, os.stat(path).st_size, partition, 1, True, file.stats))
        if table in committed:
            DeltaTable(str(where)).create_write_transaction(
                actions,
                "append",
                schema,
                partition_by=["date", "bucket"],
                commit_properties=CommitProperties(
                    custom_metadata={"stompring.batch": "0"}, app_transactions=[Transaction(WRITER, 0)]
                ),
            )
    state = lake / "_stompring"
    (state / "batches").mkdir(parents=True)
    about: dict[str, Any] = {"version": 1, "id": "0123456789abcdef0123456789abcdef"}
    (state / "lake.json").write_text(json.dumps(about))
    intent = {
        "version": 1,
        "batch": 0,
        "start": {},
        "end": dump_positions(end),
        "versions": dict.fromkeys(TABLES, 0),
    }
    (state / "batches" / "000000000.json").write_text(json.dumps(intent))
    return lake


def rows(lake, table, version=None):
    """What delta-rs reads, in one order."""
    return ordered(DeltaTable(str(lake / table), version=version).to_pyarrow_table().to_pylist())


def ordered(found):
    """Rows in an order that does not depend on that of their columns."""
    return sorted(found, key=lambda row: repr(sorted(row.items())))
