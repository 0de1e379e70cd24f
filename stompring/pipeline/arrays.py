"""The tables of a data directory (docs/pipeline.md), their columns and types, and the conversion of buffers to Arrow.

Arrays are created from buffers, without a Python object for each value. ``pa.array`` is not used: it imports pandas if
that is installed, which costs each new worker of Spark up to a second.

`header_maps` parses the headers of all messages of a batch together. Messages of one program have mostly the same
header names in the same order, and values of the same lengths. So one block of header lines is parsed into a *layout*:
the bytes of names, colons and line ends, and the positions of the values. Every block with the same length and the same
bytes outside of the values has this layout, and numpy copies its values. Blocks with a rare layout are parsed together
as one text, by the positions of line ends and first colons. Only lines with escapes become Python objects.
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

#: Columns of a table: the type of each in Spark's DDL, by the name of the column.
Columns = Mapping[str, str]

#: Columns of the table ``messages``: one row for each message in each queue that it entered.
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

#: Columns of the table ``events``: one row for each event of a message in a queue.
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

#: The counters of a sample, in the order of a row of the file.
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

#: Columns of the table ``samples``: one row for each queue in each sample. A sample has only the queues whose counters
#: changed since the previous sample.
SAMPLES: Columns = {
    "time": TIMESTAMP,
    "address": STRING,
    "queue": STRING,
    **dict.fromkeys(COUNTERS, LONG),
}

TABLES: Mapping[str, Columns] = {"messages": MESSAGES, "events": EVENTS, "samples": SAMPLES}

#: Name endings of the files that contain the rows of each table.
ENDINGS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("messages", "events"), frozenset({".journal", ".page"})),
    "samples": frozenset({".samples"}),
}
ALL_ENDINGS = frozenset().union(*ENDINGS.values())


#: Arrow type for each Spark type. Spark requires UTC for times, even if its session has another time zone.
TYPES: dict[str, Any] = {
    STRING: pa.string(),
    LONG: pa.int64(),
    INT: pa.int32(),
    BOOLEAN: pa.bool_(),
    BINARY: pa.binary(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    HEADERS: pa.map_(pa.string(), pa.string()),
}

#: `distinct` counts numbers up to this one in a lookup table, which is faster than sorting them.
_LOOKUP_LIMIT = 1 << 16

#: The last millisecond of the year 9999 (epoch ms). It replaces later times, which Python's dates do not support.
LAST_TIME = 253_402_300_799_999


def arrow_schema(table: str, names: Iterable[str] = ()) -> Any:
    """Return the Arrow schema of some columns of a table, by default of all."""
    return pa.schema([(name, TYPES[TABLES[table][name]]) for name in names or TABLES[table]])


def layout(struct: Struct, *names: str) -> Any:
    """Return the type of a structured array with the fields of a little-endian struct."""
    return np.dtype(
        [(name, f"<{code}") for name, code in zip(names, struct.format.removeprefix("<"), strict=True)]
    )


#: Unsigned numbers of 32 bits.
U4 = np.dtype("<u4")

#: Returns the group number of each row, from the times (epoch ms), the address numbers, and the names of addresses.
Grouping = Callable[[Any, Any, Mapping[int, str]], Any]

#: Pairs of group number and record batch.
Batches = Iterator[tuple[int, Any]]


def one_group(times: Any, addresses: Any, names: Mapping[int, str]) -> Any:
    """Put all rows into group 0."""
    return np.zeros(len(times), np.int64)


def rows_at(rows: Any, which: Any) -> Any:
    """Return the rows of a structured array at the indices (or with the mask) ``which``.

    In a view without fields numpy copies each row as a whole, which is ten times as fast as field by field.
    """
    return rows.view(f"V{rows.dtype.itemsize}")[which].view(rows.dtype)


def numbered(counts: Any) -> tuple[Any, Any]:
    """Return the group of each item, and its index in the group: ``[0, 0, 1]``, ``[0, 1, 0]`` for counts ``[2, 1]``."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(len(which)) - (np.cumsum(counts) - counts)[which]


