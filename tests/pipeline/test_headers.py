"""Blocks of header lines to maps, beside a reader that takes line after line."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'stompring[spark]'")
pytest.importorskip("numpy", reason="numpy is not installed: pip install 'stompring[spark]'")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from stompring.pipeline.headers import header_maps

from ..property.profile import examples

ESCAPES = ((b"\\n", b"\n"), (b"\\r", b"\r"), (b"\\c", b":"), (b"\\\\", b"\\"))


def one_by_one(block: bytes) -> dict[str, str]:
    """The first value of each name; a line without a colon is a name without a value."""
    found: dict[str, str] = {}
    for line in block.removesuffix(b"\n").split(b"\n") if block else []:
        name, _, value = line.partition(b":")
        found.setdefault(unescaped(name), unescaped(value))
    return found


def unescaped(text: bytes) -> str:
    plain, at = b"", 0
    while at < len(text):
        two = text[at : at + 2]
        meaning = dict(ESCAPES).get(two)
        plain += text[at : at + 1] if meaning is None else meaning
        at += 1 if meaning is None else 2
    return plain.decode("utf-8", "replace")


def maps(blocks: list[bytes], pick: list[int]) -> list[dict[str, str]]:
    """With something else before, between and behind the blocks."""
    data, starts, stops = b"", [], []
    for block in blocks:
        data += b"be:fore\n"
        starts.append(len(data))
        data += block
        stops.append(len(data))
    found = header_maps(pa.py_buffer(data + b":behind\n"), np.array(starts), np.array(stops), np.array(pick))
    found.validate(full=True)
    assert all(len(dict(each)) == len(each) for each in found.to_pylist())
    return [dict(each) for each in found.to_pylist()]


@pytest.mark.parametrize(
    "blocks",
    [
        [b""],
        [b"", b"a:1\n", b""],
        [b"a:1\nb:2\n", b"a:1\nb:2\n", b"a:1\nb:2\n"],  # alike
        [b"a:1\nb:\n:c\nd\n", b"a:2\n"],
        [b"a:1\na:2\nb:3\na:4\n", b"a:5\nb:6\n"],
        [b"a:x:y\\c\\n\\\\n\n", b"a:plain\nb\\c:2\n"],
        [b"a:no end", b"b:2\n", b"c"],
        ["größe:5 €\n".encode(), b"bad:\xff\xfe\nb\xff:\n"],
        [b"".join(b"h%d:%d\n" % (n, n) for n in range(100)) + b"h7:twice\n", b"h1:1\n"],
    ],
)
def test_cases(blocks: list[bytes]) -> None:
    every = list(range(len(blocks)))
    assert maps(blocks, every) == [one_by_one(block) for block in blocks]
    twice = sorted(every * 2)
    assert maps(blocks, twice) == [one_by_one(blocks[place]) for place in twice]


pieces = st.sampled_from(
    [b"a", b"b", b"name", b"\n", b"\n", b":", b":", b"\\", b"\\n", b"c", b"\xc3\xa9", b"\xff"]
)
blocks_of_pieces = st.lists(st.lists(pieces, max_size=14).map(b"".join), min_size=1, max_size=8)


@examples(200)
@given(blocks_of_pieces, st.integers(1, 3), st.integers(1, 3))
def test_any_blocks(blocks: list[bytes], times: int, queues: int) -> None:
    blocks = blocks * times
    pick = [place for place in range(len(blocks)) for _ in range(queues)]
    assert maps(blocks, pick) == [one_by_one(blocks[place]) for place in pick]
