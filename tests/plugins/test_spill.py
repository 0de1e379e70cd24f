"""plugins/spill.py"""

import logging

from stompring.policy.testing import ADDRESS, PolicyHarness

from . import fault, policy

KIND = policy("spill")


def house(**arguments):
    return PolicyHarness(KIND, **{"to": "warm", "settings": {"default_ring_size": 2}, **arguments})


def test_evicted_messages_are_at_the_other_address():
    harness = house()
    for body in (b"1", b"2", b"3", b"4"):
        harness.send(body, {"kind": "test", "priority": "7"})
    assert harness.waiting() == [b"3", b"4"]
    assert harness.waiting("warm") == [b"1", b"2"]
    copy = harness.messages("warm")[0]
    assert copy.header("_AMQ_ORIG_ADDRESS") == copy.header("_AMQ_ORIG_QUEUE") == ADDRESS
    assert (copy.header("kind"), copy.priority) == ("test", 7)
    assert not harness.errors


def test_the_other_address_may_be_a_ring_too():
    harness = house(others={"warm": {"default_ring_size": 3}})
    for number in range(10):
        harness.send(str(number).encode())
    assert harness.waiting() + harness.waiting("warm") == [b"8", b"9", b"5", b"6", b"7"]


def test_other_evictions_are_spilled_too():
    harness = house()
    harness.send(b"1")
    harness.messages()[0].give_up()
    assert harness.waiting("warm") == [b"1"]


def test_consumed_and_purged_messages_are_not_spilled():
    harness = house()
    harness.send(b"1")
    harness.send(b"2")
    harness.settle(harness.deliver()[0])
    harness.purge()
    assert harness.waiting("warm") == []


def test_lost_copies_are_logged_at_powers_of_two(caplog):
    harness = house(others={"warm": {"auto_create_addresses": False}})
    with caplog.at_level(logging.WARNING, "stompring_plugins.spill"):
        for number in range(11):
            harness.send(str(number).encode())
    logged = [record.getMessage() for record in caplog.records if record.name == "stompring_plugins.spill"]
    assert logged == [
        f"{number} evicted messages of address {ADDRESS} lost so far: no queue of address warm accepts them"
        for number in (1, 2, 4, 8)
    ]
    assert len(harness.waiting()) == 2


def test_to_itself():
    harness = house(to=ADDRESS)
    assert harness.errors == {"created": 1}
    assert "cannot start: address address would spill to itself" in harness.send(b"x").refused
    harness.reload(to="warm")
    assert harness.send(b"x").accepted


def test_a_reload_sends_it_elsewhere():
    harness = house()
    for number in range(3):
        harness.send(str(number).encode())
    harness.reload(to="cold")
    harness.send(b"3")
    assert (harness.waiting("warm"), harness.waiting("cold")) == ([b"0"], [b"1"])


def test_parameters():
    assert "parameter 'to' is required" in fault(KIND)
    assert "to is 'a::b': must be an address" in fault(KIND, to="a::b")
    assert "not a pattern" in fault(KIND, to="a.#")
