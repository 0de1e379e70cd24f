"""A message and what selectors and management see of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.message import decimal, make_tail

from .broker_fixture import BrokerFixture


def test_the_tail_is_the_end_of_a_frame():
    world = BrokerFixture()
    message = world.message("a", b"b\0dy", expires=7, headers={"k": "v"})
    expected = b"%d\ncontent-length:4\ntimestamp:%d\nexpires:7\nk:v\n\nb\0dy\0\n"
    assert message.tail == expected % (message.number, message.timestamp)
    assert message.body == b"b\0dy" and message.size > len(message.tail)


@pytest.mark.parametrize(
    "name, value", [(b"k", b"v"), (b"a:b", b"1\n2"), (b"missing", None), (b"v", None), (b"empty", b"")]
)
def test_headers_are_found_by_their_decoded_name(name, value):
    message = BrokerFixture().message(
        "a", b"\nmissing:1\n\n", headers={"k": "v", "a\\cb": "1\\n2", "empty": ""}
    )
    assert message.header(name) == value


def test_all_headers_for_management():
    message = BrokerFixture().message("a", headers={"a\\cb": "1\\n2"})
    assert message.headers()["a:b"] == "1\n2"
    assert message.headers()["content-length"] == "0"


@pytest.mark.parametrize(
    "name, value",
    [
        ("AMQPriority", 7),
        ("AMQDurable", "DURABLE"),
        ("AMQAddress", "a"),
        ("AMQGroupID", "g"),
        ("AMQUserID", "me"),
        ("AMQExpiration", 0),
        ("JMSDeliveryMode", "PERSISTENT"),
        ("JMSType", "t"),
        ("JMSCorrelationID", None),
        ("type", "t"),
        ("AMQUnknown", None),
        ("size", "12"),
    ],
)
def test_properties(name, value):
    message = BrokerFixture().message(
        "a", priority=7, durable=True, group=b"g", user="me", headers={"type": "t", "size": "12"}
    )
    assert message.get_property(name) == value


@pytest.mark.parametrize(
    "version, line", [(b"1.2", b"k:a\\cb\\r\n"), (b"1.1", b"k:a\\cb"), (b"1.0", b"k:a:b")]
)
def test_other_versions_get_the_same_body(version, line):
    message = BrokerFixture().message("a", b"k:a\\cb", headers={"k": "a\\cb\\r"})
    tail = message.tail_for(version)
    assert line in tail[: tail.index(b"\n\n") + 1]
    assert tail.endswith(b"\n\nk:a\\cb\0\n")


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 3000), st.integers(1_790_000_000_000_990, 1_790_000_000_001_010)),
            st.binary(max_size=12),
            st.integers(0, 2),
            st.integers(0, 1),
        ),
        max_size=20,
    )
)
def test_a_tail_does_not_depend_on_those_made_before(tails):
    for number, body, timestamp, expires in tails:
        expected = b"%d\ncontent-length:%d\ntimestamp:%d\nexpires:%d\nk:v\n\n%b\0\n"
        assert make_tail(number, b"k:v\n", body, timestamp, expires) == expected % (
            number,
            len(body),
            timestamp,
            expires,
            body,
        )
        assert decimal(number) == b"%d" % number
