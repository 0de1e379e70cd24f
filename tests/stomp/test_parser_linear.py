"""Time grows with the number of bytes and not with its square, whatever the stream and the reads.

Only ratios are looked at: eight times the bytes may cost 24 times as much, which leaves room for a busy machine. What
is quadratic costs 64 times as much.
"""

import time

import pytest

from tests.stomp.reading import byte_by_byte, opened, pieces

BIG = 1 << 40


def in_reads(stream, size):
    return pieces(stream, range(size, len(stream), size))


def endless_line(size):
    return [byte_by_byte(b"SEND\nname:" + b"x" * size * 2000)]


def endless_headers(size):
    return [byte_by_byte(b"SEND\n" + b"name:value\n" * size * 200)]


def counted_body(size):
    length = size * 1_000_000
    return [in_reads(b"SEND\ncontent-length:%d\n\n" % length + bytes(length) + b"\0", 1000)]


def body_to_nul(size):
    return [in_reads(b"SEND\n\n" + b"x" * size * 1_000_000 + b"\0", 1000)]


def body_byte_by_byte(size):
    return [byte_by_byte(b"SEND\n\n" + b"x" * size * 10_000 + b"\0")]


def refused_frame(size):
    return [in_reads(b"SEND\nno colon\n\n" + b"x" * size * 1_000_000, 100)]


def line_ends(size):
    return [[b"\n\r\n" * size * 500_000], byte_by_byte(b"\r\n" * size * 2000)]


def frames_in_one_read(size):
    return [[b"SEND\na:b\n\nbody\0\n" * size * 1000], [b"SEND\r\na:b\r\n\r\nbody\0\r\n" * size * 1000]]


def styles_in_turn(size):
    turns = b"SEND\na:b\n\nbody\n\r\n\0" + b"SEND\r\na:b\r\n\r\nbody\n\n\0"
    blocks = b"SEND\na:b\n\n\0" * size * 500 + b"SEND\r\na:b\r\n\r\n\0" * size * 500
    return [[turns * size * 500], [blocks + blocks]]


def escapes(size):
    return [[b"SEND\nname:" + b"\\\\\\c" * size * 10_000 + b"\n\n\0"]]


def unique_heads(size):
    return [[b"".join(b"SEND\nid:%d\n\n\0" % number for number in range(size * 1000))]]


def reads_that_grow(size):
    stream = b"SEND\nname:" + b"x" * size * 1_000_000
    return [pieces(stream, [1 << power for power in range(len(stream).bit_length())])]


CASES = [
    endless_line,
    endless_headers,
    counted_body,
    body_to_nul,
    body_byte_by_byte,
    refused_frame,
    line_ends,
    frames_in_one_read,
    styles_in_turn,
    escapes,
    unique_heads,
    reads_that_grow,
]


def seconds(parser, reads):
    begun = time.process_time()
    for data in reads:
        parser.feed(data)
    spent = time.process_time() - begun
    assert parser.error is None
    return spent


def least(case, size):
    streams = [list(reads) for reads in case(size)]
    return sum(
        min(seconds(opened(body=BIG, headers=BIG, line=BIG), reads) for _ in range(3)) for reads in streams
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_eight_times_the_bytes(case):
    assert least(case, 8) < 24 * least(case, 1)
