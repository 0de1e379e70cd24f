"""Last-value queues in memory: which message of a key stays, whatever happens to it and around it."""

import pytest

from stompring.broker.queue import Queue
from stompring.settings.model import RoutingType

from .broker_fixture import BrokerFixture, assert_nothing_held, bodies, join

KEYED = {"last_value_key": "code"}


def world_of(**attributes):
    world = BrokerFixture()
    return world, world.queue(**{**KEYED, **attributes})


def send(world, body, key="K", address="q", **more):
    world.send(address, body, headers={} if key is None else {"code": key}, **more)


def counts(queue):
    return queue.message_count, queue.delivering, queue.messages_replaced


@pytest.mark.parametrize(
    "attributes, headers, expected",
    [
        ({"last_value": True}, [{"_AMQ_LVQ_NAME": "X"}, {"_AMQ_LVQ_NAME": "X"}], 1),
        ({"last_value": True}, [{"code": "X"}, {"code": "X"}], 2),
        (KEYED, [{"code": "X"}, {"code": "X"}], 1),
        (KEYED, [{"_AMQ_LVQ_NAME": "X"}, {"code": "X"}], 1),  # the name is looked up where the key is missing
        (KEYED, [{"_AMQ_LVQ_NAME": "X", "code": "Y"}, {"_AMQ_LVQ_NAME": "X"}], 2),
        ({**KEYED, "last_value": True}, [{"code": "X"}, {"code": "X"}], 1),
        (KEYED, [{"code": ""}, {"code": ""}], 1),
        (KEYED, [{"code": "x"}, {"code": "X"}], 2),
        ({"last_value_key": "JMSCorrelationID"}, [{"correlation-id": "7"}, {"correlation-id": "7"}], 1),
        ({"last_value_key": "co:de"}, [{"co\\cde": "1\\n"}, {"co\\cde": "1\\n"}], 1),
    ],
)
def test_which_header_has_the_key(attributes, headers, expected):
    world = BrokerFixture()
    queue = world.queue(**attributes)
    for each in headers:
        world.send(headers=each)
    assert queue.message_count == expected


def test_a_queue_is_a_last_value_queue_by_either_setting_or_its_default():
    world = BrokerFixture(
        {"k.#": {"default_last_value_key": "code"}, "b.#": {"default_last_value_queue": True}}
    )
    keyed, named = world.queue("k.x").attributes, world.queue("b.x").attributes
    assert (keyed.last_value, keyed.last_value_key) == (True, "code")
    assert (named.last_value, named.last_value_key) == (True, None)
    off = world.queue("k.y", last_value=False)
    assert type(off) is Queue and off.attributes.last_value_key is None


def test_each_queue_of_an_address_has_its_own_values():
    world = BrokerFixture()
    multicast = RoutingType.MULTICAST
    plain = world.queue("plain", "t.x", multicast)
    keyed = world.queue("keyed", "t.x", multicast, **KEYED)
    wide = world.queue("wide", "t.#", multicast, **KEYED)
    send(world, b"1", address="t.x")
    send(world, b"2", address="t.x")
    send(world, b"3", address="t.y")
    assert [bodies(queue) for queue in (plain, keyed, wide)] == [[b"1", b"2"], [b"2"], [b"3"]]


class TestNonDestructive:
    def test_a_replaced_message_that_a_consumer_has_does_not_come_back(self):
        world, queue = world_of(non_destructive=True)
        taker = join(queue)
        send(world, b"1")
        send(world, b"2")
        taker.nack(taker.unsettled[0])
        taker.close()
        assert bodies(queue) == [b"2"] and counts(queue) == (1, 0, 1)
        queue.purge()
        assert_nothing_held(world)

    def test_a_tombstone_empties_the_key(self):
        world, queue = world_of(non_destructive=True)
        send(world, b"1")
        send(world, b"", expires=world.now + 1000)
        world.pass_time(1125)
        assert queue.message_count == 0
        assert join(queue).bodies == []
