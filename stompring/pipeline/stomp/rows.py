"""A MESSAGE frame as a record of the spool, and records of the spool as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import TYPES, as_text, slots, times
from stompring.pipeline.headers import header_maps
from stompring.pipeline.schema import BINARY, HEADERS, STRING, TIMESTAMP
from stompring.pipeline.stomp.spool import Piece, payload_spans, read_piece
from stompring.stomp.frames import Head, header_line

#: Column and type, as Spark's DDL names it.
COLUMNS = {
    "destination": STRING,
    "message_id": STRING,
    "timestamp": TIMESTAMP,
    "received": TIMESTAMP,
    "headers": HEADERS,
    "body": BINARY,
}

#: timestamp, received (epoch ms, 0 for none), then the lengths of destination, message id, header lines and body
FIXED = Struct("<QQIIII")

LAYOUT = np.dtype(
    [
        ("timestamp", "<u8"),
        ("received", "<u8"),
        *((name, "<u4") for name in ("destination", "message_id", "headers", "body")),
    ]
)

#: Rows of a batch.
ROWS = 1 << 14

#: Columns of their own, or of meaning to one connection only.
_OMITTED = frozenset({b"destination", b"message-id", b"subscription", b"ack", b"content-length"})


def to_record(head: Head, body: bytes, received: int) -> bytes:
    """The payload of a record. ``received`` is epoch ms."""
    headers = head.headers
    destination, identifier = headers.get(b"destination", b""), headers.get(b"message-id", b"")
    sent = headers.get(b"timestamp", b"")
    kept = [item for item in headers.items() if item[0] not in _OMITTED]
    if head.block:  # nothing in it is escaped
        lines = b"".join([b"%b:%b\n" % item for item in kept])
    else:
        lines = b"".join([header_line(name, value) for name, value in kept])
    timestamp = int(sent) if sent.isdigit() and len(sent) < 16 else 0
    fixed = FIXED.pack(timestamp, received, len(destination), len(identifier), len(lines), len(body))
    return b"".join((fixed, destination, identifier, lines, body))


def read_rows(directory: Path, pieces: Iterable[Piece], columns: Sequence[str]) -> Iterator[Any]:
    """Record batches of some pieces of a spool. Raises `SpoolError`, `OSError`."""
    for piece in pieces:
        data = read_piece(directory, piece)
        spans = payload_spans(data, piece, directory)
        for at in range(0, len(spans), ROWS):
            yield _batch(data, spans[at : at + ROWS], columns)


def _batch(data: bytes, spans: list[tuple[int, int]], columns: Sequence[str]) -> Any:
    schema = pa.schema([pa.field(name, TYPES[COLUMNS[name]]) for name in columns])
    rows = _Rows(data, np.array(spans, np.int64)[:, 0])
    return pa.RecordBatch.from_arrays([MAKERS[name](rows) for name in columns], schema=schema)


class _Rows:
    """Some records: their fixed fields, and where their parts are."""

    def __init__(self, data: bytes, begins: Any) -> None:
        self.data = data
        self.buffer = pa.py_buffer(data)
        self.every = np.arange(len(begins))
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), LAYOUT.itemsize)
        self.fixed = windows[begins].view(LAYOUT)[:, 0]
        self.places: dict[str, tuple[Any, Any]] = {}
        at = begins + FIXED.size
        for name in ("destination", "message_id", "headers", "body"):
            end = at + self.fixed[name]
            self.places[name] = at, end
            at = end

    def bytes_of(self, name: str) -> Any:
        """One of the parts, as binary values."""
        return slots(self.buffer, *self.places[name], self.every)

    def text_of(self, name: str) -> Any:
        """One of the parts, null where it is empty."""
        return as_text(self.bytes_of(name), null_if_empty=True)


MAKERS: dict[str, Callable[[_Rows], Any]] = {
    "destination": lambda rows: rows.text_of("destination"),
    "message_id": lambda rows: rows.text_of("message_id"),
    "timestamp": lambda rows: times(rows.fixed["timestamp"]),
    "received": lambda rows: times(rows.fixed["received"]),
    "headers": lambda rows: header_maps(pa.py_buffer(rows.data), *rows.places["headers"], rows.every),
    "body": lambda rows: rows.bytes_of("body"),
}
