"""Queues that are read, not emptied."""

import pytest

from .broker_fixture import BrokerFixture, join


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
