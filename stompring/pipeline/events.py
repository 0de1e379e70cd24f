"""Record batches of the events in a file: how messages entered, moved through and left their queues.

All records of one kind become arrays of numbers together. Then the rows of all kinds are sorted by the position of
their records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.errors import ProtocolError
from stompring.stomp.frames import unescape
from stompring.store.record import (
    ADDRESS,
    CONSUMER,
    COPY,
    DEAD_LETTER,
    EXPIRED,
    QUEUE,
    RUN,
    TRANSFERRED,
    WENT_OUT,
    Cause,
    Kind,
)

from .arrays import (
    INT,
    LONG,
    Batches,
    Grouping,
    arrow_schema,
    by_group,
    distinct,
    integers,
    layout,
    milliseconds,
    names_of,
    numbered,
    rows_at,
    strings,
    timestamps,
)
from .messages import TERMINATOR, Messages, wanted_rows
from .options import LAST_NUMBER, TableScan
from .records import Names, Records

#: Names of events, indexed by the event codes of this module. The first four codes equal those of the field ``reason``
#: in SETTLED and PAGE_SETTLED records.
EVENT_NAMES = (
    *("acknowledged", "expired", "killed", "replaced"),
    *("delivered", "redelivered", "scheduled", "added", "moved", "dead-lettered"),
)
ACKNOWLEDGED = 0
DELIVERY, REDELIVERED, SCHEDULED, ADDED, MOVED, DEAD_LETTERED = range(4, len(EVENT_NAMES))

#: Maximum number of rows in a batch.
ROWS = 1 << 16

#: Rows as columns: an array of numbers for each name in `_FIELDS`.
Rows = dict[str, Any]

#: Returns the messages of a page (`messages.PageMessages`) by its number, None if the page cannot be read.
PageResolver = Callable[[int], Any]

_FIELDS = (
    "at",
    "event",
    "queue",
    "time",
    "address",
    "message_id",
    "page",
    "index",
    "deliveries",
    "due",
    "consumer",
)

_NUMBER, _RUN = np.dtype("<u8"), layout(RUN, "first", "count")

#: Encoded names of the headers that a message at a dead-letter or expiry address has about its origin.
_ORIGIN = b"\n_AMQ_ORIG_MESSAGE_ID:"
_ORIGIN_QUEUE, _ORIGIN_ADDRESS = b"\n_AMQ_ORIG_QUEUE:", b"\n_AMQ_ORIG_ADDRESS:"
_DIGITS = re.compile(r"[0-9]{1,18}")


def event_batches(
    records: Records, wanted: TableScan, group: Grouping, resolve: PageResolver | None
) -> Batches:
    """Yield record batches of the wanted events and columns, each preceded by the number of its group.

    A batch has events of one group in the order of their records. Rows are selected by group before their columns are
    built: numbers are cheaper to select than texts. ``resolve`` returns the messages of a page, for events that name a
    message only by its index in a page.
    """
    names = {what: dict(records.names[what]) for what in (ADDRESS, QUEUE, CONSUMER)}
    messages = Messages(records)
    parts = [  # the sort by position keeps this order for the events of one record
        *_added(messages),
        *_origins(messages, names),
        *_settled(records, Kind.DELIVERED),
        *_states(records, Kind.STATE),
        *_states(records, Kind.PAGE_STATE),
        *_settled(records, Kind.SETTLED),
        *_page_settled(records),
    ]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in _FIELDS}
    order = np.argsort(rows["at"], kind="stable")
    rows = {name: values[order] for name, values in rows.items()}
    _fill_addresses(rows, records)
    keep = wanted_rows(wanted, rows["time"], rows["address"], names[ADDRESS])
    if not keep.all():
        rows = {name: values[keep] for name, values in rows.items()}
    if resolve is not None:
        rows = _resolve_messages(rows, resolve)
    schema = arrow_schema("events", wanted.columns)
    for number, which in by_group(group(rows["time"], rows["address"], names[ADDRESS])):
        columns = [rows[name] if which.all() else rows[name][which] for name in wanted.columns]
        for low in range(0, len(columns[0]), ROWS):
            made = [
                _column(name, values[low : low + ROWS], names)
                for name, values in zip(wanted.columns, columns, strict=True)
            ]
            yield number, pa.RecordBatch.from_arrays(made, schema=schema)


def event_times(records: Records) -> list[tuple[Any, Any]]:
    """Return positions and times (epoch ms) of the records with events, except for MESSAGE and DELIVERED."""
    parts = chain(
        _settled(records, Kind.SETTLED),
        _states(records, Kind.STATE),
        _page_settled(records),
        _states(records, Kind.PAGE_STATE),
    )
    found = [(rows["at"], rows["time"]) for rows in parts]
    messages = Messages(records)
    if messages.outcomes is not None:  # messages that were acknowledged when they were enqueued
        at_once = messages.outcomes["taken"] > 0
        begins = messages.begins[messages.rows()[at_once]]
        found.append((begins, milliseconds(messages.outcomes["time"][at_once])))
    return found


# ---- the rows of each kind


def _rows_of_kind(**given: Any) -> Rows:
    """Return rows with the given columns. The other columns are -1, for an unknown value."""
    count = len(given["at"])
    return {name: np.broadcast_to(np.asarray(given.get(name, -1), np.int64), count) for name in _FIELDS}


def _settled(records: Records, kind: Kind) -> Iterator[Rows]:
    """Yield the events of SETTLED or DELIVERED records. These records list message numbers."""
    begins, numbers, fixed = _items(records, kind, _NUMBER)
    rows = {**_fields(begins, fixed), "message_id": _signed(numbers)}
    if kind is Kind.DELIVERED:
        yield _rows_of_kind(event=DELIVERY, **rows)
    else:
        yield _settled_rows(fixed["reason"], fixed, rows)


def _states(records: Records, kind: Kind) -> Iterator[Rows]:
    """Yield the events of STATE or PAGE_STATE records, in the order in which the events of one record occurred."""
    begins, _, fixed = records.structs(kind)
    common = _fields(begins, fixed)
    counts = {"deliveries": fixed["deliveries"]}
    due, cause = _due(fixed["due"]), fixed["cause"]
    yield _event_rows(cause == Cause.ADDED, event=ADDED, **common)
    yield _event_rows(np.repeat(np.arange(len(begins)), fixed["delivered"]), event=DELIVERY, **common)
    waits = (cause == Cause.SCHEDULED) | ((cause == Cause.RETURNED) & (due >= 0))
    yield _event_rows(cause == Cause.RETURNED, event=REDELIVERED, **common, **counts)
    yield _event_rows(waits, event=SCHEDULED, due=due, **common, **counts)


def _settled_rows(reason: Any, fixed: Any, rows: Rows) -> Rows:
    """Return ``rows`` with the event for each ``reason``, and with the consumer from the fixed parts of the records."""
    return _rows_of_kind(event=np.minimum(reason, len(EVENT_NAMES)), consumer=fixed["consumer"], **rows)


def _event_rows(selected: Any, *, event: int, **given: Any) -> Rows:
    """Return rows with ``event``, and in each given column the values at ``selected`` (a mask or indices)."""
    return _rows_of_kind(event=event, **{name: values[selected] for name, values in given.items()})


def _page_settled(records: Records) -> Iterator[Rows]:
    begins, runs, fixed = _items(records, Kind.PAGE_SETTLED, _RUN)
    counts = runs["count"].astype(np.int64)
    if counts.sum() > len(records.data) * 64:
        # more messages than the file can have: report all these records as faults
        records.only(np.zeros(len(begins), bool), begins)
        return
    run, within = numbered(counts)
    fixed = rows_at(fixed, run)
    rows = {**_fields(begins[run], fixed), "index": runs["first"].astype(np.int64)[run] + within}
    reason = fixed["reason"]
    yield _event_rows(reason & WENT_OUT > 0, event=DELIVERY, **rows)
    yield _settled_rows(reason & ~np.uint8(WENT_OUT), fixed, rows)


def _added(messages: Messages) -> Iterator[Rows]:
    """Yield the events in records of messages that entered queues. A copy written by compaction has no events."""
    selected = messages.only(messages.fixed["flags"] & COPY == 0)
    fixed, which = selected.fixed, selected.rows()
    due = np.where(fixed["due"] > fixed["timestamp"], _due(fixed["due"]), -1)[which]
    common = {
        "at": selected.begins[which],
        "queue": selected.queues,
        "time": milliseconds(fixed["timestamp"])[which],
        "address": fixed["address"][which],
        "message_id": _signed(fixed["number"])[which],
    }
    yield _rows_of_kind(event=ADDED, **common)
    yield _event_rows(due >= 0, event=SCHEDULED, due=due, **common)
    out = np.where(fixed["kind"] == int(Kind.MESSAGE), fixed["deliveries"], 0)[which]
    yield _event_rows(np.repeat(np.arange(len(which)), out), event=DELIVERY, **common)
    if selected.outcomes is not None:
        outcomes = selected.outcomes
        common |= {"time": milliseconds(outcomes["time"])}
        taken = outcomes["taken"] > 0
        yield _event_rows(taken, event=DELIVERY, **common)
        yield _event_rows(taken, event=ACKNOWLEDGED, consumer=outcomes["consumer"], **common)


def _origins(messages: Messages, names: Names) -> Iterator[Rows]:
    """Yield an event in the original queue for each message that was moved to a dead-letter or expiry address.

    The headers of the moved message name the original queue and address. Adds these names to ``names``, under negative
    numbers if the file has no numbers for them.
    """
    data, rows, at = messages.records.data, [], 0
    known = {text: number for number, text in names[QUEUE].items()}
    addresses = {text: number for number, text in names[ADDRESS].items()}
    while (at := data.find(_ORIGIN, at)) >= 0:
        index = int(np.searchsorted(messages.begins, at, side="right")) - 1
        found = at
        at += len(_ORIGIN)
        if index < 0 or found >= messages.ends[index]:
            continue
        fixed = messages.fixed[index]
        transfer = int(fixed["flags"]) & (COPY | TRANSFERRED)
        if transfer not in (DEAD_LETTER, EXPIRED):
            continue  # the message was copied by compaction, or a sender or a policy has set the header
        stop = int(messages.ends[index]) - TERMINATOR - int(fixed["body"])
        start = stop - int(fixed["head"])  # the line feed before the first header line
        if not start <= found < stop:
            continue  # the text is in the body, not in a header
        lines = data[start:stop]
        queue, origin, address = (
            _header_value(lines, name) for name in (_ORIGIN_QUEUE, _ORIGIN, _ORIGIN_ADDRESS)
        )
        if queue is None or origin is None or not _DIGITS.fullmatch(origin):
            continue
        event = MOVED if transfer == EXPIRED else DEAD_LETTERED
        number = known.setdefault(queue, -2 - len(known))  # negative: the file has no number for the name
        home = -1 if address is None else addresses.setdefault(address, -2 - len(addresses))
        names[QUEUE][number] = queue
        names[ADDRESS][home] = address or ""
        rows.append((messages.begins[index], event, number, int(fixed["timestamp"]), home, int(origin)))
    names[ADDRESS].pop(-1, None)
    if rows:
        fields = ("at", "event", "queue", "time", "address", "message_id")
        yield _rows_of_kind(**dict(zip(fields, np.array(rows, np.int64).T, strict=True)))


def _header_value(lines: bytes, name: bytes) -> str | None:
    at = lines.find(name)
    if at < 0:
        return None
    value = lines[at + len(name) : lines.index(b"\n", at + len(name))]
    try:
        return unescape(value).decode("utf-8", "replace")
    except ProtocolError:
        return None  # an invalid escape: the broker has not written this header


def _items(records: Records, kind: Kind, item: Any) -> tuple[Any, Any, Any]:
    """Return the items that follow the fixed part of the records of a kind, as three columns: the beginning of the
    item's record, the item, and the fixed part of its record."""
    begins, ends, fixed = records.structs(kind)
    at = begins + fixed.itemsize
    which, items = records.items(at, (ends - at) // item.itemsize, item)
    return begins[which], items, rows_at(fixed, which)


def _fields(begins: Any, fixed: Any) -> Rows:
    """Return the columns in the fixed part of records."""
    names = {name: name for name in ("queue", "address", "page", "index")} | {"message_id": "number"}
    same = {name: _signed(fixed[own]) for name, own in names.items() if own in fixed.dtype.names}
    return {"at": begins, "time": milliseconds(fixed["time"]), **same}


def _signed(values: Any) -> Any:
    return np.minimum(values, np.uint64(LAST_NUMBER)).astype(np.int64)


def _due(values: Any) -> Any:
    return np.where(values > 0, milliseconds(values), -1)


# ---- values that are not in the records of the rows


def _fill_addresses(rows: Rows, records: Records) -> None:
    """Set the address of rows whose record has only the queue."""
    missing = rows["address"] == -1
    if not missing.any():
        return
    unique, which = distinct(rows["queue"][missing])
    known = np.array([records.queue_addresses.get(number, -1) for number in unique.tolist()], np.int64)
    rows["address"] = rows["address"].copy()
    rows["address"][missing] = known[which]


def _resolve_messages(rows: Rows, resolve: PageResolver) -> Rows:
    """Return the rows, with message numbers also in those that had only a page and an index.

    A record with a range of indices includes messages that are not retained. Rows of these messages are dropped.
    """
    unknown = (rows["message_id"] < 0) & (rows["page"] >= 0)
    found, keep = rows["message_id"].copy(), np.ones(len(unknown), bool)
    for page in np.unique(rows["page"][unknown]).tolist():
        there = resolve(page)
        if there is None:
            continue
        here = np.flatnonzero(unknown & (rows["page"] == page) & (rows["index"] < len(there.numbers)))
        positions = rows["index"][here]
        found[here] = there.numbers[positions]
        keep[here] = np.isin(positions << 32 | rows["queue"][here], there.retained)
    rows["message_id"] = found
    return rows if keep.all() else {name: values[keep] for name, values in rows.items()}


def _column(name: str, values: Any, names: Names) -> Any:
    if name == "event":
        every = strings([*map(str.encode, EVENT_NAMES), None])
        return every.take(integers(np.minimum(values, len(EVENT_NAMES)), LONG))
    if name in ("address", "queue", "consumer"):
        return names_of(values, names[{"address": ADDRESS, "queue": QUEUE, "consumer": CONSUMER}[name]])
    if name in ("time", "due"):
        return timestamps(np.maximum(values, 0), values >= 0)
    if name in ("index", "deliveries"):
        return integers(np.minimum(values, 2**31 - 1), INT, values >= 0)
    return integers(values, LONG, values >= 0)
