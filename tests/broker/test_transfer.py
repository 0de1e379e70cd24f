"""Copies for other addresses."""

import pytest

from stompring.broker.message import Transfer, copy_for, without_headers

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture


@pytest.mark.parametrize(
    "block, names, rest",
    [
        (b"a:1\nb:2\n", (b"c",), b"a:1\nb:2\n"),
        (b"a:1\nb:2\na:3\n", (b"a",), b"b:2\n"),
        (b"ab:1\na:2\n", (b"a",), b"ab:1\n"),
        (b"x:a\n", (b"a",), b"x:a\n"),
        (b"", (b"a",), b""),
    ],
)
def test_headers_are_taken_out_whole(block, names, rest):
    assert without_headers(block, names) == rest


@pytest.mark.parametrize("routing_type, shown", [(None, None), (ANYCAST, b"1"), (MULTICAST, b"0")])
def test_a_copy_tells_where_it_came_from(routing_type, shown):
    world = BrokerFixture()
    original = world.message(
        "a:b",
        b"body\0",
        routing_type=routing_type,
        priority=8,
        durable=True,
        group=b"g",
        expires=world.now + 1,
        headers={"user": "kept", "destination-type": "ANYCAST", "_AMQ_ORIG_QUEUE": "before"},
    )
    copy = copy_for(original, "queue", world.address("DLQ"), 99, world.now, 0, Transfer.DEAD_LETTER)
    assert copy.header(b"_AMQ_ORIG_ADDRESS") == b"a:b"
    assert copy.header(b"_AMQ_ORIG_QUEUE") == b"queue"
    assert copy.header(b"_AMQ_ORIG_MESSAGE_ID") == b"%d" % original.number
    assert copy.header(b"_AMQ_ORIG_ROUTING_TYPE") == shown
    assert copy.header(b"_AMQ_ACTUAL_EXPIRY") is None
    assert copy.header(b"user") == b"kept" and copy.header(b"destination-type") is None
    assert copy.tail.count(b"_AMQ_ORIG_QUEUE") == 1
    assert (copy.body, copy.number, copy.expires, copy.address.name) == (b"body\0", 99, 0, "DLQ")
    traits = copy.traits
    assert (traits.priority, traits.durable, traits.group, traits.routing_type) == (8, True, b"g", None)
