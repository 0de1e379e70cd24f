"""The versions of a lake's tables: what made them, and which of them belong together.

Each table has versions of its own. A version of the lake is one of ``messages``: each batch is committed to that table
last, so that the others have it then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from stompring.pipeline.lake.brokers import MAIN
from stompring.pipeline.lake.delta import BATCH, BROKER_NAME, END, OPERATION, ROWS, LakeTable
from stompring.pipeline.positions import Positions, loaded

#: What Delta calls what is done to a table, and what the commands call it.
_OPERATIONS = {
    "CREATE TABLE": "create",
    "OPTIMIZE": "compact",
    "RESTORE": "restore",
    "SET TBLPROPERTIES": "settings",
    "ADD COLUMN": "migration",
    "VACUUM START": "vacuum",
    "VACUUM END": "vacuum",
}


class NoVersion(ValueError):
    """A lake was never as it is asked for, or is not any more."""


class Commit(NamedTuple):
    """A version of a table. ``time`` is in epoch ms; of an ingest: its batch, broker and rows, where it tells them."""

    table: str
    version: int
    time: int
    operation: str
    batch: int | None = None
    broker: str | None = None
    rows: int | None = None
    restored: int | None = None  # the version that a restore brought back
    end: Positions | None = None  # how far the data directory was ingested then


def commits(table: LakeTable) -> dict[int, Commit]:
    """All versions that the table's log still has, by their numbers, the oldest first."""
    found = [_commit(table.name, entry) for entry in table.open().history()]
    return {one.version: one for one in sorted(found, key=lambda one: one.version)}


def _commit(table: str, entry: Mapping[str, Any]) -> Commit:
    operation = str(entry.get("operation", ""))
    told = entry.get(OPERATION) or (
        "ingest" if BATCH in entry else _OPERATIONS.get(operation, operation.lower())
    )
    commit = Commit(table, int(entry["version"]), int(entry["timestamp"]), told)
    if operation == "RESTORE":
        return commit._replace(restored=int(entry["operationParameters"]["version"]))
    if BATCH not in entry:
        return commit
    rows, end = entry.get(ROWS), entry.get(END)
    return commit._replace(
        batch=int(entry[BATCH]),
        broker=entry.get(BROKER_NAME, MAIN),
        rows=None if rows is None else int(rows),
        end=None if end is None else loaded(json.loads(end)),
    )


def moment(time: int) -> str:
    """Epoch ms as ISO 8601."""
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def versions_at(
    tables: Mapping[str, LakeTable], version: int | None, time: int | None
) -> dict[str, int] | None:
    """The versions of all tables that belong to a version of ``messages``, or to the last one at a time (epoch ms).

    None where neither is given. Raises `NoVersion`.
    """
    if version is None and time is None:
        return None
    known = {name: commits(table) for name, table in tables.items()}
    messages = known["messages"]
    if version is None:
        assert time is not None
        version = max((one.version for one in messages.values() if one.time <= time), default=None)
        if version is None:
            first = min(messages.values())
            raise NoVersion(
                f"there was no lake at {moment(time)}: its history begins at {moment(first.time)}"
            )
    if version not in messages:
        raise NoVersion(f"there is no version {version}: there are {min(messages)} to {max(messages)}")
    found = {name: _beside(each, messages[version]) for name, each in known.items() if name != "messages"}
    versions = {"messages": version, **found}
    for name, each in versions.items():
        if tables[name].lacks_files(each):
            raise NoVersion(f"version {each} of {name} needs files that 'lake vacuum' has deleted")
    return versions


def _beside(known: Mapping[int, Commit], one: Commit) -> int:
    """The version of another table when ``messages`` became as it was: the same batches are in both."""
    found = max((each.version for each in known.values() if each.time <= one.time), default=min(known))
    while (following := known.get(found + 1)) is not None and (following.broker, following.batch) == (
        one.broker,
        one.batch,
    ):  # lakes of version 1 had messages first
        if one.batch is None:
            break
        found += 1
    return found


def ends_at(messages: LakeTable, version: int) -> dict[str, Commit]:
    """The last batch of each broker that a version of ``messages`` has. Raises `NoVersion` for too short a log."""
    known = commits(messages)
    found: dict[str, Commit] = {}
    while version > 0:
        one = known.get(version)
        if one is None:
            raise NoVersion(
                f"the log of {messages.folder} does not go back to where version {version} was made"
            )
        if one.restored is not None:
            version = one.restored
            continue
        if one.batch is not None and one.broker is not None:
            found.setdefault(one.broker, one)
        version -= 1
    return found
