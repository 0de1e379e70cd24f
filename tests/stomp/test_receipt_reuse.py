"""Heads that differ in their receipt only: decoded from what is known, and never differently from the careful way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.stomp.headers import decode
from stompring.stomp.parser import Parser, ReceiptHead


def parser(version=b"1.2", max_headers=100, max_header_length=1000):
    made = Parser(max_body_length=1000, max_headers=max_headers, max_header_length=max_header_length)
    made.feed(b"CONNECT\n\n\0")
    made.negotiated(version)
    return made


def heads(made, *blocks):
    return [head for block in blocks for head, _ in made.feed(block + b"\n\n\0")]


def test_frames_that_differ_in_their_receipt_share_one_kin():
    first, second, plain = heads(
        parser(), b"SEND\ndestination:a\nreceipt:1", b"SEND\nreceipt:2\ndestination:a", b"SEND\ndestination:a"
    )
    assert first.headers == {b"destination": b"a", b"receipt": b"1"}
    assert second.headers == {b"destination": b"a", b"receipt": b"2"}
    assert first.base is second.base is plain and plain is not None
    assert b"receipt" not in plain.headers
    assert plain.base is None


@pytest.mark.parametrize(
    "block",
    [
        b"ACK\nid:1\nreceipt:2",  # only SEND repeats itself
        b"SEND\ndestination:a\nreceipt:a\\cb",  # an escape
        b"SEND\ndestination:a\nreceipt:1\nreceipt:2",  # the first counts
        b"SEND\ndestination:a\nreceipt:1\r\nx:y",
        b"SEND\ndestination:a\nx-receipt:1",
    ],
)
def test_everything_else_goes_the_careful_way(block):
    (head,) = heads(parser(), block)
    assert head.base is None
    assert head.headers == decode(block.replace(b"\r", b""), b"1.2").headers


def test_1_0_keeps_its_own_rules():
    (head,) = heads(parser(b"1.0"), b"SEND\ndestination: a\nreceipt:  1")
    assert head.base is None
    assert head.headers == {b"destination": b"a", b"receipt": b"1"}


@pytest.mark.parametrize(
    "limits, block",
    [
        ({"max_headers": 2}, b"SEND\ndestination:a\nx:y\nreceipt:1"),
        ({"max_header_length": 20}, b"SEND\ndestination:a\nreceipt:" + b"1" * 20),
    ],
)
def test_a_receipt_counts_for_the_limits(limits, block):
    made = parser(**limits)
    assert heads(made, b"SEND\ndestination:a\nreceipt:1")[0].headers[b"receipt"] == b"1"
    assert heads(made, block) == []
    assert made.error is not None
    assert "limit" in str(made.error)


name = st.sampled_from([b"destination", b"receipt", b"content-length", b"a", b"xreceipt", b"receipt2"])
value = st.sampled_from([b"", b"1", b"12", b"a:b", b"\\c", b" x", b"receipt:3", b"\\q"])


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(name, value), max_size=5), max_size=6))
def test_what_is_known_changes_nothing(blocks):
    """One parser sees all blocks and knows more and more; another one sees only the last."""
    texts = [b"SEND" + b"".join(b"\n%b:%b" % header for header in block) + b"\n\n" for block in blocks]
    knowing = parser()
    for text in texts:
        fresh = parser()
        frame = text + b"x" * 12 + b"\0"
        seen, alone = knowing.feed(frame), fresh.feed(frame)
        assert [(dict(head.headers), body) for head, body in seen] == [
            (head.headers, body) for head, body in alone
        ]
        assert str(knowing.error) == str(fresh.error)
        if knowing.error is not None:
            knowing = parser()


ASKING = b"SEND\ndestination:a\nreceipt:%b\nx:y\n\n\0"


def asking(made=None):
    """A parser that has read three SENDs which differ in their receipt only."""
    made = made or parser()
    for number in (b"1", b"2", b"3"):
        made.feed(ASKING % number)
    return made


def test_the_next_one_is_known_by_what_surrounds_its_receipt():
    made = asking()
    ((before, _),) = asking(made).feed(ASKING % b"m-4")
    ((head, body),) = made.feed(ASKING % b"m:5")
    assert type(head) is ReceiptHead and head.base is before.base and body == b""
    assert head.receipt == b"m:5" and head.content_length == -1
    assert head.headers == {b"destination": b"a", b"x": b"y", b"receipt": b"m:5"} and head.block == b""


@pytest.mark.parametrize(
    "other",
    [
        ASKING % b"a\\cb",
        ASKING % b"a\r",
        ASKING % b"a\0",
        ASKING % b"a\nreceipt:2",
        ASKING % b"\n",
        ASKING % (b"9" * 980),
        (ASKING % b"4").replace(b"x:y", b"x:z"),
        (ASKING % b"4").replace(b"x:y", b"x:y\nv:w"),
        (ASKING % b"4").replace(b"\n\n", b"\n\r\n"),
        b"SEND\ndestination:a\nreceipt:4\n\n\0",
        b"SEND\ndestination:a\nx:y\n\n\0",
        b"SEND\ndestination:b\nreceipt:4\nx:y\n\n\0",
    ],
)
def test_what_goes_on_differently_is_read_as_ever(other):
    made, beside = asking(), parser()
    found, expected = made.feed(other), beside.feed(other)
    assert [(head.headers, body) for head, body in found] == [(head.headers, body) for head, body in expected]
    assert str(made.error) == str(beside.error)
    if made.error is None:
        ((head, _),) = made.feed(ASKING % b"9")
        assert head.receipt == b"9" and head.headers[b"x"] == b"y"


def test_a_known_one_may_be_cut_anywhere():
    made, frame = asking(), ASKING % b"17"
    for cut in range(1, len(frame)):
        found = made.feed(frame[:cut]) + made.feed(frame[cut:])
        assert [head.headers[b"receipt"] for head, _ in found] == [b"17"]


def test_another_version_reads_them_anew():
    made = asking()
    made.negotiated(b"1.0")
    ((head, _),) = made.feed(b"SEND\ndestination:a\nreceipt: 4\nx:y\n\n\0")
    assert head.headers[b"receipt"] == b"4"


def test_heads_say_which_receipt_is_requested():
    first, second, third = heads(parser(), b"SEND\na:b", b"SEND\na:b\nreceipt:c\\\\d", b"ACK\nid:1")
    assert (first.receipt, third.receipt) == (None, None)
    assert second.receipt == b"c\\d"
