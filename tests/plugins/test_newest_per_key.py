"""plugins/newest_per_key.py"""

import pytest

from stompring.policy.testing import ADDRESS, PolicyHarness
from stompring.settings.model import QueueConfiguration, RoutingType

from . import fault, policy, remembered

KIND = policy("newest-per-key")


def house(**arguments):
    return PolicyHarness(KIND, **{"key": "symbol", **arguments})


def send(harness, *bodies, **headers):
    """Bodies whose first letter is their key."""
    for body in bodies:
        assert harness.send(body.encode(), {"symbol": body[0], **headers}).accepted


def waiting(harness):
    return [body.decode() for body in harness.waiting()]


def test_older_message_is_evicted_when_a_newer_one_of_its_key_waits():
    harness = house()
    send(harness, "a1", "b1", "a2", "c1", "b2", "a3")
    assert waiting(harness) == ["c1", "b2", "a3"]
    assert harness.broker.directory.queues[ADDRESS].messages_replaced == 3
    assert not harness.errors


def test_more_than_one_of_each_key():
    harness = house(keep=2)
    send(harness, "a1", "a2", "b1", "a3", "a4")
    assert waiting(harness) == ["b1", "a3", "a4"]


def test_priorities_decide_the_order_and_not_what_is_newest():
    harness = house()
    send(harness, "a1", priority="9")
    send(harness, "a2", "b1", priority="0")
    send(harness, "b2", priority="5")
    assert waiting(harness) == ["b2", "a2"]


@pytest.mark.parametrize("without_key, left", [("keep", ["1", "2", "a", "3"]), ("one-key", ["a", "3"])])
def test_messages_without_the_key(without_key, left):
    harness = house(without_key=without_key)
    harness.send(b"1")
    harness.send(b"2")
    send(harness, "a")
    harness.send(b"3")
    assert waiting(harness) == left


def test_returned_message_is_evicted_beside_a_newer_one():
    harness = house()
    send(harness, "a1", "b1")
    old, other = harness.deliver(2)
    send(harness, "a2")
    harness.reject(old)
    harness.reject(other)
    assert waiting(harness) == ["b1", "a2"]


def test_returned_message_stays_without_a_newer_one():
    harness = house()
    send(harness, "a1")
    (message,) = harness.deliver()
    harness.reject(message)
    assert waiting(harness) == ["a1"]
    (message,) = harness.deliver()
    harness.reject(message)
    send(harness, "a2")
    assert waiting(harness) == ["a2"]


def test_returned_newer_message_evicts_the_older_waiting_one():
    harness = house()
    send(harness, "a1")
    (first,) = harness.deliver()
    send(harness, "a2")
    (second,) = harness.deliver()
    harness.reject(first)
    assert waiting(harness) == ["a1"]  # the newer one is with a consumer, and may never come back
    harness.reject(second)
    assert waiting(harness) == ["a2"]


def test_newest_of_a_key_are_retained_in_any_order_of_return():
    harness = house(keep=2)
    send(harness, "a1", "a2")
    first, second = harness.deliver(2)
    send(harness, "a3")
    harness.reject(first)
    assert waiting(harness) == ["a1", "a3"]
    harness.reject(second)
    assert waiting(harness) == ["a2", "a3"]


def test_scheduled_messages_count_when_they_fall_due():
    harness = house()
    send(harness, "a1", AMQ_SCHEDULED_DELAY="1000")
    send(harness, "b1", AMQ_SCHEDULED_DELAY="1000")
    send(harness, "a2")
    assert waiting(harness) == ["a2"]
    harness.advance(1000)
    assert waiting(harness) == ["b1", "a2"]


def test_full_ring_evicts_by_key():
    harness = house(settings={"default_ring_size": 3})
    send(harness, "a1", "b1", "c1", "b2")
    assert waiting(harness) == ["a1", "c1", "b2"]  # not a1, which the ring would have given up
    send(harness, "d1")
    assert waiting(harness) == ["c1", "b2", "d1"]  # a new key: the first goes
    send(harness, "b3", "c2", "d2", "b4")
    assert waiting(harness) == ["c2", "d2", "b4"]
    assert not harness.errors


def test_a_full_ring_with_several_of_a_key():
    harness = house(keep=2, settings={"default_ring_size": 3})
    send(harness, "a1", "b1", "b2", "b3")
    assert waiting(harness) == ["a1", "b2", "b3"]
    send(harness, "c1")  # of which there is none yet
    assert waiting(harness) == ["b2", "b3", "c1"]


def test_a_ring_that_was_made_smaller():
    harness = house(settings={"default_ring_size": 5})
    send(harness, "a1", "b1", "c1", "d1")
    harness.broker.directory.queues[ADDRESS].ring_size = 2
    sum(harness.broker.directory.queues[ADDRESS].trim())
    assert waiting(harness) == ["c1", "d1"]
    send(harness, "c2")
    assert waiting(harness) == ["d1", "c2"]


def test_message_returned_to_a_full_ring_is_lost():
    harness = house(settings={"default_ring_size": 2})
    send(harness, "a1")
    (message,) = harness.deliver()
    send(harness, "b1", "c1")
    harness.reject(message)
    assert waiting(harness) == ["b1", "c1"]


def test_each_queue_by_itself():
    harness = house()
    directory = harness.broker.directory
    directory.create_queue(QueueConfiguration("copy", ADDRESS, RoutingType.MULTICAST))
    send(harness, "a1")
    (message,) = harness.deliver()
    send(harness, "a2")
    copies = directory.queues["copy"]
    assert [ref.message.body for ref in copies.dispatcher.in_order()] == [b"a2"]
    harness.settle(message)
    assert waiting(harness) == ["a2"]
    directory.delete_queue("copy")
    send(harness, "a3")
    kept = remembered(harness.policy)
    harness.advance(1000)
    assert remembered(harness.policy) < kept, "the queue is forgotten"


def test_queues_that_are_no_more_are_forgotten_with_the_next_one():
    harness = house()
    for number in range(20):
        name = f"subscription-{number}"
        harness.broker.directory.create_queue(QueueConfiguration(name, ADDRESS, RoutingType.MULTICAST))
        send(harness, "a")
        harness.broker.directory.delete_queue(name, force=True)
    assert remembered(harness.policy) < 10


def test_reload_finds_waiting_messages():
    harness = house(keep=3)
    send(harness, "a1", "a2", "b1", "a3")
    harness.reload(key="symbol", keep=1)
    assert waiting(harness) == ["b1", "a3"]
    send(harness, "a4")
    assert waiting(harness) == ["b1", "a4"]
    harness.reload(key="other")
    send(harness, "a5")
    assert waiting(harness) == ["b1", "a4", "a5"]


def test_parameters():
    assert "parameter 'key' is required" in fault(KIND)
    assert "keep is '0': must be from 1 to 1000" in fault(KIND, key="k", keep=0)
    assert "must be one of keep, one-key" in fault(KIND, key="k", without_key="drop")
