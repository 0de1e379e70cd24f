"""Header lines to maps: each block of them is taken apart once, however many messages were sent with it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import TYPES, as_text, indices, slots, texts
from stompring.pipeline.schema import HEADERS

_ESCAPE = re.compile(rb"\\([nrc\\])")
_MEANINGS = {b"n": b"\n", b"r": b"\r", b"c": b":", b"\\": b"\\"}


def header_maps(data: bytes, starts: Any, stops: Any, pick: Any) -> Any:
    """A map for each block that ``pick`` says: from name to value, of a name that is there twice the first value."""
    seen: dict[bytes, int] = {}
    places = zip(starts.tolist(), stops.tolist(), strict=True)
    which = np.array([seen.setdefault(data[start:stop], len(seen)) for start, stop in places], np.int64)
    return _parsed(list(seen)).take(indices(which[pick]))


def _parsed(blocks: list[bytes]) -> Any:
    """A map for each block."""
    blocks = [block if block.endswith(b"\n") or not block else block + b"\n" for block in blocks]
    joined = b"".join(blocks)
    letters: Any = np.frombuffer(joined, np.uint8)
    stops = np.flatnonzero(letters == ord("\n"))
    starts = np.append(0, stops + 1)[:-1]
    owners = np.searchsorted(np.cumsum([len(block) for block in blocks]), stops, side="right")
    colons = np.append(np.flatnonzero(letters == ord(":")), len(joined))
    middles = np.minimum(colons[np.searchsorted(colons, starts)], stops)
    buffer, every = pa.py_buffer(joined), np.arange(len(stops))
    plain = b"\\" not in joined
    names = _text(slots(buffer, starts, middles, every), plain)
    values = _text(slots(buffer, np.minimum(middles + 1, stops), stops, every), plain)
    first = _first_ones(names, owners)
    if len(first) < len(owners):
        names, values, owners = names.take(indices(first)), values.take(indices(first)), owners[first]
    offsets = np.zeros(len(blocks) + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=len(blocks)), out=offsets[1:])
    begins = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    return pa.MapArray.from_arrays(begins, names, values).cast(TYPES[HEADERS])


def _text(array: Any, plain: bool) -> Any:
    if plain:
        return as_text(array)
    return texts([_ESCAPE.sub(lambda found: _MEANINGS[found[1]], one) for one in array.to_pylist()])


def _first_ones(names: Any, owners: Any) -> Any:
    """The lines whose name no line of the same block before has."""
    if not len(owners):
        return owners
    codes = names.dictionary_encode().indices
    numbers = np.frombuffer(codes.buffers()[1], np.int32)[codes.offset : codes.offset + len(codes)]
    pairs = owners.astype(np.int64) * (int(numbers.max()) + 1) + numbers
    first: Any = np.unique(pairs, return_index=True)[1]
    first.sort()
    return first
