"""RETAINED records as arrays: many messages in each, by columns, with the queues that they entered.

The columns of all records of a file are gathered at once. Only tables with more than one row are walked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stompring.pipeline.records import Records
from stompring.store.record import RETAINED, RETAINED_COLUMNS, RETAINED_ENTRIES, RETAINED_TRAITS, Kind

_HEAD = np.dtype(
    [
        ("kind", "u1"),
        ("zero", "u1"),
        ("zeros", "<u2"),
        ("count", "<u4"),
        ("traits_count", "<u4"),
        ("entries_count", "<u4"),
        ("time", "<u8"),
        ("traits_length", "<u4"),
    ]
)
_TRAITS = np.dtype(
    [("address", "<u4"), ("length", "<u4"), ("flags", "u1"), ("priority", "u1")]
)  # then as in MESSAGE
_ENTRIES = np.dtype(
    [("queue", "<u4"), ("outcome", "u1"), ("zero", "u1"), ("consumer", "<u2"), ("places", "<u4")]
)

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
    begins, ends = records.of(Kind.RETAINED, RETAINED.size)
    if not len(begins):
        return None
    heads = records.fields(begins, _HEAD)
    counts, fixed = heads["count"].astype(np.int64), begins + RETAINED.size
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
    of = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(of)) - first[of]
    columns, offset = {}, 0
    for name, code in RETAINED_COLUMNS:
        size = _SIZES[code]
        places = (fixed + offset * counts)[of] + size * within
        columns[name] = records.fields(places, np.dtype([("it", f"<u{size}")]))["it"]
        offset += size
    traits = _traits_places(records, heads, traits_at, entries_at)[of, columns.pop("traits")]
    common = records.fields(traits, _TRAITS)
    for name in ("address", "length", "flags", "priority"):
        columns[name] = common[name]
    entries = _Entries(records, heads, entries_at, ends, counts, first)
    sizes = columns.pop("size").astype(np.int64)
    until = np.cumsum(sizes)
    starts = until - sizes
    starts += (entries.ends - starts[first])[of]
    order = np.argsort(entries.messages, kind="stable")
    return RetainedMessages(
        columns,
        starts,
        starts + sizes,
        traits + RETAINED_TRAITS.size + 2,
        np.bincount(entries.messages, minlength=len(of)),
        entries.queues[order],
        entries.outcomes[order],
        entries.consumers[order],
        heads["time"][of][entries.messages[order]],
    )


def _traits_places(records: Records, heads: Any, traits_at: Any, entries_at: Any) -> Any:
    """Where the traits of each record stand: a row of positions for each of them."""
    most = int(heads["traits_count"].max())
    found = np.repeat(traits_at[:, None], max(most, 1), axis=1)
    for which in np.flatnonzero(heads["traits_count"] > 1).tolist():
        at = int(traits_at[which])
        for place in range(int(heads["traits_count"][which])):
            found[which, place] = at
            _, length = RETAINED_TRAITS.unpack_from(records.data, at)
            at += RETAINED_TRAITS.size + length
    return found


class _Entries:
    """The members of all messages, in the order of the records; ``ends`` is where the tails of each record begin."""

    def __init__(self, records: Records, heads: Any, at: Any, ends: Any, counts: Any, first: Any) -> None:
        fixed = records.fields(np.minimum(at, ends - RETAINED_ENTRIES.size), _ENTRIES)
        simple = (heads["entries_count"] == 1) & (fixed["places"] == 0)
        self.ends = at + RETAINED_ENTRIES.size
        which = np.flatnonzero(simple)
        own = np.repeat(which, counts[which])
        messages = [np.flatnonzero(np.repeat(simple, counts))]
        queues, outcomes, consumers = (
            [fixed[name][own].astype(np.int64)] for name in ("queue", "outcome", "consumer")
        )
        for record in np.flatnonzero(~simple).tolist():
            position, base, count = int(at[record]), int(first[record]), int(counts[record])
            for _ in range(int(heads["entries_count"][record])):
                queue, outcome, _, consumer, places = RETAINED_ENTRIES.unpack_from(records.data, position)
                position += RETAINED_ENTRIES.size
                chosen = np.arange(count)
                if places:
                    chosen = np.frombuffer(records.data, "<u4", places, position).astype(np.int64)
                    position += 4 * places
                messages.append(base + chosen)
                for found, value in ((queues, queue), (outcomes, outcome), (consumers, consumer)):
                    found.append(np.full(len(chosen), value, np.int64))
            self.ends[record] = position
        self.messages, self.queues = np.concatenate(messages), np.concatenate(queues)
        self.outcomes, self.consumers = np.concatenate(outcomes), np.concatenate(consumers)
