"""Messages of a file of the journal or of a page as record batches: a row for each message and queue.

The fields of fixed size at the beginning of all message records are gathered at once, and so is where their parts of
other sizes are; a batch is then made of slices of the file's own bytes. RETAINED records have many messages each, by
columns. The layout is that of docs/store-format.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.store.record import (
    ADDRESS,
    COPY,
    DURABLE,
    MESSAGE,
    QUEUE,
    RETAIN,
    RETAINED_COLUMNS,
    RETAINED_ENTRIES,
    RETAINED_EVERYWHERE,
    RETAINED_NOWHERE,
    RETAINED_TRAITS,
    TRAITS,
    Kind,
)

from .arrays import (
    INT,
    LONG,
    arrow_schema,
    as_strings,
    booleans,
    by_group,
    header_maps,
    integers,
    layout,
    milliseconds,
    names_of,
    numbered,
    slices,
    timestamps,
)
from .options import TableScan
from .records import Records

_HEAD = layout(
    kind="u1",
    zero="u1",
    zeros="<u2",
    count="<u4",
    traits_count="<u4",
    entries_count="<u4",
    time="<u8",
    traits_length="<u4",
)
_TRAITS = layout(address="<u4", length="<u4", flags="u1", priority="u1")  # then as in MESSAGE
_ENTRIES = layout(queue="<u4", outcome="u1", zero="u1", consumer="<u2", places="<u4")

_SIZES = {"Q": 8, "I": 4}

#: Bytes of the columns for one message.
_COLUMNS = sum(_SIZES[code] for _, code in RETAINED_COLUMNS)


@dataclass
class RetainedMessages:
    """The messages of a file's RETAINED records, and a *member* for each queue that one of them entered."""

    columns: dict[str, Any]  # by the names of `RETAINED_COLUMNS`, and of `_TRAITS`
    begins: Any  # of the tails
    ends: Any
    traits: Any  # where the lengths of their traits stand, as in MESSAGE
    members: Any  # how many of each message; those of one message stand together
    queues: Any
    outcomes: Any
    consumers: Any
    times: Any


def retained_messages(records: Records) -> RetainedMessages | None:
    """All of a file; None where there are none. A record in which something cannot be is a fault."""
    begins, ends, heads = records.structs(Kind.RETAINED, _HEAD)
    if not len(begins):
        return None
    counts, fixed = heads["count"].astype(np.int64), begins + _HEAD.itemsize
    traits_at = fixed + _COLUMNS * counts
    entries_at = traits_at + heads["traits_length"]
    whole = (entries_at <= ends) & (counts > 0)
    if not whole.all():
        records.only(whole, begins, ends)
        fixed, ends, heads, counts = fixed[whole], ends[whole], heads[whole], counts[whole]
        traits_at, entries_at = traits_at[whole], entries_at[whole]
        if not len(fixed):
            return None
    first = np.cumsum(counts) - counts  # of each record, among the messages
    of, within = numbered(counts)
    columns, offset = {}, 0
    for name, code in RETAINED_COLUMNS:
        size = _SIZES[code]
        positions = (fixed + offset * counts)[of] + size * within
        columns[name] = records.fields(positions, layout(it=f"<u{size}"))["it"]
        offset += size
    traits = _trait_positions(records, heads, traits_at, entries_at)[of, columns.pop("traits")]
    common = records.fields(traits, _TRAITS)
    for name in ("address", "length", "flags", "priority"):
        columns[name] = common[name]
    tails, entries = _entries(records, heads, entries_at, ends, counts, first)
    order = np.argsort(entries[0], kind="stable")
    messages, queues, outcomes, consumers = (column[order] for column in entries)
    sizes = columns.pop("size").astype(np.int64)
    until = np.cumsum(sizes)
    starts = until - sizes
    starts += (tails - starts[first])[of]
    return RetainedMessages(
        columns,
        starts,
        starts + sizes,
        traits + RETAINED_TRAITS.size + 2,
        np.bincount(messages, minlength=len(of)),
        queues,
        outcomes,
        consumers,
        heads["time"][of][messages],
    )


def _trait_positions(records: Records, heads: Any, traits_at: Any, entries_at: Any) -> Any:
    """Where the traits of each record stand: a row of positions for each of them."""
    most = int(heads["traits_count"].max())
    found = np.repeat(traits_at[:, None], max(most, 1), axis=1)
    for which in np.flatnonzero(heads["traits_count"] > 1).tolist():
        at = int(traits_at[which])
        for index in range(int(heads["traits_count"][which])):
            found[which, index] = at
            _, length = RETAINED_TRAITS.unpack_from(records.data, at)
            at += RETAINED_TRAITS.size + length
    return found


