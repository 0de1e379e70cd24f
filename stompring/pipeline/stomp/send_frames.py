"""Record batches to SEND frames: the columns of a batch become one buffer of bytes, without a Python object for a row.

Each part of a frame is a column of its own (destination, headers, length, body), made by functions of Arrow, and they
are joined row by row: the bytes of what comes out are what goes to the socket. What must be escaped is looked for in
the whole column, and escaped only where it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stompring.pipeline.arrays import as_strings, indices, integers, strings
from stompring.pipeline.options import OptionError
from stompring.pipeline.schema import LONG
from stompring.pipeline.stomp.options import SinkOptions
from stompring.stomp.frames import header_line

#: Bytes of bodies that are encoded at once, about.
PIECE_BYTES = 4 << 20

TRANSACTION = "1"

_ESCAPES = ((b"\\", b"\\\\"), (b":", b"\\c"), (b"\n", b"\\n"), (b"\r", b"\\r"))

#: Headers of a row that are not sent: the sink writes them itself, or they are of frames that come from a broker.
OMITTED_HEADERS = (
    *("destination", "content-length", "receipt", "transaction", "persistent"),
    *("message-id", "subscription", "ack", "redelivered", "timestamp"),
)

#: Column, what it must be, and how Arrow knows that.
COLUMNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "body": ("binary or string", lambda kind: _is_bytes(kind) or _is_text(kind)),
    "headers": (
        "map<string,string>",
        lambda kind: pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type),
    ),
    "destination": ("string", lambda kind: _is_text(kind)),
    "priority": ("an integer", lambda kind: pa.types.is_integer(kind)),
    "expires": (
        "timestamp or bigint (milliseconds since the epoch)",
        lambda kind: pa.types.is_timestamp(kind) or pa.types.is_int64(kind),
    ),
    "dedup_id": ("string", lambda kind: _is_text(kind)),
}


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def check_columns(schema: Any, options: SinkOptions) -> None:
    """Raises `ValueError` for a schema (of Arrow) that cannot be sent, `OptionError` where an option is missing."""
    for field in schema:
        if field.name not in COLUMNS:
            raise ValueError(f"column {field.name}: unknown column; columns are {', '.join(COLUMNS)}")
        what, fits = COLUMNS[field.name]
        if not fits(field.type):
            raise ValueError(f"column {field.name}: must be {what}, not {field.type}")
    names = set(schema.names)
    if "body" not in names:
        raise ValueError("column body: is required")
    if len(names) < len(schema.names):
        raise ValueError("two columns have the same name")
    if "destination" not in names and options.destination is None:
        raise OptionError("destination", "is required without a column destination")
    if "dedup_id" in names and options.dedup_header is None:
        raise OptionError("dedupHeader", "must name a header with a column dedup_id")


class SendEncoder:
    """Encodes rows of one task. ``prefix`` begins their duplicate ids, the number of the row ends them; None: none.

    ``omitted`` are headers of rows that are not sent, beside those that never are.
    """

    def __init__(self, options: SinkOptions, prefix: str | None, omitted: Iterable[str] = ()) -> None:
        self._options = options
        self._prefix = prefix
        self._omitted = frozenset({*OMITTED_HEADERS, *omitted, *filter(None, [options.dedup_header])})

    def pieces(self, batch: Any, first: int, transaction: bool) -> Iterator[tuple[Any, int]]:
        """Frames of a batch whose first row is the task's row ``first``, as buffers with the number of their rows."""
        at = 0
        while at < len(batch):
            count = self.fitting(batch, at)
            yield self.encode(batch.slice(at, count), first + at, transaction=transaction), count
            at += count

    def encode(self, batch: Any, first: int, *, transaction: bool = False, receipt: str | None = None) -> Any:
        """All of a batch as one buffer. ``receipt`` is asked for by each frame: give a single row with it."""
        return data_of(self.frames(batch, first, transaction=transaction, receipt=receipt))

    def frames(
        self,
        batch: Any,
        first: int,
        *,
        transaction: bool = False,
        receipt: str | None = None,
        lines: Iterable[Any] = (),
    ) -> Any:
        """A frame for each row, as binary values. ``lines`` are columns of header lines, without any for null."""
        lead = b"SEND\n"
        if transaction:
            lead += header_line(b"transaction", TRANSACTION.encode())
        if receipt is not None:
            lead += header_line(b"receipt", receipt.encode())
        if self._options.persistent:
            lead += b"persistent:true\n"
        columns = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        body = _as_binary(columns["body"])
        parts: list[Any] = [lead, self._destination(columns.get("destination"), first)]
        if "priority" in columns:
            parts.append(header_lines(b"priority", columns["priority"].cast(pa.string()).cast(pa.binary())))
        if "expires" in columns:
            parts.append(header_lines(b"expires", _milliseconds(columns["expires"])))
        parts += [self._identifier(columns.get("dedup_id"), first, len(batch))]
        if "headers" in columns:
            parts.append(self._headers(columns["headers"], columns))
        parts += [*lines, b"content-length:", _lengths(body), b"\n\n", body, b"\0\n"]
        return _concatenated(*[part for part in parts if part is not None], nulls="replace")

    @staticmethod
    def fitting(batch: Any, at: int) -> int:
        """How many rows from one on make a piece."""
        count = min(len(batch) - at, 1 << 16)
        body = batch.column(batch.schema.get_field_index("body")).slice(at, count)
        ends = np.cumsum(_sizes(body))
        return max(1, int(np.searchsorted(ends, PIECE_BYTES)))

    # ---- parts

    def _destination(self, column: Any, first: int) -> Any:
        option = self._options.destination
        constant = None if option is None else header_line(b"destination", option.encode())
        if column is None:
            return constant
        if column.null_count and constant is None:
            row = first + int(np.flatnonzero(_bits(column.is_null()))[0])
            raise ValueError(f"column destination: is null in row {row}, and option destination is not given")
        line = header_lines(b"destination", _escaped(_as_binary(column), "destination"))
        return line if constant is None else _coalesce(line, constant)

    def _identifier(self, column: Any, first: int, count: int) -> Any:
        header = self._options.dedup_header
        if header is None or (column is None and self._prefix is None):
            return None
        own = None if column is None else _escaped(_as_binary(column), "dedup_id")
        made = None
        if self._prefix is not None:
            lead = header_line(header.encode(), f"{self._prefix}-".encode())[:-1]
            rows = integers(np.arange(first, first + count), LONG).cast(pa.string()).cast(pa.binary())
            made = _concatenated(lead, rows, b"\n")
        if own is None:
            return made
        line = header_lines(header.encode(), own)
        return line if made is None else _coalesce(line, made)

    def _headers(self, column: Any, columns: dict[str, Any]) -> Any:
        """The lines of each row's map."""
        low, high = _range(column)
        names = _as_binary(column.keys.slice(low, high - low))
        values = _as_binary(column.items.slice(low, high - low))
        omitted = self._omitted | {name for name in ("priority", "expires") if name in columns}
        keep = ~_is_in(names, omitted) & _bits(values.is_valid())
        lines = _concatenated(
            _escaped(names, "headers"), b":", _escaped(values, "headers"), b"\n", nulls="replace"
        )
        offsets = _offsets(column) - low
        if not keep.all():
            lines = lines.take(indices(np.flatnonzero(keep)))
            offsets = np.append(0, np.cumsum(keep))[offsets].astype(np.int32)
        begins = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
        return pc.binary_join(pa.ListArray.from_arrays(begins, lines), _constant(b""))


