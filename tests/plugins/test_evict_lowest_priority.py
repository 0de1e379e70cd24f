"""plugins/evict_lowest_priority.py"""

from stompring.policy.testing import ADDRESS, PolicyHarness
from stompring.settings.model import QueueConfiguration, RoutingType

from . import fault, policy

KIND = policy("evict-lowest-priority")


def house(limit=3, **parameters):
    return PolicyHarness(KIND, full=True, settings={"max_size_messages": limit}, **parameters)


def send(harness, *bodies):
    """Bodies whose first digit is their priority; which of them were accepted."""
    return [harness.send(body.encode(), {"priority": body[0]}, producer=body).accepted for body in bodies]


def waiting(harness, queue=ADDRESS):
    pending = harness.broker.directory.queues[queue].dispatcher.in_order()
    return [ref.message.body.decode() for ref in pending]


def copies(harness, *names):
    for name in names:
        harness.broker.directory.create_queue(QueueConfiguration(name, ADDRESS, RoutingType.MULTICAST))


def test_the_oldest_of_the_lowest_goes_for_a_higher_one():
    harness = house()
    assert all(send(harness, "5a", "1a", "1b"))
    assert send(harness, "2a") == [True]
    assert waiting(harness) == ["5a", "2a", "1b"]
    assert all(send(harness, "9a", "9b", "9c"))
    assert waiting(harness) == ["9a", "9b", "9c"]
    assert harness.broker.directory.queues[ADDRESS].messages_replaced == 4
    assert not harness.errors


def test_otherwise_fail_sends_an_error():
    harness = house(otherwise="FAIL")
    send(harness, "4a", "4b", "4c")
    assert "full: max-size-messages 3" in harness.send(b"x").refused


def test_otherwise_block_evaluates_again():
    harness = house()
    send(harness, "5a", "5b", "5c")
    assert harness.send(b"x", producer="low").waits
    assert send(harness, "9a") == [True]
    assert waiting(harness) == ["9a", "5b", "5c"]
    harness.advance(0)
    assert not harness.sends_on("low")
    (message,) = harness.deliver()
    harness.settle(message)
    harness.advance(0)
    assert harness.sends_on("low")
    assert waiting(harness) == ["5b", "5c", "x"]


def test_as_many_go_as_one_needs():
    harness = PolicyHarness(KIND, full=True, settings={"max_size_bytes": 10_000}, otherwise="FAIL")
    while not harness.policy.address.full:
        harness.send(b"x" * 100, {"priority": "1"})
    before = len(harness.waiting())
    assert harness.send(b"y" * 3000, {"priority": "2"}).accepted
    assert harness.send(b"y" * 3000, {"priority": "2"}).accepted
    assert len(harness.waiting()) < before
    assert harness.policy.address.size < 10_000 + 3600
    sent = 2
    while harness.send(b"z" * 3000, {"priority": "2"}).accepted:
        sent += 1
    assert harness.waiting().count(b"x" * 100) == 0
    assert sent <= 4


def test_message_is_evicted_from_all_queues_in_which_it_waits():
    harness = house()
    copies(harness, "one", "two")
    send(harness, "5a", "1a", "2a")
    assert send(harness, "6a") == [True]
    for queue in (ADDRESS, "one", "two"):
        assert waiting(harness, queue) == ["6a", "5a", "2a"]


def test_a_queue_that_has_it_no_more_is_left_alone():
    harness = house()
    copies(harness, "copy")
    send(harness, "1a")
    (message,) = harness.deliver()
    harness.settle(message)
    send(harness, "2a", "3a", "4a")
    assert waiting(harness) == ["4a", "3a", "2a"]
    assert waiting(harness, "copy") == ["4a", "3a", "2a"]


def test_ineffective_evictions_are_limited():
    harness = house(40, otherwise="FAIL")
    copies(harness, "copy")
    for number in range(40):
        harness.send(str(number).encode(), {"priority": "1"})
    assert len(harness.deliver(40)) == 40
    assert "full" in harness.send(b"x", {"priority": "9"}).refused
    assert len(waiting(harness, "copy")) == 40 - 16


def test_ineffective_eviction_does_not_prevent_the_next_one():
    harness = house(otherwise="FAIL")
    copies(harness, "copy")
    send(harness, "1a", "1b", "1c")
    (first,) = harness.deliver()
    assert send(harness, "2a") == [True]
    assert waiting(harness) == ["2a", "1c"]
    assert waiting(harness, "copy") == ["2a", "1c"]
    harness.settle(first)
    assert harness.policy.address.messages == 2


def test_full_broker_evicts_no_more_than_the_new_message():
    harness = PolicyHarness(KIND, full=True, otherwise="FAIL")
    send(harness, *"1111111111")
    harness.broker.memory.set_limits(1)  # used up many times over, by others for all that is known here
    assert send(harness, "5a") == [True]
    assert len(waiting(harness)) == 10
    assert "global-max-size" in harness.send(b"x", {"priority": "1"}).refused


def test_reload_changes_otherwise():
    harness = house(otherwise="DROP")
    send(harness, "4a", "4b", "4c")
    harness.reload(otherwise="FAIL")
    assert harness.send(b"x").refused
    harness.reload(equal=True)
    assert send(harness, "4d") == [True]


def test_parameters():
    assert "must be one of DROP, FAIL, BLOCK" in fault(KIND, full=True, otherwise="PAGE")
    assert "equal is 'perhaps'" in fault(KIND, full=True, equal="perhaps")
