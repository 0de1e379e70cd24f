"""The bytes of a file of the journal as record batches of facts: what became of messages in their queues."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import arrow_schema, milliseconds, named, numbers, texts, times
from stompring.pipeline.options import Wanted
from stompring.pipeline.records import Records
from stompring.pipeline.schema import EVENTS, INT
from stompring.store.record import (
    ADDRESS,
    DELIVERED,
    PAGE_SETTLED,
    PAGE_STATE,
    QUEUE,
    SETTLED,
    STATE,
    Kind,
    unpack_numbers,
    unpack_runs,
)

#: By the ``reason`` of SETTLED and PAGE_SETTLED; then what DELIVERED and the two STATEs tell.
NAMES = ("acknowledged", "expired", "killed", "replaced", "delivered", "returned")
OF_DELIVERED, OF_STATE = 4, 5
UNKNOWN = len(NAMES)

#: Rows of a batch, and of one piece of a fact that tells of more.
ROWS = 1 << 16

LEAST: dict[Kind, Struct] = {
    Kind.SETTLED: SETTLED,
    Kind.PAGE_SETTLED: PAGE_SETTLED,
    Kind.STATE: STATE,
    Kind.PAGE_STATE: PAGE_STATE,
    Kind.DELIVERED: DELIVERED,
}


class Row(NamedTuple):
    """One event; what it does not tell is -1."""

    event: int
    queue: int
    time: int = -1
    address: int = -1
    message_id: int = -1
    page: int = -1
    place: int = -1  # in the page
    deliveries: int = -1
    due: int = -1


def event_batches(records: Records, wanted: Wanted) -> Iterator[Any]:
    """Record batches with the columns that are wanted, of the events that are."""
    schema = arrow_schema("events", wanted.columns)
    names = records.names[ADDRESS]
    addresses = {number for number, name in names.items() if wanted.matches(name)}
    timed = wanted.since is not None or wanted.until is not None
    rows: list[Row] = []
    for row in _events(records):
        if wanted.addresses and row.address not in addresses:
            continue
        if timed and (row.time < 0 or not wanted.within(row.time, row.time)):
            continue
        rows.append(row)
        if len(rows) == ROWS:
            yield _batch(rows, records, wanted, schema)
            rows = []
    if rows:
        yield _batch(rows, records, wanted, schema)


def _events(records: Records) -> Iterator[Row]:
    places = []
    for kind, layout in LEAST.items():
        begins, ends = records.of(kind, layout.size)
        places += [(*place, kind) for place in zip(begins.tolist(), ends.tolist(), strict=True)]
    for begin, end, kind in sorted(places):
        yield from _rows(kind, records.data[begin:end])


def _rows(kind: Kind, payload: bytes) -> Iterator[Row]:
    """The rows of one fact. Of a message in a page what is known is its page, and its place there."""
    rest = payload[LEAST[kind].size :]
    fields: tuple[int, ...] = LEAST[kind].unpack_from(payload)
    if kind == Kind.SETTLED:
        _, reason, _, queue, time = fields
        for number in unpack_numbers(rest):
            yield Row(min(reason, UNKNOWN), queue, time, message_id=number)
    elif kind == Kind.DELIVERED:
        for number in unpack_numbers(rest):
            yield Row(OF_DELIVERED, fields[3], message_id=number)
    elif kind == Kind.STATE:
        _, _, _, queue, number, deliveries, _, due = fields
        yield Row(OF_STATE, queue, message_id=number, deliveries=deliveries, due=due or -1)
    elif kind == Kind.PAGE_STATE:
        _, _, _, address, queue, page, index, deliveries, _, due = fields
        yield Row(OF_STATE, queue, -1, address, -1, page, index, deliveries, due or -1)
    else:
        _, reason, _, address, queue, page, time = fields
        for first, count in unpack_runs(rest[: len(rest) & -8]):
            for index in range(first, first + count):
                yield Row(min(reason, UNKNOWN), queue, time, address, page=page, place=index)


def _batch(rows: list[Row], records: Records, wanted: Wanted, schema: Any) -> Any:
    made = [_column(name, rows, records) for name in wanted.columns]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _column(name: str, rows: list[Row], records: Records) -> Any:
    field = "place" if name == "index" else name
    values = np.array([min(getattr(row, field), 2**63 - 1) for row in rows], np.int64)
    if name == "event":
        return texts([NAMES[value].encode() if value < UNKNOWN else None for value in values.tolist()])
    if name in ("address", "queue"):
        return named(values, records.names[ADDRESS if name == "address" else QUEUE])
    if name in ("time", "due"):
        return times(milliseconds(np.maximum(values, 0)), values >= 0)
    return numbers(values, EVENTS[name], values >= 0) if EVENTS[name] != INT else _small(values)


def _small(values: Any) -> Any:
    return numbers(np.minimum(values, 2**31 - 1), INT, values >= 0)