def _entries(
    records: Records, heads: Any, at: Any, ends: Any, counts: Any, first: Any
) -> tuple[Any, list[Any]]:
    """Where the tails of each record begin; and the members of all messages in the order of the records: their
    messages, queues, outcomes and consumers."""
    fixed = records.fields(np.minimum(at, ends - RETAINED_ENTRIES.size), _ENTRIES)
    simple = (heads["entries_count"] == 1) & (fixed["places"] == 0)
    tails = at + RETAINED_ENTRIES.size
    which = np.flatnonzero(simple)
    own = fixed[np.repeat(which, counts[which])]
    columns = [
        [np.flatnonzero(np.repeat(simple, counts))],
        *([own[name].astype(np.int64)] for name in ("queue", "outcome", "consumer")),
    ]
    for record in np.flatnonzero(~simple).tolist():
        position, count = int(at[record]), int(counts[record])
        for _ in range(int(heads["entries_count"][record])):
            queue, outcome, _, consumer, positions = RETAINED_ENTRIES.unpack_from(records.data, position)
            position += RETAINED_ENTRIES.size
            selected = np.arange(count)
            if positions:
                selected = np.frombuffer(records.data, "<u4", positions, position).astype(np.int64)
                position += 4 * positions
            columns[0].append(int(first[record]) + selected)
            for column, value in zip(columns[1:], (queue, outcome, consumer), strict=True):
                column.append(np.full(len(selected), value, np.int64))
        tails[record] = position
    return tails, [np.concatenate(column) for column in columns]


#: The fields of `MESSAGE`.
MESSAGE_FIELDS = layout(
    kind="u1",
    flags="u1",
    priority="u1",
    deliveries="u1",
    address="<u4",
    number="<u8",
    timestamp="<u8",
    expires="<u8",
    due="<u8",
    transaction="<u8",
    head="<u4",
    body="<u4",
    queues="<u4",
    traits="<u4",
)

#: The fields of `TRAITS`.
TRAIT_LENGTHS = np.dtype([(name, "<u4") for name in ("block", "destination", "user", "origin", "group")])

#: Whether a message was taken and acknowledged as it came, by whom, and when that was written.
OUTCOME = layout(taken="u1", consumer="<u2", time="<u8")

#: Behind the body of a message.
TERMINATOR = 2

#: Rows and bytes of records after which the next batch is begun, and how far apart the records of one may be.
ROWS, BYTES, SPAN = 1 << 16, 32 << 20, 1 << 30


def message_batches(records: Records, wanted: TableScan, *, copies: bool | None = None) -> Iterator[Any]:
    """Record batches with the columns that are wanted, of the messages that are.

    ``copies``: only those that the broker has written once more, or only the others.
    """
    yield from _batches(_selected(records, wanted, copies), wanted)


def grouped_batches(
    records: Records, wanted: TableScan, group: Callable[[Messages], Any], *, copies: bool | None = None
) -> Iterator[tuple[int, Any]]:
    """The same, each batch with messages of one group alone, and before it the number that ``group`` gave them.

    Rows are put together by group before anything is made of them, which is cheaper than taking them apart after.
    """
    messages = _selected(records, wanted, copies)
    for number, which in by_group(group(messages)):
        for batch in _batches(messages.only(which), wanted):
            yield number, batch


def _selected(records: Records, wanted: TableScan, copies: bool | None) -> Messages:
    messages = Messages(records)
    times = milliseconds(messages.fixed["timestamp"])
    messages = messages.only(wanted_rows(wanted, times, messages.fixed["address"], records.names[ADDRESS]))
    if copies is None:
        return messages
    selected = (messages.fixed["flags"] & COPY > 0) == copies
    if wanted.below is not None:
        selected &= messages.fixed["number"] < wanted.below
    return messages.only(selected)


def wanted_rows(wanted: TableScan, times: Any, addresses: Any, names: Mapping[int, str]) -> Any:
    """Which rows are wanted, by their times (epoch ms) and the numbers of their addresses."""
    keep = np.ones(len(times), bool)
    if wanted.since is not None:
        keep &= times >= wanted.since
    if wanted.until is not None:
        keep &= times < wanted.until
    if wanted.addresses:
        numbers = [number for number, name in names.items() if wanted.matches(name)]
        keep &= np.isin(addresses, np.array(numbers, addresses.dtype))
    return keep


def _batches(messages: Messages, wanted: TableScan) -> Iterator[Any]:
    rows, queues = messages.rows(), messages.queues
    if not len(rows):
        return
    schema = arrow_schema("messages", wanted.columns)
    for low, high in _batch_bounds(messages.begins[rows], messages.ends[rows]):
        batch = _Batch(messages, rows[low:high], queues[low:high])
        yield pa.RecordBatch.from_arrays(
            [COLUMN_BUILDERS[name](batch) for name in wanted.columns], schema=schema
        )


