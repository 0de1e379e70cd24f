"""The native cutter reads what the parser reads without it, or leaves it to the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.session.send import HEADER_USE
from stompring.stomp import parser
from stompring.stomp.parser import CutHead
from tests.property.profile import examples
from tests.stomp.native import native_cutter
from tests.stomp.reading import opened
from tests.stomp.test_learned_sends import warm


@pytest.fixture(autouse=True, scope="module")
def native():
    before, parser.NATIVE_CUTTER = parser.NATIVE_CUTTER, native_cutter()
    yield
    parser.NATIVE_CUTTER = before


def send(*lines):
    return b"\n".join((b"SEND", *lines, b"", b"x\0"))


BLOCK = send(
    b"destination:/queue/q",
    b"a:1",
    b"persistent:true",
    b"receipt:m-1",
    b"message-id:x:y",
    b"b:",
    b"content-length:1",
)


@pytest.mark.parametrize("version", [b"1.1", b"1.2"])
def test_a_block_is_cut(version):
    ((head, body),) = warm(version).feed(BLOCK)
    assert type(head) is CutHead and body == b"x" and head.command == b"SEND"
    assert head.key == b"destination:/queue/q\npersistent:true\n\n" and head.rest == b"a:1\nb:\n"
    assert head.receipt == b"m-1" and head.content_length == 1
    ((plain, _),) = opened().feed(BLOCK)
    assert head.headers == plain.headers and head.block == BLOCK.partition(b"\n\n")[0]


def test_without_a_receipt_the_key_is_another_one():
    ((head, _),) = warm().feed(BLOCK.replace(b"receipt:m-1\n", b""))
    assert type(head) is CutHead and head.receipt is None
    assert head.key == b"destination:/queue/q\npersistent:true\n"


def test_a_duplicate_id_is_apart_from_the_key():
    ((head, _),) = warm().feed(BLOCK.replace(b"a:1", b"_AMQ_DUPL_ID:7"))
    assert type(head) is CutHead and head.identifier == b"7" and head.rest == b"_AMQ_DUPL_ID:7\nb:\n"
    assert head.key == b"destination:/queue/q\npersistent:true\n\n\n\n"
    ((head, _),) = warm().feed(BLOCK.replace(b"receipt:m-1", b"_AMQ_DUPL_ID:7"))
    assert head.key == b"destination:/queue/q\npersistent:true\n\n\n"


@pytest.mark.parametrize("line", [b"expires:1", b"JMSXGroupID:1"])
def test_what_is_read_and_passed_on_is_part_of_the_key(line):
    ((head, _),) = warm().feed(BLOCK.replace(b"a:1", line))
    assert type(head) is CutHead and line in head.key.split(b"\n")


def test_escapes_of_1_2_are_passed_on_as_they_came():
    block = BLOCK.replace(b"a:1", b"a:\\\\\\c\\n\\r").replace(b"m-1", b"m\\c1")
    ((head, _),) = warm().feed(block)
    assert type(head) is CutHead and head.rest == b"a:\\\\\\c\\n\\r\nb:\n" and head.block == b""
    assert head.receipt == b"m:1" and head.headers[b"a"] == b"\\:\n\r"
    ((head, _),) = warm(b"1.1").feed(block.replace(b"\\r", b""))
    assert type(head) is not CutHead and head.headers[b"a"] == b"\\:\n"


@pytest.mark.parametrize(
    "other",
    [
        BLOCK.replace(b"a:1", b"a\\c:1"),
        BLOCK.replace(b"a:1", b"a:\\t"),
        BLOCK.replace(b"a:1", b"a:\\"),
        BLOCK.replace(b"a:1", b"_AMQ_DUPL_ID:"),
        BLOCK.replace(b"a:1", b"_AMQ_DUPL_ID:\\c"),
        BLOCK.replace(b"queue/q", b"queue\\\\q"),
        BLOCK.replace(b"a:1", b"a:1:2"),
        BLOCK.replace(b"a:1", b"a:1\r"),
        BLOCK.replace(b"a:1", b"a:\0"),
        BLOCK.replace(b"a:1", b"a"),
        BLOCK.replace(b"a:1", b":1"),
        BLOCK.replace(b"a:1", b"b:1"),
        BLOCK.replace(b"a:1", b"receipt:1"),
        BLOCK.replace(b"a:1", b"content-length:1"),
        BLOCK.replace(b"a:1", b"transaction:1"),
        BLOCK.replace(b"a:1", b"reply-to:1"),
        BLOCK.replace(b"a:1", b"AMQ_SCHEDULED_DELAY:1"),
        BLOCK.replace(b"length:1", b"length: 1"),
        BLOCK.replace(b"length:1", b"length:"),
        BLOCK.replace(b"length:1", b"length:-1"),
        BLOCK.replace(b"length:1", b"length:0000000000000000001"),
        BLOCK.replace(b"length:1", b"length:10001"),
        BLOCK.replace(b"SEND", b"SENT"),
        BLOCK.replace(b"\n", b"\r\n"),
        BLOCK.replace(b"a:1", b"a:" + b"9" * 1000),
        send(b"destination:q", *(b"h%d:1" % number for number in range(40))),
    ],
    ids=lambda stream: stream[:90].decode().replace("\n", "|"),
)
def test_what_is_unusual_is_left_to_the_parser(other):
    parser, beside = warm(), opened()
    found, expected = parser.feed(other), beside.feed(other)
    assert not any(type(head) is CutHead for head, _ in found)
    assert [(head.headers, body) for head, body in found] == [(head.headers, body) for head, body in expected]
    assert str(parser.error) == str(beside.error)


@pytest.mark.parametrize("size", range(len(BLOCK.partition(b"\n\n")[0]) - 3, len(BLOCK)))
def test_the_limit_of_a_block(size):
    parser, length = warm(line=size), len(BLOCK.partition(b"\n\n")[0])
    ((head, _),) = parser.feed(BLOCK)
    assert (type(head) is CutHead) == (length <= size)


def test_the_limit_of_headers():
    assert type(warm(most=7).feed(BLOCK)[0][0]) is CutHead
    assert warm(most=6).feed(BLOCK) == []


def test_wherever_it_is_cut_off():
    for cut in range(len(BLOCK)):
        parser = warm()
        found = parser.feed(BLOCK[:cut]) + parser.feed(BLOCK[cut:] + BLOCK)
        assert [head.headers[b"a"] for head, _ in found] == [b"1", b"1"]
        cutter = native_cutter()(HEADER_USE.for_cutter(), 50, 1000, 1000)
        block = BLOCK.partition(b"\n\n")[0] + b"\n\n"
        assert (cutter.cut(block[:cut], 0) is None) == (cut < len(block))


def test_1_0_is_not_cut():
    ((head, _),) = warm(b"1.0").feed(BLOCK)
    assert type(head) is not CutHead


def test_wrong_arguments_are_refused():
    made = native_cutter()
    cutter = made(((b"a", 1),), 10, 10, 10)
    for arguments in [(), (b"",), ("", 0), (b"", ""), (b"", 0, 0), (bytearray(10), 0)]:
        with pytest.raises(TypeError):
            cutter.cut(*arguments)
    for start in (-1, 1, 2**62, -(2**62)):
        assert cutter.cut(b"", start) is None
    with pytest.raises(OverflowError):
        cutter.cut(b"", 2**70)
    for names in [(1,), ((b"a",),), (("a", 1),), [(b"a", 1)]]:
        with pytest.raises(TypeError):
            made(names, 10, 10, 10)
    for limits in [(-1, 1, 1), (1, -1, 1), (1, 1, -1), (1, 2**63 - 1, 1)]:
        with pytest.raises(ValueError):
            made((), *limits)
    for names in [tuple((b"%d" % number, 1) for number in range(129)), ((b"a" * 33, 1),)]:
        with pytest.raises(ValueError):
            made(names, 1, 1, 1)
    with pytest.raises(TypeError):
        made((), 1, 1, 1, more=1)


@examples(500, quick=100)
@given(
    st.lists(
        st.sampled_from(
            [
                b"SEND\n",
                b"\n",
                b"a",
                b":",
                b"\r",
                b"\\",
                b"\0",
                b"receipt:",
                b"destination:",
                b"content-length:",
                b"1",
            ]
        )
        | st.binary(max_size=3),
        max_size=30,
    ).map(b"".join),
    st.integers(0, 40),
)
def test_whatever_bytes_it_is_given(tail, start):
    cutter = native_cutter()(HEADER_USE.for_cutter(), 5, 40, 100)
    data = b"SEND\n" + tail
    found = cutter.cut(data, start)
    if found is not None:
        end, length, key, receipt, rest, _ = found
        assert data[end - 2 : end] == b"\n\n" and start < end <= len(data)
        ((head, _),) = opened(body=100).feed(data[start:end] + b"x" * max(0, length) + b"\0")
        assert head.content_length == length and head.headers.get(b"receipt") == receipt
        lines = [b"%b:%b\n" % pair for pair in head.headers.items()]
        assert b"".join(line for line in lines if line.partition(b":")[0] not in HEADER_USE.hidden) == rest
        assert all(
            line in lines for line in key.rstrip(b"\n").split(b"\n") if line for line in [line + b"\n"]
        )
