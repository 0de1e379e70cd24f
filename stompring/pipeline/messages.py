"""Record batches of the messages in a journal segment or a page: a row for each message and queue.

numpy reads the fixed fields of all message records in one operation, and computes the positions of the parts with
variable sizes. The values of a batch are copied from the bytes of the file. A RETAINED record contains many messages,
in columns. docs/dev/store-format.md describes the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cached_property
from struct import Struct
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
    RETAINED,
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
    U4,
    Batches,
    Grouping,
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
    one_group,
    rows_at,
    slices,
    timestamps,
)
from .options import TableScan
from .records import FIELDS, Records

# The first fields of each set of traits in a RETAINED record. The other traits follow, encoded as in MESSAGE.
_TRAITS = layout(Struct("<IIBB"), "address", "length", "flags", "priority")
_ENTRIES = layout(RETAINED_ENTRIES, "queue", "outcome", "zero", "consumer", "places")

#: The types of the columns of RETAINED, by their names.
_COLUMNS = {name: np.dtype(f"<{code}") for name, code in RETAINED_COLUMNS}


def _retained_messages(records: Records) -> tuple[Any, Any, Any, Any, Any, Any] | None:
    """Return the columns of `Messages` from RETAINED records, None if there are none. An invalid record is a fault."""
    begins, ends, heads = records.structs(Kind.RETAINED)
    counts, fixed = heads["count"].astype(np.int64), begins + RETAINED.size
    traits_at = fixed + sum(type_.itemsize for type_ in _COLUMNS.values()) * counts
    entries_at = traits_at + heads["traits_length"]
    begins, ends, heads, counts, fixed, traits_at, entries_at = records.only(
        (entries_at <= ends) & (counts > 0), begins, ends, heads, counts, fixed, traits_at, entries_at
    )
    if not len(begins):
        return None
    first = np.cumsum(counts) - counts  # index of the first message of each record
    of, within = numbered(counts)
    columns, offset = {}, 0
    for name, type_ in _COLUMNS.items():
        columns[name] = records.fields((fixed + offset * counts)[of] + type_.itemsize * within, type_)
        offset += type_.itemsize
    traits = _trait_positions(records, heads, traits_at, entries_at)[of, columns["traits"]]
    common = records.fields(traits, _TRAITS)
    tails, messages, entries = _entries(records, heads, entries_at, ends, counts, first)
    sizes = columns["size"].astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    starts += (tails - starts[first])[of]
    own = np.zeros(len(messages), OUTCOME)
    own["taken"], own["consumer"] = entries["outcome"], entries["consumer"]
    own["time"] = heads["time"][of][messages]
    found = np.zeros(len(of), FIELDS[Kind.MESSAGE])
    for name in ("number", "timestamp", "expires", "head"):
        found[name] = columns[name]
    for name in ("address", "flags", "priority"):
        found[name] = common[name]
    found["kind"], found["traits"] = Kind.RETAINED, common["length"] - 2
    found["queues"] = np.bincount(messages, minlength=len(of))
    found["body"] = sizes - found["head"] - TERMINATOR
    found["deliveries"] = np.bincount(messages[own["taken"] == 0], minlength=len(of)) == 0
    return starts, starts + sizes, found, traits + RETAINED_TRAITS.size + 2, entries["queue"], own


def _trait_positions(records: Records, heads: Any, traits_at: Any, entries_at: Any) -> Any:
    """Return a row for each record, with the positions of its traits. Unused columns repeat the first position."""
    found = np.repeat(traits_at[:, None], max(int(heads["traits_count"].max()), 1), axis=1)
    for which in np.flatnonzero(heads["traits_count"] > 1).tolist():
        at = int(traits_at[which])
        for index in range(int(heads["traits_count"][which])):
            found[which, index] = at
            _, length = RETAINED_TRAITS.unpack_from(records.data, at)
            at += RETAINED_TRAITS.size + length
    return found


def _entries(
    records: Records, heads: Any, at: Any, ends: Any, counts: Any, first: Any
) -> tuple[Any, Any, Any]:
    """Return three columns. The first has, for each record, the position of the contents of its messages. The others
    have an item for each queue of each message, ordered by message: the index of the message, and the fields
    `_ENTRIES`."""
    fixed = records.fields(np.minimum(at, ends - RETAINED_ENTRIES.size), _ENTRIES)
    simple = (heads["entries_count"] == 1) & (fixed["places"] == 0)
    tails, which = at + RETAINED_ENTRIES.size, np.flatnonzero(simple)
    found = [(np.flatnonzero(np.repeat(simple, counts)), rows_at(fixed, np.repeat(which, counts[which])))]
    for record in np.flatnonzero(~simple).tolist():
        position = int(at[record])
        for _ in range(int(heads["entries_count"][record])):
            entry = np.frombuffer(records.data, _ENTRIES, 1, position)
            position += RETAINED_ENTRIES.size
            selected, places = np.arange(int(counts[record])), int(entry["places"][0])
            if places:
                selected = np.frombuffer(records.data, U4, places, position).astype(np.int64)
                position += U4.itemsize * places
            found.append((int(first[record]) + selected, np.repeat(entry, len(selected))))
        tails[record] = position
    messages, entries = map(np.concatenate, zip(*found, strict=True))
    order = np.argsort(messages, kind="stable")
    return tails, messages[order], rows_at(entries, order)


#: The lengths of a message's traits: the fields of `TRAITS`.
TRAIT_LENGTHS = layout(TRAITS, "block", "destination", "user", "origin", "group")

#: The outcome of a message in a queue, in a RETAINED record. ``taken``: 1 if a consumer acknowledged the message as
#: soon as it was enqueued; 0 if later records have its events. ``consumer``: number of that consumer, 0 if unknown or
#: if there is none. ``time``: time of the record (epoch ms).
OUTCOME = layout(Struct("<BHQ"), "taken", "consumer", "time")

#: Number of bytes after the body of a message.
TERMINATOR = 2

#: Limits of a batch: rows, bytes of their records, and bytes of the file between its first and last record.
ROWS, BYTES, SPAN = 1 << 16, 32 << 20, 1 << 30


def message_batches(records: Records, wanted: TableScan, group: Grouping = one_group) -> Batches:
    """Yield record batches of the wanted messages and columns, each preceded by the number of its group.

    A batch has messages of one group. Messages are selected by group before their columns are built, because that is
    cheaper than selecting rows of columns.
    """
    messages, names = Messages(records), records.names[ADDRESS]
    fixed = messages.fixed
    selected = wanted_rows(wanted, milliseconds(fixed["timestamp"]), fixed["address"], names)
    if wanted.below is not None:
        selected &= (fixed["flags"] & COPY > 0) & (fixed["number"] < wanted.below)
    elif wanted.copies is False:
        selected &= fixed["flags"] & COPY == 0
    messages = messages.only(selected)
    fixed, schema = messages.fixed, arrow_schema("messages", wanted.columns)
    for number, which in by_group(group(milliseconds(fixed["timestamp"]), fixed["address"], names)):
        some = messages.only(which)
        rows, queues = some.rows(), some.queues
        for low, high in _batch_bounds(some.begins[rows], some.ends[rows]) if len(rows) else ():
            batch = _Batch(some, rows[low:high], queues[low:high])
            columns = [COLUMN_BUILDERS[name](batch) for name in wanted.columns]
            yield number, pa.RecordBatch.from_arrays(columns, schema=schema)


def wanted_rows(wanted: TableScan, times: Any, addresses: Any, names: Mapping[int, str]) -> Any:
    """Return a mask of the wanted rows, by their times (epoch ms) and the numbers of their addresses."""
    keep = np.ones(len(times), bool)
    if wanted.since is not None:
        keep &= times >= wanted.since
    if wanted.until is not None:
        keep &= times < wanted.until
    if wanted.addresses:
        matching = [number for number, name in names.items() if wanted.matches(name)]
        keep &= np.isin(addresses, np.array(matching, addresses.dtype))
    return keep


class Messages:
    """The retained messages of a file, as columns. The columns are computed once, and cached in the `Records`.

    An item for each message: ``begins`` and ``ends`` are the bounds of its bytes, ``fixed`` its fields of fixed size,
    ``traits`` the position of its traits. An item for each queue of each message, in the order of messages: ``queues``
    is the queue's number, ``outcomes`` the `OUTCOME`; None if the file has no RETAINED records.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        if records.messages is None:
            records.messages = _retained(records)
        self.begins, self.ends, self.fixed, self.traits, self.queues, self.outcomes = records.messages

    def only(self, good: Any) -> Messages:
        """Return the messages that the mask ``good`` selects."""
        if good.all():
            return self
        entries, positions, other = np.repeat(good, self.fixed["queues"]), np.flatnonzero(good), copy(self)
        other.queues = self.queues[entries]
        other.outcomes = None if self.outcomes is None else rows_at(self.outcomes, entries)
        other.begins, other.ends = self.begins[positions], self.ends[positions]
        other.traits = self.traits[positions]
        other.fixed = rows_at(self.fixed, positions)
        return other

    def rows(self) -> Any:
        """Return the index of the message of each item in ``queues``."""
        return np.repeat(np.arange(len(self.begins)), self.fixed["queues"])


