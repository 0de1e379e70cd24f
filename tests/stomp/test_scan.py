"""Limits of a block that grows."""

import pytest

from stompring.errors import ProtocolError
from stompring.stomp.headers import HeadLimits, HeadScan


@pytest.mark.parametrize("line, block", [(1, 65536), (4096, 65536), (4097, 65552), (65536, 1048576)])
def test_all_lines_together(line, block):
    assert HeadLimits(10, line).max_block == block


@pytest.mark.parametrize(
    "block, crlf, complete",
    [
        (b"", True, False),
        (b"SEND", True, False),
        (b"SEND\n", True, False),
        (b"SEND\n\r", True, False),
        (b"SEND\n\n", True, True),
        (b"SEND\n\r\n", True, True),
        (b"SEND\n\r\n", False, False),
        (b"SEND\n\r\n\n", False, True),
        (b"SEND\na:b\n\nbody that is \0 longer than a line", True, True),
    ],
)
def test_where_it_ends(block, crlf, complete):
    limits = HeadLimits(10, 20)
    assert HeadScan(limits, crlf).advance(block) is complete
    growing = HeadScan(limits, crlf)
    assert any(growing.advance(bytearray(block[:end])) for end in range(len(block) + 1)) is complete


@pytest.mark.parametrize(
    "block, message",
    [
        (b"x" * 6, "command line too long: 'xxxxxx' exceeds the limit of 5 bytes"),
        (b"A\nabc:de", "header line too long: header 'abc' exceeds the limit of 5 bytes"),
        (b"A\nabcdefgh", "header line too long: header 'abcdef' exceeds the limit of 5 bytes"),
        (b"A\r\na:\nb:\nc:\n", "too many headers: 'A' has more than the limit of 2"),
        (b"A\na:\nb:\nc:\ntoo long", "too many headers: 'A' has more than the limit of 2"),
        (b"A\na:\ntoo long\nc:\nd:", "header line too long: header 'too lo' exceeds the limit of 5 bytes"),
        (b"A\0too long", "'A' ends with NUL; an empty line must follow the headers of a frame"),
        (b"too long\0", "command line too long: 'too lo' exceeds the limit of 5 bytes"),
    ],
)
def test_the_first_limit_that_is_passed(block, message):
    for step in range(1, len(block) + 1):
        scan = HeadScan(HeadLimits(2, 5), crlf=True)
        with pytest.raises(ProtocolError) as caught:
            for end in [*range(step, len(block), step), len(block)]:
                scan.advance(block[:end])
        assert str(caught.value) == message


@pytest.mark.parametrize("step", [1, 1000, 100_000])
def test_all_lines_together_before_the_last_one(step):
    block = b"A\n" + (b"x:" + b"x" * 4093 + b"\n") * 15 + b"too long:" + b"x" * 5000
    scan = HeadScan(HeadLimits(100, 4096), crlf=True)
    with pytest.raises(
        ProtocolError, match="headers too large: the headers of 'A' exceed the limit of 65536 bytes"
    ):
        for end in [*range(step, len(block), step), len(block)]:
            scan.advance(block[:end])


@pytest.mark.parametrize(
    "block, may", [(b"SEND\na:b", False), (b"SEND\na:bcdefghi", True), (b"A\nb\nc\nd", True), (b"A\0", True)]
)
def test_which_complete_blocks_need_a_scan(block, may):
    assert HeadLimits(2, 10).may_be_passed_by(block) is may
