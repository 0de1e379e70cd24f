"""The bytes of a file as record batches of events: what became of messages in their queues.

Each kind of record becomes arrays of numbers, all of its rows at once; then the rows of all kinds are put in the order
in which their records stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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
    TRANSFERRED,
    WENT_OUT,
    Cause,
    Kind,
)

from .arrays import (
    INT,
    LONG,
    arrow_schema,
    by_group,
    distinct,
    integers,
    layout,
    milliseconds,
    names_of,
    numbered,
    strings,
    timestamps,
)
from .messages import Messages, wanted_rows
from .options import TableScan
from .records import Records

#: What can happen, in the order of their codes here; the first four are the ``reason`` of SETTLED and PAGE_SETTLED.
EVENT_NAMES = (
    *("acknowledged", "expired", "killed", "replaced"),
    *("delivered", "redelivered", "scheduled", "added", "moved", "dead-lettered"),
)
ACKNOWLEDGED = 0
DELIVERY, REDELIVERED, SCHEDULED, ADDED, MOVED, DEAD_LETTERED = range(4, len(EVENT_NAMES))

#: Rows of a batch.
ROWS = 1 << 16

#: The messages of a page (`messages.PageMessages`), None where the page is gone.
PageResolver = Callable[[int], Any]

#: From times (epoch ms), numbers of addresses and the names of these to a number for each row.
Grouping = Callable[[Any, Any, dict[int, str]], Any]

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

_SETTLED = layout(kind="u1", reason="u1", consumer="<u2", queue="<u4", time="<u8")
_DELIVERED = layout(head="V4", queue="<u4", time="<u8")
_STATE = layout(
    kind="u1",
    cause="u1",
    delivered="<u2",
    queue="<u4",
    number="<u8",
    deliveries="<u4",
    attempts="<u4",
    due="<u8",
    time="<u8",
)
_PAGE_SETTLED = layout(
    kind="u1", reason="u1", consumer="<u2", address="<u4", queue="<u4", page="<u8", time="<u8"
)
_PAGE_STATE = layout(
    kind="u1",
    cause="u1",
    delivered="<u2",
    address="<u4",
    queue="<u4",
    page="<u8",
    index="<u4",
    deliveries="<u4",
    attempts="<u4",
    due="<u8",
    time="<u8",
)
_NUMBER = layout(number="<u8")
_RUN = layout(first="<u4", count="<u4")

#: What a copy that went elsewhere says of where it comes from, as its headers stand in a file.
_ORIGIN = b"\n_AMQ_ORIG_MESSAGE_ID:"
_ORIGIN_QUEUE, _ORIGIN_ADDRESS = b"\n_AMQ_ORIG_QUEUE:", b"\n_AMQ_ORIG_ADDRESS:"
_DIGITS = re.compile(r"[0-9]{1,18}")


def event_batches(records: Records, wanted: TableScan, resolve: PageResolver | None = None) -> Iterator[Any]:
    """Record batches with the columns that are wanted, of the events that are.

    ``resolve`` gives the messages of a page by their place, for events that tell the place alone.
    """
    rows, names = _rows(records, wanted, resolve)
    yield from _batches(rows, names, wanted)


def grouped_event_batches(
    records: Records, wanted: TableScan, group: Grouping, resolve: PageResolver | None = None
) -> Iterator[tuple[int, Any]]:
    """The same, each batch with events of one group alone, and before it the number that ``group`` gave them.

    Rows are put together by group before columns are made of them: numbers are cheaper to take apart than texts.
    """
    rows, names = _rows(records, wanted, resolve)
    for number, which in by_group(group(rows["time"], rows["address"], names[ADDRESS])):
        some = rows if which.all() else {name: rows[name][which] for name in wanted.columns}
        for batch in _batches(some, names, wanted):
            yield number, batch


def _batches(rows: dict[str, Any], names: dict[int, dict[int, str]], wanted: TableScan) -> Iterator[Any]:
    schema = arrow_schema("events", wanted.columns)
    for low in range(0, max(map(len, rows.values())), ROWS):
        part = {name: values[low : low + ROWS] for name, values in rows.items()}
        made = [_column(name, part, names) for name in wanted.columns]
        yield pa.RecordBatch.from_arrays(made, schema=schema)


def _rows(
    records: Records, wanted: TableScan, resolve: PageResolver | None
) -> tuple[dict[str, Any], dict[int, dict[int, str]]]:
    """The fields of all events that are wanted, in the order in which their records stand, and names of numbers."""
    names = {what: dict(records.names[what]) for what in (ADDRESS, QUEUE, CONSUMER)}
    messages = Messages(records)
    parts = [  # of one record in this order
        *_added(messages),
        *_origins(messages, names),
        *_delivered(records),
        *_states(records),
        *_page_states(records),
        *_settled(records),
        *_page_settled(records),
    ]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in _FIELDS}
    order = np.argsort(rows["at"], kind="stable")
    rows = {name: values[order] for name, values in rows.items()}
    _fill_addresses(rows, records)
    keep = wanted_rows(wanted, rows["time"], rows["address"], names[ADDRESS])
    if not keep.all():
        rows = {name: values[keep] for name, values in rows.items()}
    return (rows if resolve is None else _resolve_messages(rows, resolve)), names


def event_times(records: Records) -> list[tuple[Any, Any]]:
    """Where records begin that say when something happened, and those times; not of messages that came."""
    parts = (*_settled(records), *_states(records), *_page_settled(records), *_page_states(records))
    found = [(part["at"], part["time"]) for part in parts]
    messages = Messages(records)
    if messages.outcomes is not None:  # acknowledged as they came
        at_once = messages.outcomes["taken"] > 0
        begins = messages.begins[messages.rows()]
        found.append((begins[at_once], milliseconds(messages.outcomes["time"][at_once])))
    return found


# ---- the rows of each kind


def _rows_of_kind(count: int, **given: Any) -> dict[str, Any]:
    """Rows; what is not given is -1, not known."""
    return {name: np.broadcast_to(np.asarray(given.get(name, -1), np.int64), count) for name in _FIELDS}


def _of_numbers(records: Records, kind: Kind, fields: Any) -> tuple[Any, dict[str, Any]]:
    """Of records that name messages by their numbers: for each message the fields of the record, and its row."""
    begins, ends, fixed = records.structs(kind, fields)
    which, found = _items(records, begins, ends, fields.itemsize, _NUMBER)
    fixed = fixed[which]
    times = milliseconds(fixed["time"])
    numbers = _signed(found["number"])
    return fixed, {"at": begins[which], "queue": fixed["queue"], "time": times, "message_id": numbers}


def _settled(records: Records) -> Iterator[dict[str, Any]]:
    fixed, rows = _of_numbers(records, Kind.SETTLED, _SETTLED)
    reason = np.minimum(fixed["reason"], len(EVENT_NAMES))
    yield _rows_of_kind(len(fixed), event=reason, consumer=fixed["consumer"], **rows)


def _delivered(records: Records) -> Iterator[dict[str, Any]]:
    fixed, rows = _of_numbers(records, Kind.DELIVERED, _DELIVERED)
    yield _rows_of_kind(len(fixed), event=DELIVERY, **rows)


def _states(records: Records) -> Iterator[dict[str, Any]]:
    begins, _, fixed = records.structs(Kind.STATE, _STATE)
    yield from _state_events(begins, fixed, {"message_id": _signed(fixed["number"])})


def _page_states(records: Records) -> Iterator[dict[str, Any]]:
    begins, _, fixed = records.structs(Kind.PAGE_STATE, _PAGE_STATE)
    index = {"address": fixed["address"], "page": _signed(fixed["page"]), "index": fixed["index"]}
    yield from _state_events(begins, fixed, index)


def _state_events(begins: Any, fixed: Any, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of STATE and PAGE_STATE, in the order in which one record has them."""
    common = {"at": begins, "queue": fixed["queue"], "time": milliseconds(fixed["time"]), **message}
    counts = {"deliveries": fixed["deliveries"]}
    due, cause = _due(fixed["due"]), fixed["cause"]
    yield _event_rows(cause == Cause.ADDED, event=ADDED, **common)
    yield _event_rows(np.repeat(np.arange(len(begins)), fixed["delivered"]), event=DELIVERY, **common)
    waits = (cause == Cause.SCHEDULED) | ((cause == Cause.RETURNED) & (due >= 0))
    yield _event_rows(cause == Cause.RETURNED, event=REDELIVERED, **common, **counts)
    yield _event_rows(waits, event=SCHEDULED, due=due, **common, **counts)


