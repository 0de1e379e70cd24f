"""Streams that break a rule: the frames before the fault come out, then one error that says what is wrong."""

import pytest

from stompring.errors import ProtocolError
from stompring.stomp.headers import FIRST_FRAME
from stompring.stomp.parser import Parser
from tests.stomp.reading import byte_by_byte, opened, pieces, read

# version, stream, parts of the error's text
FAULTS = {
    "body longer than content-length": (
        b"1.2",
        b"SEND\ncontent-length:3\n\nabcd\0",
        ["content-length 3", "'SEND'", "expected NUL after 3 bytes, found 'd'"],
    ),
    "body shorter than content-length": (
        b"1.1",
        b"SEND\ncontent-length:5\n\nabc\0\nSEND\n\n\0",
        ["content-length 5", "expected NUL after 5 bytes, found 'S'"],
    ),
    "content-length that is no number": (b"1.2", b"SEND\ncontent-length:ten\n\n\0", ["content-length 'ten'"]),
    "empty content-length": (b"1.2", b"SEND\ncontent-length:\n\n\0", ["content-length ''", "decimal number"]),
    "negative content-length": (
        b"1.2",
        b"SEND\ncontent-length:-1\n\n\0",
        ["content-length '-1'", "0 or greater"],
    ),
    "signed content-length": (b"1.0", b"SEND\ncontent-length:+1\n\na\0", ["content-length '+1'"]),
    "content-length in hexadecimal": (b"1.2", b"SEND\ncontent-length:0x1\n\na\0", ["content-length '0x1'"]),
    "content-length with underscore": (b"1.2", b"SEND\ncontent-length:1_0\n\na\0", ["content-length '1_0'"]),
    "content-length in other digits": (
        b"1.2",
        "SEND\ncontent-length:٣\n\nabc\0".encode(),
        ["content-length '\\xd9\\xa3'"],
    ),
    "header line without colon": (
        b"1.2",
        b"SEND\ndestination:/queue/a\nreceipt 1\n\nbody\0",
        ["header line 'receipt 1' of 'SEND' has no colon"],
    ),
    "header line without colon in 1.0": (b"1.0", b"SEND\nx\n\n\0", ["header line 'x'", "no colon"]),
    "header without name": (
        b"1.2",
        b"SEND\n:value\n\n\0",
        ["':value'", "'SEND'", "no name before its colon"],
    ),
    "header without name in 1.0": (b"1.0", b"SEND\n:value\n\n\0", ["':value'", "no name"]),
    "only a colon": (b"1.1", b"SEND\n:\n\n\0", ["':'", "no name"]),
    "undefined escape in 1.2": (
        b"1.2",
        b"SEND\nfoo:a\\tb\n\n\0",
        ["undefined escape \\t in header 'foo'", "STOMP 1.2 defines \\\\ \\n \\c \\r"],
    ),
    "undefined escape in 1.1": (
        b"1.1",
        b"SEND\nfoo:a\\rb\n\n\0",
        ["undefined escape \\r in header 'foo'", "STOMP 1.1 defines \\\\ \\n \\c"],
    ),
    "undefined escape in a name": (
        b"1.2",
        b"SEND\nf\\xoo:a\n\n\0",
        ["undefined escape \\x in header 'f\\\\xoo'"],
    ),
    "backslash at the end": (
        b"1.2",
        b"SEND\nfoo:a\\\n\n\0",
        ["a backslash that escapes nothing in header 'foo'"],
    ),
    "escaped backslash and another one": (
        b"1.2",
        b"SEND\nfoo:\\\\\\\n\n\0",
        ["escapes nothing in header 'foo'"],
    ),
    "CR in a value of 1.2": (
        b"1.2",
        b"SEND\nfoo:a\rb\n\n\0",
        ["carriage return", "'foo:a\\rb'", "writes it as \\r"],
    ),
    "two CRs before LF in 1.2": (b"1.2", b"SEND\r\nfoo:a\r\r\n\r\n\0", ["carriage return", "'foo:a\\r'"]),
    "CR LF in 1.1 after a CONNECT with LF": (
        b"1.1",
        b"SEND\r\nfoo:a\r\n\r\nbody\0",
        ["'SEND' ends with NUL before the empty line", "LF, not CR LF, as in its CONNECT"],
    ),
    "lone CR between frames": (
        b"1.2",
        b"\n\rSEND\n\n\0",
        ["carriage return without line feed between frames"],
    ),
    "two CRs between frames": (b"1.2", b"\r\n\r\r\n", ["carriage return without line feed between frames"]),
    "lone CR between frames of 1.1": (b"1.1", b"\r\rSEND\n\n\0", ["carriage return without line feed"]),
    "NUL in place of a command": (b"1.2", b"\0", ["NUL where a command is expected"]),
    "NUL after the command": (
        b"1.2",
        b"DISCONNECT\0",
        ["'DISCONNECT' ends with NUL", "empty line must follow"],
    ),
    "NUL without an empty line": (
        b"1.2",
        b"DISCONNECT\nreceipt:1\n\0\nSEND\n\n\0",
        ["'DISCONNECT' ends with NUL before the empty line"],
    ),
    "NUL in a header": (b"1.2", b"SEND\na:b\0c\n\n\0", ["'SEND' ends with NUL before the empty line"]),
    "command line too long": (
        b"1.2",
        b"S" * 101 + b"\n\n\0",
        ["command line too long", "'" + "S" * 40 + "'...", "limit of 100 bytes"],
    ),
    "header line too long": (
        b"1.2",
        b"SEND\na:b\nlong:" + b"x" * 96 + b"\n\n\0",
        ["header line too long", "header 'long'", "limit of 100 bytes"],
    ),
    "header name too long": (
        b"1.2",
        b"SEND\na:b\n" + b"n" * 101 + b":\n\n\0",
        ["header line too long", "header '" + "n" * 40 + "'...", "limit of 100 bytes"],
    ),
    "header line that never ends": (
        b"1.2",
        b"SEND\nlong:" + b"x" * 96,
        ["header line too long", "header 'long'", "limit of 100 bytes"],
    ),
    "too many headers": (
        b"1.2",
        b"SEND\n" + b"a:b\nc:d\n" * 5 + b"a:b\n\n\0",
        ["too many headers", "'SEND'", "limit of 10"],
    ),
    "headers that never end": (b"1.2", b"SEND\n" + b"a:b\n" * 11, ["too many headers", "limit of 10"]),
    "content-length above the limit": (
        b"1.2",
        b"SEND\ncontent-length:201\n\n",
        ["body too long", "content-length 201", "'SEND'", "limit of 200 bytes"],
    ),
    "content-length beyond all numbers": (
        b"1.2",
        b"SEND\ncontent-length:" + b"9" * 80 + b"\n\n",
        ["body too long", "content-length 99999", "limit of 200 bytes"],
    ),
    "body above the limit": (
        b"1.2",
        b"SEND\na:b\n\n" + b"x" * 201,
        ["body too long", "'SEND', without content-length", "limit of 200 bytes"],
    ),
    "body above the limit that ends": (b"1.2", b"SEND\na:b\n\n" + b"x" * 201 + b"\0", ["body too long"]),
}

