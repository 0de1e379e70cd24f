"""What a connection's heads cost to remember, and when that is given up."""

from stompring.stomp.frames import Head
from stompring.stomp.parser import HeadCache
from tests.stomp.reading import opened


def unique(first, count):
    return b"".join(b"SEND\nid:%d\n\n\0" % number for number in range(first, first + count))


def head():
    return Head(b"SEND", {b"a": b"b"})


def test_it_is_bounded():
    memo = HeadCache()
    for number in range(100_000):
        memo.hits += 2
        memo.keep(b"%d" % number, head())
        assert len(memo.heads) <= 256


def test_long_blocks_are_not_kept():
    memo = HeadCache()
    memo.keep(b"x" * 1025, head())
    assert memo.heads == {}
    memo.keep(b"x" * 1024, head())
    assert len(memo.heads) == 1


def same(parser_heads):
    first, second = parser_heads
    return first is second


class TestOfAConnection:
    TWICE = b"SEND\nd:q\n\n\0" * 2

    def test_a_producer_of_unique_headers_does_not_pay(self):
        parser = opened()
        for start in range(0, 400, 10):
            parser.feed(unique(start, 10))
        assert not same([head for head, _ in parser.feed(self.TWICE)])

    def test_acks_in_between_do_not_make_it_look_worth_it(self):
        parser = opened()
        for number in range(400):
            parser.feed(unique(number, 1) + b"ACK\nid:%d\n\n\0" % number * 3)
        assert not same([head for head, _ in parser.feed(self.TWICE)])

    def test_a_producer_of_both_kinds_goes_on_gaining(self):
        parser = opened()
        for number in range(400):
            parser.feed(unique(number, 1) + self.TWICE)
        assert same([head for head, _ in parser.feed(self.TWICE)])
