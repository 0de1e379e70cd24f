"""The data files of a Delta table: where they lie, and what a commit says of them. It needs no Delta library."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

#: Partition columns, behind the others.
DATE, BUCKET = "date", "bucket"

#: Which broker a row is of: behind the columns of the data directory, before the partition columns.
BROKER = "broker"

#: Which column says when.
TIME = {"messages": "timestamp", "events": "time", "samples": "time"}


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
