"""Arrow arrays from buffers, without a Python object for each value.

Not ``pa.array``: it imports pandas where that is installed, which costs each new worker of Spark up to a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.pipeline.schema import BINARY, BOOLEAN, HEADERS, INT, LONG, STRING, TABLES, TIMESTAMP

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


def arrow_schema(table: str, names: Sequence[str]) -> Any:
    """The schema of some columns of a table."""
    return pa.schema([pa.field(name, TYPES[TABLES[table][name]]) for name in names])


def milliseconds(times: Any) -> Any:
    """Times of a file (u64) as signed numbers, none beyond the year 9999."""
    return np.minimum(times, LAST_TIME).astype(np.int64)


def _bits(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _validity(valid: Any) -> Any:
    return None if valid is None else _bits(valid)


def integers(values: Any, type_: str, valid: Any = None) -> Any:
    """Numbers of one type; null where ``valid`` is given and not true."""
    data = np.require(values, np.int32 if type_ == INT else np.int64, "C")
    return pa.Array.from_buffers(TYPES[type_], len(data), [_validity(valid), pa.py_buffer(data)])


def timestamps(values: Any, valid: Any = None) -> Any:
    """Points in time, from milliseconds since the epoch; those that are 0 are null where ``valid`` is not given."""
    if valid is None:
        valid = values != 0
    if not valid.any():
        return nulls(TIMESTAMP, len(values))
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
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data.slice(base)])
    return every.take(indices(np.asarray(pick) * 2))


def strings(values: Sequence[bytes | None]) -> Any:
    """Strings of UTF-8; what is none is shown with the sign for that."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = np.array([value is not None for value in values], bool)
    joined = b"".join(value or b"" for value in values)
    array = pa.Array.from_buffers(
        pa.binary(), len(values), [_bits(valid), pa.py_buffer(offsets), pa.py_buffer(joined)]
    )
    return as_strings(array)


def as_strings(array: Any, null_if_empty: bool = False) -> Any:
    """Binary values, or strings, as strings."""
    try:
        text = array.cast(pa.string())
    except pa.ArrowInvalid:
        given = array.to_pylist()
        text = strings([None if one is None else one.decode("utf-8", "replace").encode() for one in given])
    if not null_if_empty or not len(text):
        return text
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1]
    filled = np.diff(offsets) > 0
    if text.offset or filled.all():
        return text
    return pa.Array.from_buffers(pa.string(), len(text), [_bits(filled), *text.buffers()[1:]])


def names_of(ids: Any, names: dict[int, str]) -> Any:
    """A name for each number, null for one that is not known."""
    unique, which = distinct(ids)
    known = [names.get(number) for number in unique.tolist()]
    return strings([None if name is None else name.encode("utf-8", "replace") for name in known]).take(
        indices(which)
    )


def distinct(ids: Any) -> tuple[Any, Any]:
    """The different numbers, and which of them each is. Small ones, as ids are, need not be sorted for that."""
    if not len(ids) or ids.min() < 0 or ids.max() > _LOOKUP_LIMIT:
        return np.unique(ids, return_inverse=True)  # type: ignore[no-any-return]
    there = np.bincount(ids) > 0
    unique = np.flatnonzero(there)
    return unique, (np.cumsum(there) - 1)[ids]


def nulls(type_: str, count: int) -> Any:
    """A column without values."""
    return pa.nulls(count, TYPES[type_])
