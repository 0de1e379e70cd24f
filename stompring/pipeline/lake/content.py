"""Whether a data directory is the one that a lake was made of, where no identity was written down: by its messages.

Directories of format 1 had no identity, and lakes of version 1 did not keep it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from stompring.pipeline.backlog import Replaced, newest
from stompring.pipeline.files import DataFiles
from stompring.pipeline.lake.data_file import BROKER
from stompring.pipeline.lake.delta import LakeTable
from stompring.pipeline.options import Wanted
from stompring.pipeline.positions import START, Positions
from stompring.pipeline.reading import table_batches
from stompring.pipeline.records import Records
from stompring.pipeline.schema import ENDINGS

_COLUMNS = ("message_id", "queue", "timestamp")


def check_content(table: LakeTable, broker: str, files: DataFiles, positions: Positions) -> None:
    """Look up messages of the newest file that was ingested wholly and has some.

    ``positions`` are those up to which the lake has the directory. Raises `Replaced` where the lake has others.
    """
    endings = frozenset().union(*ENDINGS.values())
    newest(files, endings, positions)  # it goes as far as that
    behind = [
        one
        for one in files.every(ENDINGS["messages"])
        if one.number < positions.get(one.folder, START).number
    ]
    for one in sorted(behind, key=lambda one: (one.folder == "journal", one.number), reverse=True):
        found = _messages(files, one.name)
        if not found:
            continue
        known = _known(table, broker, min(each[0] for each in found), max(each[0] for each in found))
        if not found <= known:
            raise Replaced(
                f"{files.root}/{one.name} has {len(found - known):,} messages that the broker {broker!r} has not in "
                f"{table.folder}, where that file was ingested: the data directory is another one, or was begun anew. "
                "To have both in this lake, ingest it under a name of its own: --as NAME"
            )
        return


def _messages(files: DataFiles, name: str) -> set[tuple[Any, ...]]:
    data = files.read(name)
    if data is None:
        return set()
    wanted = Wanted(columns=_COLUMNS, copies=False)
    batches = list(table_batches(Records(data), wanted))
    return set() if not batches else _rows(pa.Table.from_batches(batches))


def _known(table: LakeTable, broker: str, least: int, most: int) -> set[tuple[Any, ...]]:
    number = ds.field("message_id")
    chosen = (ds.field(BROKER) == broker) & (number >= least) & (number <= most)
    return _rows(table.open().to_pyarrow_dataset().to_table(list(_COLUMNS), filter=chosen))


def _rows(messages: Any) -> set[tuple[Any, ...]]:
    return set(zip(*(messages.column(name).to_pylist() for name in _COLUMNS), strict=True))
