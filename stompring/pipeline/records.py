"""The records of a file as arrays of positions, so that numpy reads a field of all records in one operation.

The footer of a sealed file has the positions of its records, and checksums of blocks. A file without a footer is
scanned from its beginning, and the checksum of each record is verified. Damaged bytes raise no error: unreadable
records are skipped, and `Records.faults` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

import numpy as np

from stompring.store import record
from stompring.store.record import (
    ADDRESS,
    CONSUMER,
    FOR_READERS,
    NAME,
    PREFIX,
    QUEUE,
    SCOPED,
    TRANSACTION,
    Kind,
)
from stompring.store.segment import BLOCK, FORMAT, HEADER, Fault, Footer, Header, SegmentScan, find_footer

from .arrays import U4, fixed_rows, layout, numbered

try:
    from isal.isal_zlib import crc32  # uses CPU instructions for CRC: eight times as fast as zlib
except ImportError:  # isal is not built for all processors
    from zlib import crc32

#: A number in the footer of a page: how many message kinds follow it. Kind 0 is an unreadable message.
_KINDS = Struct("<28xI")


#: The fields of fixed size at the beginning of payloads, by the kind of the record.
FIELDS = {
    Kind.NAME: layout(NAME, "kind", "what", "non_durable", "number"),
    Kind.QUEUE_ADDRESS: layout(record.QUEUE_ADDRESS, "kind", "zero", "zeros", "queue", "address"),
    Kind.MESSAGE: layout(
        record.MESSAGE,
        *("kind", "flags", "priority", "deliveries", "address", "number", "timestamp", "expires", "due"),
        *("transaction", "head", "body", "queues", "traits"),
    ),
    Kind.RETAINED: layout(
        record.RETAINED,
        *("kind", "zero", "zeros", "count", "traits_count", "entries_count", "time", "traits_length"),
    ),
    Kind.SETTLED: layout(record.SETTLED, "kind", "reason", "consumer", "queue", "time"),
    Kind.DELIVERED: layout(record.DELIVERED, "kind", "zero", "zeros", "queue", "time"),
    Kind.STATE: layout(
        record.STATE,
        *("kind", "cause", "delivered", "queue", "number", "deliveries", "attempts", "due", "time"),
    ),
    Kind.PAGE_SETTLED: layout(
        record.PAGE_SETTLED, "kind", "reason", "consumer", "address", "queue", "page", "time"
    ),
    Kind.PAGE_STATE: layout(
        record.PAGE_STATE,
        *("kind", "cause", "delivered", "address", "queue", "page", "index"),
        *("deliveries", "attempts", "due", "time"),
    ),
    Kind.SAMPLE: layout(record.SAMPLE, "kind", "zero", "zeros", "rows", "time"),
}


#: The bounds of a payload: positions of its first byte, and of the byte behind it.
Span = tuple[int, int]

#: Names of addresses, queues and consumers: three dictionaries from number to name.
Names = dict[int, dict[int, str]]


class Records:
    """The payloads of the records in a file, in the order of the file. A transaction is replaced by the records in it.

    Records of the file define ``names``, ``non_durable`` (numbers of a page's non-durable queues) and
    ``queue_addresses`` (address number by queue number). ``torn``: incomplete record at the end of a file without a
    footer, else None. ``faults``: unreadable records.
    """

    def __init__(self, data: bytes, start: int = 0, stop: int = -1) -> None:
        """Read the records from byte ``start`` to ``stop`` (-1: to the end), and the names from the beginning."""
        if 0 <= stop < len(data):
            data = data[:stop]
        self.data = data
        self.bytes: Any = np.frombuffer(data, np.uint8)
        self.faults: list[Fault] = []
        self.torn: Fault | None = None
        self.messages: tuple[Any, ...] | None = None  # cache of `Messages`
        self._place(*self._bounds().T)
        self.frames = self.begins  # beginnings of the payloads, if a transaction counts as one record
        self.names: Names = {what: {} for what in (ADDRESS, QUEUE, CONSUMER)}
        self.non_durable: list[int] = []
        self._unwrap_transactions()
        self._unwrap_scoped()
        self._read_names()
        _, _, bindings = self.structs(Kind.QUEUE_ADDRESS)
        self.queue_addresses: dict[int, int] = dict(bindings[["queue", "address"]].tolist())
        if start > self.first:
            inside = self.begins >= start + PREFIX.size
            self._place(self.begins[inside], self.ends[inside])

    def _place(self, begins: Any, ends: Any) -> None:
        self.begins, self.ends, self.kinds = begins, ends, self.bytes[begins]

    def structs(self, kind: Kind) -> tuple[Any, Any, Any]:
        """Return begins, ends and `FIELDS` of the payloads of a kind. A payload too short for them is a fault."""
        fields, selected = FIELDS[kind], self.kinds == int(kind)
        begins, ends = self.begins[selected], self.ends[selected]
        begins, ends = self.only(ends - begins >= fields.itemsize, begins, ends)
        return begins, ends, self.fields(begins, fields)

    def only(self, good: Any, begins: Any, *columns: Any) -> list[Any]:
        """Return the rows of each column that the mask ``good`` selects. The other payloads become faults."""
        if good.all():
            return [begins, *columns]
        self.faults += [Fault(int(at), "wrong record length") for at in begins[~good]]
        return [column[good] for column in (begins, *columns)]

    def fields(self, begins: Any, item: Any) -> Any:
        """Return the items of a type at some positions. All items must end within the file."""
        if not len(begins):
            return np.zeros(0, item)
        return fixed_rows(self.bytes, item.itemsize, begins).view(item)[:, 0]

    def items(self, begins: Any, counts: Any, item: Any) -> tuple[Any, Any]:
        """Read consecutive items: from each of ``begins`` as many as ``counts`` says. Returns two columns: the index in
        ``begins``, and the item."""
        which, within = numbered(counts)
        return which, self.fields(begins[which] + item.itemsize * within, item)

    # ---- positions

    def _bounds(self) -> Any:
        header, nothing = Header.read(self.data), np.zeros((0, 2), np.int64)
        self.first = HEADER.size  # offset of the first record
        if len(self.data) < HEADER.size:
            self.torn = Fault(0, header.fault or "")
            return nothing
        if header.fault is not None:
            self.faults.append(Fault(0, header.fault))
            if self.data[: len(b"STOMPRNG")] != b"STOMPRNG" and find_footer(self.data) is None:
                return nothing  # ``data`` is not a file of a broker
        elif header.format != FORMAT:
            self.faults.append(Fault(0, f"format {header.format} is not supported, format {FORMAT} is"))
            return nothing
        bounds = self._sealed()
        return self._walked() if bounds is None else bounds

    def _sealed(self) -> Any:
        """Return the bounds from the footer, None without a footer or if a checksum or a length is wrong."""
        footer = find_footer(self.data)
        if footer is None or _has_unreadable(footer):
            return None
        view = memoryview(self.data)[: footer.size]
        if tuple(crc32(view[at : at + BLOCK]) for at in range(0, len(view), BLOCK)) != footer.blocks:
            return None
        starts: Any = np.frombuffer(footer.starts, np.uint32).astype(np.int64)
        if len(starts) and starts.max() + PREFIX.size >= footer.size:
            return None
        lengths = self.fields(starts, U4)
        begins = starts + PREFIX.size
        ends = begins + lengths
        before, behind = np.append(self.first, ends), np.append(starts, footer.size)
        if (before > behind).any() or not lengths.all():
            return None
        bounds = np.stack((begins, ends), axis=1)
        between: list[Span] = []
        # the footer of a page lists only messages: other records are in the gaps between them
        for gap in np.flatnonzero(before < behind).tolist():
            between += whole_records(self.data, int(before[gap]), int(behind[gap]))
            if not between or between[-1][1] != behind[gap]:
                return None
        return _sorted_bounds([bounds, np.array(between, np.int64)]) if between else bounds

    def _walked(self) -> Any:
        walk = SegmentScan(self.data)
        bounds = np.array(list(walk), np.int64).reshape(-1, 2)
        faults = walk.faults
        if walk.footer is None and faults:
            last = faults[-1]
            if last.incomplete or last.at + PREFIX.size >= len(self.data):
                self.torn = faults.pop()
        self.faults += faults
        return bounds

    # ---- payloads

    def _unwrap_transactions(self) -> None:
        selected = self.kinds == int(Kind.TRANSACTION)
        if not selected.any():
            return
        parts: list[Span] = []
        for begin, end in zip(self.begins[selected].tolist(), self.ends[selected].tolist(), strict=True):
            at = begin + TRANSACTION.size
            while at + 4 < end:
                start = at + 4
                at = start + int.from_bytes(self.data[at:start], "little")
                if at > end or at == start:
                    break
                parts.append((start, at))
            if at != end:
                self.faults.append(Fault(begin, "wrong transaction length"))
        outside = np.stack((self.begins[~selected], self.ends[~selected]), axis=1)
        self._place(*_sorted_bounds([outside, np.array(parts, np.int64).reshape(-1, 2)]).T)

    def _unwrap_scoped(self) -> None:
        """Replace each SCOPED record for readers by the record in it. Remove the SCOPED records for the broker."""
        selected = self.kinds == int(Kind.SCOPED)
        if not selected.any():
            return
        whole = self.begins + SCOPED.size < self.ends
        ours = (
            selected & whole & (self.bytes[np.minimum(self.begins + 1, len(self.bytes) - 1)] == FOR_READERS)
        )
        visible = ~selected | ours
        self._place(np.where(ours, self.begins + SCOPED.size, self.begins)[visible], self.ends[visible])

    def _read_names(self) -> None:
        for begin, end, name in zip(*(column.tolist() for column in self.structs(Kind.NAME)), strict=True):
            _, what, non_durable, number = name
            self.names.setdefault(what, {})[number] = self.data[begin + NAME.size : end].decode(
                "utf-8", "replace"
            )
            if what == QUEUE and non_durable:
                self.non_durable.append(number)


def whole_records(data: bytes, at: int, stop: int) -> Iterator[Span]:
    """Yield the bounds of payloads from byte ``at`` to ``stop``, or to the first incomplete or damaged record."""
    view = memoryview(data)
    while at + PREFIX.size < stop:
        length, crc = PREFIX.unpack_from(data, at)
        begin, at = at + PREFIX.size, at + PREFIX.size + length
        if not length or at > stop or crc32(view[begin:at]) != crc:
            return
        yield begin, at


def complete_until(data: bytes) -> int:
    """Return the end of the last complete record, without a footer; 0: no complete record. ``data`` begins with a
    record."""
    found = 0
    for begin, end in whole_records(data, 0, len(data)):
        if data[begin] == Kind.FOOTER:
            break
        found = end
    return found


def _has_unreadable(footer: Footer) -> bool:
    """Return whether a page had unreadable messages when its footer was written."""
    more = footer.more
    if len(more) < _KINDS.size:
        return False
    (count,) = _KINDS.unpack_from(more)
    return 0 in more[_KINDS.size : _KINDS.size + count]


def _sorted_bounds(bounds: list[Any]) -> Any:
    joined = np.concatenate(bounds)
    return joined[np.argsort(joined[:, 0], kind="stable")]
