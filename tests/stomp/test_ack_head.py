"""An ACK that has an id and nothing else is read without a scan for its end."""

import pytest

from stompring.stomp.parser import AckHead
from tests.stomp.reading import opened, pieces

ACK = b"ACK\nid:q-17\n\n\0"


def test_an_ack_with_an_id():
    ((head, body),) = opened().feed(ACK)
    assert type(head) is AckHead and head.identifier == b"q-17" and body == b""
    assert head.command == b"ACK" and head.headers == {b"id": b"q-17"} and head.content_length == -1
    assert head.block == b"ACK\nid:q-17" and head.base is None and head.plan is None


@pytest.mark.parametrize(
    "other",
    [
        b"ACK\nid:q-17\nreceipt:1\n\n\0",
        b"ACK\nreceipt:1\nid:q-17\n\n\0",
        b"ACK\nid:q-17\ntransaction:1\n\n\0",
        b"ACK\nid:q\\c17\n\n\0",
        b"ACK\nid:q-17\r\n\r\n\0",
        b"ACK\nid:q-17\n\r\n\0",
        b"ACK\nid:q-17\n\nbody\0",
        b"ACK\nid:q\0-17\n\n\0",
        b"ACK\nid:q\r-17\n\n\0",
        b"ACK\nid:q\\-17\n\n\0",
        b"ACK\nid\n\n\0",
        b"ACK\nidentifier:q-17\n\n\0",
        b"ACK\nid:" + b"9" * 1000 + b"\n\n\0",
        b"ACK\n\n\0",
        b"NACK\nid:q-17\n\n\0",
        b"ACKN\nid:q-17\n\n\0",
    ],
    ids=lambda stream: stream[:40].decode().replace("\n", "|"),
)
def test_others_are_read_as_ever(other):
    parser, beside = opened(), opened()
    beside._heads.acks = False
    found, expected = parser.feed(other), beside.feed(other)
    assert [(head.command, head.headers, body) for head, body in found] == [
        (head.command, head.headers, body) for head, body in expected
    ]
    assert not any(type(head) is AckHead for head, _ in found)
    assert str(parser.error) == str(beside.error)


def test_the_longest_line_is_read():
    (found,) = opened(line=20).feed(b"ACK\nid:" + b"9" * 17 + b"\n\n\0")
    assert type(found[0]) is AckHead
    parser = opened(line=20)
    parser.feed(b"ACK\nid:" + b"9" * 18 + b"\n\n\0")
    assert "too long" in str(parser.error)


def test_wherever_it_is_cut():
    for cut in range(1, len(ACK)):
        parser = opened()
        frames = [frame for read in pieces(ACK + ACK, [cut]) for frame in parser.feed(read)]
        assert [head.headers for head, _ in frames] == [{b"id": b"q-17"}] * 2


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_other_versions_have_other_headers(version):
    ((head, _),) = opened(version).feed(ACK)
    assert type(head) is not AckHead and head.headers == {b"id": b"q-17"}


def test_where_no_header_is_allowed_it_is_refused():
    parser = opened(None, headers=0)
    parser.negotiated(b"1.2")
    assert parser.feed(ACK) == [] and "too many headers" in str(parser.error)


def test_one_after_the_other_with_line_feeds_between():
    assert len(opened().feed((ACK + b"\n") * 3 + b"\r\n" + ACK)) == 4
