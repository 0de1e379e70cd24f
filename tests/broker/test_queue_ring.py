"""Rings. RQ-… are rows of Artemis's RingQueueTest, D… the examples of its manual."""

from stompring.settings.model import RingPolicy

from .broker_fixture import BrokerFixture, bodies


def test_ring_policy_dead_letter_copies_the_evicted_message():
    world = BrokerFixture({"q": {"dead_letter_address": "DLQ"}})
    dead = world.queue("DLQ")
    queue = world.queue(ring_size=1, ring_policy=RingPolicy.DEAD_LETTER)
    world.send(body=b"1")
    world.send(body=b"2")
    assert (bodies(queue), bodies(dead)) == ([b"2"], [b"1"])
    assert (queue.messages_replaced, queue.messages_killed) == (1, 0)