def _event_rows(selected: Any, *, event: int, **given: Any) -> dict[str, Any]:
    """The rows that are chosen, of which everything is given."""
    rows = {name: values[selected] for name, values in given.items()}
    return _rows_of_kind(len(rows["at"]), event=event, **rows)


def _page_settled(records: Records) -> Iterator[dict[str, Any]]:
    begins, ends, fixed = records.structs(Kind.PAGE_SETTLED, _PAGE_SETTLED)
    which, runs = _items(records, begins, ends, _PAGE_SETTLED.itemsize, _RUN)
    counts = runs["count"].astype(np.int64)
    if counts.sum() > len(records.data) * 64:
        records.only(np.zeros(len(begins), bool), begins, ends)  # no page has as many
        return
    run, within = numbered(counts)
    which = which[run]
    fixed = fixed[which]
    rows = {
        "at": begins[which],
        "queue": fixed["queue"],
        "time": milliseconds(fixed["time"]),
        "address": fixed["address"],
        "page": _signed(fixed["page"]),
        "index": runs["first"].astype(np.int64)[run] + within,
    }
    reason = fixed["reason"]
    yield _event_rows(reason & WENT_OUT > 0, event=DELIVERY, **rows)
    reason = np.minimum(reason & ~np.uint8(WENT_OUT), len(EVENT_NAMES))
    yield _rows_of_kind(len(fixed), event=reason, consumer=fixed["consumer"], **rows)


