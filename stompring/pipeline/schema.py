"""The tables that a data directory is read as: their columns and types, in one place (docs/pipeline.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

STRING, LONG, INT, BOOLEAN, BINARY = "STRING", "BIGINT", "INT", "BOOLEAN", "BINARY"
TIMESTAMP, HEADERS = "TIMESTAMP", "MAP<STRING,STRING>"

#: Column and type, as Spark's DDL names it.
Columns = Mapping[str, str]

#: A row for each message in each queue that it entered.
MESSAGES: Columns = {
    "address": STRING,
    "queue": STRING,
    "message_id": LONG,
    "timestamp": TIMESTAMP,
    "expires": TIMESTAMP,
    "due": TIMESTAMP,
    "priority": INT,
    "durable": BOOLEAN,
    "deliveries": INT,
    "headers": HEADERS,
    "body": BINARY,
    "user": STRING,
}

#: A row for each thing that happened to a message in a queue.
EVENTS: Columns = {
    "time": TIMESTAMP,
    "event": STRING,
    "address": STRING,
    "queue": STRING,
    "message_id": LONG,
    "page": LONG,
    "index": INT,
    "deliveries": INT,
    "due": TIMESTAMP,
    "consumer": STRING,
    "certain": BOOLEAN,
}

#: The counters of a sample, in the order in which they stand in a row of the file.
COUNTERS = (
    "ring_size",
    "messages",
    "delivering",
    "scheduled",
    "paged",
    "consumers",
    "added",
    "acknowledged",
    "expired",
    "killed",
    "replaced",
    "size",
)

#: A row for each queue in each sample in which something was new.
SAMPLES: Columns = {
    "time": TIMESTAMP,
    "address": STRING,
    "queue": STRING,
    **dict.fromkeys(COUNTERS, LONG),
}

TABLES: Mapping[str, Columns] = {"messages": MESSAGES, "events": EVENTS, "samples": SAMPLES}

#: Endings of the files in which each table is.
ENDINGS: Mapping[str, frozenset[str]] = {
    "messages": frozenset({".journal", ".page"}),
    "events": frozenset({".journal", ".page"}),
    "samples": frozenset({".samples"}),
}


def ddl(table: str, names: Iterable[str]) -> str:
    """Some columns of a table, as Spark takes a schema."""
    return ", ".join(f"`{name}` {TABLES[table][name]}" for name in names)