GOOD = b"BEGIN\ntransaction:1\n\n\0\n"


@pytest.mark.parametrize("version, stream, parts", FAULTS.values(), ids=FAULTS.keys())
class TestFaults:
    LIMITS = {"body": 200, "headers": 10, "line": 100}

    def test_whole(self, version, stream, parts):
        parser = opened(version, **self.LIMITS)
        frames, error = read(parser, [GOOD + GOOD + stream])
        assert [command for command, *_ in frames] == [b"BEGIN", b"BEGIN"]
        assert error is not None
        assert [part for part in parts if part not in error] == [], error
        assert "\n" not in error and error.isascii()
        assert isinstance(parser.error, ProtocolError)

    def test_cut_anywhere(self, version, stream, parts):
        expected = read(opened(version, **self.LIMITS), [GOOD + stream])
        assert read(opened(version, **self.LIMITS), byte_by_byte(GOOD + stream)) == expected
        for cut in range(len(stream)):
            reads = pieces(GOOD + stream, [len(GOOD) + cut])
            assert read(opened(version, **self.LIMITS), reads) == expected

    def test_nothing_is_read_after_the_fault(self, version, stream, parts):
        parser = opened(version, **self.LIMITS)
        frames, error = read(parser, [stream + b"x\0" + GOOD, GOOD, b"SEND\nother fault\n\n\0"])
        assert frames == []
        assert str(parser.error) == error == read(opened(version, **self.LIMITS), [stream])[1]


NAMES = list(FAULTS)
MALFORMED = NAMES[
    NAMES.index("content-length that is no number") : NAMES.index("CR LF in 1.1 after a CONNECT with LF")
]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_head_is_not_answered_before_the_frame_ends(name):
    version, stream, parts = FAULTS[name]
    parser = opened(version)
    begun = stream[: stream.rindex(b"\n\n") if stream.endswith(b"\n\n\0") else -1]
    assert read(parser, [GOOD + begun + b"\n\n\n", b"more\n\nrubbish" * 5000])[1] is None
    error = read(parser, [b"\0"])[1]
    assert error is not None and parts[0] in error


