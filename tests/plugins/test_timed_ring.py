"""plugins/timed_ring.py"""

import pytest

from stompring.policy.testing import ADDRESS, PolicyHarness
from stompring.settings.model import QueueConfiguration, RoutingType

from . import fault, policy

KIND = policy("timed-ring")


def house(max_age=1000, **arguments):
    return PolicyHarness(KIND, max_age=max_age, **arguments)


def send(harness, *bodies, **headers):
    for body in bodies:
        assert harness.send(body.encode(), headers).accepted


def waiting(harness):
    return [body.decode() for body in harness.waiting()]


def timers(harness):
    """Timers of the policy that will still ring, wherever they are held."""
    return sum(timer.active() for timer in harness.policy.address._timers)


def remembered(harness):
    return sum(map(len, harness.policy._heaps.values()))


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


def test_each_of_many_at_its_own_time_by_one_timer():
    harness = house(2000)
    for number in range(300):
        send(harness, str(number))
        assert timers(harness) == 1
        harness.advance(10)
    assert int(waiting(harness)[0]) == pytest.approx(100, abs=1)
    harness.advance(1000)
    assert int(waiting(harness)[0]) == pytest.approx(200, abs=1)
    harness.advance(1010)
    assert waiting(harness) == [] and timers(harness) == 0


def test_no_timer_while_no_message_waits():
    harness = house(3_600_000)
    assert timers(harness) == 0
    send(harness, "a", "b")
    assert timers(harness) == 1
    for message in harness.deliver(2):
        harness.settle(message)
    harness.advance(1000)
    assert timers(harness) == 0 and remembered(harness) == 0


def test_consumed_messages_are_removed_from_the_record():
    harness = house(3_600_000)
    for _ in range(1000):
        send(harness, "x")
        (message,) = harness.deliver()
        harness.settle(message)
        assert remembered(harness) <= 34
    send(harness, *map(str, range(500)))
    for message in harness.deliver(490):
        harness.settle(message)
    harness.advance(1000)
    assert remembered(harness) <= 2 * 10 + 32


def test_message_returned_repeatedly_is_recorded_once():
    harness = house(3_600_000, settings={"max_delivery_attempts": -1})
    send(harness, "x")
    for _ in range(500):
        (message,) = harness.deliver()
        harness.reject(message)
    assert remembered(harness) <= 34 and waiting(harness) == ["x"]


def test_priorities_change_nothing_about_time():
    harness = house()
    send(harness, "low", priority="1")
    harness.advance(500)
    send(harness, "high", priority="9")
    harness.advance(506)
    assert waiting(harness) == ["high"]


def test_age_of_a_returned_message_starts_at_its_send():
    harness = house()
    send(harness, "a")
    (message,) = harness.deliver()
    harness.advance(900)
    send(harness, "b")
    harness.reject(message)
    assert waiting(harness) == ["a", "b"] and timers(harness) == 1
    harness.advance(106)
    assert waiting(harness) == ["b"]


def test_message_returned_too_late_is_evicted_at_once():
    harness = house()
    send(harness, "a")
    (message,) = harness.deliver()
    harness.advance(1500)
    harness.reject(message)
    assert waiting(harness) == [] and timers(harness) == 0
    assert harness.broker.directory.queues[ADDRESS].messages_replaced == 1


def test_messages_with_a_consumer_are_not_touched():
    harness = house()
    send(harness, "a")
    (message,) = harness.deliver()
    harness.advance(5000)
    harness.settle(message)
    assert harness.broker.directory.queues[ADDRESS].messages_acknowledged == 1


def test_a_number_of_its_own():
    harness = house(size=2)
    send(harness, "1", "2", "3", "4")
    assert waiting(harness) == ["3", "4"]


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


def test_returned_message_above_the_number_is_evicted():
    harness = house(size=2)
    send(harness, "a")
    (message,) = harness.deliver()
    harness.advance(10)
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
    assert timers(harness) == 1
    harness.advance(506)
    assert [ref.message.body for ref in directory.queues["copy"].dispatcher.in_order()] == [b"b"]
    directory.delete_queue("copy")
    harness.advance(1000)
    assert harness.policy._heaps == {} and timers(harness) == 0
    harness.settle(message)
    assert not harness.errors


def test_an_address_that_is_deleted_leaves_no_timer():
    harness = house()
    send(harness, "a")
    view = harness.policy.address
    harness.delete()
    assert not view._timers


def test_a_reload_counts_from_when_messages_came():
    harness = house(60_000)
    send(harness, "a")
    harness.advance(2000)
    send(harness, "b", "c")
    harness.reload(max_age=1000)
    assert waiting(harness) == ["b", "c"] and timers(harness) == 1
    harness.advance(500)
    harness.reload(max_age=1000, size=1)
    assert waiting(harness) == ["c"]
    harness.advance(506)
    assert waiting(harness) == []
    assert not harness.errors


def test_a_reload_that_takes_it_away_leaves_no_timer():
    harness = house()
    send(harness, "a")
    former = harness.policy.address
    harness.reload(max_age=2000)
    assert not former._timers
    harness.advance(1900)
    assert waiting(harness) == ["a"]


def test_parameters():
    assert "parameter 'max-age' is required" in fault(KIND)
    assert "max-age is '0': must be at least 1" in fault(KIND, max_age=0)
    assert "size is '0': must be at least 1" in fault(KIND, max_age=1, size=0)
