"""A lake as version 1 of it was: no columns `LATER`, no brokers in ``lake.json``, batches below ``_stompring``."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, Transaction

from .ingesting import ingest

TABLES = ("messages", "events", "samples")

WRITER = "stompring-ingest"

#: Columns that came with version 2.
LATER = ("broker", "certain")


def first_version(data, lake, committed=tuple(TABLES)):
    """A lake with one batch: all of a data directory. ``committed`` are the tables that have it already."""
    made = lake.with_name(f"{lake.name} of today")
    ingest(shutil.copytree(data, made.with_name("its data")), made)
    for table in TABLES:
        where = lake / table
        shutil.copytree(made / table, where, ignore=shutil.ignore_patterns("_delta_log"))
        schema = Schema(
            [one for one in DeltaTable(str(made / table)).schema().fields if one.name not in LATER]
        )
        DeltaTable.create(
            str(where),
            schema,
            partition_by=["date", "bucket"],
            name=table,
            configuration={"stompring.buckets": "4"},
            raise_if_key_not_exists=False,
        )
        actions = []
        log = [
            line
            for path in sorted(made.glob(f"{table}/_delta_log/*.json"))
            for line in path.read_text().split("\n")
        ]
        for file in [json.loads(line)["add"] for line in log if line.startswith('{"add"')]:
            path = where / unquote(file["path"])
            rows = pq.ParquetFile(path).read()
            rows = rows.drop_columns([name for name in LATER if name in rows.schema.names])
            pq.write_table(rows, path, compression="zstd", coerce_timestamps="us")
            partition: dict[str, str | None] = file["partitionValues"]
            actions.append(AddAction(file["path"], os.stat(path).st_size, partition, 1, True, file["stats"]))
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
        "end": json.loads(next(made.rglob("batches/*.json")).read_text())["end"],
        "versions": dict.fromkeys(TABLES, 0),
    }
    (state / "batches" / "000000000.json").write_text(json.dumps(intent))
    shutil.rmtree(made)
    shutil.rmtree(made.with_name("its data"))
    return lake


def rows(lake, table, version=None):
    """What delta-rs reads, in one order."""
    return ordered(DeltaTable(str(lake / table), version=version).to_pyarrow_table().to_pylist())


def ordered(found):
    """Rows in an order that does not depend on that of their columns."""
    return sorted(found, key=lambda row: repr(sorted(row.items())))