class Messages:
    """The messages of a file: their prologues, where their parts are, and their queues. Found once for all that asks.

    ``queues`` and ``taken`` have an item for each queue of each message; those of one message stand together. ``taken``
    is None where no message was acknowledged as it came.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        if records.messages is None:
            records.messages = _with_retained(records, *self._found(records))
        self.begins, self.ends, self.fixed, self.traits, self.queues, self.outcomes = records.messages

    @staticmethod
    def _found(records: Records) -> tuple[Any, Any, Any, Any, Any]:
        begins, ends, fixed = records.structs(Kind.MESSAGE, MESSAGE_FIELDS)
        sizes = [fixed[name].astype(np.int64) for name in ("traits", "head", "body")]
        queues = fixed["queues"].astype(np.int64) * 4
        whole = begins + MESSAGE.size + queues + sum(sizes) + TERMINATOR == ends
        whole &= sizes[0] >= TRAITS.size
        traits = begins + MESSAGE.size + queues
        whole[whole] = _parts_fit(records, traits[whole], sizes[0][whole], sizes[1][whole])
        begins, ends = records.only(whole, begins, ends)
        if not whole.all():
            fixed, traits = fixed[whole], traits[whole]
        counts = fixed["queues"].astype(np.int64)
        _, queues = records.items(begins + MESSAGE.size, counts, layout(queue="<u4"))
        return begins, ends, fixed, traits, queues["queue"]

    def only(self, good: Any) -> Messages:
        """Some of them."""
        if good.all():
            return self
        other = copy(self)
        other._leave(good)
        return other

    def _leave(self, good: Any) -> None:
        entries = np.repeat(good, self.fixed["queues"])
        self.queues = self.queues[entries]
        self.outcomes = None if self.outcomes is None else self.outcomes[entries]
        positions = np.flatnonzero(good)
        self.begins, self.ends, self.traits = (
            self.begins[positions],
            self.ends[positions],
            self.traits[positions],
        )
        whole = f"V{MESSAGE_FIELDS.itemsize}"  # numpy copies a prologue whole, or else field by field
        self.fixed = self.fixed.view(whole)[positions].view(MESSAGE_FIELDS)

    def rows(self) -> Any:
        """Of each item of ``queues`` which message it is."""
        return np.repeat(np.arange(len(self.begins)), self.fixed["queues"])

    def head(self, index: int) -> slice:
        """Where the header lines of one of them are, the line feed before the first of them too."""
        stop = int(self.ends[index]) - TERMINATOR - int(self.fixed["body"][index])
        return slice(stop - int(self.fixed["head"][index]), stop)


def _parts_fit(records: Records, traits: Any, sizes: Any, heads: Any) -> Any:
    """Of each message whether its parts are no longer than the traits and the head that they are in."""
    lengths = records.fields(traits, TRAIT_LENGTHS)
    parts = sum(lengths[name].astype(np.int64) for name in ("destination", "user", "origin", "group"))
    return (TRAITS.size + parts <= sizes) & (lengths["block"] < heads)


class PageMessages:
    """The messages of a page by their place: their ``numbers``, and which places which queues retain.

    ``retained`` has ``place << 32 | queue`` for each of these.
    """

    def __init__(self, records: Records) -> None:
        begins, _, fixed = records.structs(Kind.MESSAGE, MESSAGE_FIELDS)
        self.numbers = fixed["number"].astype(np.int64)
        messages = Messages(records)
        positions = np.searchsorted(begins, messages.begins)[messages.rows()]
        self.retained = positions << 32 | messages.queues.astype(np.int64)


def page_messages(records: Records) -> PageMessages | None:
    """Those of a page, None where some cannot be read."""
    return None if records.faults else PageMessages(records)


def _with_retained(
    records: Records, begins: Any, ends: Any, fixed: Any, traits: Any, queues: Any
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Those that are retained, with those of RETAINED records, all in the order in which they stand in the file."""
    entries = _retained_entries(records, fixed, traits, queues)
    if not entries.all():
        counts = np.bincount(np.repeat(np.arange(len(fixed)), fixed["queues"])[entries], minlength=len(fixed))
        some, queues, fixed = counts > 0, queues[entries], fixed.copy()
        fixed["queues"] = counts
        begins, ends, fixed, traits = begins[some], ends[some], fixed[some], traits[some]
    retained = retained_messages(records)
    if retained is None:
        return begins, ends, fixed, traits, queues, None
    more = np.zeros(len(retained.begins), MESSAGE_FIELDS)
    for name, values in retained.columns.items():
        if name in MESSAGE_FIELDS.names:
            more[name] = values
    more["kind"], more["queues"], more["traits"] = (
        Kind.RETAINED,
        retained.members,
        retained.columns["length"] - 2,
    )
    more["body"] = retained.ends - retained.begins - more["head"] - TERMINATOR
    own = np.zeros(len(retained.queues), OUTCOME)
    own["taken"], own["consumer"], own["time"] = retained.outcomes, retained.consumers, retained.times
    of = np.repeat(np.arange(len(more)), retained.members)
    more["deliveries"] = np.bincount(of[own["taken"] == 0], minlength=len(more)) == 0
    order = np.argsort(np.concatenate((begins, retained.begins)), kind="stable")
    counts = np.concatenate((fixed["queues"], more["queues"])).astype(np.int64)
    members = np.argsort(np.repeat(np.argsort(order, kind="stable"), counts), kind="stable")
    return (
        np.concatenate((begins, retained.begins))[order],
        np.concatenate((ends, retained.ends))[order],
        np.concatenate((fixed, more))[order],
        np.concatenate((traits, retained.traits))[order],
        np.concatenate((queues, retained.queues.astype(np.uint32)))[members],
        np.concatenate((np.zeros(len(queues), OUTCOME), own))[members],
    )


