"""Blocks of header lines to maps, beside a reader that takes line after line."""

import pytest

pytest.importorskip("pyspark")

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stompring.store.record import framed
from stompring.store.segment import JOURNAL, pack_header

from ..property.profile import examples
from .test_messages import NAMES, message, rows

ESCAPES = ((b"\\n", b"\n"), (b"\\r", b"\r"), (b"\\c", b":"), (b"\\\\", b"\\"))


def one_by_one(block):
    """The first value of each name; a line without a colon is a name without a value."""
    found = {}
    for line in block.removesuffix(b"\n").split(b"\n") if block else []:
        name, _, value = line.partition(b":")
        found.setdefault(unescaped(name), unescaped(value))
    return found


def unescaped(text):
    plain, at = b"", 0
    while at < len(text):
        two = text[at : at + 2]
        meaning = dict(ESCAPES).get(two)
        plain += text[at : at + 1] if meaning is None else meaning
        at += 1 if meaning is None else 2
    return plain.decode("utf-8", "replace")


def maps(blocks, pick):
    """Of messages with these blocks; a message is in as many queues as ``pick`` has its block. What many blocks have in
    common is made of all at once: so it is done with few of them and with many."""
    queues = Counter(pick)
    found = []
    for times in (1, 64):
        parts = [
            message(number, [*range(1, 1 + queues[place])], block)
            for number, (place, block) in enumerate([*enumerate(blocks)] * times, 1)
            if queues[place]
        ]
        data = pack_header(JOURNAL, 1, 1) + b"".join(map(framed, [*NAMES, *parts]))
        every = [row["headers"] for row in rows(data, columns="headers")]
        assert every == every[: len(pick)] * times
        found.append(every[: len(pick)])
    assert found[0] == found[1]
    return found[0]


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
def test_cases(blocks):
    every = list(range(len(blocks)))
    assert maps(blocks, every) == [one_by_one(block) for block in blocks]
    twice = sorted(every * 2)
    assert maps(blocks, twice) == [one_by_one(blocks[place]) for place in twice]


pieces = st.sampled_from(
    [b"a", b"b", b"name", b"\n", b"\n", b":", b":", b"\\", b"\\n", b"c", b"\xc3\xa9", b"\xff"]
)
blocks_of_pieces = st.lists(st.lists(pieces, max_size=14).map(b"".join), min_size=1, max_size=8)


#: A few names, as devices send them.
blocks_of_devices = st.lists(
    st.lists(
        st.tuples(st.sampled_from([b"id", b"kind", b"at", b"b\\c"]), st.integers(0, 99)), max_size=4
    ).map(lambda lines: b"".join(b"%b:%d\n" % line for line in lines)),
    min_size=1,
    max_size=40,
)


@examples(160)
@given(blocks_of_pieces | blocks_of_devices, st.integers(1, 3), st.integers(1, 3))
def test_any_blocks(blocks, times, queues):
    blocks = blocks * times
    pick = [place for place in range(len(blocks)) for _ in range(queues)]
    assert maps(blocks, pick) == [one_by_one(blocks[place]) for place in pick]


# ---- blocks that look alike


def test_a_layout_holds_whatever_the_values_are():
    """Blocks of one length: with a colon, a line end or an escape where others have a part of a value."""
    same = [b"id:%04d\nkind:a\n" % number for number in range(100)]
    odd = [b"id:1:34\nkind:a\n", b"id:1\n:4\nkind:a\n", b"id:1\\n4\nkind:a\n", b"id:12\nkind:aaa\n"]
    odd += [b"x" * 15, b"id:\\n34\nkind:a\n"]
    for blocks in (same[:50] + odd + same[50:], odd[-1:] + same):  # the first of many has an escape
        assert {len(block) for block in blocks} == {15}
        assert maps(blocks, list(range(len(blocks)))) == [one_by_one(block) for block in blocks]


def test_layouts_of_one_length_and_of_several_are_put_in_order():
    blocks = []
    for number in range(300):
        blocks.append(
            [
                b"id:%d\nplace:north\n" % number,
                b"id:%d\nplace:north\nid:again\n" % number,
                b"no:%d\nplace:south\n" % number,
                b"\xc3\xa4:%d\nb\\c:c%d\n" % (number, number),
                b"",
                b"alone:%s\n" % (b"x" * number),
                b"bytes:\xff%03d\n" % number,
            ][number * number % 7]
        )
    pick = sorted([*range(300), *range(0, 300, 3)])
    assert maps(blocks, pick) == [one_by_one(blocks[place]) for place in pick]