class PageMessages:
    """The messages of a page. ``numbers``: message numbers, by the index of the message in the page.

    ``retained``: a number ``index << 32 | queue`` for each message and each queue (number) that retains the message.
    """

    def __init__(self, records: Records) -> None:
        begins, _, fixed = records.structs(Kind.MESSAGE)
        self.numbers = fixed["number"].astype(np.int64)
        messages = Messages(records)
        places = np.searchsorted(begins, messages.begins)[messages.rows()]
        self.retained = places << 32 | messages.queues.astype(np.int64)


def _retained(records: Records) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Return the columns of `Messages`, from MESSAGE and RETAINED records, in the order of the file. A MESSAGE record
    becomes a fault if its length is not the sum of the lengths of its parts."""
    begins, ends, fixed = records.structs(Kind.MESSAGE)
    sizes, heads, bodies, queues = (
        fixed[name].astype(np.int64) for name in ("traits", "head", "body", "queues")
    )
    traits = begins + MESSAGE.size + 4 * queues
    whole = (traits + sizes + heads + bodies + TERMINATOR == ends) & (sizes >= TRAITS.size)
    lengths = records.fields(traits[whole], TRAIT_LENGTHS)
    parts = sum(lengths[name].astype(np.int64) for name in ("destination", "user", "origin", "group"))
    whole[whole] = (TRAITS.size + parts <= sizes[whole]) & (lengths["block"] < heads[whole])
    begins, ends, fixed, traits, queues = records.only(whole, begins, ends, fixed, traits, queues)
    _, queues = records.items(begins + MESSAGE.size, queues, U4)
    entries = _retained_entries(records, fixed, traits, queues)
    if not entries.all():
        counts = np.bincount(np.repeat(np.arange(len(fixed)), fixed["queues"])[entries], minlength=len(fixed))
        some, queues, fixed = counts > 0, queues[entries], fixed.copy()
        fixed["queues"] = counts
        begins, ends, fixed, traits = begins[some], ends[some], fixed[some], traits[some]
    retained = _retained_messages(records)
    if retained is None:
        return begins, ends, fixed, traits, queues, None
    plain = begins, ends, fixed, traits, queues, np.zeros(len(queues), OUTCOME)
    begins, ends, fixed, traits, queues, outcomes = map(np.concatenate, zip(plain, retained, strict=True))
    order = np.argsort(begins, kind="stable")
    members = np.argsort(np.repeat(np.argsort(order, kind="stable"), fixed["queues"]), kind="stable")
    fixed, outcomes = rows_at(fixed, order), rows_at(outcomes, members)
    return begins[order], ends[order], fixed, traits[order], queues[members], outcomes


def _retained_entries(records: Records, fixed: Any, traits: Any, queues: Any) -> Any:
    """Return a mask of the items in ``queues`` whose queue retains the message. These are the durable queues of durable
    messages; for a message with a retain byte they can be all or none of its queues instead."""
    flags = fixed["flags"]
    good = np.repeat(flags & DURABLE > 0, fixed["queues"])
    if records.non_durable:
        good &= ~np.isin(queues, np.array(records.non_durable, np.uint32))
    if (flags & RETAIN).any():
        ends = traits + fixed["traits"].astype(np.int64)
        whose = np.repeat(np.where(flags & RETAIN > 0, records.bytes[ends - 1], 0), fixed["queues"])
        good = (good & (whose != RETAINED_NOWHERE)) | (whose == RETAINED_EVERYWHERE)
    return good


class _Batch:
    """The rows of one batch. ``fixed`` has the fixed fields of each row, ``pick`` the index of its message."""

    def __init__(self, messages: Messages, rows: Any, queues: Any) -> None:
        first, last = int(rows[0]), int(rows[-1]) + 1
        self._records = messages.records
        self.buffer = pa.py_buffer(self._records.data)
        self.names = self._records.names
        self.queues = queues
        self.pick = rows - first
        own = messages.fixed[first:last]
        # there are fewer messages than rows if some are in several queues
        self.fixed = own if len(own) == len(rows) else own[self.pick]
        self._traits = messages.traits[first:last]
        self.body_ends = messages.ends[first:last] - TERMINATOR
        self.bodies = self.body_ends - own["body"]

    @cached_property
    def lengths(self) -> Any:
        """The lengths of each message's traits. Only few columns need them."""
        return self._records.fields(self._traits, TRAIT_LENGTHS)

    def user(self) -> Any:
        """Return the user who sent the message, null if the client had not logged in."""
        starts = self._traits + TRAITS.size + self.lengths["destination"]
        return as_strings(slices(self.buffer, starts, starts + self.lengths["user"], self.pick), True)

    def headers(self) -> Any:
        ends = self.bodies - 1  # end of the header lines: an empty line follows, then the body
        return header_maps(self.buffer, ends - self.lengths["block"], ends, self.pick)

    def body(self) -> Any:
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
    """Yield the bounds of each batch: the index of its first row, and the index after its last row."""
    parts = np.cumsum(ends - begins) // BYTES, begins // SPAN, np.arange(len(begins)) // ROWS
    changes = np.zeros(len(begins) - 1, bool)
    for part in parts:
        changes |= np.diff(part) != 0
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(begins)]
    return zip(edges[:-1], edges[1:], strict=True)