# ---- columns


def _constant(data: bytes) -> Any:
    """The same in each row. Not given as bytes: Arrow would import pandas to see what that is."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])[0]


def _concatenated(*parts: Any, nulls: str = "emit_null") -> Any:
    """Arrays and constants, one behind the other in each row; with ``replace`` null is nothing, else all is null."""
    values = [_constant(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*values, _constant(b""), null_handling=nulls)


def _as_binary(column: Any) -> Any:
    """As binary with 32-bit offsets."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def header_lines(name: bytes, values: Any) -> Any:
    """A header line for each value (binary, escaped where it must be), null for null."""
    return _concatenated(header_line(name, b"")[:-1], values, b"\n")


def _escaped(values: Any, column: str) -> Any:
    data = data_of(values).to_pybytes()
    if b"\0" in data:
        raise ValueError(f"column {column}: NUL is not allowed in a header")
    for plain, escape in _ESCAPES:
        if plain in data:
            values = pc.replace_substring(values, plain, escape)
    return values


def _coalesce(values: Any, other: Any) -> Any:
    """``other``, an array or bytes, where a value is null."""
    if not values.null_count:
        return values
    return pc.if_else(values.is_valid(), values, _constant(other) if isinstance(other, bytes) else other)


def _milliseconds(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.string()).cast(pa.binary())


def _lengths(body: Any) -> Any:
    return integers(_sizes(body), LONG).cast(pa.string()).cast(pa.binary())


def _sizes(body: Any) -> Any:
    """Bytes of each value, 0 for null."""
    sizes = np.diff(_offsets(_as_binary(body))).astype(np.int64)
    if body.null_count:
        sizes[_bits(body.is_null())] = 0
    return sizes


def _is_in(names: Any, some: frozenset[str]) -> Any:
    known = strings([name.encode() for name in sorted(some)])
    return _bits(pc.is_in(as_strings(names), value_set=known))


# ---- buffers


def _offsets(column: Any) -> Any:
    found: Any = np.frombuffer(column.buffers()[1], np.int32)
    return found[column.offset : column.offset + len(column) + 1]


def _range(column: Any) -> tuple[int, int]:
    offsets = _offsets(column)
    return int(offsets[0]), int(offsets[-1])


def data_of(values: Any) -> Any:
    low, high = _range(values)
    buffer = values.buffers()[2]
    return pa.py_buffer(b"") if buffer is None else buffer.slice(low, high - low)


def _bits(flags: Any) -> Any:
    """Booleans of Arrow as those of numpy."""
    buffer = flags.buffers()[1]
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
    return bits[flags.offset : flags.offset + len(flags)].astype(bool)
