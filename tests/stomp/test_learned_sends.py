"""What a parser has learned of a connection changes nothing about what it reads: any SENDs, however they are cut."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompring.session.send import HEADER_USE
from stompring.stomp.parser import CutHead, Parser
from tests.property.profile import examples
from tests.stomp.native import native_cutter
from tests.stomp.reading import opened, pieces

UNLIKE = [b"SEND\nname%d:1\n\n\0" % number for number in range(257)]


def warm(version=b"1.2", end=b"\n", *, body=10_000, line=1_000, most=50):
    """A parser after so many unlike SENDs that it cuts them where it has a cutter."""
    parser = Parser(body, most, line, HEADER_USE)
    parser.feed(b"CONNECT" + end + b"accept-version:" + version + end + end + b"\0")
    parser.negotiated(version)
    parser.feed(b"".join(UNLIKE))
    return parser


NAMES = st.lists(
    st.sampled_from(
        [
            b"destination",
            b"_AMQ_DUPL_ID",
            b"priority",
            b"receipt",
            b"content-length",
            b"a",
            b"b",
            b"x.y",
            b"(",
        ]
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda name: name,
)
LINE_ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])
ORDINARY = st.sampled_from([b"", b"1", b"2", b"\\\\", b"\\n\\r", b"\\c", b"\xff", b"*"])
VALUES = st.sampled_from(
    [
        b"",
        b"1",
        b"1",
        b"2",
        b"3",
        b"a:b",
        b"a\\cb",
        b"\\\\",
        b"\\n\\r",
        b"\\t",
        b"a\\",
        b"a\r",
        b"\r",
        b" 1",
        b"\xff",
        b"*",
    ]
)


@st.composite
def reads(draw):
    """SENDs with the same headers, one by one in the main; some with a byte too many, too few, or another one."""
    names, found = draw(NAMES), []
    ordinary = draw(st.booleans())
    for _ in range(draw(st.integers(3, 8))):
        body = draw(st.sampled_from([b"", b"1", b"\n\n"] if ordinary else [b"", b"1", b"longer than may be"]))
        end = b"\n" if ordinary else draw(LINE_ENDS)
        values = [
            b"%d" % len(body) if name == b"content-length" else draw(ORDINARY if ordinary else VALUES)
            for name in names
        ]
        lines = [name + b":" + value for name, value in zip(names, values, strict=True)]
        frame = b"".join(line + end for line in [b"SEND", *lines, b""]) + body + b"\0"
        if not ordinary and draw(st.booleans()):
            place = draw(st.integers(0, len(frame)))
            instead = draw(st.sampled_from([b"", b"\0", b"\n", b"\r", b":", b"\\", b"\n\n", b"z"]))
            frame = frame[:place] + instead + frame[place + draw(st.integers(0, 1)) :]
        found += pieces(frame, draw(st.lists(st.integers(0, len(frame)), max_size=1)))
    return found


def named(value):
    return b"SEND\ndestination:q\na:" + value + b"\n\n\0"


@pytest.mark.parametrize("cutter", [None, native_cutter], ids=["pure", "native cutter"])
def test_what_is_read_does_not_depend_on_what_was_learned(cutter, monkeypatch):
    monkeypatch.setattr("stompring.stomp.parser.NATIVE_CUTTER", cutter and cutter())
    used = 0

    @examples(200, quick=100)
    @given(reads(), st.sampled_from([b"1.2", b"1.1", b"1.0"]), LINE_ENDS)
    @example([named(b"1"), named(b"2"), named(b"\\r")], b"1.1", b"\n")
    def read_alike(stream, version, end):
        nonlocal used
        limits = {"body": 10, "line": 60}
        parser, cold = warm(version, end, **limits), opened(version, end, **limits)
        for read in stream:
            found, expected = parser.feed(read), cold.feed(read)
            assert len(found) == len(expected)
            for (head, body), (other, other_body) in zip(found, expected, strict=True):
                used += type(head) is CutHead
                assert (head.command, head.content_length, body) == (
                    other.command,
                    other.content_length,
                    other_body,
                )
                assert head.headers == other.headers
                assert head.receipt == other.receipt
                if head.base is other.base is None:  # else its receipt comes last
                    assert list(head.headers) == list(other.headers) and head.block == other.block
        assert str(parser.error) == str(cold.error)

    read_alike()
    assert cutter is None or used > 5


def test_another_version_forgets_what_was_learned():
    parser = warm(b"1.2")
    for value in (b"1", b"2", b"3"):
        parser.feed(named(value))
    parser.negotiated(b"1.1")
    parser.feed(b"".join(UNLIKE))
    parser.feed(named(b"\\r"))
    assert "undefined escape" in str(parser.error)
