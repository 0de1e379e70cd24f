"""Templates read what the parser reads without them, and are made only of what pays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.session.send import HEADER_USE
from stompring.stomp import headers
from stompring.stomp.headers import TemplateHead
from stompring.stomp.parser import Parser
from tests.stomp.reading import opened, pieces

END = 1_000_000


def with_templates(version=b"1.2", end=b"\n", *, body=10_000, line=1_000):
    """A parser that tries templates from its first SEND on."""
    parser = Parser(body, 50, line, HEADER_USE)
    parser.feed(b"CONNECT" + end + b"accept-version:" + version + end + end + b"\0")
    parser.negotiated(version)
    parser._heads.memo.rest = END
    return parser


def send(*lines, body=b"x"):
    return b"\n".join((b"SEND", *lines, b"", body + b"\0"))


def message(number, *more):
    return send(
        b"destination:q", b"_AMQ_DUPL_ID:%d" % number, b"serial:%d" % number, *more, b"content-length:1"
    )


def by_template(parser, stream):
    return [type(head) is TemplateHead for head, _ in parser.feed(stream)]


def learned(version=b"1.2", **limits):
    parser = with_templates(version, **limits)
    for number in (1, 2):
        assert by_template(parser, message(number)) == [False]
    return parser


def test_two_blocks_with_the_same_names_make_a_template():
    ((head, body),) = learned().feed(message(3))
    assert type(head) is TemplateHead and body == b"x" and head.content_length == 1
    assert head.headers == {
        b"destination": b"q",
        b"_AMQ_DUPL_ID": b"3",
        b"serial": b"3",
        b"content-length": b"1",
    }
    assert head.block == message(3)[: -len(b"\n\nx\0")]


def test_without_the_use_of_headers_there_are_none():
    parser = opened()
    parser._heads.memo.rest = END
    assert not any(by_template(parser, b"".join(map(message, range(10)))))


def test_they_are_not_tried_while_blocks_may_come_again():
    parser = learned()
    parser._heads.memo.rest = 0
    assert by_template(parser, message(3)) == [False]


@pytest.mark.parametrize(
    "other",
    [
        send(b"destination:q", b"_AMQ_DUPL_ID:3", b"content-length:1"),
        send(b"destination:q", b"serial:3", b"_AMQ_DUPL_ID:3", b"content-length:1"),
        message(3, b"serial:4"),
        message(3).replace(b"SEND", b"ACK"),
        message(3).replace(b"serial:3", b"serial:a:b"),
        message(3).replace(b"serial:3", b"serial:a\r"),
        message(3).replace(b"DUPL_ID:3", b"DUPL_ID:a\\cb"),
        message(3).replace(b"serial:3", b"serial:a\\tb"),
        message(3).replace(b"serial:3", b"serial:a\\"),
        message(3).replace(b"length:1", b"length: 1"),
        message(3).replace(b"length:1", b"length:101"),
        message(3).replace(b"serial:3", b"serial:" + b"3" * 500),
    ],
    ids=lambda stream: stream[:80].decode().replace("\n", "|"),
)
def test_what_differs_is_read_without(other):
    limits = {"body": 100, "line": 500}
    parser, beside = learned(**limits), opened(**limits)
    assert not any(by_template(parser, other))
    beside.feed(other)
    assert str(parser.error) == str(beside.error)


def test_escapes_of_1_2_are_read_by_a_template():
    stream = message(3).replace(b"serial:3", b"serial:a\\cb\\\\\\n\\r")
    ((head, _),) = learned().feed(stream)
    assert type(head) is TemplateHead and head.headers[b"serial"] == b"a:b\\\n\r" and head.block == b""
    assert by_template(learned(b"1.1"), stream.replace(b"\\r", b"")) == [False]


@pytest.mark.parametrize(("written", "receipt"), [(b"m-3", b"m-3"), (b"a\\cb", b"a:b"), (b"", b"")])
def test_a_receipt_is_known_without_the_other_headers(written, receipt):
    parser = with_templates()
    for number in (1, 2):
        parser.feed(message(number, b"receipt:%d" % number))
    ((head, _),) = parser.feed(message(3, b"receipt:" + written))
    assert type(head) is TemplateHead and head.requested_receipt() == receipt
    assert head._headers is None and head.headers[b"receipt"] == receipt
    ((head, _),) = learned().feed(message(3))
    assert type(head) is TemplateHead and head.requested_receipt() is None


def test_blocks_with_escapes_make_one_too():
    parser = with_templates()
    stream = b"".join(message(number).replace(b"serial:", b"serial:a\\c") for number in range(3))
    assert by_template(parser, stream) == [
        False,
        False,
        False,
    ]  # those that are ready are used from the next read on
    assert by_template(parser, message(4)) == [True]


@pytest.mark.parametrize(
    "line", [b"reply-to:r", b"transaction:1", b"AMQ_SCHEDULED_DELAY:5", b"JMSXGroupID:a:b"]
)
def test_blocks_that_are_not_for_templates(line):
    parser = with_templates()
    for number in range(10):
        assert by_template(parser, message(number, line)) == [False]


def test_values_that_turn_out_to_differ_make_another_one():
    parser = learned()
    other = message(3).replace(b":q", b":r")
    assert by_template(parser, other) == [False]
    assert by_template(parser, message(4) + other) == [True, True]
    assert len(parser._heads.templates.ready) == 1


@pytest.mark.parametrize("value", [b"red", b"a.*b", b"a\\cb", b"", b"\xff"])
def test_a_value_that_is_the_same_so_far_may_change(value):
    parser = with_templates()
    same = [message(number, b"color:" + value) for number in range(4)]
    other = message(5, b"color:blue")
    assert by_template(parser, same[0]) + by_template(parser, same[1]) == [False, False]
    assert by_template(parser, same[2]) == [True]
    assert by_template(parser, other) == [False]
    assert by_template(parser, other + same[3]) == [True, True]


def test_a_value_with_a_fault_is_no_part_of_a_template():
    parser = with_templates()
    for _ in range(3):
        assert by_template(parser, send(b"destination:q", b"url:a:b")) == [False]
    assert by_template(parser, send(b"destination:q", b"url:c")) == [True]


def test_none_is_made_twice():
    parser = with_templates()
    ready = parser._heads.templates
    assert ready is not None
    for place in range(10):
        parser.feed(send(b"destination:q", b"time:%d" % place))
        made = ready.ready[0] if ready.ready else None
        parser.feed(send(b"destination:q", b"time:12:%d" % place))
        assert place == 0 or made is ready.ready[0]


def test_many_are_not_kept():
    parser = with_templates()
    for name in range(100):
        for number in range(2):
            parser.feed(send(b"destination:q", b"name%d:%d" % (name, number)))
    kept = parser._heads.templates
    assert kept is not None and len(kept.ready) == headers.MOST_TEMPLATES
    assert len(kept._samples) <= headers.MOST_SAMPLES


def test_one_that_reads_little_is_given_up():
    parser = learned()
    for number in range(headers.PATIENCE):
        parser.feed(send(b"destination:q", b"name%d:1" % number))
    assert by_template(parser, message(3)) == [False]
    for number in range(200):
        parser.feed(message(number))
    assert by_template(parser, message(3)) == [False]


def test_one_that_is_refused_is_not_made_again():
    parser = learned()
    ((head, _),) = parser.feed(message(3))
    assert type(head) is TemplateHead
    parser.refuse(head.template)
    assert not any(by_template(parser, message(number)) == [True] for number in range(10))


def test_after_another_version_or_the_end_there_is_none():
    parser = learned()
    parser.discard()
    assert parser._heads.templates is not None and not parser._heads.templates.ready


# ---- the same as without


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


matches = 0


@settings(max_examples=200)
@given(reads(), st.sampled_from([b"1.2", b"1.1", b"1.0"]), LINE_ENDS)
def read_alike(stream, version, end):
    global matches
    limits = {"body": 10, "line": 60}
    parser, beside = with_templates(version, end, **limits), opened(version, end, **limits)
    for read in stream:
        found, expected = parser.feed(read), beside.feed(read)
        assert len(found) == len(expected)
        for (head, body), (other, other_body) in zip(found, expected, strict=True):
            if type(head) is TemplateHead:
                matches += 1
            assert (head.command, head.content_length, body) == (
                other.command,
                other.content_length,
                other_body,
            )
            assert head.headers == other.headers
            if other.base is None:  # else its receipt comes last
                assert list(head.headers) == list(other.headers) and head.block == other.block
    assert str(parser.error) == str(beside.error)


def test_what_is_read_does_not_depend_on_templates():
    read_alike()
    assert matches > 50  # templates had something to do
