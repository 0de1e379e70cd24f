"""A lake with messages that a test names, made without Spark and without a broker."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from stompring.pipeline.lake.data_files import TableWriter
from stompring.pipeline.lake.delta import arrow_schema
from stompring.pipeline.lake.lake import Lake

BEGIN = datetime(2026, 7, 1, 23, 59, 58, 250_000, UTC)


class LakeFixture:
    """Batches of messages, each a commit as that of an ingest."""

    def __init__(self, directory, brokers=("main",)):
        self.lake = Lake(str(directory))
        self.lake.create(2)
        self._batch = dict.fromkeys(brokers, 0)
        self._number = 0

    def add(self, *bodies, address="orders", broker="main", **columns):
        """Messages, a second after each other; ``columns`` are those of all of them."""
        rows = []
        for body in bodies:
            self._number += 1
            rows.append(
                {
                    "address": address,
                    "queue": address,
                    "message_id": self._number,
                    "timestamp": BEGIN + timedelta(seconds=self._number - 1),
                    "priority": 4,
                    "durable": True,
                    "deliveries": 0,
                    "headers": {},
                    "body": body,
                    **columns,
                }
            )
        table = self.lake.tables["messages"]
        batch = self._batch[broker]
        self._batch[broker] += 1
        own = ("broker", "date", "bucket")
        schema = pa.schema([field for field in arrow_schema("messages") if field.name not in own])
        parts = new_parts(table, batch, broker)
        parts.add(pa.RecordBatch.from_pylist(rows, schema))
        table.commit(parts.close(), f"test-{broker}", batch, broker)


def new_parts(table, batch, broker):
    """The writer of files that an ingest has."""
    return TableWriter(table.folder, table.name, 2, f"{batch:06d}", broker)