def test_rubbish_after_a_frame_is_not_answered():
    frames, error = read(opened(), [GOOD + b"rubbish\nthat: goes on\nand on\n\n and on"])
    assert (len(frames), error) == (1, None)


LAST_GOOD = {
    "longest command line": b"S" * 100 + b"\n\n\0",
    "longest header line": b"SEND\nlong:" + b"x" * 95 + b"\n\n\0",
    "longest header line, CR included": b"SEND\r\nlong:" + b"x" * 94 + b"\r\n\r\n\0",
    "most headers": b"SEND\n" + b"a:b\n" * 10 + b"\n\0",
    "longest body": b"SEND\n\n" + b"x" * 200 + b"\0",
    "longest counted body": b"SEND\ncontent-length:200\n\n" + b"\0" * 201,
}


@pytest.mark.parametrize("stream", LAST_GOOD.values(), ids=LAST_GOOD.keys())
def test_the_limit_itself_is_allowed(stream):
    whole = read(opened(**TestFaults.LIMITS), [stream])
    assert whole[1] is None and len(whole[0]) == 1
    assert read(opened(**TestFaults.LIMITS), byte_by_byte(stream)) == whole


def test_limits_are_the_same_for_a_block_seen_before():
    frames, error = read(opened(body=5), [b"SEND\na:b\n\n12345\0SEND\na:b\n\n123456\0"])
    assert len(frames) == 1
    assert error is not None and "limit of 5 bytes" in error


class TestAllHeadersTogether:
    """The third limit of a header block: 64 KiB, or 16 times the longest line."""

    def block(self, lines):
        return b"SEND\n" + b"".join(b"%04d:%b\n" % (number, b"x" * 994) for number in range(lines))

    @pytest.mark.parametrize("size", [1, 7, 1000, 4096, 100_000])
    def test_refused_in_whatever_reads(self, size):
        stream = self.block(66) + b"\n\0"
        assert len(stream) > 64 * 1024
        reads = pieces(stream, range(size, len(stream), size))
        error = read(opened(headers=100, line=1000), reads)[1]
        assert error == "headers too large: the headers of 'SEND' exceed the limit of 65536 bytes in total"

    def test_refused_as_soon_as_passed(self):
        parser = opened(headers=100, line=1000)
        stream = self.block(70)
        assert read(parser, [stream[:65536]])[1] is None
        assert read(parser, [stream[65536:65537]])[1] is not None

    def test_the_limit_itself_is_allowed(self):
        block = self.block(65)
        block += b"z:%b\n" % (b"z" * (65536 - len(block) - 3))
        assert len(block) == 65536
        for reads in ([block + b"\n\0"], [block, b"\n\0"], [block, b"\n", b"\0"]):
            assert read(opened(headers=100, line=1000), reads)[1] is None

    def test_longer_lines_have_more_room(self):
        stream = self.block(70) + b"\n\0"
        assert read(opened(headers=100, line=5000), [stream])[1] is None


def test_before_it_is_known_who_it_is_a_frame_is_short():
    parser = Parser(1_000_000, 100, 64_000)
    assert parser.feed(b"CONNECT\ncontent-length:%d\n\n" % FIRST_FRAME) == [] and parser.error is None
    parser.feed(b"x" * FIRST_FRAME + b"\0")
    parser.negotiated(b"1.2")
    parser.feed(b"SEND\na:%b\ncontent-length:%d\n\n" % (b"x" * FIRST_FRAME, FIRST_FRAME + 1))
    assert parser.error is None
    for data in (
        b"CONNECT\ncontent-length:%d\n\n" % (FIRST_FRAME + 1),
        b"CONNECT\n\n" + b"x" * (FIRST_FRAME + 1),
        b"SEND\ncontent-length:%d\n\n" % (FIRST_FRAME + 1),
        b"CONNECT\npasscode:" + b"x" * FIRST_FRAME,
        b"CONNECT\npasscode:%b\n\n\0" % (b"x" * FIRST_FRAME),
        b"CONNECT\n" + b"a:b\n" * (FIRST_FRAME // 4),
    ):
        for step in (len(data), 1000):
            parser = Parser(1_000_000, 10_000, 64_000)
            for at in range(0, len(data), step):
                parser.feed(data[at : at + step])
            assert parser.error.limit == "first-frame"
            assert f"the limit of {FIRST_FRAME} bytes" in str(parser.error)
