"""plugins/timed_ring.py"""

import pytest

from stompring.policy.testing import ADDRESS, PolicyHarness
from stompring.settings.model import QueueConfiguration, RoutingType

from . import fault, policy, remembered, timers

KIND = policy("timed-ring")


def house(max_age=1000, **arguments):
    return PolicyHarness(KIND, max_age=max_age, **arguments)


def send(harness, *bodies, **headers):
    for body in bodies:
        assert harness.send(body.encode(), headers).accepted


def waiting(harness):
    return [body.decode() for body in harness.waiting()]


def test_old_message_is_evicted_at_its_time():
    harness = house()
    send(harness, "a")
    harness.advance(500)
    send(harness, "b")
    harness.advance(499)
    assert waiting(harness) == ["a", "b"]
    harness.advance(7)
    assert waiting(harness) == ["b"]
    harness.advance(493)
    assert waiting(harness) == ["b"]
    harness.advance(8)
    assert waiting(harness) == []
    assert harness.broker.directory.queues[ADDRESS].messages_replaced == 2
    assert not harness.errors


@pytest.mark.parametrize("max_age", [1, 3, 10, 333, 1000, 1001, 2500, 86_400_000])
def test_never_too_early_and_not_much_too_late(max_age):
    harness = house(max_age)
    send(harness, "a")
    harness.advance(max_age - 1)
    assert waiting(harness) == ["a"]
    harness.advance(7)
    assert waiting(harness) == []


@pytest.mark.parametrize("arguments", [{"size": 3}, {"settings": {"default_ring_size": 3}}])
def test_above_size_the_oldest_is_evicted_whatever_its_priority(arguments):
    harness = house(**arguments)
    send(harness, "low", priority="0")
    harness.advance(10)
    send(harness, "high", "higher", priority="9")
    harness.advance(10)
    send(harness, "new")
    assert waiting(harness) == ["high", "higher", "new"]
    send(harness, "newer")
    assert waiting(harness) == ["higher", "new", "newer"]
    assert not harness.errors


def test_message_returned_to_a_full_ring():
    harness = house(settings={"default_ring_size": 2})
    send(harness, "a")
    (message,) = harness.deliver()
    send(harness, "b", "c")
    harness.reject(message)
    assert waiting(harness) == ["b", "c"]


def test_a_shrunken_ring():
    harness = house(settings={"default_ring_size": 5})
    send(harness, *"12345")
    harness.broker.directory.queues[ADDRESS].ring_size = 2
    sum(harness.broker.directory.queues[ADDRESS].trim())
    assert waiting(harness) == ["4", "5"]


def test_several_queues():
    harness = house()
    directory = harness.broker.directory
    directory.create_queue(QueueConfiguration("copy", ADDRESS, RoutingType.MULTICAST))
    send(harness, "a")
    (message,) = harness.deliver()
    harness.advance(500)
    send(harness, "b")
    harness.advance(506)
    assert [ref.message.body for ref in directory.queues["copy"].dispatcher.in_order()] == [b"b"]
    directory.delete_queue("copy")
    harness.advance(1000)
    assert not remembered(harness.policy) and not timers(harness)
    harness.settle(message)
    assert not harness.errors


def test_a_reload_counts_from_when_messages_came():
    harness = house(60_000)
    send(harness, "a")
    harness.advance(2000)
    send(harness, "b", "c")
    harness.reload(max_age=1000)
    assert waiting(harness) == ["b", "c"]
    harness.advance(500)
    harness.reload(max_age=1000, size=1)
    assert waiting(harness) == ["c"]
    harness.advance(506)
    assert waiting(harness) == []
    assert not harness.errors


def test_parameters():
    assert "parameter 'max-age' is required" in fault(KIND)
    assert "max-age is '0': must be at least 1" in fault(KIND, max_age=0)
    assert "size is '0': must be at least 1" in fault(KIND, max_age=1, size=0)
