"""Tables of a data directory as Arrow arrays.

The tables that a data directory is read as: their columns and types, in one place (docs/pipeline.md).

Arrow arrays from buffers, without a Python object for each value.

Not ``pa.array``: it imports pandas where that is installed, which costs each new worker of Spark up to a second.

Header lines to maps, for all messages of a batch at once.

What a program sends is alike: the same names in the same order, and values that mostly are as long as before. So one
block is parsed, and gives a *layout*: which bytes are names, colons and line ends, and where the values stand. Every
block of the same length with the same bytes outside of the values has this layout, and its values are copied without
being parsed. Blocks whose layout few others have are parsed as one text: where its lines end, and where the first colon
of each is. No Python object is made for a line, but for one with escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

STRING, LONG, INT, BOOLEAN, BINARY = "STRING", "BIGINT", "INT", "BOOLEAN", "BINARY"
TIMESTAMP, HEADERS = "TIMESTAMP", "MAP<STRING,STRING>"

#: Column and type, as Spark's DDL names it.
Columns = Mapping[str, str]

#: A row for each message in each queue that it entered.
MESSAGES: Columns = {
    "address": STRING,
    "queue": STRING,
    "message_id": LONG,
    "timestamp": TIMESTAMP,
    "expires": TIMESTAMP,
    "due": TIMESTAMP,
    "priority": INT,
    "durable": BOOLEAN,
    "deliveries": INT,
    "headers": HEADERS,
    "body": BINARY,
    "user": STRING,
}

#: A row for each thing that happened to a message in a queue.
EVENTS: Columns = {
    "time": TIMESTAMP,
    "event": STRING,
    "address": STRING,
    "queue": STRING,
    "message_id": LONG,
    "page": LONG,
    "index": INT,
    "deliveries": INT,
    "due": TIMESTAMP,
    "consumer": STRING,
}

#: The counters of a sample, in the order in which they stand in a row of the file.
COUNTERS = (
    "ring_size",
    "messages",
    "delivering",
    "scheduled",
    "paged",
    "consumers",
    "added",
    "acknowledged",
    "expired",
    "killed",
    "replaced",
    "size",
)

#: A row for each queue in each sample in which something was new.
SAMPLES: Columns = {
    "time": TIMESTAMP,
    "address": STRING,
    "queue": STRING,
    **dict.fromkeys(COUNTERS, LONG),
}

TABLES: Mapping[str, Columns] = {"messages": MESSAGES, "events": EVENTS, "samples": SAMPLES}

#: Endings of the files in which each table is.
ENDINGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("messages", "events"), frozenset({".journal", ".page"})),
    "samples": frozenset({".samples"}),
}
ALL_ENDINGS = frozenset().union(*ENDINGS.values())


#: As Spark has them, in a session whose time zone is whatever it is: it asks for UTC.
TYPES: dict[str, Any] = {
    STRING: pa.string(),
    LONG: pa.int64(),
    INT: pa.int32(),
    BOOLEAN: pa.bool_(),
    BINARY: pa.binary(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    HEADERS: pa.map_(pa.string(), pa.string()),
}

#: Numbers up to this one are looked up in a table instead of being sorted.
_LOOKUP_LIMIT = 1 << 16

#: The last millisecond of the year 9999: later times are this one, for Python has none beyond.
LAST_TIME = 253_402_300_799_999


def arrow_schema(table: str, names: Iterable[str] = ()) -> Any:
    """The schema of some columns of a table, by default of all."""
    return pa.schema([(name, TYPES[TABLES[table][name]]) for name in names or TABLES[table]])


def layout(struct: Struct, *names: str) -> Any:
    """The type of a structured array with the fields of a little-endian struct."""
    return np.dtype(
        [(name, f"<{code}") for name, code in zip(names, struct.format.removeprefix("<"), strict=True)]
    )


#: Numbers of 32 bits.
U4 = np.dtype("<u4")

#: A number for each row, from the times of rows (epoch ms), the numbers of their addresses and the names of these.
Grouping = Callable[[Any, Any, Mapping[int, str]], Any]

#: Record batches, and before each the number of its group.
Batches = Iterator[tuple[int, Any]]


def one_group(times: Any, addresses: Any, names: Mapping[int, str]) -> Any:
    """Put all rows into group 0."""
    return np.zeros(len(times), np.int64)


def rows_at(rows: Any, which: Any) -> Any:
    """Return some rows of a structured array. numpy copies rows without fields whole, which is ten times as fast as
    field by field."""
    return rows.view(f"V{rows.dtype.itemsize}")[which].view(rows.dtype)


def numbered(counts: Any) -> tuple[Any, Any]:
    """So many items of each: of which one each item is, and its number among those."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - (np.cumsum(counts) - counts)[which]