def _retained_entries(records: Records, fixed: Any, traits: Any, queues: Any) -> Any:
    """Which of the queues of MESSAGE records have their message retained: durable ones, unless it says otherwise."""
    flags = fixed["flags"]
    good = np.repeat(flags & DURABLE > 0, fixed["queues"])
    if records.non_durable:
        good &= ~np.isin(queues, np.array(records.non_durable, np.uint32))
    if (flags & RETAIN).any():
        lengths = fixed["traits"].astype(np.int64)
        retention = np.where(flags & RETAIN > 0, records.bytes[traits + lengths - 1], 0)
        whose = np.repeat(retention, fixed["queues"])
        good = (good & (whose != RETAINED_NOWHERE)) | (whose == RETAINED_EVERYWHERE)
    return good


class _Batch:
    """Rows of one batch: ``fixed`` has a prologue for each of them, ``pick`` its message among those of the batch."""

    def __init__(self, messages: Messages, rows: Any, queues: Any) -> None:
        first, last = int(rows[0]), int(rows[-1]) + 1
        self.data = messages.records.data
        self.buffer = pa.py_buffer(self.data)
        self.names = messages.records.names
        self.queues = queues
        self.pick = rows - first
        own = messages.fixed[first:last]
        self.fixed = own if len(own) == len(rows) else own[self.pick]  # else some are in several queues
        self._traits = messages.traits[first:last]
        self._records = messages.records
        self.body_ends = messages.ends[first:last] - TERMINATOR
        self.bodies = self.body_ends - own["body"]

    @cached_property
    def lengths(self) -> Any:
        """Of each message the lengths of what only few columns are made of."""
        return self._records.fields(self._traits, TRAIT_LENGTHS)

    def user(self) -> Any:
        """Who sent it, null where nobody logged in."""
        starts = self._traits + TRAITS.size + self.lengths["destination"]
        found = slices(self.buffer, starts, starts + self.lengths["user"], self.pick)
        return as_strings(found, null_if_empty=True)

    def headers(self) -> Any:
        """The headers as the sender gave them."""
        ends = self.bodies - 1  # before the empty line
        return header_maps(self.buffer, ends - self.lengths["block"], ends, self.pick)

    def body(self) -> Any:
        """The body as it was sent."""
        return slices(self.buffer, self.bodies, self.body_ends, self.pick)


COLUMN_BUILDERS: dict[str, Callable[[_Batch], Any]] = {
    "address": lambda batch: names_of(batch.fixed["address"], batch.names[ADDRESS]),
    "queue": lambda batch: names_of(batch.queues, batch.names[QUEUE]),
    "message_id": lambda batch: integers(batch.fixed["number"], LONG),
    "timestamp": lambda batch: timestamps(batch.fixed["timestamp"]),
    "expires": lambda batch: timestamps(batch.fixed["expires"]),
    "due": lambda batch: timestamps(batch.fixed["due"]),
    "priority": lambda batch: integers(batch.fixed["priority"], INT),
    "durable": lambda batch: booleans(batch.fixed["flags"] & DURABLE),
    "deliveries": lambda batch: integers(batch.fixed["deliveries"], INT),
    "headers": _Batch.headers,
    "body": _Batch.body,
    "user": _Batch.user,
}


def _batch_bounds(begins: Any, ends: Any) -> Iterator[tuple[int, int]]:
    """Where batches of rows begin and end."""
    parts = np.cumsum(ends - begins) // BYTES, begins // SPAN, np.arange(len(begins)) // ROWS
    changes = np.zeros(len(begins) - 1, bool)
    for part in parts:
        changes |= np.diff(part) != 0
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(begins)]
    return zip(edges[:-1], edges[1:], strict=True)