def _added(messages: Messages) -> Iterator[dict[str, Any]]:
    """Messages that entered queues; not those that the broker has written once more."""
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
    yield _rows_of_kind(len(which), event=ADDED, **common)
    yield _event_rows(due >= 0, event=SCHEDULED, due=due, **common)
    out = np.where(fixed["kind"] == int(Kind.MESSAGE), fixed["deliveries"], 0)[which]
    yield _event_rows(np.repeat(np.arange(len(which)), out), event=DELIVERY, **common)
    if selected.outcomes is not None:
        outcomes = selected.outcomes
        common |= {"time": milliseconds(outcomes["time"])}
        yield _event_rows(outcomes["taken"] > 0, event=DELIVERY, **common)
        yield _event_rows(outcomes["taken"] > 0, event=ACKNOWLEDGED, consumer=outcomes["consumer"], **common)


def _origins(messages: Messages, names: dict[int, dict[int, str]]) -> Iterator[dict[str, Any]]:
    """What went to a dead-letter or expiry address: told by the copy's headers, of the queue that it came from."""
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
        traits = int(fixed["flags"])
        if traits & COPY:
            continue
        transfer = traits & TRANSFERRED
        if transfer not in (DEAD_LETTER, EXPIRED):
            continue  # a sender or a policy says so
        head = messages.head(index)
        if not head.start <= found < head.stop:
            continue  # the body of a message may say anything
        lines = data[head.start : head.stop]
        queue, origin = _header_value(lines, _ORIGIN_QUEUE), _header_value(lines, _ORIGIN)
        if queue is None or origin is None or not _DIGITS.fullmatch(origin):
            continue
        address = _header_value(lines, _ORIGIN_ADDRESS)
        event = MOVED if transfer == EXPIRED else DEAD_LETTERED
        number = known.setdefault(queue, -2 - len(known))  # a name that the file has no number for
        home = -1 if address is None else addresses.setdefault(address, -2 - len(addresses))
        names[QUEUE][number] = queue
        names[ADDRESS][home] = address or ""
        rows.append((messages.begins[index], event, number, int(fixed["timestamp"]), home, int(origin)))
    names[ADDRESS].pop(-1, None)
    if rows:
        positions = np.array(rows, np.int64).T
        fields = ("at", "event", "queue", "time", "address", "message_id")
        yield _rows_of_kind(len(rows), **dict(zip(fields, positions, strict=True)))


def _header_value(lines: bytes, name: bytes) -> str | None:
    at = lines.find(name)
    if at < 0:
        return None
    value = lines[at + len(name) : lines.index(b"\n", at + len(name))]
    try:
        return unescape(value).decode("utf-8", "replace")
    except ProtocolError:
        return None  # no broker writes that


def _items(records: Records, begins: Any, ends: Any, fixed: int, item: Any) -> tuple[Any, Any]:
    """Items of one size behind the fixed part of records: of which record each is, and the items."""
    return records.items(begins + fixed, (ends - begins - fixed) // item.itemsize, item)


def _signed(values: Any) -> Any:
    return np.minimum(values, 2**63 - 1).astype(np.int64)


def _due(values: Any) -> Any:
    return np.where(values > 0, milliseconds(values), -1)


# ---- what rows do not tell themselves


def _fill_addresses(rows: dict[str, Any], records: Records) -> None:
    """The address of a queue, where the record names the queue alone."""
    missing = rows["address"] == -1
    if not missing.any():
        return
    unique, which = distinct(rows["queue"][missing])
    known = np.array([records.queue_addresses.get(number, -1) for number in unique.tolist()], np.int64)
    rows["address"] = rows["address"].copy()
    rows["address"][missing] = known[which]


def _resolve_messages(rows: dict[str, Any], resolve: PageResolver) -> dict[str, Any]:
    """The rows with the numbers of messages that are known by their page and their place there.

    What a record tells of a run of places is about all messages there: those that are not retained are left out.
    """
    unknown = (rows["message_id"] < 0) & (rows["page"] >= 0)
    if not unknown.any():
        return rows
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


def _column(name: str, rows: dict[str, Any], names: dict[int, dict[int, str]]) -> Any:
    values = rows[name]
    if name == "event":
        every = strings([text.encode() for text in EVENT_NAMES] + [None])
        return every.take(integers(np.minimum(values, len(EVENT_NAMES)), LONG))
    if name in ("address", "queue", "consumer"):
        return names_of(values, names[{"address": ADDRESS, "queue": QUEUE, "consumer": CONSUMER}[name]])
    if name in ("time", "due"):
        return timestamps(np.maximum(values, 0), values >= 0)
    if name in ("index", "deliveries"):
        return integers(np.minimum(values, 2**31 - 1), INT, values >= 0)
    return integers(values, LONG, values >= 0)