def by_group(groups: Any) -> Iterator[tuple[int, Any]]:
    """The groups of rows, from the number of the group of each; and whether each row is in it."""
    if len(groups):
        least = groups.min()
        for number in distinct(groups - least)[0].tolist():
            yield int(number + least), groups == number + least


def milliseconds(times: Any) -> Any:
    """Times of a file (u64) as signed numbers, none beyond the year 9999."""
    return np.minimum(times, LAST_TIME).astype(np.int64)


def _bits(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def integers(values: Any, type_: str, valid: Any = None) -> Any:
    """Numbers of one type; null where ``valid`` is given and not true."""
    data = np.require(values, np.int32 if type_ == INT else np.int64, "C")
    return pa.Array.from_buffers(
        TYPES[type_], len(data), [None if valid is None else _bits(valid), pa.py_buffer(data)]
    )


def timestamps(values: Any, valid: Any = None) -> Any:
    """Points in time, from milliseconds since the epoch; those that are 0 are null where ``valid`` is not given."""
    if valid is None:
        valid = values != 0
    if not valid.any():
        return pa.nulls(len(values), TYPES[TIMESTAMP])
    return integers(milliseconds(values) * 1000, TIMESTAMP, None if valid.all() else valid)


def booleans(values: Any) -> Any:
    """Booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def fixed_rows(data: Any, width: int, starts: Any) -> Any:
    """Rows of ``width`` bytes of ``data`` (an array of bytes), one for each position that they start at.

    Taken from an array of items that overlap, which numpy copies whole: several times as fast as byte by byte.
    """
    if not width:
        return np.empty((len(starts), 0), np.uint8)
    windows: Any = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    return windows[starts].view(np.uint8).reshape(len(starts), width)


def indices(values: Any) -> Any:
    """Positions for ``take``."""
    return integers(values, LONG)


def rows_where(wanted: Any, batch: Any) -> Any:
    """The rows of a record batch that are wanted."""
    return batch if np.all(wanted) else batch.filter(booleans(wanted))


def slices(data: Any, starts: Any, stops: Any, pick: Any) -> Any:
    """Pieces of ``data`` (a buffer of Arrow) as binary values: ``pick`` says which ones, also more than once.

    The pieces stand one after the other, and no more than 2 GiB from the first to the last. They are every second
    slot of one array over the data itself, so that nothing is copied before they are picked.
    """
    count = len(starts)
    if not count:
        return strings([]).cast(pa.binary())
    base = int(starts[0])
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = starts - base, stops - base
    buffers = [None, pa.py_buffer(offsets), data.slice(base)]
    return pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers).take(indices(np.asarray(pick) * 2))


def strings(values: Sequence[bytes | None]) -> Any:
    """Strings of UTF-8; what is none is shown with the sign for that."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = np.array([value is not None for value in values], bool)
    buffers = _bits(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(filter(None, values)))
    return as_strings(pa.Array.from_buffers(pa.binary(), len(values), buffers))


def integers_of(column: Any, type_: Any) -> Any:
    """The values of a column without nulls (times in microseconds), not copied."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(0, type_)
    return np.frombuffer(data, type_)[column.offset : column.offset + len(column)]


def offsets_of(column: Any) -> Any:
    """Where the values of a column of texts, lists or maps begin, and where the last ends."""
    found: Any = np.frombuffer(column.buffers()[1], np.int32)
    return found[column.offset : column.offset + len(column) + 1]


def as_strings(array: Any, null_if_empty: bool = False) -> Any:
    """Binary values, or strings, as strings."""
    try:
        text = array.cast(pa.string())
    except pa.ArrowInvalid:
        text = strings([one and one.decode("utf-8", "replace").encode() for one in array.to_pylist()])
    if not null_if_empty or not len(text):
        return text
    filled = np.diff(offsets_of(text)) > 0
    if text.offset or filled.all():
        return text
    return pa.Array.from_buffers(pa.string(), len(text), [_bits(filled), *text.buffers()[1:]])


def names_of(ids: Any, names: dict[int, str]) -> Any:
    """A name for each number, null for one that is not known."""
    unique, which = distinct(ids)
    return strings(
        [names[number].encode("utf-8", "replace") if number in names else None for number in unique.tolist()]
    ).take(indices(which))


def distinct(ids: Any) -> tuple[Any, Any]:
    """The different numbers, and which of them each is. Small ones, as ids are, need not be sorted for that."""
    if not len(ids) or ids.min() < 0 or ids.max() > _LOOKUP_LIMIT:
        return np.unique(ids, return_inverse=True)  # type: ignore[no-any-return]
    there = np.bincount(ids) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[ids]


_ESCAPE = re.compile(rb"\\([nrc\\])")
_MEANINGS = {b"n": b"\n", b"r": b"\r", b"c": b":", b"\\": b"\\"}
_LINE_FEED, _COLON, _BACKSLASH = b"\n:\\"

#: How many blocks are compared to know whether messages have the same ones.
_SAMPLE = 256

#: Blocks that must have a layout: copying has a cost for each layout, parsing one for each block.
_COMMON = 64

#: Layouts of blocks of one length that are tried; lengths of blocks above this have none.
_LAYOUTS, _LONGEST = 8, (1 << 16) - 1

#: Bytes of blocks that are compared with a layout at once.
_COMPARED = 1 << 13

#: Different names of headers, and lines of a message, up to which a bit for each name tells of one that is there twice.
_BITS, _MOST_LINES = 40, 1 << 20


def header_maps(data: Any, starts: Any, stops: Any, pick: Any) -> Any:
    """A map for each block that ``pick`` says: from name to value, of a name that is there twice the first value.

    ``data`` is a buffer of Arrow; blocks stand one after the other in it, other things between them.
    """
    copied = _Copied(data, starts[pick], stops[pick])
    uncopied = np.flatnonzero(copied.layouts < 0)
    if not len(uncopied):
        return copied.maps()
    blocks, which = np.unique(pick[uncopied], return_inverse=True)
    parsed = _parsed_once(slices(data, starts, stops, blocks), which)
    if len(uncopied) == len(pick):
        return parsed
    positions = np.empty(len(pick), np.int64)
    positions[np.argsort(copied.layouts < 0, kind="stable")] = np.arange(len(pick))
    return pa.concat_arrays([copied.maps(), parsed]).take(indices(positions))


# ---- blocks that are copied


class _Layout:
    """Where names and values stand in a block, in all blocks of its length with the same bytes around the values."""

    def __init__(self, block: Any) -> None:
        """``block`` is an array of bytes."""
        text = block.tobytes()
        places: dict[bytes, slice] = {}  # of values, by names
        end = -1
        for line in text.removesuffix(b"\n").split(b"\n") if text else ():
            name, _, after = line.partition(b":")
            end += len(line) + 1
            name = _unescaped_one(name).decode("utf-8", "replace").encode()
            # the value of a name that is there twice belongs to what must be the same
            places.setdefault(name, slice(end - len(after), end))
        names, values = list(places), list(places.values())
        self._size = len(text)
        outside = np.ones(len(text), bool)
        for value in values:
            outside[value] = False
        self._many = max(_COMPARED // max(len(text), 1), 1)
        self._blocks, self._outside = np.tile(block, self._many), np.tile(outside, self._many)
        self._values = [value for value in values if value.stop > value.start]
        self.lines = len(names)
        self.names = np.frombuffer(b"".join(names), np.uint8)
        self.name_ends = np.cumsum([len(name) for name in names], dtype=np.int32)
        self.value_ends = np.cumsum([value.stop - value.start for value in values], dtype=np.int32)

    def values_of(self, blocks: Any) -> tuple[Any, Any]:
        """Which of some blocks (rows of bytes) have this layout and no escapes, and the values of those."""
        fits = self._same(blocks)
        values = self._copied(blocks if fits.all() else blocks[fits])
        text = values.tobytes()
        if b"\n" in text or b"\\" in text:
            plain = ~((values == _LINE_FEED) | (values == _BACKSLASH)).any(axis=1)
            fits[fits], values = plain, values[plain]
        return fits, values

    def _same(self, blocks: Any) -> Any:
        """Which blocks have the same bytes outside of the values. Many of them are compared as if they were one."""
        fits, whole = np.ones(len(blocks), bool), len(blocks) // self._many * self._many
        for low, high in ((0, whole), (whole, len(blocks))):
            if low < high and self._size:
                size = (min(self._many, high - low)) * self._size
                differs = blocks[low:high].reshape(-1, size) != self._blocks[:size]
                differs &= self._outside[:size]
                if differs.any():
                    fits[low:high] = ~differs.reshape(-1, self._size).any(axis=1)
        return fits

    def _copied(self, blocks: Any) -> Any:
        """The bytes of the values alone. As items of a structure, which numpy copies row by row in one pass."""
        if not self._values:
            return np.empty((len(blocks), 0), np.uint8)
        names = [f"{value.start}" for value in self._values]
        kinds = [f"V{value.stop - value.start}" for value in self._values]
        positions = [value.start for value in self._values]
        given = np.dtype({"names": names, "formats": kinds, "offsets": positions, "itemsize": self._size})
        values = blocks.view(given)[:, 0].astype(list(zip(names, kinds, strict=True)))
        return values.view(np.uint8).reshape(len(blocks), -1)


class _Copied:
    """Blocks that have a layout. ``layouts`` is the one of each block by its number, -1 where it must be parsed."""

    def __init__(self, data: Any, starts: Any, stops: Any) -> None:
        self.layouts = np.full(len(starts), -1, np.int32)
        self._found: list[tuple[_Layout, Any, Any]] = []  # with the places of its blocks, and their values
        letters: Any = np.frombuffer(data, np.uint8)
        for size, positions in _by_size(stops - starts):
            blocks = fixed_rows(letters, size, starts[positions])
            for _ in range(_LAYOUTS):
                if len(positions) < _COMMON:
                    break
                layout = _Layout(blocks[0])
                fits, values = layout.values_of(blocks)
                if len(values) >= _COMMON:
                    self.layouts[positions[fits]] = len(self._found)
                    self._found.append((layout, positions[fits], values))
                fits[0] = True  # if it has escapes: it is parsed, and its layout is not tried again
                if fits.all():
                    break
                blocks, positions = blocks[~fits], positions[~fits]

    def maps(self) -> Any:
        """A map for each block that has a layout, in their order."""
        layouts = self.layouts[self.layouts >= 0]
        lines = _begins([layout.lines for layout, _, _ in self._found], layouts)
        names = [
            (np.broadcast_to(layout.names, (len(positions), len(layout.names))), layout.name_ends)
            for layout, positions, _ in self._found
        ]
        values = [(values, layout.value_ends) for layout, _, values in self._found]
        return _maps(lines, *(self._texts(parts, lines, layouts) for parts in (names, values)))

    def _texts(self, parts: list[tuple[Any, Any]], lines: Any, layouts: Any) -> Any:
        """All names, or all values. ``parts`` has for each layout the bytes of its blocks as rows, and where each text
        of a row ends; ``lines`` is where the lines of each block begin."""
        begins = _begins([rows.shape[1] for rows, _ in parts], layouts)
        if len(parts) == 1:  # nothing is between its blocks
            ((rows, each),) = parts
            return _strings(np.append(np.int32(0), begins[:-1, None] + each), rows.reshape(-1))
        letters, ends = np.empty(int(begins[-1]), np.uint8), np.zeros(int(lines[-1]) + 1, np.int32)
        before = np.cumsum(self.layouts >= 0) - 1
        for (rows, each), (_, positions, _) in zip(parts, self._found, strict=True):
            at = before[positions]
            _scatter(letters, begins[at], rows)
            _scatter(ends[1:], lines[at], begins[at, None] + each)
        return _strings(ends, letters)


def _begins(sizes: list[int], which: Any) -> Any:
    """Return the offsets of consecutive items whose sizes are ``sizes[which]``, and the end of the last item."""
    return np.append(np.int32(0), np.cumsum(np.array(sizes, np.int32)[which], dtype=np.int32))


def _strings(ends: Any, letters: Any) -> Any:
    """Texts that stand one after the other. They are looked at one by one only where there is more than ASCII."""
    text = letters.tobytes()
    type_ = pa.string() if text.isascii() else pa.binary()
    return as_strings(
        pa.Array.from_buffers(type_, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    )


def _by_size(sizes: Any) -> Iterator[tuple[int, Any]]:
    """Lengths that many blocks have, and which blocks they are."""
    counts = np.bincount(np.minimum(sizes, _LONGEST + 1))
    common = np.flatnonzero(counts[: _LONGEST + 1] >= _COMMON)
    if len(common) == 1 and counts[common[0]] == len(sizes):
        yield int(common[0]), np.arange(len(sizes))
    elif len(common):
        order = np.argsort(np.minimum(sizes, _LONGEST).astype(np.uint16), kind="stable")
        ends = np.cumsum(counts)
        for size in common.tolist():
            yield size, order[ends[size] - counts[size] : ends[size]]


def _scatter(out: Any, starts: Any, rows: Any) -> None:
    """Put rows where some positions say."""
    if rows.shape[1]:
        kind = f"V{rows.shape[1] * out.itemsize}"
        windows = np.ndarray((len(out) - rows.shape[1] + 1,), kind, out, 0, (out.itemsize,))
        windows[starts] = np.require(rows, out.dtype, "C").view(kind)[:, 0]


# ---- blocks that are parsed


def _parsed_once(blocks: Any, which: Any) -> Any:
    """A map for each place in ``which``, where blocks that are the same are parsed once."""
    sample = blocks[:: max(1, len(blocks) // _SAMPLE)].to_pylist()
    if len(set(sample)) * 2 <= len(sample):  # many messages have the same headers
        coded = blocks.dictionary_encode()
        return _parsed(coded.dictionary).take(indices(integers_of(coded.indices, np.int32)[which]))
    maps = _parsed(blocks)
    return maps if len(which) == len(blocks) else maps.take(indices(which))


def _parsed(blocks: Any) -> Any:
    """A map for each block."""
    joined, ends = _joined(blocks)
    letters: Any = np.frombuffer(joined, np.uint8)
    marks = np.flatnonzero((letters == _LINE_FEED) | (letters == _COLON))
    is_end = letters[marks] == _LINE_FEED
    stops = marks[is_end]
    starts = np.append(0, stops + 1)[:-1]
    first = np.append(True, is_end)[:-1]  # marks that no other one of their line comes before
    middles = marks[first]  # of a line without a colon its end
    names = slices(joined, starts, middles, np.arange(len(stops)))
    values = slices(joined, np.minimum(middles + 1, stops), stops, np.arange(len(stops)))
    if b"\\" in joined.to_pybytes():
        lines = np.unique(np.searchsorted(stops, np.flatnonzero(letters == _BACKSLASH)))
        names, values = _unescaped(names, lines), _unescaped(values, lines)
    names, values = as_strings(names), as_strings(values)
    bounds = np.append(0, np.searchsorted(stops, ends))
    first_lines = _first_ones(names, bounds)
    if first_lines is not None:
        names, values = names.take(indices(first_lines)), values.take(indices(first_lines))
        bounds = np.searchsorted(first_lines, bounds)
    return _maps(bounds, names, values)


def _maps(bounds: Any, names: Any, values: Any) -> Any:
    """Maps of names to values, ``bounds`` where each begins and the last ends."""
    return pa.MapArray.from_arrays(integers(bounds, INT), names, values)


def _joined(blocks: Any) -> tuple[Any, Any]:
    """All blocks in one buffer, and where each of them ends. Every line ends with a line feed then."""
    buffer = blocks.buffers()[2] or pa.py_buffer(b"")
    offsets = offsets_of(blocks)
    letters: Any = np.frombuffer(buffer, np.uint8)
    filled = np.diff(offsets) > 0
    if offsets[0] == 0 and (letters[offsets[1:][filled] - 1] == _LINE_FEED).all():
        return buffer.slice(0, int(offsets[-1])), offsets[1:].astype(np.int64)
    lines = [each if each.endswith(b"\n") or not each else each + b"\n" for each in blocks.to_pylist()]
    return pa.py_buffer(b"".join(lines)), np.cumsum([len(each) for each in lines])


def _unescaped(pieces: Any, which: Any) -> Any:
    """With the letters that escapes mean, in those pieces that have some."""
    plain = strings(list(map(_unescaped_one, pieces.take(indices(which)).to_pylist()))).cast(pa.binary())
    positions = np.arange(len(pieces))
    positions[which] = len(pieces) + np.arange(len(which))
    return pa.concat_arrays([pieces, plain]).take(indices(positions))


def _unescaped_one(piece: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: _MEANINGS[found[1]], piece)


def _first_ones(names: Any, bounds: Any) -> Any:
    """The lines whose name no line of the same block before has; None where that are all. ``bounds`` of blocks."""
    if not len(names):
        return None
    coded = names.dictionary_encode()
    codes = integers_of(coded.indices, np.int32)
    counts = np.diff(bounds)
    if len(coded.dictionary) <= _BITS and counts.max() < _MOST_LINES:
        bits = (np.uint64(1) << codes.astype(np.uint64)).astype(np.uint64)
        begins = bounds[:-1][counts > 0]
        if (np.add.reduceat(bits, begins) == np.bitwise_or.reduceat(bits, begins)).all():
            return None
    blocks = np.repeat(np.arange(len(counts)), counts)
    first: Any = np.unique(blocks * len(coded.dictionary) + codes, return_index=True)[1]
    first.sort()
    return None if len(first) == len(codes) else first
