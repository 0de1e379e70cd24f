"""Header lines to maps, for all messages of a batch at once.

Blocks of lines that many messages have in common are taken apart once. All others are looked through as one text: where
its lines end, and where the first colon of each is. No Python object is made for a line, but for one with escapes.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import TYPES, as_text, indices, slots, texts
from stompring.pipeline.schema import HEADERS

_ESCAPE = re.compile(rb"\\([nrc\\])")
_MEANINGS = {b"n": b"\n", b"r": b"\r", b"c": b":", b"\\": b"\\"}
_LINE_FEED, _COLON, _BACKSLASH = b"\n:\\"

#: How many blocks are compared to know whether messages have the same ones.
_SAMPLE = 256

#: Different names of headers, and lines of a message, up to which a bit for each name tells of one that is there twice.
_BITS, _MOST_LINES = 40, 1 << 20


def header_maps(data: Any, starts: Any, stops: Any, pick: Any) -> Any:
    """A map for each block that ``pick`` says: from name to value, of a name that is there twice the first value.

    ``data`` is a buffer of Arrow; blocks stand one after the other in it, other things between them.
    """
    blocks = slots(data, starts, stops, np.arange(len(starts)))
    if _are_alike(blocks):
        coded = blocks.dictionary_encode()
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32)[: len(blocks)]
        return _parsed(coded.dictionary).take(indices(codes[pick]))
    maps = _parsed(blocks)
    return (
        maps if len(pick) == len(blocks) else maps.take(indices(pick))
    )  # pick ascends, and leaves nothing out


def _are_alike(blocks: Any) -> bool:
    """Whether many messages have the same headers, as far as a sample tells."""
    sample = blocks[:: max(1, len(blocks) // _SAMPLE)].to_pylist()
    return len(set(sample)) * 2 <= len(sample)


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
    names = slots(joined, starts, middles, np.arange(len(stops)))
    values = slots(joined, np.minimum(middles + 1, stops), stops, np.arange(len(stops)))
    if b"\\" in joined.to_pybytes():
        lines = np.unique(np.searchsorted(stops, np.flatnonzero(letters == _BACKSLASH)))
        names, values = _unescaped(names, lines), _unescaped(values, lines)
    names, values = as_text(names), as_text(values)
    bounds = np.append(0, np.searchsorted(stops, ends))
    kept = _first_ones(names, bounds)
    if kept is not None:
        names, values = names.take(indices(kept)), values.take(indices(kept))
        bounds = np.searchsorted(kept, bounds)
    offsets = pa.Array.from_buffers(pa.int32(), len(bounds), [None, pa.py_buffer(bounds.astype(np.int32))])
    maps = pa.MapArray.from_arrays(offsets, names, values)
    return maps if maps.type == TYPES[HEADERS] else maps.cast(TYPES[HEADERS])


def _joined(blocks: Any) -> tuple[Any, Any]:
    """All blocks in one buffer, and where each of them ends. Every line ends with a line feed then."""
    buffer = blocks.buffers()[2] or pa.py_buffer(b"")
    offsets: Any = np.frombuffer(blocks.buffers()[1], np.int32)[
        blocks.offset : blocks.offset + len(blocks) + 1
    ]
    letters: Any = np.frombuffer(buffer, np.uint8)
    filled = np.diff(offsets) > 0
    if offsets[0] == 0 and (letters[offsets[1:][filled] - 1] == _LINE_FEED).all():
        return buffer.slice(0, int(offsets[-1])), offsets[1:].astype(np.int64)
    lines = [each if each.endswith(b"\n") or not each else each + b"\n" for each in blocks.to_pylist()]
    return pa.py_buffer(b"".join(lines)), np.cumsum([len(each) for each in lines])


def _unescaped(pieces: Any, which: Any) -> Any:
    """With the letters that escapes mean, in those pieces that have some."""
    given = pieces.take(indices(which)).to_pylist()
    plain = texts([_ESCAPE.sub(lambda found: _MEANINGS[found[1]], one) for one in given]).cast(pa.binary())
    places = np.arange(len(pieces))
    places[which] = len(pieces) + np.arange(len(which))
    return pa.concat_arrays([pieces, plain]).take(indices(places))


def _first_ones(names: Any, bounds: Any) -> Any:
    """The lines whose name no line of the same block before has; None where that are all. ``bounds`` of blocks."""
    if not len(names):
        return None
    coded = names.dictionary_encode()
    codes = np.frombuffer(coded.indices.buffers()[1], np.int32)[: len(names)]
    counts = np.diff(bounds)
    if len(coded.dictionary) <= _BITS and counts.max() < _MOST_LINES:
        bits = (np.uint64(1) << codes.astype(np.uint64)).astype(np.uint64)
        begins = bounds[:-1][counts > 0]
        if (np.add.reduceat(bits, begins) == np.bitwise_or.reduceat(bits, begins)).all():
            return None
    owners = np.repeat(np.arange(len(counts)), counts)
    first: Any = np.unique(owners * len(coded.dictionary) + codes, return_index=True)[1]
    first.sort()
    return None if len(first) == len(codes) else first
