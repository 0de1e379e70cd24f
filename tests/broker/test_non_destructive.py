"""Queues that are read, not emptied."""

import pytest

from .broker_fixture import BrokerFixture, join


def test_an_evicted_message_in_delivery_leaves_the_counts_right():
    world = BrokerFixture()
    queue = world.queue(non_destructive=True, ring_size=1)
    taker = join(queue)
    world.send(body=b"0")
    world.send(body=b"1")
    assert (queue.count, queue.delivering, queue.messages_replaced) == (1, 2, 1)
    taker.ack()
    assert (queue.count, queue.delivering, queue.message_count) == (1, 0, 1)
    queue.purge()
    assert (queue.count, queue.persistent_size, world.broker.memory.bytes) == (0, 0, 0)


@pytest.mark.parametrize("last_value", [False, True])
@pytest.mark.parametrize("failed", [False, True])
def test_a_reader_that_leaves_costs_no_attempt(last_value, failed):
    world = BrokerFixture({"q": {"max_delivery_attempts": 2, "dead_letter_address": "DLQ"}})
    dead = world.queue("DLQ")
    queue = world.queue(non_destructive=True, last_value_key="key" if last_value else None)
    world.send(headers={"key": "k"})
    for _ in range(10):
        taker = join(queue)
        assert taker.deliveries == [0]
        taker.close(failed=failed)
    assert (queue.message_count, queue.messages_killed, dead.count) == (1, 0, 0)


def test_a_refused_message_is_offered_again_and_ends_as_dead_letter():
    world = BrokerFixture({"q": {"max_delivery_attempts": 2, "dead_letter_address": "DLQ"}})
    dead = world.queue("DLQ")
    queue = world.queue(non_destructive=True)
    world.send()
    taker = join(queue, 1)
    taker.nack()
    assert taker.deliveries == [0, 2], "it is a redelivery"
    taker.nack()
    assert (queue.message_count, queue.messages_killed, dead.count) == (0, 1, 1)


def test_groups_are_ignored_on_a_non_destructive_queue():
    world = BrokerFixture()
    queue = world.queue(non_destructive=True)
    one, two = join(queue, 1), join(queue)
    for number in range(3):
        world.send(body=b"%d" % number, group=b"g")
    one.ack()
    one.ack()
    assert one.bodies == two.bodies == [b"0", b"1", b"2"]


def test_list_of_a_consumer_is_dropped_when_it_leaves():
    world = BrokerFixture()
    queue = world.queue(non_destructive=True)
    for _ in range(3):
        join(queue).close()
    assert not queue.dispatcher.selector_lists and not queue.ready