def by_group(groups: Any) -> Iterator[tuple[int, Any]]:
    """Yield each distinct group number, and the mask of its rows. ``groups``: the group number of each row."""
    if len(groups):
        least = groups.min()
        for number in distinct(groups - least)[0].tolist():
            yield int(number + least), groups == number + least


def milliseconds(times: Any) -> Any:
    """Return times of a file (u64, epoch ms) as signed numbers, limited to `LAST_TIME`."""
    return np.minimum(times, LAST_TIME).astype(np.int64)


def _bits(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def integers(values: Any, type_: str, valid: Any = None) -> Any:
    """Return numbers as an Arrow array of ``type_``, with null where the mask ``valid`` is false."""
    data = np.require(values, np.int32 if type_ == INT else np.int64, "C")
    return pa.Array.from_buffers(
        TYPES[type_], len(data), [None if valid is None else _bits(valid), pa.py_buffer(data)]
    )


def timestamps(values: Any, valid: Any = None) -> Any:
    """Return timestamps from epoch ms, null for rows that are not ``valid``; without ``valid``: null for the time 0."""
    if valid is None:
        valid = values != 0
    if not valid.any():
        return pa.nulls(len(values), TYPES[TIMESTAMP])
    return integers(milliseconds(values) * 1000, TIMESTAMP, None if valid.all() else valid)


def booleans(values: Any) -> Any:
    """Return an Arrow array of booleans: true for numbers other than 0."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def fixed_rows(data: Any, width: int, starts: Any) -> Any:
    """Return a row of ``width`` bytes for each position in ``starts``. ``data`` is an array of bytes.

    numpy copies whole rows from a view of overlapping items, which is several times as fast as byte by byte.
    """
    if not width:
        return np.empty((len(starts), 0), np.uint8)
    windows: Any = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    return windows[starts].view(np.uint8).reshape(len(starts), width)


def indices(values: Any) -> Any:
    """Return positions as an Arrow array, for ``take``."""
    return integers(values, LONG)


def rows_where(wanted: Any, batch: Any) -> Any:
    """Return the rows of a record batch that the mask ``wanted`` selects."""
    return batch if np.all(wanted) else batch.filter(booleans(wanted))


def slices(data: Any, starts: Any, stops: Any, pick: Any) -> Any:
    """Return pieces of ``data`` (a buffer of Arrow) as binary values. ``pick``: indices of the pieces to return.

    ``starts`` and ``stops``: bounds of all pieces, ascending, at most 2 GiB from first to last. In an array over
    ``data`` pieces and the gaps between them alternate, so that ``take`` copies only the picked pieces.
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
    """Return strings from UTF-8. Invalid bytes become U+FFFD."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = np.array([value is not None for value in values], bool)
    buffers = _bits(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(filter(None, values)))
    return as_strings(pa.Array.from_buffers(pa.binary(), len(values), buffers))


def integers_of(column: Any, type_: Any) -> Any:
    """Return a numpy view of the values of a column without nulls. A time is a number of microseconds."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(0, type_)
    return np.frombuffer(data, type_)[column.offset : column.offset + len(column)]


def offsets_of(column: Any) -> Any:
    """Return the offsets of a column of texts, lists or maps: the beginning of each value, and the end of the last."""
    found: Any = np.frombuffer(column.buffers()[1], np.int32)
    return found[column.offset : column.offset + len(column) + 1]


def as_strings(array: Any, null_if_empty: bool = False) -> Any:
    """Return binary or string values as strings. Invalid bytes become U+FFFD.

    ``null_if_empty``: whether an empty value becomes null.
    """
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
    """Return the name of each number, null for unknown numbers."""
    unique, which = distinct(ids)
    return strings(
        [names[number].encode("utf-8", "replace") if number in names else None for number in unique.tolist()]
    ).take(indices(which))


def distinct(ids: Any) -> tuple[Any, Any]:
    """Return the distinct numbers ascending, and for each given number its index among them."""
    if not len(ids) or ids.min() < 0 or ids.max() > _LOOKUP_LIMIT:
        return np.unique(ids, return_inverse=True)  # type: ignore[no-any-return]
    there = np.bincount(ids) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[ids]


_ESCAPE = re.compile(rb"\\([nrc\\])")
_MEANINGS = {b"n": b"\n", b"r": b"\r", b"c": b":", b"\\": b"\\"}
_LINE_FEED, _COLON, _BACKSLASH = b"\n:\\"

#: Number of blocks in the sample that decides whether equal blocks are frequent.
_SAMPLE = 256

#: Minimum number of blocks with one layout: for fewer blocks, parsing is faster than copying by the layout.
_COMMON = 64

#: Number of layouts tried for the blocks of one length, and the maximum length of a block with a layout in bytes.
_LAYOUTS, _LONGEST = 8, (1 << 16) - 1

#: Bytes of blocks compared with a layout in one operation.
_COMPARED = 1 << 13

#: Maximum number of distinct header names, and of lines in a message, for a fast check for repeated names: each name is
#: a bit of an integer, and the sum of a message's bits equals their OR if no name is repeated.
_BITS, _MOST_LINES = 40, 1 << 20


def header_maps(data: Any, starts: Any, stops: Any, pick: Any) -> Any:
    """Return a map from header name to value for each block in ``pick``. A repeated name has its first value.

    ``data``: a buffer of Arrow. ``starts`` and ``stops``: ascending byte offsets of all blocks of header lines.
    ``pick``: indices of blocks, which may be repeated.
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
    """The positions of names and values in all blocks of one length that differ only in their values."""

    def __init__(self, block: Any) -> None:
        """``block`` is an array of bytes."""
        text = block.tobytes()
        places: dict[bytes, slice] = {}  # position of each value in a block, by name
        end = -1
        for line in text.removesuffix(b"\n").split(b"\n") if text else ():
            name, _, after = line.partition(b":")
            end += len(line) + 1
            name = _unescaped_one(name).decode("utf-8", "replace").encode()
            # The second value of a repeated name is not used: it counts as a fixed part of the layout.
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
        """Return a mask of the blocks with this layout and without escapes, and the values in the selected blocks.

        ``blocks``: a row of bytes for each block.
        """
        fits = self._same(blocks)
        values = self._copied(blocks if fits.all() else blocks[fits])
        text = values.tobytes()
        if b"\n" in text or b"\\" in text:
            plain = ~((values == _LINE_FEED) | (values == _BACKSLASH)).any(axis=1)
            fits[fits], values = plain, values[plain]
        return fits, values

    def _same(self, blocks: Any) -> Any:
        """Return a mask of the blocks whose bytes outside of the values are those of the layout.

        One numpy operation compares many blocks.
        """
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
        """Return the bytes of all values of each block as a row.

        The values are fields of a structured array: numpy copies them in one pass over the blocks.
        """
        if not self._values:
            return np.empty((len(blocks), 0), np.uint8)
        names = [f"{value.start}" for value in self._values]
        kinds = [f"V{value.stop - value.start}" for value in self._values]
        positions = [value.start for value in self._values]
        given = np.dtype({"names": names, "formats": kinds, "offsets": positions, "itemsize": self._size})
        values = blocks.view(given)[:, 0].astype(list(zip(names, kinds, strict=True)))
        return values.view(np.uint8).reshape(len(blocks), -1)


class _Copied:
    """Blocks with a layout. ``layouts`` has the number of each block's layout, -1 for a block that must be parsed."""

    def __init__(self, data: Any, starts: Any, stops: Any) -> None:
        self.layouts = np.full(len(starts), -1, np.int32)
        # an item for each layout: the layout, the indices of its blocks, and the values in each of these blocks
        self._found: list[tuple[_Layout, Any, Any]] = []
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
                fits[0] = True  # do not try the first block again, even if its escapes prevent a layout
                if fits.all():
                    break
                blocks, positions = blocks[~fits], positions[~fits]

    def maps(self) -> Any:
        """Return a map for each block with a layout, in the order of the blocks."""
        layouts = self.layouts[self.layouts >= 0]
        lines = _begins([layout.lines for layout, _, _ in self._found], layouts)
        names = [
            (np.broadcast_to(layout.names, (len(positions), len(layout.names))), layout.name_ends)
            for layout, positions, _ in self._found
        ]
        values = [(values, layout.value_ends) for layout, _, values in self._found]
        return _maps(lines, *(self._texts(parts, lines, layouts) for parts in (names, values)))

    def _texts(self, parts: list[tuple[Any, Any]], lines: Any, layouts: Any) -> Any:
        """Return all names, or all values, as strings. ``parts``: for each layout, rows with the bytes of its blocks,
        and the end of each text in such a row. ``lines``: index of the first line of each block."""
        begins = _begins([rows.shape[1] for rows, _ in parts], layouts)
        if len(parts) == 1:  # the blocks of the only layout are consecutive
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
    """Return strings from their joined bytes and the end of each. Pure ASCII needs no check for valid UTF-8."""
    text = letters.tobytes()
    type_ = pa.string() if text.isascii() else pa.binary()
    return as_strings(
        pa.Array.from_buffers(type_, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    )


def _by_size(sizes: Any) -> Iterator[tuple[int, Any]]:
    """Yield each frequent length of blocks, and the indices of the blocks of that length."""
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
    """Copy rows into ``out``, each to its position in ``starts``."""
    if rows.shape[1]:
        kind = f"V{rows.shape[1] * out.itemsize}"
        windows = np.ndarray((len(out) - rows.shape[1] + 1,), kind, out, 0, (out.itemsize,))
        windows[starts] = np.require(rows, out.dtype, "C").view(kind)[:, 0]


# ---- blocks that are parsed


def _parsed_once(blocks: Any, which: Any) -> Any:
    """Parse blocks, and return the map of each block in ``which`` (indices). Parse frequent equal blocks only once."""
    sample = blocks[:: max(1, len(blocks) // _SAMPLE)].to_pylist()
    if len(set(sample)) * 2 <= len(sample):  # equal blocks are frequent
        coded = blocks.dictionary_encode()
        return _parsed(coded.dictionary).take(indices(integers_of(coded.indices, np.int32)[which]))
    maps = _parsed(blocks)
    return maps if len(which) == len(blocks) else maps.take(indices(which))


def _parsed(blocks: Any) -> Any:
    joined, ends = _joined(blocks)
    letters: Any = np.frombuffer(joined, np.uint8)
    marks = np.flatnonzero((letters == _LINE_FEED) | (letters == _COLON))
    is_end = letters[marks] == _LINE_FEED
    stops = marks[is_end]
    starts = np.append(0, stops + 1)[:-1]
    first = np.append(True, is_end)[:-1]  # whether a mark (colon, line end) is the first one in its line
    middles = marks[first]  # the first colon of each line, or the end of a line without a colon
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
    """Return maps of names to values. ``bounds`` has the first line of each map, and the end of the last map."""
    return pa.MapArray.from_arrays(integers(bounds, INT), names, values)


def _joined(blocks: Any) -> tuple[Any, Any]:
    """Return all blocks in one buffer, and the end of each. A missing last line feed of a block is added."""
    buffer = blocks.buffers()[2] or pa.py_buffer(b"")
    offsets = offsets_of(blocks)
    letters: Any = np.frombuffer(buffer, np.uint8)
    filled = np.diff(offsets) > 0
    if offsets[0] == 0 and (letters[offsets[1:][filled] - 1] == _LINE_FEED).all():
        return buffer.slice(0, int(offsets[-1])), offsets[1:].astype(np.int64)
    lines = [each if each.endswith(b"\n") or not each else each + b"\n" for each in blocks.to_pylist()]
    return pa.py_buffer(b"".join(lines)), np.cumsum([len(each) for each in lines])


def _unescaped(pieces: Any, which: Any) -> Any:
    """Replace escapes in the pieces with the indices ``which``, and return all pieces."""
    plain = strings(list(map(_unescaped_one, pieces.take(indices(which)).to_pylist()))).cast(pa.binary())
    positions = np.arange(len(pieces))
    positions[which] = len(pieces) + np.arange(len(which))
    return pa.concat_arrays([pieces, plain]).take(indices(positions))


def _unescaped_one(piece: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: _MEANINGS[found[1]], piece)


def _first_ones(names: Any, bounds: Any) -> Any:
    """Return the indices of the lines whose name has not occurred earlier in their block, None if these are all lines.

    ``bounds``: first line of each block, and end of the last block.
    """
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
